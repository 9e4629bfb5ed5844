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
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::line::{Fate, Line};
use super::wait::{Caller, Calls, Patience, Seat};
use crate::sync::{AtomicIsize, Mutex, Ordering, Thread};

/// Somebody waits in the line.
const CONTENDED: isize = 1;
/// No more slots are given out.
const CLOSED: isize = 2;
/// One free slot.
const SLOT: isize = 4;

/// The most slots there can be.
pub(crate) const MAX_SLOTS: usize = (isize::MAX / (2 * SLOT)) as usize;

#[derive(Debug)]
pub(crate) struct Slots {
    /// Free slots times `SLOT`, plus the flags. Negative while more are out than the bound allows.
    state: AtomicIsize,
    /// Who waits, and the bound. A few words are read or written under the lock, and nobody is told
    /// under it.
    door: Mutex<Door>,
    /// How the threads in the line wait.
    patience: Patience,
}

#[derive(Debug)]
struct Door {
    /// Who waits, and for how many slots.
    line: Line<usize>,
    /// The bound. Changed together with `state`, under the lock, so that the two agree under it.
    capacity: usize,
}

/// The slots will never be had: they are closed, or fewer than were asked for.
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

impl Slots {
    /// `capacity` slots, all free. More than [`MAX_SLOTS`] are not counted.
    pub(crate) fn new(capacity: usize) -> Self {
        Slots {
            state: AtomicIsize::new(scaled(capacity)),
            door: Mutex::new(Door { line: Line::default(), capacity }),
            patience: Patience::new(),
        }
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

    /// Whether it is open, nobody waits, and no more slots are out than the bound allows.
    #[inline(always)]
    pub(crate) fn is_calm(&self) -> bool {
        let state = self.state.load(Ordering::Acquire);
        state & (CONTENDED | CLOSED) == 0 && state >= 0
    }

    /// Takes slots whether they are free or not. The bound holds again once as many are released.
    pub(crate) fn force(&self, want: usize) {
        self.state.fetch_sub(scaled(want), Ordering::AcqRel);
    }

    /// Stands in the line for `want` slots, unless they are free. Who stands must come to learn
    /// what became of it, or give up.
    pub(crate) fn stand_in_line(&self, want: usize) -> Result<Option<Standing<'_>>, Refused> {
        let seat = Seat::new();
        let place = self.stand(want, Caller::Thread(seat.clone()))?;
        Ok(place.map(|place| Standing { slots: self, place, seat }))
    }

    /// The same for a task: the future waits in the same line as the threads do.
    pub(crate) fn acquire_async(&self, want: usize) -> Acquire<'_> {
        Acquire { slots: self, want, place: None }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.load(Ordering::Acquire) & CLOSED != 0
    }

    /// Gives slots back.
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

    /// The bound.
    pub(crate) fn capacity(&self) -> usize {
        self.door.lock().capacity
    }

    /// The slots that are out.
    pub(crate) fn in_use(&self) -> usize {
        let door = self.door.lock();
        in_use(self.state.load(Ordering::Acquire), door.capacity)
    }

    /// The same, read so that it is ordered with every `release`: a release that this read misses
    /// comes after it, and sees all that was done before it.
    pub(crate) fn in_use_for_certain(&self) -> usize {
        let door = self.door.lock();
        in_use(self.state.fetch_or(0, Ordering::AcqRel), door.capacity)
    }

    /// The slots that can be had at once if nobody waits.
    pub(crate) fn free(&self) -> usize {
        usize::try_from(self.state.load(Ordering::Acquire).div_euclid(SLOT)).unwrap_or(0)
    }

    /// Changes the bound. Below what is out nobody gets any until enough have come back. Who waits
    /// for more than there will ever be is refused.
    pub(crate) fn set_capacity(&self, to: usize) {
        let mut calls = Calls::default();
        let mut door = self.door.lock();
        let from = std::mem::replace(&mut door.capacity, to);
        if to >= from {
            self.state.fetch_add(scaled(to - from), Ordering::AcqRel);
        } else {
            self.state.fetch_sub(scaled(from - to), Ordering::AcqRel);
            door.line.sweep(|&want| want > to, &mut calls);
        }
        self.grant_under(&mut door, &mut calls);
        drop(door);
        calls.tell();
    }

    /// Refuses whoever waits, and whoever comes.
    pub(crate) fn close(&self) {
        let mut calls = Calls::default();
        let mut door = self.door.lock();
        self.state.fetch_or(CLOSED, Ordering::AcqRel);
        door.line.sweep(|_| true, &mut calls);
        self.settle(&door);
        drop(door);
        calls.tell();
    }

    /// How many stand in the line.
    pub(crate) fn waiting(&self) -> usize {
        self.door.lock().line.waiting()
    }

    /// Those who stand in the line, in their order: the thread, if it is one, and what it wants.
    pub(crate) fn waiters(&self) -> Vec<(Option<Thread>, usize)> {
        let door = self.door.lock();
        let thread = |caller: Option<&Caller>| caller?.thread().cloned();
        door.line.iter().map(|(&want, caller)| (thread(caller), want)).collect()
    }

    /// Step 2. Returns a place in the line, or nothing if the slots were free.
    fn stand(&self, want: usize, caller: Caller) -> Result<Option<usize>, Refused> {
        let mut door = self.door.lock();
        let before = self.state.fetch_or(CONTENDED, Ordering::AcqRel);
        let stood = if before & CLOSED != 0 || want > door.capacity {
            Err((Refused::Closed, caller))
        } else if door.line.is_empty() && before >= scaled(want) {
            self.state.fetch_sub(scaled(want), Ordering::AcqRel);
            Ok(Err(caller))
        } else {
            Ok(Ok(door.line.stand(want, caller)))
        };
        self.settle(&door);
        drop(door);
        // The caller who is not needed may be a waker, which is dropped here, without the lock.
        match stood {
            Ok(Ok(place)) => Ok(Some(place)),
            Ok(Err(_)) => Ok(None),
            Err((refused, _)) => Err(refused),
        }
    }

    /// Clears `CONTENDED` if the line is empty.
    fn settle(&self, door: &Door) {
        if door.line.is_empty() {
            self.state.fetch_and(!CONTENDED, Ordering::AcqRel);
        }
    }

    /// Step 4.
    #[cold]
    fn grant(&self) {
        let mut calls = Calls::default();
        let mut door = self.door.lock();
        self.grant_under(&mut door, &mut calls);
        drop(door);
        calls.tell();
    }

    fn grant_under(&self, door: &mut Door, calls: &mut Calls) {
        // Nobody else takes slots while `CONTENDED` is set and we have the lock; `force` may, and
        // leaves the bound exceeded by what it was forced to.
        while let Some(&mut want) = door.line.head() {
            if self.state.load(Ordering::Acquire) < scaled(want) {
                return;
            }
            self.state.fetch_sub(scaled(want), Ordering::AcqRel);
            door.line.settle_head(Fate::Granted, calls);
        }
        self.settle(door);
    }

    /// What became of a waiter, if it is decided. The place is then gone.
    fn learn(&self, place: usize) -> Option<Result<(), Closed>> {
        let mut door = self.door.lock();
        match door.line.fate(place) {
            Fate::Waiting => None,
            Fate::Granted | Fate::Refused => match door.line.leave(place) {
                (Fate::Granted, ..) => Some(Ok(())),
                _ => Some(Err(Closed)),
            },
        }
    }

    /// Step 5.
    fn give_up(&self, place: usize) -> Result<(), Refused> {
        let mut calls = Calls::default();
        let mut door = self.door.lock();
        let (fate, _, caller) = door.line.leave(place);
        if fate == Fate::Waiting {
            self.grant_under(&mut door, &mut calls);
        }
        drop(door);
        drop(caller);
        calls.tell();
        match fate {
            Fate::Granted => Ok(()),
            Fate::Refused => Err(Refused::Closed),
            Fate::Waiting => Err(Refused::Full),
        }
    }
}

