//! Lanes in which records run: those of the pool, or of a simulation.

use super::in_flight::InFlight;
use super::ordering::{LaneId, LaneSet};

/// Lanes in which records run: one after another within a lane, in the order in which they were
/// sent, and in parallel across lanes.
pub(super) trait RecordLanes: Send + Sync {
    /// Sends records to the ends of their lanes. Returns `false` if the lanes are closed; then the
    /// records are dropped.
    ///
    /// If only the latest record of a lane counts, adds those that have not begun and were replaced to
    /// `replaced`.
    fn send(&self, records: &mut Vec<(LaneSet, InFlight)>, replaced: &mut Vec<InFlight>) -> bool;

    /// Runs a record again that holds the guard of its lanes.
    fn retry(&self, in_flight: InFlight);

    /// Drops the records that wait in a lane, if they would wait for the rates. Their assignment is
    /// closed, so that none of them would start.
    fn withdraw(&self, lane: &LaneId);

    /// Returns whether records wait for the rates.
    fn has_rates(&self) -> bool {
        false
    }

    /// Drops all waiting records, and accepts no further one.
    fn stop(&self);
}
