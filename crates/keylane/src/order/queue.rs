//! A first-in-first-out queue in segments: it never copies what it holds to grow, and gives the
//! memory of a burst back when the burst has passed.

use std::collections::VecDeque;

/// Entries in a segment. At 64 bytes an entry a segment is a page, so the allocator is asked once
/// for 64 tasks, and a producer and a worker that share a queue meet on a line once in a while
/// rather than at every task.
const SEGMENT: usize = 64;

/// Emptied segments that a queue keeps for reuse. Two cover the steady state, in which one fills
/// while the other empties; a few more cover a worker that takes several at once.
const SPARES: usize = 4;

/// A queue of segments.
#[derive(Debug)]
pub(crate) struct SegQueue<T> {
    /// Oldest first. Only the first can be empty.
    segments: VecDeque<VecDeque<T>>,
    /// Empty segments, each with its memory.
    spares: Vec<VecDeque<T>>,
    len: usize,
}

impl<T> Default for SegQueue<T> {
    fn default() -> Self {
        SegQueue { segments: VecDeque::new(), spares: Vec::new(), len: 0 }
    }
}

impl<T> SegQueue<T> {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(crate) fn push(&mut self, value: T) {
        if self.segments.back().is_none_or(|last| last.len() == SEGMENT) {
            self.add_segment();
        }
        self.len += 1;
        self.segments.back_mut().expect("there is one with room").push_back(value);
    }

    #[cold]
    fn add_segment(&mut self) {
        let segment = self.spares.pop().unwrap_or_else(|| VecDeque::with_capacity(SEGMENT));
        self.segments.push_back(segment);
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<&T> {
        // Only the first segment can be empty.
        let mut segments = self.segments.iter();
        segments.next()?.front().or_else(|| segments.next()?.front())
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        // A segment is retired when the next one is asked for, so that the value, once read, goes
        // straight to where the caller wants it.
        if self.segments.front()?.is_empty() {
            self.retire_front();
        }
        let value = self.segments.front_mut()?.pop_front();
        self.len -= value.is_some() as usize;
        value
    }

    #[cold]
    fn retire_front(&mut self) {
        let segment = self.segments.pop_front().expect("the caller has just looked at it");
        if self.spares.len() < SPARES {
            self.spares.push(segment);
        }
    }

    /// Moves everything from `other`, which must not be the longer-lived order: what is here is
    /// older. Spare segments go the other way, to where they will be filled.
    pub(crate) fn take_from(&mut self, other: &mut SegQueue<T>) {
        while other.segments.front().is_some_and(VecDeque::is_empty) {
            other.retire_front();
        }
        if self.is_empty() {
            while !self.segments.is_empty() {
                self.retire_front();
            }
        }
        self.segments.append(&mut other.segments);
        self.len += std::mem::take(&mut other.len);
        while other.spares.len() < SPARES {
            match self.spares.pop() {
                Some(segment) => other.spares.push(segment),
                None => break,
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.segments.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_order_across_segments_and_moves() {
        let (mut inbox, mut backlog) = (SegQueue::default(), SegQueue::default());
        let mut expected = 0;
        let mut next = 0;
        for round in 0..50 {
            for _ in 0..round * 7 {
                inbox.push(next);
                next += 1;
            }
            backlog.take_from(&mut inbox);
            assert!(inbox.is_empty());
            for _ in 0..round * 5 {
                assert_eq!(backlog.front(), Some(&expected));
                assert_eq!(backlog.pop(), Some(expected));
                expected += 1;
            }
            assert_eq!(backlog.len(), next - expected);
            assert!(backlog.iter().copied().eq(expected..next));
        }
        while backlog.pop().is_some() {}
        assert!(backlog.is_empty() && backlog.spares.len() <= SPARES);
    }
}
