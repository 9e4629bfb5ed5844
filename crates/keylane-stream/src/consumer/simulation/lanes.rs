//! Lanes of a simulated process: what the pool of the library is for a real consumer, as a state
//! machine on one thread.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::super::in_flight::InFlight;
use super::super::key_guard::{KeyGuard, LaneGuard, LaneTurn};
use super::super::ordering::LaneId;
use super::super::record_lanes::RecordLanes;
use super::random::Random;

/// Lanes of a process.
#[derive(Debug, Default)]
pub(super) struct SimulatedLanes(Mutex<Vec<Lane>>);

#[derive(Debug)]
struct Lane {
    id: LaneId,
    waiting: VecDeque<InFlight>,
    /// The turn of the record before is kept.
    is_held: bool,
}

/// Turn of a record while its handler is called.
pub(super) struct SimulatedTurn {
    lanes: Arc<SimulatedLanes>,
    lane: LaneId,
}

/// Turn that lasts beyond the call of the handler.
#[derive(Debug)]
struct KeptTurn {
    lanes: Arc<SimulatedLanes>,
    lane: LaneId,
}

impl RecordLanes for SimulatedLanes {
    fn send(&self, records: &mut Vec<(LaneId, InFlight)>) -> bool {
        let mut lanes = self.0.lock().unwrap();
        for (id, in_flight) in records.drain(..) {
            match lanes.iter_mut().find(|lane| lane.id == id) {
                Some(lane) => lane.waiting.push_back(in_flight),
                None => lanes.push(Lane { id, waiting: [in_flight].into(), is_held: false }),
            }
        }
        true
    }
}

impl SimulatedLanes {
    /// Returns whether a record can begin.
    pub(super) fn is_ready(&self) -> bool {
        self.0.lock().unwrap().iter().any(Lane::is_ready)
    }

    /// Takes the first record of a ready lane. The lane's turn is that of the record.
    pub(super) fn take(
        self: &Arc<Self>,
        random: &mut Random,
    ) -> Option<(LaneId, InFlight, SimulatedTurn)> {
        let mut lanes = self.0.lock().unwrap();
        let ready: Vec<_> = (0..lanes.len()).filter(|at| lanes[*at].is_ready()).collect();
        let lane = &mut lanes[*random.pick(&ready)?];
        let in_flight = lane.waiting.pop_front()?;
        // Until the handler's call has returned.
        lane.is_held = true;
        let turn = SimulatedTurn { lanes: self.clone(), lane: lane.id.clone() };
        Some((lane.id.clone(), in_flight, turn))
    }

    /// Ends a turn.
    pub(super) fn release(&self, id: &LaneId) {
        let mut lanes = self.0.lock().unwrap();
        if let Some(at) = lanes.iter().position(|lane| lane.id == *id) {
            lanes[at].is_held = false;
            if lanes[at].waiting.is_empty() {
                lanes.remove(at);
            }
        }
    }

    /// Drops all waiting records, as at the end of a process.
    pub(super) fn clear(&self) {
        let lanes = std::mem::take(&mut *self.0.lock().unwrap());
        // Not under the lock, because a record can hold a turn.
        drop(lanes);
    }
}

impl Lane {
    fn is_ready(&self) -> bool {
        !self.is_held && !self.waiting.is_empty()
    }
}

/// The turn while a handler is called, and whether it was kept.
pub(super) struct CalledTurn {
    turn: SimulatedTurn,
    pub(super) is_kept: bool,
}

impl CalledTurn {
    pub(super) fn new(turn: SimulatedTurn) -> Self {
        CalledTurn { turn, is_kept: false }
    }
}

impl LaneTurn for CalledTurn {
    fn keep(&mut self) -> KeyGuard {
        self.is_kept = true;
        let SimulatedTurn { lanes, lane } = &self.turn;
        KeyGuard::Batch(Box::new(KeptTurn { lanes: lanes.clone(), lane: lane.clone() }))
    }
}

impl LaneGuard for KeptTurn {}

impl Drop for KeptTurn {
    fn drop(&mut self) {
        self.lanes.release(&self.lane);
    }
}
