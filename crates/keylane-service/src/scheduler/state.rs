//! State of the scheduler, and acceptance of jobs.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use keylane_allocate::{Record, Rule, Supply, TenantIndex, TenantJobId, TenantScheduler};

use super::entry_queue_keys::QueuedKeys;
use super::incremental_work::{IncrementalWork, PendingEntry, TaskSweep};
use super::job::{JobPhase, ScheduledJob, ScheduledStart, StepState};
use super::key_rates::KeyRates;
use super::kinds::KindTable;
use super::lanes::Lanes;
use super::packed_subtasks::PackedSubtasks;
use super::slab::Slab;
use super::task::{ScheduledTask, TaskPhase, TaskSlab};
use super::tenants::TenantTable;
use super::timers::{TimerEvent, Timers};
use super::wait_totals::WaitDurations;
use super::{
    AcceptResult, AddError, DecisionView, JobOutcome, NewJob, NewSubtask, SchedulerSettings, Step,
    SubtaskCounts, SubtaskFate,
};
use crate::{JobNumber, KeyClaim};

/// Decides which subtask of which job runs next: see the [module](super).
///
/// A command costs O(log n) in jobs and timers for each subtask concerned, whatever else waits; the
/// cost of a query is documented with it. Times are milliseconds from any origin; a time before the
/// last one counts as the last one.
///
/// ```
/// use keylane_service::scheduler::{RunEnd, NewJob, NewSubtask, JobOutcome, Scheduler, SchedulerSettings, Step};
/// use keylane_service::JobNumber;
///
/// let mut scheduler = Scheduler::new(SchedulerSettings::new(4));
/// let subtask = |number| NewSubtask { number, keys: [&b"customer 7"[..]], attempts_made: 0 };
/// scheduler.accept(NewJob::new(JobNumber(1), [subtask(0), subtask(1)]), 0);
///
/// let first = scheduler.poll_start(0).unwrap();
/// assert_eq!((first.step, first.attempt), (Step::Subtask(0), 1));
/// assert_eq!(scheduler.poll_start(0), None); // the other waits for the key
///
/// scheduler.ended(first.job, first.step, first.fence, RunEnd::Succeeded, 5)?;
/// let second = scheduler.poll_start(5).unwrap();
/// let ended = scheduler.ended(second.job, second.step, second.fence, RunEnd::Succeeded, 9)?;
/// assert_eq!(ended.over, Some(JobOutcome::Succeeded));
/// # Ok::<(), keylane_service::scheduler::StaleFence>(())
/// ```
#[derive(Debug)]
pub struct Scheduler {
    /// Decides which job gets a slot. It counts a job's ready tasks and fresh subtasks as ready;
    /// waiting, backing-off and stopped ones, and a pending fan-in, as waiting.
    pub(super) allocator: TenantScheduler,
    pub(super) tasks: TaskSlab,
    pub(super) lanes: Lanes,
    /// Unfinished jobs. A slot with `weight` 0 is free.
    pub(super) jobs: Slab<ScheduledJob>,
    pub(super) by_number: HashMap<u64, u32, FixedState>,
    /// Slots of the jobs by their id in the allocator.
    pub(super) by_share: HashMap<TenantJobId, u32, FixedState>,
    pub(super) tenants: TenantTable,
    pub(super) kinds: KindTable,
    pub(super) key_rates: KeyRates,
    pub(super) timers: Timers,
    /// Start times of scheduled jobs, by the caller's clock.
    pub(super) begins: Timers,
    /// Runs by fence.
    pub(super) runs: HashMap<u64, RunningTask, FixedState>,
    pub(super) next_fence: u64,
    /// Number of slots, including those of restored runs.
    pub(super) slots: usize,
    /// Number of restored runs (`restore.rs`).
    pub(super) restored: usize,
    /// Latest time passed in, in milliseconds.
    pub(super) now: u64,
    /// Difference between the caller's clock and the steady clock (`steady_time.rs`).
    pub(super) offset: i64,
    pub(super) draining: bool,
    /// Durations for which subtasks have waited.
    pub(super) waits: WaitDurations,
    /// Maximum number of active jobs, as in the allocator.
    pub(super) max_active: Option<usize>,
    /// Last decisions, newest last, and the number to keep.
    pub(super) decisions: VecDeque<DecisionView>,
    pub(super) decisions_kept: usize,
    /// Tasks that a change of lanes has unblocked. Empty between calls; kept for its allocation.
    pub(super) opened: Vec<u32>,
    /// Entry queue: subtasks that have not entered, by the sequence number of their entry.
    pub(super) line: BTreeMap<u64, PendingEntry>,
    /// Sequence number of the next entry.
    pub(super) next_entry: u64,
    /// Keys of all entries in `line`.
    pub(super) line_keys: QueuedKeys,
    /// Entries in `line` whose next slice shares no key with an earlier entry.
    pub(super) passing: BTreeSet<u64>,
    /// Type of the last slice of work.
    pub(super) last_work: IncrementalWork,
    /// Dropped jobs whose tasks have not left their lanes.
    pub(super) sweeps: VecDeque<TaskSweep>,
    /// Units of work of one call, see [`SchedulerSettings::slice`].
    pub(super) slice: u32,
    /// Memory that the caller must release.
    pub(super) trash: Vec<Box<dyn Any + Send>>,
}

