//! `shard`: a key belongs to a worker by its hash; each worker has a bounded channel of boxed
//! closures. What people write first, and the yardstick of the tables. `shard-oneshot`: the same with a result for each task.
//!
//! Lacks: a busy worker's keys wait while others idle, one full worker blocks the producer of all
//! keys, and no task can have two keys.

use std::thread;

use crossbeam_channel::{Sender, bounded};
use tokio::sync::oneshot;

use super::{Hasher, hasher, shard_of};
use crate::job::{Job, Task, boxed};
use crate::pool::{Pool, Submit};

pub(crate) struct Shard {
    queues: Vec<Sender<Task>>,
}

impl Shard {
    /// `capacity` is shared out evenly among the workers.
    pub(crate) fn new(workers: usize, capacity: usize) -> Shard {
        let queues = (0..workers)
            .map(|_| {
                let (queue, tasks) = bounded::<Task>(capacity / workers);
                thread::spawn(move || tasks.into_iter().for_each(|task| task()));
                queue
            })
            .collect();
        Shard { queues }
    }
}

impl Pool for Shard {
    type Submitter = ShardSubmitter;

    fn submitter(&self) -> ShardSubmitter {
        ShardSubmitter { queues: self.queues.clone(), hasher: hasher() }
    }
}

pub(crate) struct ShardSubmitter {
    queues: Vec<Sender<Task>>,
    hasher: Hasher,
}

impl<J: Job> Submit<J> for ShardSubmitter {
    #[inline]
    fn submit(&mut self, key: u64, job: J) {
        let worker = shard_of(&self.hasher, key, self.queues.len());
        self.queues[worker].send(boxed(job)).expect("workers outlive producers");
    }
}

/// `shard-oneshot`: a [`Shard`] whose tasks send their results by a oneshot channel each, as in a program that waits for
/// some of them. The submitter drops the receiver at once.
pub(crate) struct ShardOneshot(pub(crate) Shard);

impl Pool for ShardOneshot {
    type Submitter = OneshotSubmitter;

    fn submitter(&self) -> OneshotSubmitter {
        OneshotSubmitter(self.0.submitter())
    }
}

pub(crate) struct OneshotSubmitter(ShardSubmitter);

impl<J: Job> Submit<J> for OneshotSubmitter {
    #[inline]
    fn submit(&mut self, key: u64, job: J) {
        let ShardSubmitter { queues, hasher } = &self.0;
        let (result, receiver) = oneshot::channel();
        let task: Task = Box::new(move || {
            job.run();
            // The receiver is gone.
            _ = result.send(());
        });
        queues[shard_of(hasher, key, queues.len())].send(task).expect("workers outlive producers");
        drop(receiver);
    }
}
