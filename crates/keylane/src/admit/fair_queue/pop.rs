//! Pop operations: they return items in queue order and serve waiting callers in the order of
//! arrival.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::super::error::QueueError;
use super::super::parker::{ThreadParker, WakeList, WakeTarget};
use super::super::wait_queue::WaiterState;
use super::{BothGuards, FairQueue};

impl<T> FairQueue<T> {
    /// Pops the oldest item, waiting until there is one.
    ///
    /// # Errors
    /// If the queue is closed and empty.
    #[inline]
    pub fn pop(&self) -> Result<T, QueueError> {
        self.pop_until(None)
    }

    /// Pops the oldest item, waiting at most for `timeout`.
    ///
    /// # Errors
    /// If no item arrived in time, or the queue is closed and empty.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use keylane::admit::{FairQueue, QueueError};
    ///
    /// let queue = FairQueue::new(8)?;
    /// assert_eq!(queue.pop_timeout(Duration::from_millis(1)), Err(QueueError::TimedOut));
    /// queue.push(1)?;
    /// assert_eq!(queue.pop_timeout(Duration::from_millis(1)), Ok(1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pop_timeout(&self, timeout: Duration) -> Result<T, QueueError> {
        self.pop_until(Instant::now().checked_add(timeout))
    }

    /// Pops the oldest item without waiting.
    ///
    /// # Errors
    /// If the queue is empty.
    ///
    /// # Examples
    /// ```
    /// use keylane::admit::{FairQueue, QueueError};
    ///
    /// let queue = FairQueue::new(8)?;
    /// queue.push(1)?;
    /// assert_eq!(queue.try_pop(), Ok(1));
    /// assert_eq!(queue.try_pop(), Err(QueueError::Empty));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn try_pop(&self) -> Result<T, QueueError> {
        let popped = self.front().pop();
        popped.map_or_else(|| self.pop_whole(), Ok)
    }

    /// Pops the oldest item, waiting in the same queue as threads. The future joins the wait queue
    /// when it is first polled.
    ///
    /// # Cancel safety
    /// A dropped future takes nothing: an item that it was assigned goes to the next waiting pop,
    /// or back before all later items. Until the future is polled or dropped, that item counts
    /// towards the capacity. A future that is forgotten (`std::mem::forget`), or kept and never
    /// polled again, keeps its item forever: pops are served in the order of arrival, so no other
    /// caller takes the item. Poll it, or drop it.
    ///
    /// # Errors
    /// If the queue is closed and empty.
    ///
    /// # Examples
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// use keylane::admit::{FairQueue, QueueError};
    ///
    /// let queue = FairQueue::new(8)?;
    /// queue.push(1)?;
    /// queue.close();
    /// assert_eq!(queue.pop_async().await, Ok(1));
    /// assert_eq!(queue.pop_async().await, Err(QueueError::Closed));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn pop_async(&self) -> Result<T, QueueError> {
        PopFuture { queue: self, waiter: None }.await
    }

    /// Pops between 1 and `most` items, oldest first, waiting until there is at least one. Returns
    /// no items at once if `most` is 0.
    ///
    /// # Errors
    /// If the queue is closed and empty.
    ///
    /// # Examples
    /// ```
    /// use keylane::admit::FairQueue;
    ///
    /// let queue = FairQueue::new(8)?;
    /// queue.push_many([1, 2, 3])?;
    /// assert_eq!(queue.pop_many(2)?, [1, 2]);
    /// assert_eq!(queue.pop_many(2)?, [3]); // does not wait for a second
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pop_many(&self, most: usize) -> Result<Vec<T>, QueueError> {
        self.pop_many_until(most, None)
    }

    /// Pops between 1 and `most` items, oldest first, waiting at most for `timeout`.
    ///
    /// # Errors
    /// If no item arrived in time, or the queue is closed and empty.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use keylane::admit::{FairQueue, QueueError};
    ///
    /// let queue = FairQueue::new(8)?;
    /// queue.push_many([1, 2, 3])?;
    /// let short = Duration::from_millis(1);
    /// assert_eq!(queue.pop_many_timeout(8, short)?, [1, 2, 3]);
    /// assert_eq!(queue.pop_many_timeout(8, short), Err(QueueError::TimedOut));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pop_many_timeout(&self, most: usize, timeout: Duration) -> Result<Vec<T>, QueueError> {
        self.pop_many_until(most, Instant::now().checked_add(timeout))
    }

    /// Pops between 1 and `most` items, oldest first, without waiting.
    ///
    /// # Errors
    /// If the queue is empty.
    ///
    /// # Examples
    /// ```
    /// use keylane::admit::{FairQueue, QueueError};
    ///
    /// let queue = FairQueue::new(8)?;
    /// queue.push_many([1, 2, 3])?;
    /// assert_eq!(queue.try_pop_many(8)?, [1, 2, 3]);
    /// assert_eq!(queue.try_pop_many(8), Err(QueueError::Empty));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_pop_many(&self, most: usize) -> Result<Vec<T>, QueueError> {
        let mut items = Vec::new();
        if most == 0 {
            return Ok(items);
        }
        self.change(|parts, wake_list| parts.pop_many(most, &mut items, wake_list))?;
        Ok(items)
    }

    /// Pops between 1 and `most` items, oldest first, waiting in the same queue as threads.
    ///
    /// # Cancel safety
    /// As for [`pop_async`](Self::pop_async).
    ///
    /// # Errors
    /// If the queue is closed and empty.
    ///
    /// # Examples
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// use keylane::admit::FairQueue;
    ///
    /// let queue = FairQueue::new(8)?;
    /// queue.push_many([1, 2, 3])?;
    /// assert_eq!(queue.pop_many_async(2).await?, [1, 2]);
    /// assert_eq!(queue.pop_many_async(2).await?, [3]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn pop_many_async(&self, most: usize) -> Result<Vec<T>, QueueError> {
        if most == 0 {
            return Ok(Vec::new());
        }
        let first = self.pop_async().await?;
        Ok(self.with_more(first, most - 1))
    }

    #[inline]
    fn pop_until(&self, deadline: Option<Instant>) -> Result<T, QueueError> {
        let popped = self.front().pop();
        popped.map_or_else(|| self.pop_or_wait(deadline), Ok)
    }

    #[cold]
    fn pop_whole(&self) -> Result<T, QueueError> {
        self.change(|parts, wake_list| parts.pop(wake_list))
    }

    /// Pops from either part, or waits.
    #[cold]
    fn pop_or_wait(&self, deadline: Option<Instant>) -> Result<T, QueueError> {
        let mut wake_list = WakeList::default();
        let mut both = self.both();
        match both.parts().pop(&mut wake_list) {
            Err(QueueError::Empty) => self.wait_to_pop(both, deadline),
            result => {
                drop(both);
                wake_list.wake_all();
                result
            }
        }
    }

    fn pop_many_until(&self, most: usize, deadline: Option<Instant>) -> Result<Vec<T>, QueueError> {
        match self.try_pop_many(most) {
            Err(QueueError::Empty) => {}
            result => return result,
        }
        let first = self.pop_until(deadline)?;
        Ok(self.with_more(first, most - 1))
    }

    /// Returns `first` and up to `most` items behind it.
    fn with_more(&self, first: T, most: usize) -> Vec<T> {
        let mut items = vec![first];
        self.change(|parts, wake_list| parts.pop_more(most, &mut items, wake_list));
        items
    }

    /// Joins the wait queue under the locks that found no item, then waits.
    fn wait_to_pop(
        &self,
        mut both: BothGuards<'_, T>,
        deadline: Option<Instant>,
    ) -> Result<T, QueueError> {
        let parker = ThreadParker::new();
        let waiter = both.parts().enqueue_pop(WakeTarget::Thread(parker.clone()));
        drop(both);
        parker.wait(&self.pop_spin, deadline);
        PopFuture { queue: self, waiter: None }.leave(waiter)
    }
}

