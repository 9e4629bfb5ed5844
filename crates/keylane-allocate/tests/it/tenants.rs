//! Sharing among tenants, on random mixes in virtual time.
//!
//! - A tenant with work gets its minimum before others get more than theirs, and never more than its
//!   maximum.
//! - A worker is free only while every tenant with work is at its maximum.
//! - Tenants that always have work get what their weights say: at any time within one worker, and
//!   over time within a tenth of one.
//! - No tenant waits for more than a round of the others.
//! - With one tenant the decisions are those of the four rules alone.

use std::collections::BTreeMap;

use keylane_allocate::{
    Claimant, End, JobPolicy, JobScheduler, Priority, Supply, TenantIndex, TenantJobId,
    TenantLimits, TenantScheduler,
};
use proptest::prelude::*;

fn limits() -> impl Strategy<Value = TenantLimits> {
    let min_workers = prop_oneof![2 => Just(0), 1 => 0..4_usize];
    (1..6_u32, min_workers, prop::option::weighted(0.3, 1..5_usize)).prop_map(
        |(weight, min_workers, max_workers)| TenantLimits { weight, min_workers, max_workers },
    )
}

/// Tenants with endless work, and the workers that run it.
struct Mix {
    scheduler: TenantScheduler,
    limits: Vec<TenantLimits>,
    tenants: Vec<TenantIndex>,
    /// Jobs that run, by the time of their end.
    running: BTreeMap<(u64, u64), TenantJobId>,
    started: u64,
    now: u64,
    /// Decisions since the last one of each tenant, while it offers work and has none.
    passed_over: Vec<u64>,
}

const ENDLESS: Supply = Supply::Ready(1 << 40);

impl Mix {
    fn new(workers: usize, limits: &[TenantLimits]) -> Self {
        let mut scheduler = TenantScheduler::new(workers);
        let tenants: Vec<_> = limits.iter().map(|limits| scheduler.add_tenant(*limits)).collect();
        Mix {
            scheduler,
            limits: limits.to_vec(),
            tenants,
            running: BTreeMap::new(),
            started: 0,
            now: 0,
            passed_over: vec![0; limits.len()],
        }
    }

    fn running_of(&self, tenant: usize) -> usize {
        self.running.values().filter(|id| id.tenant() == self.tenants[tenant]).count()
    }

    /// Gives all free workers away; `length` is the length of a subtask of a tenant. `has_work` says
    /// which tenants offer work.
    fn give_all(&mut self, has_work: &[bool], mut length: impl FnMut(usize) -> u64) {
        while let Some((id, _)) = self.scheduler.next(self.now) {
            let tenant = self.tenants.iter().position(|index| *index == id.tenant()).unwrap();
            self.minimums_come_first(tenant, has_work);
            self.count_passed_over(tenant, has_work);
            self.started += 1;
            self.running.insert((self.now + length(tenant), self.started), id);
            let most = self.limits[tenant].max_workers.unwrap_or(usize::MAX);
            assert!(self.running_of(tenant) <= most);
            let index = self.tenants[tenant];
            assert_eq!(self.running_of(tenant), self.scheduler.running_of(index));
        }
        if self.running.len() < self.scheduler.workers() {
            for (tenant, limits) in self.limits.iter().enumerate() {
                let is_full =
                    limits.max_workers.is_some_and(|most| self.running_of(tenant) >= most);
                assert!(is_full || !has_work[tenant], "a worker is free beside work");
            }
        }
    }

    fn minimum(&self, tenant: usize) -> usize {
        let sum: usize = self.limits.iter().map(|limits| limits.min_workers).sum();
        let (wanted, most) = (self.limits[tenant].min_workers, self.scheduler.workers() - 1);
        let fits = if sum > most { wanted * most / sum } else { wanted };
        fits.min(self.limits[tenant].max_workers.unwrap_or(usize::MAX))
    }

    fn minimums_come_first(&self, chosen: usize, has_work: &[bool]) {
        let is_below = |tenant: usize| self.running_of(tenant) < self.minimum(tenant);
        let waits = (0..self.limits.len()).any(|tenant| has_work[tenant] && is_below(tenant));
        assert!(!waits || is_below(chosen), "a tenant below its minimum comes first");
    }