/// Capacity above which an empty map is released.
const ROOM_KEPT: usize = 1024;

/// Task that has a slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunningTask {
    pub(super) task: u32,
    pub(super) since: u64,
    pub(super) rule: Rule,
    /// Whether it was [restored](Scheduler::restore), and so has its slot not from the allocator.
    pub(super) is_restored: bool,
}

impl Scheduler {
    /// Returns a scheduler without jobs.
    #[must_use]
    pub fn new(settings: SchedulerSettings) -> Self {
        let mut allocator = TenantScheduler::new(settings.slots)
            .with_policy(settings.order)
            .with_max_active(settings.max_active);
        if let Some(ageing) = settings.ageing {
            allocator = allocator.with_ageing(ageing);
        }
        if let Some(patience) = settings.patience {
            allocator = allocator.with_patience(patience);
        }
        Scheduler {
            allocator,
            tasks: TaskSlab::new(),
            lanes: Lanes::new(),
            jobs: Slab::new(),
            by_number: HashMap::default(),
            by_share: HashMap::default(),
            tenants: TenantTable::default(),
            kinds: KindTable::new(settings.ageing),
            key_rates: KeyRates::new(),
            timers: Timers::default(),
            begins: Timers::default(),
            runs: HashMap::default(),
            next_fence: settings.first_fence,
            slots: settings.slots,
            restored: 0,
            now: 0,
            offset: 0,
            draining: false,
            waits: WaitDurations::default(),
            max_active: settings.max_active,
            decisions: VecDeque::new(),
            decisions_kept: settings.decisions_kept,
            opened: Vec::new(),
            line: BTreeMap::new(),
            next_entry: 0,
            line_keys: QueuedKeys::default(),
            passing: BTreeSet::new(),
            last_work: IncrementalWork::Sweep,
            sweeps: VecDeque::new(),
            slice: settings.slice.max(1),
            trash: Vec::new(),
        }
    }

