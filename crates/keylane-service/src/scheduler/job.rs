//! State of one job: settings, counts, and unfinished subtasks.

use std::collections::VecDeque;
use std::ops::Range;

use keylane_allocate::{Priority, TenantIndex, TenantJobId};

use super::kinds::Turn;
use super::list::LinkedList;
use super::packed_subtasks::PackedSubtasks;
use super::task::TaskPhase;
use super::unfinished_tasks::UnfinishedTasks;
use super::{JobFailurePolicy, JobOutcome, KeyFailurePolicy, KindId, SubtaskCounts};
use crate::JobNumber;

/// Course of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum JobPhase {
    /// The job goes on.
    #[default]
    Open,
    /// A subtask failed, and the rest was dropped. Finished when all runs have ended.
    Failing,
    /// The job was cancelled. Finished when all runs have ended.
    Cancelled,
    /// Everything has started, and no failed attempt is followed by another one. Finished when all runs have ended,
    /// and an operator has released the stopped keys.
    Finishing,
}

impl JobPhase {
    /// Whether the job has dropped what did not run.
    pub(super) fn is_dropped(self) -> bool {
        matches!(self, JobPhase::Failing | JobPhase::Cancelled)
    }
}

/// Progress of the split or the fan-in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum StepState {
    /// There is none, or it is finished.
    #[default]
    Over,
    /// Not started yet, with this number of earlier attempts. Starts, or is dropped with the job.
    Pending(u32),
    /// It is a task, and finishes with that.
    Task,
}

/// Start time of a scheduled job and its subtasks.
#[derive(Debug)]
pub(super) struct ScheduledStart {
    pub(super) at: u64,
    pub(super) parked: PackedSubtasks,
    /// The time has come, and the caller has not begun the job. Its timer is gone.
    pub(super) is_due: bool,
}

#[derive(Debug, Default)]
pub(super) struct ScheduledJob {
    pub(super) number: JobNumber,
    pub(super) kind: KindId,
    pub(super) tenant: TenantIndex,
    pub(super) priority: Priority,
    pub(super) weight: u32,
    pub(super) on_error: JobFailurePolicy,
    pub(super) on_fail: KeyFailurePolicy,
    pub(super) attempts_allowed: u32,
    /// Id of the job in the allocator; none while it is scheduled.
    pub(super) share: Option<TenantJobId>,
    /// Start time and subtasks, while it is scheduled.
    pub(super) scheduled: Option<ScheduledStart>,
    /// Whether an operator has paused it.
    pub(super) paused: bool,
    /// Whether some of its subtasks are barriers: all of them are then in a lane of the job.
    pub(super) has_barriers: bool,
    /// Maximum number of tasks in front of a lane beside those of this job; 0: its keys are exclusive.
    pub(super) limit: u16,
    /// Turn at which it waits for capacity of its kind.
    pub(super) held: Option<Turn>,
    /// Turn that it has had since its last start, and keeps if it is held again.
    pub(super) turn: Option<Turn>,
    pub(super) course: JobPhase,
    pub(super) split: StepState,
    pub(super) fan_in: StepState,
    /// Whether the split or the fan-in failed.
    pub(super) step_failed: bool,
    /// Number of its subtasks by state; those of `fresh` count as ready.
    pub(super) counts: SubtaskCounts,
    /// Tasks by phase: ready ones (longest ready first), those that back off, those that block
    /// their keys.
    pub(super) ready: LinkedList,
    pub(super) backing_off: LinkedList,
    pub(super) stopped: LinkedList,
    /// Subtasks without keys that wait for a slot.
    pub(super) fresh: UnstartedRanges,
    /// When the last of them came.
    pub(super) fresh_since: u64,
    /// Other unfinished tasks.
    pub(super) roll: UnfinishedTasks,
    /// Its entries in the entry queue; most jobs have one or none.
    pub(super) entries: Vec<u64>,
    /// Whether the caller still feeds its entry.
    pub(super) is_fed: bool,
    /// Whether its tasks that did not run were dropped, because it was cancelled or failed.
    pub(super) was_dropped: bool,
    /// Whether its dropped tasks are still in their lanes.
    pub(super) is_swept: bool,
}

