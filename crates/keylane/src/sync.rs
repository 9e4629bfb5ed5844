//! Names the synchronization primitives in one place: those of `std`, loom's when a model is
//! checked, or shuttle's when a pool runs under a controlled scheduler (`schedules/README.md`).
//!
//! Everything concurrent in this crate takes its locks, atomics and threads from here, so the
//! protocols that run are the ones that the loom models check. Plain `Arc`s are `std`'s in both
//! cases: no protocol depends on how a count is kept.

mod fences;
mod lock;
#[cfg(all(test, shuttle))]
mod shuttle_primitives;

/// Returns whether this thread unwinds.
pub(crate) fn is_panicking() -> bool {
    std::thread::panicking()
}

/// Threads of the pool itself: workers and the timer. Real ones also under loom, whose models have
/// none.
#[cfg(not(all(test, shuttle)))]
mod threads {
    pub(crate) use std::thread::{JoinHandle, ThreadId};
    pub(crate) use std::thread_local;

    /// Starts a thread, with a stack of `stack_size` bytes if that is given.
    pub(crate) fn spawn(
        name: String,
        stack_size: Option<usize>,
        run: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<JoinHandle<()>> {
        let mut thread = std::thread::Builder::new().name(name);
        if let Some(bytes) = stack_size {
            thread = thread.stack_size(bytes);
        }
        thread.spawn(run)
    }

    thread_local! {
        // `current` counts an owner of the thread up and down, by atomic operations.
        static THIS_THREAD: ThreadId = std::thread::current().id();
    }

    /// Returns the identity of the calling thread.
    pub(crate) fn this_thread() -> ThreadId {
        THIS_THREAD.with(|id| *id)
    }

    /// Returns the nanoseconds since `epoch`.
    pub(crate) fn nanos_since(epoch: std::time::Instant) -> u64 {
        epoch.elapsed().as_nanos() as u64
    }
}

#[cfg(not(all(test, shuttle)))]
pub(crate) use threads::*;

#[cfg(all(test, shuttle))]
use shuttle_primitives as primitives;

/// Cell that a protocol protects, with loom's interface.
#[cfg(not(loom))]
mod unsafe_cell {
    /// Cell that a protocol protects.
    #[derive(Debug, Default)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    // Pointer into a cell. A type of its own, since loom's counts for as long as it exists.
    pub(crate) struct MutPtr<T>(*mut T);

    impl<T> UnsafeCell<T> {
        pub(crate) fn new(value: T) -> Self {
            UnsafeCell(std::cell::UnsafeCell::new(value))
        }
    }

    #[inline(always)]
    pub(crate) fn pointer<T>(cell: &UnsafeCell<T>) -> MutPtr<T> {
        MutPtr(cell.0.get())
    }

    impl<T> MutPtr<T> {
        /// # Safety
        /// The cell is alive, and no other reference to its content lives as long as this one.
        #[inline(always)]
        #[expect(clippy::mut_from_ref, reason = "it is a pointer, and loom's is like this")]
        pub(crate) unsafe fn deref(&self) -> &mut T {
            // SAFETY: by this function's condition.
            unsafe { &mut *self.0 }
        }

        /// # Safety
        /// The cell is alive, and no mutable reference to its content lives as long as this one.
        #[inline(always)]
        pub(crate) unsafe fn deref_shared(&self) -> &T {
            // SAFETY: by this function's condition.
            unsafe { &*self.0.cast_const() }
        }
    }
}

#[cfg(not(loom))]
pub(crate) use unsafe_cell::*;

#[cfg(not(any(loom, all(test, shuttle))))]
mod primitives {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU64, AtomicUsize, fence};
    pub(crate) use std::sync::{Condvar, Mutex as RawMutex, MutexGuard};
    pub(crate) use std::thread::{Thread, current, park, yield_now};

    pub(crate) fn park_timeout(timeout: std::time::Duration) {
        std::thread::park_timeout(timeout);
    }

    pub(super) fn sleep(time: std::time::Duration) {
        std::thread::sleep(time);
    }

    /// Returns the identity and the name of a thread.
    pub(crate) fn identity(thread: &Thread) -> (Option<super::ThreadId>, Option<String>) {
        (Some(thread.id()), thread.name().map(str::to_owned))
    }

    pub(crate) fn spin_hint() {
        std::hint::spin_loop();
    }

    /// Returns the number of attempts before a thread sleeps, given the number that pays.
    pub(crate) fn rounds(wanted: u32) -> u32 {
        wanted
    }
}

