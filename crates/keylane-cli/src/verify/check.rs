//! Check of the order: finds runs that broke it.
//!
//! A *task* is all runs with one place in a lane; each run is one attempt. Three rules:
//!
//! 1. **Order.** Of two tasks of a lane, the one with the higher place starts after the last
//!    attempt of the other has ended. Two tasks that share the key are exempt, and so are tasks of
//!    one batch with no other task between them.
//! 2. **One attempt at a time.** An attempt starts after the one before it has ended.
//! 3. **Fences rise.** In the order of starts, each run has a higher fence than those before it.
//!    Shared tasks are exempt between each other, because their starts may be equal.
//!
//! Equal times count as in order: a clock of milliseconds cannot tell.
//!
//! *Why one pass suffices.* With the tasks sorted by place, a task breaks rule 1 with some earlier
//! task exactly if it starts before the latest end of those: the maximum over all earlier ones for
//! an exclusive task, over the exclusive ones for a shared task.
//!
//! A run without an end was cut off, or still ran when the history was written. If a later attempt
//! of its task follows, its process is assumed to have ended by then. Otherwise it ends never, and
//! a later task that starts is a violation of rule 1.

/// One run of a task, in one lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct TaskRun {
    pub(super) lane: u32,
    pub(super) place: u64,
    /// Place of the first task of its batch, whose tasks run at the same time.
    pub(super) batch: Option<u64>,
    pub(super) access: Access,
    pub(super) attempt: u32,
    pub(super) fence: Option<u64>,
    pub(super) start: i64,
    /// `None` if the run was cut off.
    pub(super) end: Option<i64>,
    pub(super) file: u32,
    pub(super) line: u32,
}

/// Access of a task to its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Exclusive,
    /// Tasks with shared access run beside each other.
    Shared,
}

/// Result of the check.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    pub(super) violations: Vec<Violation>,
    /// Tasks, counted once for each of their keys.
    pub(super) tasks: u64,
    /// Runs without an end that a later attempt followed.
    pub(super) cut_off: u64,
    /// Runs that repeat the attempt number of another run of their task, as after a crash.
    pub(super) repeated: u64,
}

/// Two runs that broke a rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Violation {
    pub(super) rule: BrokenRule,
    /// The run that came too early.
    pub(super) run: TaskRun,
    /// The run that it should have waited for, or whose fence it should exceed.
    pub(super) other: TaskRun,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BrokenRule {
    Order,
    Attempts,
    Fence,
}

/// Checks the runs of all lanes.
pub(super) fn check(runs: &[TaskRun]) -> Verdict {
    let mut runs = runs.to_vec();
    runs.sort_by_key(|run| (run.lane, run.place, run.start, run.attempt, end_of(run)));
    let mut verdict = Verdict::default();
    for lane in runs.chunk_by(|a, b| a.lane == b.lane) {
        verdict.order(lane);
        verdict.fences(lane);
    }
    verdict.violations.sort_by_key(|violation| (violation.run.file, violation.run.line));
    verdict
}

impl Verdict {
    /// Checks rules 1 and 2 in a lane that is sorted by place.
    fn order(&mut self, lane: &[TaskRun]) {
        let mut last_exclusive: Option<TaskRun> = None;
        let mut last_of_all: Option<TaskRun> = None;
        let mut batch = None;
        // Latest ends before the batch.
        let mut before_batch = (None, None);
        for task in lane.chunk_by(|a, b| a.place == b.place) {
            self.tasks += 1;
            self.attempts(task);
            let first = task[0];
            // A task is exclusive if one of its runs is.
            let is_exclusive = task.iter().any(|run| run.access == Access::Exclusive);
            if first.batch.is_none() || first.batch != batch {
                before_batch = (last_exclusive, last_of_all);
            }
            batch = task[task.len() - 1].batch;
            let before = if is_exclusive { before_batch.1 } else { before_batch.0 };
            if let Some(other) = before.filter(|other| first.start < end_of(other)) {
                self.violations.push(Violation { rule: BrokenRule::Order, run: first, other });
            }
            let last = last_run(task);
            keep_later(&mut last_of_all, last);
            if is_exclusive {
                keep_later(&mut last_exclusive, last);
            }
        }
    }

    /// Checks rule 2 for one task, whose runs are sorted by start.
    fn attempts(&mut self, task: &[TaskRun]) {
        let mut before = task[0];
        for &run in &task[1..] {
            self.repeated += u64::from(run.attempt <= before.attempt);
            self.cut_off += u64::from(before.end.is_none());
            // An attempt that was cut off ended by the time of the next.
            if before.end.is_some_and(|end| run.start < end) {
                let rule = BrokenRule::Attempts;
                self.violations.push(Violation { rule, run, other: before });
            }
            if run.end.is_none() || before.end.is_none() || run.end > before.end {
                before = run;
            }
        }
    }

    /// Checks rule 3 in a lane.
    fn fences(&mut self, lane: &[TaskRun]) {
        let mut fenced: Vec<_> = lane.iter().filter(|run| run.fence.is_some()).copied().collect();
        fenced.sort_by_key(|run| (run.start, run.fence));
        let mut highest: Option<TaskRun> = None;
        for run in fenced {
            let exempt = |other: &TaskRun| {
                run.access == Access::Shared
                    && other.access == Access::Shared
                    && run.fence != other.fence
            };
            match highest {
                Some(other) if run.fence <= other.fence => {
                    if !exempt(&other) {
                        let rule = BrokenRule::Fence;
                        self.violations.push(Violation { rule, run, other });
                    }
                }
                _ => highest = Some(run),
            }
        }
    }
}

/// Run of a task that ends last. An attempt that was cut off counts only if none followed.
fn last_run(task: &[TaskRun]) -> TaskRun {
    let (last, before) = task.split_last().expect("a task has a run");
    let mut latest = *last;
    for run in before {
        if run.end.is_some() && end_of(run) > end_of(&latest) {
            latest = *run;
        }
    }
    latest
}

fn keep_later(latest: &mut Option<TaskRun>, run: TaskRun) {
    if latest.is_none_or(|latest| end_of(&run) > end_of(&latest)) {
        *latest = Some(run);
    }
}

fn end_of(run: &TaskRun) -> i64 {
    run.end.unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
