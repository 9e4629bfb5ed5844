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

/// Owner of a job for several entries, so that they count their owners apart from all others: at a
/// count for all, the splitter and the workers would meet at each subtask.
pub(super) struct SharedJob<J>(Arc<J>);

impl<J: OnGranted + 'static> SharedJob<J> {
    /// Returns an owner for this number of entries.
    pub(super) fn for_entries(job: Arc<J>, entries: usize) -> Arc<dyn OnGranted> {
        if entries == 1 { job } else { Arc::new(SharedJob(job)) }
    }
}

impl<J: OnGranted> OnGranted for SharedJob<J> {
    fn granted(&self, index: usize, ctx: &mut dyn ExecContext) {
        self.0.granted(index, ctx);
    }

    fn failed(&self, index: usize, payload: KeyPanic) {
        self.0.failed(index, payload);
    }
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
    const REPORTS: bool = true;

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
