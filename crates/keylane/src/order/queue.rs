//! A first-in-first-out queue in segments: it never copies what it holds to grow, and gives the
//! memory of a burst back when the burst has passed.

use std::collections::VecDeque;
use std::mem::MaybeUninit;

/// Entries in a segment. At 64 bytes an entry a segment is a page, so the allocator is asked once
/// for 64 tasks, and a producer and a worker that share a queue meet on a line once in a while
/// rather than at every task.
const SEGMENT: usize = 64;

/// Emptied segments that a queue keeps for reuse, at the most. A page from the allocator that was
/// not touched yet costs more than the 64 tasks that go into it.
const SPARES: usize = 64;

/// And those that it keeps for good. What a burst needed beyond them is given back, a segment with
/// every small delivery after it.
const KEPT_SPARES: usize = 8;

/// How many entries ahead of the one that is written or taken a line is asked for: another processor
/// had it last, and a few tiny tasks take as long as it takes to come. Without that a producer would
/// wait for the line of every task, at the next atomic operation, which lets no store be pending.
const AHEAD: usize = 6;

/// A queue of segments.
#[derive(Debug)]
pub(crate) struct SegQueue<T> {
    /// Oldest first. Only the first can be empty.
    segments: VecDeque<Segment<T>>,
    /// Empty segments, each with its memory.
    spares: Vec<Segment<T>>,
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

    /// Appends what `make` returns.
    ///
    /// The value is made where it will stay. Were it made elsewhere and moved here, its words would
    /// be loaded in pairs before their single stores have settled, which stalls the processor for
    /// longer than all the rest of an append takes.
    #[inline(always)]
    pub(crate) fn push_with(&mut self, make: impl FnOnce() -> T) {
        if self.segments.back().is_none_or(Segment::is_full) {
            self.add_segment();
        }
        self.len += 1;
        self.segments.back_mut().expect("there is one with room").push_with(make);
    }

    #[cold]
    fn add_segment(&mut self) {
        self.segments.push_back(self.spares.pop().unwrap_or_else(Segment::new));
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<&T> {
        let mut segments = self.segments.iter();
        segments.next()?.front().or_else(|| segments.next()?.front())
    }

    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<T> {
        // A segment is retired when the next one is asked for, so that the value, once read, goes
        // straight to where the caller wants it.
        if self.segments.front()?.is_empty() {
            self.retire_front();
        }
        let value = self.segments.front_mut()?.pop()?;
        self.len -= 1;
        Some(value)
    }

    #[cold]
    fn retire_front(&mut self) {
        let mut segment = self.segments.pop_front().expect("the caller has just looked at it");
        if self.spares.len() < SPARES {
            segment.rewind();
            self.spares.push(segment);
        }
    }

    /// Moves everything from `other` behind what is here. Spare segments go the other way, to where
    /// they will be filled.
    pub(crate) fn take_from(&mut self, other: &mut SegQueue<T>) {
        while other.segments.front().is_some_and(Segment::is_empty) {
            other.retire_front();
        }
        while self.segments.front().is_some_and(Segment::is_empty) {
            self.retire_front();
        }
        if other.segments.len() < 2 && self.spares.len() > KEPT_SPARES {
            self.spares.pop();
        }
        self.segments.append(&mut other.segments);
        self.len += std::mem::take(&mut other.len);
        if other.spares.is_empty() {
            std::mem::swap(&mut self.spares, &mut other.spares);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.segments.iter().flat_map(Segment::iter)
    }
}

/// A run of entries that is filled once from the front, emptied once from the front, and rewound.
#[derive(Debug)]
struct Segment<T> {
    /// Those from `head` up to `tail` are there.
    entries: Box<[MaybeUninit<T>]>,
    head: usize,
    tail: usize,
}

impl<T> Segment<T> {
    fn new() -> Self {
        Segment { entries: Box::new_uninit_slice(SEGMENT), head: 0, tail: 0 }
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    #[inline]
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

    #[inline]
    fn front(&self) -> Option<&T> {
        self.iter().next()
    }

    #[inline(always)]
    fn pop(&mut self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let entry = &self.entries[self.head];
        // SAFETY: it lies between `head` and `tail`, so `push_with` wrote it and nobody has read
        // it; the next line sees to it that nobody will again.
        let value = unsafe { entry.assume_init_read() };
        self.head += 1;
        if let Some(later) = self.entries.get(self.head + AHEAD) {
            prefetch(later);
        }
        Some(value)
    }

    /// Makes an empty segment a new one.
    fn rewind(&mut self) {
        debug_assert!(self.is_empty());
        (self.head, self.tail) = (0, 0);
    }

    #[inline]
    fn iter(&self) -> impl Iterator<Item = &T> {
        let entries = &self.entries[self.head..self.tail];
        // SAFETY: those between `head` and `tail` have been written and not read.
        entries.iter().map(|entry| unsafe { entry.assume_init_ref() })
    }
}

/// Asks for the line of a value that will be read soon.
#[inline(always)]
fn prefetch<T>(value: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch of any address reads nothing and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast()) }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = value;
}

/// Asks for the line of a value that will be written soon.
#[inline(always)]
fn prefetch_to_write<T>(value: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch of any address changes nothing and never faults; a processor without it
    // takes it for no operation.
    unsafe {
        std::arch::asm!(
            "prefetchw [{0}]",
            in(reg) std::ptr::from_ref(value),
            options(nostack, preserves_flags, readonly)
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = value;
}

impl<T> Drop for Segment<T> {
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
        let (mut inbox, mut backlog) = (SegQueue::default(), SegQueue::default());
        let mut expected = 0;
        let mut next = 0;
        for round in 0..50 {
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
            assert_eq!(backlog.len(), next - expected);
            assert!(backlog.iter().copied().eq(expected..next));
        }
        while backlog.pop().is_some() {}
        assert!(backlog.is_empty() && backlog.spares.len() <= SPARES);
    }

    #[test]
    fn drops_each_entry_once() {
        let entry = Rc::new(());
        let mut queue = SegQueue::default();
        for _ in 0..200 {
            queue.push_with(|| entry.clone());
        }
        (0..70).for_each(|_| drop(queue.pop()));
        assert_eq!(Rc::strong_count(&entry), 131);
        drop(queue);
        assert_eq!(Rc::strong_count(&entry), 1);
    }
}