/// A thread's place in the line.
#[must_use = "whoever stands in the line must wait or give up"]
#[derive(Debug)]
pub(crate) struct Standing<'a> {
    slots: &'a Slots,
    place: usize,
    seat: Arc<Seat>,
}

impl<'a> Standing<'a> {
    /// What became of it, or the place again if that is open.
    pub(crate) fn learn(self) -> Result<Result<(), Closed>, Standing<'a>> {
        if !self.seat.is_told() {
            return Err(self);
        }
        self.slots.learn(self.place).ok_or(self)
    }

    /// Sleeps until something becomes of it, or for so long, and stays in the line.
    pub(crate) fn doze(&self, time: Duration) {
        self.seat.doze(time);
    }

    /// Waits until something became of it, or gives up at the deadline.
    pub(crate) fn wait(self, deadline: Option<Instant>) -> Result<(), Refused> {
        self.seat.wait(&self.slots.patience, deadline);
        // Granted or refused by now, unless the deadline came first.
        self.slots.give_up(self.place)
    }
}

/// Waits in the line. Dropped before it is ready, it leaves the line, or gives back what it had been
/// granted.
#[derive(Debug)]
pub(crate) struct Acquire<'a> {
    slots: &'a Slots,
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
        // Made before the lock is taken: wakers are somebody else's code.
        let caller = Caller::Task(cx.waker().clone());
        let Some(place) = self.place else {
            return match self.slots.stand(self.want, caller) {
                Ok(None) => Poll::Ready(Ok(())),
                Ok(place) => {
                    self.place = place;
                    Poll::Pending
                }
                Err(_) => Poll::Ready(Err(Closed)),
            };
        };
        let mut door = self.slots.door.lock();
        if door.line.fate(place) == Fate::Waiting {
            let outdated = door.line.change_caller(place, caller);
            drop(door);
            drop(outdated);
            return Poll::Pending;
        }
        drop(door);
        self.place = None;
        Poll::Ready(self.slots.learn(place).expect("the fate is no longer open"))
    }
}

impl Drop for Acquire<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place.take()
            && self.slots.give_up(place).is_ok()
        {
            self.slots.release(self.want);
        }
    }
}

fn in_use(state: isize, capacity: usize) -> usize {
    usize::try_from(capacity as isize - state.div_euclid(SLOT)).unwrap_or(0)
}

fn scaled(slots: usize) -> isize {
    slots.min(MAX_SLOTS) as isize * SLOT
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// It went round and round until the line was empty: the slots that it saw free were kept for
    /// somebody who wanted more than there were.
    #[test]
    fn slots_that_are_kept_for_the_line_are_refused_at_once() {
        let slots = Slots::new(3);
        slots.force(1);
        let standing = slots.stand_in_line(3).unwrap().expect("there are only two");
        assert_eq!(slots.try_acquire_up_to(2), Err(Refused::Full));
        slots.release(1);
        assert_eq!(standing.wait(None), Ok(()));
    }
}
