//! The four rules against a slow obvious reference, under random programs: arrivals, ends of every
//! kind, keys that hold subtasks back, pauses, cancels, weights, loose work, other sizes and
//! bounds.
//!
//! After each step both must give the same decision, with the same rule; the invariants are checked
//! in addition, since the reference could share a mistake with the scheduler. At the end everything
//! is released, and every job must finish.

use keylane_allocate::{
    Claimant, Decision, End, JobId, JobPolicy, JobScheduler, Rule, Supply, Take,
};
use proptest::prelude::*;

/// A job as the rules' text sees it. Nothing is kept that could be counted.
#[derive(Clone, Debug)]
struct Job {
    id: JobId,
    arrival: u64,
    weight: u32,
    ready: u64,
    waiting: u64,
    running: u64,
    /// Subtasks that have ended.
    ended: u64,
    /// `None`: it has no splitter, or its splitter has no more.
    splitter: Option<Option<u64>>,
    held: bool,
    paused: bool,
    cancelled: bool,
    admitted: bool,
    /// The step at which it last came to offer something without having a worker.
    needy_since: u64,
    /// And the time.
    needy_time: u64,
    /// The time at which it last came to offer something with at most one worker, or was given one
    /// for having waited so long.
    held_down_since: u64,
    was_needy: bool,
    was_held_down: bool,
}

impl Job {
    fn offers(&self) -> bool {
        !self.paused && (self.ready > 0 || (self.splitter.is_some() && !self.held))
    }

    fn is_active(&self) -> bool {
        self.admitted && (self.running > 0 || self.offers())
    }

    fn is_over(&self) -> bool {
        self.splitter.is_none() && self.ready + self.waiting + self.running == 0
    }

    fn requirement(&self) -> Option<u64> {
        let to_come = self.splitter.map_or(Some(0), |expected| expected)?;
        Some(to_come + self.ready + self.waiting + self.running)
    }

    /// Whether this one gets spare workers before the other, age aside.
    fn needs_less_than(&self, other: &Job) -> bool {
        match (self.requirement(), other.requirement()) {
            (Some(mine), Some(others)) => {
                mine * u64::from(other.weight) < others * u64::from(self.weight)
            }
            (mine, others) if mine.is_some() != others.is_some() => mine.is_some(),
            // How much both have had, for their weight.
            _ => {
                let (mine, others) = (self.ended + self.running, other.ended + other.running);
                mine * u64::from(other.weight) < others * u64::from(self.weight)
            }
        }
    }
}

#[derive(Debug)]
struct Reference {
    workers: usize,
    max_active: Option<usize>,
    patience: Option<u64>,
    order: JobPolicy,
    now: u64,
    step: u64,
    /// By age.
    jobs: Vec<Job>,
    loose_ready: bool,
    loose_running: u64,
    loose_needy_since: u64,
    loose_was_needy: bool,
    loose_had_its_turn: bool,
    line_had_its_turn: bool,
    loose_was_last: bool,
    /// Number of times that a waiting job was passed over.
    passed_over: u32,
}

impl Reference {
    fn job(&mut self, id: JobId) -> &mut Job {
        self.jobs.iter_mut().find(|job| job.id == id).unwrap()
    }

    fn busy(&self) -> u64 {
        self.jobs.iter().map(|job| job.running).sum::<u64>() + self.loose_running
    }

    fn active(&self) -> usize {
        self.jobs.iter().filter(|job| job.is_active()).count()
    }

    /// Updates the state after every event: finished jobs leave, and jobs that came to need a
    /// worker need it from now on.
    fn settle(&mut self) {
        self.step += 1;
        self.jobs.retain(|job| !job.is_over());
        for job in &mut self.jobs {
            let claims = job.admitted && job.offers();
            let is_needy = claims && job.running == 0;
            if is_needy && !job.was_needy {
                (job.needy_since, job.needy_time) = (self.step, self.now);
            }
            let is_held_down = claims && job.running <= 1;
            if is_held_down && !job.was_held_down {
                job.held_down_since = self.now;
            }
            (job.was_needy, job.was_held_down) = (is_needy, is_held_down);
        }
        let is_needy = self.loose_ready && self.loose_running == 0;
        if is_needy && !self.loose_was_needy {
            self.loose_needy_since = self.step;
        }
        self.loose_was_needy = is_needy;
    }

