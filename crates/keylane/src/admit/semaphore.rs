//! Fair counting semaphore: grants released slots to waiters in the order of arrival, and loses
//! neither a slot nor a wake-up.
//!
//! # Protocol
//! `state` packs the number of free slots (signed) with two flags. `CONTENDED` is set exactly while
//! the wait queue is not empty, and changes only under the queue's lock.
//! 1. Acquire, uncontended: one compare-and-swap takes slots from `state`. It fails if `CONTENDED`
//!    is set, even if enough slots are free, so that no caller overtakes a waiter.
//! 2. Acquire, contended: under the lock, set `CONTENDED`, retry if the queue is empty, and join
//!    the end of the queue.
//! 3. Release: one atomic add. If the previous state had `CONTENDED`, grant under the lock.
//! 4. Grant, under the lock: while the head of the queue wants no more slots than are free, take
//!    them from `state` on its behalf and mark it granted. Clear `CONTENDED` when the queue is
//!    empty. Wake the granted waiters after the lock is released.
//! 5. Cancel (timeout, or a dropped future), under the lock: if the waiter was granted meanwhile,
//!    it owns the slots; otherwise unlink it and grant again, because the next waiter may want
//!    fewer slots.
//!
//! # Why no slot and no wake-up is lost
//! A release that does not see `CONTENDED` adds to `state` before the waiter's update that sets the
//! flag (`state` itself orders the two), so the retry in step 2 or the grant after it sees the
//! slots. A release that sees the flag grants under the lock, either after the waiter joined the
//! queue or before its retry. Slots move only by the addition in 3 and the subtractions in 1 and 4;
//! a waiter is granted once, under the lock, and leaves the queue at the same moment.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::parker::{AdaptiveSpin, ThreadParker, WakeList, WakeTarget};
use super::wait_queue::{WaitQueue, WaiterState};
use crate::sync::{AtomicIsize, Mutex, Ordering, Thread};

/// Flag: the wait queue is not empty.
const CONTENDED: isize = 1;
/// Flag: no more slots are granted.
const CLOSED: isize = 2;
/// Increment of `state` for one free slot.
const SLOT: isize = 4;

/// Maximum capacity, in slots.
pub(crate) const MAX_SLOTS: usize = (isize::MAX / (2 * SLOT)) as usize;

#[derive(Debug)]
pub(crate) struct Semaphore {
    /// Free slots times `SLOT`, plus the flags. Negative while more slots are in use than the
    /// capacity.
    state: AtomicIsize,
    /// Wait queue and capacity. Critical sections touch a few words; waiters are woken after the
    /// lock is released.
    inner: Mutex<SemaphoreState>,
    /// Spin limit shared by the threads that wait here.
    spin: AdaptiveSpin,
}

#[derive(Debug)]
struct SemaphoreState {
    /// Waiters, each with the number of slots it wants.
    queue: WaitQueue<usize>,
    /// Maximum of slots in use. Changed together with `state`, under the lock, so that the two
    /// agree there.
    capacity: usize,
}

/// Error of a wait that can never succeed: the semaphore is closed, or its capacity is below the
/// request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SemaphoreClosed;

/// Reason why no slot was acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TryAcquireError {
    Closed,
    /// Not enough slots are free, earlier callers wait for them, or the deadline has passed.
    Full,
}

impl From<SemaphoreClosed> for TryAcquireError {
    fn from(_: SemaphoreClosed) -> Self {
        TryAcquireError::Closed
    }
}

impl Semaphore {
    /// Creates a semaphore with `capacity` free slots, at most [`MAX_SLOTS`].
    pub(crate) fn new(capacity: usize) -> Self {
        Semaphore {
            state: AtomicIsize::new(scaled(capacity)),
            inner: Mutex::new(SemaphoreState { queue: WaitQueue::default(), capacity }),
            spin: AdaptiveSpin::new(),
        }
    }

    /// Takes `want` slots if they are free and no caller waits.
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

