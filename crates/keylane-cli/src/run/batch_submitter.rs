//! Gives batches to the pool: when they are full, when their first record has waited for the linger
//! time, and all of them when the reader cannot go on or has read the last record.
//!
//! # Order
//! The batches of a key are ready in their order, and each choice of ready batches and their
//! submission is one step under the lock of `submission`. So they enter the pool in that order, which
//! runs them in it.
//!
//! # No deadlock
//! The reader waits only for records in the pool: before each wait it gives all batches to the pool.
//! Tasks take the lock of the queue, and never that of `submission`. The pool has room for a task per
//! unfinished record, so that a submission waits at most for tasks that have ended.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use keylane::{Claims, Pool};

use crate::key::RecordKey;
use crate::record_keys::RecordKeys;
use crate::record_output::RecordSink;
use crate::run_stats::RecordLocation;

use super::batch_queue::{BatchQueue, BatchRecord, QueueClosed};
use super::batch_task::{BatchRunner, BatchTask};
use super::command_task::CommandRunner;
use super::record_bound::RecordBound;
use super::record_pool::RecordPool;
use super::record_template::RecordTemplate;
use super::waiting_batches::ReadyBatch;

/// Way of records into batches, and of these into the pool.
#[derive(Debug)]
pub(super) struct BatchSubmitter {
    runner: Arc<BatchRunner>,
    bound: Arc<RecordBound>,
    pool: Pool<RecordKey>,
    /// Held from the choice of ready batches to their submission.
    submission: Mutex<()>,
}

impl BatchSubmitter {
    /// Starts the thread that watches the linger times. Returns `None` for a run without batches.
    pub(super) fn start(
        pool: &RecordPool,
        commands: Option<&Arc<CommandRunner>>,
        template: &RecordTemplate,
    ) -> io::Result<Option<Arc<Self>>> {
        let (RecordPool::Batches { pool, queue, bound }, Some(commands)) = (pool, commands) else {
            return Ok(None);
        };
        let (queue, commands) = (Arc::clone(queue), Arc::clone(commands));
        let runner = Arc::new(BatchRunner { queue, commands, template: template.clone() });
        let (bound, pool) = (Arc::clone(bound), pool.clone());
        let submitter =
            Arc::new(BatchSubmitter { runner, bound, pool, submission: Mutex::default() });
        let watching = Arc::clone(&submitter);
        let thread = thread::Builder::new().name("keylane-linger".into());
        thread.spawn(move || {
            while watching.runner.queue.wait_until_due() {
                watching.submit(BatchQueue::due);
            }
        })?;
        Ok(Some(submitter))
    }

    /// Adds a record, when there is room. Returns false if the run takes no more.
    pub(super) fn add(
        &self,
        line: Vec<u8>,
        place: RecordLocation,
        keys: RecordKeys,
        sink: RecordSink,
    ) -> bool {
        if !self.bound.has_room() {
            self.submit_all();
        }
        let permit = self.bound.acquire(&keys.first);
        let record = BatchRecord { place, keys, line, sink, permit };
        let mut is_open = true;
        self.submit(|queue| match queue.add(record) {
            Ok(ready) => ready.into_iter().collect(),
            Err(QueueClosed) => {
                self.runner.commands.processes.stats.not_run(1);
                is_open = false;
                Vec::new()
            }
        });
        is_open
    }

    /// Gives all batches to the pool, before the reader waits.
    pub(super) fn submit_all(&self) {
        self.submit(BatchQueue::all_lingering);
    }

    /// Gives all batches to the pool, and ends the thread. No record follows.
    pub(super) fn end(&self) {
        self.submit_all();
        self.runner.queue.close();
    }

    fn submit(&self, choose: impl FnOnce(&BatchQueue) -> Vec<ReadyBatch>) {
        let _order = self.submission.lock().unwrap_or_else(PoisonError::into_inner);
        for ReadyBatch { number, key } in choose(&self.runner.queue) {
            let claims = match key {
                RecordKey::Unkeyed(_) => Claims::none(),
                key => Claims::exclusive(key),
            };
            let mut batch = BatchTask::new(&self.runner, number);
            let task = self.pool.task(claims);
            // A pool that is closed returns the batch, which counts itself.
            let _ = match self.runner.commands.failures.retry() {
                Some(retry) => {
                    task.fallible().retry(retry).execute(move || batch.attempt()).map_err(drop)
                }
                None => task
                    .execute(move || {
                        let ended = batch.attempt();
                        ended.expect("there is one attempt");
                    })
                    .map_err(drop),
            };
        }
    }
}