    fn decide(&mut self) -> Option<(Option<JobId>, Rule)> {
        if self.busy() >= self.workers as u64 {
            return None;
        }
        if self.order != JobPolicy::Arrival {
            return self.decide_by_length();
        }
        let line = self.jobs.iter().find(|job| !job.admitted && job.offers()).map(|job| job.id);
        let bound = self.bound();
        let line = line.filter(|_| self.active() < bound);
        let loose = usize::from(self.loose_ready || self.loose_running > 0);
        let is_beyond = self.active() + loose >= self.workers;
        if is_beyond && line.is_some() && !self.line_had_its_turn {
            return Some((line, Rule::Admit));
        }
        let needy = self.jobs.iter().filter(|job| job.was_needy);
        let mut needy: Vec<_> = needy.map(|job| (job.needy_since, Some(job.id))).collect();
        if self.loose_was_needy {
            needy.push((self.loose_needy_since, None));
        }
        if let Some((_, who)) = needy.iter().min() {
            return Some((*who, Rule::Keep));
        }
        if let Some(job) = self.aged() {
            return Some((Some(job), Rule::Aged));
        }
        match (line, self.loose_ready) {
            (Some(job), false) => return Some((Some(job), Rule::Admit)),
            (Some(job), true) if self.loose_had_its_turn => return Some((Some(job), Rule::Admit)),
            (_, true) => return Some((None, Rule::Admit)),
            (None, false) => {}
        }
        let best = shortest(self.jobs.iter().filter(|job| job.admitted && job.offers()))?;
        Some((Some(best.id), Rule::Least))
    }

    fn bound(&self) -> usize {
        self.max_active.unwrap_or(if self.order == JobPolicy::Arrival {
            self.workers
        } else {
            1000
        })
    }

    fn aged(&self) -> Option<JobId> {
        let patience = self.patience?;
        let held_down = self.jobs.iter().filter(|job| job.was_held_down);
        let oldest = held_down.min_by_key(|job| job.held_down_since)?;
        (self.now - oldest.held_down_since >= patience).then_some(oldest.id)
    }

    /// Jobs that could get a worker, by age.
    fn candidates(&self) -> Vec<&Job> {
        let may_admit = self.active() < self.bound();
        self.jobs.iter().filter(|job| job.offers() && (job.admitted || may_admit)).collect()
    }

    /// Returns the candidate without a worker that has waited longest.
    fn longest_waiting(&self) -> Option<&Job> {
        let waits = self.candidates().into_iter().filter(|job| job.running == 0);
        waits.min_by_key(|job| match job.admitted {
            true => (job.needy_time, false, job.needy_since),
            false => (job.arrival, true, job.id.serial()),
        })
    }

    fn decide_by_length(&self) -> Option<(Option<JobId>, Rule)> {
        let job = self.decide_among_jobs();
        if !self.loose_ready {
            return job.map(|(job, rule)| (Some(job.id), rule));
        }
        if let Some((job, rule)) = job {
            let job_needs = job.running == 0 || rule == Rule::Aged;
            // A job and the loose work that both need a worker take turns.
            if job_needs && (!self.loose_was_needy || self.loose_was_last) {
                return Some((Some(job.id), rule));
            }
        }
        Some((None, if self.loose_was_needy { Rule::Keep } else { Rule::Admit }))
    }

