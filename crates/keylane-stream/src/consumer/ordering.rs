use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::failure::Failure;
use super::lane_key::LaneKey;
use crate::{Delivered, Record};

/// What order is kept for.
#[derive(Clone)]
pub(super) enum OrderBy {
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
pub enum UnkeyedPolicy {
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
pub(super) enum LaneId {
    Key {
        slot: usize,
        key: LaneKey,
    },
    Unkeyed {
        slot: usize,
    },
    Partition {
        slot: usize,
    },
    /// A line with one record in it; the number is used once.
    Single {
        number: u64,
    },
}

impl Hash for LaneId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            LaneId::Key { slot, key } => {
                state.write_usize(*slot);
                key.as_bytes().hash(state);
            }
            LaneId::Unkeyed { slot } | LaneId::Partition { slot } => state.write_usize(*slot),
            LaneId::Single { number } => state.write_u64(*number),
        }
    }
}

/// Where a record is to stand.
pub(super) enum LaneOf {
    Lane(LaneId),
    Unordered,
    /// It cannot be handled.
    Rejected(Failure),
}

impl OrderBy {
    pub(super) fn lane_of(
        &self,
        delivered: &Delivered,
        slot: usize,
        unkeyed: UnkeyedPolicy,
    ) -> LaneOf {
        let key = match self {
            OrderBy::Key => delivered.record.key.as_deref().map(LaneKey::from),
            OrderBy::By(key_of) => {
                match catch_unwind(AssertUnwindSafe(|| key_of(&delivered.record))) {
                    Ok(key) => key.as_deref().map(LaneKey::from),
                    Err(payload) => return LaneOf::Rejected(Failure::panicked(&*payload)),
                }
            }
            OrderBy::Partition => return LaneOf::Lane(LaneId::Partition { slot }),
            OrderBy::None => return LaneOf::Unordered,
        };
        match (key, unkeyed) {
            (Some(key), _) => LaneOf::Lane(LaneId::Key { slot, key }),
            (None, UnkeyedPolicy::OneByOne) => LaneOf::Lane(LaneId::Unkeyed { slot }),
            (None, UnkeyedPolicy::Unordered) => LaneOf::Unordered,
            (None, UnkeyedPolicy::Reject) => LaneOf::Rejected(Failure::NoKey),
        }
    }
}

impl fmt::Debug for OrderBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OrderBy::Key => "Key",
            OrderBy::By(_) => "By",
            OrderBy::Partition => "Partition",
            OrderBy::None => "None",
        })
    }
}
