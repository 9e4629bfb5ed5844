//! Blocks waiting threads and notifies waiters, without losing a wake-up.
//!
//! A thread spins on its [`ThreadParker`], then yields, then parks, so a notifier makes a system
//! call only for a parked thread. [`AdaptiveSpin`] sets the length of the spin from recent waits in
//! the same queue. An async task is notified through its waker.
//!
//! # Why no wake-up is lost
//! All transitions go through one word of the parker. The notifier swaps `NOTIFIED` in, and unparks
//! the thread if the old value was `PARKED`. The thread changes `AWAKE` to `PARKED` by
//! compare-and-swap, so either it finds `NOTIFIED` and does not sleep, or the notifier finds
//! `PARKED`. A parker serves one wait, so no notification of an earlier wait arrives late.

use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::sync::{
    AtomicUsize, Ordering, Thread, current, park, park_timeout, rounds, spin_hint, yield_now,
};
use crate::unwind::call_catch_unwind;

/// The thread spins or is about to park. Exits: `PARKED`, `NOTIFIED`.
const AWAKE: usize = 0;
/// The thread is parked, or has given up. Exits: `NOTIFIED`; `AWAKE`, after `park_timeout`.
const PARKED: usize = 1;
/// The result of the wait is decided. No exit.
const NOTIFIED: usize = 2;

/// Maximum of spin rounds before a thread yields.
const MAX_SPINS: u32 = 12;
/// Spin hints in a round: about a microsecond. Reading the state less often makes waiting cheap,
/// because the other side meanwhile runs at full speed and uncontended.
const PAUSES_PER_SPIN: u32 = 40;
/// Maximum of yields before a thread parks.
const MAX_YIELDS: u32 = 12;

/// Minimum of rounds, for queues with long waits.
const MIN_SPINS: usize = 2;
/// Rounds gained by a short wait. A long wait costs one.
const SPIN_GAIN: usize = 4;
/// Longest wait that spinning might have covered: about the cost of one sleep and wake-up.
const SHORT_WAIT: Duration = Duration::from_micros(50);

/// Number of rounds before parking, learned from recent waits in one queue. Where waits are short,
/// spinning saves two system calls and the wake-up latency. Where they are long, it only takes the
/// processor from threads that could make progress.
#[derive(Debug)]
pub(super) struct AdaptiveSpin {
    /// Spin rounds and yields. Every thread updates it after its wait with relaxed accesses: a lost
    /// update does no harm.
    spins: AtomicUsize,
}

impl AdaptiveSpin {
    pub(super) fn new() -> Self {
        AdaptiveSpin { spins: AtomicUsize::new((MAX_SPINS + MAX_YIELDS) as usize) }
    }

    fn spins(&self) -> u32 {
        self.spins.load(Ordering::Relaxed) as u32
    }

    /// Records a wait. `was_short` says whether spinning did see its end, or nearly did.
    ///
    /// Short waits weigh more than long ones, because even a queue of short waits has a long one
    /// now and then, when a thread has lost its processor.
    fn record(&self, was_short: bool) {
        if rounds(1) == 0 {
            // A model does not spin, and no clock may decide what happens in it.
            return;
        }
        let spins = self.spins.load(Ordering::Relaxed);
        let better = if was_short { spins + SPIN_GAIN } else { spins - 1 };
        let better = better.clamp(MIN_SPINS, (MAX_SPINS + MAX_YIELDS) as usize);
        if better != spins {
            self.spins.store(better, Ordering::Relaxed);
        }
    }
}

/// Parking state of one waiting thread, for one wait.
#[derive(Debug)]
pub(super) struct ThreadParker {
    /// `AWAKE`, `PARKED` or `NOTIFIED`. Written by the waiting thread and, once, by its notifier.
    state: AtomicUsize,
    /// Waiting thread. Never changes.
    thread: Thread,
}

