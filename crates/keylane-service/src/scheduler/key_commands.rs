//! Commands of operators on single keys.

use super::state::Scheduler;
use super::task::{ScheduledTask, TaskPhase};
use super::timers::TimerEvent;
use super::{EndResult, KeyHeadError, SubtaskFate};

impl Scheduler {
    /// Pauses a key: no subtask that has it starts until it is resumed, and running ones end. The
    /// key need not have subtasks. False if it was paused.
    pub fn pause_key(&mut self, key: &[u8], now: u64) -> bool {
        let now = self.at(now);
        let mut blocked = Vec::new();
        let was_open = self.lanes.pause(&mut self.tasks, key, &mut blocked);
        for task in blocked {
            if self.tasks[task].phase == TaskPhase::Ready && !self.is_dropped(task) {
                self.wait_again(task, now);
            }
        }
        was_open
    }

    /// Resumes a key. False if it was not paused.
    pub fn resume_key(&mut self, key: &[u8], now: u64) -> bool {
        let now = self.at(now);
        let was_paused = self.lanes.resume(&mut self.tasks, key, &mut self.opened);
        self.wake_opened(now);
        was_paused
    }

    /// Retries the head of a key at once, if it backs off or is stopped. A stopped head without an
    /// attempt left gets its last attempt again, under that attempt's number, and blocks the key
    /// again if it fails.
    ///
    /// # Errors
    ///
    /// Returns an error if the key has no head, or the head is running or has not failed.
    pub fn retry_head(&mut self, key: &[u8], now: u64) -> Result<RetriedSubtask, KeyHeadError> {
        let now = self.at(now);
        let head = self.head(key)?;
        let ScheduledTask { job: slot, number, phase, at, .. } = self.tasks[head];
        match phase {
            TaskPhase::Waiting | TaskPhase::Ready => Err(KeyHeadError::NotFailed),
            TaskPhase::Running => Err(KeyHeadError::Running),
            TaskPhase::BackingOff | TaskPhase::Stopped => {
                if phase == TaskPhase::BackingOff {
                    self.timers.call_off(at, TimerEvent::Attempt(head));
                }
                let allowed = self.jobs[slot].attempts_allowed;
                let made = &mut self.tasks[head].attempts;
                *made = (*made).min(allowed.saturating_sub(1));
                self.wake(head, now);
                let job = self.jobs[slot].number;
                Ok(RetriedSubtask {
                    job,
                    subtask: number,
                    had_stopped: phase == TaskPhase::Stopped,
                })
            }
        }
    }

    /// Fails the head of a key, unless it is running, and unblocks the key.
    ///
    /// # Errors
    ///
    /// Returns an error if the key has no head, or the head is running.
    pub fn skip_head(&mut self, key: &[u8], now: u64) -> Result<SkippedSubtask, KeyHeadError> {
        let now = self.at(now);
        let head = self.head(key)?;
        let ScheduledTask { job: slot, number, phase, at, attempts, .. } = self.tasks[head];
        match phase {
            TaskPhase::Running => return Err(KeyHeadError::Running),
            TaskPhase::Ready => self.wait_again(head, now),
            TaskPhase::BackingOff => self.timers.call_off(at, TimerEvent::Attempt(head)),
            TaskPhase::Waiting | TaskPhase::Stopped => {}
        }
        self.leave_phase(slot, head);
        self.settle(slot, true, now);
        self.put_away(slot, head, SubtaskFate::Failed, now);
        let job = self.jobs[slot].number;
        let dropped = self.fail_fast(slot, now);
        let over = self.conclude(slot, now);
        let ended = EndResult { fate: SubtaskFate::Failed, dropped, over };
        Ok(SkippedSubtask { job, subtask: number, attempts, ended })
    }

    fn head(&self, key: &[u8]) -> Result<u32, KeyHeadError> {
        let head = self.lanes.find(key).and_then(|lane| self.lanes.head(lane));
        let head = head.ok_or(KeyHeadError::NoHead)?;
        if self.is_dropped(head) { Err(KeyHeadError::Dropped) } else { Ok(head) }
    }

    /// Moves a ready task back to the waiting phase.
    pub(super) fn wait_again(&mut self, task: u32, now: u64) {
        let slot = self.tasks[task].job;
        self.leave_phase(slot, task);
        self.note_slot_wait(task, now);
        self.enter_phase(slot, task, TaskPhase::Waiting);
        let share = self.share(slot);
        self.allocator.unready(share, 1, now);
    }
}

/// Retried subtask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetriedSubtask {
    /// Its job.
    pub job: crate::JobNumber,
    /// Its number in the job.
    pub subtask: crate::SubtaskNumber,
    /// Whether it had blocked its keys. Its attempt is then beyond the maximum, or the last one. If
    /// the process restarts before that attempt, the subtask must be [accepted](Scheduler::accept)
    /// with fewer attempts made.
    pub had_stopped: bool,
}

/// Skipped subtask and the effects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedSubtask {
    /// Its job.
    pub job: crate::JobNumber,
    /// Its number in the job.
    pub subtask: crate::SubtaskNumber,
    /// Number of its attempts.
    pub attempts: u32,
    /// Effects of its failure.
    pub ended: EndResult,
}
