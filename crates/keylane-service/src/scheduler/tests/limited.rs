//! Keys that several subtasks have at a time, without an order among them.

use super::{names, scheduler, start_all};
use crate::scheduler::{
    KeyFailurePolicy, NewJob, NewSubtask, RestoredState, RunEnd, RunStart, Scheduler, Step,
    UnfinishedState, WaitReason,
};
use crate::{JobNumber, KeyClaim};

type Job = NewJob<Vec<NewSubtask<[KeyClaim<'static>; 1]>>>;

/// Job with subtasks that have the key `k` and a limit.
fn job(number: u64, max_per_key: u16, count: u32) -> Job {
    let keys = [KeyClaim::exclusive(b"k")];
    let subtask = |number| NewSubtask { number, keys, attempts_made: 0 };
    let new = NewJob::new(JobNumber(number), (0..count).map(subtask).collect());
    NewJob { max_per_key: Some(max_per_key), ..new }
}

fn end(scheduler: &mut Scheduler, start: RunStart, end: RunEnd) {
    scheduler.ended(start.job, start.step, start.fence, end, 0).unwrap();
}

#[test]
fn as_many_as_the_limit_run_and_each_end_lets_the_next_one_start() {
    let mut scheduler = scheduler(9);
    scheduler.accept(job(1, 3, 5), 0);
    let first = start_all(&mut scheduler, 0);
    assert_eq!(names(&first), [(1, 0), (1, 1), (1, 2)]);
    let explained = scheduler.explain(JobNumber(1), Step::Subtask(4)).unwrap();
    let [WaitReason::KeyLimit { limit: 3, ahead: 4, head, .. }] = explained.reasons[..] else {
        panic!("{explained:?}")
    };
    assert_eq!(head.of.step, Step::Subtask(0));
    // One in the middle, and one that comes back.
    end(&mut scheduler, first[1], RunEnd::Succeeded);
    assert_eq!(names(&start_all(&mut scheduler, 0)), [(1, 3)]);
    end(&mut scheduler, first[2], RunEnd::Withdrawn);
    assert_eq!(names(&start_all(&mut scheduler, 0)), [(1, 2)]);
    end(&mut scheduler, first[0], RunEnd::Succeeded);
    assert_eq!(names(&start_all(&mut scheduler, 0)), [(1, 4)]);
}

#[test]
fn one_with_the_key_alone_and_those_that_share_it_come_between() {
    let mut scheduler = scheduler(9);
    scheduler.accept(job(1, 2, 2), 0);
    scheduler.accept(job(2, 1, 1), 0);
    let shared = [KeyClaim::shared(b"k")];
    let shared = (0..2).map(|number| NewSubtask { number, keys: shared, attempts_made: 0 });
    scheduler.accept(NewJob::new(JobNumber(3), shared.collect::<Vec<_>>()), 0);
    scheduler.accept(job(4, 2, 3), 0);
    let mut order = Vec::new();
    loop {
        let starts = start_all(&mut scheduler, 0);
        if starts.is_empty() {
            break;
        }
        order.push(starts.iter().map(|start| start.job.0).collect::<Vec<_>>());
        starts.into_iter().for_each(|start| end(&mut scheduler, start, RunEnd::Succeeded));
    }
    assert_eq!(order, [vec![1, 1], vec![2], vec![3, 3], vec![4, 4], vec![4]]);
    scheduler.check_empty();
}

#[test]
fn the_least_limit_of_those_in_front_holds() {
    let mut scheduler = scheduler(9);
    scheduler.accept(job(1, 2, 1), 0);
    scheduler.accept(job(2, 3, 4), 0);
    let first = start_all(&mut scheduler, 0);
    assert_eq!(names(&first), [(1, 0), (2, 0)]);
    // With it the smaller limit goes, and two more may start.
    end(&mut scheduler, first[0], RunEnd::Succeeded);
    assert_eq!(names(&start_all(&mut scheduler, 0)), [(2, 1), (2, 2)]);
}

#[test]
fn one_that_waits_for_a_retry_or_an_operator_keeps_its_place_also_after_a_restart() {
    let mut scheduler = scheduler(9);
    let stop = || NewJob { on_fail: KeyFailurePolicy::StopKey, ..job(1, 2, 4) };
    scheduler.accept(NewJob { attempts_allowed: 2, ..stop() }, 0);
    let first = start_all(&mut scheduler, 0);
    end(&mut scheduler, first[0], RunEnd::Failed { retry_at: Some(9) });
    assert_eq!(start_all(&mut scheduler, 0), []);
    end(&mut scheduler, first[1], RunEnd::Failed { retry_at: None });
    let key = scheduler.key(b"k").unwrap();
    // The stopped one is the head, so that the commands on the key find it.
    assert_eq!(key.head.map(|head| head.of.step), Some(Step::Subtask(1)));
    assert_eq!(key.head.map(|head| head.state), Some(UnfinishedState::Stopped));
    assert_eq!(start_all(&mut scheduler, 0), []);
    scheduler.skip_head(b"k", 0).unwrap();
    assert_eq!(names(&start_all(&mut scheduler, 0)), [(1, 2)]);

    let mut restarted = super::scheduler(9);
    restarted.accept(NewJob { attempts_allowed: 2, ..stop() }, 0);
    let lease = RestoredState::Running { fence: 7, since: 0 };
    assert!(restarted.restore(JobNumber(1), 1, lease, 0));
    assert!(!restarted.restore(JobNumber(1), 2, lease, 0));
    assert_eq!(names(&start_all(&mut restarted, 0)), [(1, 0)]);
}

#[test]
fn a_paused_key_lets_none_start_and_then_all_of_them() {
    let mut scheduler = scheduler(9);
    scheduler.accept(job(1, 2, 3), 0);
    let first = start_all(&mut scheduler, 0);
    scheduler.pause_key(b"k", 0);
    end(&mut scheduler, first[0], RunEnd::Succeeded);
    assert_eq!(start_all(&mut scheduler, 0), []);
    scheduler.resume_key(b"k", 0);
    assert_eq!(names(&start_all(&mut scheduler, 0)), [(1, 2)]);
}
