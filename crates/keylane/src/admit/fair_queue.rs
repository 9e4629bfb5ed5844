//! A bounded queue in which whoever waits is served in the order in which it came.
//!
//! Protocol, invariants and proof are in this folder's README. This file has what needs no waiting;
//! `queue/push.rs` and `queue/pop.rs` have the rest, `queue/state.rs` what all of it does under the
//! lock.

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
use state::{Back, BothParts, Front};

/// A bounded queue for many producers and many consumers, fair in both directions.
///
/// - **First come, first served.** A push that waits has its item placed for it, in the order in
///   which the pushes came, by whoever makes room; a pop that waits is handed its item. While anybody
///   waits, nobody who comes later gets in first. The moment of arrival is when the caller has
///   the queue's lock.
/// - **Bounded.** There are never more items in the queue than its capacity, unless it was made
///   smaller while they were there.
/// - **Nothing is lost.** A push that fails gives the item back in its error. A wait that times out,
///   or a future that is dropped, leaves the line at once; an item that was already handed to it goes
///   back to where it was.
/// - **One line for all.** Threads and tasks of any async runtime wait in the same lines.
///
/// Waiting threads look for a moment whether they have been served, let others run, and sleep; so
/// nobody makes a system call for one who is about to look anyway.
///
/// No lock of the queue is held while a waker is called or an item is dropped. The closure of
/// [`peek`](Self::peek) and [`for_each`](Self::for_each) and the `Clone` of
/// [`snapshot`](Self::snapshot) do run under it, and must not call the same queue.
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
    /// The items that pops take, under a lock that pushes do not need as long as there is room.
    front: CachePadded<Mutex<Front<T>>>,
    /// The items that pushes bring, the lines, and all else. Taken after `front` where both are.
    back: CachePadded<Mutex<Back<T>>>,
    /// How threads wait to push, and to pop.
    push_spin: AdaptiveSpin,
    pop_spin: AdaptiveSpin,
}

impl<T> FairQueue<T> {
    /// An empty queue for up to `capacity` items. Memory is taken as it is needed.
    ///
    /// # Errors
    /// If `capacity` is 0. There is no rendezvous.
    pub fn new(capacity: usize) -> Result<Self, CapacityError> {
        if capacity == 0 {
            return Err(CapacityError::Zero);
        }
        Ok(FairQueue {
            front: CachePadded::new(Mutex::new(Front::new())),
            back: CachePadded::new(Mutex::new(Back::new(capacity))),
            push_spin: AdaptiveSpin::new(),
            pop_spin: AdaptiveSpin::new(),
        })
    }

    /// How many items there may be.
    pub fn capacity(&self) -> usize {
        self.back().capacity()
    }

    /// How many items there are.
    pub fn len(&self) -> usize {
        self.both().parts().len()
    }

    /// Whether there is no item.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many wait to push.
    pub fn waiting_to_push(&self) -> usize {
        self.back().waiting_to_push()
    }

    /// How many wait to pop.
    pub fn waiting_to_pop(&self) -> usize {
        self.back().waiting_to_pop()
    }

    /// Whether the queue was closed.
    pub fn is_closed(&self) -> bool {
        self.back().is_closed()
    }

    /// Shows the oldest item to `look` and returns what that returns, or `None` if there is none.
    ///
    /// `look` runs under the queue's lock: it should be short, and must not call the same queue. If
    /// it panics, the queue is as it was.
    pub fn peek<R>(&self, look: impl FnOnce(&T) -> R) -> Option<R> {
        self.both().parts().items().next().map(look)
    }

    /// Shows all items to `look`, oldest first, as they are at one moment. As for
    /// [`peek`](Self::peek), it must not call the same queue.
    pub fn for_each(&self, look: impl FnMut(&T)) {
        self.both().parts().items().for_each(look);
    }

    /// Copies of all items, oldest first, as they were at one moment. Their `Clone` must not call
    /// the same queue.
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
        // Declared before the lock is taken: if a `Clone` panics, the copies are dropped after it is
        // released.
        let mut copies = Vec::new();
        copies.extend(self.both().parts().items().cloned());
        copies
    }

    /// Takes a part of the items out: all with `..`, the oldest `n` with `..n`. Where there are
    /// fewer, it takes those that there are. Whoever waits to push then has its item placed.
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
        // A user's type may say what its bounds are.
        let bounds = (part.start_bound().cloned(), part.end_bound().cloned());
        self.change(|parts, wake_list| {
            parts.drain(within(bounds, parts.len()), &mut taken, wake_list);
        });
        taken
    }

    /// Changes the capacity. Where there is more room than before, those who wait to push get it
    /// first. Where there are now more items than the capacity, none is lost, and nothing can be
    /// pushed until there are fewer.
    ///
    /// # Errors
    /// If `capacity` is 0.
    pub fn resize(&self, capacity: usize) -> Result<(), CapacityError> {
        if capacity == 0 {
            return Err(CapacityError::Zero);
        }
        self.change(|parts, wake_list| parts.resize(capacity, wake_list));
        Ok(())
    }

    /// Refuses all further pushes, and those that wait, which get their items back. Pops go on until
    /// nothing is left, and then fail.
    ///
    /// If a pop is cancelled after it was handed an item, that item comes back into the queue, even
    /// when others have by then been told that the queue is closed and empty. Who must not miss it
    /// looks once more with [`close_and_take`](Self::close_and_take) after the last pop has ended.
    pub fn close(&self) {
        self.change(|parts, wake_list| parts.close(wake_list));
    }

    /// Closes the queue and returns what was left in it, oldest first.
    pub fn close_and_take(&self) -> Vec<T> {
        let mut taken = Vec::new();
        self.change(|parts, wake_list| {
            parts.close(wake_list);
            parts.drain(0..parts.len(), &mut taken, wake_list);
        });
        taken
    }

    /// Changes the whole under both locks, then tells those whose fate that decided.
    fn change<R>(&self, change: impl FnOnce(&mut BothParts<'_, T>, &mut WakeList) -> R) -> R {
        let mut wake_list = WakeList::default();
        let result = change(&mut self.both().parts(), &mut wake_list);
        wake_list.wake_all();
        result
    }

    #[inline]
    fn front(&self) -> MutexGuard<'_, Front<T>> {
        self.front.lock_politely()
    }

    #[inline]
    fn back(&self) -> MutexGuard<'_, Back<T>> {
        self.back.lock_politely()
    }

    fn both(&self) -> BothGuards<'_, T> {
        let front = self.front();
        BothGuards { front, back: self.back() }
    }
}

/// Both locks.
struct BothGuards<'a, T> {
    front: MutexGuard<'a, Front<T>>,
    back: MutexGuard<'a, Back<T>>,
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
        let (capacity, handed, is_closed) = (back.capacity(), back.handed(), back.is_closed());
        let (pushing, popping) = (back.waiting_to_push(), back.waiting_to_pop());
        drop(both);
        f.debug_struct("FairQueue")
            .field("len", &len)
            .field("capacity", &capacity)
            .field("handed", &handed)
            .field("waiting_to_push", &pushing)
            .field("waiting_to_pop", &popping)
            .field("is_closed", &is_closed)
            .finish()
    }
}

/// The part of `0..len` that lies within the bounds.
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
