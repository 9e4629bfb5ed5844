//! Counts of the tasks that hold a lane with a limit.

use std::collections::BTreeMap;

use super::ClaimMode;

/// Number of holders of a lane per limit, by the lane's slot and the limit. Holders seldom differ
/// in their limit, so a lane has one entry.
#[derive(Debug, Default)]
pub(super) struct ConcurrencyLimits(BTreeMap<(usize, u16), u16>);

impl ConcurrencyLimits {
    /// Counts a new holder of a lane. Holders that do not limit it are not counted.
    pub(super) fn note(&mut self, slot: usize, mode: ClaimMode) {
        if let ClaimMode::Limited(max) = mode {
            *self.0.entry((slot, max)).or_default() += 1;
        }
    }

    /// Returns the counted holders of a lane, and the least of their limits.
    #[cfg(debug_assertions)]
    pub(super) fn counted(&self, slot: usize) -> (u16, u16) {
        let of_lane = self.0.range((slot, 0)..=(slot, u16::MAX));
        of_lane.fold((0, u16::MAX), |(count, least), ((_, max), holders)| {
            (count + holders, least.min(*max))
        })
    }

    /// Removes a counted holder, and returns the least limit of the remaining ones.
    pub(super) fn forget(&mut self, slot: usize, max: u16) -> Option<u16> {
        let holders = self.0.get_mut(&(slot, max)).expect("it was counted");
        *holders -= 1;
        if *holders == 0 {
            self.0.remove(&(slot, max));
        }
        self.0.range((slot, 0)..=(slot, u16::MAX)).next().map(|((_, least), _)| *least)
    }
}
