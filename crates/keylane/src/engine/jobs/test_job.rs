//! Job without a splitter of its own, for tests and models of workers and allocation.

use std::sync::Arc;

use keylane_allocate::{End, JobProgress, Take};

use super::{BatchLimits, BatchReport, JobRunner, WorkerCtx};
use crate::sync::{AtomicU64, Mutex};

/// Job of equal subtasks.
pub(super) struct TestJob {
    left: Mutex<usize>,
    run: Box<dyn Fn() + Send + Sync>,
    name: Arc<str>,
}

impl TestJob {
    pub(super) fn new(subtasks: usize, run: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(TestJob { left: Mutex::new(subtasks), run: Box::new(run), name: "test".into() })
    }
}

impl<W> JobRunner<u64, W> for TestJob {
    fn run_batch(
        &self,
        _: Take,
        _: BatchLimits,
        ctx: &mut dyn WorkerCtx<u64, W>,
    ) -> Option<BatchReport> {
        let mut left = self.left.lock();
        *left -= 1;
        let exhausted = *left == 0;
        drop(left);
        ctx.split(exhausted);
        (self.run)();
        Some(BatchReport::ended(End::Done))
    }

    fn release_batches(&self) -> usize {
        0
    }

    fn stolen(&self) -> &AtomicU64 {
        unreachable!("there are no batches")
    }

    fn is_full(&self) -> bool {
        false
    }

    fn max_waiting(&self) -> u64 {
        u64::MAX
    }

    fn finish(&self, _: JobProgress) {}

    fn stop(&self) {}

    fn name(&self) -> &Arc<str> {
        &self.name
    }
}
