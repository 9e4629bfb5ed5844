//! Invariants of every mix of jobs, in every order, in virtual time: with heavy-tailed sizes, loads
//! from idle to overloaded, bounds, patience, and subtasks that wait in between.
//!
//! - A worker is idle only while nothing is offered to it.
//! - No more jobs are active than the bound allows.
//! - Spare workers go to the least requirement.
//! - A job with pending work gets a worker within a time that is known beforehand: none starves.
//! - The work is conserved: each subtask runs once, and the workers' time is the time of the
//!   subtasks.
//! - A recorded run replays, also from text, and gives the same schedule.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use keylane_allocate::{
    Claimant, End, Event, JobId, JobPolicy, JobScheduler, Record, Rule, Supply,
};
use proptest::prelude::*;

/// The longest subtask.
const LONGEST: u64 = 20;

#[derive(Clone, Debug)]
struct Arrival {
    after: u64,
    /// How long each subtask takes, and for how long it then waits before it runs again, if it
    /// does.
    subtasks: Vec<(u64, Option<u64>)>,
    weight: u32,
}

#[derive(Clone, Copy, Debug)]
struct Setting {
    workers: usize,
    order: JobPolicy,
    max_active: Option<usize>,
    patience: Option<u64>,
}

/// Bounded Pareto with shape 1: most jobs are small, and a few as large as all others together.
fn size() -> impl Strategy<Value = usize> {
    (0.01..1.0_f64).prop_map(|tail| (1.0 / tail).ceil() as usize)
}

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let subtask = || (1..=LONGEST, prop::option::weighted(0.1, 1..60_u64));
    let arrival = (prop_oneof![3 => 0..8_u64, 1 => 0..300_u64], size(), 1..4_u32).prop_flat_map(
        move |(after, size, weight)| {
            prop::collection::vec(subtask(), size).prop_map(move |subtasks| Arrival {
                after,
                subtasks,
                weight,
            })
        },
    );
    prop::collection::vec(arrival, 1..40)
}

fn settings() -> impl Strategy<Value = Setting> {
    let order =
        prop::sample::select(&[JobPolicy::Arrival, JobPolicy::Balanced, JobPolicy::Shortest][..]);
    let max_active = prop::option::weighted(0.3, 1..8_usize);
    let patience = prop::option::of(0..400_u64);
    (1..9_usize, order, max_active, patience).prop_map(|(workers, order, max_active, patience)| {
        Setting { workers, order, max_active, patience }
    })
}

/// Ends first, as the rules have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happens {
    End(JobId, usize),
    Ready(JobId, usize),
    Arrive(usize),
}

/// Data of a job beyond the scheduler's.
struct Plan {
    number: usize,
    arrival: u64,
    /// Subtasks that could start, the next last.
    ready: Vec<usize>,
    /// Since when it could have a worker and has none, how many decisions were made since then, and
    /// how many jobs there were at most: those that are over by now have had their turns too.
    waits: Option<(u64, u64, u64)>,
}

/// Starts: time, job and subtask.
type Starts = Vec<(u64, usize, usize)>;

struct Mix<'a> {
    setting: Setting,
    arrivals: &'a [Arrival],
    scheduler: JobScheduler,
    now: u64,
    events: BinaryHeap<Reverse<(u64, Happens)>>,
    plans: BTreeMap<JobId, Plan>,
    starts: Starts,
    /// The time that workers have spent.
    spent: u64,
    decisions: u64,
}

impl<'a> Mix<'a> {
    fn new(setting: Setting, arrivals: &'a [Arrival]) -> Self {
        let Setting { workers, order, max_active, patience } = setting;
        let mut scheduler =
            JobScheduler::new(workers).with_max_active(max_active).with_policy(order);
        if let Some(patience) = patience {
            scheduler = scheduler.with_patience(patience);
        }
        scheduler.record(100_000);
        let mut events = BinaryHeap::new();
        let mut time = 0;
        for (number, arrival) in arrivals.iter().enumerate() {
            time += arrival.after;
            events.push(Reverse((time, Happens::Arrive(number))));
        }
        let (plans, starts) = (BTreeMap::new(), Vec::new());
        Mix { setting, arrivals, scheduler, now: 0, events, plans, starts, spent: 0, decisions: 0 }
    }

