//! Batch of subtasks of one worker, from which other workers steal those that have not started.
//!
//! A worker takes several short subtasks at once. If one of them is long, those behind it in the
//! batch would wait for it while other workers are idle. The batch is therefore shared: a worker
//! that finds no other work, or is assigned elsewhere, moves the remaining subtasks to the granted
//! ones, for any worker.
//!
//! # Protocol
//! 1. An *open* batch is counted in `SharedJobs::offers`, so that no worker falls asleep beside it.
//!    The worker that takes its last subtask closes it and decrements the count: its own worker, a
//!    stealing one, or its own worker at the end of the batch.
//! 2. The scheduler knows of a batch only that its worker is busy; so a stealing worker reports the
//!    number of subtasks that were split off and are ready. Under the lock of the batch it first
//!    grants them and then raises `stolen`; it resets `stolen` in the scheduler section that
//!    reports them.
//! 3. Before the batch's worker reports its end, it checks under the same lock whether subtasks
//!    were stolen, and then reports the value of `stolen` itself.
//!
//! # Why the scheduler hears of each subtask, once, before the job ends
//! `stolen` is read by an exchange in a scheduler section, so no subtask is reported twice. Stolen
//! subtasks are either reported by the stealing worker, or were still counted in `stolen` at the
//! check of the batch's worker, which comes before that worker ends; in both cases the worker
//! counts as running in that section, so the job has not ended.
//!
//! # Why each is present when the scheduler assigns a worker to it
//! A worker that resets `stolen` has seen it raised, after the subtasks were granted. If they were
//! granted after the release of the lock, the batch's worker could report them in between, and a
//! worker could be assigned, find none, and report its subtask as waiting: that subtask would never
//! run.

use super::*;
use crate::job::shared_batch::{BatchState, SharedBatch};

impl<K, I, F, T, E> JobCore<K, I, F, T, E>
where
    K: Key,
    I: SubtaskSource<K, F>,
    F: SubtaskBody<T, E>,
    T: Send + 'static,
    E: Send + 'static,
{
    /// Shares the subtasks that the worker has not started.
    pub(super) fn open_batch(
        &self,
        subtasks: VecDeque<NumberedSubtask<F>>,
        ctx: &mut dyn WorkerCtx<K, TaskBody>,
    ) -> Arc<SharedBatch<F>> {
        let state = BatchState { subtasks, is_open: true, was_stolen: false };
        let batch = Arc::new(SharedBatch { state: Mutex::new(state) });
        self.batches.lock().push(batch.clone());
        ctx.open_batch();
        batch
    }

    /// Ends the batch, before its worker reports its end.
    pub(super) fn close_batch(
        &self,
        batch: &Arc<SharedBatch<F>>,
        ctx: &mut dyn WorkerCtx<K, TaskBody>,
    ) {
        let mut batches = self.batches.lock();
        batches.retain(|other| !Arc::ptr_eq(other, batch));
        drop(batches);
        let mut state = batch.state.lock();
        let rest = std::mem::take(&mut state.subtasks);
        let was_open = std::mem::take(&mut state.is_open);
        let was_stolen = state.was_stolen;
        drop(state);
        if was_open {
            ctx.close_batch();
        }
        if was_stolen {
            ctx.report_stolen(&self.stolen);
        }
        self.grant_to_others(rest, ctx);
    }

    /// Grants all subtasks that wait behind another one in a batch. Returns the number of batches
    /// closed.
    pub(super) fn empty_batches(&self) -> usize {
        let batches = self.batches.lock().clone();
        let mut closed = 0;
        for batch in batches {
            let mut state = batch.state.lock();
            let subtasks = std::mem::take(&mut state.subtasks);
            closed += usize::from(std::mem::take(&mut state.is_open));
            let count = subtasks.len() as u64;
            if count == 0 {
                continue;
            }
            let granted = self.try_grant(subtasks);
            if granted.is_ok() {
                state.was_stolen = true;
                self.stolen.fetch_add(count, Ordering::AcqRel);
            }
            drop(state);
            granted.err().into_iter().flatten().for_each(drop_catch_unwind);
        }
        closed
    }
}
