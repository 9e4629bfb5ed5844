//! What is known of one job: how it is to be treated, counts, and its unfinished subtasks.

use std::collections::VecDeque;
use std::ops::Range;

use keylane::allocate;

use super::list::List;
use super::packed::Packed;
use super::roll::Roll;
use super::task::Phase;
use super::{Counts, KindId, OnError, OnFail, Outcome};
use crate::JobNumber;

/// Whether a job goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Course {
    /// It does.
    #[default]
    Open,
    /// A subtask failed, and the rest was dropped. Over when what runs has ended.
    Failing,
    /// Somebody cancelled it. Over when what runs has ended.
    Cancelled,
}

/// How far the split or the fan-in is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum StepState {
    /// There is none, or it is over.
    #[default]
    Over,
    /// To come, and was tried so often. Begins, or is dropped with the job.
    Pending(u32),
    /// It is a task. Over when that is.
    Task,
}

/// When a job is to begin, and what it has then.
#[derive(Debug)]
pub(super) struct Scheduled {
    pub(super) at: u64,
    pub(super) parked: Packed,
    /// Its time has come, and it was not told to begin yet. There is no timer for it any more.
    pub(super) is_due: bool,
}

#[derive(Debug, Default)]
pub(super) struct Job {
    pub(super) number: JobNumber,
    pub(super) kind: KindId,
    pub(super) weight: u32,
    pub(super) on_error: OnError,
    pub(super) on_fail: OnFail,
    pub(super) attempts_allowed: u32,
    /// What the allocator calls it; nothing while it is scheduled.
    pub(super) share: Option<allocate::JobId>,
    /// When it begins and what it has then, while it is scheduled.
    pub(super) scheduled: Option<Scheduled>,
    /// Somebody paused it.
    pub(super) paused: bool,
    /// It waits for its kind to have a place: by its turn there.
    pub(super) held: Option<u64>,
    /// The turn that it has had since it last started something, and gets back if it is held again.
    pub(super) turn: Option<u64>,
    pub(super) course: Course,
    pub(super) split: StepState,
    pub(super) fan_in: StepState,
    /// The split or the fan-in failed.
    pub(super) step_failed: bool,
    /// Its subtasks, by state. Those of `fresh` are among the ready ones.
    pub(super) counts: Counts,
    /// Tasks that could start, the longest ready first; those that back off; those that stop their keys.
    pub(super) ready: List,
    pub(super) backing_off: List,
    pub(super) stopped: List,
    /// Subtasks without keys that wait for a slot.
    pub(super) fresh: Fresh,
    /// Everything else that is unfinished.
    pub(super) roll: Roll,
    /// Its places in the line of entries; most jobs have one or none.
    pub(super) entries: Vec<u64>,
    /// Its entry takes more subtasks, which the caller is still to bring.
    pub(super) is_fed: bool,
    /// All of it that did not run was dropped, for it was cancelled or failed.
    pub(super) was_dropped: bool,
    /// What was dropped is on its way out of its lanes.
    pub(super) is_swept: bool,
}

impl Job {
    /// The list of the tasks in a phase. For those that wait or run there is none.
    pub(super) fn list_of(&mut self, phase: Phase) -> Option<&mut List> {
        match phase {
            Phase::Waiting | Phase::Running => None,
            Phase::Ready => Some(&mut self.ready),
            Phase::BackingOff => Some(&mut self.backing_off),
            Phase::Stopped => Some(&mut self.stopped),
        }
    }

    pub(super) fn count_of(&mut self, phase: Phase) -> &mut u64 {
        match phase {
            Phase::Waiting => &mut self.counts.waiting,
            Phase::Ready => &mut self.counts.ready,
            Phase::Running => &mut self.counts.running,
            Phase::BackingOff => &mut self.counts.backing_off,
            Phase::Stopped => &mut self.counts.stopped,
        }
    }

    /// How it ends, if it is over now.
    pub(super) fn outcome(&self) -> Outcome {
        match self.course {
            Course::Cancelled => Outcome::Cancelled,
            Course::Failing => Outcome::Failed,
            Course::Open if self.counts.failed > 0 || self.step_failed => Outcome::Failed,
            Course::Open if self.counts.cancelled > 0 => Outcome::Cancelled,
            Course::Open => Outcome::Succeeded,
        }
    }
}

/// Subtasks of which nothing needs to be known but their numbers: ranges of them.
#[derive(Debug, Default)]
pub(super) struct Fresh {
    /// With the attempts that were made in earlier processes.
    ranges: VecDeque<(Range<u32>, u32)>,
    len: u64,
}

impl Fresh {
    /// Puts `len` subtasks from `number` on behind the others.
    pub(super) fn push(&mut self, number: u32, len: u32, attempts: u32) {
        self.len += u64::from(len);
        match self.ranges.back_mut() {
            Some((range, made)) if range.end == number && *made == attempts => range.end += len,
            _ => self.ranges.push_back((number..number + len, attempts)),
        }
    }

    /// The next, with the attempts that were made.
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

    /// Takes one of them out. The attempts that were made of it, if it is here.
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

    /// The attempts that were made of the subtask, if it is here.
    pub(super) fn find(&self, number: u32) -> Option<u32> {
        self.ranges.iter().find(|(range, _)| range.contains(&number)).map(|(_, made)| *made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_follow_one_another_are_one_range() {
        let mut fresh = Fresh::default();
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
