//! Lanes in which records run: those of the pool, or of a simulation.

use super::RecordPool;
use super::in_flight::InFlight;
use super::ordering::LaneId;

/// Lanes in which records run: one after another within a lane, in the order in which they were
/// sent, and in parallel across lanes.
pub(super) trait RecordLanes: Send + Sync {
    /// Sends records to the ends of their lanes. Returns `false` if the lanes are closed; then the
    /// records are dropped.
    fn send(&self, records: &mut Vec<(LaneId, InFlight)>) -> bool;
}

impl RecordLanes for RecordPool {
    fn send(&self, records: &mut Vec<(LaneId, InFlight)>) -> bool {
        self.send_many(records.drain(..)).is_ok()
    }
}
