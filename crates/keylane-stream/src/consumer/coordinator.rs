//! The one thread that has the source, the trackers, and the say. See the [module](super) for the
//! protocol.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::assignment::Assignment;
use super::attempt::InFlight;
use super::event::{AfterFailure, ConsumerEvent};
use super::failure::Failure;
use super::ordering::{LaneId, OrderBy, UnkeyedPolicy};
use super::partition::{Admitted, InFlightLimits, PartitionState};
use super::revocation::{Revocation, RevocationStage};
use super::shared::ConsumerShared;
use super::status::{ConsumerCounts, ConsumerStatus};
use super::worker_event::{Completion, FailedAttempt, FailureAction, WorkerEvent};
use super::{Pool, ShutdownReport, StopReason, StoppedKey};
use crate::source::{Assigned, Commit, CommitError, Source, SourceError, SourceEvent};
use crate::{Partition, Position};

/// The longest that the source is left alone: it has to keep in touch with a broker.
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The longest that it is waited for, if nothing else is.
const MAX_POLL_TIMEOUT: Duration = Duration::from_millis(100);
/// The same while the end of an attempt is waited for as well, and nothing could wake the source.
const POLL_TIMEOUT_WITHOUT_WAKER: Duration = Duration::from_millis(2);
/// Completion many records are asked for at a time: enough to spread what a poll costs.
const RECORDS_PER_POLL: usize = 1024;
/// Completion long the last commit of a partition may take; then it is given up without it.
const LAST_COMMIT_TIMEOUT: Duration = Duration::from_secs(10);
/// The same when everything should have completed already, at least.
const MIN_LAST_COMMIT_TIMEOUT: Duration = Duration::from_secs(1);
/// Completion long a transaction is left alone that could not be cut.
const BEGIN_COMMIT_RETRY_INTERVAL: Duration = Duration::from_millis(2);
/// Completion long the source may take to finish.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
/// The same when everything should have completed already.
const MIN_CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Who is told what a person may want to know.
pub(super) type EventHook = dyn Fn(&ConsumerEvent) + Send;

/// What was chosen when the consumer was built.
pub(super) struct CoordinatorConfig {
    pub(super) order: OrderBy,
    pub(super) unkeyed: UnkeyedPolicy,
    /// For each partition.
    pub(super) limits: InFlightLimits,
    pub(super) commit_every: Duration,
    pub(super) commit_after: u64,
    pub(super) shutdown_timeout: Duration,
    pub(super) on_event: Option<Box<EventHook>>,
}

pub(super) struct Coordinator {
    source: Box<dyn Source>,
    pool: Arc<Pool>,
    shared: Arc<ConsumerShared>,
    config: CoordinatorConfig,
    /// All partitions that were ever ours, so that each keeps its slot.
    slots: Vec<Option<PartitionState>>,
    slot_of: HashMap<Partition, usize>,
    /// What is being given up.
    revocations: Vec<Revocation>,
    /// Of the last assignment.
    epoch: u64,
    /// Of the last record without a lane of its own.
    single_lanes: u64,
    counts: ConsumerCounts,
    /// StopReason it is to end, once it is.
    ending: Option<StopReason>,
    /// Until when what runs is awaited, once it is to end.
    stop_by: Option<Instant>,
    /// There is no use in waiting for it.
    source_is_dead: bool,
    /// Completion many attempts were not awaited at the end.
    abandoned: usize,
    /// What attempts may still run of that were not awaited before.
    unawaited: Vec<Arc<Assignment>>,
    stopped: Vec<StoppedKey>,
    /// Where commits have what handlers made with them: whether something is in the transaction whose record is
    /// not done here, so that it must not be committed.
    tainted: bool,
    /// The transaction is being given up: until the source says that it was, there is none to be cut.
    aborting: bool,
    /// Before that no transaction is cut again that could not be.
    begin_commit_after: Instant,
    polled_at: Instant,
    events: Vec<SourceEvent>,
    /// Empty but while it is read.
    worker_events: Vec<WorkerEvent>,
    /// Empty but while records are taken on.
    batch: Vec<(LaneId, InFlight)>,
}

