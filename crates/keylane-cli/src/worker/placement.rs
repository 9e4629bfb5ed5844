//! Placement of records in children: by default, a key always goes to the same child, so that the
//! child can keep state of the key.

use std::hash::BuildHasher;

use clap::{Args, ValueEnum};
use foldhash::quality::FixedState;
use serde::Deserialize;

use crate::key::RecordKey;

/// Children that a key's records go to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum WorkerKeys {
    /// Always the same child, which can keep state of the key.
    #[default]
    Sticky,
    /// The least busy child, for workers that keep no state between records.
    Any,
}

/// Option for it.
#[derive(Debug, Args)]
pub(crate) struct WorkerKeysArg {
    /// Children that the records of a key go to: always the same one, which can keep state of the
    /// key, or the least busy one.
    #[arg(long, value_enum, default_value = "sticky", value_name = "WHERE", requires = "worker")]
    pub(crate) worker_keys: WorkerKeys,
}

/// Returns the slot of a key among `slots` slots; none for a record without a key.
///
/// It is the same in every run, so that a run can be repeated.
pub(super) fn home_of(key: &RecordKey, slots: usize) -> Option<usize> {
    let hash = match key {
        RecordKey::Unkeyed(_) => return None,
        key => FixedState::default().hash_one(key),
    };
    usize::try_from(hash % slots as u64).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_spread_evenly_and_stay() {
        let mut counts = [0_u32; 7];
        for number in 0..7000 {
            let key = RecordKey::Named(format!("key-{number}").into_bytes().into());
            let home = home_of(&key, 7).unwrap();
            assert_eq!(home_of(&key.clone(), 7), Some(home));
            counts[home] += 1;
        }
        assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
        assert_eq!(home_of(&RecordKey::Unkeyed(3), 7), None);
        assert!(home_of(&RecordKey::Serial, 7).is_some());
    }
}
