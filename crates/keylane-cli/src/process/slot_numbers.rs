//! Numbers of slots: each running command has the lowest one that no other running command has.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Numbers from 1 on, as many as commands run at the same time.
#[derive(Debug, Default)]
pub(crate) struct SlotNumbers(Mutex<FreeNumbers>);

#[derive(Debug, Default)]
struct FreeNumbers {
    free: BinaryHeap<Reverse<usize>>,
    /// All numbers up to this one are free or taken.
    highest: usize,
}

/// A taken number, free again when this is dropped.
#[derive(Debug)]
pub(crate) struct SlotNumber<'s> {
    numbers: &'s SlotNumbers,
    pub(crate) number: usize,
}

impl SlotNumbers {
    pub(crate) fn take(&self) -> SlotNumber<'_> {
        let mut numbers = self.lock();
        let number = match numbers.free.pop() {
            Some(Reverse(number)) => number,
            None => {
                numbers.highest += 1;
                numbers.highest
            }
        };
        SlotNumber { numbers: self, number }
    }

    fn lock(&self) -> MutexGuard<'_, FreeNumbers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SlotNumber<'_> {
    fn drop(&mut self) {
        self.numbers.lock().free.push(Reverse(self.number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_number_is_taken() {
        let numbers = SlotNumbers::default();
        let [one, two, three] = [numbers.take(), numbers.take(), numbers.take()];
        assert_eq!([one.number, two.number, three.number], [1, 2, 3]);
        drop(two);
        drop(one);
        let (one, two) = (numbers.take(), numbers.take());
        assert_eq!([one.number, two.number], [1, 2]);
        assert_eq!(numbers.take().number, 4);
    }
}