#[cfg(loom)]
mod primitives {
    use std::sync::Arc;

    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicIsize, AtomicU64, AtomicUsize, fence};
    pub(crate) use loom::sync::{Condvar, Mutex as RawMutex, MutexGuard};
    pub(crate) use loom::thread::yield_now;

    /// Loom's pointer has no shared form; models have one reference at a time.
    pub(crate) struct MutPtr<T>(loom::cell::MutPtr<T>);

    pub(crate) fn pointer<T>(cell: &UnsafeCell<T>) -> MutPtr<T> {
        MutPtr(cell.get_mut())
    }

    impl<T> MutPtr<T> {
        /// # Safety
        /// The cell is alive, and no other reference to its content lives as long as this one.
        pub(crate) unsafe fn deref(&self) -> &mut T {
            // SAFETY: by this function's condition.
            unsafe { self.0.deref() }
        }

        /// # Safety
        /// As for `deref`.
        pub(crate) unsafe fn deref_shared(&self) -> &T {
            // SAFETY: by this function's condition.
            unsafe { self.0.deref() }
        }
    }

    /// Thread that can be parked.
    ///
    /// Loom's own `unpark` also wakes a thread that waits for a mutex, which then believes that it
    /// has it. This type has the meaning of `std`: a token, which `park` waits for and takes.
    #[derive(Clone, Debug)]
    pub(crate) struct Thread(Arc<Token>);

    #[derive(Debug)]
    struct Token {
        /// Whether `unpark` was called since the last `park` returned.
        there: RawMutex<bool>,
        /// Signaled when the token is set.
        put: Condvar,
    }

    loom::thread_local! {
        static CURRENT: Thread =
            Thread(Arc::new(Token { there: RawMutex::new(false), put: Condvar::new() }));
    }

    pub(crate) fn current() -> Thread {
        CURRENT.with(Clone::clone)
    }

    pub(crate) fn park() {
        let Thread(token) = current();
        let mut there = token.there.lock().expect("no section panics");
        while !*there {
            there = token.put.wait(there).expect("no section panics");
        }
        *there = false;
    }

    impl Thread {
        pub(crate) fn unpark(&self) {
            *self.0.there.lock().expect("no section panics") = true;
            self.0.put.notify_one();
        }
    }

    /// Returns at once. Loom has no clock: a timed wait is one that may end at any time, and the
    /// caller's loop does the waiting. Models choose deadlines in the past.
    pub(crate) fn park_timeout(_: std::time::Duration) {
        loom::thread::yield_now();
    }

    /// Yields: there is no time.
    pub(super) fn sleep(_: std::time::Duration) {
        loom::thread::yield_now();
    }

    pub(crate) fn spin_hint() {
        loom::thread::yield_now();
    }

    /// Returns nothing: models do not use identities.
    pub(crate) fn identity(_: &Thread) -> (Option<super::ThreadId>, Option<String>) {
        (None, None)
    }

    /// Returns 0: the number of attempts affects only speed, and a model has every order of events
    /// anyway.
    pub(crate) fn rounds(_: u32) -> u32 {
        0
    }
}

pub(crate) use primitives::*;

/// Lock that is taken for every task. It has models of its own; the other models replace it by a
/// mutex, which it is shown to be, and have fewer orders of events to check.
#[cfg(not(loom))]
pub(crate) use lock::{Lock, LockGuard};
#[cfg(loom)]
pub(crate) use {Mutex as Lock, MutexGuard as LockGuard};

/// Pauses between looks at a condition that user code on another thread decides, such as the drop of
/// captures, so that the looks cost little however long it takes. Not for conditions with a
/// notification.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    pauses: u32,
}

/// Number of pauses that only yield.
const YIELDING_PAUSES: u32 = 32;

impl Backoff {
    /// Yields at first; later sleeps, for at most 2 milliseconds. It does not park: a thread that
    /// has other reasons to be unparked keeps that token.
    pub(crate) fn pause(&mut self) {
        match self.next_sleep() {
            None => yield_now(),
            Some(time) => sleep(time),
        }
    }

    /// Returns the duration of the next pause, or `None` if it only yields.
    fn next_sleep(&mut self) -> Option<std::time::Duration> {
        let sleeps = self.pauses.checked_sub(YIELDING_PAUSES);
        self.pauses = self.pauses.saturating_add(1);
        sleeps.map(|sleeps| std::time::Duration::from_micros(16 << sleeps.min(7)))
    }
}

/// Value that only its owner reaches, which makes it `Sync`. The mutex is never locked.
pub(crate) struct OwnerOnly<T>(std::sync::Mutex<T>);

impl<T> OwnerOnly<T> {
    pub(crate) fn new(value: T) -> Self {
        OwnerOnly(std::sync::Mutex::new(value))
    }

