//! Popping: at once, after a wait, or as a future.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::super::error::PopError;
use super::super::parker::{ThreadParker, Wake, WakeList};
use super::super::wait_queue::WaiterState;
use super::state::TryQueueError;
use super::{BothGuards, FairQueue};

impl<T> FairQueue<T> {
    /// Pops the oldest item, waiting for one if there is none.
    ///
    /// # Errors
    /// If the queue is closed and nothing is left in it.
    #[inline]
    pub fn pop(&self) -> Result<T, PopError> {
        self.pop_until(None)
    }

    /// Pops the oldest item, waiting for one up to `timeout`.
    ///
    /// # Errors
    /// If none came in time, or the queue is closed and nothing is left in it.
    pub fn pop_timeout(&self, timeout: Duration) -> Result<T, PopError> {
        self.pop_until(Instant::now().checked_add(timeout))
    }

    /// Pops the oldest item, waiting for one until `deadline`.
    ///
    /// # Errors
    /// If none came in time, or the queue is closed and nothing is left in it.
    pub fn pop_deadline(&self, deadline: Instant) -> Result<T, PopError> {
        self.pop_until(Some(deadline))
    }

    /// Pops the oldest item if there is one.
    ///
    /// # Errors
    /// If there is none.
    #[inline]
    pub fn try_pop(&self) -> Result<T, PopError> {
        let popped = self.front().pop();
        popped.map_or_else(|| self.pop_whole(), Ok)
    }

    /// Pops the oldest item, waiting for one in the same line as threads do. The place in the line
    /// is taken when the future is first polled.
    ///
    /// # Cancel safety
    /// A dropped future takes nothing: an item that it was handed goes back before all that came
    /// later, or to whoever waits next. Until the future is polled or dropped, that item counts
    /// towards the capacity. A future that is forgotten (`std::mem::forget`), or kept and never polled
    /// again, keeps its item for ever: the line serves in the order of arrival, so nothing takes the item
    /// back. Poll it, or drop it.
    ///
    /// # Errors
    /// If the queue is closed and nothing is left in it.
    pub async fn pop_async(&self) -> Result<T, PopError> {
        Popping { queue: self, waiter: None }.await
    }

    /// Pops up to `most` items at once, oldest first, waiting if there is none. It does not wait for
    /// more than one. With `most` 0 it returns none, at once.
    ///
    /// # Errors
    /// If the queue is closed and nothing is left in it.
    pub fn pop_many(&self, most: usize) -> Result<Vec<T>, PopError> {
        self.pop_many_until(most, None)
    }

    /// As [`pop_many`](Self::pop_many), waiting up to `timeout`.
    ///
    /// # Errors
    /// If none came in time, or the queue is closed and nothing is left in it.
    pub fn pop_many_timeout(&self, most: usize, timeout: Duration) -> Result<Vec<T>, PopError> {
        self.pop_many_until(most, Instant::now().checked_add(timeout))
    }

    /// As [`pop_many`](Self::pop_many), waiting until `deadline`.
    ///
    /// # Errors
    /// If none came in time, or the queue is closed and nothing is left in it.
    pub fn pop_many_deadline(&self, most: usize, deadline: Instant) -> Result<Vec<T>, PopError> {
        self.pop_many_until(most, Some(deadline))
    }

    /// Pops up to `most` items at once, without waiting.
    ///
    /// # Errors
    /// If there is none.
    pub fn try_pop_many(&self, most: usize) -> Result<Vec<T>, PopError> {
        let mut items = Vec::new();
        if most == 0 {
            return Ok(items);
        }
        self.change(|parts, wake_list| parts.pop_many(most, &mut items, wake_list))?;
        Ok(items)
    }

    /// As [`pop_many`](Self::pop_many), as a future.
    ///
    /// # Cancel safety
    /// As for [`pop_async`](Self::pop_async).
    ///
    /// # Errors
    /// If the queue is closed and nothing is left in it.
    pub async fn pop_many_async(&self, most: usize) -> Result<Vec<T>, PopError> {
        if most == 0 {
            return Ok(Vec::new());
        }
        let first = self.pop_async().await?;
        Ok(self.with_more(first, most - 1))
    }

    #[inline]
    fn pop_until(&self, deadline: Option<Instant>) -> Result<T, PopError> {
        let popped = self.front().pop();
        popped.map_or_else(|| self.pop_or_wait(deadline), Ok)
    }

