//! Paged slab: growth moves no items, and an empty slab keeps one page.

use std::ops::{Index, IndexMut};

/// Number that no item has.
pub(super) const NONE: u32 = u32::MAX;

/// Number of items per page. A doubled vector would stall the thread that adds the millionth item
/// while the others are copied, under the scheduler's lock.
const PAGE: usize = 128;

/// Maximum number of pages that are freed at once when the slab is emptied.
const PAGES_DROPPED: usize = 64;

/// Items by number; numbers are reused. A removed item is a `Default`, by which a stale number can
/// be told from a live one.
#[derive(Debug)]
pub(super) struct Slab<T> {
    /// Pages of `PAGE` items; all but the last are full.
    pages: Vec<Vec<T>>,
    /// Numbers of removed items.
    free: Vec<u32>,
    live: usize,
    /// Pages of an emptied slab, to be dropped by the caller of `take_gone`.
    gone: Vec<Vec<T>>,
}

impl<T: Default> Slab<T> {
    pub(super) fn new() -> Self {
        Slab { pages: Vec::new(), free: Vec::new(), live: 0, gone: Vec::new() }
    }

    #[inline]
    pub(super) fn insert(&mut self, value: T) -> u32 {
        self.live += 1;
        if let Some(number) = self.free.pop() {
            self[number] = value;
            return number;
        }
        if self.pages.last().is_none_or(|page| page.len() == PAGE) {
            self.pages.push(Vec::with_capacity(PAGE));
        }
        let page = self.pages.len() - 1;
        let number = page * PAGE + self.pages[page].len();
        self.pages[page].push(value);
        let number = u32::try_from(number).ok().filter(|number| *number != NONE);
        number.expect("memory is exhausted before 2^32 items exist")
    }

    pub(super) fn remove(&mut self, number: u32) -> T {
        let value = std::mem::take(&mut self[number]);
        self.live -= 1;
        if self.live == 0 {
            self.clear();
        } else {
            self.free.push(number);
        }
        value
    }

    fn clear(&mut self) {
        let rest = self.pages.split_off(1.min(self.pages.len()));
        self.pages.shrink_to_fit();
        self.pages.iter_mut().for_each(Vec::clear);
        self.free = Vec::new();
        if rest.len() > PAGES_DROPPED {
            self.gone.extend(rest);
        }
    }

    /// Takes the pages of a large slab that was emptied. Freeing them takes long, so the caller
    /// does it outside of the lock.
    pub(super) fn take_gone(&mut self) -> Option<Vec<Vec<T>>> {
        (!self.gone.is_empty()).then(|| std::mem::take(&mut self.gone))
    }

    pub(super) fn len(&self) -> usize {
        self.live
    }

    /// Numbers that are or were in use, with their items.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.pages.iter().flatten().enumerate().map(|(number, value)| (number as u32, value))
    }

    /// Item of a number that was given out, even if it is removed or the slab was cleared since.
    pub(super) fn get(&self, number: u32) -> Option<&T> {
        self.pages.get(number as usize / PAGE)?.get(number as usize % PAGE)
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, number: u32) -> &T {
        &self.pages[number as usize / PAGE][number as usize % PAGE]
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, number: u32) -> &mut T {
        &mut self.pages[number as usize / PAGE][number as usize % PAGE]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_again_and_an_empty_slab_keeps_one_page() {
        let mut slab = Slab::new();
        let numbers: Vec<u32> = (0..1000_u64).map(|n| slab.insert(n + 1)).collect();
        assert_eq!(numbers, (0..1000).collect::<Vec<_>>());
        assert_eq!(slab.remove(7), 8);
        assert_eq!((slab[7], slab.len()), (0, 999));
        assert_eq!(slab.insert(5), 7);
        (0..1000).for_each(|number| _ = slab.remove(number));
        assert_eq!((slab.len(), slab.pages.len(), slab.free.capacity()), (0, 1, 0));
        assert_eq!(slab.get(999), None);
        assert_eq!(slab.insert(1), 0);
    }
}
