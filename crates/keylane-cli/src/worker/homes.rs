//! Remembers which child has the unanswered records of a key, so that the
//! key's next record can follow them there instead of waiting for the answer.
//!
//! A child does its lines one after the other, so records that follow each
//! other into one child are in order and never at the same time. A hot key is
//! then as fast as its child, and not as a round trip for each record.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::key::Key;

/// The keys whose turn was given back although a record is unanswered.
#[derive(Debug, Default)]
pub(super) struct Homes(HashMap<Key, Home, RandomState>);

#[derive(Debug)]
struct Home {
    slot: usize,
    /// Records of the key there; the key leaves with the last of them.
    records: usize,
}

impl Homes {
    /// The slot that the key's next record has to go to, if there is one.
    pub(super) fn of(&self, key: &Key) -> Option<usize> {
        self.0.get(key).map(|home| home.slot)
    }

    pub(super) fn moved_in(&mut self, key: &Key, slot: usize) {
        let home = self.0.entry(key.clone()).or_insert(Home { slot, records: 0 });
        debug_assert_eq!(home.slot, slot, "a key is in one child only");
        home.records += 1;
    }

    pub(super) fn moved_out(&mut self, key: &Key) {
        let home = self.0.get_mut(key).expect("who moves out has moved in");
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
        let mut homes = Homes::default();
        homes.moved_in(&Key::Serial, 2);
        homes.moved_in(&Key::Serial, 2);
        homes.moved_out(&Key::Serial);
        assert_eq!(homes.of(&Key::Serial), Some(2));
        homes.moved_out(&Key::Serial);
        assert_eq!(homes.of(&Key::Serial), None);
    }
}
