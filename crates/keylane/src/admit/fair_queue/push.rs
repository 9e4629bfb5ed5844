//! Push operations: they never exceed the capacity and serve waiting callers in the order of
//! arrival.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::super::error::{PushError, QueueError};
use super::super::parker::{ThreadParker, WakeList, WakeTarget};
use super::super::wait_queue::WaiterState;
use super::state::PushBatch;
use super::{BothGuards, FairQueue};

impl<T> FairQueue<T> {
    /// Pushes an item, waiting while the queue is full.
    ///
    /// # Errors
    /// If the queue is closed, before or during the wait.
    #[inline]
    pub fn push(&self, item: T) -> Result<(), PushError<T>> {
        self.push_until(item, None)
    }

    /// Pushes an item, waiting at most for `timeout`.
    ///
    /// # Errors
    /// If the queue stayed full until the timeout, or is closed.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use keylane::admit::{FairQueue, QueueError};
    ///
    /// let queue = FairQueue::new(1)?;
    /// queue.push(1)?;
    /// let late = queue.push_timeout(2, Duration::from_millis(1)).unwrap_err();
    /// assert_eq!((late.kind(), late.into_inner()), (QueueError::TimedOut, 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn push_timeout(&self, item: T, timeout: Duration) -> Result<(), PushError<T>> {
        self.push_until(item, Instant::now().checked_add(timeout))
    }

    /// Pushes an item without waiting.
    ///
    /// # Errors
    /// If the queue is full or closed.
    ///
    /// # Examples
    /// ```
    /// use keylane::admit::{FairQueue, QueueError};
    ///
    /// let queue = FairQueue::new(1)?;
    /// queue.try_push(1)?;
    /// let refused = queue.try_push(2).unwrap_err();
    /// assert_eq!((refused.kind(), refused.into_inner()), (QueueError::Full, 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn try_push(&self, item: T) -> Result<(), PushError<T>> {
        let pushed = self.back().push(item);
        pushed.or_else(|item| {
            self.try_push_batch(PushBatch::One(Some(item))).map_err(|error| error.map(one))
        })
    }

    /// Pushes an item, waiting in the same queue as threads. The future joins the wait queue when
    /// it is first polled.
    ///
    /// # Cancel safety
    /// Dropped while it waits, the future leaves the wait queue and drops the item. Dropped after
    /// its item was placed, but before it was polled again, it leaves the item in the queue.
    ///
    /// # Errors
    /// If the queue is closed, before or during the wait.
    ///
    /// # Examples
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// use keylane::admit::{FairQueue, QueueError};
    ///
    /// let queue = FairQueue::new(8)?;
    /// queue.push_async(1).await?;
    /// queue.close();
    /// let refused = queue.push_async(2).await.unwrap_err();
    /// assert_eq!((refused.kind(), refused.into_inner()), (QueueError::Closed, 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn push_async(&self, item: T) -> Result<(), PushError<T>> {
        let pushed = PushFuture::new(self, PushBatch::One(Some(item))).await;
        pushed.map_err(|error| error.map(one))
    }

    /// Pushes all items, waiting for capacity as often as necessary. The items are adjacent in the
    /// queue: no item of another caller comes between them. There may be more of them than the
    /// capacity.
    ///
    /// # Errors
    /// If the queue is closed, before or during the wait. The error holds the items that were not
    /// pushed.
    ///
    /// # Examples
    /// ```
    /// use keylane::admit::FairQueue;
    ///
    /// let queue = FairQueue::new(2)?;
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| queue.push_many(0..100)); // waits for capacity again and again
    ///     for item in 0..100 {
    ///         assert_eq!(queue.pop(), Ok(item));
    ///     }
    /// });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn push_many(&self, items: impl IntoIterator<Item = T>) -> Result<(), PushError<Vec<T>>> {
        self.push_many_until(items, None)
    }

    /// Pushes all items, waiting at most for `timeout` in all.
    ///
    /// # Errors
    /// If not all items fitted in time, or the queue is closed. The error holds the items that were
    /// not pushed.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use keylane::admit::FairQueue;
    ///
    /// let queue = FairQueue::new(2)?;
    /// let late = queue.push_many_timeout([1, 2, 3], Duration::from_millis(1)).unwrap_err();
    /// assert_eq!(late.into_inner(), [3]);
    /// assert_eq!(queue.snapshot(), [1, 2]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn push_many_timeout(
        &self,
        items: impl IntoIterator<Item = T>,
        timeout: Duration,
    ) -> Result<(), PushError<Vec<T>>> {
        self.push_many_until(items, Instant::now().checked_add(timeout))
    }

    /// Pushes items without waiting, until the queue is full.
    ///
    /// # Errors
    /// If some items were not pushed. The error holds them.
    ///
    /// # Examples
    /// ```
    /// use keylane::admit::FairQueue;
    ///
    /// let queue = FairQueue::new(2)?;
    /// let refused = queue.try_push_many([1, 2, 3]).unwrap_err();
    /// assert_eq!(refused.into_inner(), [3]);
    /// assert_eq!(queue.snapshot(), [1, 2]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_push_many(
        &self,
        items: impl IntoIterator<Item = T>,
    ) -> Result<(), PushError<Vec<T>>> {
        let batch = PushBatch::Many(items.into_iter().collect());
        self.try_push_batch(batch).map_err(|error| error.map(many))
    }

    /// Pushes all items, waiting in the same queue as threads.
    ///
    /// # Cancel safety
    /// Dropped while it waits, the future leaves the wait queue and drops the items that have not
    /// been placed. The placed ones stay in the queue.
    ///
    /// # Errors
    /// If the queue is closed, before or during the wait. The error holds the items that were not
    /// pushed.
    ///
    /// # Examples
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// use keylane::admit::FairQueue;
    ///
    /// let queue = FairQueue::new(8)?;
    /// queue.push_many_async([1, 2, 3]).await?;
    /// assert_eq!(queue.snapshot(), [1, 2, 3]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn push_many_async(
        &self,
        items: impl IntoIterator<Item = T>,
    ) -> Result<(), PushError<Vec<T>>> {
        let items = items.into_iter().collect();
        let pushed = PushFuture::new(self, PushBatch::Many(items)).await;
        pushed.map_err(|error| error.map(many))
    }

    #[inline]
    fn push_until(&self, item: T, deadline: Option<Instant>) -> Result<(), PushError<T>> {
        // Fast path with one lock: the queue is usually not full, and no caller waits.
        let pushed = self.back().push(item);
        pushed.or_else(|item| {
            self.push_or_wait(PushBatch::One(Some(item)), deadline).map_err(|error| error.map(one))
        })
    }

    fn push_many_until(
        &self,
        items: impl IntoIterator<Item = T>,
        deadline: Option<Instant>,
    ) -> Result<(), PushError<Vec<T>>> {
        let batch = PushBatch::Many(items.into_iter().collect());
        self.push_or_wait(batch, deadline).map_err(|error| error.map(many))
    }

    #[cold]
    fn try_push_batch(&self, mut batch: PushBatch<T>) -> Result<(), PushError<PushBatch<T>>> {
        match self.change(|parts, wake_list| parts.push(&mut batch, wake_list)) {
            Ok(()) => Ok(()),
            Err(error) => Err(PushError::new(error, batch)),
        }
    }

    /// Pushes the items that fit, and waits with the rest.
    #[cold]
    fn push_or_wait(
        &self,
        mut batch: PushBatch<T>,
        deadline: Option<Instant>,
    ) -> Result<(), PushError<PushBatch<T>>> {
        let mut wake_list = WakeList::default();
        let mut both = self.both();
        match both.parts().push(&mut batch, &mut wake_list) {
            Err(QueueError::Full) => self.wait_to_push(both, batch, wake_list, deadline),
            result => {
                drop(both);
                wake_list.wake_all();
                result.map_err(|error| PushError::new(error, batch))
            }
        }
    }

    /// Joins the wait queue under the locks that found the queue full, then waits.
    fn wait_to_push(
        &self,
        mut both: BothGuards<'_, T>,
        batch: PushBatch<T>,
        wake_list: WakeList,
        deadline: Option<Instant>,
    ) -> Result<(), PushError<PushBatch<T>>> {
        let parker = ThreadParker::new();
        let waiter = both.parts().enqueue_push(batch, WakeTarget::Thread(parker.clone()));
        drop(both);
        let mut pushing = PushFuture { queue: self, batch: None, waiter: Some(waiter) };
        wake_list.wake_all();
        parker.wait(&self.push_spin, deadline);
        pushing.leave(waiter)
    }
}

