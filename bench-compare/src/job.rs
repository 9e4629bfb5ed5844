//! What the tasks do. A pool for closures runs a job as a closure; a typed pool sends the job's
//! data as a message.

use std::time::Duration;

use crate::plan::Step;
use crate::world::World;

pub(crate) trait Job: Send + 'static {
    fn run(self);
}

/// How most pools keep work: a closure on the heap.
pub(crate) type Task = Box<dyn FnOnce() + Send>;

pub(crate) fn boxed(job: impl Job) -> Task {
    Box::new(move || job.run())
}

/// Checks its place and ends: W1, W3 and W5. 16 bytes.
#[derive(Clone, Copy)]
pub(crate) struct Tiny {
    pub(crate) world: &'static World,
    pub(crate) step: Step,
}

impl Job for Tiny {
    #[inline]
    fn run(self) {
        self.world.step(self.step);
    }
}

/// Checks its place on four keys: W3.
#[derive(Clone, Copy)]
pub(crate) struct Rollup {
    pub(crate) world: &'static World,
    pub(crate) steps: [Step; 4],
}

impl Rollup {
    pub(crate) fn keys(&self) -> [u64; 4] {
        self.steps.map(|(key, _)| u64::from(key))
    }
}

impl Job for Rollup {
    #[inline]
    fn run(self) {
        self.world.step_all(&self.steps);
    }
}

/// How long a task of W2 asks to sleep. The kernel adds its slack, so the sleeps are measured.
pub(crate) const SLEEP: Duration = Duration::from_millis(1);

/// Holds its key, and a worker, for about a millisecond: W2.
#[derive(Clone, Copy)]
pub(crate) struct Sleep {
    pub(crate) world: &'static World,
    pub(crate) step: Step,
}

impl Job for Sleep {
    fn run(self) {
        let entered = self.world.enter(self.step.0);
        std::thread::sleep(SLEEP);
        self.world.leave(self.step, entered);
    }
}

/// Holds a worker until the world opens its gate, so that tasks pile up behind it: W5.
#[derive(Clone, Copy)]
pub(crate) struct Gate {
    pub(crate) world: &'static World,
}

impl Job for Gate {
    fn run(self) {
        self.world.wait_at_gate();
    }
}
