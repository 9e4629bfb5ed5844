//! Types of the scheduler's inputs and outputs.

use std::fmt;

use keylane::allocate::{Order, Rule};

use crate::{JobNumber, SubtaskNumber};

/// Units of work of one slice: a subtask counts one unit, and each of its keys one more. With a
/// million lanes in memory, a unit was measured at 0.2 to 1 µs, so a slice holds the lock for about
/// a millisecond.
pub(super) const SLICE: u32 = 1024;

/// Settings of a scheduler.
#[derive(Clone, Debug)]
pub struct SchedulerSettings {
    /// Maximum number of subtasks that run at the same time. With 0 none starts.
    pub slots: usize,
    /// Order in which the rules prefer jobs. Default: arrival.
    pub order: Order,
    /// Maximum number of active jobs; `None`: the default of `order`.
    pub max_active: Option<usize>,
    /// Maximum time for which a job may be held at one slot, in milliseconds; `None`: unlimited.
    pub patience: Option<u64>,
    /// Fence of the first start: higher than all fences given before, also by earlier processes.
    pub first_fence: u64,
    /// Number of recent decisions that are kept.
    pub decisions_kept: usize,
    /// Units of work that one call does for a large job: a subtask counts one unit, and each of its
    /// keys one more. 0 counts as 1.
    pub slice: u32,
}

impl SchedulerSettings {
    /// Returns the default settings with this number of slots: order by arrival, as many active
    /// jobs as slots, no patience, fences from 1, the last 1024 decisions (about 64 KiB).
    #[must_use]
    pub fn new(slots: usize) -> Self {
        SchedulerSettings {
            slots,
            order: Order::Arrival,
            max_active: None,
            patience: None,
            first_fence: 1,
            decisions_kept: 1024,
            slice: SLICE,
        }
    }
}

/// Id of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KindId(pub u32);

/// Limits of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindLimits {
    /// Maximum number of running subtasks; `None`: the number of slots. With 0 none starts.
    pub concurrency: Option<u32>,
    /// Maximum rate of starts; `None`: no limit.
    pub rate: Option<RateLimit>,
    /// Whether the limits apply to subtasks only: the split and the fan-in of a job then need only
    /// a slot. Jobs of such a kind that have a split have only the subtasks that it adds.
    pub subtasks_only: bool,
}

/// Limit on the rate of starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Number of starts per `period_ms`.
    pub tokens: u32,
    /// Length of the period, in milliseconds, with starts evenly spread; 0 counts as 1.
    pub period_ms: u32,
    /// Maximum number of starts at once after an idle time; 0 counts as 1.
    pub burst: u32,
}

/// Effect of a failed subtask on the rest of its job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// The other subtasks still run.
    #[default]
    FinishAll,
    /// Subtasks that have not started are dropped; running ones end.
    FailFast,
}

/// Effect of a subtask's last failed attempt on its keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFail {
    /// The subtask has failed, and its keys go on.
    #[default]
    Continue,
    /// The subtask stays at the head of its lanes and blocks them until an operator retries or
    /// skips it. A subtask without keys fails as with `Continue`.
    StopKey,
}

/// Unit of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Step {
    /// One subtask.
    Subtask(SubtaskNumber),
    /// Split: makes the subtasks of a job, in a slot.
    Split,
    /// Fan-in: makes the job's result once all subtasks have succeeded.
    FanIn,
}

const SPLIT: u32 = u32::MAX;
const FAN_IN: u32 = u32::MAX - 1;

impl Step {
    /// Highest number of a subtask.
    pub const LAST_SUBTASK: SubtaskNumber = u32::MAX - 2;

    pub(super) fn number(self) -> u32 {
        match self {
            Step::Subtask(number) => number,
            Step::Split => SPLIT,
            Step::FanIn => FAN_IN,
        }
    }

    pub(super) fn of(number: u32) -> Self {
        match number {
            SPLIT => Step::Split,
            FAN_IN => Step::FanIn,
            number => Step::Subtask(number),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Subtask(number) => write!(f, "subtask {number}"),
            Step::Split => write!(f, "the split"),
            Step::FanIn => write!(f, "the fan-in"),
        }
    }
}

/// Job to accept: a new one, or the unfinished rest of one after a restart.
#[derive(Clone, Debug)]
pub struct NewJob<S> {
    /// Number of the job; no unfinished job has it.
    pub number: JobNumber,
    /// Kind of its subtasks.
    pub kind: KindId,
    /// Weight of its claim to spare slots; 0 counts as 1.
    pub weight: u32,
    /// Effect of a failed subtask on the others.
    pub on_error: OnError,
    /// Effect of a failed subtask on its keys.
    pub on_fail: OnFail,
    /// Maximum number of attempts of each subtask, the split and the fan-in; 0 counts as 1.
    pub attempts_allowed: u32,
    /// Whether it is paused.
    pub paused: bool,
    /// Earliest start, in milliseconds; the caller must also [begin](super::Scheduler::begin) the
    /// job. `None`: now. A scheduled job is in no lane, so that it blocks no key: its position in
    /// the order is assigned when it begins.
    pub start_at: Option<u64>,
    /// Attempts already made at the split; `None` if there is none or it has succeeded.
    pub split: Option<u32>,
    /// Attempts already made at the fan-in; `None` if there is none.
    pub fan_in: Option<u32>,
    /// Counts of its ended subtasks.
    pub ended: EndedCounts,
    /// Its unfinished subtasks.
    pub subtasks: S,
}

