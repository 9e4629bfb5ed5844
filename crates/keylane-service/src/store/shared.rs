//! State shared by the callers of a store and its writer: the queue, the counters and the first
//! failure.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::error::WriteError;
use super::queue::WriteQueue;
use super::tables::MetaRow;
use crate::ids::JobNumber;

/// State shared by callers and the writer.
#[derive(Debug)]
pub(super) struct StoreShared {
    pub(super) queue: WriteQueue,
    /// Number of the next upload.
    next_number: AtomicU64,
    /// Number of transactions on the disk. Only the writer changes it.
    commits: AtomicU64,
    /// First failure, after which nothing is written. Only the writer changes it.
    failed: Mutex<Option<Arc<str>>>,
    /// Whether closing the file may record an orderly shutdown: the previous process shut down in
    /// order, or all unfinished jobs were handed to their new owner. A tool that opens a crashed
    /// store and closes it must not hide the crash.
    pub(super) goes_on: AtomicBool,
    /// Callback after each commit. Set once, before the first change that it serves.
    pub(super) after_commit: AfterCommit,
}

/// Optional callback on the writer thread, run after the results of a commit are reported.
#[derive(Default)]
pub(super) struct AfterCommit(OnceLock<Box<dyn Fn() + Send + Sync>>);

impl AfterCommit {
    pub(super) fn call(&self) {
        if let Some(then) = self.0.get() {
            then();
        }
    }

    /// Sets the callback. Returns false if there is one already.
    pub(super) fn set(&self, then: impl Fn() + Send + Sync + 'static) -> bool {
        self.0.set(Box::new(then)).is_ok()
    }
}

impl fmt::Debug for AfterCommit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AfterCommit").field(&self.0.get().is_some()).finish()
    }
}

impl StoreShared {
    /// Creates the state of a store that has just been opened, with this content. `was_clean` tells
    /// whether the previous process shut down in order.
    pub(super) fn new(max_waiting_bytes: usize, meta: &MetaRow, was_clean: bool) -> Self {
        StoreShared {
            queue: WriteQueue::new(max_waiting_bytes),
            next_number: AtomicU64::new(meta.numbers),
            after_commit: AfterCommit::default(),
            commits: AtomicU64::new(meta.commits),
            failed: Mutex::default(),
            goes_on: AtomicBool::new(was_clean),
        }
    }

    fn failed(&self) -> MutexGuard<'_, Option<Arc<str>>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a failure. The first cause is kept.
    pub(super) fn fail(&self, cause: Arc<str>) {
        self.failed().get_or_insert(cause);
    }

    pub(super) fn failure_cause(&self) -> Option<Arc<str>> {
        self.failed().clone()
    }

    pub(super) fn failure(&self) -> Option<WriteError> {
        self.failure_cause().map(|cause| WriteError::Failed { cause })
    }

    pub(super) fn next_number(&self) -> u64 {
        self.next_number.load(Ordering::Relaxed)
    }

    /// Takes the number of the next upload.
    pub(super) fn take_number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// Raises the number of the next upload above this one.
    pub(super) fn pass_number(&self, number: JobNumber) {
        self.next_number.fetch_max(number.0 + 1, Ordering::Relaxed);
    }

    pub(super) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    pub(super) fn set_commits(&self, commits: u64) {
        self.commits.store(commits, Ordering::Relaxed);
    }
}
