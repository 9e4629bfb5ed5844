//! State of an assigned partition: decides which records are admitted, tracks the records in
//! flight, and decides when progress is committed. Used by the coordinator thread only.

mod pauses;
mod retries;

pub(super) use self::retries::OperatorRetries;

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use slab::Slab;

use super::assignment::Assignment;
use super::buffer::{BufferItem, PartitionBuffer};
use super::failure::AttemptFailure;
use super::in_flight::{InFlight, RecordContext};
use super::operator_pauses::OperatorPauses;
use super::ordering::{LaneId, LaneSet, OrderBy, RecordLane, UnkeyedPolicy};
use super::status::{PartitionStatus, PauseReason, PendingRecord, WaitReason};
use super::stopped_lanes::{AdmittedLanes, StoppedLanes};
use super::worker_event::{FailedAttempt, FailureAction};
use crate::source::{CommitError, PartitionAssignment};
use crate::tracker::{OffsetMapLimit, Progress, TakeOutcome, Tracker};
use crate::{DeliveredRecord, Position};

/// Estimated memory per record in addition to its key, payload and headers, in bytes.
const RECORD_OVERHEAD_BYTES: usize = 256;

/// Pause after a commit that the source has refused for now.
const COMMIT_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum time that a source is paused while the partition has some room.
const MAX_PAUSE: Duration = Duration::from_millis(100);

/// Maximum number of blocked records in a status.
const MAX_BLOCKED_LISTED: usize = 20;

/// Capacity of the slab of in-flight records that is kept while none is in flight: the default
/// limit on records in flight.
const MAX_IDLE_CAPACITY: usize = 4096;

/// Limits on the records in flight of one partition.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlightLimits {
    pub(super) records: usize,
    pub(super) bytes: usize,
}

/// Rules by which records are admitted.
#[derive(Clone, Copy, Debug)]
pub(super) struct AdmissionRules<'a> {
    pub(super) order: &'a OrderBy,
    pub(super) unkeyed: UnkeyedPolicy,
    pub(super) limits: InFlightLimits,
    pub(super) pauses: &'a OperatorPauses,
}

/// An assigned partition.
#[derive(Debug)]
pub(super) struct PartitionState {
    pub(super) assignment: Arc<Assignment>,
    tracker: Tracker,
    limit: OffsetMapLimit,
    /// Records that were delivered and are not admitted yet.
    buffer: PartitionBuffer,
    /// Admitted records that are not complete, at the index in their [`RecordContext`].
    in_flight: Slab<InFlightEntry>,
    /// Estimated memory of the records in flight, in bytes.
    bytes: usize,
    /// Stopped lanes, each with the position of the record that stopped it.
    stopped: HashMap<LaneId, Position>,
    /// Number of records in flight that have stopped, or wait behind one that has.
    pub(super) stuck: usize,
    /// Number of records in flight that the operator has paused.
    paused_records: usize,
    /// The operator has paused the partition or its topic.
    is_held: bool,
    /// Time at which the source was told to pause this partition.
    pub(super) paused: Option<Instant>,
    /// The source has reported that no record will follow.
    pub(super) exhausted: bool,
    /// The partition is in revocation: no attempt starts.
    pub(super) closing: bool,
    /// Time of the last completion, or of the admission after an idle period.
    moved_at: Instant,
    /// One past the last delivered position.
    arrived: Position,
    /// The delivered position at which a status has seen the source ahead, and the time of that
    /// status.
    behind: Cell<Option<(Position, Instant)>>,
    pub(super) commit: CommitState,
}

/// Commit progress of a partition.
#[derive(Debug)]
pub(super) struct CommitState {
    /// Version of the progress: incremented by each change.
    version: u64,
    /// Version that was last committed.
    committed_version: u64,
    /// Version and watermark of the commit in progress.
    pending: Option<(u64, Position)>,
    /// Error of the last commit, if it failed.
    refused: Option<CommitError>,
    committed: Position,
    /// Time of the first change that is not committed.
    uncommitted_since: Option<Instant>,
    pub(super) started_at: Instant,
    /// Number of records completed since the last commit started.
    pub(super) completed: u64,
}

/// An admitted record that is not complete.
#[derive(Debug)]
struct InFlightEntry {
    context: Arc<RecordContext>,
    taken_at: Instant,
    /// Estimated memory, in bytes.
    bytes: usize,
    /// State after a failure. `None` for most records: no attempt has failed.
    failed_state: Option<Box<FailedState>>,
    /// Lanes, if the record can have several.
    lanes: Option<Box<AdmittedLanes>>,
    /// The pool has not got the record, because its key had stopped.
    is_unsent: bool,
}

