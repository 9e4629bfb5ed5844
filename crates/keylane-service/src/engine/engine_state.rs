//! In-memory state of the engine, behind one lock: the scheduler, the unfinished jobs, the running
//! attempts, and the changes on their way to the disk.
//!
//! # Protocol
//!
//! 1. **One lock.** All of this state is read and changed under the lock of [`SharedState`]. No thread does I/O,
//!    runs a handler or waits while it holds the lock. Changes may be handed to the store's writer,
//!    because that never blocks.
//! 2. **Entered in commit order.** Subtasks enter the scheduler's lanes in the callback of the
//!    commit that gives their job its place in the order, on the writer's thread: when the job is
//!    accepted, when a delayed job begins, when a split has produced them, and when they are
//!    retried. So their order in memory is the commit order, and recovery restores it. The callback
//!    enters one slice of a large job. The dispatcher enters the rest, one slice each time that it
//!    holds the lock, and nothing overtakes a waiting entry (`scheduler/entries.rs`).
//! 3. **An end is taken once.** The end of an attempt removes it from `running` by its fence; a
//!    second end finds nothing.
//! 4. **Slots and keys are free when an attempt has ended; clients see the end when it is on the
//!    disk.** The outcome enters `unwritten` in the critical section in which the scheduler learns
//!    of the end. So outcomes reach the writer in the order of the ends, and a job's last status
//!    comes after all its outcomes.
//! 5. **The writer has one batch at a time.** Changes gather meanwhile and leave when the batch is
//!    written. Under load a batch has hundreds of outcomes, with one row per job; without load it
//!    has one and leaves at once.
//! 6. **A failed write stops all starts.** If a batch is not written, the disk is full or has
//!    failed. The batch stays at the front and nothing new begins. The write is retried if the disk
//!    is full, and never if it has failed. Meanwhile no unwritten outcome is shown.
//!
//! Why order survives a crash: the outcomes of a key's subtasks on the disk are a prefix of their
//! ends in lane order, because the subtasks end in that order, enter `unwritten` in that order (4),
//! and batches are written in order (5) and whole. After a restart the lane continues behind that
//! prefix: some subtasks run again, in their order, and none is skipped.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use foldhash::fast::RandomState;
use keylane_allocate::Rule;
use parking_lot::{Mutex, MutexGuard};
use serde_json::value::RawValue;
use tokio::sync::{Notify, oneshot};
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::attempt_signals::AttemptSignals;
use super::awaited_jobs::AwaitedJobs;
use super::durations::ServiceDurations;
use super::failures::LastErrors;
use super::fences::FenceReserve;
use super::order_check::OrderCheck;
use super::pace::JobPace;
use super::step_numbers::StepNumbers;
use super::timeline::RowAllocator;
use super::unfinished_counts::UnfinishedCounts;
use super::versions::{self, VersionCounter};
use super::webhooks::{Delivery, DeliveryId, DeliveryTable};
use super::work_claims::WorkClaims;
use super::worker_table::WorkerTable;
use crate::engine::clock::Clock;
use crate::handle::AttemptOutput;
use crate::job_definition::JobDefinition;
use crate::request_error::RequestError;
use crate::scheduler::{Scheduler, Step};
use crate::store::{Changes, JobState as Stored, JobStatus, OutcomeCounts};
use crate::wire::{JobState, Timestamp};
use crate::{JobId, JobNumber, Key, SubtaskId, SubtaskNumber, TaskKeys};

