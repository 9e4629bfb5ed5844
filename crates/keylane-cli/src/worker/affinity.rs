//! Affinity of keys to children: a key's next record can follow unanswered ones into their child
//! instead of waiting for the answers.
//!
//! A child handles its lines one after another, so records that follow each other into one child
//! are in order and never concurrent. The speed of a hot key is then limited by its child, not by a
//! round trip per record.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::key::RecordKey;

/// Keys whose turn was given back while a record is unanswered.
#[derive(Debug, Default)]
pub(super) struct KeyAffinity(HashMap<RecordKey, KeySlot, RandomState>);

#[derive(Debug)]
struct KeySlot {
    slot: usize,
    /// Records of the key there; the key leaves with the last of them.
    records: usize,
}

impl KeyAffinity {
    /// The slot that the key's next record has to go to, if there is one.
    pub(super) fn of(&self, key: &RecordKey) -> Option<usize> {
        self.0.get(key).map(|home| home.slot)
    }

    pub(super) fn pin(&mut self, key: &RecordKey, slot: usize) {
        let home = self.0.entry(key.clone()).or_insert(KeySlot { slot, records: 0 });
        debug_assert_eq!(home.slot, slot, "a key is in one child only");
        home.records += 1;
    }

    pub(super) fn unpin(&mut self, key: &RecordKey) {
        let home = self.0.get_mut(key).expect("the key has an entry");
        home.records -= 1;
        if home.records == 0 {
            self.0.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_a_home_until_its_last_record_has_left() {
        let mut affinity = KeyAffinity::default();
        affinity.pin(&RecordKey::Serial, 2);
        affinity.pin(&RecordKey::Serial, 2);
        affinity.unpin(&RecordKey::Serial);
        assert_eq!(affinity.of(&RecordKey::Serial), Some(2));
        affinity.unpin(&RecordKey::Serial);
        assert_eq!(affinity.of(&RecordKey::Serial), None);
    }
}
