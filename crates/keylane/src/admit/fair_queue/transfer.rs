//! Moving items from one queue to another, in one step.

use super::super::error::TransferError;
use super::super::parker::WakeList;
use super::{BothGuards, FairQueue};

impl<T> FairQueue<T> {
    /// Moves the oldest `count` items to the end of another queue, in their order: all of them, or
    /// none. It does not wait. Nobody sees an item in both queues, or in neither.
    ///
    /// Two queues may be transferred to each other at the same time. A transfer to the same queue
    /// changes nothing.
    ///
    /// # Errors
    /// If there are fewer items, or the other queue has no room for them or is closed.
    ///
    /// # Examples
    /// ```
    /// use keylane::admit::{FairQueue, TransferError};
    ///
    /// let (from, to) = (FairQueue::new(8)?, FairQueue::new(2)?);
    /// from.push_many([1, 2, 3])?;
    /// assert_eq!(from.transfer(&to, 3), Err(TransferError::Full));
    /// assert_eq!(from.transfer(&to, 2), Ok(()));
    /// assert_eq!((from.drain(..), to.drain(..)), (vec![3], vec![1, 2]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn transfer(&self, to: &FairQueue<T>, count: usize) -> Result<(), TransferError> {
        self.move_some(to, |len| if len < count { Err(TransferError::TooFew) } else { Ok(count) })
            .map(drop)
    }

    /// Moves all items to the end of another queue, if there is room for all of them, and returns
    /// how many there were. Otherwise as [`transfer`](Self::transfer).
    ///
    /// # Errors
    /// If the other queue has no room for all of them or is closed.
    pub fn transfer_all(&self, to: &FairQueue<T>) -> Result<usize, TransferError> {
        self.move_some(to, Ok)
    }

    fn move_some(
        &self,
        to: &FairQueue<T>,
        count: impl FnOnce(usize) -> Result<usize, TransferError>,
    ) -> Result<usize, TransferError> {
        if std::ptr::eq(self, to) {
            let mut both = self.both();
            let len = both.parts().len();
            return if both.back.is_closed() { Err(TransferError::Closed) } else { count(len) };
        }
        let mut wake_list = WakeList::default();
        let (mut from, mut to) = lock_both(self, to);
        let count = count(from.parts().len())?;
        if to.back.is_closed() {
            return Err(TransferError::Closed);
        }
        if count > to.parts().room() {
            return Err(TransferError::Full);
        }
        from.parts().transfer(&mut to.parts(), count, &mut wake_list);
        drop((from, to));
        wake_list.wake_all();
        Ok(count)
    }
}

/// Locks the one with the lower address first, whoever asks, so that two never wait for each other.
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
