//! What people ask of single keys.

use super::scheduler::Scheduler;
use super::task::{Phase, Task};
use super::timers::Due;
use super::{Ended, Fate, HeadError};

impl Scheduler {
    /// Begins nothing that has the key until it is resumed, whether there is anything now or not. What runs,
    /// ends. False if it was paused.
    pub fn pause_key(&mut self, key: &[u8], now: u64) -> bool {
        let now = self.at(now);
        let Some(head) = self.lanes.pause(&mut self.tasks, key) else { return false };
        let is_ready =
            |head: &u32| self.tasks[*head].phase == Phase::Ready && !self.is_dropped(*head);
        if let Some(head) = head.filter(is_ready) {
            self.wait_again(head, now);
        }
        true
    }

    /// Undoes [`pause_key`](Self::pause_key). False if it was not paused.
    pub fn resume_key(&mut self, key: &[u8], now: u64) -> bool {
        let now = self.at(now);
        let was_paused = self.lanes.resume(&mut self.tasks, key, &mut self.opened);
        self.wake_opened(now);
        was_paused
    }

    /// The first subtask of the key, which backs off or has stopped it, tries again now. One that has stopped
    /// the key has one attempt more, and stops it again if that fails.
    ///
    /// # Errors
    /// If there is none, or it runs, or has not failed.
    pub fn retry_head(&mut self, key: &[u8], now: u64) -> Result<Retried, HeadError> {
        let now = self.at(now);
        let head = self.head(key)?;
        let Task { job: slot, number, phase, at, .. } = self.tasks[head];
        match phase {
            Phase::Waiting | Phase::Ready => Err(HeadError::NotFailed),
            Phase::Running => Err(HeadError::Running),
            Phase::BackingOff | Phase::Stopped => {
                if phase == Phase::BackingOff {
                    self.timers.call_off(at, Due::Attempt(head));
                }
                self.wake(head, now);
                let job = self.jobs[slot].number;
                Ok(Retried { job, subtask: number, had_stopped: phase == Phase::Stopped })
            }
        }
    }

    /// The first subtask of the key, which does not run, has failed for good, and the key goes on.
    ///
    /// # Errors
    /// If there is none, or it runs.
    pub fn skip_head(&mut self, key: &[u8], now: u64) -> Result<Skipped, HeadError> {
        let now = self.at(now);
        let head = self.head(key)?;
        let Task { job: slot, number, phase, at, .. } = self.tasks[head];
        match phase {
            Phase::Running => return Err(HeadError::Running),
            Phase::Ready => self.wait_again(head, now),
            Phase::BackingOff => self.timers.call_off(at, Due::Attempt(head)),
            Phase::Waiting | Phase::Stopped => {}
        }
        self.leave_phase(slot, head);
        self.settle(slot, true, now);
        self.put_away(slot, head, Fate::Failed, now);
        let job = self.jobs[slot].number;
        let dropped = self.fail_fast(slot, now);
        let over = self.conclude(slot, now);
        let ended = Ended { fate: Fate::Failed, dropped, over };
        Ok(Skipped { job, subtask: number, ended })
    }

    fn head(&self, key: &[u8]) -> Result<u32, HeadError> {
        let head = self.lanes.find(key).and_then(|lane| self.lanes.head(lane));
        let head = head.ok_or(HeadError::NoHead)?;
        if self.is_dropped(head) { Err(HeadError::Dropped) } else { Ok(head) }
    }

    /// A task that could have started waits.
    fn wait_again(&mut self, task: u32, now: u64) {
        let slot = self.tasks[task].job;
        self.leave_phase(slot, task);
        self.enter_phase(slot, task, Phase::Waiting);
        let share = self.share(slot);
        self.allocator.unready(share, 1, now);
    }
}

/// Which subtask tries again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retried {
    /// Its job.
    pub job: crate::JobNumber,
    /// Its number there.
    pub subtask: crate::SubtaskNumber,
    /// It had stopped its keys. Its attempt is beyond those allowed, or the last of them, and a restart before that is to
    /// leave it one: it must then be [accepted](Scheduler::accept) with fewer made.
    pub had_stopped: bool,
}

/// Which subtask was skipped, and what came of that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Its job.
    pub job: crate::JobNumber,
    /// Its number there.
    pub subtask: crate::SubtaskNumber,
    /// It has failed.
    pub ended: Ended,
}
