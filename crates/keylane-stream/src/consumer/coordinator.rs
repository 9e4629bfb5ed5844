//! Coordinator thread: polls the source, tracks completion per partition, and commits offsets. The
//! [module](super) documentation has the protocol.

mod operator;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::assignment::Assignment;
use super::cancellation::Cancellation;
use super::event::{AfterFailure, ConsumerEvent};
use super::failure::AttemptFailure;
use super::in_flight::{InFlight, RecordContext};
use super::operator_pauses::OperatorPauses;
use super::ordering::{LaneId, LaneSet, OrderBy, UnkeyedPolicy};
use super::partition::{AdmissionRules, AdmittedRecord, InFlightLimits, PartitionState};
use super::record_lanes::RecordLanes;
use super::revocation::{Revocation, RevocationStage};
use super::shared::ConsumerShared;
use super::status::{ConsumerCounts, ConsumerStatus};
use super::stopped_lanes::StoppedLanes;
use super::worker_event::{
    CompletionKind, FailedAttempt, FailureAction, StopCancellation, WorkerEvent,
};
use super::{ShutdownReport, StopReason, StoppedKey};
use crate::source::{
    CommitError, PartitionAssignment, PartitionOwnership, ProgressCommit, Source, SourceError,
    SourceEvent,
};
use crate::{Partition, Position};

