//! A job without a splitter of its own, for tests and models of what workers and the rules do with jobs.

use std::sync::Arc;

use super::{Crowd, Sat, Site};
use crate::allocate::{End, Progress, Take};
use crate::sync::{AtomicU64, Mutex};

/// A job of so many subtasks, which are alike.
pub(super) struct Few {
    left: Mutex<usize>,
    run: Box<dyn Fn() + Send + Sync>,
    name: Arc<str>,
}

impl Few {
    pub(super) fn new(subtasks: usize, run: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Few { left: Mutex::new(subtasks), run: Box::new(run), name: "few".into() })
    }
}

impl<W> Crowd<u64, W> for Few {
    fn sit(&self, _: Take, _: usize, site: &mut dyn Site<u64, W>) -> Option<Sat> {
        let mut left = self.left.lock();
        *left -= 1;
        let exhausted = *left == 0;
        drop(left);
        site.split(exhausted);
        (self.run)();
        Some(Sat::ended(End::Done))
    }

    fn relieve(&self) -> usize {
        0
    }

    fn untold(&self) -> &AtomicU64 {
        unreachable!("there are no batches")
    }

    fn is_full(&self) -> bool {
        false
    }

    fn most_waiting(&self) -> u64 {
        u64::MAX
    }

    fn finish(&self, _: Progress) {}

    fn stop(&self) {}

    fn name(&self) -> &Arc<str> {
        &self.name
    }
}
