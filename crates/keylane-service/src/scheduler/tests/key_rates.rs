//! Rates of keys.

use super::{job, names, scheduler, start_all, subtask};
use crate::scheduler::{
    KindId, KindLimits, NewJob, NewSubtask, RateLimit, RunEnd, RunStart, Scheduler, Step,
    UnfinishedState, WaitReason,
};
use crate::{JobNumber, Key, KeyClaim};

/// One start in 100 ms, and this number at once.
fn with_rate(slots: usize, burst: u32) -> Scheduler {
    let mut scheduler = scheduler(slots);
    let rate_per_key = Some(RateLimit { tokens: 1, period_ms: 100, burst });
    scheduler.set_kind(KindId(0), KindLimits { rate_per_key, ..KindLimits::default() }, 0);
    scheduler
}

fn end(scheduler: &mut Scheduler, starts: Vec<RunStart>, now: u64) {
    for start in starts {
        scheduler.ended(start.job, start.step, start.fence, RunEnd::Succeeded, now).unwrap();
    }
}

#[test]
fn a_key_starts_at_its_rate_and_other_keys_and_kinds_go_on() {
    let mut scheduler = with_rate(9, 2);
    scheduler.accept(job(1, &["a", "a", "a", "b", ""]), 0);
    let first = start_all(&mut scheduler, 0);
    assert_eq!(names(&first), [(1, 0), (1, 3), (1, 4)]);
    end(&mut scheduler, first, 10);
    // The burst, and then one after another.
    let second = start_all(&mut scheduler, 10);
    assert_eq!(names(&second), [(1, 1)]);
    end(&mut scheduler, second, 20);
    assert_eq!(start_all(&mut scheduler, 99), []);
    let explained = scheduler.explain(JobNumber(1), Step::Subtask(2)).unwrap();
    let key = Key::new("a");
    assert_eq!(explained.reasons, [WaitReason::KeyRate { key, until: Some(100) }]);
    assert_eq!(explained.state, UnfinishedState::Waiting);
    assert_eq!(scheduler.next_timeout(), Some(100));
    scheduler.accept(NewJob { kind: KindId(7), ..job(2, &["c"]) }, 99);
    assert_eq!(names(&start_all(&mut scheduler, 99)), [(2, 0)]);
    let third = start_all(&mut scheduler, 100);
    assert_eq!(names(&third), [(1, 2)]);
    end(&mut scheduler, third, 100);
    // Nothing is kept of a key whose bucket is full.
    assert_eq!(scheduler.keys_with_rate(), 1);
    scheduler.handle_timeout(1000);
    assert_eq!((scheduler.keys_with_rate(), scheduler.next_timeout()), (0, None));
}

#[test]
fn a_retry_takes_a_token_and_several_keys_take_one_each() {
    let mut scheduler = with_rate(9, 1);
    scheduler.accept(NewJob { attempts_allowed: 2, ..job(1, &["ab"]) }, 0);
    let first = start_all(&mut scheduler, 0)[0];
    let retry = RunEnd::Failed { retry_at: Some(30) };
    scheduler.ended(first.job, first.step, first.fence, retry, 10).unwrap();
    scheduler.handle_timeout(30);
    assert_eq!(start_all(&mut scheduler, 99), []);
    let second = start_all(&mut scheduler, 100);
    assert_eq!(second[0].attempt, 2);
    end(&mut scheduler, second, 110);
    scheduler.accept(job(2, &["b", "a"]), 110);
    assert_eq!(start_all(&mut scheduler, 199), []);
    assert_eq!(start_all(&mut scheduler, 200).len(), 2);
}

#[test]
fn of_those_that_limit_a_key_one_starts_for_each_token() {
    let mut scheduler = with_rate(9, 2);
    let keys = [KeyClaim::exclusive(b"k")];
    let subtasks = (0..4).map(|number| NewSubtask { number, keys, attempts_made: 0 });
    let limited = NewJob::new(JobNumber(1), subtasks.collect::<Vec<_>>());
    scheduler.accept(NewJob { max_per_key: Some(4), ..limited }, 0);
    assert_eq!(start_all(&mut scheduler, 0).len(), 2);
    for now in [100, 200] {
        assert_eq!(start_all(&mut scheduler, now - 1), []);
        assert_eq!(start_all(&mut scheduler, now).len(), 1);
    }
}

#[test]
fn one_that_is_held_back_can_be_paused_skipped_and_cancelled() {
    let mut scheduler = with_rate(1, 1);
    scheduler.accept(job(1, &["a"]), 0);
    let first = start_all(&mut scheduler, 0);
    end(&mut scheduler, first, 0);
    scheduler.accept(job(2, &["a"]), 0);
    scheduler.accept(job(3, &["a"]), 0);
    scheduler.accept(NewJob::new(JobNumber(4), vec![subtask(0, "a")]), 0);
    scheduler.pause_key(b"a", 0);
    assert_eq!(start_all(&mut scheduler, 100), []);
    scheduler.check();
    scheduler.skip_head(b"a", 100).unwrap();
    scheduler.cancel_job(JobNumber(3), 100).unwrap();
    scheduler.resume_key(b"a", 100);
    let last = start_all(&mut scheduler, 100);
    assert_eq!(names(&last), [(4, 0)]);
    end(&mut scheduler, last, 100);
    scheduler.check_empty();
}

#[test]
fn another_rate_fills_the_buckets_and_releases_those_that_wait() {
    let mut scheduler = with_rate(9, 1);
    scheduler.accept(job(1, &["a", "b"]), 0);
    let first = start_all(&mut scheduler, 0);
    end(&mut scheduler, first, 0);
    scheduler.accept(job(2, &["a", "b"]), 0);
    assert_eq!(start_all(&mut scheduler, 0), []);
    scheduler.set_kind(KindId(0), KindLimits::default(), 1);
    assert_eq!(start_all(&mut scheduler, 1).len(), 2);
    assert_eq!(scheduler.keys_with_rate(), 0);
}
