//! What must hold between two calls, each thing counted again from scratch.

use std::collections::{BTreeMap, BTreeSet};

use crate::scheduler::SubtaskCounts;
use crate::scheduler::job::{JobPhase, StepState};
use crate::scheduler::lanes::LanePosition;
use crate::scheduler::slab::NONE;
use crate::scheduler::state::Scheduler;
use crate::scheduler::task::{ScheduledTask, TaskPhase};

impl Scheduler {
    /// Panics if a count, a list or the allocator says something else than the tasks do.
    pub(super) fn check(&self) {
        assert!(self.opened.is_empty());
        let tasks: BTreeMap<u32, &ScheduledTask> =
            self.tasks.iter().filter(|(_, task)| task.job != NONE).collect();
        assert_eq!(tasks.len(), self.tasks.len());
        let running: BTreeSet<u32> = self.runs.values().map(|run| run.task).collect();
        let mut counts: BTreeMap<u32, SubtaskCounts> = BTreeMap::new();
        let mut places = 0;
        for (&number, task) in &tasks {
            assert_eq!(task.phase == TaskPhase::Running, running.contains(&number));
            let job = &self.jobs[task.job];
            let is_dropped = self.is_dropped(number);
            let found = job.roll.find(&self.tasks, task.job, task.number);
            assert_eq!(found, (!is_dropped).then_some(number));
            assert!(!is_dropped || job.is_swept, "nothing takes it out of its lanes");
            let standings: Vec<_> = self.lanes.standings(&self.tasks, number, u32::MAX).collect();
            let is_blocked = |it: &&LanePosition| !it.is_front || self.lanes.lane(it.lane).paused;
            let blocked = standings.iter().filter(is_blocked).count();
            let is_held_back = self.key_rates.wait_of(number).is_some();
            assert_eq!(task.blocked as usize, blocked + usize::from(is_held_back));
            places += standings.len();
            if is_dropped {
                continue;
            }
            match task.phase {
                TaskPhase::Waiting => assert!(task.blocked > 0, "it waits for nothing"),
                TaskPhase::Ready => assert_eq!(task.blocked, 0),
                TaskPhase::Running | TaskPhase::BackingOff => {
                    assert!(standings.iter().all(|it| it.is_front), "it holds its lanes");
                }
                TaskPhase::Stopped => {}
            }
            let counts = counts.entry(task.job).or_default();
            if task.is_subtask() {
                *match task.phase {
                    TaskPhase::Waiting => &mut counts.waiting,
                    TaskPhase::Ready => &mut counts.ready,
                    TaskPhase::Running => &mut counts.running,
                    TaskPhase::BackingOff => &mut counts.backing_off,
                    TaskPhase::Stopped => &mut counts.stopped,
                } += 1;
            }
        }
        assert_eq!(places, self.lanes.places());
        self.lanes.check_fronts();
        let swept: BTreeSet<u32> = self.sweeps.iter().map(|sweep| sweep.job).collect();
        assert_eq!(swept.len(), self.sweeps.len(), "one sweep for a job");
        assert!(self.jobs.iter().all(|(slot, job)| job.is_swept == swept.contains(&slot)));
        let entries = self.by_number.values().map(|slot| self.jobs[*slot].entries.len());
        assert_eq!(entries.sum::<usize>(), self.line.len());
        assert_eq!(self.line_keys.len(), self.line.len());
        assert!(self.passing.iter().all(|number| self.line.contains_key(number)));
        assert_eq!(self.by_number.len(), self.jobs.len());
        for (&number, &slot) in &self.by_number {
            assert_eq!(self.jobs[slot].number.0, number);
            self.check_job(slot, counts.get(&slot).copied().unwrap_or_default(), &tasks);
        }
    }

    fn check_job(&self, slot: u32, counted: SubtaskCounts, tasks: &BTreeMap<u32, &ScheduledTask>) {
        let job = &self.jobs[slot];
        let counted = SubtaskCounts {
            ready: counted.ready + job.fresh.len(),
            scheduled: job.scheduled.as_ref().map_or(0, |scheduled| scheduled.parked.count()),
            entering: if job.is_fed { job.counts.entering } else { self.in_line(slot) },
            succeeded: job.counts.succeeded,
            failed: job.counts.failed,
            cancelled: job.counts.cancelled,
            superseded: job.counts.superseded,
            ..counted
        };
        assert_eq!(job.counts, counted);
        for (list, phase) in [
            (&job.ready, TaskPhase::Ready),
            (&job.backing_off, TaskPhase::BackingOff),
            (&job.stopped, TaskPhase::Stopped),
        ] {
            let listed: Vec<u32> = list.iter(&self.tasks, |task| &task.link).collect();
            let are_there = |it: &u32| tasks[it].phase == phase && tasks[it].job == slot;
            assert!(listed.iter().all(are_there));
            let there = tasks.values().filter(|it| it.phase == phase && it.job == slot).count();
            assert_eq!(listed.len(), if job.was_dropped { 0 } else { there });
        }
        let Some(share) = job.share else { return };
        let restored = self.runs.values().filter(|run| run.is_restored);
        let restored = restored.filter(|run| tasks[&run.task].job == slot).count() as u64;
        let Some(progress) = self.allocator.progress(share) else {
            // It runs nothing that the allocator knows of, and is cancelled or fails.
            assert!(job.course != JobPhase::Open);
            return assert_eq!(counted.unfinished(), restored);
        };
        let is_step = |task: &&&ScheduledTask| task.job == slot && !task.is_subtask();
        let steps = |phases: &[TaskPhase]| {
            tasks.values().filter(is_step).filter(|task| phases.contains(&task.phase)).count()
                as u64
        };
        assert_eq!(progress.running + restored, counted.running + steps(&[TaskPhase::Running]));
        if job.course.is_dropped() {
            assert_eq!(counted.unfinished(), counted.running);
            return;
        }
        assert_eq!(progress.ready, counted.ready + steps(&[TaskPhase::Ready]));
        let to_come = u64::from(matches!(job.fan_in, StepState::Pending(_)));
        let waiting = counted.waiting + counted.backing_off + counted.stopped + to_come + restored;
        let waiting = waiting + self.in_line(slot) + u64::from(job.is_fed);
        assert_eq!(progress.waiting, waiting + steps(&[TaskPhase::BackingOff]));
        assert_eq!(progress.paused, job.paused || job.held.is_some());
    }

    /// Panics if any state is left that is not paused.
    pub(super) fn check_empty(&self) {
        self.check();
        assert_eq!((self.tasks.len(), self.jobs.len(), self.runs.len()), (0, 0, 0));
        assert_eq!((self.lanes.len(), self.lanes.places()), (0, 0));
        assert_eq!((self.line.len(), self.sweeps.len()), (0, 0));
        assert_eq!((self.by_number.len(), self.by_share.len(), self.kinds.held()), (0, 0, 0));
        // A few cancelled timers may stay until they are due.
        assert!(self.timers.len() <= 64);
        assert_eq!((self.allocator.unfinished(), self.allocator.busy()), (0, 0));
        assert_eq!((self.restored, self.allocator.workers()), (0, self.slots));
    }
}