    /// An aged job, else the job whose turn it is, else the first place without a worker, else the
    /// first job.
    fn decide_among_jobs(&self) -> Option<(&Job, Rule)> {
        if let Some(id) = self.aged() {
            return self.jobs.iter().find(|job| job.id == id).map(|job| (job, Rule::Aged));
        }
        let mut candidates = self.candidates();
        let is_aged =
            |job: &&&Job| self.patience.is_some_and(|most| self.now - job.arrival >= most);
        let oldest = candidates.iter().find(|job| !job.admitted).filter(is_aged);
        if let Some(job) = oldest {
            return Some((job, Rule::Admit));
        }
        if self.passed_over >= JobPolicy::TURN - 1
            && let Some(job) = self.longest_waiting()
        {
            return Some((job, if job.admitted { Rule::Aged } else { Rule::Admit }));
        }
        // Stable: of equals the older stays first.
        let by_need = |one: &&Job, other: &&Job| {
            let less = one.needs_less_than(other);
            let more = other.needs_less_than(one);
            more.cmp(&less)
        };
        candidates.sort_by(by_need);
        let places = if self.order == JobPolicy::Balanced && self.workers >= 6 { 2 } else { 1 };
        let first = candidates.first()?;
        let second = candidates.iter().take(places).skip(1).find(|job| job.running == 0);
        let (job, rule) = match second {
            Some(second) if first.running > 0 => (second, Rule::Keep),
            _ => (first, Rule::Least),
        };
        Some((job, if job.admitted { rule } else { Rule::Admit }))
    }

    fn give(&mut self, who: Option<JobId>, rule: Rule) -> Take {
        let waits = self.longest_waiting().map(|job| job.id);
        let is_passed_over = waits.is_some() && waits != who && self.order != JobPolicy::Arrival;
        self.passed_over = if is_passed_over { self.passed_over + 1 } else { 0 };
        self.loose_was_last = who.is_none();
        self.line_had_its_turn = rule == Rule::Admit && who.is_some();
        if rule == Rule::Admit {
            self.loose_had_its_turn = who.is_none();
        }
        let Some(id) = who else {
            self.loose_running += 1;
            return Take::Ready;
        };
        let now = self.now;
        let job = self.job(id);
        if rule == Rule::Aged {
            job.held_down_since = now;
        }
        job.admitted = true;
        job.running += 1;
        if job.ready > 0 {
            job.ready -= 1;
            return Take::Ready;
        }
        if let Some(Some(expected)) = &mut job.splitter {
            *expected = expected.saturating_sub(1);
        }
        Take::Split
    }
}

/// The one that needs least, and of equals the older, which comes first.
fn shortest<'a>(jobs: impl Iterator<Item = &'a Job>) -> Option<&'a Job> {
    jobs.reduce(|best, job| if job.needs_less_than(best) { job } else { best })
}

/// A program's step. Numbers choose among what there is at that point.
#[derive(Clone, Debug)]
enum Step {
    Submit {
        supply: Supply,
        weight: u32,
    },
    /// A worker ends, in one of several ways.
    End {
        which: usize,
        how: u8,
    },
    Ready {
        which: usize,
    },
    /// One that could have started waits again.
    Unready {
        which: usize,
    },
    /// A worker ends, and takes a ready subtask by itself.
    TakeReady {
        ends: usize,
        which: usize,
    },
    /// More subtasks come from outside.
    Come {
        which: usize,
        ready: u64,
        waiting: u64,
    },
    Settle {
        which: usize,
        failed: bool,
    },
    HoldSplitter {
        which: usize,
        held: bool,
    },
    Pause {
        which: usize,
        paused: bool,
    },
    Cancel {
        which: usize,
    },
    Weigh {
        which: usize,
        weight: u32,
    },
    RanMore {
        which: usize,
        count: u64,
    },
    Loose {
        ready: bool,
    },
    Resize {
        workers: usize,
    },
    Bound {
        most: Option<usize>,
    },
    /// Time passes.
    Pass {
        time: u64,
    },
    /// Small jobs, one after the other, each followed by the end of a worker.
    Flood {
        jobs: u32,
    },
}

