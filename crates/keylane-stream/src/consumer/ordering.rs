//! Lane of a record: by its key, a function, its partition, or none.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::failure::AttemptFailure;
use super::lane_key::LaneKey;
use crate::{DeliveredRecord, Record};

/// Order that a consumer keeps.
#[derive(Clone)]
pub(super) enum OrderBy {
    /// By the record's own key.
    Key,
    /// By the result of a function.
    By(Arc<KeyOf>),
    /// All records of a partition, one after another.
    Partition,
    /// No order.
    None,
}

type KeyOf = dyn Fn(&Record) -> Option<Vec<u8>> + Send + Sync;

/// Order of records without a key, for consumers that order by key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnkeyedPolicy {
    /// One after another within their partition, as if they shared a key that no other record has.
    #[default]
    OneByOne,
    /// In no order.
    Unordered,
    /// Not handled: each record [fails](super::AttemptFailure::NoKey) without an attempt, and the policy
    /// for exhausted records applies.
    Reject,
}

/// A sequence of records that are handled one after another.
///
/// A partition keeps its slot when it is assigned again, so repeated records wait for attempts that
/// are still running from an earlier assignment.
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
    /// A lane of one record; the number is unique.
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

/// Lane of a record, or the reason why it has none.
pub(super) enum RecordLane {
    Lane(LaneId),
    Unordered,
    /// The record cannot be handled.
    Rejected(AttemptFailure),
}

impl OrderBy {
    pub(super) fn lane_of(
        &self,
        delivered: &DeliveredRecord,
        slot: usize,
        unkeyed: UnkeyedPolicy,
    ) -> RecordLane {
        let key = match self {
            OrderBy::Key => delivered.record.key.as_deref().map(LaneKey::from),
            OrderBy::By(key_of) => {
                match catch_unwind(AssertUnwindSafe(|| key_of(&delivered.record))) {
                    Ok(key) => key.as_deref().map(LaneKey::from),
                    Err(payload) => {
                        return RecordLane::Rejected(AttemptFailure::panicked(&*payload));
                    }
                }
            }
            OrderBy::Partition => return RecordLane::Lane(LaneId::Partition { slot }),
            OrderBy::None => return RecordLane::Unordered,
        };
        match (key, unkeyed) {
            (Some(key), _) => RecordLane::Lane(LaneId::Key { slot, key }),
            (None, UnkeyedPolicy::OneByOne) => RecordLane::Lane(LaneId::Unkeyed { slot }),
            (None, UnkeyedPolicy::Unordered) => RecordLane::Unordered,
            (None, UnkeyedPolicy::Reject) => RecordLane::Rejected(AttemptFailure::NoKey),
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