/// In-memory state of the engine. All fields are behind the lock of [`SharedState`].
#[derive(Debug)]
pub(super) struct EngineState {
    /// Order of the subtasks.
    pub(super) scheduler: Scheduler,
    /// Jobs with work left to run or to write.
    pub(super) live: BTreeMap<JobNumber, ActiveJob>,
    /// Running attempts, by fence.
    pub(super) running: HashMap<u64, RunningAttempt, RandomState>,
    /// Row of each running attempt in the timeline.
    pub(super) slots: RowAllocator,
    /// Outcomes and other changes of the next batch.
    pub(super) unwritten: WriteBatch,
    /// The writer has a batch.
    pub(super) is_writing: bool,
    /// Batch that was not written because the disk is full.
    pub(super) refused: Option<WriteBatch>,
    /// Whether work could start, as far as the database counts, when the dispatcher looked last.
    pub(super) has_database: bool,
    /// Remote workers that wait for work.
    pub(super) claimers: WorkClaims,
    /// Remote workers that have leases or claims, or were heard of lately.
    pub(super) workers: WorkerTable,
    /// Lower bound of the earliest lease expiry.
    pub(super) next_expiry: Option<Timestamp>,
    /// Jobs with a time at which they expire, by that time. `expiry.rs` has the protocol.
    pub(super) expiring: BTreeSet<(Timestamp, JobNumber)>,
    /// Jobs that others wait for. `dependencies.rs` has the protocol.
    pub(super) dependencies: AwaitedJobs,
    /// Delayed jobs whose start time has passed and that have no place in the order yet.
    pub(super) due: VecDeque<JobNumber>,
    /// Jobs that changed since the last job events.
    pub(super) changed: HashSet<JobNumber, RandomState>,
    /// Counters since the start of the service.
    pub(super) totals: ServiceTotals,
    /// Durations since the start of the service.
    pub(super) durations: ServiceDurations,
    /// Webhooks that are not delivered. `webhooks/` has the protocol.
    pub(super) deliveries: DeliveryTable,
    /// Check of the key order, independent of the scheduler.
    pub(super) order: OrderCheck,
    /// Last time that an operator released a key, or the disk had room again, on the steady clock in
    /// milliseconds.
    pub(super) released_ms: u64,
    /// Keys that an operator has paused, with the time of the pause.
    pub(super) paused_keys: HashMap<Key, Timestamp>,
    /// Jobs and subtasks that wait for an operator's decision.
    pub(super) holds: super::held_jobs::HeldJobs,
    /// Jobs that were in progress in a process that ended without closing the store. Their attempts
    /// begin only when their start marks are on the disk: one of them may have caused the crash and
    /// must not be able to repeat it forever. And jobs with subtasks that may be replaced: one that has
    /// begun is not, also after a crash. A job leaves this set when it is over.
    pub(super) careful: HashSet<JobNumber>,
    /// Fences that may be given out.
    pub(super) fences: FenceReserve,
    /// Source of the versions of jobs and schedules.
    pub(super) versions: VersionCounter,
    /// Fences of attempts whose start marks are now on the disk.
    pub(super) held_back: VecDeque<u64>,
    /// Fences of promised leases whose start marks are now on the disk.
    pub(super) granted: VecDeque<u64>,
    /// The service shuts down: it accepts and starts nothing.
    pub(super) is_draining: bool,
    /// Numbers of subtasks that have not ended.
    pub(super) unfinished: UnfinishedCounts,
    /// Total size of the keys of all jobs in `live`, in bytes: the sum of their `key_bytes`.
    pub(super) key_bytes: u64,
    /// Finished jobs that a request is about to retry.
    pub(super) retried: HashSet<JobNumber>,
}

/// The state of the engine behind its lock.
#[derive(Debug)]
pub(super) struct SharedState(Mutex<EngineState>);

impl SharedState {
    pub(super) fn new(state: EngineState) -> Self {
        SharedState(Mutex::new(state))
    }

    /// Locks the state. The lock is fair (`parking_lot`): a thread that has waited for long gets it
    /// before others. It has no poison flag: only a bug panics under it, and every change made
    /// before the panic is complete.
    pub(super) fn lock(&self) -> MutexGuard<'_, EngineState> {
        self.0.lock()
    }
}

