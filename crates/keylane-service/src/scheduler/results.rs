//! Results and errors of the scheduler's calls.

use super::{Step, SubtaskFate};
use crate::SubtaskId;

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
    /// Subtasks, also of other jobs, that the entered ones have replaced.
    pub superseded: Vec<SupersededSubtask>,
    /// Outcome of the job, if it is finished.
    pub over: Option<JobOutcome>,
}

/// Subtask that a later one of its key has replaced. It is finished without a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SupersededSubtask {
    /// Replaced subtask.
    pub subtask: SubtaskId,
    /// Subtask that has replaced it.
    pub by: SubtaskId,
    /// Outcome of the job of the replaced one, if that is finished.
    pub over: Option<JobOutcome>,
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
    /// All subtasks, and the fan-in if there is one, have succeeded or were replaced by later ones.
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
pub enum KeyHeadError {
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