fn steps() -> impl Strategy<Value = Step> {
    let supply = prop_oneof![
        3 => (0..12_u64).prop_map(Supply::Ready),
        2 => prop::option::of(0..8_u64).prop_map(|expected| Supply::Split { expected }),
        2 => (0..6_u64, 0..6_u64).prop_map(|(ready, waiting)| Supply::Lined { ready, waiting }),
    ];
    let which = || 0..64_usize;
    prop_oneof![
        5 => (supply, 0..4_u32).prop_map(|(supply, weight)| Step::Submit { supply, weight }),
        12 => (which(), 0..12_u8).prop_map(|(which, how)| Step::End { which, how }),
        3 => which().prop_map(|which| Step::Ready { which }),
        1 => which().prop_map(|which| Step::Unready { which }),
        2 => (which(), which()).prop_map(|(ends, which)| Step::TakeReady { ends, which }),
        2 => (which(), 0..4_u64, 0..4_u64)
            .prop_map(|(which, ready, waiting)| Step::Come { which, ready, waiting }),
        2 => (which(), any::<bool>()).prop_map(|(which, failed)| Step::Settle { which, failed }),
        1 => (which(), any::<bool>()).prop_map(|(which, held)| Step::HoldSplitter { which, held }),
        1 => (which(), any::<bool>()).prop_map(|(which, paused)| Step::Pause { which, paused }),
        1 => which().prop_map(|which| Step::Cancel { which }),
        1 => (which(), 0..4_u32).prop_map(|(which, weight)| Step::Weigh { which, weight }),
        1 => (which(), 1..4_u64).prop_map(|(which, count)| Step::RanMore { which, count }),
        2 => any::<bool>().prop_map(|ready| Step::Loose { ready }),
        1 => (0..9_usize).prop_map(|workers| Step::Resize { workers }),
        1 => prop::option::of(1..7_usize).prop_map(|most| Step::Bound { most }),
        3 => (0..30_u64).prop_map(|time| Step::Pass { time }),
        1 => (50..2 * JobPolicy::TURN).prop_map(|jobs| Step::Flood { jobs }),
    ]
}

/// Both machines, and the workers that are out.
struct Pair {
    scheduler: JobScheduler,
    reference: Reference,
    out: Vec<Claimant>,
}

impl Pair {
    fn new(
        workers: usize,
        max_active: Option<usize>,
        patience: Option<u64>,
        order: JobPolicy,
    ) -> Self {
        let mut scheduler = JobScheduler::new(workers).with_max_active(max_active);
        if let Some(patience) = patience {
            scheduler = scheduler.with_patience(patience);
        }
        scheduler = scheduler.with_policy(order);
        scheduler.record(40);
        let reference = Reference {
            workers,
            max_active,
            patience,
            order,
            now: 0,
            step: 0,
            jobs: Vec::new(),
            loose_ready: false,
            loose_running: 0,
            loose_needy_since: 0,
            loose_was_needy: false,
            loose_had_its_turn: false,
            line_had_its_turn: false,
            loose_was_last: false,
            passed_over: 0,
        };
        Pair { scheduler, reference, out: Vec::new() }
    }

    /// The job that a step is about: any that is not over.
    fn pick(&self, which: usize) -> Option<JobId> {
        let jobs = &self.reference.jobs;
        (!jobs.is_empty()).then(|| jobs[which % jobs.len()].id)
    }

