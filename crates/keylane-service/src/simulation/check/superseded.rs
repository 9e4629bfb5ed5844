//! Rules for subtasks that a later one of their key replaces.

use super::state::State;
use crate::simulation::history::Run;
use crate::simulation::work::{FAN_IN, JobKind, SPLIT, SubtaskKeys};

/// Time after which a replacement has happened for certain, in milliseconds without full disk: an attempt
/// that was on its way waits for its start mark.
const REPLACED: u64 = 10_000;

impl State {
    /// A client reads that a subtask is superseded: it has not run since its job was retried last, the
    /// other one has the same key and did not enter before it, and this is final.
    pub(super) fn superseded(&mut self, (job, number): (usize, u32), by: &(String, u32)) {
        let place = number as usize;
        let keys = self.jobs[job].spec.subtasks[place].clone();
        let task = &self.jobs[job].tasks[place];
        let mut wrong = Vec::new();
        if !keys.is_latest {
            wrong.push("asks for no replacement".to_owned());
        }
        if task.starts > task.releases && !self.jobs[job].is_retried {
            wrong.push("has run".to_owned());
        }
        if task.superseded_by.as_ref().is_some_and(|before| before != by) {
            wrong.push(format!("was superseded by {:?}", task.superseded_by));
        }
        match self.jobs.iter().position(|job| job.id == by.0) {
            // The answer to its submission is on its way.
            None => {}
            Some(other) => {
                let newer = (other, by.1 as usize);
                let others = self.jobs[other].spec.subtasks.get(newer.1);
                let is_like =
                    others.is_some_and(|others| others.is_latest && others.all == keys.all);
                if !is_like || newer == (job, place) || self.is_before(newer, (job, place)) {
                    wrong.push("cannot be replaced by that one".to_owned());
                }
            }
        }
        for why in wrong {
            self.fail(format!("subtask {number} of job {job} is superseded by {by:?}, and {why}"));
        }
        self.jobs[job].tasks[place].superseded_by = Some(by.clone());
    }

    /// Returns whether a later subtask has possibly replaced this one.
    pub(super) fn may_be_superseded(&self, (job, number): (usize, usize)) -> bool {
        let Some(keys) = self.jobs[job].spec.subtasks.get(number) else { return false };
        // A retried subtask enters again as if it had never run.
        let task = &self.jobs[job].tasks[number];
        let is_new = task.starts == task.releases || self.jobs[job].is_retried;
        keys.is_latest && is_new && self.like((job, number)).next().is_some()
    }

    /// Returns the other subtasks that may replace this one: with the same key, and not certainly
    /// before it.
    fn like(&self, this: (usize, usize)) -> impl Iterator<Item = (usize, usize)> {
        let keys = &self.jobs[this.0].spec.subtasks[this.1];
        let all = self.jobs.iter().enumerate().flat_map(|(number, job)| {
            let subtasks = job.spec.subtasks.iter().enumerate();
            subtasks.map(move |(place, keys)| ((number, place), keys))
        });
        let is_like = move |(other, others): &((usize, usize), &SubtaskKeys)| {
            let is_like = others.is_latest && others.all == keys.all;
            *other != this && is_like && !self.is_before(*other, this)
        };
        all.filter(is_like).map(|(other, _)| other)
    }

    /// A superseded subtask does not run. One that a later one must have replaced does not begin.
    pub(super) fn replacement(&self, run: Run) -> Vec<String> {
        let mut wrong = Vec::new();
        let (job, task) = self.both(run);
        if let Some(by) = &task.superseded_by {
            wrong.push(format!("begins, and is superseded by {by:?}"));
        }
        let is_step = [SPLIT, FAN_IN].contains(&run.number);
        // A lease that was promised to a worker that is gone is given to another one.
        let is_fresh = run.attempt == 1 && task.unseen == 0 && job.spec.kind != JobKind::Lease;
        if is_step || !is_fresh || job.is_retried || self.is_full {
            return wrong;
        }
        let this = (run.job, run.number as usize);
        if !job.spec.subtasks[this.1].is_latest {
            return wrong;
        }
        let has_entered = |other: &(usize, usize)| {
            let other = &self.jobs[other.0];
            let accepted = other.accepted.filter(|_| other.enters_at_once() && !other.is_cancelled);
            let at = accepted.map(|moment| moment.at.max(self.full_until + self.slept));
            at.is_some_and(|at| at + REPLACED < self.at)
        };
        let newer = self.like(this).filter(|other| self.is_before(this, *other)).find(has_entered);
        wrong.extend(newer.map(|(job, number)| {
            format!("begins, though subtask {number} of job {job} has replaced it")
        }));
        wrong
    }
}
