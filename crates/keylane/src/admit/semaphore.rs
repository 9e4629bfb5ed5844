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

use super::parker::{AdaptiveSpin, ThreadParker, Wake, WakeList};
use super::wait_queue::{WaitQueue, WaiterState};
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
pub(crate) struct Semaphore {
    /// Free slots times `SLOT`, plus the flags. Negative while more are out than the bound allows.
    state: AtomicIsize,
    /// Who waits, and the bound. A few words are read or written under the lock, and nobody is told
    /// under it.
    inner: Mutex<SemaphoreState>,
    /// How the threads in the line wait.
    spin: AdaptiveSpin,
}

#[derive(Debug)]
struct SemaphoreState {
    /// Who waits, and for how many slots.
    queue: WaitQueue<usize>,
    /// The bound. Changed together with `state`, under the lock, so that the two agree under it.
    capacity: usize,
}

/// The slots will never be had: they are closed, or fewer than were asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed;

/// Why no slot was had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TryAcquireError {
    Closed,
    /// None is free, or somebody waits for the next; or the time is over.
    Full,
}

impl From<Closed> for TryAcquireError {
    fn from(_: Closed) -> Self {
        TryAcquireError::Closed
    }
}

impl Semaphore {
    /// `capacity` slots, all free. More than [`MAX_SLOTS`] are not counted.
    pub(crate) fn new(capacity: usize) -> Self {
        Semaphore {
            state: AtomicIsize::new(scaled(capacity)),
            inner: Mutex::new(SemaphoreState { queue: WaitQueue::default(), capacity }),
            spin: AdaptiveSpin::new(),
        }
    }

