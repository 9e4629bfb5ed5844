//! Priorities within a tenant, on random mixes in virtual time.
//!
//! - A worker goes to a job of a lower priority only if no job of a higher one offers work, or the lower one has waited for
//!   the ageing time without a start.
//! - A priority offers work unless all its work belongs to jobs that are paused, or wait because as many of its jobs are
//!   active as there are workers.
//! - Of the jobs of a priority that offer work, one starts within the ageing time and three further starts of their tenant. Of the
//!   highest priority, one starts at every other start at least.
//! - A worker is free only if no job offers work.
//! - Jobs of one priority share by the four rules.

use std::collections::BTreeMap;

use keylane_allocate::{
    Claimant, End, JobPolicy, JobScheduler, Priority, Supply, TenantIndex, TenantJobId,
    TenantLimits, TenantScheduler,
};
use proptest::prelude::*;

const AGEING: u64 = 50;

#[derive(Clone, Debug)]
enum Op {
    Submit {
        tenant: usize,
        priority: Priority,
        subtasks: u64,
    },
    Pause {
        job: usize,
    },
    Resume {
        job: usize,
    },
    /// Lets time pass, and ends the subtasks whose time has come.
    Pass {
        time: u64,
    },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let priority = prop::sample::select(&Priority::ALL[..]);
    let submit = (0..2_usize, priority, 1..12_u64);
    let op = prop_oneof![
        3 => submit.prop_map(|(tenant, priority, subtasks)| Op::Submit { tenant, priority, subtasks }),
        1 => (0..30_usize).prop_map(|job| Op::Pause { job }),
        1 => (0..30_usize).prop_map(|job| Op::Resume { job }),
        6 => (1..40_u64).prop_map(|time| Op::Pass { time }),
    ];
    prop::collection::vec(op, 1..80)
}

struct Job {
    id: TenantJobId,
    left: u64,
    running: u64,
    /// Whether it has had a start.
    admitted: bool,
    paused: bool,
}

impl Job {
    fn has_work(&self) -> bool {
        self.left > 0 && !self.paused
    }

    fn is_active(&self) -> bool {
        self.admitted && (self.running > 0 || self.has_work())
    }
}

/// Slow and obvious record of the offers.
#[derive(Default)]
struct Offers {
    workers: usize,
    jobs: Vec<Job>,
    /// Time since which the jobs of a tenant and priority offer work without a start, and the starts of the tenant since
    /// they have aged.
    waits: BTreeMap<(TenantIndex, Priority), (u64, u64)>,
    /// Whether the last start of a tenant was before a higher priority.
    was_behind: BTreeMap<TenantIndex, bool>,
}

impl Offers {
    fn job(&mut self, id: TenantJobId) -> &mut Job {
        self.jobs.iter_mut().find(|job| job.id == id).unwrap()
    }

    fn update(&mut self, now: u64) {
        let group = |job: &Job| (job.id.tenant(), job.id.priority());
        let may_admit = |to| {
            let active = self.jobs.iter().filter(|job| group(job) == to && job.is_active());
            active.count() < self.workers
        };
        let groups: Vec<_> = (self.jobs.iter())
            .filter(|job| job.has_work() && (job.admitted || may_admit(group(job))))
            .map(group)
            .collect();
        self.waits.retain(|group, _| groups.contains(group));
        for group in groups {
            self.waits.entry(group).or_insert((now, 0));
        }
    }

    fn check_start(&mut self, id: TenantJobId, now: u64) {
        let (tenant, priority) = (id.tenant(), id.priority());
        let (since, _) = self.waits[&(tenant, priority)];
        let is_behind =
            self.waits.keys().any(|(other, above)| *other == tenant && *above < priority);
        assert!(
            !is_behind || now - since >= AGEING,
            "{id:?} starts at {now} and waits since {since}"
        );
        for ((other, class), (since, passed)) in &mut self.waits {
            if *other == tenant && *class != priority && now - *since >= AGEING {
                *passed += 1;
                assert!(*passed <= 3, "{class:?} waits since {since}");
            }
        }
        self.waits.remove(&(tenant, priority));
        let was_behind = self.was_behind.insert(tenant, is_behind);
        assert!(
            !is_behind || was_behind != Some(true),
            "the highest priority is passed over twice"
        );
    }
}