/// State of a record whose last attempt has failed.
#[derive(Debug)]
struct FailedState {
    /// Number of the last failed attempt.
    failed: u32,
    failure: Option<Arc<AttemptFailure>>,
    state: RecordState,
}

/// Progress of a record in flight.
#[derive(Debug)]
enum RecordState {
    Running,
    Retry(Instant),
    DeadLetter(Option<String>),
    /// It has stopped its lane, and keeps its turn while the partition is assigned.
    Stopped(Option<Box<InFlight>>),
    Behind(Position),
}

/// An admitted record and its lane.
#[derive(Debug)]
pub(super) enum AdmittedRecord {
    Lanes(LaneSet, InFlight),
    Unordered(InFlight),
    Rejected(InFlight, AttemptFailure),
}

impl PartitionState {
    pub(super) fn new(
        assigned: &PartitionAssignment,
        assignment: Arc<Assignment>,
        now: Instant,
    ) -> Self {
        PartitionState {
            assignment,
            tracker: Tracker::resume(&assigned.progress, assigned.limit),
            limit: assigned.limit,
            buffer: PartitionBuffer::default(),
            in_flight: Slab::new(),
            bytes: 0,
            stopped: HashMap::new(),
            stuck: 0,
            paused_records: 0,
            is_held: false,
            paused: None,
            exhausted: false,
            closing: false,
            moved_at: now,
            arrived: assigned.progress.watermark(),
            behind: Cell::new(None),
            commit: CommitState {
                version: 0,
                committed_version: 0,
                pending: None,
                refused: None,
                committed: assigned.progress.watermark(),
                uncommitted_since: None,
                started_at: now,
                completed: 0,
            },
        }
    }

    pub(super) fn push_records(&mut self, records: Vec<DeliveredRecord>) {
        if !self.closing {
            if let Some(last) = records.last() {
                self.arrived = last.position.next();
            }
            self.buffer.push_records(records);
        }
    }

    pub(super) fn reached(&mut self, position: Position) {
        if !self.closing {
            self.arrived = self.arrived.max(position);
            self.buffer.push_reached(position);
        }
    }

    /// Starts the revocation: drops the buffered records, and lets no attempt start. The source
    /// delivers the dropped records to the next assignment.
    pub(super) fn close(&mut self) {
        self.closing = true;
        self.assignment.close();
        self.buffer.clear();
    }

    /// Returns the limit or the pause that keeps the next buffered record from being admitted, if any.
    pub(super) fn paused_by(&self, limits: InFlightLimits) -> Option<PauseReason> {
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
    pub(super) fn may_pause(&self) -> bool {
        let is_wanted = self.has_buffered() || self.is_held && !self.closing;
        self.paused.is_none() && is_wanted
    }

    /// Returns whether a paused source may resume: when half of the limits is free, or, after
    /// [`MAX_PAUSE`], as soon as there is any room. Resuming at the first free slot costs some
    /// sources more than a record; but records behind a stopped key may hold more than half of the
    /// limits for ever.
    pub(super) fn may_resume(&self, limits: InFlightLimits, now: Instant) -> bool {
        let Some(since) = self.paused else { return false };
        let (records, bytes) = (self.in_flight.len(), self.bytes);
        let much = records <= limits.records / 2 && bytes <= limits.bytes / 2;
        let any = records < limits.records && bytes < limits.bytes;
        let has_room = much || any && now - since >= MAX_PAUSE;
        self.buffer.is_empty() && !self.is_held && has_room
    }

    pub(super) fn has_buffered(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// Returns whether no record can make progress any more: the source is exhausted, and all
    /// records in flight are stuck.
    pub(super) fn is_finished(&self, limits: InFlightLimits) -> bool {
        // Buffered records of a paused partition are handled after its resume.
        let is_full = !self.is_held && self.paused_by(limits).is_some();
        let no_more = self.buffer.is_empty() || is_full;
        self.exhausted && no_more && self.in_flight.len() == self.stuck
    }

    /// Admits buffered records within the limits. Returns the number of records that were complete
    /// already.
    pub(super) fn admit(
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
            RecordLane::Set(claims) => {
                entry.lanes = Some(held.admit(&claims));
                entry.mark(held, &mut self.stuck);
                AdmittedRecord::Lanes(LaneSet::Many(claims), in_flight)
            }
            RecordLane::Unordered => AdmittedRecord::Unordered(in_flight),
            RecordLane::Rejected(why) => AdmittedRecord::Rejected(in_flight, why),
        })
    }

