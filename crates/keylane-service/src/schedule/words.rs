//! What goes into the scheduler and what comes out.

use std::fmt;

use keylane::allocate::{Order, Rule};

use crate::{JobNumber, SubtaskNumber};

/// How a scheduler is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How many subtasks run at a time: the workers of the service. 0 starts nothing.
    pub slots: usize,
    /// Whom the rules put first. Arrival, unless said otherwise.
    pub order: Order,
    /// The bound on active jobs; `None`: what the order has.
    pub max_active: Option<usize>,
    /// For how many milliseconds a job may be held at one slot; `None`: for ever.
    pub patience: Option<u64>,
    /// The fence of the first start. More than any that was given before, also by an earlier process.
    pub first_fence: u64,
    /// How many of the last decisions are kept to be looked at.
    pub decisions_kept: usize,
    /// Units of work that one call does for a large job: a subtask is one unit, and each of its keys one more. 0 counts
    /// as 1.
    pub slice: u32,
}

impl Settings {
    /// So many slots, and the defaults: by arrival, as many active jobs as slots, no patience, fences from 1
    /// on, the last 1024 decisions (about 64 KiB, and enough to see what a second looked like).
    #[must_use]
    pub fn new(slots: usize) -> Self {
        Settings {
            slots,
            order: Order::Arrival,
            max_active: None,
            patience: None,
            first_fence: 1,
            decisions_kept: 1024,
            slice: super::packed::SLICE,
        }
    }
}

/// What is run: which handler. Limits are per kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KindId(pub u32);

/// What a kind may use at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindLimits {
    /// So many of its subtasks run at a time; `None`: as many as there are slots. With 0 none start.
    pub concurrency: Option<u32>,
    /// So many begin in a time; `None`: as many as can.
    pub rate: Option<Rate>,
    /// Whether these limits are for subtasks alone: the split and the fan-in of a job then need a slot and nothing else. Jobs
    /// of such a kind that have a split have no subtasks but those that it adds.
    pub subtasks_only: bool,
}

/// How many may begin in a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// So many
    pub tokens: u32,
    /// every so many milliseconds, evenly spread; 0 counts as 1.
    pub period_ms: u32,
    /// So many at once, when there were none for a while; 0 counts as 1.
    pub burst: u32,
}

/// What is done with the rest of a job when a subtask of it has failed for good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// The others run all the same.
    #[default]
    FinishAll,
    /// What has not begun is dropped. What runs, ends.
    FailFast,
}

/// What becomes of a subtask's keys when its last attempt has failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFail {
    /// The subtask has failed for good, and its keys go on.
    #[default]
    Continue,
    /// The subtask stays at the head of its lanes, and they stand, until somebody has it retried or skipped.
    /// A subtask without keys fails as with `Continue`.
    StopKey,
}

/// What a start is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Step {
    /// A subtask.
    Subtask(SubtaskNumber),
    /// What makes the subtasks of a job, once a slot is free for it.
    Split,
    /// What makes the job's result of its subtasks', once they have all succeeded.
    FanIn,
}

const SPLIT: u32 = u32::MAX;
const FAN_IN: u32 = u32::MAX - 1;