    /// Takes `want` slots if they are free and nobody waits.
    #[inline]
    pub(crate) fn try_acquire(&self, want: usize) -> Result<(), TryAcquireError> {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            if state & CLOSED != 0 {
                return Err(TryAcquireError::Closed);
            }
            if state & CONTENDED != 0 || state < scaled(want) {
                return Err(TryAcquireError::Full);
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
    pub(crate) fn try_acquire_up_to(&self, want: usize) -> Result<usize, TryAcquireError> {
        loop {
            let state = self.state.load(Ordering::Relaxed);
            let free = state / SLOT;
            let take = free.clamp(1, scaled(want) / SLOT) as usize;
            match self.try_acquire(take) {
                Ok(()) => return Ok(take),
                // Somebody took some between the two reads; take fewer.
                Err(TryAcquireError::Full) if take > 1 && state & CONTENDED == 0 => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether it is open, nobody waits, and no more slots are out than the bound allows.
    #[inline(always)]
    pub(crate) fn is_uncontended(&self) -> bool {
        let state = self.state.load(Ordering::Acquire);
        state & (CONTENDED | CLOSED) == 0 && state >= 0
    }

    /// Takes slots whether they are free or not. The bound holds again once as many are released.
    pub(crate) fn force(&self, want: usize) {
        self.state.fetch_sub(scaled(want), Ordering::AcqRel);
    }

    /// Stands in the line for `want` slots, unless they are free. Who stands must come to learn
    /// what became of it, or give up.
    pub(crate) fn enqueue_thread(
        &self,
        want: usize,
    ) -> Result<Option<QueuedAcquire<'_>>, TryAcquireError> {
        let parker = ThreadParker::new();
        let waiter = self.enqueue(want, Wake::Thread(parker.clone()))?;
        Ok(waiter.map(|waiter| QueuedAcquire { semaphore: self, waiter, parker }))
    }

    /// The same for a task: the future waits in the same line as the threads do.
    pub(crate) fn acquire_async(&self, want: usize) -> Acquire<'_> {
        Acquire { semaphore: self, want, waiter: None }
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
        self.inner.lock().capacity
    }

    /// The slots that are out.
    pub(crate) fn in_use(&self) -> usize {
        let inner = self.inner.lock();
        in_use(self.state.load(Ordering::Acquire), inner.capacity)
    }

    /// The same, read so that it is ordered with every `release`: a release that this read misses
    /// comes after it, and sees all that was done before it.
    pub(crate) fn in_use_synced(&self) -> usize {
        let inner = self.inner.lock();
        in_use(self.state.fetch_or(0, Ordering::AcqRel), inner.capacity)
    }

    /// The slots that can be had at once if nobody waits.
    pub(crate) fn free(&self) -> usize {
        usize::try_from(self.state.load(Ordering::Acquire).div_euclid(SLOT)).unwrap_or(0)
    }

    /// Changes the bound. Below what is out nobody gets any until enough have come back. Who waits
    /// for more than there will ever be is refused.
    pub(crate) fn set_capacity(&self, to: usize) {
        let mut wake_list = WakeList::default();
        let mut inner = self.inner.lock();
        let from = std::mem::replace(&mut inner.capacity, to);
        if to >= from {
            self.state.fetch_add(scaled(to - from), Ordering::AcqRel);
        } else {
            self.state.fetch_sub(scaled(from - to), Ordering::AcqRel);
            inner.queue.refuse_if(|&want| want > to, &mut wake_list);
        }
        self.grant_locked(&mut inner, &mut wake_list);
        drop(inner);
        wake_list.wake_all();
    }

    /// Refuses whoever waits, and whoever comes.
    pub(crate) fn close(&self) {
        let mut wake_list = WakeList::default();
        let mut inner = self.inner.lock();
        self.state.fetch_or(CLOSED, Ordering::AcqRel);
        inner.queue.refuse_if(|_| true, &mut wake_list);
        self.clear_contended_if_idle(&inner);
        drop(inner);
        wake_list.wake_all();
    }

    /// How many stand in the line.
    pub(crate) fn waiting(&self) -> usize {
        self.inner.lock().queue.waiting()
    }

    /// Those who stand in the line, in their order: the thread, if it is one, and what it wants.
    pub(crate) fn waiters(&self) -> Vec<(Option<Thread>, usize)> {
        let inner = self.inner.lock();
        let thread = |wake: Option<&Wake>| wake?.thread().cloned();
        inner.queue.iter().map(|(&want, wake)| (thread(wake), want)).collect()
    }

    /// Step 2. Returns a place in the line, or nothing if the slots were free.
    fn enqueue(&self, want: usize, wake: Wake) -> Result<Option<usize>, TryAcquireError> {
        let mut inner = self.inner.lock();
        let before = self.state.fetch_or(CONTENDED, Ordering::AcqRel);
        let queued = if before & CLOSED != 0 || want > inner.capacity {
            Err((TryAcquireError::Closed, wake))
        } else if inner.queue.is_empty() && before >= scaled(want) {
            self.state.fetch_sub(scaled(want), Ordering::AcqRel);
            Ok(Err(wake))
        } else {
            Ok(Ok(inner.queue.push_back(want, wake)))
        };
        self.clear_contended_if_idle(&inner);
        drop(inner);
        // The caller who is not needed may be a waker, which is dropped here, without the lock.
        match queued {
            Ok(Ok(waiter)) => Ok(Some(waiter)),
            Ok(Err(_)) => Ok(None),
            Err((error, _)) => Err(error),
        }
    }

    /// Clears `CONTENDED` if the line is empty.
    fn clear_contended_if_idle(&self, inner: &SemaphoreState) {
        if inner.queue.is_empty() {
            self.state.fetch_and(!CONTENDED, Ordering::AcqRel);
        }
    }

    /// Step 4.
    #[cold]
    fn grant(&self) {
        let mut wake_list = WakeList::default();
        let mut inner = self.inner.lock();
        self.grant_locked(&mut inner, &mut wake_list);
        drop(inner);
        wake_list.wake_all();
    }

    fn grant_locked(&self, inner: &mut SemaphoreState, wake_list: &mut WakeList) {
        // Nobody else takes slots while `CONTENDED` is set and we have the lock; `force` may, and
        // leaves the bound exceeded by what it was forced to.
        while let Some(&mut want) = inner.queue.head() {
            if self.state.load(Ordering::Acquire) < scaled(want) {
                return;
            }
            self.state.fetch_sub(scaled(want), Ordering::AcqRel);
            inner.queue.resolve_head(WaiterState::Granted, wake_list);
        }
        self.clear_contended_if_idle(inner);
    }

    /// What became of a waiter, if it is decided. The place is then gone.
    fn poll_waiter(&self, waiter: usize) -> Option<Result<(), Closed>> {
        let mut inner = self.inner.lock();
        match inner.queue.state(waiter) {
            WaiterState::Waiting => None,
            WaiterState::Granted | WaiterState::Refused => match inner.queue.remove(waiter) {
                (WaiterState::Granted, ..) => Some(Ok(())),
                _ => Some(Err(Closed)),
            },
        }
    }

    /// Step 5.
    fn cancel_or_take(&self, waiter: usize) -> Result<(), TryAcquireError> {
        let mut wake_list = WakeList::default();
        let mut inner = self.inner.lock();
        let (waiter_state, _, wake) = inner.queue.remove(waiter);
        if waiter_state == WaiterState::Waiting {
            self.grant_locked(&mut inner, &mut wake_list);
        }
        drop(inner);
        drop(wake);
        wake_list.wake_all();
        match waiter_state {
            WaiterState::Granted => Ok(()),
            WaiterState::Refused => Err(TryAcquireError::Closed),
            WaiterState::Waiting => Err(TryAcquireError::Full),
        }
    }
}

/// A thread's place in the line.
#[must_use = "whoever stands in the line must wait or give up"]
#[derive(Debug)]
pub(crate) struct QueuedAcquire<'a> {
    semaphore: &'a Semaphore,
    waiter: usize,
    parker: Arc<ThreadParker>,
}

impl<'a> QueuedAcquire<'a> {
    /// What became of it, or the place again if that is open.
    pub(crate) fn try_finish(self) -> Result<Result<(), Closed>, QueuedAcquire<'a>> {
        if !self.parker.is_notified() {
            return Err(self);
        }
        self.semaphore.poll_waiter(self.waiter).ok_or(self)
    }

    /// Sleeps until something becomes of it, or for so long, and stays in the line.
    pub(crate) fn park_timeout(&self, time: Duration) {
        self.parker.park_timeout(time);
    }

    /// Waits until something became of it, or gives up at the deadline.
    pub(crate) fn wait(self, deadline: Option<Instant>) -> Result<(), TryAcquireError> {
        self.parker.wait(&self.semaphore.spin, deadline);
        // Granted or refused by now, unless the deadline came first.
        self.semaphore.cancel_or_take(self.waiter)
    }
}

/// Waits in the line. Dropped before it is ready, it leaves the line, or gives back what it had been
/// granted.
#[derive(Debug)]
pub(crate) struct Acquire<'a> {
    semaphore: &'a Semaphore,
    want: usize,
    waiter: Option<usize>,
}

