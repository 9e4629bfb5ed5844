//! How a waiter waits, and how it is told that its wait is over.
//!
//! A thread looks at its [`ThreadParker`] for a moment, then lets others run, then sleeps. So whoever tells
//! it makes a system call only if it sleeps by then. How long it looks depends on how long the waits
//! at the same line have taken of late: see [`AdaptiveSpin`]. A task is told through its waker.
//!
//! # Why no wake-up is lost
//! All goes through one word of the parker. Who tells swaps `NOTIFIED` in and unparks the thread if
//! `PARKED` came out. Who falls asleep swaps `PARKED` in only for `AWAKE`, so either it finds `NOTIFIED`
//! and does not sleep, or the teller finds `PARKED`. A parker is used for one wait, so no telling is
//! late from the wait before.

use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::sync::{
    AtomicUsize, Ordering, Thread, current, park, park_timeout, rounds, spin_hint, yield_now,
};
use crate::unwind::call_catch_unwind;

/// The thread looks now and then, or is about to sleep. Exits: `PARKED`, `NOTIFIED`.
const AWAKE: usize = 0;
/// The thread sleeps until it is unparked, or has given up. Exits: `NOTIFIED`; `AWAKE`, after `park_timeout`.
const PARKED: usize = 1;
/// What it waited for is decided.
const NOTIFIED: usize = 2;

/// Looks before a thread lets others run, at the most.
const MAX_SPINS: u32 = 12;
/// The pauses between two looks: about a microsecond. Looking less often is what makes waiting
/// cheap, for in the meantime the other side works on at full speed, without a line and undisturbed.
const PAUSES_PER_SPIN: u32 = 40;
/// How often it then lets others run, looking in between, before it sleeps.
const MAX_YIELDS: u32 = 12;

/// The looks of a thread that waits where waits are long.
const MIN_SPINS: usize = 2;
/// The looks that are added after a short wait. A long one takes one away.
const SPIN_GAIN: usize = 4;
/// A wait of less than this might have been over before the thread slept: about what falling asleep
/// and being woken takes.
const SHORT_WAIT: Duration = Duration::from_micros(50);

/// How often to look before going to sleep, learned from the waits at one line. Where they are short,
/// looking spares two system calls and the time to wake up. Where they are long, threads that look
/// only keep those from running that could come to the line, or bring what all wait for.
#[derive(Debug)]
pub(super) struct AdaptiveSpin {
    /// Spins and yields. Any waiting thread changes it after its wait, and it does not matter whose
    /// change is lost.
    spins: AtomicUsize,
}

impl AdaptiveSpin {
    pub(super) fn new() -> Self {
        AdaptiveSpin { spins: AtomicUsize::new((MAX_SPINS + MAX_YIELDS) as usize) }
    }

    fn spins(&self) -> u32 {
        self.spins.load(Ordering::Relaxed) as u32
    }

    /// After a wait: whether it was short, so that looking saw its end or nearly did.
    ///
    /// What speaks for looking counts more than what speaks against it, for among short waits there
    /// is always a long one, of a thread that had lost its processor.
    fn record(&self, was_short: bool) {
        if rounds(1) == 0 {
            // In a model nobody looks, and no clock may decide what happens.
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

/// Where a waiting thread is told.
#[derive(Debug)]
pub(super) struct ThreadParker {
    /// One of the three above. Written by the waiting thread and, once, by who tells it.
    state: AtomicUsize,
    /// Who waits. Never changes.
    thread: Thread,
}

impl ThreadParker {
    /// A parker for the calling thread.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(ThreadParker { state: AtomicUsize::new(AWAKE), thread: current() })
    }

    /// Whether what the thread waits for is decided. The decision was made under a lock that is to
    /// be taken to learn it.
    pub(super) fn is_notified(&self) -> bool {
        self.state.load(Ordering::Acquire) == NOTIFIED
    }

    /// Waits until the thread is told, or until `deadline`. Nothing is undone if that comes first.
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

    /// Sleeps until the thread is told, or for so long, whatever comes first.
    pub(super) fn park_timeout(&self, time: Duration) {
        if self.prepare_park() != NOTIFIED {
            park_timeout(time);
            // If it is told, it stays told.
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

    /// Looks for a moment. Says whether the wait is over.
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

    /// Returns the state before.
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

/// Whom to tell.
#[derive(Debug)]
pub(super) enum Wake {
    Thread(Arc<ThreadParker>),
    Task(Waker),
}

impl Wake {
    /// The thread that waits, if it is one.
    pub(super) fn thread(&self) -> Option<&Thread> {
        match self {
            Wake::Thread(parker) => Some(&parker.thread),
            Wake::Task(_) => None,
        }
    }

    fn wake(self) {
        match self {
            Wake::Thread(parker) => parker.notify(),
            // Any thread tells it, a worker with the next task in its hand, too.
            Wake::Task(waker) => call_catch_unwind(|| waker.wake()),
        }
    }
}

/// Those whose fate was decided under a lock, to be told after it is released, in this order.
#[derive(Debug, Default)]
#[must_use = "a waiter that is not notified sleeps for ever"]
pub(super) struct WakeList {
    /// Most often there is one, which then needs no memory.
    first: Option<Wake>,
    /// The others, last come last.
    more: Vec<Wake>,
}

impl WakeList {
    pub(super) fn push(&mut self, wake: Wake) {
        match self.first {
            None if self.more.is_empty() => self.first = Some(wake),
            _ => self.more.push(wake),
        }
    }

    /// Tells them all. No lock may be held: a waker is somebody else's code.
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

/// What unwinds before they were told must not keep them from being told.
impl Drop for WakeList {
    fn drop(&mut self) {
        self.wake_rest();
    }
}
