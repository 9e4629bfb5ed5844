//! Unfinished tasks of a job, by number.
//!
//! Tasks that come in ascending order, as subtasks with keys do, are stored in pages of at most
//! [`PAGE`] entries. The entry of a removed task stays in its page until most of the page is
//! removed, so a removal costs O(log n) and at most one page, whatever the size of the job.

use std::collections::{BTreeMap, btree_map};

use super::slab::NONE;
use super::task::TaskSlab;
use crate::SubtaskNumber;

/// Number of entries per page.
const PAGE: usize = 512;

#[derive(Debug, Default)]
struct TaskPage {
    /// Number and task, ascending. Some tasks are removed, and their slots may have been reused.
    entries: Vec<(SubtaskNumber, u32)>,
    /// Number of entries whose tasks are removed.
    gone: usize,
}

/// Unfinished tasks of a job; see the [module](self).
#[derive(Debug, Default)]
pub(super) struct UnfinishedTasks {
    /// Pages by their first numbers, without overlaps.
    pages: BTreeMap<SubtaskNumber, TaskPage>,
    /// Highest number in `pages`; none if it is empty.
    last: Option<SubtaskNumber>,
    /// Tasks out of ascending order, and tasks that were made at their start.
    others: BTreeMap<SubtaskNumber, u32>,
}

impl UnfinishedTasks {
    /// Adds a task with keys, which may wait for long.
    pub(super) fn enter(&mut self, number: SubtaskNumber, task: u32) {
        if self.last.is_some_and(|last| last >= number) {
            self.others.insert(number, task);
            return;
        }
        self.last = Some(number);
        let last_page = self.pages.last_entry().map(btree_map::OccupiedEntry::into_mut);
        match last_page.filter(|page| page.entries.len() < PAGE) {
            Some(page) => page.entries.push((number, task)),
            None => {
                let page = TaskPage { entries: vec![(number, task)], gone: 0 };
                self.pages.insert(number, page);
            }
        }
    }

    /// Adds a task that is made at its start.
    pub(super) fn begin(&mut self, number: SubtaskNumber, task: u32) {
        self.others.insert(number, task);
    }

    /// Removes a task that is about to be freed.
    pub(super) fn leave(&mut self, tasks: &TaskSlab, slot: u32, number: SubtaskNumber, task: u32) {
        if self.others.remove(&number).is_some() {
            return;
        }
        let Some((&first, page)) = self.pages.range_mut(..=number).next_back() else { return };
        page.gone += 1;
        if page.gone * 2 <= page.entries.len() {
            return;
        }
        page.entries
            .retain(|&(number, other)| other != task && is_here(tasks, slot, number, other));
        page.gone = 0;
        if page.entries.is_empty() {
            self.pages.remove(&first);
        }
    }

    pub(super) fn find(&self, tasks: &TaskSlab, slot: u32, number: SubtaskNumber) -> Option<u32> {
        let in_order = || {
            let (_, page) = self.pages.range(..=number).next_back()?;
            let at = page.entries.binary_search_by_key(&number, |(number, _)| *number).ok()?;
            Some(page.entries[at].1)
        };
        let task = self.others.get(&number).copied().or_else(in_order)?;
        is_here(tasks, slot, number, task).then_some(task)
    }

