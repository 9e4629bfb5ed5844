//! The one place that names the primitives: `std`'s, or loom's when a model is being checked.
//!
//! Everything concurrent in this crate takes its locks, atomics and threads from here, so that the
//! protocols that run are the protocols that the loom models check. Plain `Arc`s are `std`'s in
//! both cases: no protocol depends on how a count is kept.

#[cfg(not(loom))]
mod primitives {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU64, AtomicUsize};
    pub(crate) use std::sync::{Condvar, Mutex as RawMutex, MutexGuard};
    pub(crate) use std::thread::{Thread, current, park, yield_now};

    pub(crate) fn park_timeout(timeout: std::time::Duration) {
        std::thread::park_timeout(timeout);
    }

    pub(crate) fn spin_hint() {
        std::hint::spin_loop();
    }
}

#[cfg(loom)]
mod primitives {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicIsize, AtomicU64, AtomicUsize};
    pub(crate) use loom::sync::{Condvar, Mutex as RawMutex, MutexGuard};
    pub(crate) use loom::thread::{Thread, current, park, yield_now};

    /// Loom has no clock: a timed wait is one that may end at any time.
    pub(crate) fn park_timeout(_: std::time::Duration) {
        loom::thread::yield_now();
    }

    pub(crate) fn spin_hint() {
        loom::thread::yield_now();
    }
}

pub(crate) use primitives::*;
pub(crate) use std::sync::atomic::Ordering;

/// A mutex whose sections never unwind half-way, so that poison carries no news and is ignored.
///
/// No user code runs inside a section except the key's `Eq` and `Clone`.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(RawMutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Mutex(RawMutex::new(value))
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Waits on `condition`, giving the lock up meanwhile.
pub(crate) fn wait<'a, T>(condition: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condition.wait(guard).unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Waits on `condition` for at most `timeout`.
#[cfg(not(loom))]
pub(crate) fn wait_timeout<'a, T>(
    condition: &Condvar,
    guard: MutexGuard<'a, T>,
    timeout: std::time::Duration,
) -> MutexGuard<'a, T> {
    match condition.wait_timeout(guard, timeout) {
        Ok((guard, _)) => guard,
        Err(poisoned) => poisoned.into_inner().0,
    }
}

#[cfg(loom)]
pub(crate) fn wait_timeout<'a, T>(
    condition: &Condvar,
    guard: MutexGuard<'a, T>,
    _: std::time::Duration,
) -> MutexGuard<'a, T> {
    wait(condition, guard)
}