    /// Takes between 1 and `want` slots if they are free and no caller waits.
    pub(crate) fn try_acquire_up_to(&self, want: usize) -> Result<usize, TryAcquireError> {
        loop {
            let state = self.state.load(Ordering::Relaxed);
            let free = state / SLOT;
            let take = free.clamp(1, scaled(want) / SLOT) as usize;
            match self.try_acquire(take) {
                Ok(()) => return Ok(take),
                // Another thread took slots between the two reads; retry with fewer.
                Err(TryAcquireError::Full) if take > 1 && state & CONTENDED == 0 => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns whether the semaphore is open, no caller waits, and at most `capacity` slots are in
    /// use.
    #[inline(always)]
    pub(crate) fn is_uncontended(&self) -> bool {
        let state = self.state.load(Ordering::Acquire);
        state & (CONTENDED | CLOSED) == 0 && state >= 0
    }

    /// Takes `want` slots, exceeding the capacity if they are not free.
    pub(crate) fn force(&self, want: usize) {
        self.state.fetch_sub(scaled(want), Ordering::AcqRel);
    }

    /// Takes `want` slots and returns `None` if they are free; otherwise joins the wait queue. The
    /// returned waiter must be waited for or cancelled.
    pub(crate) fn enqueue_thread(
        &self,
        want: usize,
    ) -> Result<Option<QueuedAcquire<'_>>, TryAcquireError> {
        let parker = ThreadParker::new();
        let waiter = self.enqueue(want, WakeTarget::Thread(parker.clone()))?;
        Ok(waiter.map(|waiter| QueuedAcquire { semaphore: self, waiter, parker }))
    }

    /// Returns a future that takes `want` slots. It waits in the same queue as threads.
    pub(crate) fn acquire_async(&self, want: usize) -> AcquireFuture<'_> {
        AcquireFuture { semaphore: self, want, waiter: None }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.load(Ordering::Acquire) & CLOSED != 0
    }

    /// Releases slots, and grants them to waiters.
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

    /// Maximum of slots in use.
    pub(crate) fn capacity(&self) -> usize {
        self.inner.lock().capacity
    }

    /// Number of slots in use.
    pub(crate) fn in_use(&self) -> usize {
        let inner = self.inner.lock();
        in_use(self.state.load(Ordering::Acquire), inner.capacity)
    }

    /// Number of slots in use, read with a read-modify-write: a `release` that this read misses is
    /// ordered after it and sees everything done before it.
    pub(crate) fn in_use_synced(&self) -> usize {
        let inner = self.inner.lock();
        in_use(self.state.fetch_or(0, Ordering::AcqRel), inner.capacity)
    }

    /// Number of free slots.
    pub(crate) fn free(&self) -> usize {
        usize::try_from(self.state.load(Ordering::Acquire).div_euclid(SLOT)).unwrap_or(0)
    }

    /// Changes the capacity. No slot is granted while more are in use than the new capacity.
    /// Refuses waiters that want more slots than the new capacity.
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

    /// Refuses all current and future waiters.
    pub(crate) fn close(&self) {
        let mut wake_list = WakeList::default();
        let mut inner = self.inner.lock();
        self.state.fetch_or(CLOSED, Ordering::AcqRel);
        inner.queue.refuse_if(|_| true, &mut wake_list);
        self.clear_contended_if_idle(&inner);
        drop(inner);
        wake_list.wake_all();
    }

    /// Number of waiters.
    pub(crate) fn waiting(&self) -> usize {
        self.inner.lock().queue.waiting()
    }

    /// Returns the waiters in queue order: the thread of each, unless it is an async task, and the
    /// number of slots it wants.
    pub(crate) fn waiters(&self) -> Vec<(Option<Thread>, usize)> {
        let inner = self.inner.lock();
        let thread = |wake: Option<&WakeTarget>| wake?.thread().cloned();
        inner.queue.iter().map(|(&want, wake)| (thread(wake), want)).collect()
    }

    /// Step 2. Joins the wait queue, or returns `None` if the slots were free.
    fn enqueue(&self, want: usize, wake: WakeTarget) -> Result<Option<usize>, TryAcquireError> {
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
        // An unused `WakeTarget` may hold a waker, whose drop runs foreign code, so it is dropped after
        // the lock.
        match queued {
            Ok(Ok(waiter)) => Ok(Some(waiter)),
            Ok(Err(_)) => Ok(None),
            Err((error, _)) => Err(error),
        }
    }

    /// Clears `CONTENDED` if the wait queue is empty.
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
        // With `CONTENDED` set and the lock held, only `force` can take slots concurrently, and it
        // may exceed the capacity, so load and subtraction need not be one operation.
        while let Some(&mut want) = inner.queue.head() {
            if self.state.load(Ordering::Acquire) < scaled(want) {
                return;
            }
            self.state.fetch_sub(scaled(want), Ordering::AcqRel);
            inner.queue.resolve_head(WaiterState::Granted, wake_list);
        }
        self.clear_contended_if_idle(inner);
    }