impl Coordinator {
    pub(super) fn new(
        source: Box<dyn Source>,
        pool: Arc<Pool>,
        shared: Arc<ConsumerShared>,
        config: CoordinatorConfig,
    ) -> Self {
        Coordinator {
            source,
            pool,
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
            source_is_dead: false,
            abandoned: 0,
            unawaited: Vec::new(),
            stopped: Vec::new(),
            tainted: false,
            aborting: false,
            begin_commit_after: Instant::now(),
            polled_at: Instant::now(),
            events: Vec::new(),
            worker_events: Vec::new(),
            batch: Vec::new(),
        }
    }

    /// Runs until the consumer ends.
    pub(super) fn run(mut self) -> ShutdownReport {
        loop {
            self.read_events();
            self.admit();
            self.advance_revocations();
            self.commit_due();
            self.stop_if_finished();
            if self.ending.is_some() && self.revocations.is_empty() {
                return self.finish();
            }
            self.wait();
            self.handle_events();
        }
    }

    fn finish(mut self) -> ShutdownReport {
        let left = self.stop_by.map(|by| by.saturating_duration_since(Instant::now()));
        let within = left.unwrap_or(CLOSE_TIMEOUT).clamp(MIN_CLOSE_TIMEOUT, CLOSE_TIMEOUT);
        if let Err(error) = self.source.close(within) {
            self.emit(&ConsumerEvent::Source(error.to_string()));
        }
        let still_running: usize = self.unawaited.iter().map(|unawaited| unawaited.running()).sum();
        ShutdownReport {
            reason: self.ending.expect("that is why it leaves"),
            counts: self.counts,
            abandoned: self.abandoned + still_running,
            stopped: self.stopped,
        }
    }

    fn partitions(&self) -> impl Iterator<Item = &PartitionState> {
        self.slots.iter().flatten()
    }

    fn emit(&self, event: &ConsumerEvent) {
        if let Some(hook) = &self.config.on_event {
            // What listens is not part of this: it cannot stop it.
            let _ = catch_unwind(AssertUnwindSafe(|| hook(event)));
        }
    }

    fn read_events(&mut self) {
        self.shared.mailbox.take(&mut self.worker_events);
        self.handle_worker_events();
    }

    fn handle_worker_events(&mut self) {
        let now = Instant::now();
        let mut worker_events = std::mem::take(&mut self.worker_events);
        for event in worker_events.drain(..) {
            match event {
                WorkerEvent::Ended { slot, epoch, position, index, completion } => {
                    self.completed((slot, epoch), (position, index), completion, now);
                }
                WorkerEvent::Failed(failed) => self.failed(*failed),
                WorkerEvent::Stop(within) => self.stop(StopReason::Asked, within),
                WorkerEvent::Status(reply) => {
                    // Who no longer waits doesn't want to know.
                    let _ = reply.send(self.status());
                }
            }
        }
        self.worker_events = worker_events;
    }

    /// The partition, if this stretch of owning it still counts.
    fn current(&mut self, slot: usize, epoch: u64) -> Option<&mut PartitionState> {
        let state = self.slots[slot].as_mut()?;
        (state.assignment.epoch == epoch && !state.assignment.is_fenced()).then_some(state)
    }

