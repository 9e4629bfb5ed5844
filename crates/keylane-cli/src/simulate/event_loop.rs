//! Event loop that runs jobs on workers in virtual time.
//!
//! Of simultaneous events, ends come before arrivals, and earlier starts before later ones; free
//! workers are assigned after each event. The free worker with the lowest number is used first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::jobs::SimulatedJob;
use super::policy::AssignmentPolicy;
use super::schedule::{ScheduledSubtask, SimulatedSchedule};

/// A subtask that runs: its end first, then its place among all that began.
type RunningTask = Reverse<(u64, usize)>;

struct Simulation<'a> {
    jobs: &'a [SimulatedJob],
    policy: &'a mut dyn AssignmentPolicy,
    idle: BinaryHeap<Reverse<usize>>,
    running: BinaryHeap<RunningTask>,
    /// Subtasks that have begun, and that have ended, of each job.
    begun: Vec<usize>,
    ended: Vec<usize>,
    schedule: SimulatedSchedule,
}

/// Schedule of these jobs under a policy; the jobs are in the order of their arrival.
pub(super) fn run(
    jobs: &[SimulatedJob],
    workers: usize,
    policy: &mut dyn AssignmentPolicy,
) -> SimulatedSchedule {
    let schedule = SimulatedSchedule {
        policy: policy.name(),
        bars: Vec::new(),
        finished: vec![0; jobs.len()],
    };
    let mut world = Simulation {
        jobs,
        policy,
        idle: (0..workers).map(Reverse).collect(),
        running: BinaryHeap::new(),
        begun: vec![0; jobs.len()],
        ended: vec![0; jobs.len()],
        schedule,
    };
    for (number, job) in jobs.iter().enumerate() {
        world.run_until(job.arrival);
        if job.lengths.is_empty() {
            world.schedule.finished[number] = job.arrival;
        } else {
            world.policy.arrive(number, job, job.arrival);
            world.give(job.arrival);
        }
    }
    world.run_until(u64::MAX);
    world.schedule
}

impl Simulation<'_> {
    fn run_until(&mut self, time: u64) {
        while let Some(Reverse((end, bar))) = self.running.peek().copied()
            && end <= time
        {
            self.running.pop();
            let ScheduledSubtask { worker, job, start, .. } = self.schedule.bars[bar];
            self.idle.push(Reverse(worker));
            self.ended[job] += 1;
            if self.ended[job] == self.jobs[job].lengths.len() {
                self.schedule.finished[job] = end;
            }
            self.policy.ended(job, end - start, end);
            self.give(end);
        }
    }

    fn give(&mut self, now: u64) {
        while let Some(Reverse(worker)) = self.idle.peek().copied() {
            let Some((job, rule)) = self.policy.next(now) else { break };
            self.idle.pop();
            let subtask = self.begun[job];
            self.begun[job] += 1;
            let end = now + self.jobs[job].lengths[subtask];
            self.running.push(Reverse((end, self.schedule.bars.len())));
            let subtask = subtask as u64 + 1;
            self.schedule.bars.push(ScheduledSubtask {
                worker,
                job,
                subtask,
                start: now,
                end,
                rule,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use keylane_allocate::{JobPolicy, JobScheduler};

    use super::super::policy::{FifoPolicy, KeylanePolicy, RoundRobin, ShortestFirst};
    use super::super::random_jobs::JobMix;
    use super::*;

    fn all_policies(workers: usize) -> [Box<dyn AssignmentPolicy>; 6] {
        let rules = |order| JobScheduler::new(workers).with_policy(order);
        [
            Box::new(KeylanePolicy::new("four rules", rules(JobPolicy::Arrival))),
            Box::new(KeylanePolicy::new("balanced", rules(JobPolicy::Balanced))),
            Box::new(KeylanePolicy::new("shortest first", rules(JobPolicy::Shortest))),
            Box::<FifoPolicy>::default(),
            Box::<RoundRobin>::default(),
            Box::<ShortestFirst>::default(),
        ]
    }

    #[test]
    fn the_work_is_conserved_and_no_worker_does_two_things() {
        let jobs = JobMix { jobs: 300, load: 0.9, workers: 3, seed: 7 }.jobs();
        let work: u64 = jobs.iter().map(SimulatedJob::work).sum();
        for mut policy in all_policies(3) {
            let schedule = run(&jobs, 3, policy.as_mut());
            let spent: u64 = schedule.bars.iter().map(|bar| bar.end - bar.start).sum();
            assert_eq!(spent, work, "{}", schedule.policy);
            let mut free_from = [0; 3];
            for bar in &schedule.bars {
                assert!(bar.start >= free_from[bar.worker] && bar.start >= jobs[bar.job].arrival);
                free_from[bar.worker] = bar.end;
            }
            for (number, job) in jobs.iter().enumerate() {
                let least = job.arrival + job.least_time(3);
                assert!(schedule.finished[number] >= least, "{}", schedule.policy);
            }
        }
    }

    #[test]
    fn a_worker_is_idle_only_while_every_subtask_that_came_has_begun() {
        let jobs = JobMix { jobs: 60, load: 0.7, workers: 2, seed: 3 }.jobs();
        for mut policy in all_policies(2) {
            let schedule = run(&jobs, 2, policy.as_mut());
            for bar in &schedule.bars {
                let (from, until) = (jobs[bar.job].arrival, bar.start);
                let busy = |time: u64| {
                    schedule.bars.iter().filter(|b| b.start <= time && time < b.end).count()
                };
                let waited = (from..until).step_by(97);
                assert!(waited.into_iter().all(|time| busy(time) == 2), "{}", schedule.policy);
            }
        }
    }

    /// Job with this number of one-second subtasks that arrives at this millisecond.
    fn seconds(arrival: u64, subtasks: usize) -> SimulatedJob {
        SimulatedJob { name: String::new(), arrival, lengths: vec![1000; subtasks], weight: 1 }
    }

    #[test]
    fn an_end_goes_before_an_arrival_at_the_same_time() {
        // The wave that begins at 3 s has begun when the second job comes: the article's weak point.
        let jobs = [seconds(0, 20), seconds(3000, 4)];
        let schedule = run(&jobs, 4, all_policies(4)[0].as_mut());
        assert_eq!(schedule.finished, [6000, 6000]);
        let first = schedule.bars.iter().find(|bar| bar.job == 1).unwrap();
        assert_eq!((first.start, first.worker), (4000, 0));
    }

    #[test]
    fn srpt_counts_what_is_left_and_not_what_there_was() {
        let jobs = [seconds(0, 12), seconds(9500, 3)];
        let schedule = run(&jobs, 1, &mut ShortestFirst::default());
        assert_eq!(schedule.finished, [12_000, 15_000], "two are left of the first at 10 s");
    }

    #[test]
    fn the_same_jobs_give_the_same_schedule() {
        let jobs = JobMix { jobs: 200, load: 0.8, workers: 4, seed: 5 }.jobs();
        let schedule = || all_policies(4).map(|mut policy| run(&jobs, 4, policy.as_mut()));
        assert_eq!(schedule(), schedule());
    }
}