    fn apply(&mut self, step: &Step) {
        let now = self.reference.now;
        match *step {
            Step::Submit { supply, weight } => self.submit(supply, weight),
            Step::End { which, how } if !self.out.is_empty() => {
                let who = self.out.swap_remove(which % self.out.len());
                self.end(who, how);
            }
            Step::Ready { which } => {
                let Some(id) = self.pick(which) else { return };
                let job = self.reference.job(id);
                if job.waiting > 0 {
                    job.waiting -= 1;
                    job.ready += 1;
                    assert!(self.scheduler.ready(id, 1, now));
                }
            }
            Step::Unready { which } => {
                let Some(id) = self.pick(which) else { return };
                let job = self.reference.job(id);
                if job.ready > 0 {
                    job.ready -= 1;
                    job.waiting += 1;
                    assert!(self.scheduler.unready(id, 1, now));
                }
            }
            Step::TakeReady { ends, which } => {
                if !self.out.is_empty() {
                    let who = self.out.swap_remove(ends % self.out.len());
                    self.end(who, 6);
                    self.reference.settle();
                }
                let Some(id) = self.pick(which) else { return };
                let is_free = self.reference.busy() < self.reference.workers as u64;
                let job = self.reference.job(id);
                let takes = is_free && job.admitted && !job.paused && job.ready > 0;
                if takes {
                    job.ready -= 1;
                    job.running += 1;
                    self.out.push(Claimant::Job(id));
                }
                assert_eq!(self.scheduler.take_ready(id, now), takes);
            }
            Step::Come { which, ready, waiting } => {
                let Some(id) = self.pick(which) else { return };
                let job = self.reference.job(id);
                let is_live = !job.cancelled;
                if is_live {
                    job.ready += ready;
                    job.waiting += waiting;
                    if let Some(Some(expected)) = &mut job.splitter {
                        *expected = expected.saturating_sub(ready + waiting);
                    }
                }
                assert_eq!(self.scheduler.came(id, ready, waiting, now), is_live);
            }
            Step::Settle { which, failed } => {
                let Some(id) = self.pick(which) else { return };
                let job = self.reference.job(id);
                if job.waiting > 0 {
                    job.waiting -= 1;
                    job.ended += 1;
                    assert!(self.scheduler.settled(id, failed, now));
                }
            }
            Step::HoldSplitter { which, held } => {
                let Some(id) = self.pick(which) else { return };
                let job = self.reference.job(id);
                let is_live = !job.cancelled;
                job.held = held && is_live || job.held && !is_live;
                assert_eq!(self.scheduler.hold_splitter(id, held, now), is_live);
            }
            Step::Pause { which, paused } => {
                let Some(id) = self.pick(which) else { return };
                let job = self.reference.job(id);
                let is_live = !job.cancelled;
                if is_live {
                    job.paused = paused;
                }
                let was_live = match paused {
                    true => self.scheduler.pause(id, now),
                    false => self.scheduler.resume(id, now),
                };
                assert_eq!(was_live, is_live);
            }
            Step::Cancel { which } => {
                let Some(id) = self.pick(which) else { return };
                let job = self.reference.job(id);
                let is_live = !job.cancelled;
                (job.cancelled, job.ready, job.waiting, job.splitter) = (true, 0, 0, None);
                assert_eq!(self.scheduler.cancel(id, now), is_live);
            }
            Step::Weigh { which, weight } => {
                let Some(id) = self.pick(which) else { return };
                let job = self.reference.job(id);
                if !job.cancelled {
                    job.weight = weight.max(1);
                }
                self.scheduler.set_weight(id, weight, now);
            }
            Step::RanMore { which, count } => {
                let Some(id) = self.pick(which) else { return };
                let job = self.reference.job(id);
                if job.running == 0 {
                    return;
                }
                if job.ready >= count {
                    job.ready -= count;
                    job.ended += count;
                    self.scheduler.ran_more(id, Take::Ready, count, 0, now);
                } else if let Some(expected) = &mut job.splitter {
                    job.ended += count;
                    *expected = expected.map(|expected| expected.saturating_sub(count));
                    self.scheduler.ran_more(id, Take::Split, count - 1, 1, now);
                }
            }
            Step::Loose { ready } => {
                self.reference.loose_ready = ready;
                self.scheduler.loose_ready(ready, now);
            }
            Step::Resize { workers } => {
                self.reference.workers = workers;
                self.scheduler.resize(workers, now);
            }
            Step::Bound { most } => {
                self.reference.max_active = most;
                self.scheduler.set_max_active(most, now);
            }
            Step::Pass { time } => self.reference.now += time,
            Step::Flood { jobs } => (0..jobs).for_each(|_| self.flood()),
            Step::End { .. } => {}
        }
        self.reference.settle();
    }