impl ScheduledJob {
    /// List of the tasks in a phase; none for waiting and running tasks.
    pub(super) fn list_of(&mut self, phase: TaskPhase) -> Option<&mut LinkedList> {
        match phase {
            TaskPhase::Waiting | TaskPhase::Running => None,
            TaskPhase::Ready => Some(&mut self.ready),
            TaskPhase::BackingOff => Some(&mut self.backing_off),
            TaskPhase::Stopped => Some(&mut self.stopped),
        }
    }

    pub(super) fn count_of(&mut self, phase: TaskPhase) -> &mut u64 {
        match phase {
            TaskPhase::Waiting => &mut self.counts.waiting,
            TaskPhase::Ready => &mut self.counts.ready,
            TaskPhase::Running => &mut self.counts.running,
            TaskPhase::BackingOff => &mut self.counts.backing_off,
            TaskPhase::Stopped => &mut self.counts.stopped,
        }
    }

    /// Outcome of the job when it is finished.
    pub(super) fn outcome(&self) -> JobOutcome {
        match self.course {
            JobPhase::Cancelled => JobOutcome::Cancelled,
            JobPhase::Failing => JobOutcome::Failed,
            _ if self.counts.failed > 0 || self.step_failed => JobOutcome::Failed,
            _ if self.counts.cancelled > 0 => JobOutcome::Cancelled,
            _ => JobOutcome::Succeeded,
        }
    }
}

/// Subtasks known by number only, as ranges.
#[derive(Debug, Default)]
pub(super) struct UnstartedRanges {
    /// Ranges of numbers with the attempts made in earlier processes.
    ranges: VecDeque<(Range<u32>, u32)>,
    len: u64,
}

impl UnstartedRanges {
    /// Appends `len` subtasks from `number`.
    pub(super) fn push(&mut self, number: u32, len: u32, attempts: u32) {
        self.len += u64::from(len);
        match self.ranges.back_mut() {
            Some((range, made)) if range.end == number && *made == attempts => range.end += len,
            _ => self.ranges.push_back((number..number + len, attempts)),
        }
    }

    /// Removes the first subtask; returns its number and earlier attempts.
    pub(super) fn pop(&mut self) -> Option<(u32, u32)> {
        let (range, attempts) = self.ranges.front_mut()?;
        let next = (range.start, *attempts);
        range.start += 1;
        if range.start == range.end {
            self.ranges.pop_front();
        }
        self.len -= 1;
        Some(next)
    }

    /// Removes a subtask; returns its earlier attempts if it was present.
    pub(super) fn remove(&mut self, number: u32) -> Option<u32> {
        let at = self.ranges.iter().position(|(range, _)| range.contains(&number))?;
        let (range, made) = self.ranges.remove(at).expect("it was found just now");
        let parts = [range.start..number, number + 1..range.end];
        for part in parts.into_iter().rev().filter(|part| !part.is_empty()) {
            self.ranges.insert(at, (part, made));
        }
        self.len -= 1;
        Some(made)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Earlier attempts of a subtask, if it is present.
    pub(super) fn find(&self, number: u32) -> Option<u32> {
        self.ranges.iter().find(|(range, _)| range.contains(&number)).map(|(_, made)| *made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_follow_one_another_are_one_range() {
        let mut fresh = UnstartedRanges::default();
        [3, 4, 5, 9].into_iter().for_each(|number| fresh.push(number, 1, 0));
        fresh.push(10, 1, 2);
        assert_eq!((fresh.ranges.len(), fresh.len()), (3, 5));
        assert_eq!((fresh.find(4), fresh.find(10), fresh.find(6)), (Some(0), Some(2), None));
        assert_eq!(fresh.pop(), Some((3, 0)));
        fresh.push(11, 5, 2);
        assert_eq!((fresh.ranges.len(), fresh.len(), fresh.find(15)), (3, 9, Some(2)));
        assert_eq!((fresh.remove(5), fresh.remove(5), fresh.remove(13)), (Some(0), None, Some(2)));
        assert_eq!((fresh.find(4), fresh.find(13), fresh.find(14)), (Some(0), None, Some(2)));
        assert_eq!(fresh.len(), 7);
    }
}
