//! Intrusive doubly linked lists over slab items, with O(1) insertion and removal at any position.

use super::slab::{NONE, Slab};

/// Position of an item in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ListLink {
    pub(super) before: u32,
    pub(super) behind: u32,
}

impl Default for ListLink {
    fn default() -> Self {
        ListLink { before: NONE, behind: NONE }
    }
}

/// Ends of a list. Every call gets the accessor of the list's link, which must always be the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LinkedList {
    pub(super) first: u32,
    pub(super) last: u32,
}

impl Default for LinkedList {
    fn default() -> Self {
        LinkedList { first: NONE, last: NONE }
    }
}

impl LinkedList {
    pub(super) fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    /// Items from first to last. `link` is the accessor of the list's link.
    pub(super) fn iter<'a, T>(
        &self,
        slab: &'a Slab<T>,
        link: fn(&T) -> &ListLink,
    ) -> impl Iterator<Item = u32> + use<'a, T> {
        let mut next = self.first;
        std::iter::from_fn(move || {
            let thing = (next != NONE).then_some(next)?;
            next = link(&slab[thing]).behind;
            Some(thing)
        })
    }

    /// Appends an item that is in no such list.
    pub(super) fn push<T>(
        &mut self,
        slab: &mut Slab<T>,
        thing: u32,
        link: fn(&mut T) -> &mut ListLink,
    ) {
        *link(&mut slab[thing]) = ListLink { before: self.last, behind: NONE };
        match self.last {
            NONE => self.first = thing,
            last => link(&mut slab[last]).behind = thing,
        }
        self.last = thing;
    }

    /// Prepends an item that is in no such list.
    pub(super) fn push_first<T>(
        &mut self,
        slab: &mut Slab<T>,
        thing: u32,
        link: fn(&mut T) -> &mut ListLink,
    ) {
        *link(&mut slab[thing]) = ListLink { before: NONE, behind: self.first };
        match self.first {
            NONE => self.last = thing,
            first => link(&mut slab[first]).before = thing,
        }
        self.first = thing;
    }

    /// Removes an item of this list.
    pub(super) fn remove<T>(
        &mut self,
        slab: &mut Slab<T>,
        thing: u32,
        link: fn(&mut T) -> &mut ListLink,
    ) {
        let ListLink { before, behind } = std::mem::take(link(&mut slab[thing]));
        match before {
            NONE => self.first = behind,
            before => link(&mut slab[before]).behind = behind,
        }
        match behind {
            NONE => self.last = before,
            behind => link(&mut slab[behind]).before = before,
        }
    }
}