    fn run(mut self) -> (JobScheduler, Starts) {
        while let Some(Reverse((now, what))) = self.events.pop() {
            self.now = now;
            match what {
                Happens::Arrive(number) => self.arrive(number),
                Happens::End(job, subtask) => self.end(job, subtask),
                Happens::Ready(job, subtask) => {
                    assert!(self.scheduler.ready(job, 1, now));
                    self.plans.get_mut(&job).unwrap().ready.insert(0, subtask);
                }
            }
            self.give_all();
            self.nobody_waits_too_long();
        }
        self.work_is_conserved();
        (self.scheduler, self.starts)
    }

    fn arrive(&mut self, number: usize) {
        let Arrival { subtasks, weight, .. } = &self.arrivals[number];
        let job = self.scheduler.submit(Supply::Ready(subtasks.len() as u64), *weight, self.now);
        let ready = (0..subtasks.len()).rev().collect();
        let plan = Plan { number, arrival: self.now, ready, waits: None };
        self.plans.insert(job, plan);
    }

    fn end(&mut self, job: JobId, subtask: usize) {
        let (length, waits) = self.arrivals[self.plans[&job].number].subtasks[subtask % 1_000_000];
        self.spent += length;
        let is_again = subtask >= 1_000_000;
        let end = if waits.is_some() && !is_again { End::Waits } else { End::Done };
        if end == End::Waits {
            let again = self.now + waits.unwrap();
            self.events.push(Reverse((again, Happens::Ready(job, subtask + 1_000_000))));
        }
        self.scheduler.ended(Claimant::Job(job), end, self.now);
    }

    fn give_all(&mut self) {
        loop {
            let candidates = self.candidates();
            let Some(decision) = self.scheduler.next(self.now) else { break };
            let Claimant::Job(job) = decision.to else { panic!("there is no loose work") };
            self.is_rightly_chosen(&candidates, job, decision.rule);
            self.decisions += 1;
            for plan in self.plans.values_mut() {
                plan.waits = plan.waits.map(|(since, passed, crowd)| (since, passed + 1, crowd));
            }
            let plan = self.plans.get_mut(&job).unwrap();
            plan.waits = None;
            let subtask = plan.ready.pop().expect("a job that was chosen has something ready");
            let (length, _) = self.arrivals[plan.number].subtasks[subtask % 1_000_000];
            self.events.push(Reverse((self.now + length, Happens::End(job, subtask))));
            self.starts.push((self.now, plan.number, subtask));
        }
        let idle = self.setting.workers - self.scheduler.busy();
        let offered = self.candidates();
        assert!(idle == 0 || offered.is_empty(), "{idle} idle beside {offered:?}");
        let bound = self.bound();
        assert!(self.scheduler.active() <= bound || self.waits_came_back(), "more than {bound}");
    }

    fn bound(&self) -> usize {
        let by_default = match self.setting.order {
            JobPolicy::Arrival => self.setting.workers,
            _ => usize::MAX,
        };
        self.setting.max_active.unwrap_or(by_default)
    }

    /// Jobs that were admitted and could do nothing do not count, and come back beside the others.
    fn waits_came_back(&self) -> bool {
        self.arrivals
            .iter()
            .any(|arrival| arrival.subtasks.iter().any(|(_, waits)| waits.is_some()))
    }

    /// Jobs that could get a worker, with their requirements.
    fn candidates(&self) -> Vec<(JobId, u64, bool)> {
        let may_admit = self.scheduler.active() < self.bound();
        let jobs = self.plans.keys().filter_map(|&job| Some((job, self.scheduler.progress(job)?)));
        jobs.filter(|(_, progress)| progress.ready > 0 && (progress.admitted || may_admit))
            .map(|(job, progress)| (job, progress.requirement().unwrap(), progress.running > 0))
            .collect()
    }