/// Visits all unfinished jobs. After each thousand, other threads get the lock: jobs that begin or end meanwhile may be
/// visited or not.
pub(super) fn visit_jobs(
    engine: &mut MutexGuard<'_, EngineState>,
    mut visit: impl FnMut(&EngineState, JobNumber, &ActiveJob),
) {
    const AT_ONCE: usize = 1000;
    let mut next = JobNumber(0);
    loop {
        let mut page = engine.live.range(next..).take(AT_ONCE + 1);
        page.by_ref().take(AT_ONCE).for_each(|(number, live)| visit(engine, *number, live));
        let Some((number, _)) = page.next() else { return };
        next = *number;
        MutexGuard::bump(engine);
    }
}

impl EngineState {
    /// Creates the state of an opening of the store, which has this number.
    pub(super) fn new(scheduler: Scheduler, boot: u64) -> Self {
        EngineState {
            scheduler,
            live: BTreeMap::new(),
            running: HashMap::default(),
            slots: RowAllocator::default(),
            unwritten: WriteBatch::default(),
            is_writing: false,
            refused: None,
            has_database: true,
            claimers: WorkClaims::default(),
            workers: WorkerTable::default(),
            next_expiry: None,
            expiring: BTreeSet::new(),
            dependencies: AwaitedJobs::default(),
            due: VecDeque::new(),
            changed: HashSet::default(),
            totals: ServiceTotals::default(),
            durations: ServiceDurations::default(),
            deliveries: DeliveryTable::default(),
            order: OrderCheck::default(),
            released_ms: 0,
            paused_keys: HashMap::new(),
            holds: super::held_jobs::HeldJobs::default(),
            careful: HashSet::new(),
            fences: FenceReserve::new(boot),
            versions: VersionCounter::new(boot),
            held_back: VecDeque::new(),
            granted: VecDeque::new(),
            is_draining: false,
            unfinished: UnfinishedCounts::default(),
            key_bytes: 0,
            retried: HashSet::new(),
        }
    }

    /// Follows a step of the wall clock, so that relative deadlines keep their distance.
    pub(super) fn follow_clock(&mut self, clock: &Clock) {
        let Some(step) = clock.step() else { return };
        self.scheduler.shift(step);
        let moved = |at: Timestamp| Timestamp(at.0.saturating_add_signed(step));
        for held in self.running.values_mut().filter_map(|running| running.lease.as_mut()) {
            (held.expires, held.deadline) = (moved(held.expires), moved(held.deadline));
        }
        self.next_expiry = self.next_expiry.map(moved);
        clock.follow(step);
    }

    /// Renews all leases when the disk has free space again, or the database answers: before, no end of a lease could
    /// be reported.
    pub(super) fn renew_leases(&mut self, now: Timestamp) {
        let held = self.running.values_mut().filter_map(|running| running.lease.as_mut());
        for held in held.filter(|held| held.promised_to.is_none()) {
            let before = held.expires;
            held.renew(now);
            held.deadline = held.deadline.max(held.expires);
            held.expires = held.expires.max(before);
        }
    }

    /// Records that a lease ends at `ends` unless a heartbeat extends it.
    pub(super) fn expect_expiry(&mut self, ends: Timestamp) {
        self.next_expiry = Some(self.next_expiry.map_or(ends, |next| next.min(ends)));
    }
}

/// Changes that are written in one transaction.
#[derive(Debug, Default)]
pub(super) struct WriteBatch {
    pub(super) changes: Changes,
    /// Effects to apply when the batch is on the disk.
    pub(super) effects: Vec<CommitEffect>,
    /// Number of delayed jobs that get their place in the order with this batch.
    pub(super) entering: usize,
}

impl WriteBatch {
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.effects.is_empty()
    }
}

