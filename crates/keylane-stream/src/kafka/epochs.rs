//! Leader epochs of a partition's delivered records (KIP-320).
//!
//! Each leader of a partition appends records under an epoch that is higher than all before. So the
//! epochs of a log ascend with its positions, and a log that was truncated and grew again has
//! higher epochs from the truncation on. Two things follow:
//!
//! - Given the epoch of the record before a position, the broker can tell whether the log is still
//!   the one that was read. That epoch goes into each commit and each seek.
//! - A record below the end of a map with an epoch above the map's highest one is not the record
//!   that the map has as completed. The first such record is where the log was truncated.

use std::collections::VecDeque;

use crate::Position;

/// Leader epochs of one assigned partition.
#[derive(Clone, Debug, Default)]
pub(super) struct LeaderEpochs {
    /// First known position of each epoch; positions and epochs ascend. The first entry is where
    /// reading began.
    runs: VecDeque<(Position, u32)>,
    /// End of the map at the assignment, and the highest epoch below it.
    map: Option<(Position, u32)>,
}

impl LeaderEpochs {
    /// Creates the epochs of a partition that begins at `watermark` and has a map up to `end`.
    /// `committed` is the epoch of the record before the watermark, `map` the highest one below the
    /// end.
    pub(super) fn new(
        (watermark, committed): (Position, Option<u32>),
        (end, map): (Position, Option<u32>),
    ) -> Self {
        let before = watermark.get().checked_sub(1).map(Position::new);
        let run = before.zip(committed);
        let map = map.filter(|_| end > watermark).map(|epoch| (end, epoch));
        LeaderEpochs { runs: run.into_iter().collect(), map }
    }

    /// Records the epoch of a delivered record. Returns `false` if the record is not the one that
    /// the map has as completed.
    pub(super) fn deliver(&mut self, position: Position, epoch: Option<u32>) -> bool {
        let Some(epoch) = epoch else { return true };
        if self.map.is_some_and(|(end, highest)| position < end && epoch > highest) {
            return false;
        }
        if self.runs.back().is_none_or(|(_, last)| epoch > *last) {
            self.runs.push_back((position, epoch));
        }
        true
    }

    /// Returns the epoch of the record before `position`, if known.
    pub(super) fn below(&self, position: Position) -> Option<u32> {
        let run = self.runs.iter().rev().find(|(first, _)| *first < position);
        let delivered = run.map(|(_, epoch)| *epoch);
        // The map's records may not have been delivered again yet.
        let map = self.map.filter(|(end, _)| *end <= position).map(|(_, epoch)| epoch);
        delivered.max(map)
    }

    /// Removes epochs that no later request needs: all but the last one that begins below
    /// `watermark`.
    pub(super) fn forget_below(&mut self, watermark: Position) {
        while self.runs.get(1).is_some_and(|(first, _)| *first < watermark) {
            self.runs.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: fn(u64) -> Position = Position::new;

    #[test]
    fn a_position_has_the_epoch_of_the_record_before_it() {
        let mut epochs = LeaderEpochs::new((AT(10), Some(2)), (AT(10), None));
        for (position, epoch) in [(10, 2), (11, 4), (12, 4), (15, 7)] {
            assert!(epochs.deliver(AT(position), Some(epoch)));
        }
        let below = |epochs: &LeaderEpochs, at| epochs.below(AT(at));
        assert_eq!([10, 11, 12, 15, 16].map(|at| below(&epochs, at)), [2, 2, 4, 4, 7].map(Some));
        assert_eq!(below(&epochs, 9), None);
        epochs.forget_below(AT(15));
        assert_eq!([15, 16].map(|at| below(&epochs, at)), [4, 7].map(Some));
        assert_eq!(below(&epochs, 11), None);
    }

    #[test]
    fn a_record_above_the_maps_epoch_is_not_the_one_that_the_map_has() {
        let mut epochs = LeaderEpochs::new((AT(10), Some(2)), (AT(20), Some(3)));
        assert_eq!((epochs.below(AT(10)), epochs.below(AT(20))), (Some(2), Some(3)));
        assert!(epochs.deliver(AT(10), Some(2)) && epochs.deliver(AT(14), Some(3)));
        assert!(!epochs.deliver(AT(15), Some(4)));
        // Beyond the end of the map, a later leader is expected.
        assert!(epochs.deliver(AT(20), Some(4)));
        assert_eq!(epochs.below(AT(21)), Some(4));
    }

    #[test]
    fn a_broker_without_epochs_has_none() {
        let mut epochs = LeaderEpochs::new((AT(10), None), (AT(20), None));
        assert!(epochs.deliver(AT(10), None));
        assert_eq!(epochs.below(AT(20)), None);
    }
}
