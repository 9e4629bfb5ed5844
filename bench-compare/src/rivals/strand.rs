//! The strand that `strand-dashmap` and `strand-rayon` share: one queue per key, in a concurrent
//! map, which is on the ready list of its scheduler while it has work.
//!
//! A rollup stands in the queue of each of its keys and passes a token on: the strand that reaches
//! it last runs it, the others leave the ready list meanwhile. No worker waits.
//!
//! Lacks: a bound on queued work, and the map keeps every key it has ever seen.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use dashmap::DashMap;

use super::{Hasher, hasher};
use crate::job::{Job, Task, boxed};
use crate::pool::{Pool, Submit, SubmitGroup};

/// Tasks a strand runs before it goes to the end of the ready list.
const QUANTUM: usize = 64;

/// The ready list and the threads behind it.
pub(crate) trait Scheduler: Send + Sync + 'static {
    /// Has some worker call [`Strand::run`] soon.
    fn ready(self: &Arc<Self>, strand: Arc<Strand>);
}

enum Item {
    One(Task),
    Shared(Arc<SharedTask>),
}

/// A task over several strands.
struct SharedTask {
    /// Strands that have not reached it yet.
    missing: AtomicUsize,
    /// Taken by the last to reach it.
    task: Mutex<Option<Task>>,
    strands: Vec<Arc<Strand>>,
}

#[derive(Default)]
pub(crate) struct Strand {
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    items: VecDeque<Item>,
    /// On the ready list, running, or standing before a shared task.
    scheduled: bool,
}

impl Strand {
    #[inline]
    fn push(self: &Arc<Self>, item: Item, scheduler: &Arc<impl Scheduler>) {
        let was_scheduled = {
            let mut queue = self.queue.lock().unwrap();
            queue.items.push_back(item);
            std::mem::replace(&mut queue.scheduled, true)
        };
        if !was_scheduled {
            scheduler.ready(self.clone());
        }
    }

    /// Runs up to [`QUANTUM`] tasks.
    pub(crate) fn run(self: Arc<Self>, scheduler: &Arc<impl Scheduler>) {
        for _ in 0..QUANTUM {
            match self.pop() {
                None => return,
                Some(Item::One(task)) => task(),
                Some(Item::Shared(shared)) => {
                    if shared.missing.fetch_sub(1, Ordering::AcqRel) != 1 {
                        return; // stays scheduled: the last one to come makes it ready again
                    }
                    self.run_shared(&shared, scheduler);
                }
            }
        }
        scheduler.ready(self);
    }

    /// The next item, or `None` after leaving the ready list.
    fn pop(&self) -> Option<Item> {
        let mut queue = self.queue.lock().unwrap();
        let item = queue.items.pop_front();
        queue.scheduled = item.is_some();
        item
    }

    fn run_shared(self: &Arc<Self>, shared: &SharedTask, scheduler: &Arc<impl Scheduler>) {
        let task = shared.task.lock().unwrap().take().expect("only the last one takes it");
        task();
        for strand in shared.strands.iter().filter(|strand| !Arc::ptr_eq(strand, self)) {
            scheduler.ready(strand.clone());
        }
    }
}

type Strands = Arc<DashMap<u64, Arc<Strand>, Hasher>>;

pub(crate) struct StrandPool<S> {
    strands: Strands,
    scheduler: Arc<S>,
}

impl<S: Scheduler> StrandPool<S> {
    pub(crate) fn over(scheduler: Arc<S>) -> StrandPool<S> {
        StrandPool { strands: Arc::new(DashMap::with_hasher(hasher())), scheduler }
    }
}

impl<S: Scheduler> Pool for StrandPool<S> {
    type Submitter = StrandSubmitter<S>;

    fn submitter(&self) -> StrandSubmitter<S> {
        StrandSubmitter { strands: self.strands.clone(), scheduler: self.scheduler.clone() }
    }
}

pub(crate) struct StrandSubmitter<S> {
    strands: Strands,
    scheduler: Arc<S>,
}

impl<S> StrandSubmitter<S> {
    #[inline]
    fn strand(&self, key: u64) -> Arc<Strand> {
        if let Some(strand) = self.strands.get(&key) {
            return strand.clone();
        }
        self.strands.entry(key).or_default().clone()
    }
}

impl<S: Scheduler, J: Job> Submit<J> for StrandSubmitter<S> {
    #[inline]
    fn submit(&mut self, key: u64, job: J) {
        self.strand(key).push(Item::One(boxed(job)), &self.scheduler);
    }
}

/// One producer only: two would need a lock around the pushes of a rollup.
impl<S: Scheduler, J: Job> SubmitGroup<J> for StrandSubmitter<S> {
    fn submit_group(&mut self, keys: [u64; 4], job: J) {
        let strands = keys.map(|key| self.strand(key)).to_vec();
        let shared = Arc::new(SharedTask {
            missing: AtomicUsize::new(strands.len()),
            task: Mutex::new(Some(boxed(job))),
            strands,
        });
        for strand in &shared.strands {
            strand.push(Item::Shared(shared.clone()), &self.scheduler);
        }
    }
}
