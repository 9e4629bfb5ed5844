//! A fair bounded count of slots: a freed slot is handed to whoever has waited longest.
//!
//! # Protocol
//! `state` packs the free slots (a signed number) with two flags. `CONTENDED` is set exactly while
//! somebody stands in the line; it changes only under the line's lock.
//! 1. Acquire, nobody waiting: one compare-and-swap takes slots from `state`. It fails if
//!    `CONTENDED` is set, however many slots are free: nobody barges.
//! 2. Acquire, else: under the lock, set `CONTENDED`, try once more if the line is empty, and stand
//!    at the end of the line.
//! 3. Release: one atomic add. If the old state had `CONTENDED`, grant under the lock.
//! 4. Grant, under the lock: while the head of the line wants no more than is free, take its slots
//!    from `state` on its behalf and mark it granted. Clear `CONTENDED` when the line is empty.
//!    Wake the granted after the lock is released.
//! 5. Give up (timeout, or a dropped future), under the lock: if granted meanwhile, the slots are
//!    ours; else unlink, and grant again, for the next may want less than we did.
//!
//! # Why no slot and no wake-up is lost
//! A release that does not see `CONTENDED` adds to `state` before the waiter's swap that sets it
//! (they are ordered by `state` itself), so the try in step 2 or the grant that follows it sees the
//! slots. A release that sees it grants under the lock, after the waiter is in the line or before
//! its try. Slots move only by the add in 3 and the subtractions in 1 and 4; a waiter is granted
//! once, under the lock, and leaves the line at the same moment.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use slab::Slab;

use crate::sync::{AtomicIsize, Mutex, Ordering, Thread, current, park, park_timeout};

/// Somebody waits in the line.
const CONTENDED: isize = 1;
/// No more slots are given out.
const CLOSED: isize = 2;
/// One free slot.
const SLOT: isize = 4;

#[derive(Debug)]
pub(crate) struct Gate {
    /// Free slots times `SLOT`, plus the flags. Negative while more are out than the bound allows.
    state: AtomicIsize,
    /// Who waits. A few words are read or written under the lock, and nobody is woken under it.
    line: Mutex<Line>,
}

/// The waiters, linked in the order in which they came.
#[derive(Debug, Default)]
struct Line {
    /// A waiter stays here until it has learnt what became of it, granted or not.
    places: Slab<Place>,
    /// The one that waits longest; the next to be granted.
    head: Option<usize>,
    /// The one that came last.
    tail: Option<usize>,
}

#[derive(Debug)]
struct Place {
    /// How many slots it waits for.
    want: usize,
    /// Decided once, by who takes the place out of the line.
    fate: Fate,
    /// Whom to wake when its fate is decided. A task may change it while it waits.
    caller: Caller,
    /// Its neighbours in the line; meaningless once its fate is decided.
    before: Option<usize>,
    behind: Option<usize>,
}

/// What becomes of a waiter. Only `Waiting` places are linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// In the line. Exits: `Granted` (step 4), `Refused` (closed), or gone (step 5).
    Waiting,
    /// The slots are the waiter's.
    Granted,
    /// The gate was closed first.
    Refused,
}

/// How a waiter is woken.
#[derive(Debug)]
enum Caller {
    Thread(Thread),
    Task(Waker),
}

impl Caller {
    fn wake(self) {
        match self {
            Caller::Thread(thread) => thread.unpark(),
            Caller::Task(waker) => waker.wake(),
        }
    }

    fn copy(&self) -> Self {
        match self {
            Caller::Thread(thread) => Caller::Thread(thread.clone()),
            Caller::Task(waker) => Caller::Task(waker.clone()),
        }
    }
}

/// The gate gives out no more slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed;

/// Why no slot was had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Closed,
    /// None is free, or somebody waits for the next; or the time is over.
    Full,
}

impl From<Closed> for Refused {
    fn from(_: Closed) -> Self {
        Refused::Closed
    }
}

impl Gate {
    pub(crate) fn new(slots: usize) -> Self {
        Gate { state: AtomicIsize::new(scaled(slots)), line: Mutex::default() }
    }

