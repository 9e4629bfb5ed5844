//! Bounded queue that serves waiting producers and waiting consumers in the order of arrival.
//!
//! Protocol, invariants and proof are in this folder's README. This file has the operations that do
//! not wait; `fair_queue/push.rs` and `fair_queue/pop.rs` have the others, and
//! `fair_queue/state.rs` the state machine under the locks.

mod pop;
mod push;
mod state;
mod transfer;

use std::fmt;
use std::ops::{Bound, Range, RangeBounds};

use crossbeam_utils::CachePadded;

use super::error::CapacityError;
use super::parker::{AdaptiveSpin, WakeList};
use crate::sync::{Mutex, MutexGuard};
use state::{BothParts, QueueBack, QueueFront};

/// Bounded queue for many producers and many consumers, fair in both directions.
///
/// - **First come, first served.** The item of a waiting push is placed by the call that frees
///   capacity, in the order in which the pushes arrived; a waiting pop is assigned its item. While
///   callers wait, none that arrives later is served first. A caller arrives when it acquires the
///   queue's lock.
/// - **Bounded.** The queue never holds more items than its capacity, unless the capacity was
///   reduced below the number of items.
/// - **Nothing is lost.** A failed push returns the item in its error. A wait that times out, or a
///   future that is dropped, leaves the wait queue at once; an item already assigned to it returns
///   to its position.
/// - **One wait queue for each direction.** Threads and tasks of any async runtime wait in the same
///   one.
///
/// Waiting threads spin briefly, then yield, then sleep, so a system call is made only for a thread
/// that sleeps.
///
/// The queue holds no lock while it calls a waker or drops an item. The closures of
/// [`peek`](Self::peek) and [`for_each`](Self::for_each) and the `Clone` of
/// [`snapshot`](Self::snapshot) do run under the lock, and must not call the same queue.
///
/// # Examples
/// ```
/// use keylane::admit::FairQueue;
///
/// let queue = FairQueue::new(2)?;
/// std::thread::scope(|scope| {
///     scope.spawn(|| {
///         for i in 0..100 {
///             queue.push(i).unwrap(); // waits while there are two
///         }
///         queue.close();
///     });
///     let mut got = Vec::new();
///     while let Ok(i) = queue.pop() {
///         got.push(i);
///     }
///     assert_eq!(got, (0..100).collect::<Vec<_>>());
/// });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct FairQueue<T> {
    /// Part that pops read, under a lock that pushes do not need while the queue has free capacity.
    front: CachePadded<Mutex<QueueFront<T>>>,
    /// Part that pushes append to, with the wait queues and the bound. Locked after `front` where
    /// both are.
    back: CachePadded<Mutex<QueueBack<T>>>,
    /// Spin limit of the threads that wait to push.
    push_spin: AdaptiveSpin,
    pop_spin: AdaptiveSpin,
}

impl<T> FairQueue<T> {
    /// Creates an empty queue for at most `capacity` items. Memory is allocated as items arrive.
    ///
    /// # Errors
    /// If `capacity` is 0: rendezvous queues are not supported.
    pub fn new(capacity: usize) -> Result<Self, CapacityError> {
        if capacity == 0 {
            return Err(CapacityError::Zero);
        }
        Ok(FairQueue {
            front: CachePadded::new(Mutex::new(QueueFront::new())),
            back: CachePadded::new(Mutex::new(QueueBack::new(capacity))),
            push_spin: AdaptiveSpin::new(),
            pop_spin: AdaptiveSpin::new(),
        })
    }

