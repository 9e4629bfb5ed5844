//! Jobs in the two ways that people write first: one queue of subtasks, and jobs in a ring.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use crossbeam_channel::{Sender, unbounded};

use crate::workloads::jobs_mix::{JobPool, JobWorld};

/// One queue of subtasks: each job is split when it comes.
pub(crate) struct Fifo {
    queue: Sender<(&'static JobWorld, u32, usize)>,
}

impl Fifo {
    pub(crate) fn new(workers: usize) -> Fifo {
        let (queue, subtasks) = unbounded::<(&'static JobWorld, u32, usize)>();
        for _ in 0..workers {
            let subtasks = subtasks.clone();
            thread::spawn(move || {
                subtasks.iter().for_each(|(world, job, subtask)| world.run(job, subtask));
            });
        }
        Fifo { queue }
    }
}

impl JobPool for Fifo {
    fn submit(&self, world: &'static JobWorld, job: u32) {
        for subtask in 0..world.subtasks(job) {
            self.queue.send((world, job, subtask)).expect("the workers go on");
        }
    }
}

/// Jobs in a ring: who is first begins one subtask, and goes to the end.
pub(crate) struct RoundRobin {
    shared: Arc<(Mutex<VecDeque<Turn>>, Condvar)>,
}

struct Turn {
    world: &'static JobWorld,
    job: u32,
    next: usize,
}

impl RoundRobin {
    pub(crate) fn new(workers: usize) -> RoundRobin {
        let shared = Arc::<(Mutex<VecDeque<Turn>>, Condvar)>::default();
        for _ in 0..workers {
            let shared = shared.clone();
            thread::spawn(move || {
                loop {
                    let (world, job, subtask) = next(&shared);
                    world.run(job, subtask);
                }
            });
        }
        RoundRobin { shared }
    }
}

fn next((ring, comes): &(Mutex<VecDeque<Turn>>, Condvar)) -> (&'static JobWorld, u32, usize) {
    let mut ring = ring.lock().expect("nobody panics");
    loop {
        if let Some(Turn { world, job, next }) = ring.pop_front() {
            if next + 1 < world.subtasks(job) {
                ring.push_back(Turn { world, job, next: next + 1 });
            }
            return (world, job, next);
        }
        ring = comes.wait(ring).expect("nobody panics");
    }
}

impl JobPool for RoundRobin {
    fn submit(&self, world: &'static JobWorld, job: u32) {
        let (ring, comes) = &*self.shared;
        ring.lock().expect("nobody panics").push_back(Turn { world, job, next: 0 });
        comes.notify_all();
    }
}