    /// Marks a record as complete. Returns `false` if it was complete before; then nothing changes.
    pub(super) fn completed(&mut self, position: Position, index: usize, now: Instant) -> bool {
        // The slab may have reused the index. A position is admitted once per assignment, so it
        // identifies the entry.
        if self.in_flight.get(index).is_none_or(|entry| entry.position() != position) {
            return false;
        }
        let done = self.tracker.complete(position);
        debug_assert!(done.is_ok(), "a record with an entry is admitted and incomplete");
        let entry = self.in_flight.remove(index);
        // With a limit per key it can have begun before its key stopped.
        self.stuck -= usize::from(matches!(entry.state(), RecordState::Behind(_)));
        self.paused_records -= usize::from(entry.context.is_paused());
        self.bytes -= entry.bytes;
        if self.in_flight.is_empty() && self.in_flight.capacity() > MAX_IDLE_CAPACITY {
            // Release the memory of a burst.
            self.in_flight = Slab::new();
        }
        self.moved_at = now;
        self.commit.changed(now);
        self.commit.completed += 1;
        true
    }

    /// Records the failure of an attempt.
    pub(super) fn failed(&mut self, failed: FailedAttempt, order: (&OrderBy, UnkeyedPolicy)) {
        // The slab may have reused the index; the context identifies the entry.
        let entry = self.in_flight.get_mut(failed.context.index);
        let entry = entry.filter(|entry| Arc::ptr_eq(&entry.context, &failed.context));
        let Some(entry) = entry else { return };
        let state = match failed.then {
            FailureAction::Retry(at) => RecordState::Retry(at),
            // The completion follows as the next event.
            FailureAction::Skip => RecordState::Running,
            FailureAction::DeadLetter => RecordState::DeadLetter(None),
            FailureAction::DeadLetterRefused(why) => RecordState::DeadLetter(Some(why)),
            FailureAction::StopKey(record) | FailureAction::StopAll(record) => {
                RecordState::Stopped(record)
            }
        };
        let stopped = matches!(state, RecordState::Stopped(_));
        self.stuck -= usize::from(matches!(entry.state(), RecordState::Behind(_)));
        let failure = Some(failed.failure);
        entry.failed_state = Some(Box::new(FailedState { failed: failed.attempt, failure, state }));
        if stopped {
            self.stuck += 1;
            self.stop_lane(&failed.context, order);
        }
    }

    /// Marks the records behind a stopped record as blocked.
    fn stop_lane(&mut self, stopped: &RecordContext, (order, unkeyed): (&OrderBy, UnkeyedPolicy)) {
        let slot = self.assignment.slot;
        let lane = |context: &RecordContext| match order.lane_of(&context.delivered, slot, unkeyed)
        {
            RecordLane::Lane(lane) => Some(lane),
            RecordLane::Set(_) | RecordLane::Unordered | RecordLane::Rejected(_) => None,
        };
        let Some(stopped_lane) = lane(stopped) else { return };
        let position = stopped.delivered.position;
        for (_, entry) in &mut self.in_flight {
            let is_behind = entry.context.delivered.position > position;
            if is_behind && lane(&entry.context).as_ref() == Some(&stopped_lane) {
                entry.context.hold();
                // With a limit per key it can have failed already, and then runs again.
                if matches!(entry.state(), RecordState::Running) {
                    entry.failed_state_mut().state = RecordState::Behind(position);
                    self.stuck += 1;
                }
            }
        }
        self.stopped.insert(stopped_lane, position);
    }

    /// Returns the lanes of the records in flight.
    pub(super) fn lanes(&self, (order, unkeyed): (&OrderBy, UnkeyedPolicy)) -> HashSet<LaneId> {
        let slot = self.assignment.slot;
        let lanes = self.entries().flat_map(|entry| {
            match order.lane_of(&entry.context.delivered, slot, unkeyed) {
                RecordLane::Lane(lane) => vec![lane],
                RecordLane::Set(claims) => claims.exclusive,
                RecordLane::Unordered | RecordLane::Rejected(_) => Vec::new(),
            }
        });
        lanes.collect()
    }

