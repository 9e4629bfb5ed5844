//! Moves items from one queue to another in one atomic step.

use super::super::error::QueueError;
use super::super::parker::WakeList;
use super::{BothGuards, FairQueue};

impl<T> FairQueue<T> {
    /// Moves the oldest `count` items to the end of another queue, in their order: all of them, or
    /// none. It does not wait. No caller sees an item in both queues, or in neither.
    ///
    /// Two threads may transfer in opposite directions at the same time. A transfer to the same
    /// queue changes nothing.
    ///
    /// # Errors
    /// If the queue holds fewer than `count` items, or the target queue is closed or has not enough
    /// capacity.
    ///
    /// # Examples
    /// ```
    /// use keylane::admit::{FairQueue, QueueError};
    ///
    /// let (from, to) = (FairQueue::new(8)?, FairQueue::new(2)?);
    /// from.push_many([1, 2, 3])?;
    /// assert_eq!(from.transfer(&to, 3), Err(QueueError::Full));
    /// assert_eq!(from.transfer(&to, 2), Ok(()));
    /// assert_eq!((from.drain(..), to.drain(..)), (vec![3], vec![1, 2]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn transfer(&self, to: &FairQueue<T>, count: usize) -> Result<(), QueueError> {
        self.move_some(to, |len| if len < count { Err(QueueError::TooFew) } else { Ok(count) })
            .map(drop)
    }

    /// Moves all items to the end of another queue, and returns their number. Moves none if they do
    /// not all fit. Otherwise as [`transfer`](Self::transfer).
    ///
    /// # Errors
    /// If the target queue is closed or has not enough capacity.
    ///
    /// # Examples
    /// ```
    /// use keylane::admit::{FairQueue, QueueError};
    ///
    /// let (from, to) = (FairQueue::new(8)?, FairQueue::new(2)?);
    /// from.push_many([1, 2, 3])?;
    /// assert_eq!(from.transfer_all(&to), Err(QueueError::Full));
    /// to.resize(4)?;
    /// assert_eq!(from.transfer_all(&to), Ok(3));
    /// assert_eq!(to.snapshot(), [1, 2, 3]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn transfer_all(&self, to: &FairQueue<T>) -> Result<usize, QueueError> {
        self.move_some(to, Ok)
    }

    fn move_some(
        &self,
        to: &FairQueue<T>,
        count: impl FnOnce(usize) -> Result<usize, QueueError>,
    ) -> Result<usize, QueueError> {
        if std::ptr::eq(self, to) {
            let mut both = self.both();
            let len = both.parts().len();
            return if both.back.is_closed() { Err(QueueError::Closed) } else { count(len) };
        }
        let mut wake_list = WakeList::default();
        let (mut from, mut to) = lock_both(self, to);
        let count = count(from.parts().len())?;
        if to.back.is_closed() {
            return Err(QueueError::Closed);
        }
        if count > to.parts().free_capacity() {
            return Err(QueueError::Full);
        }
        from.parts().transfer(&mut to.parts(), count, &mut wake_list);
        drop((from, to));
        wake_list.wake_all();
        Ok(count)
    }
}

/// Locks the queue with the lower address first, so that two concurrent transfers cannot deadlock.
fn lock_both<'a, T>(
    one: &'a FairQueue<T>,
    other: &'a FairQueue<T>,
) -> (BothGuards<'a, T>, BothGuards<'a, T>) {
    if std::ptr::from_ref(one) < std::ptr::from_ref(other) {
        let one = one.both();
        (one, other.both())
    } else {
        let other = other.both();
        (one.both(), other)
    }
}
