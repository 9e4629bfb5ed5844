//! Admission of records: those that were polled and wait, and those that limits and pauses let through.

use std::time::Instant;

use super::super::buffer::BufferItem;
use super::super::in_flight::InFlight;
use super::super::ordering::{LaneId, LaneSet, RecordLane};
use super::super::status::PauseReason;
use super::super::stopped_lanes::StoppedLanes;
use super::{
    AdmissionRules, AdmittedRecord, InFlightEntry, InFlightLimits, MAX_PAUSE, PartitionState,
    RecordState, weight,
};
use crate::tracker::TakeOutcome;
use crate::{DeliveredRecord, Position};

impl PartitionState {
    pub(in crate::consumer) fn push_records(&mut self, records: Vec<DeliveredRecord>) {
        if !self.closing {
            if let Some(last) = records.last() {
                self.arrived = last.position.next();
            }
            self.buffer.push_records(records);
        }
    }

    pub(in crate::consumer) fn reached(&mut self, position: Position) {
        if !self.closing {
            self.arrived = self.arrived.max(position);
            self.buffer.push_reached(position);
        }
    }

    /// Starts the revocation: drops the buffered records, and lets no attempt start. The source
    /// delivers the dropped records to the next assignment.
    pub(in crate::consumer) fn close(&mut self) {
        self.closing = true;
        self.assignment.close();
        self.buffer.clear();
    }

    /// Returns the limit or the pause that keeps the next buffered record from being admitted, if any.
    pub(in crate::consumer) fn paused_by(&self, limits: InFlightLimits) -> Option<PauseReason> {
        if self.closing {
            return Some(PauseReason::Closing);
        }
        if self.is_held {
            return Some(PauseReason::Operator);
        }
        self.buffer.next_record().and_then(|next| self.limit_for(next, limits))
    }

    fn limit_for(&self, next: &DeliveredRecord, limits: InFlightLimits) -> Option<PauseReason> {
        if self.in_flight.len() >= limits.records {
            Some(PauseReason::Records)
        } else if !self.in_flight.is_empty() && self.bytes + weight(next) > limits.bytes {
            Some(PauseReason::Bytes)
        } else if !self.tracker.may_take(next.position) {
            Some(PauseReason::Map)
        } else {
            None
        }
    }

    /// Returns whether the source is to be paused.
    pub(in crate::consumer) fn may_pause(&self) -> bool {
        let is_wanted = self.has_buffered() || self.is_held && !self.closing;
        self.paused.is_none() && is_wanted
    }

    /// Returns whether a paused source may resume: when half of the limits is free, or, after
    /// [`MAX_PAUSE`], as soon as there is any room. Resuming at the first free slot costs some
    /// sources more than a record; but records behind a stopped key may hold more than half of the
    /// limits for ever.
    pub(in crate::consumer) fn may_resume(&self, limits: InFlightLimits, now: Instant) -> bool {
        let Some(since) = self.paused else { return false };
        let (records, bytes) = (self.in_flight.len(), self.bytes);
        let much = records <= limits.records / 2 && bytes <= limits.bytes / 2;
        let any = records < limits.records && bytes < limits.bytes;
        let has_room = much || any && now - since >= MAX_PAUSE;
        self.buffer.is_empty() && !self.is_held && has_room
    }

    pub(in crate::consumer) fn has_buffered(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// Returns whether no record can make progress any more: the source is exhausted, and all
    /// records in flight are stuck.
    pub(in crate::consumer) fn is_finished(&self, limits: InFlightLimits) -> bool {
        // Buffered records of a paused partition are handled after its resume.
        let is_full = !self.is_held && self.paused_by(limits).is_some();
        let no_more = self.buffer.is_empty() || is_full;
        self.exhausted && no_more && self.in_flight.len() == self.stuck
    }

    /// Admits buffered records within the limits. Returns the number of records that were complete
    /// already.
    pub(in crate::consumer) fn admit(
        &mut self,
        rules: AdmissionRules<'_>,
        held: &mut StoppedLanes,
        now: Instant,
        mut each: impl FnMut(AdmittedRecord),
    ) -> u64 {
        let mut repeated = 0;
        while !self.closing && self.paused_by(rules.limits).is_none() {
            match self.buffer.pop() {
                None => break,
                Some(BufferItem::Reached(position)) => self.skip_to(position, now),
                Some(BufferItem::Record(delivered)) => {
                    match self.tracker.take(delivered.position) {
                        TakeOutcome::New => {
                            self.enter(delivered, rules, held, now).into_iter().for_each(&mut each);
                        }
                        TakeOutcome::Done => repeated += 1,
                        TakeOutcome::InFlight => {}
                    }
                }
            }
        }
        repeated
    }

    fn skip_to(&mut self, position: Position, now: Instant) {
        let before = self.tracker.watermark();
        self.tracker.skip_to(position);
        if self.tracker.watermark() != before {
            self.commit.changed(now);
        }
    }

    fn enter(
        &mut self,
        delivered: DeliveredRecord,
        AdmissionRules { order, unkeyed, pauses, .. }: AdmissionRules<'_>,
        held: &mut StoppedLanes,
        now: Instant,
    ) -> Option<AdmittedRecord> {
        let waits_for_operator = self.paused_records > 0 && self.assignment.running() == 0;
        if self.in_flight.len() == self.stuck || waits_for_operator {
            self.moved_at = now;
        }
        let bytes = weight(&delivered);
        self.bytes += bytes;
        let lane = order.lane_of(&delivered, self.assignment.slot, unkeyed);
        let is_paused = pauses.holds_record(order, &delivered, &lane);
        let entry = self.in_flight.vacant_entry();
        let in_flight = InFlight::new(self.assignment.clone(), delivered, entry.key());
        let context = in_flight.context.clone();
        let (slot, position) = (self.assignment.slot, context.delivered.position);
        // Keeps a record that is delivered again from its own earlier attempt, where no other lane does.
        let own_lane = || LaneId::Record { slot, position };
        context.set_paused(is_paused);
        self.paused_records += usize::from(is_paused);
        let entry = entry.insert(InFlightEntry {
            context,
            taken_at: now,
            bytes,
            failed_state: None,
            lanes: None,
            is_unsent: false,
        });
        if let RecordLane::Lane(lane) = &lane
            && !self.stopped.is_empty()
            && let Some(stopped) = self.stopped.get(lane)
        {
            entry.failed_state_mut().state = RecordState::Behind(*stopped);
            entry.is_unsent = true;
            self.stuck += 1;
            return None;
        }
        Some(match lane {
            RecordLane::Lane(lane) => AdmittedRecord::Lanes(LaneSet::One(lane), in_flight),
            RecordLane::Set(mut claims) => {
                entry.lanes = Some(held.admit(&claims));
                entry.mark(held, &mut self.stuck);
                if claims.exclusive.is_empty() && !claims.is_barrier {
                    claims.exclusive.push(own_lane());
                }
                AdmittedRecord::Lanes(LaneSet::Many(claims), in_flight)
            }
            RecordLane::Unordered => AdmittedRecord::Lanes(LaneSet::One(own_lane()), in_flight),
            RecordLane::Rejected(why) => AdmittedRecord::Rejected(in_flight, why),
        })
    }
}