    fn flood(&mut self) {
        self.apply(&Step::Submit { supply: Supply::Ready(1), weight: 1 });
        self.give_all();
        self.apply(&Step::End { which: 0, how: 6 });
        self.give_all();
    }

    fn submit(&mut self, supply: Supply, weight: u32) {
        let id = self.scheduler.submit(supply, weight, self.reference.now);
        let (ready, waiting, splitter) = match supply {
            Supply::Ready(count) => (count, 0, None),
            Supply::Lined { ready, waiting } => (ready, waiting, None),
            Supply::Split { expected } => (0, 0, Some(expected)),
        };
        self.reference.jobs.push(Job {
            id,
            arrival: self.reference.now,
            weight: weight.max(1),
            ready,
            waiting,
            running: 0,
            splitter,
            held: false,
            paused: false,
            cancelled: false,
            admitted: false,
            ended: 0,
            needy_since: 0,
            needy_time: 0,
            held_down_since: 0,
            was_needy: false,
            was_held_down: false,
        });
    }

    fn end(&mut self, who: Claimant, how: u8) {
        let end = match how {
            0 => End::Failed,
            1..4 => End::Waits,
            4..6 => End::Nothing,
            _ => End::Done,
        };
        match who {
            Claimant::Loose => {
                self.reference.loose_running -= 1;
                if end == End::Nothing {
                    self.reference.loose_ready = false;
                }
            }
            Claimant::Job(id) => {
                let job = self.reference.job(id);
                job.running -= 1;
                match end {
                    End::Waits if !job.cancelled => job.waiting += 1,
                    End::Nothing => job.splitter = None,
                    End::Done | End::Failed => job.ended += 1,
                    End::Waits => {}
                }
            }
        }
        let was_last = self.scheduler.ended(who, end, self.reference.now);
        let is_over = |id| self.reference.jobs.iter().any(|job| job.id == id && job.is_over());
        assert_eq!(was_last, matches!(who, Claimant::Job(id) if is_over(id)));
    }

    /// Gives all the free workers that there is a use for, and checks each decision.
    fn give_all(&mut self) {
        loop {
            let expected = self.reference.decide();
            let expected = expected.map(|(who, rule)| {
                self.check_invariants(who, rule);
                let take = self.reference.give(who, rule);
                let to = who.map_or(Claimant::Loose, Claimant::Job);
                Decision { to, rule, take }
            });
            let named = self.scheduler.peek(self.reference.now);
            let decision = self.scheduler.next(self.reference.now);
            assert_eq!(decision, expected, "{:#?}", self.reference);
            assert_eq!(named, decision.map(|decision| decision.to));
            let Some(decision) = decision else { break };
            self.out.push(decision.to);
            self.reference.settle();
        }
        self.check_rest();
    }

    /// Checks the rules' promises for one decision, stated differently from the reference.
    fn check_invariants(&self, who: Option<JobId>, rule: Rule) {
        let jobs = &self.reference.jobs;
        let chosen = who.map(|id| jobs.iter().find(|job| job.id == id).unwrap());
        let (bound, workers) = (self.reference.bound(), self.reference.workers);
        // In the other orders rule 1 is for the jobs with a place, and loose work.
        let by_arrival = self.reference.order == JobPolicy::Arrival;
        let someone_needs =
            by_arrival && jobs.iter().any(|job| job.admitted && job.offers() && job.running == 0);
        if let Some(job) = chosen {
            assert!(job.offers(), "given to somebody who has no use for it");
        }
        match rule {
            Rule::Keep => assert!(chosen.is_none_or(|job| job.running == 0 && job.admitted)),
            Rule::Admit => {
                assert!(chosen.is_none() || self.reference.active() < bound);
                let loose = self.reference.loose_ready || self.reference.loose_running > 0;
                let is_beyond = self.reference.active() + usize::from(loose) >= workers;
                assert!(!someone_needs || is_beyond);
            }
            Rule::Aged | Rule::Least => {
                assert!(rule == Rule::Least || !by_arrival || self.reference.patience.is_some());
                assert!(!someone_needs, "a second worker while somebody has none");
                assert!(chosen.is_some_and(|job| job.admitted));
            }
        }
    }