    pub(crate) fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Lock for statics. `std`'s also under loom: in no model two threads meet there.
#[derive(Debug, Default)]
pub(crate) struct StaticLock<T>(std::sync::Mutex<T>);

impl<T> StaticLock<T> {
    pub(crate) const fn new(value: T) -> Self {
        StaticLock(std::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> std::sync::MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

use std::sync::TryLockError;
pub(crate) use std::sync::atomic::Ordering;

/// Mutex whose sections never unwind half-way, so that its poison is ignored.
///
/// No user code runs inside a section except the key's `Eq` and `Clone`, and callbacks that read
/// the items of a fair queue.
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

    /// Returns the value of a mutex that no other thread can reach.
    #[inline]
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Locks a mutex that is taken so often that a waiter should back off: each attempt takes its
    /// cache line away from the holder, and falling asleep costs both sides a system call.
    #[inline]
    pub(crate) fn lock_politely(&self) -> MutexGuard<'_, T> {
        match self.try_lock() {
            Some(guard) => guard,
            None => self.lock_later(),
        }
    }

    #[cold]
    fn lock_later(&self) -> MutexGuard<'_, T> {
        for attempt in 0..rounds(POLITE_PAUSES + POLITE_YIELDS) {
            if attempt < POLITE_PAUSES {
                (0..1_u32 << attempt).for_each(|_| spin_hint());
            } else {
                yield_now();
            }
            if let Some(guard) = self.try_lock() {
                return guard;
            }
        }
        self.lock()
    }

    #[inline]
    fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// Number of pauses before the next attempt, each twice as long as the one before: about a
/// microsecond in total.
const POLITE_PAUSES: u32 = 7;
/// Number of attempts after that, yielding in between: the holder may have lost its processor.
const POLITE_YIELDS: u32 = 8;

/// Waits on `condition`, releasing the lock meanwhile.
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

/// Waits on `condition`. In a model the timeout never passes: a caller that times out only returns,
/// so the model checks that the wake-up comes.
#[cfg(loom)]
pub(crate) fn wait_timeout<'a, T>(
    condition: &Condvar,
    guard: MutexGuard<'a, T>,
    _: std::time::Duration,
) -> MutexGuard<'a, T> {
    wait(condition, guard)
}

/// Tools for the models of the protocols. They run with
///
/// ```text
/// RUSTFLAGS="--cfg loom" cargo test --release -p keylane --lib models
/// ```
#[cfg(all(test, loom))]
pub(crate) mod model {
    use std::sync::Arc;
    use std::task::{Context, Poll, Wake, Waker};

    use super::{Thread, current, park};

    pub(crate) use loom::thread::spawn;

    /// Runs a model in every order of events, weak memory included, with at most two preemptions,
    /// or `LOOM_MAX_PREEMPTIONS`. It fails if a run panics, deadlocks or races.
    pub(crate) fn check(model: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound.get_or_insert(2);
        builder.max_branches = builder.max_branches.max(20_000);
        builder.check(model);
    }

    /// Plain memory that a protocol protects. Two unordered accesses, one of them a write, fail the
    /// model.
    #[derive(Debug, Default)]
    pub(crate) struct Plain<T>(loom::cell::UnsafeCell<T>);

    // SAFETY: every access goes through loom, which checks that no two are at the same time.
    unsafe impl<T: Send> Sync for Plain<T> {}

    impl<T: Copy> Plain<T> {
        pub(crate) fn get(&self) -> T {
            // SAFETY: loom has checked that no thread writes meanwhile.
            self.0.with(|value| unsafe { *value })
        }

        pub(crate) fn change(&self, change: impl FnOnce(&mut T)) {
            // SAFETY: loom has checked that no thread reads or writes meanwhile.
            self.0.with_mut(|value| change(unsafe { &mut *value }));
        }
    }

    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    /// Returns a waker of the calling thread.
    pub(crate) fn waker() -> Waker {
        Waker::from(Arc::new(Unpark(current())))
    }

    /// Runs a future on this thread, with another waker for each poll, as a runtime may.
    pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
        let mut future = std::pin::pin!(future);
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker())) {
                return output;
            }
            park();
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_long_wait_for_user_code_sleeps_and_has_a_bound_for_each_pause() {
        let mut backoff = Backoff::default();
        let sleeps: Vec<_> = std::iter::repeat_with(|| backoff.next_sleep()).take(100).collect();
        let yields = sleeps.iter().take_while(|sleep| sleep.is_none()).count();
        assert_eq!(yields, YIELDING_PAUSES as usize);
        assert_eq!(sleeps[yields], Some(Duration::from_micros(16)));
        assert!(sleeps[yields..].is_sorted());
        assert_eq!(sleeps[99], Some(Duration::from_micros(2048)));
        backoff.pauses = u32::MAX;
        assert_eq!((backoff.next_sleep(), backoff.next_sleep()), (sleeps[99], sleeps[99]));
    }
}
