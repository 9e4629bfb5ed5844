//! Limits of kinds: no slot of another kind is lost, and jobs of one kind take turns.

use keylane_allocate::JobPolicy;

use super::{job, names, scheduler, start_all};
use crate::JobNumber;
use crate::scheduler::{
    KindId, KindLimits, RateLimit, RunEnd, Scheduler, SchedulerSettings, Step, WaitReason,
};

#[test]
fn a_kind_at_its_bound_keeps_no_other_from_its_slot() {
    let mut scheduler = scheduler(4);
    scheduler.set_kind(
        KindId(7),
        KindLimits { concurrency: Some(1), rate: None, ..KindLimits::default() },
        0,
    );
    for number in [1, 2] {
        let mut new = job(number, &["", "", ""]);
        new.kind = KindId(7);
        scheduler.accept(new, 0);
    }
    scheduler.accept(job(3, &["", "", "", "", ""]), 0);
    assert_eq!(names(&start_all(&mut scheduler, 0)), [(1, 0), (3, 0), (3, 1), (3, 2)]);
    let because = scheduler.waiting_because(JobNumber(2)).unwrap();
    assert_eq!(because[0].reason, WaitReason::KindBound { kind: KindId(7), running: 1 });
    scheduler.check();
}

#[test]
fn jobs_that_are_held_take_turns() {
    // In this order the shortest job would have its place back after each subtask.
    let settings = SchedulerSettings { order: JobPolicy::Shortest, ..SchedulerSettings::new(2) };
    let mut scheduler = Scheduler::new(settings);
    scheduler.set_kind(
        KindId(0),
        KindLimits { concurrency: Some(1), rate: None, ..KindLimits::default() },
        0,
    );
    let all = [""; 5];
    (1..4).for_each(|n| _ = scheduler.accept(job(n, &all[..n as usize + 2]), 0));
    let mut order = start_all(&mut scheduler, 0);
    // All three are held now. The other slot is taken, so no job is named until capacity is free
    // again.
    let mut other = job(9, &[""]);
    other.kind = KindId(1);
    scheduler.accept(other, 0);
    assert_eq!(names(&start_all(&mut scheduler, 0)), [(9, 0)]);
    while let Some(&start) = order.last() {
        scheduler.ended(start.job, start.step, start.fence, RunEnd::Succeeded, 0).unwrap();
        let next = start_all(&mut scheduler, 0);
        if next.is_empty() {
            break;
        }
        order.extend(next);
    }
    let jobs: Vec<u64> = order.iter().map(|start| start.job.0).collect();
    assert_eq!(jobs, [1, 1, 2, 3, 1, 2, 3, 2, 3, 2, 3, 3]);
}

#[test]
fn a_rate_is_kept_and_its_timer_is_set() {
    let mut scheduler = scheduler(10);
    let rate = RateLimit { tokens: 2, period_ms: 1000, burst: 1 };
    scheduler.set_kind(
        KindId(0),
        KindLimits { concurrency: None, rate: Some(rate), ..KindLimits::default() },
        0,
    );
    scheduler.accept(job(1, &[""; 4]), 0);
    let mut times = Vec::new();
    let mut now = 0;
    loop {
        times.extend(start_all(&mut scheduler, now).into_iter().map(|_| now));
        if times.len() == 4 {
            break;
        }
        let because = scheduler.explain(JobNumber(1), Step::Subtask(3)).unwrap();
        assert_eq!(because.reasons, [WaitReason::KindRate { until: Some(now + 500) }]);
        now = scheduler.next_timeout().unwrap();
        scheduler.handle_timeout(now);
    }
    assert_eq!(times, [0, 500, 1000, 1500]);
}

/// The job that takes the last token has nothing more that could find that there is none.
#[test]
fn a_job_behind_one_with_no_more_to_start_has_a_timer_too() {
    let mut scheduler = scheduler(10);
    let rate = RateLimit { tokens: 2, period_ms: 1000, burst: 1 };
    scheduler.set_kind(
        KindId(0),
        KindLimits { concurrency: None, rate: Some(rate), ..KindLimits::default() },
        0,
    );
    (1..5).for_each(|n| _ = scheduler.accept(job(n, &[""]), 0));
    let (mut times, mut now) = (Vec::new(), 0);
    loop {
        times.extend(start_all(&mut scheduler, now).into_iter().map(|start| (start.job.0, now)));
        if times.len() == 4 {
            break;
        }
        now = scheduler.next_timeout().expect("the next token");
        scheduler.handle_timeout(now);
    }
    assert_eq!(times, [(1, 0), (2, 500), (3, 1000), (4, 1500)]);
}

#[test]
fn jobs_that_a_kind_holds_back_are_counted() {
    let mut scheduler = scheduler(10);
    let limits = KindLimits { concurrency: Some(1), ..KindLimits::default() };
    scheduler.set_kind(KindId(0), limits, 0);
    (1..5).for_each(|number| _ = scheduler.accept(job(number, &[""]), 0));
    let first = scheduler.poll_start(0).unwrap();
    assert_eq!(start_all(&mut scheduler, 0), []);
    assert_eq!(scheduler.slots().held_jobs, 3);
    scheduler.ended(first.job, first.step, first.fence, RunEnd::Succeeded, 1).unwrap();
    start_all(&mut scheduler, 1);
    assert_eq!(scheduler.slots().held_jobs, 2);
}
