//! Run of a step: its start, its end, and the state of the subtask afterwards.

use std::fmt;

use keylane_allocate::Rule;

use super::KindId;
use crate::{JobNumber, SubtaskNumber};

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

/// Error: the fence of a reported end is not that of a current run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lease is lost: the fence is not that of a run")]
pub struct StaleFence;
