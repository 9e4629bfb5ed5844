//! First-in-first-out queue in segments: growth never copies its entries, and the memory of a burst
//! is returned when the burst has passed.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};

use crate::prefetch::{prefetch, prefetch_to_write};

/// Entries per segment. At 64 bytes an entry, a segment is a page: the allocator is called once for
/// 64 tasks, and a producer and a worker that share a queue contend for a cache line once in a
/// while rather than at every task.
const SEGMENT: usize = 64;

/// Largest number of empty segments that a queue keeps for reuse. An untouched page from the
/// allocator costs more than the 64 tasks that go into it.
const SPARES: usize = 64;

/// Number of empty segments that are kept for good. Those that a burst needed beyond it are freed
/// one by one, each with a small refill.
const KEPT_SPARES: usize = 8;

/// Distance, in entries, at which a cache line is prefetched before it is written or read. Another
/// processor had it last, and a few tiny tasks take as long as the transfer. Without the prefetch a
/// producer would wait for the line of every task at the next atomic operation, which drains the
/// store buffer.
const AHEAD: usize = 6;

/// End of the queue that is filled: entries that producers have appended since all were last taken
/// over.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct FillQueue<T> {
    /// Segment that is being filled. Absent while the queue is empty.
    open: Option<QueueSegment<T>>,
    /// Full segments, oldest first.
    full: Vec<QueueSegment<T>>,
    /// Empty segments, each with its memory.
    spares: Vec<QueueSegment<T>>,
}

/// End of the queue that is drained.
#[derive(Debug)]
pub(crate) struct DrainQueue<T> {
    /// Oldest segment. If it is empty, the first of `rest` has the oldest entry.
    front: Option<QueueSegment<T>>,
    /// Other segments, oldest first. None is empty.
    rest: VecDeque<QueueSegment<T>>,
    /// Empty segments, to be moved back to the end that is filled.
    spares: Vec<QueueSegment<T>>,
}

impl<T> Default for FillQueue<T> {
    fn default() -> Self {
        FillQueue { open: None, full: Vec::new(), spares: Vec::new() }
    }
}

impl<T> Default for DrainQueue<T> {
    fn default() -> Self {
        DrainQueue { front: None, rest: VecDeque::new(), spares: Vec::new() }
    }
}