/// Maximum time between two polls: the source must keep in touch with its broker.
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Timeout of a poll while the coordinator waits for the source alone.
const MAX_POLL_TIMEOUT: Duration = Duration::from_millis(100);
/// Timeout of a poll while the coordinator also waits for workers and the source has no waker.
const POLL_TIMEOUT_WITHOUT_WAKER: Duration = Duration::from_millis(2);
/// Maximum number of records per poll: enough to amortize the cost of a poll.
const RECORDS_PER_POLL: usize = 1024;
/// Timeout of the last commit of a partition. After it the partition is released without that
/// commit.
const LAST_COMMIT_TIMEOUT: Duration = Duration::from_secs(10);
/// Minimum timeout of the last commit when the shutdown deadline has passed.
const MIN_LAST_COMMIT_TIMEOUT: Duration = Duration::from_secs(1);
/// Timeout of attempts whose end was forced. A process that was killed ends within it, unless the
/// kernel holds it; it runs no code of its own any more.
const FORCED_END_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout of the reports of attempts whose end was forced, when they have no effects any more.
const REPORT_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause before `begin_commit` is tried again after the source has refused it.
const BEGIN_COMMIT_RETRY_INTERVAL: Duration = Duration::from_millis(2);
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
    /// Number of the last lane that was made for a single record.
    single_lanes: u64,
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
            single_lanes: 0,
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

    fn read_events(&mut self) {
        self.shared.mailbox.take(&mut self.worker_events);
        self.handle_worker_events();
    }

    fn handle_worker_events(&mut self) {
        let now = self.now();
        let mut worker_events = std::mem::take(&mut self.worker_events);
        for event in worker_events.drain(..) {
            match event {
                WorkerEvent::Ended { slot, epoch, position, index, completion } => {
                    self.completed((slot, epoch), (position, index), completion, now);
                }
                WorkerEvent::Failed(failed) => self.failed(*failed),
                WorkerEvent::Cancelled => self.counts.cancelled += 1,
                WorkerEvent::Stop { within, cancellation } => {
                    self.stop(StopReason::Asked, within, cancellation);
                }
                WorkerEvent::Status(reply) => {
                    // The receiver is gone if the caller's timeout has passed.
                    let _ = reply.send(self.status());
                }
                WorkerEvent::Operate(command) => self.operate(*command),
            }
        }
        self.worker_events = worker_events;
    }

    /// Returns the state of the partition if the epoch is its current one and is not fenced.
    fn current(&mut self, slot: usize, epoch: u64) -> Option<&mut PartitionState> {
        let state = self.slots[slot].as_mut()?;
        (state.assignment.epoch == epoch && !state.assignment.is_fenced()).then_some(state)
    }

    fn completed(
        &mut self,
        (slot, epoch): (usize, u64),
        (position, index): (Position, usize),
        completion: CompletionKind,
        now: Instant,
    ) {
        let Some(state) = self.current(slot, epoch) else {
            self.counts.fenced += 1;
            self.tainted |= completion == CompletionKind::Produced;
            return;
        };
        if !state.completed(position, index, now) {
            return;
        }
        match completion {
            CompletionKind::Handled | CompletionKind::Produced => self.counts.handled += 1,
            CompletionKind::Skipped => self.counts.skipped += 1,
            CompletionKind::DeadLettered => self.counts.dead_lettered += 1,
            CompletionKind::Replaced => self.counts.replaced += 1,
        }
    }

    fn failed(&mut self, failed: FailedAttempt) {
        let assignment = failed.context.assignment.clone();
        let (position, attempt) = (failed.context.delivered.position, failed.attempt);
        let (failure, then) = (failed.failure.clone(), AfterFailure::from(&failed.then));
        if attempt > 0 && !matches!(then, AfterFailure::DeadLetterRefused(_)) {
            self.counts.failed_attempts += 1;
        }
        let partition = assignment.partition.clone();
        let stops = then == AfterFailure::Stop;
        self.emit(&ConsumerEvent::Failed {
            partition: partition.clone(),
            position,
            attempt,
            failure: failure.clone(),
            then,
        });
        let order = (&self.config.order.clone(), self.config.unkeyed);
        let has_stopped = matches!(failed.then, FailureAction::StopKey(_));
        let Some(state) = self.current(assignment.slot, assignment.epoch) else { return };
        state.failed(failed, order);
        if has_stopped && self.config.order.is_over_partitions() {
            self.mark_held();
        }
        if stops {
            let why = StopReason::Failed { partition, position, failure };
            self.stop_in_time(why);
        }
    }

    /// Starts the shutdown with the configured time for running attempts.
    fn stop_in_time(&mut self, why: StopReason) {
        self.stop(why, self.config.shutdown_timeout, StopCancellation::BeforeDeadline);
    }

    /// Starts the shutdown, or brings its deadline forward.
    fn stop(&mut self, why: StopReason, within: Duration, cancellation: StopCancellation) {
        let now = self.now();
        let by = now + within;
        let cancel_at = match cancellation {
            StopCancellation::BeforeDeadline => self.cancel_at(now, within),
            StopCancellation::Now => now,
        };
        self.ending.get_or_insert(why);
        self.stop_by = Some(self.stop_by.map_or(by, |sooner| sooner.min(by)));
        self.stop_cancels_at =
            Some(self.stop_cancels_at.map_or(cancel_at, |sooner| sooner.min(cancel_at)));
        let until = self.last_commit_until(self.now());
        for revocation in &mut self.revocations {
            if let RevocationStage::Committing { deadline } = &mut revocation.stage {
                *deadline = until.min(*deadline);
            }
        }
        let left: Vec<_> = self.partitions().filter(|state| !state.closing).map(slot_of).collect();
        if !left.is_empty() {
            self.start_revocation(left, within, Vec::new());
        }
    }

    /// Returns when running attempts that have a time `within` from `now` are cancelled.
    fn cancel_at(&self, now: Instant, within: Duration) -> Instant {
        now + (within - self.config.cancel_grace.min(within / 2))
    }

    fn start_revocation(&mut self, slots: Vec<usize>, within: Duration, release: Vec<Partition>) {
        let now = self.now();
        let stage = RevocationStage::Awaiting {
            cancel_at: self.cancel_at(now, within),
            deadline: now + within,
        };
        for slot in &slots {
            let Some(state) = self.slots[*slot].as_mut() else { continue };
            state.close();
            self.shared.timer.purge(state.assignment.epoch);
            if self.lanes.has_rates() {
                // They would not start, but each would take its time from others.
                let order = (&self.config.order, self.config.unkeyed);
                state.lanes(order).iter().for_each(|lane| self.lanes.withdraw(lane));
            }
        }
        self.revocations.push(Revocation { slots, release, stage });
    }

    /// Returns whether records can be admitted: the order does not reach beyond the partitions of this
    /// consumer. Stops it if it does.
    fn may_admit(&mut self) -> bool {
        if !self.awaits_all_partitions || self.ending.is_some() {
            return true;
        }
        match self.source.ownership() {
            PartitionOwnership::All => self.awaits_all_partitions = false,
            PartitionOwnership::Unknown => {}
            PartitionOwnership::Some(missing) => self.stop_in_time(StopReason::NotAlone(missing)),
        }
        !self.awaits_all_partitions
    }

    /// Marks the records that wait for stopped ones, where the order is over all partitions.
    fn mark_held(&mut self) {
        self.held.clear();
        let states = self.slots.iter().enumerate();
        let admitted = states.filter_map(|(slot, state)| Some((slot, state.as_ref()?)));
        let admitted = admitted.flat_map(|(slot, state)| {
            state.admitted().map(move |(number, index)| (number, slot, index))
        });
        let mut admitted: Vec<_> = admitted.collect();
        admitted.sort_unstable();
        for (_, slot, index) in admitted {
            if let Some(state) = self.slots[slot].as_mut() {
                state.mark(index, &mut self.held);
            }
        }
    }

    /// Admits buffered records within the limits and sends them to the pool; pauses partitions that
    /// are full and resumes those that have room again.
    fn admit(&mut self) {
        let now = self.now();
        let CoordinatorConfig { order, unkeyed, limits, .. } = &self.config;
        let mut reject: Vec<(InFlight, AttemptFailure)> = Vec::new();
        let batch = &mut self.batch;
        for state in self.slots.iter_mut().flatten() {
            // Attempts of an earlier assignment of the partition are still being ended.
            let is_ending = |earlier: &Arc<Assignment>| {
                earlier.slot == state.assignment.slot && earlier.cancel_hooks.is_any_registered()
            };
            if now < self.forced_until && self.forced.iter().any(is_ending) {
                continue;
            }
            let each = |admitted| match admitted {
                AdmittedRecord::Lanes(lanes, in_flight) => batch.push((lanes, in_flight)),
                AdmittedRecord::Unordered(in_flight) => {
                    self.single_lanes += 1;
                    let lane = LaneId::Single { number: self.single_lanes };
                    batch.push((LaneSet::One(lane), in_flight));
                }
                AdmittedRecord::Rejected(in_flight, why) => reject.push((in_flight, why)),
            };
            let pauses = &self.pauses;
            let rules = AdmissionRules { order, unkeyed: *unkeyed, limits: *limits, pauses };
            self.counts.repeated += state.admit(rules, &mut self.held, now, each);
            if state.may_pause() {
                state.paused = Some(now);
                self.source.pause(&state.assignment.partition);
            } else if state.may_resume(*limits, now) {
                state.paused = None;
                self.source.resume(&state.assignment.partition);
            }
        }
        if !batch.is_empty() {
            // The pool has capacity for all partitions together and is open while this thread runs.
            let sent = self.lanes.send(batch, &mut self.replaced);
            assert!(sent, "the pool is closed only after this thread has ended");
            self.complete_replaced(now);
        }
        for (in_flight, why) in reject {
            self.shared.reject(in_flight, why);
        }
    }

    /// Completes records that later ones have replaced. If the process dies before such a later record
    /// is complete, that one is delivered again, and with it the state of its key.
    fn complete_replaced(&mut self, now: Instant) {
        let mut replaced = std::mem::take(&mut self.replaced);
        for in_flight in replaced.drain(..) {
            let RecordContext { assignment, delivered, index, .. } = &*in_flight.context;
            let (slot, epoch) = (assignment.slot, assignment.epoch);
            // One of an earlier assignment was left to this one, which has delivered it again.
            if self.current(slot, epoch).is_some() {
                let place = (delivered.position, *index);
                self.completed((slot, epoch), place, CompletionKind::Replaced, now);
            }
        }
        self.replaced = replaced;
    }

    fn commit_due(&mut self) {
        let now = self.now();
        if self.source.is_transactional() {
            return self.commit_transaction(now);
        }
        let CoordinatorConfig { commit_every, commit_after, .. } = self.config;
        let mut commits = Vec::new();
        // Includes partitions in revocation: if another failure follows before their running
        // attempts end, completed records would be repeated.
        for state in self.slots.iter_mut().flatten() {
            let due = state.commit_due_at(commit_every, commit_after);
            if due.is_some_and(|due| due <= now)
                && let Some(progress) = state.start_commit(now)
            {
                commits.push(ProgressCommit {
                    partition: state.assignment.partition.clone(),
                    progress,
                });
            }
        }
        if !commits.is_empty() {
            self.source.commit(commits);
        }
    }

    /// Commits the progress of all partitions together with the output in the transaction. Aborts
    /// the transaction if it has output of a record that is not complete.
    fn commit_transaction(&mut self, now: Instant) {
        if self.next_transaction().is_none_or(|due| now < due) {
            return;
        }
        if !self.source.begin_commit() {
            self.begin_commit_after = now + BEGIN_COMMIT_RETRY_INTERVAL;
            return;
        }
        // Records whose output is in the transaction were reported before `begin_commit` returned,
        // so their events are in the mailbox.
        self.read_events();
        if self.tainted {
            self.aborting = true;
            return self.source.abort_transaction();
        }
        let state = self.slots.iter_mut().flatten();
        let commits = state.filter_map(|state| {
            let partition = state.assignment.partition.clone();
            state.start_commit(now).map(|progress| ProgressCommit { partition, progress })
        });
        let commits = commits.collect();
        self.source.commit(commits);
    }

    /// Returns the time of the next commit. Returns `None` if every commit waits for the answer to
    /// an earlier one: that answer is an event of the source.
    fn next_commit(&self) -> Option<Instant> {
        if self.source.is_transactional() {
            return self.next_transaction();
        }
        self.partitions().filter_map(|state| self.commit_due_at(state)).min()
    }

    /// Returns the time of the next commit of a transactional source.
    fn next_transaction(&self) -> Option<Instant> {
        if self.aborting || self.partitions().any(PartitionState::is_committing) {
            return None;
        }
        if self.tainted {
            return Some(self.begin_commit_after);
        }
        let last = self.revocations.iter().filter(|revocation| revocation.waits_for_source());
        let last = last
            .flat_map(|revocation| self.of(revocation))
            .filter_map(PartitionState::committable_at);
        let due =
            self.partitions().filter_map(|state| self.commit_due_at(state)).chain(last).min()?;
        Some(due.max(self.begin_commit_after))
    }

    fn commit_due_at(&self, state: &PartitionState) -> Option<Instant> {
        state.commit_due_at(self.config.commit_every, self.config.commit_after)
    }

    /// Stops the consumer if no partition can make progress any more.
    fn stop_if_finished(&mut self) {
        let limits = self.config.limits;
        let is_left = self.partitions().next().is_none()
            || self.partitions().any(|state| !state.is_finished(limits));
        if self.ending.is_none() && !is_left {
            return self.stop_in_time(StopReason::Exhausted);
        }
        self.tell_of_pauses();
    }

    /// Advances each revocation by the steps that are possible now.
    fn advance_revocations(&mut self) {
        for mut revocation in std::mem::take(&mut self.revocations) {
            if !self.advance(&mut revocation) {
                self.revocations.push(revocation);
            }
        }
    }

    /// Advances a revocation and returns whether it is finished.
    fn advance(&mut self, revocation: &mut Revocation) -> bool {
        let now = self.now();
        if revocation.is_awaiting() {
            if !self.have_ended(revocation, now) {
                return false;
            }
            self.fence(&revocation.slots, FenceCause::Released);
            revocation.stage =
                RevocationStage::Committing { deadline: self.last_commit_until(now) };
        }
        let RevocationStage::Committing { deadline } = revocation.stage else { return true };
        if !self.is_committed(&revocation.slots, now) && now < deadline && !self.source_is_dead {
            return false;
        }
        if self.ending.is_some() {
            let left = self.of(revocation).filter(|state| state.has_uncommitted());
            let left: Vec<_> = left.map(|state| state.assignment.partition.clone()).collect();
            self.uncommitted.extend(left);
        }
        for slot in &revocation.slots {
            self.drop_partition(*slot);
        }
        if !revocation.release.is_empty() {
            self.source.release(&revocation.release);
        }
        true
    }

    /// Advances the wait for the running attempts of a revocation, and returns whether it is over:
    /// they have ended, or are not awaited any longer.
    fn have_ended(&mut self, revocation: &mut Revocation, now: Instant) -> bool {
        if let RevocationStage::Awaiting { cancel_at, deadline } = revocation.stage {
            if self.of(revocation).all(|state| state.assignment.running() == 0) {
                return true;
            }
            let (cancel_at, deadline) = self.before_stop(cancel_at, deadline);
            if now >= cancel_at {
                self.cancel(&revocation.slots, Cancellation::Requested);
            }
            if now < deadline {
                return false;
            }
            let report_by = now + self.cancel(&revocation.slots, Cancellation::Forced);
            revocation.stage =
                RevocationStage::Forcing { deadline: now + FORCED_END_TIMEOUT, report_by };
        }
        let RevocationStage::Forcing { deadline, report_by } = revocation.stage else {
            return true;
        };
        if self.has_cancelled(revocation) {
            return now >= deadline;
        }
        now >= report_by || self.of(revocation).all(|state| state.assignment.running() == 0)
    }

    /// Returns whether cancelled attempts of a revocation have not ended.
    fn has_cancelled(&self, revocation: &Revocation) -> bool {
        self.of(revocation).any(|state| state.assignment.cancel_hooks.is_any_registered())
    }

    /// Cancels the running attempts of these partitions. Returns the time for the reports of their
    /// ends: none if none has a hook.
    fn cancel(&self, slots: &[usize], stage: Cancellation) -> Duration {
        let states = slots.iter().filter_map(|slot| self.slots[*slot].as_ref());
        let count: usize = states.map(|it| self.cancel_assignment(&it.assignment, stage)).sum();
        if count > 0 { REPORT_TIMEOUT } else { Duration::ZERO }
    }

    /// Cancels the running attempts of an assignment, and returns their number.
    fn cancel_assignment(&self, assignment: &Assignment, stage: Cancellation) -> usize {
        let is_first = !assignment.cancel_hooks.is_cancelled();
        let attempts = assignment.cancel_hooks.cancel(stage);
        if is_first && attempts > 0 {
            let partition = assignment.partition.clone();
            self.emit(&ConsumerEvent::Cancelled { partition, attempts });
        }
        attempts
    }

    /// Returns the times at which attempts are cancelled, and no longer awaited. A stop brings them
    /// forward.
    fn before_stop(&self, cancel_at: Instant, deadline: Instant) -> (Instant, Instant) {
        let sooner = |at: Instant, stop: Option<Instant>| stop.map_or(at, |stop| stop.min(at));
        (sooner(cancel_at, self.stop_cancels_at), sooner(deadline, self.stop_by))
    }

    /// Returns the deadline of the last commit. During shutdown it leaves time to close the source.
    fn last_commit_until(&self, now: Instant) -> Instant {
        let longest = now + LAST_COMMIT_TIMEOUT;
        let Some(by) = self.stop_by else { return longest };
        let before = by.checked_sub(MIN_CLOSE_TIMEOUT).unwrap_or(now);
        before.max(now + MIN_LAST_COMMIT_TIMEOUT).min(longest)
    }

    /// Returns the partitions of a revocation that are still assigned.
    fn of<'a>(&'a self, revocation: &'a Revocation) -> impl Iterator<Item = &'a PartitionState> {
        revocation.slots.iter().filter_map(|slot| self.slots[*slot].as_ref())
    }

    /// Returns the time of the next step of a revocation.
    fn next_step(&self, revocation: &Revocation, now: Instant) -> Instant {
        match revocation.stage {
            RevocationStage::Awaiting { cancel_at, deadline } => {
                let (cancel_at, deadline) = self.before_stop(cancel_at, deadline);
                let mut running = self.of(revocation).filter(|s| s.assignment.running() > 0);
                let is_cancelled = |s: &PartitionState| s.assignment.cancel_hooks.is_cancelled();
                match running.next() {
                    None => now,
                    Some(first) if is_cancelled(first) && running.all(is_cancelled) => deadline,
                    Some(_) => cancel_at,
                }
            }
            RevocationStage::Forcing { deadline, .. } if self.has_cancelled(revocation) => deadline,
            RevocationStage::Forcing { report_by, .. } => {
                let runs = self.of(revocation).any(|state| state.assignment.running() > 0);
                if runs { report_by } else { now }
            }
            RevocationStage::Committing { .. }
                if self.of(revocation).all(PartitionState::has_nothing_to_commit) =>
            {
                now
            }
            // A transactional commit is scheduled by `next_transaction`.
            RevocationStage::Committing { deadline } if self.source.is_transactional() => deadline,
            RevocationStage::Committing { deadline } => self
                .of(revocation)
                .filter_map(PartitionState::committable_at)
                .fold(deadline, Instant::min),
        }
    }

    /// Fences these partitions: later answers of their attempts are ignored.
    fn fence(&mut self, slots: &[usize], cause: FenceCause) {
        // Attempts that ended before the fence have put their events into the mailbox
        // (`assignment.rs`).
        self.read_events();
        let now = self.now();
        for slot in slots {
            // A partition that is revoked during shutdown is in two revocations; the second finds
            // it fenced.
            let Some(state) =
                self.slots[*slot].as_ref().filter(|state| !state.assignment.is_fenced())
            else {
                continue;
            };
            state.assignment.fence();
            let awaited = match cause {
                FenceCause::Released => 0,
                FenceCause::Lost => state.assignment.cancel_hooks.registered(),
            };
            let running = state.assignment.running();
            self.shared.timer.purge(state.assignment.epoch);
            self.shared.dead_letters.purge_fenced();
            if self.ending.is_some() {
                self.abandoned += running.saturating_sub(awaited);
            } else {
                self.unawaited.retain(|assignment| assignment.running() > 0);
                self.unawaited.push(state.assignment.clone());
            }
            let partition = state.assignment.partition.clone();
            if self.ending.is_some() {
                let stopped = state.stopped(now);
                let partition = partition.clone();
                let stopped =
                    stopped.map(|record| StoppedKey { partition: partition.clone(), record });
                self.stopped.extend(stopped);
            }
            self.emit(&ConsumerEvent::Released { partition, running });
        }
    }

    /// Commits the last progress of these partitions if necessary, and returns whether nothing is
    /// left to commit.
    fn is_committed(&mut self, slots: &[usize], now: Instant) -> bool {
        let together = self.source.is_transactional();
        let mut commits = Vec::new();
        let mut saved = true;
        for slot in slots {
            let Some(state) = self.slots[*slot].as_mut() else { continue };
            if !together && let Some(progress) = state.start_commit(now) {
                commits.push(ProgressCommit {
                    partition: state.assignment.partition.clone(),
                    progress,
                });
            }
            saved &= state.has_nothing_to_commit();
        }
        if !commits.is_empty() {
            self.source.commit(commits);
        }
        saved
    }

    fn drop_partition(&mut self, slot: usize) {
        let state = self.slots[slot].take();
        self.tainted |= state.as_ref().is_some_and(PartitionState::has_uncommitted);
        if self.ending.is_none() && self.config.order.is_over_partitions() {
            self.mark_held();
        }
        // Dropping the guards lets the next records of their keys start; these find the assignment
        // closed.
        drop(state);
    }

    /// Decides what to wait for: the source, the mailbox, or both.
    pub(super) fn next_wait(&self) -> NextWait {
        let now = self.now();
        let timeout = self.next_due(now).saturating_duration_since(now).min(MAX_POLL_TIMEOUT);
        let both = self.waits_for_workers() && self.waits_for_source();
        let (what, timeout) = if both && self.shared.mailbox.has_waker() {
            (WaitFor::Both, timeout)
        } else if both {
            (WaitFor::Source, timeout.min(POLL_TIMEOUT_WITHOUT_WAKER))
        } else if !self.waits_for_workers() {
            (WaitFor::Source, timeout)
        } else if now.duration_since(self.polled_at) >= MAX_POLL_INTERVAL {
            (WaitFor::Source, Duration::ZERO)
        } else {
            (WaitFor::Workers, timeout.min(MAX_POLL_INTERVAL))
        };
        NextWait { what, timeout }
    }

    /// Prepares a wait that events in the mailbox end. Returns whether there are some already.
    pub(super) fn begin_wait(&mut self, wait: NextWait) -> bool {
        let ends_by_mailbox = matches!(wait.what, WaitFor::Workers | WaitFor::Both);
        ends_by_mailbox && self.shared.mailbox.arm_or_take(&mut self.worker_events)
    }

    /// Waits for at most `timeout`, and handles the events that came.
    pub(super) fn end_wait(&mut self, wait: NextWait, timeout: Duration) {
        match wait.what {
            WaitFor::Source | WaitFor::Both => self.poll(timeout),
            WaitFor::Workers if timeout.is_zero() => {}
            WaitFor::Workers => self.shared.mailbox.wait(&mut self.worker_events, timeout),
        }
        self.handle_worker_events();
        self.handle_events();
    }

    /// Returns whether the end of an attempt can free room, make a commit due, or finish a
    /// revocation.
    fn waits_for_workers(&self) -> bool {
        let wanted = |state: &PartitionState| {
            let waits = state.has_buffered() || state.paused.is_some() || state.exhausted;
            !state.closing && (waits || state.can_reach_commit(self.config.commit_after))
        };
        let is_ending = self.revocations.iter().any(Revocation::is_awaiting);
        is_ending || !self.forced.is_empty() || self.partitions().any(wanted)
    }

    /// Returns whether an event of the source is awaited. A failed source sends none and does not
    /// block.
    fn waits_for_source(&self) -> bool {
        let takes = |state: &PartitionState| {
            let more = state.paused.is_none() && !state.exhausted && !state.closing;
            // The answer to a commit is an event, and the next commit waits for it.
            more || state.is_committing()
        };
        let wanted = self.revocations.iter().any(Revocation::waits_for_source)
            || self.partitions().next().is_none()
            || self.partitions().any(takes);
        wanted && !self.source_is_dead
    }

    /// Returns the time of the next step. A step that is due is always taken in the next round;
    /// steps that wait for an answer or a pause are not due. Otherwise the loop would spin.
    fn next_due(&self, now: Instant) -> Instant {
        let steps = self.revocations.iter().map(|revocation| self.next_step(revocation, now));
        steps.chain(self.next_commit()).min().unwrap_or(now + MAX_POLL_TIMEOUT)
    }

    fn poll(&mut self, timeout: Duration) {
        // None is admitted before it is known that no partition is missing.
        let takes_none = self.ending.is_some() || self.awaits_all_partitions;
        let max_records = if takes_none { 0 } else { RECORDS_PER_POLL };
        let polled = self.source.poll(timeout, max_records, &mut self.events);
        self.polled_at = self.now();
        if let Err(error) = polled {
            self.source_failed(error);
        }
    }

    /// Stops the consumer, or, if it is stopping already, gives up on the source.
    fn source_failed(&mut self, error: SourceError) {
        if self.ending.is_none() {
            self.stop_in_time(StopReason::Source(error));
        } else {
            self.source_is_dead = true;
        }
    }

    fn handle_events(&mut self) {
        let mut events = std::mem::take(&mut self.events);
        let moves = |event: &SourceEvent| {
            matches!(
                event,
                SourceEvent::Assigned(_) | SourceEvent::Revoked(_) | SourceEvent::Lost(_)
            )
        };
        self.counts.rebalances += u64::from(events.iter().any(moves));
        for event in events.drain(..) {
            match event {
                SourceEvent::Assigned(assigned) => self.assigned(&assigned),
                SourceEvent::Records { partition, records } => {
                    self.with(&partition, |state| state.push_records(records));
                }
                SourceEvent::Reached { partition, position } => {
                    self.with(&partition, |state| state.reached(position));
                }
                SourceEvent::Missed { positions, .. } => self.counts.missed += positions,
                SourceEvent::Exhausted(partition) => {
                    self.with(&partition, |state| state.exhausted = true);
                }
                SourceEvent::Committed { partition, result } => self.committed(&partition, result),
                SourceEvent::Revoked(partitions) => self.revoked(partitions),
                SourceEvent::Lost(partitions) => self.lost(&partitions),
                SourceEvent::Aborted => {
                    self.tainted = false;
                    self.aborting = false;
                }
                SourceEvent::Notice(text) => self.emit(&ConsumerEvent::Source(text)),
            }
        }
        self.events = events;
    }

    /// Applies a function to a partition if it is assigned.
    fn with(&mut self, partition: &Partition, act: impl FnOnce(&mut PartitionState)) {
        let slot = self.slot_of.get(partition).copied();
        if let Some(state) = slot.and_then(|slot| self.slots[slot].as_mut()) {
            act(state);
        }
    }

    fn assigned(&mut self, assigned: &PartitionAssignment) {
        if self.ending.is_some() {
            return;
        }
        let partition = &assigned.partition;
        let slot = *self.slot_of.entry(partition.clone()).or_insert_with(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        if self.slots[slot].is_some() {
            // The source has not reported the loss of the earlier assignment; the newer event
            // counts.
            self.lost(std::slice::from_ref(partition));
        }
        self.awaits_all_partitions = self.config.order.is_over_partitions();
        self.epoch += 1;
        let assignment = Assignment::new(partition.clone(), slot, self.epoch);
        let mut state = PartitionState::new(assigned, assignment, self.now());
        let order = (&self.config.order, self.config.unkeyed);
        state.apply_pauses(&self.pauses, order, self.now());
        self.slots[slot] = Some(state);
        self.emit(&ConsumerEvent::Assigned(partition.clone()));
    }

    fn committed(&mut self, partition: &Partition, result: Result<(), CommitError>) {
        match &result {
            Ok(()) => self.counts.commits += 1,
            Err(_) => self.counts.failed_commits += 1,
        }
        self.with(partition, |state| {
            state.committed(&result);
        });
        if let Err(error) = result {
            self.emit(&ConsumerEvent::NotCommitted { partition: partition.clone(), error });
        }
    }

    fn revoked(&mut self, partitions: Vec<Partition>) {
        let slots = partitions.iter().filter_map(|partition| self.slot_of.get(partition).copied());
        // Partitions that are already in revocation are included: they are released only when both
        // have finished.
        let slots: Vec<_> = slots.filter(|slot| self.slots[*slot].is_some()).collect();
        if !self.config.order.is_over_partitions() || self.ending.is_some() {
            return self.start_revocation(slots, self.config.shutdown_timeout, partitions);
        }
        // Records of the other partitions conflict with those that another member will have, so all
        // of them end before it gets these.
        let all = self.partitions().map(slot_of).collect();
        let names = partitions.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        self.start_revocation(all, self.config.shutdown_timeout, partitions);
        self.stop_in_time(StopReason::NotAlone(format!(
            "the group gives {names} to another member"
        )));
    }

    fn lost(&mut self, partitions: &[Partition]) {
        let slots = partitions.iter().filter_map(|partition| self.slot_of.get(partition).copied());
        let slots: Vec<_> = slots.filter(|slot| self.slots[*slot].is_some()).collect();
        self.awaits_all_partitions = self.config.order.is_over_partitions();
        self.fence(&slots, FenceCause::Lost);
        for revocation in &mut self.revocations {
            revocation.forget(&slots, partitions);
        }
        // Other members may handle the records already.
        self.cancel(&slots, Cancellation::Forced);
        let assignments = slots.iter().filter_map(|slot| self.slots[*slot].as_ref());
        self.forced.extend(assignments.map(|state| state.assignment.clone()));
        self.forced_until = self.now() + FORCED_END_TIMEOUT;
        for slot in slots {
            self.drop_partition(slot);
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
