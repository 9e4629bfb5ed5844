//! Lease of the owner of a store: the time up to which it may start work.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Time after the begin of a heartbeat for which the owner starts work. It is shorter than the time after which another node takes over
/// (`candidate.rs`), so that the owner has stopped before that begins.
const LEASE: Duration = Duration::from_secs(4);

/// Time up to which a node may start work.
#[derive(Debug, Default)]
pub(in crate::store) struct Lease {
    /// Milliseconds since the start of the machine. Relaxed: it passes no data.
    until: AtomicU64,
    /// Why this node does not own the store any more.
    lost: OnceLock<&'static str>,
}

impl Lease {
    /// Returns whether the node may start work now.
    pub(in crate::store) fn holds(&self) -> bool {
        self.holds_at(boot_time())
    }

    /// Returns whether the node may start work at this time since the start of the machine.
    pub(super) fn holds_at(&self, now: Duration) -> bool {
        now.as_millis() < self.until.load(Ordering::Relaxed).into()
    }

    /// Returns why this node does not own the store any more, once it knows that.
    pub(in crate::store) fn lost(&self) -> Option<&'static str> {
        self.lost.get().copied()
    }

    /// Extends the lease from a heartbeat that has succeeded and began to be sent at `sent`.
    pub(super) fn extend(&self, sent: Duration) {
        let until = u64::try_from((sent + LEASE).as_millis()).unwrap_or(u64::MAX);
        self.until.store(until, Ordering::Relaxed);
    }

    /// Ends the lease.
    pub(super) fn end(&self) {
        self.until.store(0, Ordering::Relaxed);
    }

    /// Ends the lease, because this node does not own the store any more.
    pub(super) fn lose(&self, why: &'static str) {
        self.end();
        let _ = self.lost.set(why);
    }
}

/// Returns the time since the machine started, its sleep included.
pub(super) fn boot_time() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    let nanos = u32::try_from(now.tv_nsec).unwrap_or(0);
    Duration::new(now.tv_sec.try_into().unwrap_or(0), nanos)
}
