//! What is known of one job: how it is to be treated, counts, and its unfinished subtasks.

use std::collections::VecDeque;
use std::ops::Range;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use keylane::allocate;

use super::list::List;
use super::parked::Parked;
use super::slab::NONE;
use super::task::{Phase, Tasks};
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
    pub(super) parked: Parked,
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
    pub(super) fn push(&mut self, number: u32, attempts: u32) {
        self.len += 1;
        match self.ranges.back_mut() {
            Some((range, made)) if range.end == number && *made == attempts => range.end += 1,
            _ => self.ranges.push_back((number..number + 1, attempts)),
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

    #[cfg(test)]
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn take(&mut self) -> impl Iterator<Item = Range<u32>> {
        std::mem::take(self).ranges.into_iter().map(|(range, _)| range)
    }

    /// The attempts that were made of the subtask, if it is here.
    pub(super) fn find(&self, number: u32) -> Option<u32> {
        self.ranges.iter().find(|(range, _)| range.contains(&number)).map(|(_, made)| *made)
    }
}

/// The tasks of a job by their numbers: eight bytes for each that came in ascending order, which is how
/// subtasks with keys are accepted.
#[derive(Debug, Default)]
pub(super) struct Roll {
    /// Number and task, ascending. Some are gone, and their slots may be another's.
    sorted: VecDeque<(u32, u32)>,
    /// How many of `sorted` are gone.
    gone: usize,
    others: HashMap<u32, u32, FixedState>,
}

impl Roll {
    /// A task with keys, which waits for long.
    pub(super) fn enter(&mut self, number: u32, task: u32) {
        if self.sorted.back().is_none_or(|(last, _)| *last < number) {
            self.sorted.push_back((number, task));
        } else {
            self.others.insert(number, task);
        }
    }

    /// A task that has begun, and was none before.
    pub(super) fn begin(&mut self, number: u32, task: u32) {
        self.others.insert(number, task);
    }

    /// The task is about to be gone.
    pub(super) fn leave(&mut self, tasks: &Tasks, slot: u32, number: u32, task: u32) {
        if self.others.remove(&number).is_some() {
            return;
        }
        self.gone += 1;
        // Who is gone anyway goes on, so that the memory of a job that runs in order falls with it.
        let is_gone =
            |&(number, other): &(u32, u32)| other == task || !is_here(tasks, slot, number, other);
        while self.gone > 0 && self.sorted.front().is_some_and(is_gone) {
            self.sorted.pop_front();
            self.gone -= 1;
        }
        if self.gone * 2 > self.sorted.len() {
            self.sorted.retain(|entry| !is_gone(entry));
            self.sorted.shrink_to(self.sorted.len() * 2);
            self.gone = 0;
        }
    }

    pub(super) fn find(&self, tasks: &Tasks, slot: u32, number: u32) -> Option<u32> {
        let in_order = || {
            let place = self.sorted.binary_search_by_key(&number, |(number, _)| *number).ok()?;
            Some(self.sorted[place].1)
        };
        let task = self.others.get(&number).copied().or_else(in_order)?;
        is_here(tasks, slot, number, task).then_some(task)
    }

    /// About `most` of the tasks that are here, spread over all of them.
    pub(super) fn spread<'a>(
        &'a self,
        tasks: &'a Tasks,
        slot: u32,
        most: usize,
    ) -> impl Iterator<Item = u32> + 'a {
        let stride = (self.sorted.len() / most).max(1);
        let sorted = self.sorted.iter().copied().step_by(stride).take(most);
        let others = self.others.iter().map(|(number, task)| (*number, *task)).take(most);
        let all = sorted.chain(others);
        all.filter(move |&(number, task)| is_here(tasks, slot, number, task)).map(|(_, task)| task)
    }

    /// All tasks. One that was reopened may be named twice.
    pub(super) fn iter<'a>(
        &'a self,
        tasks: &'a Tasks,
        slot: u32,
    ) -> impl Iterator<Item = u32> + 'a {
        let others = self.others.iter().map(|(number, task)| (*number, *task));
        let all = self.sorted.iter().copied().chain(others);
        all.filter(move |&(number, task)| is_here(tasks, slot, number, task)).map(|(_, task)| task)
    }
}

fn is_here(tasks: &Tasks, slot: u32, number: u32, task: u32) -> bool {
    debug_assert!(slot != NONE, "a job has a slot");
    tasks.get(task).is_some_and(|task| task.job == slot && task.number == number)
}

/// As ranges, ascending and as few as can be.
pub(super) fn ranges(mut all: Vec<Range<u32>>) -> Vec<Range<u32>> {
    all.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<u32>> = Vec::new();
    for range in all {
        match merged.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::task::Task;

    #[test]
    fn numbers_that_follow_one_another_are_one_range() {
        let mut fresh = Fresh::default();
        [3, 4, 5, 9].into_iter().for_each(|number| fresh.push(number, 0));
        fresh.push(10, 2);
        assert_eq!((fresh.ranges.len(), fresh.len()), (3, 5));
        assert_eq!((fresh.find(4), fresh.find(10), fresh.find(6)), (Some(0), Some(2), None));
        assert_eq!(fresh.pop(), Some((3, 0)));
        assert_eq!(fresh.take().collect::<Vec<_>>(), [4..6, 9..10, 10..11]);
        assert_eq!(fresh.len(), 0);
        assert_eq!(ranges(vec![9..10, 4..6, 10..11]), [4..6, 9..11]);
    }

    #[test]
    fn a_roll_forgets_who_is_gone() {
        let mut tasks = Tasks::new();
        let mut roll = Roll::default();
        let all: Vec<u32> = (0..100).map(|number| tasks.insert(Task::new(5, number, 0))).collect();
        (0..100).for_each(|number| roll.enter(number, all[number as usize]));
        for number in (0..100).rev().step_by(3) {
            roll.leave(&tasks, 5, number, all[number as usize]);
            tasks.remove(all[number as usize]);
        }
        assert_eq!(roll.find(&tasks, 5, 99), None);
        assert_eq!(roll.find(&tasks, 5, 98), Some(all[98]));
        // A number that comes again, in a slot that was another's.
        let again = tasks.insert(Task::new(5, 99, 1));
        roll.enter(99, again);
        assert_eq!(roll.find(&tasks, 5, 99), Some(again));
        assert_eq!(roll.iter(&tasks, 5).count(), 67);
        for task in roll.iter(&tasks, 5).collect::<Vec<_>>() {
            roll.leave(&tasks, 5, tasks[task].number, task);
            tasks.remove(task);
        }
        assert!(roll.sorted.is_empty() && roll.others.is_empty());
    }
}
