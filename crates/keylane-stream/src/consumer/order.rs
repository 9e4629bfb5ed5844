use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::failure::Failure;
use super::lane_key::LaneKey;
use crate::{Delivered, Record};

/// What order is kept for.
#[derive(Clone)]
pub(super) enum Order {
    /// The record's own key.
    Key,
    /// What a function says.
    By(Arc<KeyOf>),
    /// All records of a partition, one after another.
    Partition,
    /// Nothing.
    None,
}

type KeyOf = dyn Fn(&Record) -> Option<Vec<u8>> + Send + Sync;

/// What becomes of records without a key, where order is kept by key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NoKey {
    /// Those of a partition are handled one after another, as if they had a key in common, which no
    /// other record has.
    #[default]
    OneByOne,
    /// They are in order with nothing.
    Unordered,
    /// They are not handled: they [fail](super::Failure::NoKey), and what the policy says about the
    /// last attempt follows.
    Reject,
}

/// A line of records that are handled one after another.
///
/// A partition keeps its slot in every stretch of owning it, so records that come again wait for what
/// still runs of an earlier stretch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    Key {
        slot: usize,
        key: LaneKey,
    },
    NoKey {
        slot: usize,
    },
    Partition {
        slot: usize,
    },
    /// A line with one record in it; the number is used once.
    Free {
        number: u64,
    },
}

impl Hash for Lane {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Lane::Key { slot, key } => {
                state.write_usize(*slot);
                key.as_bytes().hash(state);
            }
            Lane::NoKey { slot } | Lane::Partition { slot } => state.write_usize(*slot),
            Lane::Free { number } => state.write_u64(*number),
        }
    }
}

/// Where a record is to stand.
pub(super) enum Place {
    In(Lane),
    Unordered,
    /// It cannot be handled.
    Unfit(Failure),
}

impl Order {
    pub(super) fn place(&self, delivered: &Delivered, slot: usize, no_key: NoKey) -> Place {
        let key = match self {
            Order::Key => delivered.record.key.as_deref().map(LaneKey::from),
            Order::By(key_of) => {
                match catch_unwind(AssertUnwindSafe(|| key_of(&delivered.record))) {
                    Ok(key) => key.as_deref().map(LaneKey::from),
                    Err(payload) => return Place::Unfit(Failure::panicked(&*payload)),
                }
            }
            Order::Partition => return Place::In(Lane::Partition { slot }),
            Order::None => return Place::Unordered,
        };
        match (key, no_key) {
            (Some(key), _) => Place::In(Lane::Key { slot, key }),
            (None, NoKey::OneByOne) => Place::In(Lane::NoKey { slot }),
            (None, NoKey::Unordered) => Place::Unordered,
            (None, NoKey::Reject) => Place::Unfit(Failure::NoKey),
        }
    }
}

impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Order::Key => "Key",
            Order::By(_) => "By",
            Order::Partition => "Partition",
            Order::None => "None",
        })
    }
}
