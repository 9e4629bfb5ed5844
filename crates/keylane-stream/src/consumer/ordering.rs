//! Lane of a record: by its key, a function, its partition, or none.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::failure::AttemptFailure;
use super::lane_key::LaneKey;
use crate::{DeliveredRecord, Position, Record};

/// Order that a consumer keeps.
#[derive(Clone)]
pub(super) enum OrderBy {
    /// By the record's own key.
    Key,
    /// By the result of a function.
    By(Arc<KeyOf>),
    /// By the keys that a function returns, over all partitions.
    Claims(Arc<ClaimsOf>),
    /// All records of a partition, one after another.
    Partition,
    /// No order.
    None,
}

type KeyOf = dyn Fn(&Record) -> Option<Vec<u8>> + Send + Sync;

type ClaimsOf = dyn Fn(&Record) -> RecordClaims + Send + Sync;

/// Keys of a record, and how it uses them.
///
/// Two records conflict if they have a key in common that one of them does not share, or if one of them is a
/// barrier. Of two that conflict, the later one waits for the earlier one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordClaims {
    /// Keys that the record has for itself.
    pub exclusive: Vec<Vec<u8>>,
    /// Keys that it shares with other records that share them.
    pub shared: Vec<Vec<u8>>,
    /// It waits for all records before it, and all behind it wait for it.
    pub is_barrier: bool,
}

/// Slot of lanes that are those of all partitions.
const ALL_PARTITIONS: usize = usize::MAX;

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
    /// The lane of a record that is in no order: only a repetition of the record has it, too.
    Record {
        slot: usize,
        position: Position,
    },
    /// A lane of one call; the number is unique.
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
            LaneId::Record { slot, position } => {
                state.write_usize(*slot);
                state.write_u64(position.get());
            }
            LaneId::Single { number } => state.write_u64(*number),
        }
    }
}

/// Lanes of a record.
#[derive(Debug)]
pub(super) enum LaneSet {
    One(LaneId),
    /// Any number of lanes; only for consumers that order by several keys.
    Many(Box<RecordLaneClaims>),
}

/// How a record uses its lanes.
#[derive(Clone, Debug, Default)]
pub(super) struct RecordLaneClaims {
    /// Lanes that the record has for itself.
    pub(super) exclusive: Vec<LaneId>,
    /// Lanes that it shares with other records that share them.
    pub(super) shared: Vec<LaneId>,
    /// It waits for all records before it, and all behind it wait for it.
    pub(super) is_barrier: bool,
}

impl LaneSet {
    /// Returns the only lane of a record that cannot have several.
    pub(super) fn into_one(self) -> LaneId {
        match self {
            LaneSet::One(lane) => lane,
            LaneSet::Many(_) => unreachable!("the pool was built for records with one lane"),
        }
    }
}

/// Lane of a record, or the reason why it has none.
pub(super) enum RecordLane {
    Lane(LaneId),
    Set(Box<RecordLaneClaims>),
    Unordered,
    /// The record cannot be handled.
    Rejected(AttemptFailure),
}

impl LaneId {
    /// Returns the lane of a key, or that of records without one, over all partitions.
    pub(super) fn of_all_partitions(key: Option<&[u8]>) -> Self {
        match key {
            Some(key) => LaneId::Key { slot: ALL_PARTITIONS, key: LaneKey::from(key) },
            None => LaneId::Unkeyed { slot: ALL_PARTITIONS },
        }
    }
}

impl RecordClaims {
    fn lanes(&self, unkeyed: UnkeyedPolicy) -> RecordLane {
        let lanes = |keys: &[Vec<u8>]| -> Vec<_> {
            keys.iter().map(|key| LaneId::of_all_partitions(Some(key))).collect()
        };
        let (mut exclusive, shared) = (lanes(&self.exclusive), lanes(&self.shared));
        if exclusive.is_empty() && shared.is_empty() && !self.is_barrier {
            match unkeyed {
                UnkeyedPolicy::OneByOne => exclusive.push(LaneId::of_all_partitions(None)),
                // It has no lane, and is ordered with barriers.
                UnkeyedPolicy::Unordered => {}
                UnkeyedPolicy::Reject => return RecordLane::Rejected(AttemptFailure::NoKey),
            }
        }
        let is_barrier = self.is_barrier;
        RecordLane::Set(Box::new(RecordLaneClaims { exclusive, shared, is_barrier }))
    }
}

impl OrderBy {
    /// Returns whether the order is over all partitions.
    pub(super) fn is_over_partitions(&self) -> bool {
        matches!(self, OrderBy::Claims(_))
    }

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
            OrderBy::Claims(claims_of) => {
                return match catch_unwind(AssertUnwindSafe(|| claims_of(&delivered.record))) {
                    Ok(claims) => claims.lanes(unkeyed),
                    Err(payload) => RecordLane::Rejected(AttemptFailure::panicked(&*payload)),
                };
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

    /// Returns whether `is_wanted` holds for a key of a record with this lane: a key of the order, or
    /// the record's own key if the order is not by keys.
    pub(super) fn has_key(
        &self,
        delivered: &DeliveredRecord,
        lane: &RecordLane,
        is_wanted: impl Fn(&[u8]) -> bool,
    ) -> bool {
        let is_of =
            |lane: &LaneId| matches!(lane, LaneId::Key { key, .. } if is_wanted(key.as_bytes()));
        match (self, lane) {
            (OrderBy::Partition | OrderBy::None, _) => {
                delivered.record.key.as_deref().is_some_and(is_wanted)
            }
            (_, RecordLane::Lane(lane)) => is_of(lane),
            (_, RecordLane::Set(claims)) => {
                claims.exclusive.iter().chain(&claims.shared).any(is_of)
            }
            (_, RecordLane::Unordered | RecordLane::Rejected(_)) => false,
        }
    }
}

impl fmt::Debug for OrderBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OrderBy::Key => "Key",
            OrderBy::By(_) => "By",
            OrderBy::Claims(_) => "Claims",
            OrderBy::Partition => "Partition",
            OrderBy::None => "None",
        })
    }
}