/// Future of a push. Dropped, it leaves the wait queue and drops the items that were not placed.
struct PushFuture<'a, T> {
    queue: &'a FairQueue<T>,
    /// Items to push, until they are in the queue or in its wait queue.
    batch: Option<PushBatch<T>>,
    /// Index of the waiter, once the future has joined the wait queue.
    waiter: Option<usize>,
}

impl<'a, T> PushFuture<'a, T> {
    fn new(queue: &'a FairQueue<T>, batch: PushBatch<T>) -> Self {
        PushFuture { queue, batch: Some(batch), waiter: None }
    }

    /// Pushes the items that fit, and joins the wait queue with the rest.
    fn begin(
        &mut self,
        mut batch: PushBatch<T>,
        wake: WakeTarget,
    ) -> Poll<Result<(), PushError<PushBatch<T>>>> {
        let mut wake_list = WakeList::default();
        let mut both = self.queue.both();
        let pushed = both.parts().push(&mut batch, &mut wake_list);
        if pushed == Err(QueueError::Full) {
            self.waiter = Some(both.parts().enqueue_push(batch, wake));
            drop(both);
            wake_list.wake_all();
            return Poll::Pending;
        }
        drop(both);
        wake_list.wake_all();
        Poll::Ready(pushed.map_err(|error| PushError::new(error, batch)))
    }

