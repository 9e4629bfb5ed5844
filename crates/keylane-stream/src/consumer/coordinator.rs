//! Coordinator thread: polls the source, tracks completion per partition, and commits offsets. The
//! [module](super) documentation has the protocol.

mod admission;
mod commits;
mod operator;
mod revocations;
mod source_events;
mod waits;
mod worker_events;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::assignment::Assignment;

use super::event::{AfterFailure, ConsumerEvent};

use super::in_flight::InFlight;
use super::operator_pauses::OperatorPauses;
use super::ordering::{LaneSet, OrderBy, UnkeyedPolicy};
use super::partition::{InFlightLimits, PartitionState};
use super::record_lanes::RecordLanes;
use super::revocation::Revocation;
use super::shared::ConsumerShared;
use super::status::{ConsumerCounts, ConsumerStatus};
use super::stopped_lanes::StoppedLanes;
use super::worker_event::{FailureAction, WorkerEvent};
use super::{ShutdownReport, StopReason, StoppedKey};
use crate::Partition;
use crate::source::{Source, SourceEvent};

/// Timeout of attempts whose end was forced. A process that was killed ends within it, unless the
/// kernel holds it; it runs no code of its own any more.
const FORCED_END_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout of [`Source::close`].
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Minimum timeout of [`Source::close`] when the shutdown deadline has passed.
const MIN_CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Callback for [`ConsumerEvent`]s.
pub(super) type EventHook = dyn Fn(&ConsumerEvent) + Send;

/// Settings of a coordinator, fixed when the consumer starts.
pub(super) struct CoordinatorConfig {
    pub(super) order: OrderBy,
    /// Records of a key can run together.
    pub(super) has_limits: bool,
    pub(super) unkeyed: UnkeyedPolicy,
    /// Limits of each partition.
    pub(super) limits: InFlightLimits,
    pub(super) commit_every: Duration,
    pub(super) commit_after: u64,
    pub(super) shutdown_timeout: Duration,
    /// Last part of a timeout of running attempts, in which they are asked to end.
    pub(super) cancel_grace: Duration,
    pub(super) on_event: Option<Box<EventHook>>,
}

/// Next wait of the coordinator.
#[derive(Clone, Copy, Debug)]
pub(super) struct NextWait {
    pub(super) what: WaitFor,
    /// Maximum duration.
    pub(super) timeout: Duration,
}

/// What ends a wait of the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitFor {
    /// An event of the source.
    Source,
    /// An event in the mailbox.
    Workers,
    /// Either.
    Both,
}

/// Why partitions are fenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FenceCause {
    /// The time of their attempts is over.
    Released,
    /// Other members may have them. Their cancelled attempts are awaited after the fence.
    Lost,
}

/// State of the coordinator thread. No other thread accesses it.
pub(super) struct Coordinator {
    source: Box<dyn Source>,
    lanes: Arc<dyn RecordLanes>,
    shared: Arc<ConsumerShared>,
    config: CoordinatorConfig,
    /// Assigned partitions by slot. A partition keeps its slot when it is revoked and assigned
    /// again.
    slots: Vec<Option<PartitionState>>,
    slot_of: HashMap<Partition, usize>,
    /// Revocations and shutdowns in progress.
    revocations: Vec<Revocation>,
    /// Epoch of the last assignment.
    epoch: u64,
    counts: ConsumerCounts,
    /// Reason to stop, once the consumer stops.
    ending: Option<StopReason>,
    /// Shutdown deadline: running attempts are awaited until then. Set once the consumer stops.
    stop_by: Option<Instant>,
    /// Time at which the shutdown cancels running attempts. Set once the consumer stops.
    stop_cancels_at: Option<Instant>,
    /// The source has failed while the consumer stops: its answers are not awaited.
    source_is_dead: bool,
    /// Attempts that were still running when their partition was released during shutdown.
    abandoned: usize,
    /// Assignments that were fenced before shutdown while attempts were running.
    unawaited: Vec<Arc<Assignment>>,
    /// Assignments whose attempts were forced to end, and have not ended.
    forced: Vec<Arc<Assignment>>,
    /// Time until which they are awaited.
    forced_until: Instant,
    stopped: Vec<StoppedKey>,
    /// Partitions that were given up during shutdown before their last progress was committed.
    uncommitted: Vec<Partition>,
    /// The open transaction has output of a record that is not complete here, so it must be
    /// aborted. Used by transactional sources only.
    tainted: bool,
    /// An abort was requested. No commit begins before [`SourceEvent::Aborted`].
    aborting: bool,
    /// Earliest time to try `begin_commit` again.
    begin_commit_after: Instant,
    polled_at: Instant,
    events: Vec<SourceEvent>,
    /// Scratch buffer for events from the mailbox; empty between reads.
    worker_events: Vec<WorkerEvent>,
    /// Scratch buffer for admitted records; empty between calls of `admit`.
    batch: Vec<(LaneSet, InFlight)>,
    /// Lanes that stopped records hold, if records have several.
    held: StoppedLanes,
    /// The source may lack partitions, while the order is over all of them: no record is admitted until it
    /// is known that it does not.
    awaits_all_partitions: bool,
    /// Scratch buffer for replaced records; empty between calls of `admit`.
    replaced: Vec<InFlight>,
    /// Targets that the operator has paused.
    pauses: OperatorPauses,
    /// It was reported that the consumer does not end because of these pauses.
    told_of_pauses: bool,
}

