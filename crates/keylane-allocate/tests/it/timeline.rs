//! The article's example, event by event, and the places where the article is wrong about it, each
//! by its name. The timeline and the defects are in the README.

use std::collections::BTreeSet;

use keylane_allocate::{Claimant, Decision, End, JobId, JobScheduler, Rule, Supply, Take};

const MINUTE: u64 = 60;

/// A worker begins a subtask.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Start {
    at: u64,
    worker: usize,
    /// Which job, in the order of submission.
    job: usize,
    /// Which subtask of the job, from 1 on.
    subtask: u64,
    rule: Rule,
}

/// Jobs of one-minute subtasks on some workers, in virtual time.
struct Shift {
    scheduler: JobScheduler,
    now: u64,
    jobs: Vec<JobId>,
    subtasks: Vec<u64>,
    finished: Vec<Option<u64>>,
    idle: BTreeSet<usize>,
    /// When each running subtask ends, in the order in which they began.
    running: Vec<(u64, usize, usize)>,
    starts: Vec<Start>,
}

impl Shift {
    fn new(workers: usize) -> Self {
        let mut scheduler = JobScheduler::new(workers);
        scheduler.record(1000);
        Shift {
            scheduler,
            now: 0,
            jobs: Vec::new(),
            subtasks: Vec::new(),
            finished: Vec::new(),
            idle: (0..workers).collect(),
            running: Vec::new(),
            starts: Vec::new(),
        }
    }

    /// Ends what ends until then; what ends at that very time ends before anything can arrive.
    fn run_until(&mut self, time: u64) {
        while let Some(next) = self.running.iter().map(|(end, ..)| *end).min() {
            if next > time {
                break;
            }
            self.now = next;
            let first = self.running.iter().position(|(end, ..)| *end == next).unwrap();
            let (_, worker, job) = self.running.remove(first);
            if self.scheduler.ended(Claimant::Job(self.jobs[job]), End::Done, self.now) {
                self.finished[job] = Some(self.now);
            }
            self.idle.insert(worker);
            self.assign();
        }
        self.now = time;
    }

    fn submit(&mut self, subtasks: u64) -> usize {
        self.jobs.push(self.scheduler.submit(Supply::Ready(subtasks), 1, self.now));
        self.subtasks.push(0);
        self.finished.push(None);
        self.assign();
        self.jobs.len() - 1
    }

    fn assign(&mut self) {
        while let Some(Decision { to, rule, .. }) = self.scheduler.next(self.now) {
            let job = self.jobs.iter().position(|id| to == Claimant::Job(*id)).unwrap();
            let worker = self.idle.pop_first().expect("only free workers are given");
            self.subtasks[job] += 1;
            let subtask = self.subtasks[job];
            self.starts.push(Start { at: self.now, worker, job, subtask, rule });
            self.running.push((self.now + MINUTE, worker, job));
        }
    }

    /// What began at a time: `A9` is the ninth subtask of the first job.
    fn began(&self, at: u64) -> Vec<String> {
        let name = |s: &Start| format!("{}{}", char::from(b'A' + s.job as u8), s.subtask);
        self.starts.iter().filter(|start| start.at == at).map(name).collect()
    }

    fn rules(&self, at: u64) -> Vec<Rule> {
        self.starts.iter().filter(|start| start.at == at).map(|start| start.rule).collect()
    }
}

/// The article's example with four subtasks in the second job, as its problem statement has it.
fn the_example() -> Shift {
    let mut shift = Shift::new(4);
    shift.submit(20);
    shift.run_until(2 * MINUTE + 1);
    shift.submit(4);
    shift.run_until(10 * MINUTE);
    shift
}

#[test]
fn the_timeline() {
    let shift = the_example();
    let timeline: [(u64, &[&str], &[Rule]); 6] = [
        (0, &["A1", "A2", "A3", "A4"], &[Rule::Admit, Rule::Least, Rule::Least, Rule::Least]),
        (1, &["A5", "A6", "A7", "A8"], &[Rule::Least; 4]),
        (2, &["A9", "A10", "A11", "A12"], &[Rule::Least; 4]),
        (3, &["B1", "B2", "B3", "A13"], &[Rule::Admit, Rule::Least, Rule::Least, Rule::Keep]),
        (4, &["B4", "A14", "A15", "A16"], &[Rule::Least, Rule::Least, Rule::Least, Rule::Least]),
        (5, &["A17", "A18", "A19", "A20"], &[Rule::Least; 4]),
    ];
    for (minute, began, rules) in timeline {
        assert_eq!(shift.began(minute * MINUTE), began, "at {minute}:00");
        assert_eq!(shift.rules(minute * MINUTE), rules, "at {minute}:00");
    }
    assert_eq!(shift.finished, [Some(6 * MINUTE), Some(5 * MINUTE)]);
    assert_eq!(shift.starts.len(), 24, "nothing began at any other time");
    let workers: Vec<_> = shift.starts[12..16].iter().map(|start| start.worker).collect();
    assert_eq!(workers, [0, 1, 2, 3], "each takes over the worker that was just freed");
}

#[test]
fn the_record_of_the_timeline_replays() {
    let shift = the_example();
    let record = shift.scheduler.recorded().unwrap();
    assert_eq!(record.dropped(), 0);
    assert_eq!(record.entries().count(), 2 + 24 + 24, "jobs, decisions, ends");
    record.replay().unwrap();
}

/// 2a: the article says four subtasks, then a requirement of two, then puts three workers on it.
/// Two subtasks never have three workers.
#[test]
fn defect_2a_a_job_never_has_more_workers_than_subtasks() {
    let mut shift = Shift::new(4);
    shift.submit(20);
    shift.run_until(2 * MINUTE + 1);
    shift.submit(2);
    shift.run_until(10 * MINUTE);
    assert_eq!(shift.began(3 * MINUTE), ["B1", "B2", "A13", "A14"]);
    assert_eq!(shift.finished, [Some(6 * MINUTE), Some(4 * MINUTE)]);
}