    /// Returns the records in flight with several lanes: the number of each in the order of all partitions,
    /// and its index here.
    pub(super) fn admitted(&self) -> impl Iterator<Item = (u64, usize)> {
        let number = |(index, entry): (usize, &InFlightEntry)| {
            entry.lanes.as_ref().map(|lanes| (lanes.number, index))
        };
        self.in_flight.iter().filter_map(number)
    }

    /// Marks a record as waiting for a stopped one, or not, and adds its lanes to the held ones if so.
    /// Called in the order of all partitions.
    pub(super) fn mark(&mut self, index: usize, held: &mut StoppedLanes) {
        if let Some(entry) = self.in_flight.get_mut(index) {
            entry.mark(held, &mut self.stuck);
        }
    }

    /// Returns the progress to commit.
    fn progress(&self) -> Progress {
        self.tracker.progress().shortened(self.limit)
    }

    /// Returns the earliest time of the next commit, or `None` if there is nothing to commit, a
    /// commit is in progress, or the partition was lost.
    pub(super) fn committable_at(&self) -> Option<Instant> {
        if self.is_committing() || !self.has_uncommitted() {
            return None;
        }
        let started_at = self.commit.started_at;
        match self.commit.refused {
            Some(CommitError::NotOurs) => None,
            Some(CommitError::Later(_)) => Some(started_at + COMMIT_RETRY_INTERVAL),
            Some(CommitError::TooLong) | None => Some(started_at),
        }
    }

    /// Returns the time at which the next commit is due: `every` after the last one, or at once
    /// after `after_records` completions. `None` if no commit is possible, or the time exceeds the
    /// clock's range.
    pub(super) fn commit_due_at(&self, every: Duration, after_records: u64) -> Option<Instant> {
        let CommitState { started_at, completed, .. } = self.commit;
        let committable_at = self.committable_at()?;
        let enough = completed >= after_records;
        let wanted_at = if enough { started_at } else { started_at.checked_add(every)? };
        Some(wanted_at.max(committable_at))
    }

    /// Starts a commit if one is possible at `now`, and returns the progress to commit.
    pub(super) fn start_commit(&mut self, now: Instant) -> Option<Progress> {
        if self.committable_at().is_none_or(|at| now < at) {
            return None;
        }
        let progress = self.progress();
        self.commit.pending = Some((self.commit.version, progress.watermark()));
        self.commit.started_at = now;
        self.commit.completed = 0;
        Some(progress)
    }

    /// Records the result of the commit in progress.
    pub(super) fn committed(&mut self, result: &Result<(), CommitError>) {
        let Some((version, watermark)) = self.commit.pending.take() else { return };
        self.commit.refused = result.clone().err();
        match result {
            Ok(()) => {
                self.commit.committed_version = version;
                let is_saved = version == self.commit.version;
                self.commit.uncommitted_since = (!is_saved).then_some(self.commit.started_at);
                self.commit.committed = watermark;
            }
            Err(CommitError::TooLong) => self.shorten_map(),
            Err(_) => {}
        }
    }

    /// Returns whether there is nothing to commit, or no commit can succeed.
    pub(super) fn has_nothing_to_commit(&self) -> bool {
        !self.is_committing() && self.committable_at().is_none()
    }

    pub(super) fn has_uncommitted(&self) -> bool {
        self.commit.version != self.commit.committed_version
    }

    pub(super) fn is_committing(&self) -> bool {
        self.commit.pending.is_some()
    }

    /// Returns whether completing the records in flight could make a commit due.
    pub(super) fn can_reach_commit(&self, after_records: u64) -> bool {
        let can_end = self.in_flight.len() as u64;
        !self.is_committing() && self.commit.completed.saturating_add(can_end) >= after_records
    }

    /// Halves the limit of the map after the source has refused the map as too long.
    fn shorten_map(&mut self) {
        let half = (self.limit.get() / 2).max(OffsetMapLimit::MIN_CHARACTERS);
        self.limit = OffsetMapLimit::characters(half).unwrap_or(self.limit);
        self.tracker.set_limit(self.limit);
    }

