//! Which records are not to run at the same time, and are in order within a partition.

use super::super::settings::{Settings, uses_of};
use super::super::source::UNKEYED;
use super::state::Record;

/// Returns whether the later one of two records waits for the earlier one.
pub(super) fn conflict(settings: &Settings, one: &Record, other: &Record) -> bool {
    let is_free = settings.is_unkeyed_free && one.key == UNKEYED;
    if !settings.has_claims {
        let is_same = one.place.partition == other.place.partition && one.key == other.key;
        return is_same && !is_free;
    }
    let (one_uses, other_uses) = (uses_of(one.key), uses_of(other.key));
    if one_uses.is_barrier || other_uses.is_barrier {
        return true;
    }
    // Records without a key are in one order, too.
    if one.key == UNKEYED || other.key == UNKEYED {
        return one.key == other.key && !is_free;
    }
    let has_own = |own: &[u8], other: &[u8]| own.iter().any(|key| other.contains(key));
    has_own(one_uses.own, other_uses.own)
        || has_own(one_uses.own, other_uses.shared)
        || has_own(other_uses.own, one_uses.shared)
}