impl Coordinator {
    pub(super) fn new(
        source: Box<dyn Source>,
        lanes: Arc<dyn RecordLanes>,
        shared: Arc<ConsumerShared>,
        config: CoordinatorConfig,
    ) -> Self {
        let now = shared.outside.now();
        let held = StoppedLanes::new(config.has_limits);
        Coordinator {
            source,
            lanes,
            shared,
            config,
            slots: Vec::new(),
            slot_of: HashMap::new(),
            revocations: Vec::new(),
            epoch: 0,
            counts: ConsumerCounts::default(),
            ending: None,
            stop_by: None,
            stop_cancels_at: None,
            source_is_dead: false,
            abandoned: 0,
            unawaited: Vec::new(),
            forced: Vec::new(),
            forced_until: now,
            stopped: Vec::new(),
            uncommitted: Vec::new(),
            tainted: false,
            aborting: false,
            begin_commit_after: now,
            polled_at: now,
            events: Vec::new(),
            worker_events: Vec::new(),
            batch: Vec::new(),
            replaced: Vec::new(),
            held,
            awaits_all_partitions: false,
            pauses: OperatorPauses::default(),
            told_of_pauses: false,
        }
    }

    /// Runs the coordinator until the consumer has stopped.
    pub(super) fn run(mut self) -> ShutdownReport {
        while self.advance_all() {
            let wait = self.next_wait();
            let timeout = if self.begin_wait(wait) { Duration::ZERO } else { wait.timeout };
            self.end_wait(wait, timeout);
        }
        self.finish()
    }

    /// Takes all steps that are possible now. Returns `false` once the consumer has stopped.
    pub(super) fn advance_all(&mut self) -> bool {
        self.read_events();
        if self.may_admit() {
            self.admit();
        }
        self.advance_revocations();
        self.commit_due();
        self.stop_if_finished();
        self.ending.is_none() || !self.revocations.is_empty() || self.awaits_forced()
    }

    /// Returns whether attempts of lost partitions are still being ended.
    fn awaits_forced(&mut self) -> bool {
        self.forced.retain(|assignment| assignment.cancel_hooks.is_any_registered());
        !self.forced.is_empty() && self.now() < self.forced_until
    }

    /// Closes the source. Called when the consumer has stopped.
    pub(super) fn finish(mut self) -> ShutdownReport {
        let left = self.stop_by.map(|by| by.saturating_duration_since(self.now()));
        let within = left.unwrap_or(CLOSE_TIMEOUT).clamp(MIN_CLOSE_TIMEOUT, CLOSE_TIMEOUT);
        if let Err(error) = self.source.close(within) {
            self.emit(&ConsumerEvent::Source(error.to_string()));
        }
        let still_running: usize = self.unawaited.iter().map(|unawaited| unawaited.running()).sum();
        let is_counted = |it: &Assignment| self.unawaited.iter().any(|is| is.epoch == it.epoch);
        let forced = self.forced.iter().filter(|assignment| !is_counted(assignment));
        let still_ending: usize = forced.map(|forced| forced.cancel_hooks.registered()).sum();
        ShutdownReport {
            reason: self.ending.expect("a reason is set before the loop ends"),
            counts: self.counts,
            abandoned: self.abandoned + still_running + still_ending,
            stopped: self.stopped,
            uncommitted: self.uncommitted,
        }
    }

    fn now(&self) -> Instant {
        self.shared.outside.now()
    }

    fn partitions(&self) -> impl Iterator<Item = &PartitionState> {
        self.slots.iter().flatten()
    }

    fn emit(&self, event: &ConsumerEvent) {
        if let Some(hook) = &self.config.on_event {
            // A panic in the user's callback must not stop the coordinator.
            let _ = catch_unwind(AssertUnwindSafe(|| hook(event)));
        }
    }

    fn status(&self) -> ConsumerStatus {
        let now = self.now();
        let surveyed = self.partitions().map(|state| {
            let partition = &state.assignment.partition;
            let (end, resolving) =
                (self.source.end(partition), self.source.resolving_since(partition));
            state.status(self.config.limits, end, resolving, now)
        });
        ConsumerStatus {
            partitions: surveyed.collect(),
            counts: self.counts,
            stopping: self.ending.is_some(),
            ready: self.source.is_ready(),
            unreachable: self
                .source
                .unreachable_since()
                .map(|since| now.saturating_duration_since(since)),
            times: self.shared.times.snapshot(),
            paused: self.pauses.list(now),
        }
    }
}

fn slot_of(state: &PartitionState) -> usize {
    state.assignment.slot
}

impl From<&FailureAction> for AfterFailure {
    fn from(then: &FailureAction) -> Self {
        match then {
            FailureAction::Retry(_) => AfterFailure::Retry,
            FailureAction::Skip => AfterFailure::Skip,
            FailureAction::DeadLetter => AfterFailure::DeadLetter,
            FailureAction::DeadLetterRefused(why) => AfterFailure::DeadLetterRefused(why.clone()),
            FailureAction::StopKey(_) => AfterFailure::StopKey,
            FailureAction::StopAll(_) => AfterFailure::Stop,
        }
    }
}
