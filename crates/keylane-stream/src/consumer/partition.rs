//! State of an assigned partition: decides which records are admitted, tracks the records in
//! flight, and decides when progress is committed. Used by the coordinator thread only.

mod admission;
mod commits;
mod pauses;
mod results;
mod retries;
mod survey;

pub(super) use self::retries::OperatorRetries;

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use slab::Slab;

use super::assignment::Assignment;
use super::buffer::PartitionBuffer;
use super::failure::AttemptFailure;
use super::in_flight::{InFlight, RecordContext};
use super::operator_pauses::OperatorPauses;
use super::ordering::{LaneId, LaneSet, OrderBy, UnkeyedPolicy};
use super::status::{PendingRecord, WaitReason};
use super::stopped_lanes::{AdmittedLanes, StoppedLanes};
use crate::source::{CommitError, PartitionAssignment};
use crate::tracker::{OffsetMapLimit, Tracker};
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
            key: self.context.delivered.record.key.as_deref().map(<[u8]>::to_vec),
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

    use super::super::worker_event::{FailedAttempt, FailureAction};
    use super::*;
    use crate::tracker::Progress;
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
                let (AdmittedRecord::Lanes(_, in_flight) | AdmittedRecord::Rejected(in_flight, _)) =
                    admitted;
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
