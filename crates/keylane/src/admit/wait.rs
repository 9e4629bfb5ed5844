//! How a waiter waits, and how it is told that its wait is over.
//!
//! A thread looks at its [`Seat`] for a moment, then lets others run, then sleeps. So whoever tells
//! it makes a system call only if it sleeps by then. How long it looks depends on how long the waits
//! at the same line have taken of late: see [`Patience`]. A task is told through its waker.
//!
//! # Why no wake-up is lost
//! All goes through one word of the seat. Who tells swaps `TOLD` in and unparks the thread if
//! `ASLEEP` came out. Who falls asleep swaps `ASLEEP` in only for `AWAKE`, so either it finds `TOLD`
//! and does not sleep, or the teller finds `ASLEEP`. A seat is used for one wait, so no telling is
//! late from the wait before.

use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::quiet::quietly;
use crate::sync::{
    AtomicUsize, Ordering, Thread, current, park, park_timeout, rounds, spin_hint, yield_now,
};

/// The thread looks now and then, or is about to sleep. Exits: `ASLEEP`, `TOLD`.
const AWAKE: usize = 0;
/// The thread sleeps until it is unparked, or has given up. Exits: `TOLD`; `AWAKE`, after a doze.
const ASLEEP: usize = 1;
/// What it waited for is decided.
const TOLD: usize = 2;

/// Looks before a thread lets others run, at the most.
const LOOKS: u32 = 12;
/// The pauses between two looks: about a microsecond. Looking less often is what makes waiting
/// cheap, for in the meantime the other side works on at full speed, without a line and undisturbed.
const PAUSES_PER_LOOK: u32 = 40;
/// How often it then lets others run, looking in between, before it sleeps.
const YIELDS: u32 = 12;

/// The looks of a thread that waits where waits are long.
const LEAST_LOOKS: usize = 2;
/// The looks that are added after a short wait. A long one takes one away.
const GAIN: usize = 4;
/// A wait of less than this might have been over before the thread slept: about what falling asleep
/// and being woken takes.
const SHORT: Duration = Duration::from_micros(50);

/// How often to look before going to sleep, learned from the waits at one line. Where they are short,
/// looking spares two system calls and the time to wake up. Where they are long, threads that look
/// only keep those from running that could come to the line, or bring what all wait for.
#[derive(Debug)]
pub(super) struct Patience {
    /// Looks and yields. Any waiting thread changes it after its wait, and it does not matter whose
    /// change is lost.
    looks: AtomicUsize,
}

impl Patience {
    pub(super) fn new() -> Self {
        Patience { looks: AtomicUsize::new((LOOKS + YIELDS) as usize) }
    }

    fn looks(&self) -> u32 {
        self.looks.load(Ordering::Relaxed) as u32
    }

    /// After a wait: whether it was short, so that looking saw its end or nearly did.
    ///
    /// What speaks for looking counts more than what speaks against it, for among short waits there
    /// is always a long one, of a thread that had lost its processor.
    fn learn(&self, was_short: bool) {
        if rounds(1) == 0 {
            // In a model nobody looks, and no clock may decide what happens.
            return;
        }
        let looks = self.looks.load(Ordering::Relaxed);
        let better = if was_short { looks + GAIN } else { looks - 1 };
        let better = better.clamp(LEAST_LOOKS, (LOOKS + YIELDS) as usize);
        if better != looks {
            self.looks.store(better, Ordering::Relaxed);
        }
    }
}

/// Where a waiting thread is told.
#[derive(Debug)]
pub(super) struct Seat {
    /// One of the three above. Written by the waiting thread and, once, by who tells it.
    state: AtomicUsize,
    /// Who waits. Never changes.
    thread: Thread,
}

