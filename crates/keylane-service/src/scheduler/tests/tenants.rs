//! Tenants share the slots, and their limits keep no slot and no kind from others.

use std::collections::VecDeque;
use std::sync::Arc;

use keylane_allocate::TenantLimits;

use super::{Keys, job, names, scheduler, start_all};
use crate::JobNumber;
use crate::scheduler::{
    KindId, KindLimits, NewJob, NewSubtask, RateLimit, RestoredState, RunEnd, RunStart, Scheduler,
    Step, TenantSettings, WaitReason,
};

fn of(tenant: &str, new: NewJob<Vec<NewSubtask<Keys>>>) -> NewJob<Vec<NewSubtask<Keys>>> {
    NewJob { tenant: Some(tenant.into()), ..new }
}

fn set(scheduler: &mut Scheduler, tenant: &str, max: Option<usize>, rate: Option<RateLimit>) {
    let share = TenantLimits { max_workers: max, ..TenantLimits::default() };
    let settings = TenantSettings { share, rate };
    scheduler.set_tenant(Some(&Arc::from(tenant)), Some(settings), 0);
}

fn end(scheduler: &mut Scheduler, start: &RunStart, now: u64) {
    scheduler.ended(start.job, start.step, start.fence, RunEnd::Succeeded, now).unwrap();
}

fn first_reason(scheduler: &Scheduler, job: u64) -> WaitReason {
    scheduler.waiting_because(JobNumber(job)).unwrap()[0].reason.clone()
}

#[test]
fn a_tenant_with_many_jobs_gets_the_share_of_one() {
    let mut scheduler = scheduler(4);
    (1..100).for_each(|number| _ = scheduler.accept(of("many", job(number, &["", ""])), 0));
    scheduler.accept(of("one", job(200, &[""; 40])), 0);
    scheduler.accept(job(400, &[""; 40]), 0);
    let mut running: VecDeque<RunStart> = start_all(&mut scheduler, 0).into();
    let mut started = [0_usize; 3];
    for _ in 0..60 {
        let start = running.pop_front().unwrap();
        started[start.job.0 as usize / 100 % 3] += 1;
        end(&mut scheduler, &start, 0);
        running.extend(start_all(&mut scheduler, 0));
        scheduler.check();
    }
    assert!(started.iter().all(|count| count.abs_diff(20) <= 1), "{started:?}");
    let tenants = scheduler.tenants();
    let names: Vec<_> = tenants.iter().map(|tenant| tenant.name.as_deref()).collect();
    assert_eq!(names, [None, Some("many"), Some("one")]);
}

#[test]
fn a_tenant_at_its_maximum_says_so_and_the_others_get_the_slots() {
    let mut scheduler = scheduler(4);
    set(&mut scheduler, "small", Some(1), None);
    scheduler.accept(of("small", job(1, &["", "", ""])), 0);
    scheduler.accept(of("small", job(2, &[""])), 0);
    scheduler.accept(job(3, &["", "", "", ""]), 0);
    let starts = start_all(&mut scheduler, 0);
    assert_eq!(starts.iter().filter(|start| start.job.0 < 3).count(), 1);
    assert_eq!(starts.len(), 4);
    assert_eq!(first_reason(&scheduler, 2), WaitReason::TenantBound { running: 1 });
    set(&mut scheduler, "small", Some(3), None);
    end(&mut scheduler, &starts[3], 0);
    assert_eq!(scheduler.poll_start(0).map(|start| start.job.0), Some(2));
    scheduler.check();
}

#[test]
fn the_rate_of_a_tenant_is_that_of_all_its_jobs() {
    let mut scheduler = scheduler(8);
    let rate = RateLimit { tokens: 1, period_ms: 100, burst: 2 };
    set(&mut scheduler, "slow", None, Some(rate));
    scheduler.accept(of("slow", job(1, &["", ""])), 0);
    scheduler.accept(of("slow", job(2, &["", ""])), 0);
    scheduler.accept(job(3, &["", ""]), 0);
    assert_eq!(names(&start_all(&mut scheduler, 0)), [(3, 0), (1, 0), (3, 1), (2, 0)]);
    assert_eq!(first_reason(&scheduler, 1), WaitReason::TenantRate { until: Some(100) });
    assert_eq!(scheduler.next_timeout(), Some(100));
    assert!(start_all(&mut scheduler, 99).is_empty());
    scheduler.handle_timeout(100);
    assert_eq!(start_all(&mut scheduler, 100).len(), 1);
    scheduler.set_tenant(Some(&Arc::from("slow")), None, 100);
    assert_eq!(start_all(&mut scheduler, 100).len(), 1);
    assert_eq!(scheduler.next_timeout(), None);
    scheduler.check();
}