fn run(workers: usize, ops: &[Op]) {
    let mut scheduler = TenantScheduler::new(workers).with_ageing(AGEING);
    let other = scheduler.add_tenant(TenantLimits::default());
    let tenants = [TenantIndex::DEFAULT, other];
    let (mut now, mut started) = (0, 0);
    let mut offers = Offers { workers, ..Offers::default() };
    let mut running: BTreeMap<(u64, u64), TenantJobId> = BTreeMap::new();
    for op in ops {
        match *op {
            Op::Submit { tenant, priority, subtasks } => {
                let supply = Supply::Ready(subtasks);
                let id = scheduler.submit(tenants[tenant], priority, supply, 1, now);
                offers.jobs.push(Job {
                    id,
                    left: subtasks,
                    running: 0,
                    admitted: false,
                    paused: false,
                });
            }
            Op::Pause { job } | Op::Resume { job } => {
                let paused = matches!(op, Op::Pause { .. });
                let count = offers.jobs.len().max(1);
                let Some(job) = offers.jobs.get_mut(job % count) else { continue };
                let is_live = match paused {
                    true => scheduler.pause(job.id, now),
                    false => scheduler.resume(job.id, now),
                };
                job.paused = is_live && paused;
            }
            Op::Pass { time } => {
                now += time;
                while let Some(entry) = running.first_entry().filter(|it| it.key().0 <= now) {
                    let id = entry.remove();
                    scheduler.ended(id, End::Done, now);
                    offers.job(id).running -= 1;
                }
            }
        }
        offers.update(now);
        while let Some(peeked) = scheduler.peek(now) {
            let (id, _) = scheduler.next(now).unwrap();
            assert_eq!(id, peeked);
            offers.check_start(id, now);
            let job = offers.job(id);
            (job.left, job.running, job.admitted) = (job.left - 1, job.running + 1, true);
            started += 1;
            running.insert((now + 1 + started * 7 % 23, started), id);
            offers.update(now);
        }
        assert!(
            running.len() == workers || offers.waits.is_empty(),
            "a worker is free beside work"
        );
        assert_eq!(scheduler.busy(), running.len());
    }
}

proptest! {
    #[test]
    fn a_higher_priority_comes_first_and_none_starves(workers in 1..5_usize, ops in ops()) {
        run(workers, &ops);
    }

    /// Whatever priority all jobs have, the decisions are those of the four rules.
    #[test]
    fn jobs_of_one_priority_share_by_the_rules(
        workers in 1..6_usize,
        priority in prop::sample::select(&Priority::ALL[..]),
        policy in prop::sample::select(&[JobPolicy::Arrival, JobPolicy::Balanced, JobPolicy::Shortest][..]),
        jobs in prop::collection::vec((1..9_u64, 1..4_u32), 1..20),
    ) {
        let mut plain = JobScheduler::new(workers).with_policy(policy);
        let mut tenants = TenantScheduler::new(workers).with_policy(policy).with_ageing(AGEING);
        let mut running = std::collections::VecDeque::new();
        for (now, (subtasks, weight)) in (0..).zip(jobs) {
            plain.submit(Supply::Ready(subtasks), weight, now);
            tenants.submit(TenantIndex::DEFAULT, priority, Supply::Ready(subtasks), weight, now);
            loop {
                let (one, other) = (plain.next(now), tenants.next(now));
                let serial = |claimant| match claimant {
                    Claimant::Job(job) => job.serial(),
                    Claimant::Loose => unreachable!(),
                };
                let one_shown = one.map(|decision| (serial(decision.to), decision.rule));
                prop_assert_eq!(one_shown, other.map(|(id, decision)| (id.serial(), decision.rule)));
                let Some((one, other)) = one.zip(other) else { break };
                running.push_back((one.to, other.0));
            }
            if let Some((one, other)) = running.pop_front() {
                plain.ended(one, End::Done, now);
                tenants.ended(other, End::Done, now);
            }
        }
    }
}

#[test]
fn a_low_job_gets_one_worker_in_each_ageing_time() {
    let mut scheduler = TenantScheduler::new(1).with_ageing(AGEING);
    let endless = Supply::Ready(1 << 40);
    let high = scheduler.submit(TenantIndex::DEFAULT, Priority::High, endless, 1, 0);
    let low = scheduler.submit(TenantIndex::DEFAULT, Priority::Low, endless, 1, 0);
    let mut low_starts = Vec::new();
    for now in (0..200).step_by(10) {
        let (id, _) = scheduler.next(now).unwrap();
        if id == low {
            low_starts.push(now);
        }
        assert!(scheduler.is_behind(low) && !scheduler.is_behind(high));
        scheduler.ended(id, End::Done, now + 10);
    }
    assert_eq!(low_starts, [50, 100, 150]);
    // Without ageing it waits for as long as the other offers work.
    let mut scheduler = TenantScheduler::new(1);
    let high = scheduler.submit(TenantIndex::DEFAULT, Priority::High, Supply::Ready(9), 1, 0);
    let low = scheduler.submit(TenantIndex::DEFAULT, Priority::Low, Supply::Ready(1), 1, 0);
    for now in 0..9 {
        assert_eq!(scheduler.next(now * 1000).unwrap().0, high);
        scheduler.ended(high, End::Done, now * 1000 + 999);
    }
    assert_eq!(scheduler.next(10_000).unwrap().0, low);
}
