//! Types of the scheduler's answers to queries.

use std::sync::Arc;

use keylane_allocate::Rule;

use super::{KindId, RunStart, Step, TenantSettings};
use crate::{JobNumber, Key};

/// Number of a job's subtasks in each state, without the split and the fan-in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubtaskCounts {
    /// Subtasks of a job whose start time has not come.
    pub scheduled: u64,
    /// Accepted subtasks that have not entered the order: a large job enters in slices.
    pub entering: u64,
    /// Subtasks that wait for keys.
    pub waiting: u64,
    /// Subtasks that wait for a slot.
    pub ready: u64,
    /// Subtasks that have a slot.
    pub running: u64,
    /// Subtasks that wait for their next attempt.
    pub backing_off: u64,
    /// Subtasks that failed on their last attempt and block their keys.
    pub stopped: u64,
    /// Subtasks that succeeded.
    pub succeeded: u64,
    /// Subtasks that failed.
    pub failed: u64,
    /// Subtasks that were dropped.
    pub cancelled: u64,
    /// Subtasks that were replaced by later ones.
    pub superseded: u64,
}

impl SubtaskCounts {
    /// Number of unfinished subtasks.
    #[must_use]
    pub fn unfinished(&self) -> u64 {
        let SubtaskCounts {
            scheduled,
            entering,
            waiting,
            ready,
            running,
            backing_off,
            stopped,
            ..
        } = *self;
        scheduled + entering + waiting + ready + running + backing_off + stopped
    }

    /// Number of known subtasks; a split may still add more.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.unfinished() + self.succeeded + self.failed + self.cancelled + self.superseded
    }
}

/// Step of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobStep {
    /// Job of the step.
    pub job: JobNumber,
    /// Step in the job.
    pub step: Step,
}

/// State of an unfinished subtask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnfinishedState {
    /// Its job has not begun.
    Scheduled {
        /// Start time of the job, in milliseconds.
        at: u64,
    },
    /// It waits for keys; a fan-in waits for the other subtasks.
    Waiting,
    /// It waits for a slot.
    Ready,
    /// It has a slot.
    Running {
        /// Fence with which its end must be reported.
        fence: u64,
        /// Start of the run, in milliseconds.
        since: u64,
    },
    /// It waits for its next attempt.
    BackingOff {
        /// Time of the next attempt, in milliseconds.
        until: u64,
    },
    /// It failed on its last attempt, and blocks its keys until it is retried or skipped.
    Stopped,
}

/// Reason for which a subtask waits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitReason {
    /// Earlier subtasks have the key.
    KeyOrder {
        /// The key.
        key: Key,
        /// Whether the subtask shares the key: it waits only for those that do not.
        is_shared: bool,
        /// Number of its predecessors, counted up to [`WaitReason::COUNTED`].
        ahead: u32,
        /// Last predecessor that conflicts with it, as far as predecessors are counted.
        behind: JobStep,
        /// Head of the lane.
        head: LaneHead,
    },
    /// As many earlier subtasks have the key as its limit lets run at a time.
    KeyLimit {
        /// The key.
        key: Key,
        /// Limit of the subtask.
        limit: u16,
        /// Number of its predecessors, counted up to [`WaitReason::COUNTED`].
        ahead: u32,
        /// Head of the lane.
        head: LaneHead,
    },
    /// A key of the subtask has started as often as the kind's rate per key allows.
    KeyRate {
        /// The key.
        key: Key,
        /// Time of its next token, in milliseconds; `None`: never.
        until: Option<u64>,
    },
    /// A barrier of the job is before it; or it is a barrier, and others of the job are before it.
    Barrier {
        /// Whether it is a barrier itself.
        is_barrier: bool,
        /// Number of unfinished subtasks of the job before it, counted up to
        /// [`WaitReason::COUNTED`].
        ahead: u32,
        /// Last of them that it waits for, as far as they are counted.
        behind: JobStep,
        /// First of them.
        head: LaneHead,
    },
    /// Keys in general: for a job of which so few subtasks wait for keys that the sample has none
    /// of them.
    Keys,
    /// A key of the subtask is paused, whether the subtask heads it or not.
    KeyPaused {
        /// The key.
        key: Key,
    },
    /// A key of the subtask is blocked by a failed head.
    KeyStopped {
        /// The key.
        key: Key,
        /// Failed head.
        head: LaneHead,
    },
    /// All slots are taken, or other jobs come first.
    NoSlot {
        /// Number of slots that the job has.
        running: u64,
        /// Number of slots.
        slots: usize,
        /// Number of jobs that need less and so come first; `None` if too many would have to be
        /// compared.
        ahead: Option<usize>,
    },
    /// Jobs of the same tenant with a higher priority come first.
    Priority {
        /// Number of these jobs; `None` if too many would have to be counted.
        ahead: Option<usize>,
    },
    /// The job is not admitted: the maximum number of jobs is active.
    NotAdmitted {
        /// Number of active jobs.
        active: usize,
        /// Number of jobs before it in the admission queue; `None` if too many would have to be
        /// compared.
        ahead: Option<usize>,
    },
    /// A slot and capacity of its kind are free: the next decision starts it.
    Starting,
    /// The kind is at its concurrency limit.
    KindBound {
        /// The kind.
        kind: KindId,
        /// Number of its running subtasks.
        running: u32,
    },
    /// The kind is at its rate limit.
    KindRate {
        /// Time of the next start, in milliseconds; `None`: never.
        until: Option<u64>,
    },
    /// The tenant has as many slots as its maximum allows.
    TenantBound {
        /// Number of its running subtasks.
        running: usize,
    },
    /// The tenant is at its rate limit.
    TenantRate {
        /// Time of the next start, in milliseconds; `None`: never.
        until: Option<u64>,
    },
    /// It failed and waits for its retry.
    BackingOff {
        /// Time of the retry, in milliseconds; of several, the earliest one seen.
        until: u64,
    },
    /// It failed on its last attempt, and waits to be retried or skipped.
    Stopped,
    /// The job is paused.
    JobPaused,
    /// The job has a later start time.
    Scheduled {
        /// Start time, in milliseconds.
        until: u64,
    },
    /// It is accepted and has not entered the order: a large job enters in slices.
    Entering {
        /// Number of other jobs' subtasks that enter first.
        ahead: u64,
    },
    /// A fan-in waits for the end of the split.
    Split,
    /// A fan-in waits for the subtasks.
    Others {
        /// Number of unfinished subtasks.
        left: u64,
    },
    /// The scheduler drains: no step starts.
    Draining,
}

