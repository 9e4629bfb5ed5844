//! Claims of a task, and their meaning, as documented.

use keylane::{Claims, Compatibility};
use proptest::prelude::*;

use crate::common::Rng;

/// Claims of a task, in a form that the model can read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Keys {
    /// Each with how it is used. Duplicates are welcome.
    Some(Vec<(u32, Use)>),
    /// And a descriptor.
    Described(Vec<(u32, Use)>, Mark),
    All,
}

/// How a task uses a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Use {
    Alone,
    Shared,
    /// With at most this number of tasks that limit it.
    Limited(u16),
}

impl Use {
    /// Of a task that lists a key twice.
    fn and(self, other: Use) -> Use {
        match (self, other) {
            (Use::Shared, Use::Shared) => Use::Shared,
            (Use::Limited(one), Use::Limited(two)) => Use::Limited(one.min(two)),
            _ => Use::Alone,
        }
    }

    fn conflicts(self, other: Use) -> bool {
        self.and(other) == Use::Alone
    }
}

impl Keys {
    pub(crate) fn claims(&self) -> Claims<u32> {
        match self {
            Keys::All => Claims::barrier(),
            Keys::Some(keys) => keys.iter().fold(Claims::none(), |claims, &(key, how)| match how {
                Use::Alone => claims.and_exclusive(key),
                Use::Shared => claims.and_shared(key),
                Use::Limited(most) => claims.and_limited(key, most),
            }),
            Keys::Described(keys, mark) => {
                let claims = Keys::Some(keys.clone()).claims();
                match mark.other_type {
                    true => claims.with_descriptor(OtherMark(*mark)),
                    false => claims.with_descriptor(*mark),
                }
            }
        }
    }

    /// Whether the one must end before the other begins, whatever else runs.
    pub(crate) fn conflicts(&self, other: &Keys) -> bool {
        if *self == Keys::All || *other == Keys::All {
            return true;
        }
        let by_key = self
            .uses()
            .into_iter()
            .any(|(key, how)| other.use_of(key).is_some_and(|other| how.conflicts(other)));
        by_key || self.mark().zip(other.mark()).is_some_and(|(this, that)| this.conflicts(that))
    }

    /// The keys that it limits, and to how many.
    pub(crate) fn limits(&self) -> impl Iterator<Item = (u32, u16)> {
        self.uses().into_iter().filter_map(|(key, how)| match how {
            Use::Limited(most) => Some((key, most)),
            Use::Alone | Use::Shared => None,
        })
    }

    /// To how many it limits a key.
    pub(crate) fn limit_of(&self, key: u32) -> Option<u16> {
        self.limits().find(|(its, _)| *its == key).map(|(_, most)| most)
    }

    /// Each key once.
    fn uses(&self) -> Vec<(u32, Use)> {
        let (Keys::Some(listed) | Keys::Described(listed, _)) = self else { return Vec::new() };
        let mut uses: Vec<(u32, Use)> = Vec::new();
        for (key, how) in listed {
            match uses.iter_mut().find(|(seen, _)| seen == key) {
                Some((_, so_far)) => *so_far = so_far.and(*how),
                None => uses.push((*key, *how)),
            }
        }
        uses
    }

    fn use_of(&self, key: u32) -> Option<Use> {
        self.uses().into_iter().find(|(its, _)| *its == key).map(|(_, how)| how)
    }

    fn mark(&self) -> Option<&Mark> {
        match self {
            Keys::Described(_, mark) => Some(mark),
            Keys::Some(_) | Keys::All => None,
        }
    }
}

/// Descriptor: its conflicts follow no rule, and only one of two declares one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Mark {
    kind: u64,
    other_type: bool,
}

/// The kinds of descriptors; those below `CLASSES` are classes.
const KINDS: u64 = 6;
const CLASSES: u64 = 3;

impl Mark {
    fn conflicts(&self, other: &Mark) -> bool {
        self.other_type == other.other_type && !(self.agrees(other) && other.agrees(self))
    }

    fn agrees(&self, other: &Mark) -> bool {
        self.kind > other.kind || !(self.kind * 5 + other.kind).is_multiple_of(3)
    }

    fn class(&self) -> Option<u64> {
        (self.kind < CLASSES).then_some(self.kind)
    }
}

impl Compatibility for Mark {
    fn is_compatible(&self, other: &Self) -> bool {
        self.agrees(other)
    }

    fn class(&self) -> Option<u64> {
        Mark::class(self)
    }
}

/// Descriptors of another type conflict with their own only.
struct OtherMark(Mark);

impl Compatibility for OtherMark {
    fn is_compatible(&self, other: &Self) -> bool {
        self.0.agrees(&other.0)
    }

    fn class(&self) -> Option<u64> {
        self.0.class()
    }
}

pub(crate) fn some_keys() -> impl Strategy<Value = Keys> {
    let key = || (0..4_u32, some_use());
    prop_oneof![
        6 => key().prop_map(|key| Keys::Some(vec![key])),
        4 => prop::collection::vec(key(), 2..4).prop_map(Keys::Some),
        1 => Just(Keys::Some(Vec::new())),
        5 => (prop::collection::vec(key(), 0..3), some_mark())
            .prop_map(|(keys, mark)| Keys::Described(keys, mark)),
        1 => Just(Keys::All),
    ]
}

fn some_use() -> impl Strategy<Value = Use> {
    prop_oneof![
        4 => Just(Use::Alone),
        3 => Just(Use::Shared),
        3 => (1..4_u16).prop_map(Use::Limited),
    ]
}

fn some_mark() -> impl Strategy<Value = Mark> {
    (0..KINDS, prop::bool::weighted(0.2)).prop_map(|(kind, other_type)| Mark { kind, other_type })
}

pub(crate) fn random_keys(rng: &mut Rng) -> Keys {
    let key = |rng: &mut Rng| (rng.below(5) as u32, random_use(rng));
    match rng.below(40) {
        0 => Keys::All,
        1..4 => Keys::Some(Vec::new()),
        30..36 => Keys::Described(
            (0..rng.below(3)).map(|_| key(rng)).collect(),
            Mark { kind: rng.below(KINDS), other_type: rng.below(5) == 0 },
        ),
        4..28 => Keys::Some(vec![key(rng)]),
        _ => Keys::Some((0..2 + rng.below(2)).map(|_| key(rng)).collect()),
    }
}

fn random_use(rng: &mut Rng) -> Use {
    match rng.below(6) {
        0 | 1 => Use::Shared,
        2 => Use::Limited(1 + rng.below(3) as u16),
        _ => Use::Alone,
    }
}