    /// Up to `most` tasks of both collections, from the first entries of pages spread over all of
    /// them.
    pub(super) fn spread<'a>(
        &'a self,
        tasks: &'a TaskSlab,
        slot: u32,
        most: usize,
    ) -> impl Iterator<Item = u32> + 'a {
        // Pages are found by jumps between numbers, so that the cost does not grow with their
        // number.
        let last = self.last.unwrap_or_default();
        let stride = (last / most.max(1) as u32).max(1);
        let mut next = self.pages.first_key_value().map(|(first, _)| *first);
        let paged = std::iter::from_fn(move || {
            let from = next?;
            let (first, page) = self.pages.range(..=from).next_back()?;
            let at = page.entries.partition_point(|(number, _)| *number < from);
            let found = page.entries.get(at).or_else(|| {
                let (_, page) = self.pages.range(first + 1..).next()?;
                page.entries.first()
            });
            next = found.and_then(|(number, _)| number.checked_add(stride));
            found.copied()
        });
        let others = self.others.iter().map(|(number, task)| (*number, *task)).take(most);
        let all = paged.take(most).chain(others);
        all.filter(move |&(number, task)| is_here(tasks, slot, number, task)).map(|(_, task)| task)
    }

    /// Removes up to `most` entries, and adds those with a present task to `taken`. False when the
    /// roll is empty.
    pub(super) fn take_some(
        &mut self,
        tasks: &TaskSlab,
        slot: u32,
        most: usize,
        taken: &mut Vec<(SubtaskNumber, u32)>,
    ) -> bool {
        for _ in 0..most {
            let entry = match self.pages.first_entry() {
                Some(mut page) => {
                    // Removal at the end moves no entry.
                    let entry = page.get_mut().entries.pop();
                    if page.get().entries.is_empty() {
                        page.remove();
                    }
                    entry
                }
                None => match self.others.pop_first() {
                    Some(entry) => Some(entry),
                    None => return false,
                },
            };
            let is_live = |&(number, task): &(u32, u32)| is_here(tasks, slot, number, task);
            taken.extend(entry.filter(is_live));
        }
        !(self.pages.is_empty() && self.others.is_empty())
    }

    /// All tasks of a dropped job: those that run.
    pub(super) fn iter<'a>(
        &'a self,
        tasks: &'a TaskSlab,
        slot: u32,
    ) -> impl Iterator<Item = u32> + 'a {
        debug_assert!(self.pages.is_empty(), "what runs of a dropped job was put here one by one");
        let others = self.others.iter().map(|(number, task)| (*number, *task));
        others
            .filter(move |&(number, task)| is_here(tasks, slot, number, task))
            .map(|(_, task)| task)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pages.is_empty() && self.others.is_empty()
    }
}

fn is_here(tasks: &TaskSlab, slot: u32, number: SubtaskNumber, task: u32) -> bool {
    debug_assert!(slot != NONE, "a job has a slot");
    tasks.get(task).is_some_and(|task| task.job == slot && task.number == number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::task::ScheduledTask;

    #[test]
    fn a_roll_forgets_what_has_gone() {
        let mut tasks = TaskSlab::new();
        let mut roll = UnfinishedTasks::default();
        let all: Vec<u32> =
            (0..2000).map(|number| tasks.insert(ScheduledTask::new(5, number, 0, 0))).collect();
        (0..2000).for_each(|number| roll.enter(number, all[number as usize]));
        for number in (0..2000).rev().step_by(3) {
            roll.leave(&tasks, 5, number, all[number as usize]);
            tasks.remove(all[number as usize]);
        }
        assert_eq!(roll.find(&tasks, 5, 1999), None);
        assert_eq!(roll.find(&tasks, 5, 1998), Some(all[1998]));
        let sample: Vec<u32> = roll.spread(&tasks, 5, 64).collect();
        assert!(sample.len() > 20 && sample.len() <= 64, "{}", sample.len());
        // A number that comes again, in a reused slot.
        let again = tasks.insert(ScheduledTask::new(5, 1999, 1, 0));
        roll.enter(1999, again);
        assert_eq!(roll.find(&tasks, 5, 1999), Some(again));
        let mut taken = Vec::new();
        while roll.take_some(&tasks, 5, 100, &mut taken) {}
        assert_eq!(taken.len(), 2000 - 667 + 1);
        assert!(roll.is_empty());
    }

    #[test]
    fn pages_that_have_gone_are_given_back() {
        let mut tasks = TaskSlab::new();
        let mut roll = UnfinishedTasks::default();
        let all: Vec<u32> =
            (0..5000).map(|number| tasks.insert(ScheduledTask::new(5, number, 0, 0))).collect();
        (0..5000).for_each(|number| roll.enter(number, all[number as usize]));
        for number in 0..5000 {
            roll.leave(&tasks, 5, number, all[number as usize]);
            tasks.remove(all[number as usize]);
        }
        assert!(roll.is_empty());
    }
}