impl Step {
    /// The highest number that a subtask can have.
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

/// A job that is accepted: a new one, or what is unfinished of one after a restart.
#[derive(Clone, Debug)]
pub struct NewJob<S> {
    /// Its number, which no unfinished job has.
    pub number: JobNumber,
    /// What runs its subtasks.
    pub kind: KindId,
    /// What its claim to spare slots is scaled by; 0 counts as 1.
    pub weight: u32,
    /// What a failure does to the others.
    pub on_error: OnError,
    /// What a failure does to its keys.
    pub on_fail: OnFail,
    /// How often each subtask, the split and the fan-in may be tried; 0 counts as 1.
    pub attempts_allowed: u32,
    /// Whether it waits to be resumed.
    pub paused: bool,
    /// Not before this time, in milliseconds, and only when it is told to [begin](super::Scheduler::begin); `None`:
    /// now. A job that is scheduled stands in no lane, so that it blocks no key: its place in the order is where it
    /// begins.
    pub start_at: Option<u64>,
    /// If a step makes its subtasks that has not succeeded yet: how often that was tried.
    pub split: Option<u32>,
    /// If a step makes its result at the end: how often that was tried.
    pub fan_in: Option<u32>,
    /// Those of its subtasks that have ended.
    pub ended: EndedCounts,
    /// Those that are unfinished.
    pub subtasks: S,
}

impl<S> NewJob<S> {
    /// A job with these subtasks, nothing ended, and the defaults: kind 0, weight 1, one attempt, others and
    /// keys go on when one fails.
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
    /// The same with other subtasks.
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

/// How many of a job's subtasks have ended, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndedCounts {
    /// Well.
    pub succeeded: u64,
    /// Not well, with no attempt left.
    pub failed: u64,
    /// Dropped before they could succeed.
    pub cancelled: u64,
}

/// A subtask that is accepted.
#[derive(Clone, Debug)]
pub struct NewSubtask<K> {
    /// Its number in its job; at most [`Step::LAST_SUBTASK`]. Ascending numbers take least memory.
    pub number: SubtaskNumber,
    /// Its keys; one that is named twice is one.
    pub keys: K,
    /// How often it was begun, in earlier processes; a crash counts.
    pub attempts_made: u32,
}

/// What came of accepting subtasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// Subtasks that have entered the order with this call. Those of a large job do in slices.
    pub entered: u64,
    /// Those that had no attempt left, and so have failed for good.
    pub failed: Vec<Step>,
    /// Subtasks that were dropped because of that.
    pub dropped: u64,
    /// The job is over with that.
    pub over: Option<Outcome>,
}

/// Something is to be run now, in a slot that is its own until [`ended`](super::Scheduler::ended).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Of which job.
    pub job: JobNumber,
    /// What of it.
    pub step: Step,
    /// Which try this is, from 1.
    pub attempt: u32,
    /// What the end must be reported with: more than any before.
    pub fence: u64,
    /// What runs it.
    pub kind: KindId,
    /// The rule by which the job got the slot.
    pub rule: Rule,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Well.
    Succeeded,
    /// Not well.
    Failed {
        /// When to try again, in milliseconds, if an attempt is left; `None`: never.
        retry_at: Option<u64>,
    },
    /// Nobody knows: the worker is gone. It is tried again at once, if an attempt is left.
    Lost,
    /// No worker ever got it. The attempt does not count, and the subtask is ready again.
    Withdrawn,
}

/// What became of a subtask with the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It will be tried again, and keeps its place in its lanes.
    Again {
        /// Not before this; `None`: as soon as there is a slot.
        at: Option<u64>,
    },
    /// It has failed for the last time, and stops its keys until it is retried or skipped: not over.
    Stopped,
    /// Over, well.
    Succeeded,
    /// Over, not well.
    Failed,
    /// Over: it would have been tried again, and its job is cancelled or fails.
    Cancelled,
}

/// What came of the end of a run, or of skipping a subtask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// What became of the subtask.
    pub fate: Fate,
    /// Subtasks that were dropped because it failed.
    pub dropped: u64,
    /// The job is over with that.
    pub over: Option<Outcome>,
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All subtasks, and the fan-in if there is one, have succeeded.
    Succeeded,
    /// Something failed.
    Failed,
    /// Somebody cancelled it.
    Cancelled,
}

/// What came of cancelling a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cancelled {
    /// Subtasks that will not be run any more.
    pub dropped: u64,
    /// What runs, by fence: it is to be killed, or left to end. Either way its end must be reported.
    pub running: Vec<(Step, u64)>,
    /// The job is over, for nothing of it runs and all of it has left its lanes. A large job leaves them in slices, and
    /// is over with the last of them.
    pub over: Option<Outcome>,
}

/// An end was reported by somebody who does not have the subtask any more, or never had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lease is lost: the fence is not that of a run")]
pub struct Stale;

/// Why subtasks can't be added to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddError {
    /// It is over, or never was.
    #[error("no such unfinished job")]
    NoSuchJob,
    /// It is cancelled, fails, or its last step has begun; or, of a split, that is over.
    #[error("the job takes no more subtasks")]
    Closed,
}

/// Why the head of a key can't be retried or skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// No unfinished subtask has the key.
    #[error("no unfinished subtask has this key")]
    NoHead,
    /// It runs.
    #[error("the head of the key is running")]
    Running,
    /// Its job was cancelled or has failed, and it leaves the key by itself.
    #[error("the head of the key was cancelled and leaves by itself")]
    Dropped,
    /// It has not failed, so there is nothing to retry.
    #[error("the head of the key has not failed")]
    NotFailed,
}