    /// Leaves the wait queue with the result of the push.
    fn leave(&mut self, waiter: usize) -> Result<(), PushError<PushBatch<T>>> {
        self.waiter = None;
        let (state, rest, _wake) = self.queue.back().remove_pusher(waiter);
        match state {
            WaiterState::Granted => Ok(()),
            WaiterState::Refused => Err(PushError::new(QueueError::Closed, rest)),
            WaiterState::Waiting => Err(PushError::new(QueueError::TimedOut, rest)),
        }
    }
}

/// Sound: no field is structurally pinned.
impl<T> Unpin for PushFuture<'_, T> {}

impl<T> Future for PushFuture<'_, T> {
    type Output = Result<(), PushError<PushBatch<T>>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Cloned before the lock is taken and dropped after it: wakers run foreign code.
        let wake = WakeTarget::Task(cx.waker().clone());
        if let Some(batch) = self.batch.take() {
            return self.begin(batch, wake);
        }
        let waiter = self.waiter.expect("a completed push is not polled again");
        let mut back = self.queue.back();
        if back.push_waits(waiter) {
            let outdated = back.replace_push_wake(waiter, wake);
            drop(back);
            drop(outdated);
            return Poll::Pending;
        }
        drop(back);
        Poll::Ready(self.leave(waiter))
    }
}

impl<T> Drop for PushFuture<'_, T> {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter {
            // The error owns the items that were not placed, and drops them here, after the lock.
            let _ = self.leave(waiter);
        }
    }
}

fn one<T>(mut batch: PushBatch<T>) -> T {
    batch.next().expect("an item that was not pushed is still there")
}

fn many<T>(batch: PushBatch<T>) -> Vec<T> {
    match batch {
        PushBatch::One(item) => item.into_iter().collect(),
        PushBatch::Many(items) => items.into(),
    }
}