impl Seat {
    /// A seat for the calling thread.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Seat { state: AtomicUsize::new(AWAKE), thread: current() })
    }

    /// Whether what the thread waits for is decided. The decision was made under a lock that is to
    /// be taken to learn it.
    pub(super) fn is_told(&self) -> bool {
        self.state.load(Ordering::Acquire) == TOLD
    }

    /// Waits until the thread is told, or until `deadline`. Nothing is undone if that comes first.
    pub(super) fn wait(&self, patience: &Patience, deadline: Option<Instant>) {
        if deadline.is_some_and(|at| at <= Instant::now()) {
            return;
        }
        if self.look_around(patience.looks()) {
            return patience.learn(true);
        }
        let begin = Instant::now();
        if self.fall_asleep() != TOLD {
            self.sleep(deadline);
        }
        patience.learn(begin.elapsed() < SHORT);
    }

    /// Sleeps until the thread is told, or for so long, whatever comes first.
    pub(super) fn doze(&self, time: Duration) {
        if self.fall_asleep() != TOLD {
            park_timeout(time);
            // If it is told, it stays told.
            let _ = self.state.compare_exchange(ASLEEP, AWAKE, Ordering::AcqRel, Ordering::Acquire);
        }
    }

    fn sleep(&self, deadline: Option<Instant>) {
        while !self.is_told() {
            match deadline.map(|at| at.saturating_duration_since(Instant::now())) {
                None => park(),
                Some(left) if left.is_zero() => return,
                Some(left) => park_timeout(left),
            }
        }
    }

    /// Looks for a moment. Says whether the wait is over.
    fn look_around(&self, looks: u32) -> bool {
        for look in 0..rounds(looks) {
            if look < LOOKS {
                (0..PAUSES_PER_LOOK).for_each(|_| spin_hint());
            } else {
                yield_now();
            }
            if self.is_told() {
                return true;
            }
        }
        false
    }

    /// Returns the state before.
    fn fall_asleep(&self) -> usize {
        self.state
            .compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire)
            .unwrap_or_else(|told| told)
    }

    fn tell(&self) {
        if self.state.swap(TOLD, Ordering::AcqRel) == ASLEEP {
            self.thread.unpark();
        }
    }
}

/// Whom to tell.
#[derive(Debug)]
pub(super) enum Caller {
    Thread(Arc<Seat>),
    Task(Waker),
}

impl Caller {
    /// The thread that waits, if it is one.
    pub(super) fn thread(&self) -> Option<&Thread> {
        match self {
            Caller::Thread(seat) => Some(&seat.thread),
            Caller::Task(_) => None,
        }
    }

    fn tell(self) {
        match self {
            Caller::Thread(seat) => seat.tell(),
            // Any thread tells it, a worker with the next task in its hand, too.
            Caller::Task(waker) => quietly(|| waker.wake()),
        }
    }
}

/// Those whose fate was decided under a lock, to be told after it is released, in this order.
#[derive(Debug, Default)]
#[must_use = "who is not told sleeps for ever"]
pub(super) struct Calls {
    /// Most often there is one, which then needs no memory.
    first: Option<Caller>,
    /// The others, last come last.
    more: Vec<Caller>,
}

impl Calls {
    pub(super) fn add(&mut self, caller: Caller) {
        match self.first {
            None if self.more.is_empty() => self.first = Some(caller),
            _ => self.more.push(caller),
        }
    }

    /// Tells them all. No lock may be held: a waker is somebody else's code.
    #[inline]
    pub(super) fn tell(mut self) {
        self.tell_rest();
    }

    #[inline]
    fn tell_rest(&mut self) {
        if let Some(first) = self.first.take() {
            first.tell();
        }
        if !self.more.is_empty() {
            self.more.reverse();
            self.tell_reversed();
        }
    }

    fn tell_reversed(&mut self) {
        while let Some(caller) = self.more.pop() {
            caller.tell();
        }
    }
}

/// What unwinds before they were told must not keep them from being told.
impl Drop for Calls {
    fn drop(&mut self) {
        self.tell_rest();
    }
}
