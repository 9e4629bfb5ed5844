//! What is to happen when: a heap of times. What is called off stays in it until it is due, or until most of
//! the heap is such.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A heap of fewer is not worth cleaning.
const FEW: usize = 64;

/// What happens then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// A task's next attempt.
    Attempt(u32),
    /// The time of a scheduled job.
    Begin(u32),
    /// A kind has a token again.
    Token(u32),
}

#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(u64, Due)>>,
    /// At most so many of them were called off.
    called_off: usize,
}

impl Timers {
    pub(super) fn set(&mut self, at: u64, due: Due) {
        self.heap.push(Reverse((at, due)));
    }

    /// One of those that are set will not be waited for. `is_live` says which are.
    pub(super) fn call_off(&mut self, is_live: impl Fn(u64, Due) -> bool) {
        self.called_off += 1;
        if self.called_off * 2 > self.heap.len() && self.heap.len() > FEW
            || self.called_off >= self.heap.len()
        {
            self.heap.retain(|Reverse((at, due))| is_live(*at, *due));
            self.heap.shrink_to(self.heap.len() * 2);
            self.called_off = 0;
        }
    }

    /// When the first is due. It may have been called off.
    pub(super) fn first(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// The next that is due. It may have been called off.
    pub(super) fn pop_due(&mut self, now: u64) -> Option<(u64, Due)> {
        if self.first()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse(timer)| timer)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }
}
