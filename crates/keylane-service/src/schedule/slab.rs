//! Things by number, on pages: growing moves nothing, and an empty slab keeps one page.

use std::ops::{Index, IndexMut};

/// No number at all.
pub(super) const NONE: u32 = u32::MAX;

/// Things of a page. A doubled vector would stall whoever adds the millionth for as long as copying the
/// others takes, under the lock that everybody wants.
const PAGE: usize = 128;

/// Pages that are freed at once when the slab is emptied.
const PAGES_DROPPED: usize = 64;

/// A number is given again once its thing is gone. What is gone is a `Default`, by which a number that
/// was kept too long can be told from a live one.
#[derive(Debug)]
pub(super) struct Slab<T> {
    /// Each has room for `PAGE`, and all but the last are full.
    pages: Vec<Vec<T>>,
    /// Numbers of what is gone.
    free: Vec<u32>,
    live: usize,
    /// Pages of a slab that was emptied, to be dropped by `take_gone`'s caller.
    gone: Vec<Vec<T>>,
}

impl<T: Default> Slab<T> {
    pub(super) fn new() -> Self {
        Slab { pages: Vec::new(), free: Vec::new(), live: 0, gone: Vec::new() }
    }

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
        number.expect("memory ends before 2^32 things do")
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

    /// The pages of a large slab that was emptied. To free them takes long, so it is not done here.
    pub(super) fn take_gone(&mut self) -> Option<Vec<Vec<T>>> {
        (!self.gone.is_empty()).then(|| std::mem::take(&mut self.gone))
    }

    pub(super) fn len(&self) -> usize {
        self.live
    }

    /// The numbers that are or were in use, and what is there.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.pages.iter().flatten().enumerate().map(|(number, value)| (number as u32, value))
    }

    /// What is there; of a number that was given, even if it is gone or the slab was cleared since.
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