    /// Checks the state in which no job gets a worker any more.
    fn check_rest(&self) {
        let reference = &self.reference;
        let free = reference.workers as u64 > reference.busy();
        for job in &reference.jobs {
            let offers_now = job.admitted && job.offers();
            assert!(!(free && offers_now), "a free worker, and something to do");
        }
        assert!(!(free && reference.loose_ready));
        let line_waits = reference.jobs.iter().any(|job| !job.admitted && job.offers());
        let bound = reference.bound();
        assert!(!(free && line_waits && reference.active() < bound));
        assert_eq!(self.scheduler.busy() as u64, reference.busy());
        assert_eq!(self.scheduler.active(), reference.active());
        assert_eq!(self.scheduler.unfinished(), reference.jobs.len());
        for job in &reference.jobs {
            let progress = self.scheduler.progress(job.id).unwrap();
            assert_eq!(progress.requirement(), job.requirement());
            assert_eq!((progress.ready, progress.waiting), (job.ready, job.waiting));
            assert_eq!((progress.admitted, progress.paused), (job.admitted, job.paused));
        }
    }

    /// Lets everything go, and counts the workers that it takes until nothing is left.
    fn finish(&mut self) {
        self.apply(&Step::Loose { ready: false });
        self.apply(&Step::Resize { workers: 3 });
        for which in 0..self.reference.jobs.len() {
            let id = self.reference.jobs[which].id;
            self.reference.job(id).paused &= self.reference.job(id).cancelled;
            self.scheduler.resume(id, self.reference.now);
            while self.reference.job(id).waiting > 0 {
                self.apply(&Step::Ready { which });
            }
            self.apply(&Step::HoldSplitter { which, held: false });
        }
        let left: u64 = self.reference.jobs.iter().map(|job| job.ready + job.running).sum();
        let most = left + self.out.len() as u64 + 3 * self.reference.jobs.len() as u64;
        self.give_all();
        let mut ends = 0;
        while let Some(who) = self.out.pop() {
            // A splitter has no more from now on; the ready subtasks are done.
            let splits = |id: JobId| self.reference.jobs.iter().any(|j| j.id == id && j.ready == 0);
            let asks = matches!(who, Claimant::Job(id) if splits(id));
            self.end(who, if asks { 4 } else { 6 });
            self.reference.settle();
            self.give_all();
            ends += 1;
        }
        assert_eq!(self.scheduler.unfinished(), 0, "a job starved: {:#?}", self.reference);
        assert!(ends <= most, "{ends} ends for {most}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn the_allocator_decides_as_the_reference_does(
        workers in 1..9_usize,
        max_active in prop::option::of(1..7_usize),
        patience in prop::option::of(0..40_u64),
        order in prop::sample::select(&[JobPolicy::Arrival, JobPolicy::Balanced, JobPolicy::Shortest][..]),
        program in prop::collection::vec(steps(), 1..100),
    ) {
        let mut pair = Pair::new(workers, max_active, patience, order);
        for step in &program {
            pair.apply(step);
            pair.give_all();
        }
        let record = pair.scheduler.recorded().unwrap();
        prop_assert!(record.entries().count() <= 40);
        record.replay().unwrap();
        pair.finish();
        pair.scheduler.recorded().unwrap().replay().unwrap();
    }
}