    fn completed(
        &mut self,
        (slot, epoch): (usize, u64),
        (position, index): (Position, usize),
        completion: Completion,
        now: Instant,
    ) {
        let Some(state) = self.current(slot, epoch) else {
            self.counts.fenced += 1;
            self.tainted |= completion == Completion::Produced;
            return;
        };
        if !state.completed(position, index, now) {
            return;
        }
        match completion {
            Completion::Handled | Completion::Produced => self.counts.handled += 1,
            Completion::Skipped => self.counts.skipped += 1,
            Completion::DeadLettered => self.counts.dead_lettered += 1,
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
        let Some(state) = self.current(assignment.slot, assignment.epoch) else { return };
        state.failed(failed, order);
        if stops {
            let why = StopReason::Failed { partition, position, failure };
            self.stop(why, self.config.shutdown_timeout);
        }
    }

    /// Begins to end, or hurries up.
    fn stop(&mut self, why: StopReason, within: Duration) {
        let by = Instant::now() + within;
        self.ending.get_or_insert(why);
        self.stop_by = Some(self.stop_by.map_or(by, |sooner| sooner.min(by)));
        let until = self.last_commit_until(Instant::now());
        for revocation in &mut self.revocations {
            if let RevocationStage::Committing { deadline } = &mut revocation.stage {
                *deadline = until.min(*deadline);
            }
        }
        let left: Vec<_> = self.partitions().filter(|state| !state.closing).map(slot_of).collect();
        if !left.is_empty() {
            self.start_revocation(left, by, Vec::new());
        }
    }

    fn start_revocation(&mut self, slots: Vec<usize>, deadline: Instant, release: Vec<Partition>) {
        for slot in &slots {
            let Some(state) = self.slots[*slot].as_mut() else { continue };
            state.close();
            self.shared.timer.purge(state.assignment.epoch);
        }
        self.revocations.push(Revocation {
            slots,
            release,
            stage: RevocationStage::Awaiting { deadline },
        });
    }

    /// Takes on what push_records, as far as there is limits, and hands it to the pool.
    fn admit(&mut self) {
        let now = Instant::now();
        let CoordinatorConfig { order, unkeyed, limits, .. } = &self.config;
        let mut reject: Vec<(InFlight, Failure)> = Vec::new();
        let batch = &mut self.batch;
        for state in self.slots.iter_mut().flatten() {
            let each = |admitted| match admitted {
                Admitted::Lane(lane, in_flight) => batch.push((lane, in_flight)),
                Admitted::Unordered(in_flight) => {
                    self.single_lanes += 1;
                    batch.push((LaneId::Single { number: self.single_lanes }, in_flight));
                }
                Admitted::Rejected(in_flight, why) => reject.push((in_flight, why)),
            };
            self.counts.repeated += state.admit((order, *unkeyed, *limits), now, each);
            if state.has_buffered() && state.paused.is_none() {
                state.paused = Some(now);
                self.source.pause(&state.assignment.partition);
            } else if state.may_resume(*limits, now) {
                state.paused = None;
                self.source.resume(&state.assignment.partition);
            }
        }
        if !batch.is_empty() {
            // The pool has limits for all that the partitions have, and is open while this runs.
            self.pool
                .send_many(batch.drain(..))
                .expect("only the end of this thread closes the pool");
        }
        for (in_flight, why) in reject {
            self.shared.reject(in_flight, why);
        }
    }

    fn commit_due(&mut self) {
        let now = Instant::now();
        if self.source.is_transactional() {
            return self.commit_transaction(now);
        }
        let CoordinatorConfig { commit_every, commit_after, .. } = self.config;
        let mut commits = Vec::new();
        // Those that are wanted back as well: until what runs has completed, another failure would repeat what is done.
        for state in self.slots.iter_mut().flatten() {
            let due = state.commit_due_at(commit_every, commit_after);
            if due.is_some_and(|due| due <= now)
                && let Some(progress) = state.start_commit(now)
            {
                commits.push(Commit { partition: state.assignment.partition.clone(), progress });
            }
        }
        if !commits.is_empty() {
            self.source.commit(commits);
        }
    }

    /// Commits the progress of all partitions with what was made of their records: all that is in the
    /// transaction, and nothing that is not, is done by what is committed with it. If that cannot be so, it is
    /// given up.
    fn commit_transaction(&mut self, now: Instant) {
        if self.next_transaction().is_none_or(|due| now < due) {
            return;
        }
        if !self.source.begin_commit() {
            self.begin_commit_after = now + BEGIN_COMMIT_RETRY_INTERVAL;
            return;
        }
        // Those whose output is in it have reported before.
        self.read_events();
        if self.tainted {
            self.aborting = true;
            return self.source.abort_transaction();
        }
        let state = self.slots.iter_mut().flatten();
        let commits = state.filter_map(|state| {
            let partition = state.assignment.partition.clone();
            state.start_commit(now).map(|progress| Commit { partition, progress })
        });
        let commits = commits.collect();
        self.source.commit(commits);
    }

    /// When progress is stored next, if nothing happens before. What waits for the answer to another commit has
    /// no such time, for the answer is an event.
    fn next_commit(&self) -> Option<Instant> {
        if self.source.is_transactional() {
            return self.next_transaction();
        }
        self.partitions().filter_map(|state| self.commit_due_at(state)).min()
    }

    /// The same where all of it is stored together.
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

    /// Ends when nothing more can push_records or end.
    fn stop_if_finished(&mut self) {
        let limits = self.config.limits;
        let is_left = self.partitions().next().is_none()
            || self.partitions().any(|state| !state.is_finished(limits));
        if self.ending.is_none() && !is_left {
            self.stop(StopReason::Exhausted, self.config.shutdown_timeout);
        }
    }

    /// Brings what is being given up a step further.
    fn advance_revocations(&mut self) {
        for mut revocation in std::mem::take(&mut self.revocations) {
            if !self.advance(&mut revocation) {
                self.revocations.push(revocation);
            }
        }
    }

    fn advance(&mut self, revocation: &mut Revocation) -> bool {
        let now = Instant::now();
        if let RevocationStage::Awaiting { deadline } = revocation.stage {
            if self.wait_deadline(revocation, deadline).is_some_and(|until| now < until) {
                return false;
            }
            self.fence(&revocation.slots);
            revocation.stage =
                RevocationStage::Committing { deadline: self.last_commit_until(now) };
        }
        let RevocationStage::Committing { deadline } = revocation.stage else { return true };
        if !self.is_committed(&revocation.slots, now) && now < deadline && !self.source_is_dead {
            return false;
        }
        for slot in &revocation.slots {
            self.drop_partition(*slot);
        }
        if !revocation.release.is_empty() {
            self.source.release(&revocation.release);
        }
        true
    }

    /// Until when the last commit of a partition is awaited. If all is to end, some of the time for that is left for
    /// revocation.
    fn last_commit_until(&self, now: Instant) -> Instant {
        let longest = now + LAST_COMMIT_TIMEOUT;
        let Some(by) = self.stop_by else { return longest };
        let before = by.checked_sub(MIN_CLOSE_TIMEOUT).unwrap_or(now);
        before.max(now + MIN_LAST_COMMIT_TIMEOUT).min(longest)
    }

    /// What is left of these partitions.
    fn of<'a>(&'a self, revocation: &'a Revocation) -> impl Iterator<Item = &'a PartitionState> {
        revocation.slots.iter().filter_map(|slot| self.slots[*slot].as_ref())
    }

    /// Until when what runs of these is awaited; none if nothing does.
    fn wait_deadline(&self, revocation: &Revocation, deadline: Instant) -> Option<Instant> {
        let runs = self.of(revocation).any(|state| state.assignment.running() > 0);
        runs.then(|| self.stop_by.map_or(deadline, |by| by.min(deadline)))
    }

    /// When these get a step further, if nothing happens before.
    fn next_step(&self, revocation: &Revocation, now: Instant) -> Instant {
        match revocation.stage {
            RevocationStage::Awaiting { deadline } => {
                self.wait_deadline(revocation, deadline).unwrap_or(now)
            }
            RevocationStage::Committing { .. }
                if self.of(revocation).all(PartitionState::has_nothing_to_commit) =>
            {
                now
            }
            // The cut has its own time.
            RevocationStage::Committing { deadline } if self.source.is_transactional() => deadline,
            RevocationStage::Committing { deadline } => self
                .of(revocation)
                .filter_map(PartitionState::committable_at)
                .fold(deadline, Instant::min),
        }
    }

    /// From now on nothing of these counts.
    fn fence(&mut self, slots: &[usize]) {
        // Those who completed have reported before.
        self.read_events();
        let now = Instant::now();
        for slot in slots {
            // One that is wanted back while all stops is among those who finish twice.
            let Some(state) =
                self.slots[*slot].as_ref().filter(|state| !state.assignment.is_fenced())
            else {
                continue;
            };
            state.assignment.fence();
            let running = state.assignment.running();
            self.shared.timer.purge(state.assignment.epoch);
            self.shared.dead_letters.purge_fenced();
            if self.ending.is_some() {
                self.abandoned += running;
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

    /// Whether their last progress is stored; sees to it that it becomes so.
    fn is_committed(&mut self, slots: &[usize], now: Instant) -> bool {
        let together = self.source.is_transactional();
        let mut commits = Vec::new();
        let mut saved = true;
        for slot in slots {
            let Some(state) = self.slots[*slot].as_mut() else { continue };
            if !together && let Some(progress) = state.start_commit(now) {
                commits.push(Commit { partition: state.assignment.partition.clone(), progress });
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
        // Its turns go with it: who is behind them finds the gate closed.
        drop(state);
    }

    /// Waits for the source, for the ends of attempts, or for both.
    fn wait(&mut self) {
        let now = Instant::now();
        let timeout = self.next_due(now).saturating_duration_since(now).min(MAX_POLL_TIMEOUT);
        if !self.waits_for_workers() {
            self.poll(timeout);
        } else if self.waits_for_source() {
            self.wait_for_both(timeout);
        } else if now.duration_since(self.polled_at) >= MAX_POLL_INTERVAL {
            self.poll(Duration::ZERO);
        } else {
            self.shared.mailbox.wait(&mut self.worker_events, timeout.min(MAX_POLL_INTERVAL));
            self.handle_worker_events();
        }
    }

    fn wait_for_both(&mut self, timeout: Duration) {
        if !self.shared.mailbox.has_waker() {
            return self.poll(timeout.min(POLL_TIMEOUT_WITHOUT_WAKER));
        }
        let news = self.shared.mailbox.arm_or_take(&mut self.worker_events);
        self.poll(if news { Duration::ZERO } else { timeout });
        self.handle_worker_events();
    }

    /// Whether the end of an attempt makes limits that is wanted, makes a commit due, or is the last one.
    fn waits_for_workers(&self) -> bool {
        let wanted = |state: &PartitionState| {
            let waits = state.has_buffered() || state.paused.is_some() || state.exhausted;
            !state.closing && (waits || state.can_reach_commit(self.config.commit_after))
        };
        self.revocations.iter().any(Revocation::is_awaiting) || self.partitions().any(wanted)
    }

    /// Whether the source has something to say that matters. One that is dead has not, and would not wait.
    fn waits_for_source(&self) -> bool {
        let takes = |state: &PartitionState| {
            let more = state.paused.is_none() && !state.exhausted && !state.closing;
            // What push_records of a commit is an event, and the next one waits for it.
            more || state.is_committing()
        };
        let wanted = self.revocations.iter().any(Revocation::waits_for_source)
            || self.partitions().next().is_none()
            || self.partitions().any(takes);
        wanted && !self.source_is_dead
    }

    /// When there is something to do even if nothing happens. If that is now, the next round does it: what waits
    /// for an answer, or for the end of a pause, is not due, or the rounds would follow one another in vain.
    fn next_due(&self, now: Instant) -> Instant {
        let steps = self.revocations.iter().map(|revocation| self.next_step(revocation, now));
        steps.chain(self.next_commit()).min().unwrap_or(now + MAX_POLL_TIMEOUT)
    }

    fn poll(&mut self, timeout: Duration) {
        let most = if self.ending.is_some() { 0 } else { RECORDS_PER_POLL };
        let polled = self.source.poll(timeout, most, &mut self.events);
        self.polled_at = Instant::now();
        if let Err(error) = polled {
            self.source_failed(error);
        }
    }

    /// What can still be stored is stored.
    fn source_failed(&mut self, error: SourceError) {
        if self.ending.is_none() {
            self.stop(StopReason::Source(error), self.config.shutdown_timeout);
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

    /// Does something with a partition, if it is ours.
    fn with(&mut self, partition: &Partition, act: impl FnOnce(&mut PartitionState)) {
        let slot = self.slot_of.get(partition).copied();
        if let Some(state) = slot.and_then(|slot| self.slots[slot].as_mut()) {
            act(state);
        }
    }

    fn assigned(&mut self, assigned: &Assigned) {
        if self.ending.is_some() {
            return;
        }
        let partition = &assigned.partition;
        let slot = *self.slot_of.entry(partition.clone()).or_insert_with(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        if self.slots[slot].is_some() {
            // It was never said to be lost, but what is to be done is what was said last.
            self.lost(std::slice::from_ref(partition));
        }
        self.epoch += 1;
        let assignment = Assignment::new(partition.clone(), slot, self.epoch);
        self.slots[slot] = Some(PartitionState::new(assigned, assignment, Instant::now()));
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
        // Those that are revocation already are awaited for this as well: only then are they released.
        let slots: Vec<_> = slots.filter(|slot| self.slots[*slot].is_some()).collect();
        self.start_revocation(slots, Instant::now() + self.config.shutdown_timeout, partitions);
    }

    fn lost(&mut self, partitions: &[Partition]) {
        let slots = partitions.iter().filter_map(|partition| self.slot_of.get(partition).copied());
        let slots: Vec<_> = slots.filter(|slot| self.slots[*slot].is_some()).collect();
        self.fence(&slots);
        for revocation in &mut self.revocations {
            revocation.forget(&slots, partitions);
        }
        for slot in slots {
            self.drop_partition(slot);
        }
    }

    fn status(&self) -> ConsumerStatus {
        let now = Instant::now();
        let surveyed = self.partitions().map(|state| {
            state.status(self.config.limits, self.source.end(&state.assignment.partition), now)
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
