//! Lanes of a simulated process: what the pool of the library is for a real consumer, as a state
//! machine on one thread.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use super::super::in_flight::InFlight;
use super::super::key_guard::{KeyGuard, LaneGuard, LaneTurn};
use super::super::ordering::{LaneId, LaneSet};
use super::super::record_lanes::RecordLanes;
use super::history::{Event, Place};
use super::settings::Settings;
use super::world::World;
use keylane_testkit::Random;

/// Lanes of a process.
#[derive(Debug)]
pub(super) struct SimulatedLanes {
    world: Arc<World>,
    member: usize,
    /// Whether a record replaces the one of its key that has not begun.
    is_latest: bool,
    /// Maximum number of records of a key that run at once.
    limit_per_key: usize,
    pace: Pace,
    state: Mutex<LaneState>,
}

/// Least times between the starts of all records, and of those of a lane, in microseconds.
#[derive(Debug)]
struct Pace {
    all: Option<u64>,
    of_lane: Option<u64>,
}

#[derive(Debug, Default)]
struct LaneState {
    /// Number of tasks so far.
    count: u64,
    /// Tasks that have not ended, in the order in which they were sent.
    tasks: Vec<LaneTask>,
    /// Records that run again, and hold their turns.
    retries: Vec<InFlight>,
    /// Time from which the next record may begin, and the next one of a lane.
    next_start: u64,
    next_of_lane: HashMap<LaneId, u64>,
}

#[derive(Debug)]
struct LaneTask {
    number: u64,
    lanes: LaneSet,
    /// Record, until it begins.
    record: Option<InFlight>,
}

/// Turn that lasts beyond the call of the handler.
#[derive(Debug)]
struct KeptTurn {
    lanes: Arc<SimulatedLanes>,
    number: u64,
}

impl RecordLanes for SimulatedLanes {
    fn send(&self, records: &mut Vec<(LaneSet, InFlight)>, replaced: &mut Vec<InFlight>) -> bool {
        let mut state = self.state.lock().unwrap();
        for (lanes, in_flight) in records.drain(..) {
            let earlier = match &lanes {
                LaneSet::One(lane @ LaneId::Key { .. }) if self.is_latest => state.last_of(lane),
                _ => None,
            };
            if let Some(record) = earlier {
                let earlier = std::mem::replace(record, in_flight);
                let (place, by) = (place_of(&earlier), place_of(record));
                self.world.record(Event::Replaced { member: self.member, place, by });
                replaced.push(earlier);
                continue;
            }
            state.count += 1;
            let number = state.count;
            state.tasks.push(LaneTask { number, lanes, record: Some(in_flight) });
        }
        true
    }

    fn retry(&self, in_flight: InFlight) {
        self.state.lock().unwrap().retries.push(in_flight);
    }

    fn withdraw(&self, lane: &LaneId) {
        let mut state = self.state.lock().unwrap();
        let waits = |task: &mut LaneTask| task.record.is_some() && task.own().contains(lane);
        let gone: Vec<_> = state.tasks.extract_if(.., waits).collect();
        drop(state);
        drop(gone);
    }

    fn has_rates(&self) -> bool {
        self.pace.all.is_some() || self.pace.of_lane.is_some()
    }

    fn stop(&self) {
        let state = std::mem::take(&mut *self.state.lock().unwrap());
        // Not under the lock, because a record can hold a turn.
        drop(state);
    }
}

fn place_of(in_flight: &InFlight) -> Place {
    let context = &in_flight.context;
    let partition = context.assignment.partition.number();
    Place { partition, position: context.delivered.position.get() }
}

impl SimulatedLanes {
    pub(super) fn new(world: Arc<World>, member: usize, settings: &Settings) -> Self {
        let Settings { is_latest, limit_per_key, .. } = *settings;
        let pace = Pace { all: settings.interval, of_lane: settings.interval_per_key };
        let state = Mutex::default();
        SimulatedLanes { world, member, is_latest, limit_per_key, pace, state }
    }

    /// Returns the time from which a record can begin, if no other event comes before.
    pub(super) fn next_at(&self) -> Option<u64> {
        let state = self.state.lock().unwrap();
        if !state.retries.is_empty() {
            return Some(0);
        }
        let ready = state.ready(self.limit_per_key);
        ready.into_iter().map(|index| state.begins_at(&state.tasks[index])).min()
    }