impl Acquire<'_> {
    /// Whether the caller stands in the line.
    pub(crate) fn is_queued(&self) -> bool {
        self.waiter.is_some()
    }
}

impl Future for Acquire<'_> {
    type Output = Result<(), Closed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Made before the lock is taken: wakers are somebody else's code.
        let wake = Wake::Task(cx.waker().clone());
        let Some(waiter) = self.waiter else {
            return match self.semaphore.enqueue(self.want, wake) {
                Ok(None) => Poll::Ready(Ok(())),
                Ok(waiter) => {
                    self.waiter = waiter;
                    Poll::Pending
                }
                Err(_) => Poll::Ready(Err(Closed)),
            };
        };
        let mut inner = self.semaphore.inner.lock();
        if inner.queue.state(waiter) == WaiterState::Waiting {
            let outdated = inner.queue.replace_wake(waiter, wake);
            drop(inner);
            drop(outdated);
            return Poll::Pending;
        }
        drop(inner);
        self.waiter = None;
        Poll::Ready(self.semaphore.poll_waiter(waiter).expect("the fate is no longer open"))
    }
}

impl Drop for Acquire<'_> {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter.take()
            && self.semaphore.cancel_or_take(waiter).is_ok()
        {
            self.semaphore.release(self.want);
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
        let slots = Semaphore::new(3);
        slots.force(1);
        let queued = slots.enqueue_thread(3).unwrap().expect("there are only two");
        assert_eq!(slots.try_acquire_up_to(2), Err(TryAcquireError::Full));
        slots.release(1);
        assert_eq!(queued.wait(None), Ok(()));
    }
}
