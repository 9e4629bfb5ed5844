//! What one worker has done and does, written by it and read by anybody.

use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use crate::sync::{AtomicBool, AtomicU64, Ordering};

/// Every field is written by its worker alone, so plain loads and stores count.
#[derive(Debug)]
pub(crate) struct WorkerTally {
    fields: CachePadded<Fields>,
    /// When the worker was made; never changed.
    born: Instant,
}

#[derive(Debug)]
struct Fields {
    /// Tasks that it has run.
    ran: AtomicU64,
    /// It has tasks; else it looks for some, or sleeps.
    busy: AtomicBool,
    /// When it last looked at the clock while busy, or fell idle: nanoseconds since `born`.
    looked: AtomicU64,
}

impl Default for WorkerTally {
    fn default() -> Self {
        let (ran, busy, looked) = (AtomicU64::new(0), AtomicBool::new(false), AtomicU64::new(0));
        WorkerTally { fields: CachePadded::new(Fields { ran, busy, looked }), born: Instant::now() }
    }
}

impl WorkerTally {
    #[inline]
    pub(crate) fn ran_one(&self) {
        let ran = self.fields.ran.load(Ordering::Relaxed);
        self.fields.ran.store(ran + 1, Ordering::Relaxed);
    }

    /// The time as its worker counts it: nanoseconds since `born`.
    pub(crate) fn now(&self) -> u64 {
        self.born.elapsed().as_nanos() as u64
    }

    pub(crate) fn looked(&self, now: u64) {
        self.fields.looked.store(now, Ordering::Relaxed);
    }

    pub(crate) fn set_busy(&self, busy: bool) {
        self.fields.busy.store(busy, Ordering::Relaxed);
    }

    pub(crate) fn ran(&self) -> u64 {
        self.fields.ran.load(Ordering::Relaxed)
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.fields.busy.load(Ordering::Relaxed)
    }

    /// How long ago the worker last looked at the clock.
    pub(crate) fn since_look(&self) -> Duration {
        let looked = Duration::from_nanos(self.fields.looked.load(Ordering::Relaxed));
        self.born.elapsed().saturating_sub(looked)
    }
}