    fn count_passed_over(&mut self, chosen: usize, has_work: &[bool]) {
        let weights: u64 = self.limits.iter().map(|limits| u64::from(limits.weight)).sum();
        for (tenant, has_work) in has_work.iter().enumerate() {
            let waits = tenant != chosen && *has_work && self.running_of(tenant) == 0;
            self.passed_over[tenant] = if waits { self.passed_over[tenant] + 1 } else { 0 };
            let bound = (weights + 2) * (self.scheduler.workers() as u64 + 2) * 2;
            assert!(self.passed_over[tenant] <= bound, "tenant {tenant} waits for too long");
        }
    }

    /// Ends all subtasks whose time has come, and returns the time that each tenant's have taken.
    fn next_ends(&mut self) {
        let Some((&(at, _), _)) = self.running.first_key_value() else { return };
        self.now = at;
        while let Some(entry) = self.running.first_entry().filter(|it| it.key().0 == at) {
            let id = entry.remove();
            self.scheduler.ended(id, End::Done, at);
        }
    }
}

/// Workers that each tenant should have: minimum and maximum first, the rest by weight.
fn shares(mix: &Mix) -> Vec<f64> {
    let mut fixed: Vec<Option<f64>> = vec![None; mix.limits.len()];
    loop {
        let taken: f64 = fixed.iter().flatten().sum();
        let left = mix.scheduler.workers() as f64 - taken;
        let open = || (0..fixed.len()).filter(|tenant| fixed[*tenant].is_none());
        let weights: f64 = open().map(|tenant| f64::from(mix.limits[tenant].weight)).sum();
        let share = |tenant: usize| left * f64::from(mix.limits[tenant].weight) / weights;
        let minimum = |tenant: usize| mix.minimum(tenant) as f64;
        let maximum =
            |tenant: usize| mix.limits[tenant].max_workers.map_or(f64::MAX, |max| max as f64);
        let over: f64 =
            open().map(|it| share(it) - share(it).clamp(minimum(it), maximum(it))).sum();
        // The larger sum of violations decides which of them are final.
        let is_final = |tenant: &usize| match over {
            over if over > 1e-9 => share(*tenant) > maximum(*tenant),
            over if over < -1e-9 => share(*tenant) < minimum(*tenant),
            _ => true,
        };
        let ended: Vec<usize> = open().filter(is_final).collect();
        let values: Vec<f64> =
            ended.iter().map(|it| share(*it).clamp(minimum(*it), maximum(*it))).collect();
        ended.iter().zip(values).for_each(|(tenant, value)| fixed[*tenant] = Some(value));
        if fixed.iter().all(Option::is_some) {
            return fixed.into_iter().flatten().collect();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn tenants_with_endless_work_get_their_shares(
        workers in 1..12_usize,
        limits in prop::collection::vec(limits(), 1..7),
        jobs in prop::collection::vec(1..4_usize, 7),
    ) {
        let mut mix = Mix::new(workers, &limits);
        for (tenant, index) in mix.tenants.clone().into_iter().enumerate() {
            (0..jobs[tenant]).for_each(|_| _ = mix.scheduler.submit(index, Priority::Normal, ENDLESS, 1, 0));
        }
        let has_work = vec![true; limits.len()];
        let expected = shares(&mix);
        let rounds = 400;
        let mut taken = vec![0; limits.len()];
        for round in 0..rounds {
            mix.give_all(&has_work, |_| 1);
            for (tenant, expected) in expected.iter().enumerate() {
                let running = mix.running_of(tenant);
                taken[tenant] += running;
                // The first workers are given before all maximums are reached.
                let distance = (running as f64 - expected).abs();
                prop_assert!(round == 0 || distance < 1.0 + 1e-9, "{tenant}: {running}, {expected}");
            }
            mix.next_ends();
        }
        for (taken, expected) in taken.iter().zip(&expected) {
            let average = *taken as f64 / f64::from(rounds);
            prop_assert!((average - expected).abs() < 0.1, "{average} instead of {expected}");
        }
    }

    #[test]
    fn every_mix_keeps_minimums_and_maximums_and_leaves_no_worker_free(
        workers in 1..9_usize,
        limits in prop::collection::vec(limits(), 1..6),
        steps in prop::collection::vec((0..6_usize, 1..60_u64, 1..30_u64, 1..9_usize), 1..200),
    ) {
        let mut mix = Mix::new(workers, &limits);
        let mut left = vec![0_u64; limits.len()];
        for (tenant, count, longest, resized) in steps {
            if let Some(tenant) = mix.tenants.get(tenant).copied() {
                mix.scheduler.submit(tenant, Priority::Normal, Supply::Ready(count), 1, mix.now);
            }
            if let Some(left) = left.get_mut(tenant) {
                *left += count;
            }
            if count % 7 == 0 {
                mix.scheduler.resize(resized, mix.now);
            }
            for round in 0..3 {
                while mix.running.len() < mix.scheduler.workers() && left.iter().any(|it| *it > 0) {
                    let has_work: Vec<bool> = left.iter().map(|left| *left > 0).collect();
                    let before = mix.started;
                    mix.give_one(&has_work, &mut left, 1 + (count * round) % longest);
                    if mix.started == before {
                        break;
                    }
                }
                mix.next_ends();
            }
        }
    }

    #[test]
    fn one_tenant_has_the_decisions_of_the_four_rules(
        workers in 1..6_usize,
        policy in prop::sample::select(&[JobPolicy::Arrival, JobPolicy::Balanced][..]),
        is_shared in any::<bool>(),
        steps in prop::collection::vec((0..4_u32, 1..9_u64, 1..4_u32), 1..120),
    ) {
        let mut plain = JobScheduler::new(workers).with_policy(policy);
        let mut tenants = TenantScheduler::new(workers).with_policy(policy);
        if is_shared {
            tenants.add_tenant(TenantLimits::default());
        }
        let mut running = Vec::new();
        for (now, (step, count, weight)) in (0..).zip(steps) {
            match step {
                0 => {
                    let one = plain.submit(Supply::Ready(count), weight, now);
                    let other = tenants.submit(TenantIndex::DEFAULT, Priority::Normal, Supply::Ready(count), weight, now);
                    prop_assert_eq!(one.serial(), other.serial());
                }
                1 if !running.is_empty() => {
                    let (one, other) = running.remove(count as usize % running.len());
                    let ends = plain.ended(Claimant::Job(one), End::Done, now);
                    prop_assert_eq!(ends, tenants.ended(other, End::Done, now));
                }
                _ => {}
            }
            loop {
                let (one, other) = (plain.next(now), tenants.next(now));
                let Some(one) = one else {
                    prop_assert!(other.is_none());
                    break;
                };
                let (id, other) = other.expect("both decide");
                prop_assert_eq!(one, other);
                let Claimant::Job(job) = one.to else { unreachable!() };
                running.push((job, id));
            }
            prop_assert_eq!((plain.busy(), plain.active()), (tenants.busy(), tenants.active()));
        }
    }
}

impl Mix {
    /// Gives one worker away.
    fn give_one(&mut self, has_work: &[bool], left: &mut [u64], length: u64) {
        let can_start = |tenant: usize| {
            let max = self.limits[tenant].max_workers.unwrap_or(usize::MAX);
            has_work[tenant] && self.running_of(tenant) < max
        };
        let is_expected = (0..left.len()).any(can_start);
        let Some((id, _)) = self.scheduler.next(self.now) else {
            assert!(!is_expected, "a worker is free beside work");
            return;
        };
        let tenant = self.tenants.iter().position(|index| *index == id.tenant()).unwrap();
        self.minimums_come_first(tenant, has_work);
        left[tenant] -= 1;
        self.started += 1;
        self.running.insert((self.now + length, self.started), id);
        assert!(self.running_of(tenant) <= self.limits[tenant].max_workers.unwrap_or(usize::MAX));
    }
}

#[test]
fn a_tenant_with_a_thousand_jobs_gets_one_share() {
    let mut mix = Mix::new(4, &[TenantLimits::default(); 2]);
    let [many, one] = [mix.tenants[0], mix.tenants[1]];
    (0..1000)
        .for_each(|_| _ = mix.scheduler.submit(many, Priority::Normal, Supply::Ready(10), 1, 0));
    mix.scheduler.submit(one, Priority::Normal, ENDLESS, 1, 0);
    for _ in 0..100 {
        mix.give_all(&[true; 2], |_| 1);
        assert_eq!([mix.running_of(0), mix.running_of(1)], [2, 2]);
        mix.next_ends();
    }
}

#[test]
fn a_tenant_of_long_subtasks_does_not_displace_one_of_short_ones() {
    let mut mix = Mix::new(4, &[TenantLimits::default(); 2]);
    for tenant in mix.tenants.clone() {
        mix.scheduler.submit(tenant, Priority::Normal, ENDLESS, 1, 0);
    }
    for _ in 0..1000 {
        mix.give_all(&[true; 2], |tenant| if tenant == 0 { 500 } else { 1 });
        assert_eq!([mix.running_of(0), mix.running_of(1)], [2, 2]);
        mix.next_ends();
    }
}

#[test]
fn new_tenants_without_end_do_not_displace_one_that_waits() {
    let mut scheduler = TenantScheduler::new(1);
    let [waiting, other] = [(); 2].map(|()| scheduler.add_tenant(TenantLimits::default()));
    for tenant in [waiting, other] {
        scheduler.submit(tenant, Priority::Normal, ENDLESS, 1, 0);
    }
    // The tenants that wait grow by one with each start of these two, so rounds get longer.
    let mut starts = Vec::new();
    for now in 0..500 {
        let new = scheduler.add_tenant(TenantLimits::default());
        scheduler.submit(new, Priority::Normal, Supply::Ready(1), 1, now);
        let (id, _) = scheduler.next(now).unwrap();
        if id.tenant() == waiting {
            starts.push(now);
        }
        if scheduler.ended(id, End::Done, now) {
            scheduler.remove_tenant(id.tenant());
        }
    }
    let longest = starts.windows(2).map(|pair| pair[1] - pair[0]).max();
    assert!(starts.len() > 10 && longest < Some(60), "{starts:?}");
}

#[test]
fn workers_without_a_decision_count_against_the_share_and_the_maximum() {
    let limits =
        [TenantLimits { max_workers: Some(2), ..TenantLimits::default() }, TenantLimits::default()];
    let mut mix = Mix::new(4, &limits);
    for tenant in mix.tenants.clone() {
        mix.scheduler.submit(tenant, Priority::Normal, ENDLESS, 1, 0);
    }
    let [limited, other] = [mix.tenants[0], mix.tenants[1]];
    mix.scheduler.resize(2, 0);
    mix.scheduler.set_outside(limited, 2);
    assert!(mix.scheduler.is_stopped(limited));
    let starts: Vec<_> = std::iter::from_fn(|| mix.scheduler.next(0)).collect();
    assert!(starts.len() == 2 && starts.iter().all(|(id, _)| id.tenant() == other));
    mix.scheduler.set_outside(limited, 1);
    mix.scheduler.resize(3, 0);
    assert_eq!(mix.scheduler.next(0).unwrap().0.tenant(), limited);
    assert_eq!(mix.scheduler.running_of(limited), 2);
}

#[test]
fn a_blocked_tenant_starts_nothing_and_the_others_get_its_workers() {
    let mut mix = Mix::new(2, &[TenantLimits::default(); 2]);
    for tenant in mix.tenants.clone() {
        mix.scheduler.submit(tenant, Priority::Normal, ENDLESS, 1, 0);
    }
    mix.scheduler.set_blocked(mix.tenants[0], true);
    mix.give_all(&[false, true], |_| 1);
    assert_eq!([mix.running_of(0), mix.running_of(1)], [0, 2]);
    mix.next_ends();
    mix.scheduler.set_blocked(mix.tenants[0], false);
    mix.give_all(&[true; 2], |_| 1);
    assert_eq!([mix.running_of(0), mix.running_of(1)], [1, 1]);
}

#[test]
fn a_tenant_that_had_no_work_for_long_is_not_ahead_of_the_others_for_long() {
    let mut mix = Mix::new(1, &[TenantLimits::default(); 2]);
    let submit = |mix: &mut Mix, tenant: usize| {
        let tenant = mix.tenants[tenant];
        mix.scheduler.submit(tenant, Priority::Normal, ENDLESS, 1, mix.now);
    };
    submit(&mut mix, 0);
    let starts = |mix: &mut Mix, has_work: [bool; 2], count: usize| {
        let mut of_last = 0;
        for _ in 0..count {
            mix.give_all(&has_work, |_| 1);
            of_last += mix.running_of(1);
            mix.next_ends();
        }
        of_last
    };
    assert_eq!(starts(&mut mix, [true, false], 1000), 0);
    submit(&mut mix, 1);
    let of_last = starts(&mut mix, [true, true], 100);
    assert!((49..=53).contains(&of_last), "{of_last} of 100");
}
