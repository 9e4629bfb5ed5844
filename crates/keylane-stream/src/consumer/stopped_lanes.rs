//! Decides which records wait for a stopped one, where records have several lanes and the order is over
//! all partitions.

use std::collections::HashMap;

use super::ordering::{LaneId, RecordLaneClaims};
use crate::Position;

/// Lanes that stopped records, and the records that wait for these, hold. A record is held if it conflicts
/// with one of them that was admitted earlier.
#[derive(Debug, Default)]
pub(super) struct StoppedLanes {
    /// Lanes that held records have for themselves, with the position of the stopped record.
    exclusive: HashMap<LaneId, Position>,
    /// Lanes that held records share.
    shared: HashMap<LaneId, Position>,
    /// Stopped record that holds a barrier, and with it all records behind the barrier.
    all: Option<Position>,
    /// Some stopped record, for which a barrier waits.
    any: Option<Position>,
    /// Number of records admitted so far.
    admitted: u64,
    /// Records of a key can run together, so that the turn of a stopped one does not hold the others.
    pub(super) is_limited: bool,
}

/// Lanes of an admitted record, and its number in the order of all partitions.
#[derive(Debug)]
pub(super) struct AdmittedLanes {
    pub(super) number: u64,
    pub(super) claims: RecordLaneClaims,
}

impl StoppedLanes {
    /// Holds nothing yet. `is_limited` says whether records of a key can run together.
    pub(super) fn new(is_limited: bool) -> Self {
        StoppedLanes { is_limited, ..StoppedLanes::default() }
    }

    /// Numbers a record that is admitted.
    pub(super) fn admit(&mut self, claims: &RecordLaneClaims) -> Box<AdmittedLanes> {
        self.admitted += 1;
        Box::new(AdmittedLanes { number: self.admitted, claims: claims.clone() })
    }

    /// Returns the position of the stopped record that a record with these lanes waits for.
    pub(super) fn holder(&self, claims: &RecordLaneClaims) -> Option<Position> {
        if claims.is_barrier {
            return self.any;
        }
        let own = claims
            .exclusive
            .iter()
            .find_map(|lane| self.exclusive.get(lane).or_else(|| self.shared.get(lane)).copied());
        let shared = || claims.shared.iter().find_map(|lane| self.exclusive.get(lane).copied());
        self.all.or(own).or_else(shared)
    }

    /// Holds the lanes of a record that is stopped by the record at this position, or is it.
    pub(super) fn hold(&mut self, claims: &RecordLaneClaims, position: Position) {
        self.any.get_or_insert(position);
        if claims.is_barrier {
            self.all.get_or_insert(position);
            return;
        }
        for lane in &claims.exclusive {
            self.exclusive.entry(lane.clone()).or_insert(position);
        }
        for lane in &claims.shared {
            self.shared.entry(lane.clone()).or_insert(position);
        }
    }

    /// Holds nothing any more.
    pub(super) fn clear(&mut self) {
        let (admitted, is_limited) = (self.admitted, self.is_limited);
        *self = StoppedLanes { admitted, is_limited, ..StoppedLanes::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(name: &str) -> LaneId {
        LaneId::of_all_partitions(Some(name.as_bytes()))
    }

    fn claims(exclusive: &[&str], shared: &[&str]) -> RecordLaneClaims {
        let lanes = |names: &[&str]| names.iter().map(|name| lane(name)).collect();
        RecordLaneClaims { exclusive: lanes(exclusive), shared: lanes(shared), is_barrier: false }
    }

    #[test]
    fn what_conflicts_with_a_held_record_is_held() {
        let mut held = StoppedLanes::default();
        let barrier = RecordLaneClaims { is_barrier: true, ..RecordLaneClaims::default() };
        assert_eq!(held.holder(&barrier), None);
        let seven = Position::new(7);
        held.hold(&claims(&["a", "b"], &["c"]), seven);
        assert_eq!(held.holder(&claims(&["b", "d"], &[])), Some(seven));
        assert_eq!(held.holder(&claims(&[], &["a"])), Some(seven));
        assert_eq!(held.holder(&claims(&["c"], &[])), Some(seven));
        assert_eq!(held.holder(&claims(&["d"], &["c"])), None);
        assert_eq!(held.holder(&barrier), Some(seven));
        held.hold(&barrier, seven);
        assert_eq!(held.holder(&claims(&["z"], &[])), Some(seven));
        held.clear();
        assert_eq!(held.holder(&claims(&["a"], &[])), None);
    }
}
