//! A subtask with keys, as it stands in the lanes.

use std::sync::Arc;

use crate::run::{ExecContext, KeepValueContext, KeptValue, RunBody};

/// A job, as its entries see it.
pub(super) trait OnGranted: Send + Sync {
    /// The subtask at this place has its keys. Its turn is kept for it, or ends if the job was
    /// cancelled.
    fn granted(&self, place: usize, ctx: &mut dyn ExecContext);
}

/// Stands in the lanes for a subtask. The subtask itself is with the job, which drops it when it is
/// cancelled; the entry then keeps the place, so that nobody behind it overtakes anybody.
pub(crate) struct KeyedSubtask {
    pub(super) job: Arc<dyn OnGranted>,
    pub(super) place: usize,
    /// The value that was kept with an earlier turn of the subtask, which was held back before it began. Boxed
    /// twice, so that an entry is small enough to be stored in place.
    pub(super) kept: Option<Box<KeptValue>>,
}

impl RunBody for KeyedSubtask {
    fn run(self, ctx: &mut dyn ExecContext) {
        // What becomes of it is the job's business.
        ctx.is_void();
        match self.kept {
            None => self.job.granted(self.place, ctx),
            Some(kept) => self.job.granted(self.place, &mut KeepValueContext::new(ctx, *kept)),
        }
    }
}