    /// Maximum number of items.
    ///
    /// # Examples
    /// ```
    /// use keylane::admit::FairQueue;
    ///
    /// let queue = FairQueue::<u32>::new(8)?;
    /// assert_eq!(queue.capacity(), 8);
    /// queue.resize(4)?;
    /// assert_eq!(queue.capacity(), 4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn capacity(&self) -> usize {
        self.back().capacity()
    }

    /// Number of items.
    ///
    /// # Examples
    /// ```
    /// use keylane::admit::FairQueue;
    ///
    /// let queue = FairQueue::new(8)?;
    /// queue.push_many([1, 2, 3])?;
    /// assert_eq!(queue.len(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn len(&self) -> usize {
        self.both().parts().len()
    }

    /// Returns whether the queue holds no item.
    ///
    /// # Examples
    /// ```
    /// use keylane::admit::FairQueue;
    ///
    /// let queue = FairQueue::new(8)?;
    /// assert!(queue.is_empty());
    /// queue.push(1)?;
    /// assert!(!queue.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of callers that wait to push.
    ///
    /// # Examples
    /// ```
    /// use keylane::admit::FairQueue;
    ///
    /// let queue = FairQueue::new(1)?;
    /// queue.push(1)?;
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| queue.push(2));
    ///     while queue.waiting_to_push() == 0 {
    ///         std::thread::yield_now();
    ///     }
    ///     assert_eq!(queue.pop(), Ok(1)); // places the item of the thread
    ///     assert_eq!(queue.pop(), Ok(2));
    /// });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn waiting_to_push(&self) -> usize {
        self.back().waiting_to_push()
    }

    /// Number of callers that wait to pop.
    ///
    /// # Examples
    /// ```
    /// use keylane::admit::FairQueue;
    ///
    /// let queue = FairQueue::new(1)?;
    /// std::thread::scope(|scope| {
    ///     let popped = scope.spawn(|| queue.pop());
    ///     while queue.waiting_to_pop() == 0 {
    ///         std::thread::yield_now();
    ///     }
    ///     queue.push(1).unwrap();
    ///     assert_eq!(popped.join().unwrap(), Ok(1));
    /// });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn waiting_to_pop(&self) -> usize {
        self.back().waiting_to_pop()
    }

    /// Returns whether the queue is closed.
    ///
    /// # Examples
    /// ```
    /// use keylane::admit::FairQueue;
    ///
    /// let queue = FairQueue::<u32>::new(8)?;
    /// assert!(!queue.is_closed());
    /// queue.close();
    /// assert!(queue.is_closed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_closed(&self) -> bool {
        self.back().is_closed()
    }

    /// Passes the oldest item to `look` and returns its result, or `None` if the queue is empty.
    ///
    /// `look` runs under the queue's lock: keep it short, and do not call the same queue. If it
    /// panics, the queue is unchanged.
    ///
    /// # Examples
    /// ```
    /// use keylane::admit::FairQueue;
    ///
    /// let queue = FairQueue::new(8)?;
    /// assert_eq!(queue.peek(|item: &&str| item.len()), None);
    /// queue.push_many(["three", "one"])?;
    /// assert_eq!(queue.peek(|item| item.len()), Some(5));
    /// assert_eq!(queue.len(), 2); // it stays in the queue
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn peek<R>(&self, look: impl FnOnce(&T) -> R) -> Option<R> {
        self.both().parts().items().next().map(look)
    }

    /// Passes all items to `look`, oldest first, as of one moment. As for [`peek`](Self::peek),
    /// `look` must not call the same queue.
    ///
    /// # Examples
    /// ```
    /// use keylane::admit::FairQueue;
    ///
    /// let queue = FairQueue::new(8)?;
    /// queue.push_many([1, 2, 3])?;
    /// let mut sum = 0;
    /// queue.for_each(|item| sum += item);
    /// assert_eq!((sum, queue.len()), (6, 3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn for_each(&self, look: impl FnMut(&T)) {
        self.both().parts().items().for_each(look);
    }

    /// Returns clones of all items, oldest first, as of one moment. Their `Clone` must not call the
    /// same queue.
    ///
    /// # Examples
    /// ```
    /// # use keylane::admit::FairQueue;
    /// let queue = FairQueue::new(8)?;
    /// queue.push_many([1, 2, 3])?;
    /// for item in queue.snapshot() {
    ///     queue.push(item * 10)?; // the queue may change meanwhile
    /// }
    /// assert_eq!(queue.snapshot(), [1, 2, 3, 10, 20, 30]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn snapshot(&self) -> Vec<T>
    where
        T: Clone,
    {
        // Declared before the lock is taken: if a `Clone` panics, the copies are dropped after the
        // lock is released.
        let mut copies = Vec::new();
        copies.extend(self.both().parts().items().cloned());
        copies
    }

    /// Removes a range of items: all with `..`, the oldest `n` with `..n`. A range beyond the last
    /// item is cut off. The freed capacity goes to waiting pushes.
    ///
    /// # Examples
    /// ```
    /// # use keylane::admit::FairQueue;
    /// let queue = FairQueue::new(8)?;
    /// queue.push_many([1, 2, 3, 4, 5])?;
    /// assert_eq!(queue.drain(..2), [1, 2]);
    /// assert_eq!(queue.drain(1..), [4, 5]);
    /// assert_eq!(queue.snapshot(), [3]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn drain(&self, part: impl RangeBounds<usize>) -> Vec<T> {
        let mut taken = Vec::new();
        // Evaluated before the lock is taken: the bounds of a user's type run foreign code.
        let bounds = (part.start_bound().cloned(), part.end_bound().cloned());
        self.change(|parts, wake_list| {
            parts.drain(within(bounds, parts.len()), &mut taken, wake_list);
        });
        taken
    }

    /// Changes the capacity. Waiting pushes get new capacity first. If the queue holds more items
    /// than the new capacity, it keeps them all, and nothing can be pushed until enough are popped.
    ///
    /// # Errors
    /// If `capacity` is 0.
    ///
    /// # Examples
    /// ```
    /// use keylane::admit::FairQueue;
    ///
    /// let queue = FairQueue::new(3)?;
    /// queue.push_many([1, 2, 3])?;
    /// queue.resize(2)?;
    /// assert_eq!(queue.len(), 3); // all stay
    /// assert_eq!(queue.pop()?, 1);
    /// assert!(queue.try_push(4).is_err());
    /// assert_eq!(queue.pop()?, 2);
    /// assert!(queue.try_push(4).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resize(&self, capacity: usize) -> Result<(), CapacityError> {
        if capacity == 0 {
            return Err(CapacityError::Zero);
        }
        self.change(|parts, wake_list| parts.resize(capacity, wake_list));
        Ok(())
    }

    /// Closes the queue: refuses waiting and later pushes, which get their items back. Pops
    /// continue until the queue is empty, and then fail.
    ///
    /// If a pop is cancelled after it was assigned an item, that item returns to the queue, even if
    /// other callers have already been told that the queue is closed and empty. To be sure to miss
    /// none, call [`close_and_take`](Self::close_and_take) after the last pop has ended.
    pub fn close(&self) {
        self.change(|parts, wake_list| parts.close(wake_list));
    }

    /// Closes the queue and removes and returns its items, oldest first.
    ///
    /// # Examples
    /// ```
    /// use keylane::admit::{FairQueue, QueueError};
    ///
    /// let queue = FairQueue::new(8)?;
    /// queue.push_many([1, 2, 3])?;
    /// assert_eq!(queue.close_and_take(), [1, 2, 3]);
    /// assert_eq!(queue.pop(), Err(QueueError::Closed));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close_and_take(&self) -> Vec<T> {
        let mut taken = Vec::new();
        self.change(|parts, wake_list| {
            parts.close(wake_list);
            parts.drain(0..parts.len(), &mut taken, wake_list);
        });
        taken
    }

    /// Changes the state under both locks, then wakes the waiters that this resolved.
    fn change<R>(&self, change: impl FnOnce(&mut BothParts<'_, T>, &mut WakeList) -> R) -> R {
        let mut wake_list = WakeList::default();
        let result = change(&mut self.both().parts(), &mut wake_list);
        wake_list.wake_all();
        result
    }

    #[inline]
    fn front(&self) -> MutexGuard<'_, QueueFront<T>> {
        self.front.lock_politely()
    }

    #[inline]
    fn back(&self) -> MutexGuard<'_, QueueBack<T>> {
        self.back.lock_politely()
    }

    fn both(&self) -> BothGuards<'_, T> {
        let front = self.front();
        BothGuards { front, back: self.back() }
    }
}