    pub(super) fn status(
        &self,
        limits: InFlightLimits,
        end: Option<Position>,
        resolving_since: Option<Instant>,
        now: Instant,
    ) -> PartitionStatus {
        let (mut blocked, mut oldest) = (Vec::new(), None);
        for entry in self.entries() {
            if entry.is_blocked() {
                blocked.push(entry);
            }
            if entry.position() == self.tracker.watermark() {
                oldest = Some(entry);
            }
        }
        blocked.sort_unstable_by_key(|entry| entry.position());
        let blocked_count = blocked.len();
        let listed = blocked.into_iter().take(MAX_BLOCKED_LISTED);
        let without_progress = if self.is_moving(limits) {
            now.saturating_duration_since(self.moved_at)
        } else if self.is_held {
            Duration::ZERO
        } else {
            let resolving = resolving_since.map(|since| now.saturating_duration_since(since));
            self.waits_for_source(end, now).max(resolving.unwrap_or_default())
        };
        let uncommitted_since = self.commit.uncommitted_since;
        PartitionStatus {
            partition: self.assignment.partition.clone(),
            epoch: self.assignment.epoch,
            committed: self.commit.committed,
            watermark: self.tracker.watermark(),
            highest_done: self.tracker.end(),
            end,
            in_flight: self.in_flight.len(),
            running: self.assignment.running(),
            bytes: self.bytes,
            buffered: self.buffer.records(),
            paused_records: self.paused_records,
            paused_by: self.paused_by(limits),
            oldest: oldest.map(|entry| entry.status(now)),
            blocked: listed.map(|entry| entry.status(now)).collect(),
            blocked_count,
            without_progress,
            uncommitted: uncommitted_since
                .map_or(Duration::ZERO, |since| now.saturating_duration_since(since)),
        }
    }

    /// Returns for how long statuses have seen that the source is ahead of the delivered records
    /// while the partition is not paused.
    fn waits_for_source(&self, end: Option<Position>, now: Instant) -> Duration {
        let is_behind = end.is_some_and(|end| end > self.arrived) && self.paused.is_none();
        let same = self.behind.get().filter(|(arrived, _)| *arrived == self.arrived);
        let behind = (is_behind && !self.closing).then(|| same.unwrap_or((self.arrived, now)));
        self.behind.set(behind);
        behind.map_or(Duration::ZERO, |(_, since)| now.saturating_duration_since(since))
    }

    /// Returns the records that have stopped their lanes.
    pub(super) fn stopped(&self, now: Instant) -> impl Iterator<Item = PendingRecord> {
        let stopped = |entry: &&InFlightEntry| matches!(entry.state(), RecordState::Stopped(_));
        self.entries().filter(stopped).map(move |entry| entry.status(now))
    }

    fn entries(&self) -> impl Iterator<Item = &InFlightEntry> {
        self.in_flight.iter().map(|(_, entry)| entry)
    }
}

impl CommitState {
    /// Records a change of the progress.
    fn changed(&mut self, now: Instant) {
        self.version += 1;
        self.uncommitted_since.get_or_insert(now);
    }
}

impl InFlightEntry {
    fn position(&self) -> Position {
        self.context.delivered.position
    }

    fn state(&self) -> &RecordState {
        self.failed_state.as_ref().map_or(&RecordState::Running, |failed_state| &failed_state.state)
    }

    fn mark(&mut self, held: &mut StoppedLanes, stuck: &mut usize) {
        let Some(lanes) = self.lanes.take() else { return };
        let position = self.position();
        let holder = match self.state() {
            RecordState::Stopped(_) => Some(position),
            _ => held.holder(&lanes.claims),
        };
        match (self.state(), holder) {
            (RecordState::Running, Some(stopped)) => {
                if held.is_limited {
                    self.context.hold();
                }
                self.failed_state_mut().state = RecordState::Behind(stopped);
                *stuck += 1;
            }
            (RecordState::Behind(_), None) => {
                self.context.unhold();
                self.failed_state_mut().state = RecordState::Running;
                *stuck -= 1;
            }
            _ => {}
        }
        if let Some(stopped) = holder {
            held.hold(&lanes.claims, stopped);
        }
        self.lanes = Some(lanes);
    }

    fn is_blocked(&self) -> bool {
        !matches!(self.state(), RecordState::Running) || self.context.is_parked()
    }

    fn failed_state_mut(&mut self) -> &mut FailedState {
        let none =
            || Box::new(FailedState { failed: 0, failure: None, state: RecordState::Running });
        self.failed_state.get_or_insert_with(none)
    }