    #[cold]
    fn pop_whole(&self) -> Result<T, PopError> {
        self.change(|parts, wake_list| parts.pop(wake_list)).map_err(PopError::from)
    }

    /// Pops what is in either part, or waits in the line.
    #[cold]
    fn pop_or_wait(&self, deadline: Option<Instant>) -> Result<T, PopError> {
        let mut wake_list = WakeList::default();
        let mut both = self.both();
        match both.parts().pop(&mut wake_list) {
            Err(TryQueueError::NotNow) => self.wait_to_pop(both, deadline),
            result => {
                drop(both);
                wake_list.wake_all();
                result.map_err(PopError::from)
            }
        }
    }

    fn pop_many_until(&self, most: usize, deadline: Option<Instant>) -> Result<Vec<T>, PopError> {
        match self.try_pop_many(most) {
            Err(PopError::Empty) => {}
            result => return result,
        }
        let first = self.pop_until(deadline)?;
        Ok(self.with_more(first, most - 1))
    }

    /// What was popped first, and what lies in the queue behind it, up to `most` items.
    fn with_more(&self, first: T, most: usize) -> Vec<T> {
        let mut items = vec![first];
        self.change(|parts, wake_list| parts.pop_more(most, &mut items, wake_list));
        items
    }

    /// Stands in the line, under the locks that found no item, and waits there.
    fn wait_to_pop(
        &self,
        mut both: BothGuards<'_, T>,
        deadline: Option<Instant>,
    ) -> Result<T, PopError> {
        let parker = ThreadParker::new();
        let waiter = both.parts().enqueue_pop(Wake::Thread(parker.clone()));
        drop(both);
        parker.wait(&self.pop_spin, deadline);
        Popping { queue: self, waiter: None }.leave(waiter)
    }
}

/// A pop that stands in the line, or has not come there yet. Dropped, it leaves the line, and what
/// it was handed goes back.
struct Popping<'a, T> {
    queue: &'a FairQueue<T>,
    /// Where it stands.
    waiter: Option<usize>,
}

impl<T> Popping<'_, T> {
    /// Pops, or stands in the line.
    fn begin(&mut self, wake: Wake) -> Poll<Result<T, PopError>> {
        let mut wake_list = WakeList::default();
        let mut both = self.queue.both();
        let popped = both.parts().pop(&mut wake_list);
        if let Err(TryQueueError::NotNow) = popped {
            self.waiter = Some(both.parts().enqueue_pop(wake));
            return Poll::Pending;
        }
        drop(both);
        wake_list.wake_all();
        Poll::Ready(popped.map_err(PopError::from))
    }

    /// Goes from the line, with what became of the pop.
    fn leave(&mut self, waiter: usize) -> Result<T, PopError> {
        self.waiter = None;
        let mut wake_list = WakeList::default();
        let (state, item, _wake) = self.queue.back().remove_popper(waiter, &mut wake_list);
        wake_list.wake_all();
        item.ok_or(match state {
            WaiterState::Waiting => PopError::TimedOut,
            WaiterState::Granted | WaiterState::Refused => PopError::Closed,
        })
    }
}

impl<T> Future for Popping<'_, T> {
    type Output = Result<T, PopError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Made before the lock is taken, and dropped after: wakers are somebody else's code.
        let wake = Wake::Task(cx.waker().clone());
        let Some(waiter) = self.waiter else { return self.begin(wake) };
        let mut back = self.queue.back();
        if back.pop_waits(waiter) {
            let outdated = back.replace_pop_wake(waiter, wake);
            drop(back);
            drop(outdated);
            return Poll::Pending;
        }
        drop(back);
        Poll::Ready(self.leave(waiter))
    }
}

impl<T> Drop for Popping<'_, T> {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter {
            let mut wake_list = WakeList::default();
            let wake = self.queue.both().parts().cancel_pop(waiter, &mut wake_list);
            wake_list.wake_all();
            drop(wake);
        }
    }
}

impl From<TryQueueError> for PopError {
    fn from(error: TryQueueError) -> Self {
        match error {
            TryQueueError::NotNow => PopError::Empty,
            TryQueueError::Closed => PopError::Closed,
        }
    }
}
