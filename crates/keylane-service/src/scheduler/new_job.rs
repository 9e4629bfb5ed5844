//! Job to accept, with its subtasks and its failure policies.

use std::sync::Arc;

use keylane_allocate::Priority;

use super::KindId;
use crate::{JobNumber, SubtaskNumber};

/// Effect of a failed subtask on the rest of its job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobFailurePolicy {
    /// The other subtasks still run.
    #[default]
    FinishAll,
    /// Subtasks that have not started are dropped; running ones end.
    FailFast,
}

/// Effect of a subtask's last failed attempt on its keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyFailurePolicy {
    /// The subtask has failed, and its keys continue.
    #[default]
    Continue,
    /// The subtask stays at the head of its lanes and blocks them until an operator retries or
    /// skips it. A subtask without keys fails as with `Continue`.
    StopKey,
}

/// Job to accept: a new one, or the unfinished rest of one after a restart.
#[derive(Clone, Debug)]
pub struct NewJob<S> {
    /// Number of the job; no unfinished job has it.
    pub number: JobNumber,
    /// Kind of its subtasks.
    pub kind: KindId,
    /// Tenant of the job; `None`: the default one.
    pub tenant: Option<Arc<str>>,
    /// Priority among the jobs of its tenant.
    pub priority: Priority,
    /// Weight of its claim to spare slots; 0 counts as 1.
    pub weight: u32,
    /// Effect of a failed subtask on the others.
    pub on_error: JobFailurePolicy,
    /// Effect of a failed subtask on its keys.
    pub on_fail: KeyFailurePolicy,
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
    /// Whether a subtask of the job is a barrier, also one that has ended. Those among `subtasks`
    /// are found without it.
    pub has_barriers: bool,
    /// Maximum number of its subtasks, with those of other such jobs, that run with a key at the same
    /// time, without an order among them. `None` or 1: one after another.
    pub max_per_key: Option<u16>,
    /// Counts of its ended subtasks.
    pub ended: EndedCounts,
    /// Its unfinished subtasks.
    pub subtasks: S,
}

impl<S> NewJob<S> {
    /// Returns a job with these subtasks and the defaults: kind 0, normal priority, weight 1, one attempt, no ended
    /// subtasks; other subtasks and the keys continue after a failure.
    #[must_use]
    pub fn new(number: JobNumber, subtasks: S) -> Self {
        NewJob {
            number,
            kind: KindId(0),
            tenant: None,
            priority: Priority::Normal,
            weight: 1,
            on_error: JobFailurePolicy::FinishAll,
            on_fail: KeyFailurePolicy::Continue,
            attempts_allowed: 1,
            paused: false,
            start_at: None,
            split: None,
            fan_in: None,
            has_barriers: false,
            max_per_key: None,
            ended: EndedCounts::default(),
            subtasks,
        }
    }
}

impl<S> NewJob<S> {
    /// Returns the job with its subtasks converted.
    pub(super) fn map<T>(self, change: impl FnOnce(S) -> T) -> NewJob<T> {
        let NewJob {
            number,
            kind,
            tenant,
            priority,
            weight,
            on_error,
            on_fail,
            attempts_allowed,
            ..
        } = self;
        let NewJob { paused, start_at, split, fan_in, has_barriers, max_per_key, .. } = self;
        let NewJob { ended, subtasks, .. } = self;
        NewJob {
            number,
            kind,
            tenant,
            priority,
            weight,
            on_error,
            on_fail,
            attempts_allowed,
            paused,
            start_at,
            split,
            fan_in,
            has_barriers,
            max_per_key,
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
    /// Subtasks that were replaced by later ones.
    pub superseded: u64,
}

/// Subtask to accept.
#[derive(Clone, Debug)]
pub struct NewSubtask<K> {
    /// Number in its job; at most [`Step::LAST_SUBTASK`](super::Step::LAST_SUBTASK). Ascending numbers need the least memory.
    pub number: SubtaskNumber,
    /// Its keys, and its marks; duplicates count once.
    pub keys: K,
    /// Number of starts in earlier processes; a crash counts.
    pub attempts_made: u32,
}
