//! Priorities: a higher one comes first for slots and for the capacity of kinds, none starves, and the order of keys comes
//! before them.

use keylane_allocate::Priority;

use super::{Keys, job, names, start_all};
use crate::JobNumber;
use crate::scheduler::{
    KindId, KindLimits, NewJob, NewSubtask, RunEnd, RunStart, Scheduler, SchedulerSettings,
    WaitReason,
};

const AGEING: u64 = 100;

fn scheduler(slots: usize) -> Scheduler {
    Scheduler::new(SchedulerSettings { ageing: Some(AGEING), ..SchedulerSettings::new(slots) })
}

fn prior(
    number: u64,
    priority: Priority,
    subtasks: &[&'static str],
) -> NewJob<Vec<NewSubtask<Keys>>> {
    NewJob { priority, ..job(number, subtasks) }
}

fn end(scheduler: &mut Scheduler, start: RunStart, now: u64) {
    scheduler.ended(start.job, start.step, start.fence, RunEnd::Succeeded, now).unwrap();
    scheduler.check();
}

/// Runs everything, one subtask of 10 ms after another, and returns the jobs in their order.
fn jobs_in_order(scheduler: &mut Scheduler, mut now: u64) -> Vec<u64> {
    let mut order = Vec::new();
    while let Some(start) = scheduler.poll_start(now) {
        order.push(start.job.0);
        now += 10;
        end(scheduler, start, now);
    }
    order
}

#[test]
fn a_higher_priority_gets_the_slots_and_a_lower_one_waits_with_a_reason() {
    let mut scheduler = scheduler(1);
    scheduler.accept(prior(1, Priority::Low, &["", ""]), 0);
    let low = scheduler.poll_start(0).unwrap();
    scheduler.accept(prior(2, Priority::Normal, &["", ""]), 0);
    scheduler.accept(prior(3, Priority::High, &[""]), 0);
    let reason = |scheduler: &Scheduler, job| {
        scheduler.waiting_because(JobNumber(job)).unwrap()[0].reason.clone()
    };
    assert_eq!(reason(&scheduler, 1), WaitReason::Priority { ahead: Some(2) });
    assert_eq!(reason(&scheduler, 2), WaitReason::Priority { ahead: Some(1) });
    assert!(matches!(reason(&scheduler, 3), WaitReason::NotAdmitted { ahead: Some(0), .. }));
    end(&mut scheduler, low, 1);
    assert_eq!(jobs_in_order(&mut scheduler, 1), [3, 2, 2, 1]);
    scheduler.check_empty();
}

#[test]
fn the_order_of_a_key_comes_before_priorities() {
    let mut scheduler = scheduler(1);
    scheduler.accept(prior(1, Priority::Low, &["k", "k"]), 0);
    scheduler.accept(prior(2, Priority::High, &["k"]), 0);
    scheduler.accept(prior(3, Priority::High, &["", ""]), 0);
    assert_eq!(jobs_in_order(&mut scheduler, 0), [3, 3, 1, 1, 2]);
    scheduler.check_empty();
}

#[test]
fn the_capacity_of_a_kind_goes_to_the_higher_priority_and_none_starves() {
    // The slots are enough, and the kind's capacity is not.
    let mut scheduler = scheduler(4);
    let limits = KindLimits { concurrency: Some(1), ..KindLimits::default() };
    scheduler.set_kind(KindId(0), limits, 0);
    scheduler.accept(prior(1, Priority::Low, &[""; 3]), 0);
    let first = start_all(&mut scheduler, 0);
    assert_eq!(names(&first), [(1, 0)]);
    // Held before the others come.
    scheduler.accept(prior(2, Priority::High, &[""; 20]), 0);
    scheduler.accept(prior(3, Priority::Normal, &[""; 2]), 0);
    assert!(start_all(&mut scheduler, 0).is_empty());
    end(&mut scheduler, first[0], 1);
    let order = jobs_in_order(&mut scheduler, 1);
    let place = |job: u64| order.iter().position(|one| *one == job).unwrap();
    assert!((9..=12).contains(&place(1)) && (9..=12).contains(&place(3)), "{order:?}");
    assert_eq!(order.iter().take(9).collect::<Vec<_>>(), vec![&2; 9]);
    let last = order.iter().rposition(|job| *job == 2).unwrap();
    assert!(order[..last].windows(2).all(|two| two.contains(&2)), "{order:?}");
    scheduler.check_empty();
}

#[test]
fn many_aged_jobs_of_a_kind_get_one_place_in_each_ageing_time() {
    let mut scheduler = scheduler(4);
    let limits = KindLimits { concurrency: Some(1), ..KindLimits::default() };
    scheduler.set_kind(KindId(0), limits, 0);
    scheduler.accept(prior(1, Priority::High, &[""; 20]), 0);
    let first = start_all(&mut scheduler, 0);
    for low in 2..12 {
        scheduler.accept(prior(low, Priority::Low, &[""]), 0);
    }
    assert!(start_all(&mut scheduler, 0).is_empty());
    end(&mut scheduler, first[0], 10);
    // 19 starts of 10 ms, and one of low priority in each 100.
    let order = jobs_in_order(&mut scheduler, 10);
    assert_eq!(order[..21].iter().filter(|job| **job != 1).count(), 2, "{order:?}");
    assert_eq!([order[9], order[19]], [2, 3], "{order:?}");
    scheduler.check_empty();
}

#[test]
fn an_aged_job_of_a_kind_does_not_pass_a_higher_priority_that_has_waited_longer() {
    let mut scheduler = scheduler(4);
    let limits = KindLimits { concurrency: Some(1), ..KindLimits::default() };
    scheduler.set_kind(KindId(0), limits, 0);
    scheduler.accept(prior(1, Priority::High, &[""]), 0);
    let first = start_all(&mut scheduler, 0);
    scheduler.accept(prior(2, Priority::Normal, &[""]), 1);
    assert!(start_all(&mut scheduler, 1).is_empty());
    scheduler.accept(prior(3, Priority::Low, &[""]), 2);
    assert!(start_all(&mut scheduler, 2).is_empty());
    end(&mut scheduler, first[0], 3 * AGEING);
    assert_eq!(jobs_in_order(&mut scheduler, 3 * AGEING), [2, 3]);
    scheduler.check_empty();
}

#[test]
fn a_tenant_is_not_displaced_by_the_priorities_of_another_one() {
    let mut scheduler = scheduler(1);
    let of_ann = NewJob { tenant: Some("ann".into()), ..prior(1, Priority::Low, &[""; 4]) };
    scheduler.accept(of_ann, 0);
    scheduler.accept(prior(2, Priority::High, &[""; 4]), 0);
    let order = jobs_in_order(&mut scheduler, 0);
    assert!(
        order.windows(3).all(|three| three.contains(&1) || !order[..4].contains(&1)),
        "{order:?}"
    );
    assert_eq!(order[..4].iter().filter(|job| **job == 1).count(), 2, "{order:?}");
    scheduler.check_empty();
}