    /// Takes `want` slots if they are free and nobody waits.
    #[inline]
    pub(crate) fn try_acquire(&self, want: usize) -> Result<(), Refused> {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            if state & CLOSED != 0 {
                return Err(Refused::Closed);
            }
            if state & CONTENDED != 0 || state < scaled(want) {
                return Err(Refused::Full);
            }
            match self.state.compare_exchange_weak(
                state,
                state - scaled(want),
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok(()),
                Err(now) => state = now,
            }
        }
    }

    /// Takes as many slots as are free, up to `want`, if nobody waits.
    pub(crate) fn try_acquire_up_to(&self, want: usize) -> Result<usize, Refused> {
        loop {
            let state = self.state.load(Ordering::Relaxed);
            let free = state / SLOT;
            let take = free.clamp(1, scaled(want) / SLOT) as usize;
            match self.try_acquire(take) {
                Ok(()) => return Ok(take),
                // Somebody took some between the two reads; take fewer.
                Err(Refused::Full) if take > 1 && state & CONTENDED == 0 => {}
                Err(refused) => return Err(refused),
            }
        }
    }

    /// Takes slots whether they are free or not. The bound holds again once as many are released.
    pub(crate) fn force(&self, want: usize) {
        self.state.fetch_sub(scaled(want), Ordering::AcqRel);
    }

    /// Stands in the line for `want` slots, unless they are free. Who stands must come to learn
    /// what became of it, or give up.
    pub(crate) fn stand_in_line(&self, want: usize) -> Result<Option<Standing<'_>>, Refused> {
        let place = self.stand(want, Caller::Thread(current()))?;
        Ok(place.map(|place| Standing { gate: self, place }))
    }

    /// The same for a task: the future waits in the same line as the threads do.
    pub(crate) fn acquire_async(&self, want: usize) -> Acquire<'_> {
        Acquire { gate: self, want, place: None }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.load(Ordering::Acquire) & CLOSED != 0
    }

    /// Gives slots back, or adds new ones.
    #[inline]
    pub(crate) fn release(&self, slots: usize) {
        if slots == 0 {
            return;
        }
        let before = self.state.fetch_add(scaled(slots), Ordering::AcqRel);
        if before & CONTENDED != 0 {
            self.grant();
        }
    }

    /// The slots that are out, of `capacity`.
    pub(crate) fn in_use(&self, capacity: usize) -> usize {
        in_use(self.state.load(Ordering::Acquire), capacity)
    }

    /// The same, read so that it is ordered with every `release`: a release that this read misses
    /// comes after it, and sees all that was done before it.
    pub(crate) fn in_use_for_certain(&self, capacity: usize) -> usize {
        in_use(self.state.fetch_or(0, Ordering::AcqRel), capacity)
    }

    /// Refuses whoever waits, and whoever comes.
    pub(crate) fn close(&self) {
        self.state.fetch_or(CLOSED, Ordering::AcqRel);
        while let Some(caller) = self.refuse_one() {
            caller.wake();
        }
    }

    /// How many stand in the line.
    pub(crate) fn waiting(&self) -> usize {
        let line = self.line.lock();
        std::iter::successors(line.head, |&place| line.places[place].behind).count()
    }

    /// Step 2. Returns a place in the line, or nothing if the slots were free.
    fn stand(&self, want: usize, caller: Caller) -> Result<Option<usize>, Refused> {
        let mut line = self.line.lock();
        let before = self.state.fetch_or(CONTENDED, Ordering::AcqRel);
        if before & CLOSED != 0 {
            self.settle(&line);
            return Err(Refused::Closed);
        }
        if line.head.is_none() && before >= scaled(want) {
            self.state.fetch_sub(scaled(want), Ordering::AcqRel);
            self.settle(&line);
            return Ok(None);
        }
        Ok(Some(line.push(want, caller)))
    }

    /// Clears `CONTENDED` if the line is empty.
    fn settle(&self, line: &Line) {
        if line.head.is_none() {
            self.state.fetch_and(!CONTENDED, Ordering::AcqRel);
        }
    }

    /// Step 4.
    #[cold]
    fn grant(&self) {
        while let Some(caller) = self.grant_one() {
            caller.wake();
        }
    }

    fn grant_one(&self) -> Option<Caller> {
        let mut line = self.line.lock();
        let head = line.head?;
        let want = line.places[head].want;
        // Nobody else takes slots while `CONTENDED` is set and we have the lock; `force` may, and
        // leaves the bound exceeded by what it was forced to.
        if self.state.load(Ordering::Acquire) < scaled(want) {
            return None;
        }
        self.state.fetch_sub(scaled(want), Ordering::AcqRel);
        let caller = line.settle(head, Fate::Granted);
        self.settle(&line);
        Some(caller)
    }

    fn refuse_one(&self) -> Option<Caller> {
        let mut line = self.line.lock();
        let head = line.head?;
        let caller = line.settle(head, Fate::Refused);
        self.settle(&line);
        Some(caller)
    }

    /// What became of a waiter, if it is decided. The place is then gone.
    fn learn(&self, place: usize) -> Option<Result<(), Closed>> {
        let mut line = self.line.lock();
        match line.places[place].fate {
            Fate::Waiting => return None,
            Fate::Granted | Fate::Refused => {}
        }
        match line.places.remove(place).fate {
            Fate::Granted => Some(Ok(())),
            _ => Some(Err(Closed)),
        }
    }

    /// Step 5.
    fn give_up(&self, place: usize) -> Result<(), Refused> {
        let mut line = self.line.lock();
        let fate = line.places[place].fate;
        if fate == Fate::Waiting {
            line.unlink(place);
        }
        line.places.remove(place);
        self.settle(&line);
        drop(line);
        match fate {
            Fate::Granted => Ok(()),
            Fate::Refused => Err(Refused::Closed),
            Fate::Waiting => {
                self.grant();
                Err(Refused::Full)
            }
        }
    }
}

