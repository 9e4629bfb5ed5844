//! Policies for sharing the workers: the four rules, and those for comparison.
//!
//! No policy preempts a started subtask, or leaves a worker idle while a subtask can start.

use std::collections::{BTreeSet, VecDeque};

use keylane_allocate::{Claimant, End, JobId, JobScheduler, Rule, Supply};

use super::jobs::SimulatedJob;

/// Assigns free workers. Jobs are numbers, in the order of their arrival.
pub(super) trait AssignmentPolicy {
    fn name(&self) -> &'static str;

    /// A job comes. Never called for one without subtasks.
    fn arrive(&mut self, job: usize, what: &SimulatedJob, now: u64);

    /// Job whose next subtask runs on the free worker, with the rule of the decision.
    fn next(&mut self, now: u64) -> Option<(usize, Option<Rule>)>;

    /// Reports the end of a subtask with this duration.
    fn ended(&mut self, job: usize, length: u64, now: u64);
}

/// Keylane's rules, with the allocator's settings.
pub(super) struct KeylanePolicy {
    name: &'static str,
    allocator: JobScheduler,
    /// Which job an id is, by its serial number.
    jobs: Vec<usize>,
    ids: Vec<Option<JobId>>,
}

impl KeylanePolicy {
    pub(super) fn new(name: &'static str, allocator: JobScheduler) -> Self {
        KeylanePolicy { name, allocator, jobs: Vec::new(), ids: Vec::new() }
    }
}

impl AssignmentPolicy for KeylanePolicy {
    fn name(&self) -> &'static str {
        self.name
    }

    fn arrive(&mut self, job: usize, what: &SimulatedJob, now: u64) {
        let subtasks = Supply::Ready(what.lengths.len() as u64);
        let id = self.allocator.submit(subtasks, what.weight, now);
        self.jobs.push(job);
        self.ids.resize(job + 1, None);
        self.ids[job] = Some(id);
    }

    fn next(&mut self, now: u64) -> Option<(usize, Option<Rule>)> {
        let decision = self.allocator.next(now)?;
        let Claimant::Job(id) = decision.to else { unreachable!("there is no loose work here") };
        Some((self.jobs[id.serial() as usize], Some(decision.rule)))
    }

    fn ended(&mut self, job: usize, _: u64, now: u64) {
        let id = self.ids[job].expect("a job arrives before its subtasks end");
        self.allocator.ended(Claimant::Job(id), End::Done, now);
    }
}

/// All subtasks in one queue, as if each job were split when it comes.
#[derive(Default)]
pub(super) struct FifoPolicy {
    /// Jobs, with the number of their subtasks that have not started.
    queue: VecDeque<(usize, usize)>,
}

impl AssignmentPolicy for FifoPolicy {
    fn name(&self) -> &'static str {
        "FIFO"
    }

    fn arrive(&mut self, job: usize, what: &SimulatedJob, _: u64) {
        self.queue.push_back((job, what.lengths.len()));
    }

    fn next(&mut self, _: u64) -> Option<(usize, Option<Rule>)> {
        let (job, left) = self.queue.front_mut()?;
        let job = *job;
        *left -= 1;
        if *left == 0 {
            self.queue.pop_front();
        }
        Some((job, None))
    }

    fn ended(&mut self, _: usize, _: u64, _: u64) {}
}

/// Each job in turn begins one subtask.
#[derive(Default)]
pub(super) struct RoundRobin {
    ring: VecDeque<(usize, usize)>,
}

impl AssignmentPolicy for RoundRobin {
    fn name(&self) -> &'static str {
        "round robin"
    }

    fn arrive(&mut self, job: usize, what: &SimulatedJob, _: u64) {
        self.ring.push_back((job, what.lengths.len()));
    }

    fn next(&mut self, _: u64) -> Option<(usize, Option<Rule>)> {
        let (job, left) = self.ring.pop_front()?;
        if left > 1 {
            self.ring.push_back((job, left - 1));
        }
        Some((job, None))
    }

    fn ended(&mut self, _: usize, _: u64, _: u64) {}
}

/// Prefers the job with the least work left. It knows the duration of each subtask in advance,
/// which no real scheduler does, and lets a large job starve among small ones: a baseline for
/// comparison.
#[derive(Default)]
pub(super) struct ShortestFirst {
    /// Jobs with subtasks that have not begun, by the work that is left.
    by_work: BTreeSet<(u64, usize)>,
    /// Remaining work and number of subtasks that have not started, of each job.
    left: Vec<(u64, usize)>,
}

impl AssignmentPolicy for ShortestFirst {
    fn name(&self) -> &'static str {
        "SRPT"
    }

    fn arrive(&mut self, job: usize, what: &SimulatedJob, _: u64) {
        self.left.resize(job + 1, (0, 0));
        self.left[job] = (what.work(), what.lengths.len());
        self.by_work.insert((what.work(), job));
    }

    fn next(&mut self, _: u64) -> Option<(usize, Option<Rule>)> {
        let (work, job) = *self.by_work.first()?;
        let (_, to_begin) = &mut self.left[job];
        *to_begin -= 1;
        if *to_begin == 0 {
            self.by_work.remove(&(work, job));
        }
        Some((job, None))
    }

    fn ended(&mut self, job: usize, length: u64, _: u64) {
        let (work, _) = &mut self.left[job];
        let old = *work;
        *work -= length;
        if self.by_work.remove(&(old, job)) {
            self.by_work.insert((old - length, job));
        }
    }
}
