//! State and hash of each record that a log knows, in 9 bytes per place.

use std::collections::HashMap;

use foldhash::fast::RandomState;

/// Places in a page. A page is the unit of memory, so that one large number in a damaged log takes
/// little.
const PAGE: u64 = 1024;

/// State of a record by its lines in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::run) enum PriorState {
    /// No line.
    #[default]
    Unknown,
    /// Attempts have ended, and the last one was not final.
    Unfinished,
    /// Failed finally, and its key or the run stopped there: unfinished, for its key continues with
    /// it.
    Stopped,
    /// Failed finally, and its key went on.
    Failed,
    /// Succeeded, skipped, replaced or in the dead letters.
    Finished,
}

/// Records by place.
#[derive(Debug, Default)]
pub(super) struct PriorPages {
    pages: HashMap<u64, Box<PriorPage>, RandomState>,
    last: u64,
}

#[derive(Debug)]
struct PriorPage {
    hashes: [u64; PAGE as usize],
    states: [PriorState; PAGE as usize],
}

/// A place has two hashes in the log.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OtherHash;

impl PriorPages {
    /// Returns the hash and the state of a record that the log knows.
    pub(super) fn get(&self, place: u64) -> Option<(u64, PriorState)> {
        let page = self.pages.get(&(place / PAGE))?;
        let at = (place % PAGE) as usize;
        let known = (page.hashes[at], page.states[at]);
        (known.1 != PriorState::Unknown).then_some(known)
    }

    /// Adds a line. A record that has failed finally stays so until a later run finishes it.
    pub(super) fn add(
        &mut self,
        place: u64,
        hash: u64,
        state: PriorState,
    ) -> Result<(), OtherHash> {
        let new = || {
            let (hashes, states) = ([0; PAGE as usize], [PriorState::Unknown; PAGE as usize]);
            Box::new(PriorPage { hashes, states })
        };
        let page = self.pages.entry(place / PAGE).or_insert_with(new);
        let at = (place % PAGE) as usize;
        let before = page.states[at];
        if before != PriorState::Unknown && page.hashes[at] != hash {
            return Err(OtherHash);
        }
        page.hashes[at] = hash;
        page.states[at] = match (before, state) {
            (PriorState::Finished, _) => PriorState::Finished,
            (PriorState::Failed, PriorState::Unfinished | PriorState::Stopped) => {
                PriorState::Failed
            }
            (PriorState::Stopped, PriorState::Unfinished) => PriorState::Stopped,
            (_, state) => state,
        };
        self.last = self.last.max(place);
        Ok(())
    }

    /// The highest place; 0 if there is none.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Returns the number of records in a state.
    pub(super) fn count(&self, state: PriorState) -> u64 {
        let of_page = |page: &PriorPage| page.states.iter().filter(|it| **it == state).count();
        self.pages.values().map(|page| of_page(page) as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_a_place_decides_and_a_final_failure_stays() {
        use PriorState::{Failed, Finished, Stopped, Unfinished};
        let after = |states: &[PriorState]| {
            let mut pages = PriorPages::default();
            states.iter().for_each(|state| pages.add(1 << 60, 7, *state).unwrap());
            assert_eq!((pages.last(), pages.pages.len()), (1 << 60, 1));
            pages.get(1 << 60).unwrap().1
        };
        assert_eq!(after(&[Unfinished, Finished]), Finished);
        assert_eq!(after(&[Finished, Unfinished]), Finished);
        assert_eq!(after(&[Failed, Unfinished]), Failed);
        assert_eq!(after(&[Failed, Unfinished, Finished]), Finished);
        assert_eq!(after(&[Failed, Stopped]), Failed);
        assert_eq!(after(&[Stopped, Unfinished]), Stopped);
        assert_eq!(after(&[Stopped, Failed]), Failed);
        assert_eq!(after(&[Unfinished, Stopped]), Stopped);
    }

    #[test]
    fn places_beside_a_known_one_are_unknown_and_a_second_hash_is_refused() {
        let mut pages = PriorPages::default();
        pages.add(5, 50, PriorState::Finished).unwrap();
        pages.add(3, 30, PriorState::Failed).unwrap();
        assert_eq!([pages.get(4), pages.get(6), pages.get(5000)], [None; 3]);
        assert_eq!(pages.get(3), Some((30, PriorState::Failed)));
        assert_eq!(pages.add(3, 31, PriorState::Failed), Err(OtherHash));
        assert_eq!(pages.count(PriorState::Failed), 1);
    }
}
