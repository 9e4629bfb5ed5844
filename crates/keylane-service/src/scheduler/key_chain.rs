//! The longest chain of a job: the key on which its subtasks have the most predecessors one after another.
//!
//! A job cannot end before the last of its subtasks with a key, and that not before all that are in front of it in the
//! lane of the key have run one by one. So the longest such chain is a lower bound of the time to the job's end, in
//! subtasks, however many slots there are.

use std::collections::BTreeSet;

use super::state::Scheduler;
use crate::{JobNumber, Key};

/// Maximum number of the job's tasks whose lanes are candidates.
const MAX_SAMPLED: usize = 64;

/// Maximum number of the longest lanes of all jobs that are candidates.
const MAX_LANES: usize = 64;

/// Maximum number of candidates that are examined, the longest ones.
const MAX_EXAMINED: usize = 16;

/// Maximum number of places that are examined at the end of a lane.
const MAX_PLACES: usize = 1000;

/// Subtasks that run one after another because of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyChain {
    /// The key.
    pub key: Key,
    /// Number of unfinished subtasks in the chain, those of other jobs included.
    pub subtasks: u64,
}

impl Scheduler {
    /// Longest chain of a job: the unfinished subtasks with a key, up to the job's last one. `None` if no subtask in the
    /// order has a key of its own.
    ///
    /// Found among the lanes of 64 of the job's subtasks and the 64 longest lanes, so that a chain may be missed that has
    /// less than a fiftieth of the job's subtasks. At the end of a lane 1000 places are examined; if none is the job's, the chain
    /// has at most the subtasks before them. The cost has a bound.
    #[must_use]
    pub fn longest_chain(&self, job: JobNumber) -> Option<KeyChain> {
        let slot = self.find(job)?;
        let sample = self.jobs[slot].roll.spread(&self.tasks, slot, MAX_SAMPLED);
        let sample = sample.take(MAX_SAMPLED).flat_map(|task| {
            let positions = self.lanes.standings(&self.tasks, task, 0);
            positions.map(|position| position.lane)
        });
        let longest = self.lanes.by_digits().take(MAX_LANES);
        let candidates: BTreeSet<u32> = sample.chain(longest).collect();
        let mut candidates: Vec<u32> = candidates.into_iter().collect();
        candidates.retain(|lane| !self.lanes.lane(*lane).is_of_job());
        candidates.sort_by_key(|lane| std::cmp::Reverse(self.lanes.lane(*lane).len));
        let mut best: Option<(u32, u64)> = None;
        for lane in candidates.into_iter().take(MAX_EXAMINED) {
            let length = u64::from(self.lanes.lane(lane).len);
            if best.is_some_and(|(_, found)| found >= length) {
                break;
            }
            let found = self.chain_in(lane, slot);
            if found > best.map_or(0, |(_, found)| found) {
                best = Some((lane, found));
            }
        }
        best.map(|(lane, subtasks)| KeyChain {
            key: Key::new(self.lanes.lane(lane).key()),
            subtasks,
        })
    }

    /// Key with the most unfinished subtasks of all jobs, up to a factor of 2 if more than 1000 keys have that many.
    #[must_use]
    pub fn longest_key(&self) -> Option<KeyChain> {
        let longest = self.lanes.by_digits().take(1000);
        let lane = longest.max_by_key(|lane| self.lanes.lane(*lane).len)?;
        let it = self.lanes.lane(lane);
        Some(KeyChain { key: Key::new(it.key()), subtasks: it.len.into() })
    }

    /// Number of places in a lane up to the last one of the job that runs alone with the key; 0 if there is none.
    fn chain_in(&self, lane: u32, slot: u32) -> u64 {
        let length = u64::from(self.lanes.lane(lane).len);
        let mut behind = 0;
        for (task, runs_alone) in self.lanes.tasks_backward(lane).take(MAX_PLACES) {
            if self.tasks[task].job == slot && runs_alone {
                return length - behind;
            }
            behind += 1;
        }
        if behind < length && self.is_in_front_part(lane, slot) { length - behind } else { 0 }
    }

    /// Whether the first places of a lane have one of the job.
    fn is_in_front_part(&self, lane: u32, slot: u32) -> bool {
        let mut first = self.lanes.tasks_forward(lane).take(MAX_PLACES);
        first.any(|(task, runs_alone)| self.tasks[task].job == slot && runs_alone)
    }
}
