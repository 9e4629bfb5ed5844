//! Batch of subtasks of one worker. `core/batches.rs` has its protocol.

use std::collections::VecDeque;

use super::source::NumberedSubtask;
use crate::engine::WorkerCtx;
use crate::run::TaskBody;
use crate::sync::Mutex;
use crate::unwind::drop_catch_unwind;

pub(super) struct SharedBatch<F> {
    pub(super) state: Mutex<BatchState<F>>,
}

pub(super) struct BatchState<F> {
    /// Subtasks that have not started, the next one first.
    pub(super) subtasks: VecDeque<NumberedSubtask<F>>,
    /// Whether the batch is counted in `SharedJobs::offers`. Then it has subtasks, unless the job
    /// was cancelled.
    pub(super) is_open: bool,
    /// Whether other workers have stolen subtasks.
    pub(super) was_stolen: bool,
}

impl<F> SharedBatch<F> {
    /// Takes the next subtask, for the batch's own worker.
    pub(super) fn take_next<K>(
        &self,
        ctx: &mut dyn WorkerCtx<K, TaskBody>,
    ) -> Option<NumberedSubtask<F>> {
        let mut state = self.state.lock();
        let next = state.subtasks.pop_front();
        let closes = state.subtasks.is_empty() && std::mem::take(&mut state.is_open);
        drop(state);
        if closes {
            ctx.close_batch();
        }
        next
    }

    /// Drops the remaining subtasks of a cancelled job.
    pub(super) fn drop_all(&self) {
        let subtasks = std::mem::take(&mut self.state.lock().subtasks);
        subtasks.into_iter().for_each(drop_catch_unwind);
    }
}
