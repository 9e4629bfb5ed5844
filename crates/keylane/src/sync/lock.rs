//! Mutex for sections of a few dozen instructions, locked and unlocked for every task.
//!
//! Unlocking a usual mutex is an atomic exchange, since it must learn whether a thread sleeps. On
//! x86 that waits until every store of the section has reached the cache, and where the next line
//! to be written is still on its way from another processor, that is most of the section's cost.
//! Here it is a plain store, and a plain load of the number of sleepers.
//!
//! # Protocol
//! 1. Lock: `held` from false to true, by compare-and-swap. If it fails, look again for a while.
//! 2. Fall asleep: under `sleepers`, increment `asleep`; a *heavy* fence; try 1 once more; if that
//!    fails, wait for the signal, which releases `sleepers` in the same step; then try again. A
//!    thread that gets the lock decrements `asleep`.
//! 3. Unlock: store false to `held`; a *light* fence; load `asleep`. If it is not zero, lock and
//!    unlock `sleepers`, and signal.
//!
//! # Why no signal is missed
//! The two fences order the store and the load of 3 against the store and the load of 2, as two
//! sequentially consistent fences would: either the load of `asleep` in 3 sees the sleeper, or the
//! attempt that follows the fence in 2 sees the lock free. In the first case the signal passes
//! through `sleepers`, so it comes after the sleeper has begun to wait, or before its attempt,
//! which then sees the store. A sleeper that is woken and finds the lock taken again waits on, and
//! `asleep` still counts it, so the next unlock signals too.
//!
//! [`FenceKind`] describes the two. A model has full ones. Where the kernel refuses a heavy fence that
//! it has promised, the sleeper does not rely on the signal: it looks again after
//! [`UNFENCED_WAIT`].

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use super::fences::FenceKind;
use super::{
    AtomicBool, AtomicUsize, Condvar, MutPtr, Mutex, Ordering, UnsafeCell, pointer, rounds,
    spin_hint, wait, wait_timeout, yield_now,
};

/// Number of attempts at a taken lock, with a pause after each: many times the length of a section.
const SPINS: u32 = 100;
/// Number of further attempts, yielding the processor in between: the holder may have lost its own,
/// and falling asleep costs more here than elsewhere.
const YIELDS: u32 = 32;

/// Time after which a sleeper looks again where the kernel refuses the heavy fence: the most by
/// which it is late if it missed the signal.
const UNFENCED_WAIT: Duration = Duration::from_millis(1);

/// Mutex with a cheap unlock. `repr(C)`: the fields that every section touches share a cache line
/// with the head of the value.
#[repr(C)]
pub(crate) struct Lock<T> {
    /// Whether a thread is in the section.
    held: AtomicBool,
    /// Fences between the accesses to `held` and `asleep`. Never changed.
    fences: FenceKind,
    /// Number of threads that sleep until the lock is free, or are about to. Changed under
    /// `sleepers`.
    asleep: AtomicUsize,
    /// Value, protected by `held`.
    value: UnsafeCell<T>,
    /// Locked from the increment of `asleep` to the wait, and before a signal.
    sleepers: Mutex<()>,
    /// Signaled at each unlock while a thread sleeps.
    signal: Condvar,
}