/// 2b and 2c: "the third minute" is 2:01, and the wait that the article calls ten minutes would be
/// 2:59 with subtasks that are all queued at once. By the rules it is 59 seconds.
#[test]
fn defects_2b_and_2c_the_second_job_waits_for_one_subtask_and_no_longer() {
    let shift = the_example();
    let first = shift.starts.iter().find(|start| start.job == 1).unwrap();
    assert_eq!(first.at - (2 * MINUTE + 1), 59);
}

/// 2e: rule 4 gives the smallest job *all* that is left, also when that is more than it has
/// subtasks. The rest must go to the next.
#[test]
fn defect_2e_what_the_smallest_has_no_use_for_spills_over() {
    let mut scheduler = JobScheduler::new(8);
    let large = scheduler.submit(Supply::Ready(50), 1, 0);
    let small = scheduler.submit(Supply::Ready(3), 1, 0);
    let middle = scheduler.submit(Supply::Ready(4), 1, 0);
    let given: Vec<_> = std::iter::from_fn(|| scheduler.next(0)).map(|d| d.to).collect();
    let [large, small, middle] = [large, small, middle].map(Claimant::Job);
    assert_eq!(given, [large, small, middle, small, small, middle, middle, middle]);
}

/// 2f: with as many long jobs as workers, the next waits for a whole job. That is rule 2, and what
/// its bound is for; a larger bound lets it begin, and then all take turns.
#[test]
fn defect_2f_the_job_beyond_the_bound_waits_and_a_larger_bound_lets_it_begin() {
    let mut shift = Shift::new(2);
    shift.submit(100);
    shift.submit(100);
    let late = shift.submit(2);
    shift.run_until(9 * MINUTE);
    assert!(shift.starts.iter().all(|start| start.job != late));
    assert_eq!(shift.scheduler.active(), 2);
    shift.scheduler.set_max_active(Some(3), shift.now);
    shift.run_until(20 * MINUTE);
    assert_eq!(shift.began(10 * MINUTE), ["C1", "B10"]);
    assert_eq!(shift.began(11 * MINUTE), ["A12", "C2"]);
    assert_eq!(shift.began(12 * MINUTE), ["B11", "A13"]);
    assert_eq!(shift.finished[late], Some(12 * MINUTE));
}

/// 2g: waiting jobs are served first come, first served; of two with the same requirement the older
/// is first.
#[test]
fn defect_2g_the_line_is_first_come_first_served_and_the_older_wins_ties() {
    let mut scheduler = JobScheduler::new(1).with_max_active(3);
    let jobs: Vec<_> = [5, 2, 1].map(|n| scheduler.submit(Supply::Ready(n), 1, 0)).into();
    for job in &jobs {
        let decision = scheduler.next(0).unwrap();
        assert_eq!((decision.to, decision.rule), (Claimant::Job(*job), Rule::Admit));
        scheduler.pause(*job, 0); // so that rule 1 has no job to keep
        scheduler.ended(decision.to, End::Done, 0);
    }

    let mut scheduler = JobScheduler::new(6);
    let older = scheduler.submit(Supply::Ready(9), 1, 0);
    let younger = scheduler.submit(Supply::Ready(9), 1, 0);
    let given: Vec<_> = std::iter::from_fn(|| scheduler.next(0)).map(|d| d.to).collect();
    let [older, younger] = [older, younger].map(Claimant::Job);
    assert_eq!(given, [older, younger, older, older, older, older]);
}

/// 2h: nothing is taken away, and an end goes before an arrival at the same time. So a job that
/// comes just when a wave of subtasks has begun waits for all of it, as it would have without the
/// rules.
#[test]
fn defect_2h_an_arrival_just_after_a_wave_waits_for_the_wave() {
    let mut shift = Shift::new(4);
    shift.submit(20);
    shift.run_until(3 * MINUTE);
    shift.submit(4);
    shift.run_until(10 * MINUTE);
    assert_eq!(shift.began(3 * MINUTE), ["A13", "A14", "A15", "A16"]);
    assert_eq!(shift.began(4 * MINUTE), ["B1", "B2", "B3", "A17"]);
    assert_eq!(shift.finished[1], Some(6 * MINUTE));
}

/// The article's requirement counts running subtasks, and so cannot tell which could begin.
#[test]
fn what_runs_counts_for_the_requirement_and_not_for_what_is_offered() {
    let mut scheduler = JobScheduler::new(4);
    let job = scheduler.submit(Supply::Ready(3), 1, 0);
    assert!((0..3).all(|_| scheduler.next(0).is_some()));
    let progress = scheduler.progress(job).unwrap();
    assert_eq!((progress.requirement(), progress.ready), (Some(3), 0));
    assert_eq!(scheduler.next(0), None, "a worker is free, and nobody offers anything");
}

#[test]
fn a_job_without_subtasks_is_over_at_once() {
    let mut scheduler = JobScheduler::new(1);
    let empty = scheduler.submit(Supply::Ready(0), 1, 0);
    assert_eq!(scheduler.progress(empty), None);
    assert_eq!((scheduler.next(0), scheduler.unfinished()), (None, 0));
    assert!(!scheduler.cancel(empty, 0));
    // A splitter is known to be empty only after a call.
    let silent = scheduler.submit(Supply::Split { expected: Some(0) }, 1, 0);
    assert_eq!(scheduler.next(0).unwrap().take, Take::Split);
    assert!(scheduler.ended(Claimant::Job(silent), End::Nothing, 0));
}
