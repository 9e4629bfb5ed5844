//! Retries on demand of the operator: records that wait for their next attempt, and stopped records
//! with those behind them.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use super::super::in_flight::{InFlight, RecordContext};
use super::super::ordering::{LaneId, LaneSet, OrderBy, RecordLane, UnkeyedPolicy};
use super::super::target::Target;
use super::{PartitionState, RecordState};
use crate::DeliveredRecord;

/// Records that get an attempt at once, and what follows from it.
#[derive(Debug, Default)]
pub(in crate::consumer) struct OperatorRetries {
    /// Records that waited for their next attempt, with the numbers of their failed attempts.
    pub(in crate::consumer) waiting: Vec<(Arc<RecordContext>, u32)>,
    /// Records that had stopped their keys, with the turns of their lanes.
    pub(in crate::consumer) stopped: Vec<InFlight>,
    /// Records behind these that the pool has not got, in the order of their partitions.
    pub(in crate::consumer) behind: Vec<(LaneSet, InFlight)>,
}

impl PartitionState {
    /// Lets the records of a target that wait for their next attempt, or have stopped their keys, be
    /// tried again. Adds them, and those behind them, to `retries`.
    pub(in crate::consumer) fn retry(
        &mut self,
        target: &Target,
        (order, unkeyed): (&OrderBy, UnkeyedPolicy),
        now: Instant,
        retries: &mut OperatorRetries,
    ) {
        let slot = self.assignment.slot;
        let mut lanes = HashSet::new();
        for (_, entry) in &mut self.in_flight {
            let Some(failed) = entry.failed_state.as_mut() else { continue };
            let delivered = &entry.context.delivered;
            let lane = order.lane_of(delivered, slot, unkeyed);
            match &mut failed.state {
                RecordState::Retry(at) if *at > now && is_of(target, order, delivered, &lane) => {
                    *at = now;
                    retries.waiting.push((entry.context.clone(), failed.failed));
                }
                // A record that was rejected without an attempt has no turn, and gets none.
                RecordState::Stopped(Some(stopped))
                    if stopped.turn.is_some() && is_of(target, order, delivered, &lane) =>
                {
                    let stopped = std::mem::replace(&mut failed.state, RecordState::Running);
                    let RecordState::Stopped(Some(stopped)) = stopped else { continue };
                    retries.stopped.push(*stopped);
                    self.stuck -= 1;
                    self.moved_at = now;
                    lanes.extend(match lane {
                        RecordLane::Lane(lane) => Some(lane),
                        RecordLane::Set(_) | RecordLane::Unordered | RecordLane::Rejected(_) => {
                            None
                        }
                    });
                }
                _ => {}
            }
        }
        if !lanes.is_empty() {
            self.release_lanes(&lanes, (order, unkeyed), retries);
        }
    }

    /// Lets the records behind stopped ones wait for their turns again.
    fn release_lanes(
        &mut self,
        lanes: &HashSet<LaneId>,
        (order, unkeyed): (&OrderBy, UnkeyedPolicy),
        retries: &mut OperatorRetries,
    ) {
        self.stopped.retain(|lane, _| !lanes.contains(lane));
        let mut behind = Vec::new();
        for (_, entry) in &mut self.in_flight {
            let RecordLane::Lane(lane) =
                order.lane_of(&entry.context.delivered, self.assignment.slot, unkeyed)
            else {
                continue;
            };
            if !lanes.contains(&lane) {
                continue;
            }
            entry.context.unhold();
            if matches!(entry.state(), RecordState::Behind(_)) {
                entry.failed_state_mut().state = RecordState::Running;
                self.stuck -= 1;
            }
            if std::mem::take(&mut entry.is_unsent) {
                let in_flight = InFlight::of(entry.context.clone());
                behind.push((entry.position(), LaneSet::One(lane), in_flight));
            }
        }
        behind.sort_unstable_by_key(|(position, ..)| *position);
        let behind = behind.into_iter().map(|(_, lanes, in_flight)| (lanes, in_flight));
        retries.behind.extend(behind);
    }
}

/// Returns whether a record of a partition that the target concerns belongs to it.
fn is_of(target: &Target, order: &OrderBy, delivered: &DeliveredRecord, lane: &RecordLane) -> bool {
    match target {
        Target::Topic(_) | Target::Partition(_) => true,
        Target::Key(key) => order.has_key(delivered, lane, |own| own == key),
    }
}