    /// Takes a record that can begin, with its turn.
    pub(super) fn take(self: &Arc<Self>, random: &mut Random) -> Option<(InFlight, CalledTurn)> {
        let mut state = self.state.lock().unwrap();
        let now = self.world.now();
        let mut ready = state.ready(self.limit_per_key);
        ready.retain(|index| state.begins_at(&state.tasks[*index]) <= now);
        let mut ready: Vec<_> = ready.into_iter().map(Some).collect();
        ready.extend((!state.retries.is_empty()).then_some(None));
        let (in_flight, number) = match random.pick(&ready)? {
            Some(index) => {
                state.charge(*index, now, &self.pace);
                let task = &mut state.tasks[*index];
                (task.record.take()?, Some(task.number))
            }
            None => (state.retries.remove(0), None),
        };
        Some((in_flight, CalledTurn { lanes: self.clone(), number }))
    }

    /// Ends a task.
    fn release(&self, number: u64) {
        self.state.lock().unwrap().tasks.retain(|task| task.number != number);
    }
}

impl LaneTask {
    /// Returns the lanes that it does not share.
    fn own(&self) -> &[LaneId] {
        match &self.lanes {
            LaneSet::One(lane) => std::slice::from_ref(lane),
            LaneSet::Many(lanes) => &lanes.exclusive,
        }
    }
}

impl LaneState {
    /// Returns the time from which the rates let a task begin.
    fn begins_at(&self, task: &LaneTask) -> u64 {
        let lanes = task.own().iter().filter_map(|lane| self.next_of_lane.get(lane)).copied();
        lanes.fold(self.next_start, u64::max)
    }

    /// Counts the start of a task for the rates.
    fn charge(&mut self, index: usize, now: u64, pace: &Pace) {
        if let Some(interval) = pace.all {
            self.next_start = now + interval;
        }
        if let Some(interval) = pace.of_lane {
            let lanes = self.tasks[index].own().iter().cloned();
            self.next_of_lane.extend(lanes.map(|lane| (lane, now + interval)));
        }
    }

    /// Returns the last record of a lane, if it has not begun.
    fn last_of(&mut self, lane: &LaneId) -> Option<&mut InFlight> {
        let is_of = |task: &&mut LaneTask| matches!(&task.lanes, LaneSet::One(one) if one == lane);
        self.tasks.iter_mut().rev().find(is_of)?.record.as_mut()
    }

    /// Returns the tasks that have not begun and conflict with no earlier one, or with fewer of their
    /// key than the limit.
    fn ready(&self, limit_per_key: usize) -> Vec<usize> {
        let (mut own, mut shared) = (HashSet::new(), HashSet::new());
        let mut counts: HashMap<_, usize> = HashMap::new();
        let mut ready = Vec::new();
        for (index, task) in self.tasks.iter().enumerate() {
            let is_free = match &task.lanes {
                LaneSet::One(lane @ LaneId::Key { .. }) if limit_per_key > 1 => {
                    counts.get(lane).is_none_or(|count| *count < limit_per_key)
                }
                LaneSet::One(lane) => !own.contains(lane) && !shared.contains(lane),
                LaneSet::Many(lanes) if lanes.is_barrier => index == 0,
                LaneSet::Many(lanes) => {
                    let is_own_free = |lane| !own.contains(lane) && !shared.contains(lane);
                    lanes.exclusive.iter().all(is_own_free)
                        && lanes.shared.iter().all(|lane| !own.contains(lane))
                }
            };
            if is_free && task.record.is_some() {
                ready.push(index);
            }
            match &task.lanes {
                LaneSet::One(lane) => {
                    own.insert(lane);
                    *counts.entry(lane).or_default() += 1;
                }
                LaneSet::Many(lanes) if lanes.is_barrier => break,
                LaneSet::Many(lanes) => {
                    own.extend(&lanes.exclusive);
                    shared.extend(&lanes.shared);
                }
            }
        }
        ready
    }
}

/// Turn of a record while its handler is called. It ends with the call, unless it is kept. A record that
/// runs again holds its own.
pub(super) struct CalledTurn {
    lanes: Arc<SimulatedLanes>,
    number: Option<u64>,
}

impl LaneTurn for CalledTurn {
    fn keep(&mut self) -> KeyGuard {
        let number = self.number.take().expect("a record that runs again holds its turn");
        KeyGuard::Batch(Box::new(KeptTurn { lanes: self.lanes.clone(), number }))
    }
}

impl Drop for CalledTurn {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.lanes.release(number);
        }
    }
}

impl LaneGuard for KeptTurn {}

impl Drop for KeptTurn {
    fn drop(&mut self) {
        self.lanes.release(self.number);
    }
}