/// Future of a pop. Dropped, it leaves the wait queue and returns an assigned item to the queue.
struct PopFuture<'a, T> {
    queue: &'a FairQueue<T>,
    /// Index of the waiter, once the future has joined the wait queue.
    waiter: Option<usize>,
}

impl<T> PopFuture<'_, T> {
    /// Pops an item, or joins the wait queue.
    fn begin(&mut self, wake: WakeTarget) -> Poll<Result<T, QueueError>> {
        let mut wake_list = WakeList::default();
        let mut both = self.queue.both();
        let popped = both.parts().pop(&mut wake_list);
        if let Err(QueueError::Empty) = popped {
            self.waiter = Some(both.parts().enqueue_pop(wake));
            return Poll::Pending;
        }
        drop(both);
        wake_list.wake_all();
        Poll::Ready(popped)
    }

    /// Leaves the wait queue with the result of the pop.
    fn leave(&mut self, waiter: usize) -> Result<T, QueueError> {
        self.waiter = None;
        let mut wake_list = WakeList::default();
        let (state, item, _wake) = self.queue.back().remove_popper(waiter, &mut wake_list);
        wake_list.wake_all();
        item.ok_or(match state {
            WaiterState::Waiting => QueueError::TimedOut,
            WaiterState::Granted | WaiterState::Refused => QueueError::Closed,
        })
    }
}

impl<T> Future for PopFuture<'_, T> {
    type Output = Result<T, QueueError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Cloned before the lock is taken and dropped after it: wakers run foreign code.
        let wake = WakeTarget::Task(cx.waker().clone());
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

impl<T> Drop for PopFuture<'_, T> {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter {
            let mut wake_list = WakeList::default();
            let wake = self.queue.both().parts().cancel_pop(waiter, &mut wake_list);
            wake_list.wake_all();
            drop(wake);
        }
    }
}
