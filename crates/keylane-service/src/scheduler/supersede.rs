//! Replacement of a subtask that waits by the next one of its key: a burst of updates runs once, with
//! the last of them.
//!
//! A subtask with the mark [`KeyClaim::LATEST`](crate::KeyClaim::LATEST) is the *latest* one of its key from its entry until it
//! starts, leaves, or the next one with the mark enters. That one then ends it. So at most one subtask of a key
//! can be replaced, and each replacement costs the same, whatever waits.
//!
//! - **Only one that never started is replaced.** A start takes the mark away, also one that is withdrawn or
//!   restored, and so does an attempt of an earlier process.
//! - **The order is kept.** The new subtask has its own place behind all earlier ones, and so behind those that
//!   conflict with it and came after the replaced one. The replaced one leaves its lanes as one that was skipped.
//! - **A restart replaces again.** The decision depends on the order of entry and on the starts only. If the
//!   end of a replaced subtask was not on the disk when the process ended, both enter again in the
//!   old order, and it is replaced again, unless the owner has recorded a start of it.

use super::SupersededSubtask;
use super::state::Scheduler;
use super::task::TaskPhase;
use crate::SubtaskId;

impl Scheduler {
    /// Makes a task that has just entered the latest one of its key. Returns the subtask that it has
    /// replaced.
    pub(super) fn replace_latest(&mut self, task: u32, now: u64) -> Option<SupersededSubtask> {
        let old = self.lanes.put_latest(&self.tasks, task)?;
        if self.is_dropped(old) {
            return None;
        }
        let slot = self.tasks[old].job;
        match self.leave_phase(slot, old) {
            TaskPhase::Ready => {
                let share = self.share(slot);
                self.allocator.unready(share, 1, now);
            }
            TaskPhase::Waiting => {}
            TaskPhase::Running | TaskPhase::BackingOff | TaskPhase::Stopped => {
                unreachable!("a start takes the mark away")
            }
        }
        let (subtask, by) = (self.id_of(old), self.id_of(task));
        self.settle(slot, false, now);
        self.remove_task(slot, old, now);
        self.jobs[slot].counts.superseded += 1;
        self.wake_opened(now);
        // The job of the new subtask has that one left, so it is not finished here.
        let over = self.conclude(slot, now);
        Some(SupersededSubtask { subtask, by, over })
    }

    fn id_of(&self, task: u32) -> SubtaskId {
        let task = &self.tasks[task];
        SubtaskId { job: self.jobs[task.job].number, number: task.number }
    }
}