impl<T> FillQueue<T> {
    pub(crate) fn len(&self) -> usize {
        self.full.len() * SEGMENT + self.open.as_ref().map_or(0, QueueSegment::len)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends the value that `make` returns.
    ///
    /// The value is made in place. Made elsewhere and moved, its words would be loaded in pairs
    /// before their single stores have settled, and the failed store forwarding stalls the
    /// processor for longer than the rest of an append takes.
    #[inline(always)]
    pub(crate) fn push_with(&mut self, make: impl FnOnce() -> T) {
        if self.open.as_ref().is_none_or(QueueSegment::is_full) {
            self.open_segment();
        }
        self.open.as_mut().expect("it has just been opened").push_with(make);
    }

    #[cold]
    fn open_segment(&mut self) {
        let fresh = self.spares.pop().unwrap_or_else(QueueSegment::new);
        self.full.extend(self.open.replace(fresh));
    }

    /// Passes each entry to `take`, oldest first. Entries that `take` returns stay, in their order.
    pub(crate) fn sift(&mut self, mut take: impl FnMut(T) -> Option<T>) {
        let mut all = DrainQueue::default();
        all.take_from(self);
        while let Some(entry) = all.pop() {
            if let Some(entry) = take(entry) {
                self.push_with(|| entry);
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.full.iter().chain(&self.open).flat_map(QueueSegment::iter)
    }
}

impl<T> DrainQueue<T> {
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.front.as_ref().is_none_or(QueueSegment::is_empty) && self.rest.is_empty()
    }

    /// Returns the number of entries. Takes time in proportion to the number of segments.
    pub(crate) fn len(&self) -> usize {
        self.front.iter().chain(&self.rest).map(QueueSegment::len).sum()
    }

    /// Returns the number of entries or somewhat more: segments that were taken over half full
    /// count as full.
    pub(crate) fn about_len(&self) -> usize {
        self.front.as_ref().map_or(0, QueueSegment::len) + self.rest.len() * SEGMENT
    }

    #[inline(always)]
    pub(crate) fn front(&self) -> Option<&T> {
        match self.front.as_ref()?.front() {
            None => self.front_of_rest(),
            front => front,
        }
    }

    #[cold]
    fn front_of_rest(&self) -> Option<&T> {
        self.rest.front()?.front()
    }

    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<T> {
        // A segment is retired when the next one is needed, so that the value, once read, goes
        // straight to where the caller wants it.
        if self.front.as_ref()?.is_empty() {
            self.next_segment();
        }
        self.front.as_mut()?.pop()
    }

    /// Returns the oldest entry, to be looked at and perhaps taken.
    #[inline(always)]
    pub(crate) fn peek(&mut self) -> Option<PeekedEntry<'_, T>> {
        if self.front.as_ref()?.is_empty() {
            self.next_segment();
        }
        self.front.as_mut().filter(|front| !front.is_empty()).map(PeekedEntry)
    }

    #[cold]
    fn next_segment(&mut self) {
        if let Some(next) = self.rest.pop_front() {
            let emptied = self.front.replace(next);
            self.spares
                .extend(emptied.filter(|_| self.spares.len() < SPARES).map(QueueSegment::rewound));
        }
    }

    /// Returns the entry at this distance behind the oldest one, unless it is in another segment.
    #[inline(always)]
    pub(crate) fn ahead(&self, distance: usize) -> Option<&T> {
        self.front.as_ref()?.ahead(distance)
    }

    /// Moves all entries from `inbox` behind those that are here. Spare segments go the other way,
    /// to where they will be filled.
    pub(crate) fn take_from(&mut self, inbox: &mut FillQueue<T>) {
        let few = inbox.full.is_empty();
        self.rest.extend(inbox.full.drain(..));
        self.rest.extend(inbox.open.take().filter(|open| !open.is_empty()));
        if self.front.as_ref().is_none_or(QueueSegment::is_empty) {
            self.next_segment();
        }
        if few && self.spares.len() > KEPT_SPARES {
            self.spares.pop();
        }
        if inbox.spares.is_empty() {
            std::mem::swap(&mut self.spares, &mut inbox.spares);
        }
    }

    /// Passes each entry to `take`, oldest first. Entries that `take` returns stay, in their order.
    pub(crate) fn sift(&mut self, mut take: impl FnMut(T) -> Option<T>) {
        let mut all = std::mem::take(self);
        let mut kept = FillQueue::default();
        while let Some(entry) = all.pop() {
            if let Some(entry) = take(entry) {
                kept.push_with(|| entry);
            }
        }
        self.take_from(&mut kept);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.front.iter().chain(&self.rest).flat_map(QueueSegment::iter)
    }
}

/// First entry of a segment that is not empty.
pub(crate) struct PeekedEntry<'a, T>(&'a mut QueueSegment<T>);

impl<'a, T> PeekedEntry<'a, T> {
    #[inline(always)]
    pub(crate) fn get(&self) -> &T {
        // SAFETY: `peek` has seen that the segment is not empty, so `head` is below `tail`, and the
        // entry there has been written and not read.
        unsafe { self.0.entries[self.0.head].assume_init_ref() }
    }

    /// Takes the entry in place, to be moved once, to where it is needed.
    #[inline(always)]
    pub(crate) fn take(self) -> PopGuard<'a, T> {
        let QueueSegment { entries, head, .. } = self.0;
        let first = *head;
        *head += 1;
        if let Some(later) = entries.get(first + 1 + AHEAD) {
            prefetch(later);
        }
        // SAFETY: as in `get`; and the entry lies below `head` now, so only the `PopGuard` uses it.
        PopGuard(unsafe { entries[first].assume_init_mut() })
    }
}

/// Owner of an entry in its queue, which is borrowed until the entry is gone.
pub(crate) struct PopGuard<'a, T>(&'a mut T);

impl<T> Deref for PopGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0
    }
}

impl<T> DerefMut for PopGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0
    }
}

impl<T> Drop for PopGuard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: `self` owns the value; code that moves it out forgets `self`.
        unsafe { std::ptr::drop_in_place(self.0) }
    }
}

/// Run of entries that is filled once from the front, emptied once from the front, and rewound.
#[derive(Debug)]
struct QueueSegment<T> {
    /// Entries. Those from `head` up to `tail` are initialized.
    entries: Box<[MaybeUninit<T>; SEGMENT]>,
    head: usize,
    tail: usize,
}

impl<T> QueueSegment<T> {
    fn new() -> Self {
        let entries: Box<[MaybeUninit<T>]> = Box::new_uninit_slice(SEGMENT);
        let Ok(entries) = entries.try_into() else { unreachable!("it has this length") };
        QueueSegment { entries, head: 0, tail: 0 }
    }

    fn len(&self) -> usize {
        self.tail - self.head
    }

    #[inline(always)]
    fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    #[inline(always)]
    fn is_full(&self) -> bool {
        self.tail == SEGMENT
    }

