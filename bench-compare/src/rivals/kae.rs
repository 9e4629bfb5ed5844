//! `kae`: KeyAffinityExecutor (Java, more-lambdas), written again in Rust from its description.
//!
//! A key sticks to one worker while it has unfinished work, then is forgotten. A new key goes to
//! the worker with the least unfinished work, or, above 20 workers, to a random one. Each worker
//! has a bounded queue whose `put` blocks the submitter.
//!
//! Lacks: keys beside a busy key wait though other workers idle, one full queue blocks the
//! submitter of all keys, and no task can have two keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crossbeam_channel::{Sender, bounded};
use dashmap::{DashMap, Entry};

use super::{Hasher, hasher};
use crate::job::{Job, Task};
use crate::pool::{Pool, Submit};
use crate::rng::Rng;

/// With more workers than this, a new key goes to a random one.
const RANDOM_ABOVE: usize = 20;

/// The queue of each worker when the user does not choose.
pub(crate) const DEFAULT_QUEUE: usize = 100;

pub(crate) struct Kae {
    shared: Arc<Shared>,
}

struct Shared {
    workers: Vec<KaeWorker>,
    /// Keys with unfinished work.
    keys: DashMap<u64, Affinity, Hasher>,
}

struct KaeWorker {
    queue: Sender<Task>,
    /// Tasks queued or running here.
    unfinished: AtomicUsize,
}

struct Affinity {
    worker: usize,
    unfinished: usize,
}

impl Kae {
    pub(crate) fn new(workers: usize, queue_per_worker: usize) -> Kae {
        let workers = (0..workers)
            .map(|_| {
                let (queue, tasks) = bounded::<Task>(queue_per_worker);
                thread::spawn(move || tasks.into_iter().for_each(|task| task()));
                KaeWorker { queue, unfinished: AtomicUsize::new(0) }
            })
            .collect();
        Kae { shared: Arc::new(Shared { workers, keys: DashMap::with_hasher(hasher()) }) }
    }
}

impl Shared {
    /// Chooses the worker of `key` and counts one more task for both.
    fn select(&self, key: u64, rng: &mut Rng) -> usize {
        let mut affinity = match self.keys.entry(key) {
            Entry::Occupied(known) => known.into_ref(),
            Entry::Vacant(new) => {
                new.insert(Affinity { worker: self.worker_for_new(rng), unfinished: 0 })
            }
        };
        affinity.unfinished += 1;
        self.workers[affinity.worker].unfinished.fetch_add(1, Ordering::Relaxed);
        affinity.worker
    }

    fn worker_for_new(&self, rng: &mut Rng) -> usize {
        if self.workers.len() > RANDOM_ABOVE {
            return rng.below(self.workers.len());
        }
        let load = |&worker: &usize| self.workers[worker].unfinished.load(Ordering::Relaxed);
        (0..self.workers.len()).min_by_key(load).expect("there is a worker")
    }

    /// Counts one task less, and forgets the key with its last task.
    fn finish(&self, key: u64, worker: usize) {
        self.workers[worker].unfinished.fetch_sub(1, Ordering::Relaxed);
        let Entry::Occupied(mut entry) = self.keys.entry(key) else {
            unreachable!("a key with unfinished work is in the map");
        };
        entry.get_mut().unfinished -= 1;
        if entry.get().unfinished == 0 {
            entry.remove();
        }
    }
}

impl Pool for Kae {
    type Submitter = KaeSubmitter;

    fn submitter(&self) -> KaeSubmitter {
        KaeSubmitter { shared: self.shared.clone(), rng: Rng::new(11) }
    }
}

pub(crate) struct KaeSubmitter {
    shared: Arc<Shared>,
    rng: Rng,
}

impl<J: Job> Submit<J> for KaeSubmitter {
    fn submit(&mut self, key: u64, job: J) {
        let worker = self.shared.select(key, &mut self.rng);
        let shared = self.shared.clone();
        let task: Task = Box::new(move || {
            job.run();
            shared.finish(key, worker);
        });
        self.shared.workers[worker].queue.send(task).expect("workers outlive producers");
    }
}