impl Line {
    fn push(&mut self, want: usize, caller: Caller) -> usize {
        let before = self.tail;
        let place =
            self.places.insert(Place { want, fate: Fate::Waiting, caller, before, behind: None });
        match before {
            None => self.head = Some(place),
            Some(before) => self.places[before].behind = Some(place),
        }
        self.tail = Some(place);
        place
    }

    fn unlink(&mut self, place: usize) {
        let Place { before, behind, .. } = self.places[place];
        match before {
            None => self.head = behind,
            Some(before) => self.places[before].behind = behind,
        }
        match behind {
            None => self.tail = before,
            Some(behind) => self.places[behind].before = before,
        }
    }

    /// Decides a waiter's fate and says whom to wake.
    fn settle(&mut self, place: usize, fate: Fate) -> Caller {
        self.unlink(place);
        let place = &mut self.places[place];
        place.fate = fate;
        place.caller.copy()
    }
}

/// A thread's place in the line of a gate.
#[must_use = "whoever stands in the line must wait or give up"]
#[derive(Debug)]
pub(crate) struct Standing<'a> {
    gate: &'a Gate,
    place: usize,
}

impl<'a> Standing<'a> {
    /// What became of it, or the place again if that is open.
    pub(crate) fn learn(self) -> Result<Result<(), Closed>, Standing<'a>> {
        self.gate.learn(self.place).ok_or(self)
    }

    /// Sleeps until something became of it, or gives up at the deadline.
    pub(crate) fn wait(mut self, deadline: Option<Instant>) -> Result<(), Refused> {
        loop {
            self = match self.learn() {
                Ok(fate) => return fate.map_err(Refused::from),
                Err(standing) => standing,
            };
            match deadline.map(|at| at.saturating_duration_since(Instant::now())) {
                None => park(),
                Some(left) if left.is_zero() => return self.gate.give_up(self.place),
                Some(left) => park_timeout(left),
            }
        }
    }
}

/// Waits in the line of a gate. Dropped before it is ready, it leaves the line, or gives back what
/// it had been granted.
#[derive(Debug)]
pub(crate) struct Acquire<'a> {
    gate: &'a Gate,
    want: usize,
    place: Option<usize>,
}

impl Acquire<'_> {
    /// Whether the caller stands in the line.
    pub(crate) fn waits(&self) -> bool {
        self.place.is_some()
    }
}

impl Future for Acquire<'_> {
    type Output = Result<(), Closed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(place) = self.place else {
            return match self.gate.stand(self.want, Caller::Task(cx.waker().clone())) {
                Ok(None) => Poll::Ready(Ok(())),
                Ok(place) => {
                    self.place = place;
                    Poll::Pending
                }
                Err(_) => Poll::Ready(Err(Closed)),
            };
        };
        {
            let mut line = self.gate.line.lock();
            let place = &mut line.places[place];
            if place.fate == Fate::Waiting {
                if let Caller::Task(waker) = &mut place.caller {
                    waker.clone_from(cx.waker());
                }
                return Poll::Pending;
            }
        }
        self.place = None;
        Poll::Ready(self.gate.learn(place).expect("the fate is no longer open"))
    }
}

impl Drop for Acquire<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place.take()
            && self.gate.give_up(place).is_ok()
        {
            self.gate.release(self.want);
        }
    }
}

fn in_use(state: isize, capacity: usize) -> usize {
    usize::try_from(capacity as isize - state.div_euclid(SLOT)).unwrap_or(0)
}

fn scaled(slots: usize) -> isize {
    isize::try_from(slots).unwrap_or(isize::MAX).min(isize::MAX / (2 * SLOT)) * SLOT
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// It went round and round until the line was empty: the slots that it saw free were kept for
    /// somebody who wanted more than there were.
    #[test]
    fn slots_that_are_kept_for_the_line_are_refused_at_once() {
        let gate = Gate::new(2);
        let standing = gate.stand_in_line(3).unwrap().expect("there are only two");
        assert_eq!(gate.try_acquire_up_to(2), Err(Refused::Full));
        gate.release(1);
        assert_eq!(standing.wait(None), Ok(()));
    }
}