/// Guards of both locks.
struct BothGuards<'a, T> {
    front: MutexGuard<'a, QueueFront<T>>,
    back: MutexGuard<'a, QueueBack<T>>,
}

impl<T> BothGuards<'_, T> {
    fn parts(&mut self) -> BothParts<'_, T> {
        BothParts { front: &mut self.front, back: &mut self.back }
    }
}

impl<T> fmt::Debug for FairQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut both = self.both();
        let len = both.parts().len();
        let back = &both.back;
        let (capacity, handed_off, is_closed) =
            (back.capacity(), back.handed_off(), back.is_closed());
        let (pushing, popping) = (back.waiting_to_push(), back.waiting_to_pop());
        drop(both);
        f.debug_struct("FairQueue")
            .field("len", &len)
            .field("capacity", &capacity)
            .field("handed_off", &handed_off)
            .field("waiting_to_push", &pushing)
            .field("waiting_to_pop", &popping)
            .field("is_closed", &is_closed)
            .finish()
    }
}

/// Returns the part of `0..len` that lies within the bounds.
fn within((start, end): (Bound<usize>, Bound<usize>), len: usize) -> Range<usize> {
    let start = match start {
        Bound::Included(at) => at,
        Bound::Excluded(at) => at.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match end {
        Bound::Included(at) => at.saturating_add(1),
        Bound::Excluded(at) => at,
        Bound::Unbounded => len,
    };
    let end = end.min(len);
    start.min(end)..end
}