    /// Removes the waiter and returns its result, or `None` while it waits.
    fn poll_waiter(&self, waiter: usize) -> Option<Result<(), SemaphoreClosed>> {
        let mut inner = self.inner.lock();
        match inner.queue.state(waiter) {
            WaiterState::Waiting => None,
            WaiterState::Granted | WaiterState::Refused => match inner.queue.remove(waiter) {
                (WaiterState::Granted, ..) => Some(Ok(())),
                _ => Some(Err(SemaphoreClosed)),
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

/// Waiter of a thread in the wait queue.
#[must_use = "a queued waiter must be waited for or cancelled"]
#[derive(Debug)]
pub(crate) struct QueuedAcquire<'a> {
    semaphore: &'a Semaphore,
    waiter: usize,
    parker: Arc<ThreadParker>,
}

impl<'a> QueuedAcquire<'a> {
    /// Returns the result, or the waiter itself if it still waits.
    pub(crate) fn try_finish(self) -> Result<Result<(), SemaphoreClosed>, QueuedAcquire<'a>> {
        if !self.parker.is_notified() {
            return Err(self);
        }
        self.semaphore.poll_waiter(self.waiter).ok_or(self)
    }

    /// Sleeps until the waiter is notified, at most for `time`. The waiter stays queued.
    pub(crate) fn park_timeout(&self, time: Duration) {
        self.parker.park_timeout(time);
    }

    /// Waits for the result, and cancels at the deadline.
    pub(crate) fn wait(self, deadline: Option<Instant>) -> Result<(), TryAcquireError> {
        self.parker.wait(&self.semaphore.spin, deadline);
        // The waiter is granted or refused now, unless the deadline came first.
        self.semaphore.cancel_or_take(self.waiter)
    }
}

/// Future of a wait in the queue. Dropped before it is ready, it leaves the queue, or releases the
/// slots that it was granted.
#[derive(Debug)]
pub(crate) struct AcquireFuture<'a> {
    semaphore: &'a Semaphore,
    want: usize,
    waiter: Option<usize>,
}

impl AcquireFuture<'_> {
    /// Returns whether the future has joined the wait queue.
    pub(crate) fn is_queued(&self) -> bool {
        self.waiter.is_some()
    }
}

impl Future for AcquireFuture<'_> {
    type Output = Result<(), SemaphoreClosed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Cloned before the lock is taken: a waker's clone runs foreign code.
        let wake = WakeTarget::Task(cx.waker().clone());
        let Some(waiter) = self.waiter else {
            return match self.semaphore.enqueue(self.want, wake) {
                Ok(None) => Poll::Ready(Ok(())),
                Ok(waiter) => {
                    self.waiter = waiter;
                    Poll::Pending
                }
                Err(_) => Poll::Ready(Err(SemaphoreClosed)),
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
        Poll::Ready(self.semaphore.poll_waiter(waiter).expect("the waiter is granted or refused"))
    }
}

impl Drop for AcquireFuture<'_> {
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

    /// Regression test: this call looped until the queue was empty, because the free slots that it
    /// saw were reserved for a waiter that wanted more.
    #[test]
    fn slots_reserved_for_a_waiter_are_refused_at_once() {
        let slots = Semaphore::new(3);
        slots.force(1);
        let queued = slots.enqueue_thread(3).unwrap().expect("there are only two");
        assert_eq!(slots.try_acquire_up_to(2), Err(TryAcquireError::Full));
        slots.release(1);
        assert_eq!(queued.wait(None), Ok(()));
    }
}