/// Effect of a batch that is on the disk.
#[derive(Debug)]
pub(super) enum CommitEffect {
    /// A subtask or another step has ended.
    Ended {
        job: JobNumber,
        step: Step,
        end: FinalState,
        error: Option<String>,
        result: Option<Box<RawValue>>,
    },
    /// A job is over.
    Over { job: JobNumber, state: JobState, ended: Timestamp },
    /// The webhook of an ended job can be sent.
    Delivery { id: DeliveryId, delivery: Box<Delivery> },
    /// A delayed job has its place in the order and begins.
    Entered { job: JobNumber },
    /// An attempt may begin: its start mark is written.
    Marked { fence: u64 },
    /// A lease may be handed over: its start mark and all earlier outcomes are written.
    Granted { fence: u64 },
    /// The range of fences of this boot is reserved.
    Reserved { boot: u64 },
    /// Reports that all earlier changes are written, or that the write was refused.
    Reply(oneshot::Sender<Result<(), RequestError>>),
}

/// Final state of a subtask, for the counts of its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FinalState {
    Succeeded,
    Failed,
    Cancelled,
    Skipped,
    /// The subtask with this id has replaced it.
    Superseded(SubtaskId),
}

impl FinalState {
    pub(super) fn count(self, counts: &mut OutcomeCounts) {
        match self {
            FinalState::Succeeded => counts.succeeded += 1,
            FinalState::Failed => counts.failed += 1,
            FinalState::Cancelled => counts.cancelled += 1,
            FinalState::Skipped => counts.skipped += 1,
            FinalState::Superseded(_) => counts.superseded += 1,
        }
    }
}

/// A job that is not over, or whose end is on its way to the disk.
#[derive(Debug)]
pub(super) struct ActiveJob {
    pub(super) id: JobId,
    pub(super) head: Arc<JobDefinition>,
    /// Numbers of the job's steps in the store.
    pub(super) plan: StepNumbers,
    pub(super) created: Timestamp,
    pub(super) started: Option<Timestamp>,
    /// Base of the remaining-time estimate.
    pub(super) pace: Option<JobPace>,
    /// Time of its place in the order, on the steady clock in milliseconds; `None` before, and after a restart.
    pub(super) placed_ms: Option<u64>,
    /// Start time of a job that is delayed or waits for others. `None` once the job has its place in the order.
    pub(super) begins_at: Option<Timestamp>,
    /// The start time has passed, also if the clock was set back since.
    pub(super) is_due: bool,
    /// The start time has passed, and the place in the order is on its way to the disk.
    pub(super) is_entering: bool,
    /// Total size of the subtasks' keys, in bytes. It counts until the job is over.
    pub(super) key_bytes: u64,
    /// Counts of ended subtasks.
    pub(super) ended: OutcomeCounts,
    /// Counts of ended subtasks whose outcomes are on the disk: the counts that clients see.
    pub(super) recorded: OutcomeCounts,
    /// Message of the first failure.
    pub(super) error: Option<String>,
    /// The same, also before it is on the disk, if the job has a webhook, which reports it.
    pub(super) unwritten_error: Option<String>,
    /// Failures of attempts that will be retried.
    pub(super) failures: LastErrors,
    /// Result of the fan-in.
    pub(super) result: Option<Box<RawValue>>,
    pub(super) paused: bool,
    pub(super) cancelling: bool,
    /// The job is over, and its last status is on its way to the disk.
    pub(super) is_closing: bool,
    /// Version of the job, see `versions.rs`.
    pub(super) version: u64,
    /// Version of the job's end, once it is recorded.
    pub(super) end_version: Option<u64>,
    /// Notification for requests that wait for a change of the job.
    pub(super) notify: Option<Arc<Notify>>,
    /// Notification for requests that wait for the end of the job.
    pub(super) end_notify: Option<Arc<Notify>>,
}

impl ActiveJob {
    /// Records a change of the job: gives it a new version.
    pub(super) fn touch(&mut self, versions: &mut VersionCounter) {
        self.version = match self.end_version {
            None => versions.take(),
            Some(end) => (self.version + 1).min(end - 1),
        };
        if let Some(notify) = &self.notify {
            notify.notify_waiters();
        }
    }