impl ThreadParker {
    /// Creates a parker for the calling thread.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(ThreadParker { state: AtomicUsize::new(AWAKE), thread: current() })
    }

    /// Returns whether the result is decided. It was decided under a lock; take that lock to read
    /// it.
    pub(super) fn is_notified(&self) -> bool {
        self.state.load(Ordering::Acquire) == NOTIFIED
    }

    /// Waits until the parker is notified, or until `deadline`. A timeout leaves the waiter queued.
    pub(super) fn wait(&self, spin: &AdaptiveSpin, deadline: Option<Instant>) {
        if deadline.is_some_and(|at| at <= Instant::now()) {
            return;
        }
        if self.spin(spin.spins()) {
            return spin.record(true);
        }
        let begin = Instant::now();
        if self.prepare_park() != NOTIFIED {
            self.park_until(deadline);
        }
        spin.record(begin.elapsed() < SHORT_WAIT);
    }

    /// Parks until the parker is notified, at most for `time`.
    pub(super) fn park_timeout(&self, time: Duration) {
        if self.prepare_park() != NOTIFIED {
            park_timeout(time);
            // Fails if the parker was notified meanwhile: `NOTIFIED` must stay.
            let _ = self.state.compare_exchange(PARKED, AWAKE, Ordering::AcqRel, Ordering::Acquire);
        }
    }

    fn park_until(&self, deadline: Option<Instant>) {
        while !self.is_notified() {
            match deadline.map(|at| at.saturating_duration_since(Instant::now())) {
                None => park(),
                Some(left) if left.is_zero() => return,
                Some(left) => park_timeout(left),
            }
        }
    }

    /// Spins, then yields, for `spins` rounds. Returns whether the parker was notified.
    fn spin(&self, spins: u32) -> bool {
        for spin in 0..rounds(spins) {
            if spin < MAX_SPINS {
                (0..PAUSES_PER_SPIN).for_each(|_| spin_hint());
            } else {
                yield_now();
            }
            if self.is_notified() {
                return true;
            }
        }
        false
    }

    /// Changes `AWAKE` to `PARKED` and returns the previous state.
    fn prepare_park(&self) -> usize {
        self.state
            .compare_exchange(AWAKE, PARKED, Ordering::AcqRel, Ordering::Acquire)
            .unwrap_or_else(|notified| notified)
    }

    fn notify(&self) {
        if self.state.swap(NOTIFIED, Ordering::AcqRel) == PARKED {
            self.thread.unpark();
        }
    }
}

/// Notification target of a waiter.
#[derive(Debug)]
pub(super) enum WakeTarget {
    Thread(Arc<ThreadParker>),
    Task(Waker),
}

impl WakeTarget {
    /// Waiting thread, unless the waiter is an async task.
    pub(super) fn thread(&self) -> Option<&Thread> {
        match self {
            WakeTarget::Thread(parker) => Some(&parker.thread),
            WakeTarget::Task(_) => None,
        }
    }

    fn wake(self) {
        match self {
            WakeTarget::Thread(parker) => parker.notify(),
            // The caller may be a worker in the middle of its loop, so a panic of the waker must
            // not unwind into it.
            WakeTarget::Task(waker) => call_catch_unwind(|| waker.wake()),
        }
    }
}

/// Waiters resolved under a lock, to be woken in this order after it is released.
#[derive(Debug, Default)]
#[must_use = "a waiter that is not notified sleeps forever"]
pub(super) struct WakeList {
    /// First waiter. Most lists have one, which then needs no allocation.
    first: Option<WakeTarget>,
    /// Further waiters, in order.
    more: Vec<WakeTarget>,
}

impl WakeList {
    pub(super) fn push(&mut self, wake: WakeTarget) {
        match self.first {
            None if self.more.is_empty() => self.first = Some(wake),
            _ => self.more.push(wake),
        }
    }

    /// Wakes all waiters. The caller must hold no lock, because wakers run foreign code.
    #[inline]
    pub(super) fn wake_all(mut self) {
        self.wake_rest();
    }

    #[inline]
    fn wake_rest(&mut self) {
        if let Some(first) = self.first.take() {
            first.wake();
        }
        if !self.more.is_empty() {
            self.more.reverse();
            self.wake_reversed();
        }
    }

    fn wake_reversed(&mut self) {
        while let Some(wake) = self.more.pop() {
            wake.wake();
        }
    }
}

/// Wakes the rest on unwind, so that no resolved waiter sleeps forever.
impl Drop for WakeList {
    fn drop(&mut self) {
        self.wake_rest();
    }
}