    #[inline(always)]
    fn push_with(&mut self, make: impl FnOnce() -> T) {
        self.entries[self.tail].write(make());
        self.tail += 1;
        if let Some(later) = self.entries.get(self.tail + AHEAD) {
            prefetch_to_write(later);
        }
    }

    #[inline(always)]
    fn front(&self) -> Option<&T> {
        self.ahead(0)
    }

    #[inline(always)]
    fn ahead(&self, distance: usize) -> Option<&T> {
        let at = self.head + distance;
        if at >= self.tail {
            return None;
        }
        // SAFETY: the entry lies between `head` and `tail`, so it has been written and not read.
        Some(unsafe { self.entries[at].assume_init_ref() })
    }

    #[inline(always)]
    fn pop(&mut self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let entry = &self.entries[self.head];
        // SAFETY: the entry lies between `head` and `tail`, so `push_with` wrote it and it was not
        // read before; the next line ensures that it is not read again.
        let value = unsafe { entry.assume_init_read() };
        self.head += 1;
        if let Some(later) = self.entries.get(self.head + AHEAD) {
            prefetch(later);
        }
        Some(value)
    }

    /// Rewinds an empty segment for reuse.
    fn rewound(mut self) -> Self {
        debug_assert!(self.is_empty());
        (self.head, self.tail) = (0, 0);
        self
    }

    #[inline]
    fn iter(&self) -> impl Iterator<Item = &T> {
        let entries = &self.entries[self.head..self.tail];
        // SAFETY: the entries between `head` and `tail` have been written and not read.
        entries.iter().map(|entry| unsafe { entry.assume_init_ref() })
    }
}

impl<T> Drop for QueueSegment<T> {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    #[test]
    fn keeps_the_order_across_segments_and_moves() {
        let (mut inbox, mut backlog) = (FillQueue::default(), DrainQueue::default());
        let mut expected = 0;
        let mut next = 0;
        // Enough for several segments, also under Miri, which is slow.
        let rounds = if cfg!(miri) { 12 } else { 50 };
        for round in 0..rounds {
            for _ in 0..round * 7 {
                inbox.push_with(|| next);
                next += 1;
            }
            backlog.take_from(&mut inbox);
            assert!(inbox.is_empty());
            for _ in 0..round * 5 {
                assert_eq!(backlog.front(), Some(&expected));
                assert_eq!(backlog.pop(), Some(expected));
                expected += 1;
            }
            assert_eq!(backlog.is_empty(), next == expected);
            assert!(backlog.ahead(3).is_none_or(|&entry| entry == expected + 3));
            assert!(backlog.iter().copied().eq(expected..next));
            let (len, about) = (backlog.len(), backlog.about_len());
            assert!(about >= len && (len != 0 || about == 0), "{about} for {len}");
        }
        while backlog.pop().is_some() {}
        assert!(backlog.is_empty() && backlog.spares.len() <= SPARES);
    }

    #[test]
    fn sifting_takes_what_is_asked_for_and_keeps_the_order_of_the_rest() {
        let (mut inbox, mut backlog) = (FillQueue::default(), DrainQueue::default());
        (0..300).for_each(|n| inbox.push_with(|| n));
        let mut taken = Vec::new();
        let mut take = |n| match n % 3 {
            0 => {
                taken.push(n);
                None
            }
            _ => Some(n),
        };
        inbox.sift(&mut take);
        backlog.take_from(&mut inbox);
        (300..310).for_each(|n| inbox.push_with(|| n));
        backlog.take_from(&mut inbox);
        assert_eq!(backlog.pop(), Some(1));
        backlog.sift(&mut take);
        assert!(taken.into_iter().eq((0..310).filter(|n| n % 3 == 0)));
        assert!(backlog.iter().copied().eq((2..310).filter(|n| n % 3 != 0)));
        backlog.sift(|_| None);
        assert!(backlog.is_empty() && backlog.front().is_none());
    }

    #[test]
    fn drops_each_entry_once() {
        let entry = Rc::new(());
        let (mut inbox, mut backlog) = (FillQueue::default(), DrainQueue::default());
        for _ in 0..200 {
            inbox.push_with(|| entry.clone());
        }
        backlog.take_from(&mut inbox);
        (0..70).for_each(|_| drop(backlog.pop()));
        (0..10).for_each(|_| inbox.push_with(|| entry.clone()));
        assert_eq!((inbox.len(), Rc::strong_count(&entry)), (10, 141));
        drop(backlog);
        assert_eq!(Rc::strong_count(&entry), 11);
        drop(inbox);
        assert_eq!(Rc::strong_count(&entry), 1);
    }
}