    /// Chooses the version of the job's end, above those of the changes that are shown before it.
    pub(super) fn close(&mut self, versions: &mut VersionCounter) -> u64 {
        self.is_closing = true;
        let unrecorded = self.ended.ended().saturating_sub(self.recorded.ended());
        let end = versions.take_above(u64::from(unrecorded) + versions::SPARE);
        self.end_version = Some(end);
        end
    }

    /// Records the start of a subtask.
    pub(super) fn note_start(&mut self, now_ms: u64, released_ms: u64) {
        let ended = self.recorded.ended().into();
        self.pace = Some(JobPace::at_start(self.pace, now_ms, released_ms, ended));
    }

    /// Records that no subtask runs any more.
    pub(super) fn note_idle(&mut self, now_ms: u64) {
        if let Some(pace) = &mut self.pace {
            pace.idle_since = Some(now_ms);
        }
    }

    /// Returns the notification for changes of the job, and creates it on first use.
    pub(super) fn notify(&mut self) -> Arc<Notify> {
        Arc::clone(self.notify.get_or_insert_default())
    }

    /// Returns the job's counts at its end. Every subtask without an outcome counts as cancelled.
    pub(super) fn final_counts(&self) -> OutcomeCounts {
        let others = self.ended.ended() - self.ended.cancelled;
        OutcomeCounts { cancelled: self.plan.total().saturating_sub(others), ..self.ended }
    }

    /// Returns the status to write while the job is not over.
    pub(super) fn status(&self) -> JobStatus {
        let state = match (self.cancelling, self.paused) {
            (true, _) => Stored::Cancelling,
            (false, true) => Stored::Paused,
            (false, false) => Stored::Waiting,
        };
        JobStatus {
            // A status written from here on is committed after the job's place in the order.
            start_at_ms: self.begins_at.filter(|_| !self.is_entering).map(|at| at.0),
            started_ms: self.started.map(|at| at.0),
            ..JobStatus::of(state)
        }
    }
}

/// A subtask or another step that has a slot.
#[derive(Debug)]
pub(super) struct RunningAttempt {
    pub(super) job: JobNumber,
    pub(super) step: Step,
    /// Number of the step in the store.
    pub(super) number: SubtaskNumber,
    pub(super) attempt: u32,
    pub(super) kind: u32,
    pub(super) rule: Rule,
    pub(super) slot: u32,
    pub(super) since: Timestamp,
    /// The same on the steady clock, in milliseconds; `None` for a lease of an earlier process.
    pub(super) since_steady_ms: Option<u64>,
    pub(super) keys: TaskKeys,
    /// Cancellation and progress.
    pub(super) signals: AttemptSignals,
    /// Log of the attempt.
    pub(super) log: AttemptOutput,
    /// Lease, if a remote worker runs the attempt.
    pub(super) lease: Option<super::work_claims::LeaseState>,
    /// Token of the set of local attempts or leases that a shutdown waits for. Held from the
    /// registration of the attempt, before its handler or worker has it, until its end is applied
    /// here.
    pub(super) awaited: Option<TaskTrackerToken>,
}

/// Counters since the start of the service.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ServiceTotals {
    pub(super) succeeded: u64,
    pub(super) failed: u64,
    pub(super) cancelled: u64,
    pub(super) superseded: u64,
    pub(super) retried: u64,
    pub(super) jobs_accepted: u64,
    pub(super) jobs_succeeded: u64,
    pub(super) jobs_failed: u64,
    pub(super) jobs_cancelled: u64,
    pub(super) jobs_expired: u64,
    /// Jobs that were submitted by SQL and refused.
    pub(super) inbox_refused: u64,
    pub(super) leases_lost: u64,
    pub(super) starts: u64,
    /// Subtasks that began before their turn with a key, according to the order check. Must stay 0.
    pub(super) order_violations: u64,
}