    fn is_rightly_chosen(&self, candidates: &[(JobId, u64, bool)], job: JobId, rule: Rule) {
        let &(_, needs, has_worker) =
            candidates.iter().find(|(id, ..)| *id == job).expect("offered");
        let weight = |job| u64::from(self.arrivals[self.plans[&job].number].weight);
        if rule == Rule::Least {
            // Spare workers: no other candidate needs less for its weight. By arrival, jobs that
            // are not admitted are for rule 2.
            let by_arrival = self.setting.order == JobPolicy::Arrival;
            for &(other, others, _) in candidates {
                let counts = !by_arrival || self.scheduler.progress(other).unwrap().admitted;
                let less = others * weight(job) < needs * weight(other);
                assert!(!(counts && less), "{job} needs more than {other}");
            }
        }
        if rule == Rule::Keep {
            assert!(!has_worker, "{job} has a worker");
        }
    }

    /// Bounds on the time for which a candidate goes without a worker: in decisions for the orders
    /// by length, in time where there is a patience or each active job keeps a worker.
    fn nobody_waits_too_long(&mut self) {
        let candidates = self.candidates();
        let could: Vec<JobId> =
            candidates.iter().filter(|(.., has)| !has).map(|(job, ..)| *job).collect();
        let jobs = self.plans.len() as u64;
        for (&job, plan) in &mut self.plans {
            let (since, passed, crowd) = plan.waits.unwrap_or((self.now, 0, 0));
            let crowd = crowd.max(jobs);
            plan.waits = could.contains(&job).then_some((since, passed, crowd));
            if plan.waits.is_none() {
                continue;
            }
            if self.setting.order != JobPolicy::Arrival {
                let most = u64::from(JobPolicy::TURN) * (crowd + 1);
                assert!(passed <= most, "{job} was passed over {passed} times");
            }
            // An aged job is next; so may others be, and each worker is busy for at most the
            // longest subtask. By length, jobs that have not been admitted wait for their turn,
            // which is counted in decisions.
            if let Some(patience) = self.setting.patience
                && self.setting.max_active.is_none()
                && self.setting.order == JobPolicy::Arrival
            {
                let most = patience + LONGEST * (1 + crowd);
                let waited = self.now - since;
                assert!(waited <= most, "{job} waited {waited}, from {}", plan.arrival);
            }
        }
    }

    fn work_is_conserved(&self) {
        assert_eq!(self.scheduler.unfinished(), 0, "somebody starved");
        let runs = |waits: &Option<u64>| if waits.is_some() { 2 } else { 1 };
        let subtasks = self.arrivals.iter().flat_map(|arrival| &arrival.subtasks);
        let work: u64 = subtasks.clone().map(|(length, waits)| length * runs(waits)).sum();
        assert_eq!(self.spent, work);
        let mut begun: Vec<_> =
            self.starts.iter().map(|(_, job, subtask)| (*job, *subtask)).collect();
        begun.sort_unstable();
        begun.dedup();
        assert_eq!(begun.len(), self.starts.len(), "each once");
        let runs: u64 = subtasks.map(|(_, waits)| runs(waits)).sum();
        assert_eq!(runs, self.starts.len() as u64);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn on_every_mix_the_rules_keep_what_they_promise(setting in settings(), arrivals in arrivals()) {
        let (scheduler, starts) = Mix::new(setting, &arrivals).run();
        // The same again, and from the record of it.
        let record = scheduler.recorded().unwrap();
        record.replay().unwrap();
        let (_, again) = Mix::new(setting, &arrivals).run();
        prop_assert_eq!(&starts, &again);
        let read: Record = record.to_string().parse().unwrap();
        read.replay().unwrap();
        let recorded = read.entries().filter_map(|entry| match entry.event {
            Event::Decided(decision) => match decision.to {
                Claimant::Job(job) => Some((entry.at, job.serial() as usize)),
                Claimant::Loose => None,
            },
            _ => None,
        });
        let began: Vec<_> = starts.iter().map(|(at, job, _)| (*at, *job)).collect();
        prop_assert_eq!(recorded.collect::<Vec<_>>(), began, "the record has the same schedule");
    }
}
