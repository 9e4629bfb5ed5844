//! Rules for jobs that wait for the end of another one.

use super::state::{Job, State};
use crate::simulation::history::Run;
use crate::simulation::work::{AfterJob, FAN_IN, RunEnd, SPLIT};

impl State {
    /// A job begins after the end of the one that it waits for, and not at all if that must succeed and has failed. A
    /// retry by an operator does not wait.
    pub(super) fn after(&self, run: Run) -> Option<String> {
        let job = &self.jobs[run.job];
        let AfterJob { job: first, must_succeed, .. } = job.spec.after.as_ref()?;
        let before = &self.jobs[*first];
        // A retry makes it active again, so that only its state at the start of the other would count.
        if job.is_retried || before.is_retried {
            return None;
        }
        if let Some(open) = self.certainly_open(*first) {
            return Some(format!("begins before the end of task {open} of job {first}"));
        }
        let has_failed = *must_succeed && before.has_failed_for_certain();
        has_failed.then(|| format!("begins, though job {first} has failed"))
    }

    /// Returns the place of a task that a job certainly has and that has not ended.
    fn certainly_open(&self, number: usize) -> Option<usize> {
        let job = &self.jobs[number];
        let subtasks = 0..job.spec.subtasks.len();
        let open = |place: &usize| !self.may_be_over((number, *place));
        if !job.spec.has_steps() {
            return subtasks.into_iter().find(open);
        }
        let (split, fan_in) = (job.spec.place(SPLIT), job.spec.place(FAN_IN));
        // Without a success of the split there are no subtasks, and without theirs there is no fan-in.
        let has_succeeded = |place: usize| job.tasks[place].has_succeeded;
        let certain = [split].into_iter().chain(subtasks.clone().filter(|_| has_succeeded(split)));
        let fan_in =
            Some(fan_in).filter(|_| has_succeeded(split) && subtasks.clone().all(has_succeeded));
        certain.chain(fan_in).find(open)
    }

    /// A job is refused only if the one that `waiting`, of the same batch, waits for may have been removed.
    pub(super) fn refused(&mut self, number: usize, waiting: usize) {
        self.jobs[number].is_refused = true;
        let before = self.jobs[waiting].spec.after.as_ref().map(|after| &self.jobs[after.job]);
        let may_be_gone = |before: &Job| {
            let (lowest, highest) = before.walls;
            before.is_removed || highest - lowest >= before.spec.kind.keep(self.keep)
        };
        if !before.is_some_and(may_be_gone) {
            self.fail(format!("job {number} is refused, and the one that it waits for is there"));
        }
    }
}

impl Job {
    /// Returns whether a subtask has failed for good, on the disk, and was not retried or skipped.
    fn has_failed_for_certain(&self) -> bool {
        self.tasks.iter().any(|task| {
            let end = task.end.filter(|end| end.is_known && end.is_durable);
            !task.may_skip
                && !task.may_retry
                && end.is_some_and(|end| end.end == RunEnd::FailedForGood)
        })
    }
}
