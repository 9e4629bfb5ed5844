//! A subtask with keys, as it stands in the lanes.

use std::sync::Arc;

use crate::run::{Keeping, KeptValue, Run, Stage};

/// A job, as its entries see it.
pub(super) trait Lined: Send + Sync {
    /// The subtask at this place has its keys. Its turn is kept for it, or ends if the job was
    /// cancelled.
    fn granted(&self, place: usize, stage: &mut dyn Stage);
}

/// Stands in the lanes for a subtask. The subtask itself is with the job, which drops it when it is
/// cancelled; the entry then keeps the place, so that nobody behind it overtakes anybody.
pub(crate) struct Entry {
    pub(super) job: Arc<dyn Lined>,
    pub(super) place: usize,
    /// The value that was kept with an earlier turn of the subtask, which was held back before it began. Boxed
    /// twice, so that an entry is small enough to be stored in place.
    pub(super) kept: Option<Box<KeptValue>>,
}

impl Run for Entry {
    fn run(self, stage: &mut dyn Stage) {
        // What becomes of it is the job's business.
        stage.is_void();
        match self.kept {
            None => self.job.granted(self.place, stage),
            Some(kept) => self.job.granted(self.place, &mut Keeping::new(stage, *kept)),
        }
    }
}