    fn status(&self, now: Instant) -> PendingRecord {
        let failure =
            self.failed_state.as_ref().and_then(|failed_state| failed_state.failure.as_ref());
        PendingRecord {
            position: self.position(),
            key: self.context.delivered.record.key.clone(),
            age: now.saturating_duration_since(self.taken_at),
            failed_attempts: self
                .failed_state
                .as_ref()
                .map_or(0, |failed_state| failed_state.failed),
            failure: failure.map(ToString::to_string),
            reason: match self.state() {
                RecordState::Running | RecordState::Retry(_) if self.context.is_parked() => {
                    WaitReason::Paused
                }
                RecordState::Retry(at) if *at > now => WaitReason::Retry { within: *at - now },
                RecordState::Running | RecordState::Retry(_) => WaitReason::Running,
                RecordState::DeadLetter(refused) => {
                    WaitReason::DeadLetter { refused: refused.clone() }
                }
                RecordState::Stopped(_) => WaitReason::Stopped,
                RecordState::Behind(position) => WaitReason::BehindStopped(*position),
            },
        }
    }
}

fn weight(delivered: &DeliveredRecord) -> usize {
    RECORD_OVERHEAD_BYTES + delivered.record.weight()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::{Partition, Record};

    const LIMITS: InFlightLimits = InFlightLimits { records: 10, bytes: usize::MAX };

    fn admit(state: &mut PartitionState, offset: u64) -> InFlight {
        let record = Record::new("ann", "x");
        let position = Position::new(offset);
        state.push_records(vec![DeliveredRecord {
            position,
            written: SystemTime::UNIX_EPOCH,
            record,
        }]);
        let mut taken = None;
        state.admit(
            AdmissionRules {
                order: &OrderBy::Key,
                unkeyed: UnkeyedPolicy::default(),
                limits: LIMITS,
                pauses: &OperatorPauses::default(),
            },
            &mut StoppedLanes::default(),
            Instant::now(),
            |admitted| {
                let (AdmittedRecord::Lanes(_, in_flight)
                | AdmittedRecord::Unordered(in_flight)
                | AdmittedRecord::Rejected(in_flight, _)) = admitted;
                taken = Some(in_flight);
            },
        );
        taken.unwrap()
    }

    #[test]
    fn a_partition_whose_next_position_is_looked_for_makes_no_progress() {
        let partition = Partition::new("t", 0);
        let progress = Progress::up_to(Position::ZERO);
        let limit = OffsetMapLimit::characters(4096).unwrap();
        let assigned = PartitionAssignment { partition: partition.clone(), progress, limit };
        let now = Instant::now();
        let state = PartitionState::new(&assigned, Assignment::new(partition, 0, 1), now);
        let later = now + Duration::from_secs(60);
        // The end is unknown, as without a leader.
        assert_eq!(state.status(LIMITS, None, None, later).without_progress, Duration::ZERO);
        let status = state.status(LIMITS, None, Some(now), later);
        assert_eq!(status.without_progress, Duration::from_secs(60));
    }

    #[test]
    fn a_late_event_of_a_record_does_not_change_the_record_that_reuses_its_index() {
        let partition = Partition::new("t", 0);
        let progress = Progress::up_to(Position::ZERO);
        let limit = OffsetMapLimit::characters(4096).unwrap();
        let assigned = PartitionAssignment { partition: partition.clone(), progress, limit };
        let now = Instant::now();
        let mut state = PartitionState::new(&assigned, Assignment::new(partition, 0, 1), now);
        let first = admit(&mut state, 0);
        let (position, index) = (first.context.delivered.position, first.context.index);
        assert!(state.completed(position, index, now));
        let second = admit(&mut state, 1);
        assert_eq!(second.context.index, index, "the index is used again");
        let before = (state.progress().watermark(), state.bytes, state.commit.version);

        let failure = Arc::new(AttemptFailure::from("late"));
        let (context, then) = (first.context.clone(), FailureAction::StopKey(None));
        state.failed(
            FailedAttempt { context, attempt: 1, failure, then },
            (&OrderBy::Key, UnkeyedPolicy::default()),
        );
        assert!(!state.completed(position, index, now));
        assert_eq!((state.progress().watermark(), state.bytes, state.commit.version), before);
        let status = state.status(LIMITS, None, None, now);
        assert_eq!((status.in_flight, status.blocked_count, state.stuck), (1, 0, 0));
        assert_eq!(status.oldest.unwrap().position, second.context.delivered.position);

        assert!(state.completed(second.context.delivered.position, index, now));
        // The index is free now.
        assert!(!state.completed(second.context.delivered.position, index, now));
        assert_eq!(state.bytes, 0);
    }
}