// SAFETY: `held` lets one thread at a time reach the value, and each sees the writes of the last
// one (the store of `unlock` releases, the swap of `try_take` acquires), so it is as if the value
// were sent from one to the next.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub(crate) fn new(value: T) -> Self {
        Lock {
            held: AtomicBool::new(false),
            fences: FenceKind::new(),
            asleep: AtomicUsize::new(0),
            sleepers: Mutex::default(),
            signal: Condvar::new(),
            value: UnsafeCell::new(value),
        }
    }

    #[inline(always)]
    pub(crate) fn lock(&self) -> LockGuard<'_, T> {
        if !self.try_take() {
            self.take_slowly();
        }
        LockGuard { value: pointer(&self.value), _section: UnlockOnDrop(self), _stays: PhantomData }
    }

    #[inline(always)]
    fn try_take(&self) -> bool {
        self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn take_slowly(&self) {
        for round in 0..rounds(SPINS + YIELDS) {
            // A load while the lock is taken: a swap would take the cache line from its holder.
            if !self.held.load(Ordering::Relaxed) && self.try_take() {
                return;
            }
            if round < SPINS { spin_hint() } else { yield_now() }
        }
        let mut sleepers = self.sleepers.lock();
        let asleep = self.asleep.load(Ordering::Relaxed);
        self.asleep.store(asleep + 1, Ordering::Relaxed);
        let fenced = self.fences.heavy();
        while !self.try_take() {
            sleepers = match fenced {
                true => wait(&self.signal, sleepers),
                // Without the fence a signal may be missed, so the sleeper looks again.
                false => wait_timeout(&self.signal, sleepers, UNFENCED_WAIT),
            };
        }
        let asleep = self.asleep.load(Ordering::Relaxed);
        self.asleep.store(asleep - 1, Ordering::Relaxed);
    }

    #[inline(always)]
    fn unlock(&self) {
        self.held.store(false, Ordering::Release);
        self.fences.light();
        if self.asleep.load(Ordering::Relaxed) != 0 {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        drop(self.sleepers.lock());
        self.signal.notify_one();
    }
}

/// Access to the value, for as long as the section lasts. A panic ends the section too; there is no
/// poison, since no section that may panic leaves the value half changed.
pub(crate) struct LockGuard<'a, T> {
    /// Dropped before the section ends: fields are dropped in this order.
    value: MutPtr<T>,
    _section: UnlockOnDrop<'a, T>,
    /// Not `Send`, like the guard of any mutex.
    _stays: PhantomData<*mut ()>,
}

/// Guard that unlocks when it is dropped.
struct UnlockOnDrop<'a, T>(&'a Lock<T>);

impl<T> Drop for UnlockOnDrop<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.unlock();
    }
}

impl<T> Deref for LockGuard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the guard has the lock (`Lock::lock` made it), so only the guard gives references
        // to the value; and it is borrowed here, so `deref_mut` gives none as long as this one
        // lives.
        unsafe { self.value.deref_shared() }
    }
}

impl<T> DerefMut for LockGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard has the lock, so only the guard gives references to the value; and it
        // is borrowed mutably here, so it gives no other as long as this one lives.
        unsafe { self.value.deref() }
    }
}

impl<T: fmt::Debug> fmt::Debug for Lock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("value", &*self.lock()).finish_non_exhaustive()
    }
}

#[cfg(all(test, loom))]
mod models {
    use std::sync::Arc;

    use super::super::model;
    use super::*;

    /// Sections exclude each other and see the writes of the last one, and sleepers are woken.
    #[test]
    fn three_threads_take_turns() {
        model::check(|| {
            let lock = Arc::new(Lock::new(0));
            let others = [0, 1].map(|_| {
                let lock = lock.clone();
                model::spawn(move || *lock.lock() += 1)
            });
            *lock.lock() += 1;
            for other in others {
                other.join().expect("no thread panics");
            }
            assert_eq!(*lock.lock(), 3);
        });
    }

    /// A sleeper that is woken and finds the lock taken again is woken again.
    #[test]
    fn who_takes_it_again_and_again_wakes_a_sleeper_each_time() {
        model::check(|| {
            let lock = Arc::new(Lock::new(0));
            let other = {
                let lock = lock.clone();
                model::spawn(move || *lock.lock() += 1)
            };
            *lock.lock() += 1;
            *lock.lock() += 1;
            other.join().expect("no thread panics");
            assert_eq!(*lock.lock(), 3);
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    /// Sections that are longer than the spinning, so that many threads fall asleep.
    #[test]
    fn sections_exclude_each_other_and_all_end() {
        let lock = Lock::new((0_u64, 0_u64));
        // Miri interprets each step.
        let (rounds, long) = if cfg!(miri) { (20, 200) } else { (2_000, 20_000) };
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for round in 0..rounds {
                        let mut pair = lock.lock();
                        pair.0 += 1;
                        let pauses = if round % 50 == 0 { long } else { 1 };
                        (0..pauses).for_each(|_| spin_hint());
                        pair.1 += 1;
                        assert_eq!(pair.0, pair.1);
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), (8 * rounds, 8 * rounds));
    }

    #[test]
    fn a_panic_ends_the_section() {
        let lock = Lock::new(1);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _section = lock.lock();
            panic!("in the section");
        }));
        assert!(panicked.is_err());
        assert_eq!(*lock.lock(), 1);
    }
}
