//! `shard-batch64`: [`super::shard`] with the producer handing over 64 tasks at a time. The tuned
//! form: one channel operation and one wake-up for 64 tasks.
//!
//! Lacks what `shard` lacks, and a task may wait in the producer's batch until 63 more come.

use std::thread;

use crossbeam_channel::{Sender, bounded};

use super::{Hasher, hasher, shard_of};
use crate::job::{Job, Task, boxed};
use crate::pool::{Pool, Submit};

pub(crate) const BATCH: usize = 64;

type Batch = Vec<Task>;

pub(crate) struct ShardBatch {
    queues: Vec<Sender<Batch>>,
}

impl ShardBatch {
    /// `capacity` counts tasks and is shared out evenly among the workers.
    pub(crate) fn new(workers: usize, capacity: usize) -> ShardBatch {
        let queues = (0..workers)
            .map(|_| {
                let (queue, batches) = bounded::<Batch>(capacity / workers / BATCH);
                thread::spawn(move || batches.into_iter().flatten().for_each(|task| task()));
                queue
            })
            .collect();
        ShardBatch { queues }
    }
}

impl Pool for ShardBatch {
    type Submitter = ShardBatchSubmitter;

    fn submitter(&self) -> ShardBatchSubmitter {
        ShardBatchSubmitter {
            queues: self.queues.clone(),
            batches: self.queues.iter().map(|_| Vec::with_capacity(BATCH)).collect(),
            hasher: hasher(),
        }
    }
}

pub(crate) struct ShardBatchSubmitter {
    queues: Vec<Sender<Batch>>,
    batches: Vec<Batch>,
    hasher: Hasher,
}

impl ShardBatchSubmitter {
    fn hand_over(&mut self, worker: usize) {
        let batch = std::mem::replace(&mut self.batches[worker], Vec::with_capacity(BATCH));
        self.queues[worker].send(batch).expect("workers outlive producers");
    }
}

impl<J: Job> Submit<J> for ShardBatchSubmitter {
    #[inline]
    fn submit(&mut self, key: u64, job: J) {
        let worker = shard_of(&self.hasher, key, self.queues.len());
        self.batches[worker].push(boxed(job));
        if self.batches[worker].len() == BATCH {
            self.hand_over(worker);
        }
    }

    fn flush(&mut self) {
        for worker in 0..self.queues.len() {
            self.hand_over(worker);
        }
    }
}