impl<S> NewJob<S> {
    /// Returns a job with these subtasks and the defaults: kind 0, weight 1, one attempt, no ended
    /// subtasks; other subtasks and the keys go on after a failure.
    #[must_use]
    pub fn new(number: JobNumber, subtasks: S) -> Self {
        NewJob {
            number,
            kind: KindId(0),
            weight: 1,
            on_error: OnError::FinishAll,
            on_fail: OnFail::Continue,
            attempts_allowed: 1,
            paused: false,
            start_at: None,
            split: None,
            fan_in: None,
            ended: EndedCounts::default(),
            subtasks,
        }
    }
}

impl<S> NewJob<S> {
    /// Returns the job with its subtasks converted.
    pub(super) fn map<T>(self, change: impl FnOnce(S) -> T) -> NewJob<T> {
        let NewJob { number, kind, weight, on_error, on_fail, attempts_allowed, .. } = self;
        let NewJob { paused, start_at, split, fan_in, ended, subtasks, .. } = self;
        NewJob {
            number,
            kind,
            weight,
            on_error,
            on_fail,
            attempts_allowed,
            paused,
            start_at,
            split,
            fan_in,
            ended,
            subtasks: change(subtasks),
        }
    }
}

/// Counts of a job's ended subtasks, by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndedCounts {
    /// Subtasks that succeeded.
    pub succeeded: u64,
    /// Subtasks that failed on their last attempt.
    pub failed: u64,
    /// Subtasks that were dropped before they could succeed.
    pub cancelled: u64,
}

/// Subtask to accept.
#[derive(Clone, Debug)]
pub struct NewSubtask<K> {
    /// Number in its job; at most [`Step::LAST_SUBTASK`]. Ascending numbers need the least memory.
    pub number: SubtaskNumber,
    /// Its keys; duplicates count once.
    pub keys: K,
    /// Number of starts in earlier processes; a crash counts.
    pub attempts_made: u32,
}

/// Result of accepting subtasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AcceptResult {
    /// Number of subtasks that this call has entered into the order. Those of a large job enter in
    /// slices.
    pub entered: u64,
    /// Subtasks that had no attempt left and so have failed.
    pub failed: Vec<Step>,
    /// Number of subtasks dropped because of these failures.
    pub dropped: u64,
    /// Outcome of the job, if it is finished.
    pub over: Option<JobOutcome>,
}

/// Start of a run. It owns a slot until [`ended`](super::Scheduler::ended).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunStart {
    /// Job of the step.
    pub job: JobNumber,
    /// Step to run.
    pub step: Step,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Fence with which the end must be reported: higher than any before.
    pub fence: u64,
    /// Kind of the job.
    pub kind: KindId,
    /// Rule by which the job got the slot.
    pub rule: Rule,
}

/// End of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// The attempt succeeded.
    Succeeded,
    /// The attempt failed.
    Failed {
        /// Time of the next attempt in milliseconds, if one is left; `None`: no retry.
        retry_at: Option<u64>,
    },
    /// The worker is gone and the result unknown. The step is retried at once, if an attempt is
    /// left.
    Lost,
    /// No worker received the start. The attempt does not count, and the step is ready again.
    Withdrawn,
}

/// State of a subtask after the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubtaskFate {
    /// It is retried, and keeps its position in its lanes.
    Again {
        /// Earliest time of the retry; `None`: as soon as a slot is free.
        at: Option<u64>,
    },
    /// Its last attempt failed, and it blocks its keys until it is retried or skipped: not
    /// finished.
    Stopped,
    /// Finished: succeeded.
    Succeeded,
    /// Finished: failed.
    Failed,
    /// Finished: a retry was due, but its job was cancelled or is failing.
    Cancelled,
}

/// Result of the end of a run, or of skipping a subtask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndResult {
    /// New state of the subtask.
    pub fate: SubtaskFate,
    /// Number of subtasks dropped because it failed.
    pub dropped: u64,
    /// Outcome of the job, if it is finished.
    pub over: Option<JobOutcome>,
}

/// Final state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobOutcome {
    /// All subtasks, and the fan-in if there is one, have succeeded.
    Succeeded,
    /// A subtask or step has failed.
    Failed,
    /// The job was cancelled.
    Cancelled,
}

/// Result of cancelling a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CancelResult {
    /// Number of subtasks that will not run.
    pub dropped: u64,
    /// Running steps with their fences: they may be killed or left to end. Either way their end
    /// must be reported.
    pub running: Vec<(Step, u64)>,
    /// Outcome of the job, if it is finished: no step of it runs and all its subtasks have left
    /// their lanes. The subtasks of a large job leave in slices, and the last slice finishes it.
    pub over: Option<JobOutcome>,
}

/// Error: the fence of a reported end is not that of a current run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lease is lost: the fence is not that of a run")]
pub struct StaleFence;

/// Error of adding subtasks to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddError {
    /// The job is finished or unknown.
    #[error("no such unfinished job")]
    NoSuchJob,
    /// The job is cancelled, failing, or its last step has started; or its split has ended.
    #[error("the job takes no more subtasks")]
    Closed,
}

/// Error of retrying or skipping the head of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// No unfinished subtask has the key.
    #[error("no unfinished subtask has this key")]
    NoHead,
    /// The head is running.
    #[error("the head of the key is running")]
    Running,
    /// The job of the head was cancelled or has failed; the head leaves without a command.
    #[error("the head of the key was cancelled and leaves by itself")]
    Dropped,
    /// The head has not failed, so a retry does not apply.
    #[error("the head of the key has not failed")]
    NotFailed,
}
