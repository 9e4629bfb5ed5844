//! Leader epochs of what was delivered of a partition (KIP-320).
//!
//! Each leader of a partition appends records under an epoch of its own, which is higher than those before. So the
//! epochs of a log ascend with its positions, and a log that lost its tail and grew again has a higher epoch from
//! the cut on than it ever had there. Two things follow:
//!
//! - The broker can say whether a log still is the one that a position was read from, given the epoch of the
//!   record before that position. It goes into each commit, and into each seek.
//! - A record below the end of a map whose epoch is above the highest one of the map is not the record that the
//!   map has as done. The first such record is where the log was cut.

use std::collections::VecDeque;

use crate::Position;

/// Leader epochs of one partition, since it was assigned.
#[derive(Clone, Debug, Default)]
pub(super) struct Epochs {
    /// Where each known epoch begins; positions and epochs ascend. The first one begins where reading did.
    runs: VecDeque<(Position, u32)>,
    /// The end of the map that was read at the assignment, and the highest epoch below that end.
    map: Option<(Position, u32)>,
}

impl Epochs {
    /// Epochs of a partition that begins at `watermark` and has a map up to `end`: `committed` is that of the
    /// record before the watermark, `map` the highest below the end.
    pub(super) fn new(
        (watermark, committed): (Position, Option<u32>),
        (end, map): (Position, Option<u32>),
    ) -> Self {
        let before = watermark.get().checked_sub(1).map(Position::new);
        let run = before.zip(committed);
        let map = map.filter(|_| end > watermark).map(|epoch| (end, epoch));
        Epochs { runs: run.into_iter().collect(), map }
    }

    /// Notes the epoch of a delivered record. False if that record is not the one that the map speaks of.
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

    /// The epoch of the record before `position`, as far as it is known.
    pub(super) fn below(&self, position: Position) -> Option<u32> {
        let run = self.runs.iter().rev().find(|(first, _)| *first < position);
        let delivered = run.map(|(_, epoch)| *epoch);
        // The map's records may not have been delivered again yet.
        let map = self.map.filter(|(end, _)| *end <= position).map(|(_, epoch)| epoch);
        delivered.max(map)
    }

    /// Forgets what no later request is about: all but the last run that begins below `watermark`.
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
        let mut epochs = Epochs::new((AT(10), Some(2)), (AT(10), None));
        for (position, epoch) in [(10, 2), (11, 4), (12, 4), (15, 7)] {
            assert!(epochs.deliver(AT(position), Some(epoch)));
        }
        let below = |epochs: &Epochs, at| epochs.below(AT(at));
        assert_eq!([10, 11, 12, 15, 16].map(|at| below(&epochs, at)), [2, 2, 4, 4, 7].map(Some));
        assert_eq!(below(&epochs, 9), None);
        epochs.forget_below(AT(15));
        assert_eq!([15, 16].map(|at| below(&epochs, at)), [4, 7].map(Some));
        assert_eq!(below(&epochs, 11), None);
    }

    #[test]
    fn a_record_above_the_maps_epoch_is_not_the_one_that_the_map_has() {
        let mut epochs = Epochs::new((AT(10), Some(2)), (AT(20), Some(3)));
        assert_eq!((epochs.below(AT(10)), epochs.below(AT(20))), (Some(2), Some(3)));
        assert!(epochs.deliver(AT(10), Some(2)) && epochs.deliver(AT(14), Some(3)));
        assert!(!epochs.deliver(AT(15), Some(4)));
        // From the end of the map on, a later leader is nothing special.
        assert!(epochs.deliver(AT(20), Some(4)));
        assert_eq!(epochs.below(AT(21)), Some(4));
    }

    #[test]
    fn a_broker_without_epochs_has_none() {
        let mut epochs = Epochs::new((AT(10), None), (AT(20), None));
        assert!(epochs.deliver(AT(10), None));
        assert_eq!(epochs.below(AT(20)), None);
    }
}