#[test]
fn a_tenant_that_starts_nothing_keeps_no_kind_from_others() {
    let mut scheduler = scheduler(8);
    let limits = KindLimits { concurrency: Some(1), ..KindLimits::default() };
    scheduler.set_kind(KindId(7), limits, 0);
    set(&mut scheduler, "small", Some(1), None);
    let kind = |new| NewJob { kind: KindId(7), ..new };
    scheduler.accept(kind(job(1, &[""])), 0);
    let [first] = start_all(&mut scheduler, 0)[..] else { panic!("one starts") };
    // Both wait for the kind, the one of the small tenant first.
    scheduler.accept(kind(of("small", job(2, &[""]))), 0);
    assert!(start_all(&mut scheduler, 0).is_empty());
    scheduler.accept(kind(of("other", job(3, &[""]))), 0);
    assert!(start_all(&mut scheduler, 0).is_empty());
    // The tenant reaches its maximum with another kind. Work of others never ends.
    scheduler.accept(of("small", job(4, &["", ""])), 0);
    scheduler.accept(job(5, &[""; 100]), 0);
    let others = start_all(&mut scheduler, 0);
    assert_eq!(others.len(), 7);
    end(&mut scheduler, &first, 0);
    let next = start_all(&mut scheduler, 0);
    assert_eq!(names(&next), [(3, 0)]);
    scheduler.check();
    // The order of turns is kept: the small tenant's job is next when it can start.
    let small = others.iter().find(|start| start.job.0 == 4).unwrap();
    end(&mut scheduler, small, 0);
    end(&mut scheduler, &next[0], 0);
    let jobs: Vec<u64> = start_all(&mut scheduler, 0).iter().map(|start| start.job.0).collect();
    assert!(jobs.contains(&2) || jobs.contains(&4), "{jobs:?}");
    scheduler.check();
}

#[test]
fn the_order_of_a_key_crosses_tenants() {
    let mut scheduler = scheduler(4);
    scheduler.accept(of("a", job(1, &["k"])), 0);
    scheduler.accept(of("b", job(2, &["k"])), 0);
    scheduler.accept(of("a", job(3, &["k"])), 0);
    for number in 1..4 {
        let starts = start_all(&mut scheduler, 0);
        assert_eq!(names(&starts), [(number, 0)]);
        end(&mut scheduler, &starts[0], 0);
    }
    scheduler.check_empty();
}

#[test]
fn a_lease_that_survives_a_restart_counts_for_its_tenant() {
    let mut scheduler = scheduler(4);
    set(&mut scheduler, "small", Some(1), None);
    scheduler.accept(of("small", job(1, &["", ""])), 0);
    let was = RestoredState::Running { fence: 1000, since: 0 };
    assert!(scheduler.restore(JobNumber(1), 0, was, 0));
    assert!(start_all(&mut scheduler, 0).is_empty());
    assert_eq!(first_reason(&scheduler, 1), WaitReason::TenantBound { running: 1 });
    scheduler.ended(JobNumber(1), Step::Subtask(0), 1000, RunEnd::Succeeded, 0).unwrap();
    assert_eq!(names(&start_all(&mut scheduler, 0)), [(1, 1)]);
    scheduler.check();
}

#[test]
fn a_minimum_is_there_when_it_is_needed_and_lent_until_then() {
    let mut scheduler = scheduler(4);
    let share = TenantLimits { min_workers: 2, ..TenantLimits::default() };
    let settings = TenantSettings { share, rate: None };
    scheduler.set_tenant(Some(&Arc::from("sure")), Some(settings), 0);
    for number in 1..6 {
        scheduler.accept(of(&format!("tenant {number}"), job(number, &["", ""])), 0);
    }
    let starts = start_all(&mut scheduler, 0);
    assert_eq!(starts.len(), 4);
    scheduler.accept(of("sure", job(9, &["", "", ""])), 0);
    end(&mut scheduler, &starts[0], 0);
    end(&mut scheduler, &starts[1], 0);
    assert_eq!(names(&start_all(&mut scheduler, 0)), [(9, 0), (9, 1)]);
    scheduler.check();
}

#[test]
fn nothing_is_left_of_a_tenant_after_its_last_job() {
    let mut scheduler = scheduler(2);
    let rate = RateLimit { tokens: 1, period_ms: 1000, burst: 1 };
    set(&mut scheduler, "gone", Some(1), Some(rate));
    scheduler.accept(of("gone", job(1, &["", ""])), 0);
    let starts = start_all(&mut scheduler, 0);
    scheduler.set_tenant(Some(&Arc::from("gone")), None, 0);
    assert_eq!(scheduler.tenants().len(), 2);
    scheduler.cancel_job(JobNumber(1), 0);
    end(&mut scheduler, &starts[0], 0);
    assert_eq!((scheduler.tenants().len(), scheduler.next_timeout()), (1, None));
    scheduler.check_empty();
    // A later tenant in its place has its own limits and serial numbers.
    scheduler.accept(of("new", job(2, &["", ""])), 0);
    assert_eq!(start_all(&mut scheduler, 0).len(), 2);
    scheduler.check();
}