impl WaitReason {
    /// Maximum number of predecessors that are counted.
    pub const COUNTED: u32 = 1000;
}

/// Head of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneHead {
    /// Step at the head.
    pub of: JobStep,
    /// State of the head.
    pub state: UnfinishedState,
    /// Time at which it became the head, in milliseconds.
    pub since: u64,
    /// Number of its attempts.
    pub attempts: u32,
    /// Whether it shares the key, so that others that share it may run at the same time.
    pub is_shared: bool,
}

/// State of a subtask and the reasons for which it does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubtaskExplanation {
    /// State of the subtask.
    pub state: UnfinishedState,
    /// Number of its attempts.
    pub attempts: u32,
    /// All reasons, with at most [`SubtaskExplanation::KEYS`] keys; none if it runs.
    pub reasons: Vec<WaitReason>,
}

impl SubtaskExplanation {
    /// Maximum number of keys in an explanation.
    pub const KEYS: usize = 16;
}

/// Reason for which subtasks of a job wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobWaitReason {
    /// Example of the reason.
    pub reason: WaitReason,
    /// Number of subtasks that wait for it; 0 for a step. Of the subtasks that wait for keys, up to
    /// [`JobWaitReason::SAMPLE`] are examined and extrapolated.
    pub subtasks: u64,
    /// Example of these subtasks, if one was examined.
    pub example: Option<Step>,
}

impl JobWaitReason {
    /// Maximum number of subtasks in a sample.
    pub const SAMPLE: usize = 64;
}

/// Order in which keys are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySort {
    /// Oldest head first.
    HeadAge,
    /// Most subtasks first. Among very many keys of similar length, a key can be missing that is
    /// less than twice as long as those shown.
    Length,
}

/// State of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyView {
    /// The key.
    pub key: Key,
    /// Number of its unfinished subtasks.
    pub length: u32,
    /// Whether it is paused.
    pub paused: bool,
    /// Head of the key; if the head's state is stopped, it blocks the key.
    pub head: Option<LaneHead>,
}

/// Step that has a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningStep {
    /// Start of the step.
    pub start: RunStart,
    /// Time of the start, in milliseconds.
    pub since: u64,
}

/// Decision of the allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecisionView {
    /// Time of the decision, in milliseconds.
    pub at: u64,
    /// Resulting start, with the rule.
    pub start: RunStart,
}

impl DecisionView {
    /// Rule of the decision.
    #[must_use]
    pub fn rule(&self) -> Rule {
        self.start.rule
    }
}

/// State of a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantView {
    /// Its name; `None` for the default one.
    pub name: Option<Arc<str>>,
    /// Settings in force.
    pub settings: TenantSettings,
    /// Whether it has settings of its own.
    pub is_configured: bool,
    /// Number of its unfinished jobs.
    pub jobs: usize,
    /// Number of slots that it has.
    pub running: usize,
    /// Reason for which nothing of it starts now.
    pub waits: Option<WaitReason>,
}

/// State of the slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotUsage {
    /// Number of slots.
    pub total: usize,
    /// Number of used slots.
    pub busy: usize,
    /// Number of admitted jobs that run or can run.
    pub active_jobs: usize,
    /// Number of unfinished jobs, including scheduled ones.
    pub unfinished_jobs: usize,
    /// Number of keys that are paused or have unfinished subtasks.
    pub keys: usize,
    /// Number of jobs that wait for capacity of their kind.
    pub held_jobs: usize,
    /// Whether the scheduler drains: no step starts.
    pub draining: bool,
}
