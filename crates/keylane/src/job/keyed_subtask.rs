//! Entry of a keyed subtask in the lanes: holds its position, and reports when its keys are
//! granted.

use std::sync::Arc;

use crate::run::{ExecContext, KeepValueContext, KeptValue, RunBody};
use crate::unwind::KeyPanic;

/// Callbacks of a job's entries.
pub(super) trait OnGranted: Send + Sync {
    /// Reports that the subtask at this index has its keys. Keeps its turn for it, or ends the turn
    /// if the job was cancelled.
    fn granted(&self, index: usize, ctx: &mut dyn ExecContext);

    /// Reports that the subtask at this index cannot get its keys, because of a panic with this
    /// payload.
    fn failed(&self, index: usize, payload: KeyPanic);
}

/// Entry of a subtask in the lanes. The job owns the subtask itself, and drops it when it is
/// cancelled; the entry then keeps the position, so that no later task overtakes.
pub(crate) struct KeyedSubtask {
    pub(super) job: Arc<dyn OnGranted>,
    pub(super) index: usize,
    /// Value kept with an earlier turn of the subtask, which was requeued before it started. Boxed
    /// twice, so that an entry is small enough to be stored inline.
    pub(super) kept: Option<Box<KeptValue>>,
}

impl RunBody for KeyedSubtask {
    fn run(self, ctx: &mut dyn ExecContext) {
        match self.kept {
            None => self.job.granted(self.index, ctx),
            Some(kept) => self.job.granted(self.index, &mut KeepValueContext::new(ctx, *kept)),
        }
        // The job has the result of the subtask, which counts neither as a success nor as a failure
        // of its keys.
        ctx.set_void();
    }

    fn fail(self, payload: KeyPanic) {
        self.job.failed(self.index, payload);
    }
}
