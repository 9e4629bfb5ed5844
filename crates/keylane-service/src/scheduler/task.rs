//! Task: a subtask or step that has keys or has started.

use super::Step;
use super::list::ListLink;
use super::slab::{NONE, Slab};

/// Phase of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum TaskPhase {
    /// Does not head all its lanes, or one of them is paused. Becomes ready.
    #[default]
    Waiting,
    /// Waits for a slot, in its job's list. Runs, or waits again when a key is paused.
    Ready,
    /// Has a slot. Succeeds, fails for good, backs off, is ready again, or stops its keys.
    Running,
    /// Has failed, and holds its lanes until its next attempt. Becomes ready, or waits for a paused
    /// key.
    BackingOff,
    /// Has failed on its last attempt, and holds its lanes until it is retried or skipped.
    Stopped,
}

/// Task. 40 bytes.
#[derive(Debug)]
pub(super) struct ScheduledTask {
    /// Slot of its job; `NONE` if the task is removed.
    pub(super) job: u32,
    /// Number in its job; the two numbers above those of subtasks are the steps.
    pub(super) number: u32,
    /// Number of starts, including the current one.
    pub(super) attempts: u32,
    /// The first of its places; each knows the next.
    pub(super) places: u32,
    /// Its lanes that it does not head, or that are paused.
    pub(super) blocked: u32,
    /// In the list of its job's tasks that are in the same phase, if there is one.
    pub(super) link: ListLink,
    pub(super) phase: TaskPhase,
    /// While it waits or is ready: since when. While it runs: the fence. While it backs off: the time of its next attempt.
    pub(super) at: u64,
}

impl Default for ScheduledTask {
    fn default() -> Self {
        ScheduledTask {
            job: NONE,
            number: 0,
            attempts: 0,
            places: NONE,
            blocked: 0,
            link: ListLink::default(),
            phase: TaskPhase::Waiting,
            at: 0,
        }
    }
}

impl ScheduledTask {
    /// Returns a task that has waited since the time `at`.
    pub(super) fn new(job: u32, number: u32, attempts: u32, at: u64) -> Self {
        ScheduledTask { job, number, attempts, at, ..ScheduledTask::default() }
    }

    /// Whether it is a subtask, and not a step of the job.
    pub(super) fn is_subtask(&self) -> bool {
        self.number <= Step::LAST_SUBTASK
    }

    pub(super) fn link(&mut self) -> &mut ListLink {
        &mut self.link
    }
}

pub(super) type TaskSlab = Slab<ScheduledTask>;
