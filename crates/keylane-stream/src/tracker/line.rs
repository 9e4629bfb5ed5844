use foldhash::fast::RandomState;
use slab::Slab;
use std::collections::HashMap;

use crate::Position;

/// A set of positions to which ever higher ones are added and from which any can be removed, each in
/// constant time, and which can be walked in ascending order.
///
/// A linked list in a slab, and a table that finds a position's link. A ring of bits would hold as
/// many as lie between the lowest and the highest, and a stuck record makes that as long as the
/// stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    links: Slab<Link>,
    by_position: HashMap<Position, usize, RandomState>,
    /// The keys of the lowest and the highest; both or neither.
    ends: Option<(usize, usize)>,
}

#[derive(Clone, Debug)]
struct Link {
    position: Position,
    lower: Option<usize>,
    higher: Option<usize>,
}

impl Line {
    /// Adds a position that is higher than all in it.
    pub(super) fn push(&mut self, position: Position) {
        let lower = self.ends.map(|(_, last)| last);
        debug_assert!(lower.is_none_or(|last| self.links[last].position < position));
        let key = self.links.insert(Link { position, lower, higher: None });
        if let Some(last) = lower {
            self.links[last].higher = Some(key);
        }
        self.ends = Some((self.ends.map_or(key, |(first, _)| first), key));
        self.by_position.insert(position, key);
    }

    /// Removes a position; whether it was there.
    pub(super) fn remove(&mut self, position: Position) -> bool {
        let Some(key) = self.by_position.remove(&position) else { return false };
        let link = self.links.remove(key);
        if let Some(lower) = link.lower {
            self.links[lower].higher = link.higher;
        }
        if let Some(higher) = link.higher {
            self.links[higher].lower = link.lower;
        }
        self.ends = self.ends.and_then(|(first, last)| {
            let first = if first == key { link.higher? } else { first };
            let last = if last == key { link.lower? } else { last };
            Some((first, last))
        });
        self.give_back();
        true
    }

    /// Gives memory back after a burst: what is left fills less than an eighth of it.
    fn give_back(&mut self) {
        const WORTH_IT: usize = 1024;
        if self.by_position.capacity() > WORTH_IT && self.len() < self.by_position.capacity() / 8 {
            let mut smaller = Line::default();
            self.iter().for_each(|position| smaller.push(position));
            *self = smaller;
        }
    }

    pub(super) fn contains(&self, position: Position) -> bool {
        self.by_position.contains_key(&position)
    }

    pub(super) fn first(&self) -> Option<Position> {
        self.ends.map(|(first, _)| self.links[first].position)
    }

    pub(super) fn len(&self) -> usize {
        self.links.len()
    }

    /// All of them, in ascending order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Position> {
        let first = self.ends.map(|(first, _)| &self.links[first]);
        std::iter::successors(first, |link| Some(&self.links[link.higher?]))
            .map(|link| link.position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn is_a_sorted_set(steps in prop::collection::vec((any::<bool>(), 0u64..40), 0..200)) {
            let (mut line, mut set, mut next) = (Line::default(), BTreeSet::new(), 0);
            for (add, number) in steps {
                if add {
                    next += number + 1;
                    line.push(Position::new(next));
                    set.insert(Position::new(next));
                } else {
                    let position = Position::new(next.saturating_sub(number));
                    prop_assert_eq!(line.remove(position), set.remove(&position));
                }
                prop_assert!(line.iter().eq(set.iter().copied()));
                prop_assert_eq!(line.first(), set.first().copied());
                prop_assert_eq!(line.len(), set.len());
            }
        }
    }

    #[test]
    fn a_burst_leaves_no_memory_behind() {
        let mut line = Line::default();
        (0..100_000).for_each(|number| line.push(Position::new(number)));
        (1..100_000).for_each(|number| assert!(line.remove(Position::new(number))));
        assert!(line.by_position.capacity() < 2048, "{}", line.by_position.capacity());
        assert!(line.iter().eq([Position::ZERO]));
    }
}
