//! Limits of kinds: nobody else's slot is lost, and jobs of one kind take turns.

use super::{job, names, scheduler, start_all};
use crate::JobNumber;
use crate::schedule::{End, KindId, KindLimits, Rate, Reason, Step};

#[test]
fn a_kind_at_its_bound_keeps_no_other_from_its_slot() {
    let mut scheduler = scheduler(4);
    scheduler.set_kind(KindId(7), KindLimits { concurrency: Some(1), rate: None }, 0);
    for number in [1, 2] {
        let mut new = job(number, &["", "", ""]);
        new.kind = KindId(7);
        scheduler.accept(new, 0);
    }
    scheduler.accept(job(3, &["", "", "", "", ""]), 0);
    assert_eq!(names(&start_all(&mut scheduler, 0)), [(1, 0), (3, 0), (3, 1), (3, 2)]);
    let because = scheduler.waiting_because(JobNumber(2)).unwrap();
    assert_eq!(because[0].reason, Reason::KindBound { running: 1 });
    scheduler.check();
}

#[test]
fn jobs_that_are_held_take_turns() {
    let mut scheduler = scheduler(4);
    scheduler.set_kind(KindId(0), KindLimits { concurrency: Some(1), rate: None }, 0);
    (1..4).for_each(|number| _ = scheduler.accept(job(number, &["", ""]), 0));
    let mut order = Vec::new();
    while let Some(start) = scheduler.poll_start(0) {
        assert_eq!(scheduler.poll_start(0), None);
        order.push(start);
        scheduler.ended(start.job, start.step, start.fence, End::Succeeded, 0).unwrap();
    }
    assert_eq!(names(&order), [(1, 0), (2, 0), (3, 0), (1, 1), (2, 1), (3, 1)]);
    scheduler.check_empty();
}

#[test]
fn a_rate_is_kept_and_its_timer_is_set() {
    let mut scheduler = scheduler(10);
    let rate = Rate { tokens: 2, period_ms: 1000, burst: 1 };
    scheduler.set_kind(KindId(0), KindLimits { concurrency: None, rate: Some(rate) }, 0);
    scheduler.accept(job(1, &[""; 4]), 0);
    let mut times = Vec::new();
    let mut now = 0;
    loop {
        times.extend(start_all(&mut scheduler, now).into_iter().map(|_| now));
        if times.len() == 4 {
            break;
        }
        let because = scheduler.explain(JobNumber(1), Step::Subtask(3)).unwrap();
        assert_eq!(because.reasons, [Reason::KindRate { until: Some(now + 500) }]);
        now = scheduler.next_timeout().unwrap();
        scheduler.handle_timeout(now);
    }
    assert_eq!(times, [0, 500, 1000, 1500]);
}