    /// Accepts a job. All its subtasks with keys enter their lanes behind all earlier ones; those
    /// of a scheduled job do so when it [begins](Self::begin). The subtasks of a large job enter in
    /// slices: the first slice now, unless other entries are queued, and the rest with
    /// [`work_off`](Self::work_off).
    ///
    /// After a restart the caller accepts the unfinished jobs again, in the order in which their
    /// subtasks entered, each with its unfinished subtasks: this restores the order of each key. A
    /// subtask without an attempt left fails, or stops its keys again.
    ///
    /// # Panics
    ///
    /// Panics if a job of this number is unfinished, or a subtask's number is above
    /// [`Step::LAST_SUBTASK`].
    pub fn accept<'k, K>(
        &mut self,
        new: NewJob<impl IntoIterator<Item = NewSubtask<K>>>,
        now: u64,
    ) -> AcceptResult
    where
        K: IntoIterator<Item: Into<KeyClaim<'k>>>,
    {
        let new = new.map(|subtasks| self.pack(subtasks));
        self.accept_packed(new, now)
    }

    fn pack<'k, K>(&self, subtasks: impl IntoIterator<Item = NewSubtask<K>>) -> PackedSubtasks
    where
        K: IntoIterator<Item: Into<KeyClaim<'k>>>,
    {
        let mut packed = PackedSubtasks::default();
        subtasks.into_iter().for_each(|subtask| packed.push_within(subtask, self.slice));
        packed
    }

    /// Adds a job without subtasks to the table of jobs.
    pub(super) fn insert<S>(&mut self, new: &NewJob<S>) -> u32 {
        let tenant = self.enter_tenant(new.tenant.as_ref());
        let slot = self.jobs.insert(describe(new, tenant));
        let is_new = self.by_number.insert(new.number.0, slot).is_none();
        assert!(is_new, "job {} was accepted before", new.number.0);
        slot
    }

    /// Keeps the subtasks of a job until its start time.
    pub(super) fn park(&mut self, slot: u32, at: u64, parked: PackedSubtasks) {
        self.jobs[slot].counts.scheduled = parked.count();
        self.jobs[slot].scheduled = Some(ScheduledStart { at, parked, is_due: false });
        self.begins.set(at, TimerEvent::Begin(slot));
    }

    /// Begins a scheduled job, whatever its time: its subtasks with keys enter their lanes as those
    /// of a job that is [accepted](Self::accept) now. `None` if the job is unknown or not
    /// scheduled.
    pub fn begin(&mut self, job: JobNumber, now: u64) -> Option<AcceptResult> {
        let slot = self.find(job)?;
        let now = self.at(now);
        let ScheduledStart { parked, is_due, at } = self.jobs[slot].scheduled.take()?;
        if !is_due {
            self.begins.call_off(at, TimerEvent::Begin(slot));
        }
        self.jobs[slot].counts.scheduled = 0;
        Some(self.let_share(slot, parked, None, now))
    }

    /// Adds subtasks that the split of a job has made, before the split is finished; they may start
    /// before its end. They enter their lanes as those of a job that is [accepted](Self::accept)
    /// now. A retried split must not add the subtasks that it has added before.
    ///
    /// # Errors
    ///
    /// Returns an error if the job is finished, cancelled or failing, or has no unfinished split.
    pub fn add_subtasks<'k, K>(
        &mut self,
        job: JobNumber,
        subtasks: impl IntoIterator<Item = NewSubtask<K>>,
        now: u64,
    ) -> Result<AcceptResult, AddError>
    where
        K: IntoIterator<Item: Into<KeyClaim<'k>>>,
    {
        let packed = self.pack(subtasks);
        self.add_packed(job, packed, now)
    }

    /// Adds packed subtasks, as [`add_subtasks`](Self::add_subtasks) does.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`add_subtasks`](Self::add_subtasks).
    pub fn add_packed(
        &mut self,
        job: JobNumber,
        subtasks: PackedSubtasks,
        now: u64,
    ) -> Result<AcceptResult, AddError> {
        let slot = self.find(job).ok_or(AddError::NoSuchJob)?;
        if self.jobs[slot].split == StepState::Over {
            return Err(AddError::Closed);
        }
        self.add(slot, subtasks, now)
    }

    /// Reopens failed subtasks of an unfinished job, each with a new number of attempts made: they
    /// enter at the end of their lanes, and no longer count as failed. A finished job is
    /// [accepted](Self::accept) again instead.
    ///
    /// # Errors
    ///
    /// Returns an error if the job is finished, cancelled or failing, or its fan-in has started.
    ///
    /// # Panics
    ///
    /// Panics if fewer subtasks have failed.
    pub fn reopen<'k, K>(
        &mut self,
        job: JobNumber,
        subtasks: impl IntoIterator<Item = NewSubtask<K>>,
        now: u64,
    ) -> Result<AcceptResult, AddError>
    where
        K: IntoIterator<Item: Into<KeyClaim<'k>>>,
    {
        let slot = self.find(job).ok_or(AddError::NoSuchJob)?;
        let packed = self.pack(subtasks);
        self.may_take_more(slot)?;
        if packed.has_barriers() && !self.jobs[slot].has_barriers {
            // The subtasks that have entered would not wait for the barrier.
            return Err(AddError::Closed);
        }
        let failed = &mut self.jobs[slot].counts.failed;
        *failed = failed.checked_sub(packed.count()).expect("at least as many have failed");
        self.add(slot, packed, now)
    }

    /// Checks that a job can take more subtasks.
    fn may_take_more(&self, slot: u32) -> Result<(), AddError> {
        let job = &self.jobs[slot];
        let is_closed =
            job.share.is_none() || job.course != JobPhase::Open || job.fan_in == StepState::Task;
        if is_closed { Err(AddError::Closed) } else { Ok(()) }
    }

    fn add(
        &mut self,
        slot: u32,
        packed: PackedSubtasks,
        now: u64,
    ) -> Result<AcceptResult, AddError> {
        let now = self.at(now);
        self.may_take_more(slot)?;
        let share = self.share(slot);
        self.allocator.came(share, 0, packed.count(), now);
        self.jobs[slot].counts.entering += packed.count();
        let mut accepted = AcceptResult::default();
        self.enter(slot, packed, false, &mut accepted, now);
        Ok(accepted)
    }

    /// Admits a job to the allocator and queues its subtasks. With `expected` the job is fed, and
    /// has that number of subtasks.
    pub(super) fn let_share(
        &mut self,
        slot: u32,
        packed: PackedSubtasks,
        expected: Option<u64>,
        now: u64,
    ) -> AcceptResult {
        let is_open = expected.is_some();
        let job = &mut self.jobs[slot];
        job.counts.entering = expected.unwrap_or(packed.count());
        job.is_fed = is_open;
        let waiting =
            packed.count() + u64::from(job.fan_in != StepState::Over) + u64::from(is_open);
        let supply = match job.split {
            StepState::Over => Supply::Lined { ready: 0, waiting },
            _ => Supply::Split { expected: None },
        };
        let share = self.allocator.submit(job.tenant, job.priority, supply, job.weight, now);
        job.share = Some(share);
        if job.split != StepState::Over {
            self.allocator.came(share, 0, waiting, now);
        }
        if job.paused {
            self.allocator.pause(share, now);
        }
        self.by_share.insert(share, slot);
        let mut accepted = self.fail_exhausted_split(slot, now);
        if self.jobs[slot].course == JobPhase::Open {
            self.enter(slot, packed, is_open, &mut accepted, now);
        } else {
            self.trash.push(Box::new(packed));
            accepted.over = self.conclude(slot, now);
        }
        accepted
    }

    /// Fails a job whose split has no attempt left.
    fn fail_exhausted_split(&mut self, slot: u32, now: u64) -> AcceptResult {
        let mut accepted = AcceptResult::default();
        let job = &mut self.jobs[slot];
        if matches!(job.split, StepState::Pending(made) if made >= job.attempts_allowed) {
            job.split = StepState::Over;
            job.step_failed = true;
            let share = self.share(slot);
            self.allocator.exhausted(share, now);
            accepted.failed.push(Step::Split);
            accepted.dropped = self.fail_fast(slot, now);
        }
        accepted
    }

    /// Stops the keys of tasks without an attempt left, or fails the tasks.
    pub(super) fn fail_exhausted(
        &mut self,
        slot: u32,
        exhausted: Vec<u32>,
        accepted: &mut AcceptResult,
        now: u64,
    ) {
        for task in exhausted {
            // If one of them failed the job, the others are dropped.
            if self.jobs[slot].course != JobPhase::Open {
                break;
            }
            self.leave_phase(slot, task);
            if self.stops_keys(slot, task) {
                self.stop_keys(slot, task, now);
                continue;
            }
            accepted.failed.push(Step::of(self.tasks[task].number));
            self.settle(slot, true, now);
            self.put_away(slot, task, SubtaskFate::Failed, now);
            accepted.dropped += self.fail_fast(slot, now);
        }
        accepted.over = self.conclude(slot, now);
    }

    /// Handles due timers: retries become ready, and kinds with a new token release a job. Returns
    /// the jobs whose start time has come, earliest first. Each is returned once, and
    /// [begins](Self::begin) with a call: so its position in the order can be persisted first.
    ///
    /// Of very many timers one slice is handled; [`next_timeout`](Self::next_timeout) is then not
    /// later than now.
    pub fn handle_timeout(&mut self, now: u64) -> Vec<JobNumber> {
        let now = self.at(now);
        let mut jobs = Vec::new();
        for _ in 0..self.slice {
            let Some((at, due)) = self.pop_due(now) else { break };
            match due {
                TimerEvent::Attempt(task) if self.is_dropped(task) => {}
                TimerEvent::Attempt(task) => self.wake(task, now),
                TimerEvent::Begin(slot) => {
                    let job = &mut self.jobs[slot];
                    jobs.push(job.number);
                    job.scheduled.iter_mut().for_each(|scheduled| scheduled.is_due = true);
                }
                // The timer of a forgotten kind stays until it is due.
                TimerEvent::Token(kind) if self.is_token_awaited(kind, at) => {
                    self.handle_token(kind, now)
                }
                TimerEvent::Token(_) => {}
                TimerEvent::TenantToken(tenant) => self.handle_tenant_token(tenant, at, now),
            }
        }
        for _ in 0..self.slice {
            if !self.release_due_key(now) {
                break;
            }
        }
        jobs
    }

    /// Time of the next [`handle_timeout`](Self::handle_timeout); `None`: no timer is set. It can
    /// be too early, because of a cancelled timer.
    #[must_use]
    pub fn next_timeout(&self) -> Option<u64> {
        let steady = [self.timers.first(), self.key_rates.next()].into_iter().flatten().min();
        let shown = steady.map(|at| self.shown(at));
        [shown, self.begins.first()].into_iter().flatten().min()
    }

    /// Removes the next due timer of both sets.
    fn pop_due(&mut self, now: u64) -> Option<(u64, TimerEvent)> {
        let shown = self.timers.first().map(|at| self.shown(at));
        let begins_first =
            self.begins.first().is_some_and(|at| shown.is_none_or(|first| at < first));
        match begins_first {
            true => self.begins.pop_due(self.shown(now)),
            false => self.timers.pop_due(now),
        }
    }

    fn is_token_awaited(&self, kind: u32, at: u64) -> bool {
        self.kinds.look(super::KindId(kind)).is_some_and(|kind| kind.timer == Some(at))
    }

    /// Starts to record the last `capacity` events of the allocation, so that its decisions can be
    /// replayed.
    ///
    /// # Panics
    ///
    /// Panics if `capacity` is zero.
    pub fn record(&mut self, capacity: usize) {
        self.allocator.record(capacity);
    }

    /// Recorded events of the jobs of the default tenant, numbered in the order in which they began.
    #[must_use]
    pub fn recorded(&self) -> Option<&Record> {
        self.allocator.recorded()
    }

    pub(super) fn find(&self, job: JobNumber) -> Option<u32> {
        self.by_number.get(&job.0).copied()
    }

    /// Id in the allocator of a job that is not scheduled.
    pub(super) fn share(&self, slot: u32) -> TenantJobId {
        self.jobs[slot].share.expect("only a job that has begun has tasks")
    }

    /// Tells the allocator that a waiting task of the job has ended without a slot.
    pub(super) fn settle(&mut self, slot: u32, failed: bool, now: u64) {
        let share = self.share(slot);
        self.allocator.settled(share, failed, now);
    }

    /// Moves a task into a phase.
    pub(super) fn enter_phase(&mut self, slot: u32, task: u32, phase: TaskPhase) {
        let Scheduler { tasks, jobs, .. } = self;
        let job = &mut jobs[slot];
        if let Some(list) = job.list_of(phase) {
            list.push(tasks, task, ScheduledTask::link);
        }
        let task = &mut tasks[task];
        task.phase = phase;
        *job.count_of(phase) += u64::from(task.is_subtask());
    }

    /// Takes a task out of its phase; it has none until the next `enter_phase`.
    pub(super) fn leave_phase(&mut self, slot: u32, task: u32) -> TaskPhase {
        let Scheduler { tasks, jobs, .. } = self;
        let job = &mut jobs[slot];
        let ScheduledTask { phase, .. } = tasks[task];
        if let Some(list) = job.list_of(phase) {
            list.remove(tasks, task, ScheduledTask::link);
        }
        *job.count_of(phase) -= u64::from(tasks[task].is_subtask());
        phase
    }

    /// Finishes a job that has no unfinished subtask, or starts its pending fan-in.
    pub(super) fn conclude(&mut self, slot: u32, now: u64) -> Option<JobOutcome> {
        let job = &mut self.jobs[slot];
        let is_left = job.counts.unfinished() > 0 || !job.entries.is_empty();
        if is_left || job.is_fed || job.is_swept || job.split != StepState::Over {
            return None;
        }
        if let StepState::Pending(made) = job.fan_in {
            let is_exhausted = made >= job.attempts_allowed;
            if job.outcome() == JobOutcome::Succeeded && !is_exhausted {
                job.fan_in = StepState::Task;
                let task = ScheduledTask::new(slot, Step::FanIn.number(), made, now);
                let task = self.tasks.insert(task);
                self.jobs[slot].roll.begin(Step::FanIn.number(), task);
                self.enter_phase(slot, task, TaskPhase::Waiting);
                self.wake(task, now);
                return None;
            }
            job.step_failed |= is_exhausted && job.outcome() == JobOutcome::Succeeded;
            job.fan_in = StepState::Over;
            self.settle(slot, true, now);
        }
        let job = &self.jobs[slot];
        (job.fan_in == StepState::Over).then(|| self.forget(slot))
    }

    /// Removes a finished job completely.
    pub(super) fn forget(&mut self, slot: u32) -> JobOutcome {
        let job = self.jobs.remove(slot);
        self.by_number.remove(&job.number.0);
        if self.by_number.is_empty() && self.by_number.capacity() > ROOM_KEPT {
            (self.by_number, self.by_share) = Default::default();
        }
        if let Some(share) = job.share {
            self.by_share.remove(&share);
            debug_assert!(self.allocator.progress(share).is_none(), "the allocator agrees");
        }
        if let Some(turn) = job.held {
            self.kinds.forget(job.kind, turn);
            self.kinds.forget_if_free(job.kind);
        }
        self.leave_tenant(job.tenant);
        job.outcome()
    }
}

/// State of a new job without its subtasks.
fn describe<S>(new: &NewJob<S>, tenant: TenantIndex) -> ScheduledJob {
    let step = |made: Option<u32>| made.map_or(StepState::Over, StepState::Pending);
    let super::EndedCounts { succeeded, failed, cancelled, superseded } = new.ended;
    ScheduledJob {
        number: new.number,
        kind: new.kind,
        tenant,
        priority: new.priority,
        weight: new.weight.max(1),
        on_error: new.on_error,
        on_fail: new.on_fail,
        attempts_allowed: new.attempts_allowed.max(1),
        paused: new.paused,
        has_barriers: new.has_barriers,
        limit: new.max_per_key.filter(|limit| *limit > 1).unwrap_or(0),
        split: step(new.split),
        fan_in: step(new.fan_in),
        counts: SubtaskCounts {
            succeeded,
            failed,
            cancelled,
            superseded,
            ..SubtaskCounts::default()
        },
        ..ScheduledJob::default()
    }
}
