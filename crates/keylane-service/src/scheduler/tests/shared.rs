//! Keys that subtasks share.

use super::{names, scheduler, start_all};
use crate::scheduler::lanes::ADVANCED_AT_ONCE;
use crate::scheduler::{
    KeyFailurePolicy, KeyHeadError, KeySort, NewJob, NewSubtask, RunEnd, RunStart, Scheduler, Step,
    UnfinishedState, WaitReason,
};
use crate::{JobNumber, KeyClaim};

const ALONE: KeyClaim<'static> = KeyClaim { key: b"k", is_shared: false };
const SHARED: KeyClaim<'static> = KeyClaim { key: b"k", is_shared: true };

type Job = NewJob<Vec<NewSubtask<[KeyClaim<'static>; 1]>>>;

/// Job whose subtasks use one key.
fn job(number: u64, uses: &[KeyClaim<'static>]) -> Job {
    let subtask = |(number, claim): (usize, &KeyClaim<'static>)| NewSubtask {
        number: number as u32,
        keys: [*claim],
        attempts_made: 0,
    };
    NewJob::new(JobNumber(number), uses.iter().enumerate().map(subtask).collect())
}

fn end(scheduler: &mut Scheduler, start: RunStart, end: RunEnd) {
    scheduler.ended(start.job, start.step, start.fence, end, 0).unwrap();
}

#[test]
fn those_that_share_a_key_run_together_between_those_that_do_not() {
    let mut scheduler = scheduler(9);
    scheduler.accept(job(1, &[SHARED, SHARED, ALONE, SHARED]), 0);
    scheduler.accept(job(2, &[SHARED, ALONE]), 0);
    let first = start_all(&mut scheduler, 0);
    assert_eq!(names(&first), [(1, 0), (1, 1)]);
    end(&mut scheduler, first[1], RunEnd::Succeeded);
    assert_eq!(start_all(&mut scheduler, 0), []);
    end(&mut scheduler, first[0], RunEnd::Succeeded);
    let alone = start_all(&mut scheduler, 0);
    assert_eq!(names(&alone), [(1, 2)]);
    end(&mut scheduler, alone[0], RunEnd::Succeeded);
    let mut last = start_all(&mut scheduler, 0);
    last.sort_by_key(|start| start.job);
    assert_eq!(names(&last), [(1, 3), (2, 0)]);
    // One that waits is named with the one that it waits for, and that is not the head.
    let explained = scheduler.explain(JobNumber(2), Step::Subtask(1)).unwrap();
    let [WaitReason::KeyOrder { is_shared: false, ahead: 2, behind, head, .. }] =
        explained.reasons[..]
    else {
        panic!("{explained:?}")
    };
    assert_eq!((behind.job, head.of.job, head.is_shared), (JobNumber(2), JobNumber(1), true));
}

#[test]
fn very_many_that_share_a_key_come_to_the_front_in_slices() {
    let many = 3 * ADVANCED_AT_ONCE as usize + 1;
    let mut scheduler = scheduler(many + 2);
    scheduler.accept(job(1, &[ALONE]), 0);
    let first = start_all(&mut scheduler, 0);
    scheduler.accept(job(2, &vec![SHARED; many]), 0);
    scheduler.accept(job(3, &[ALONE]), 0);
    end(&mut scheduler, first[0], RunEnd::Succeeded);
    assert_eq!(start_all(&mut scheduler, 0).len(), ADVANCED_AT_ONCE as usize);
    scheduler.check();
    // One that enters meanwhile does not pass the exclusive one, and one that is dropped is skipped.
    scheduler.accept(job(4, &[SHARED]), 0);
    scheduler.cancel_job(JobNumber(3), 0).unwrap();
    scheduler.check();
    let mut slices = 0;
    while scheduler.has_work() {
        scheduler.work_off(0).unwrap();
        scheduler.check();
        slices += 1;
    }
    assert_eq!(slices, 3);
    let rest = start_all(&mut scheduler, 0);
    assert_eq!(rest.len(), many - ADVANCED_AT_ONCE as usize + 1);
}

#[test]
fn a_pause_stops_all_that_share_the_key_and_a_restored_one_runs_beside_the_others() {
    let mut scheduler = scheduler(1);
    scheduler.accept(job(1, &[SHARED, SHARED, SHARED]), 0);
    let first = start_all(&mut scheduler, 0);
    assert!(scheduler.pause_key(b"k", 0) && !scheduler.pause_key(b"k", 0));
    scheduler.resize(3, 0);
    assert_eq!(start_all(&mut scheduler, 0), []);
    let was = super::super::RestoredState::Running { fence: 0, since: 0 };
    // The second waits for the pause alone, so a lease of it may go on.
    assert!(scheduler.restore(JobNumber(1), 1, was, 0));
    scheduler.check();
    end(&mut scheduler, first[0], RunEnd::Succeeded);
    assert!(scheduler.resume_key(b"k", 0));
    assert_eq!(names(&start_all(&mut scheduler, 0)), [(1, 2)]);
    scheduler.check();
}

#[test]
fn one_that_stops_a_shared_key_is_its_head_and_holds_up_only_those_that_conflict() {
    let mut scheduler = scheduler(3);
    let stops = |job: Job| NewJob { on_fail: KeyFailurePolicy::StopKey, ..job };
    scheduler.accept(stops(job(1, &[SHARED, SHARED, ALONE])), 0);
    let first = start_all(&mut scheduler, 0);
    assert_eq!(scheduler.skip_head(b"k", 0).unwrap_err(), KeyHeadError::Running);
    end(&mut scheduler, first[1], RunEnd::Failed { retry_at: None });
    let head = scheduler.key(b"k").unwrap().head.unwrap();
    assert_eq!((head.of.step, head.state), (Step::Subtask(1), UnfinishedState::Stopped));
    end(&mut scheduler, first[0], RunEnd::Succeeded);
    assert_eq!(start_all(&mut scheduler, 0), []);
    let explained = scheduler.explain(JobNumber(1), Step::Subtask(2)).unwrap();
    assert!(matches!(explained.reasons[..], [WaitReason::KeyStopped { .. }]), "{explained:?}");
    assert_eq!(scheduler.skip_head(b"k", 0).unwrap().subtask, 1);
    assert_eq!(names(&start_all(&mut scheduler, 0)), [(1, 2)]);
    scheduler.check();
}

#[test]
fn a_key_that_is_shared_and_exclusive_is_exclusive() {
    for uses in [[SHARED, ALONE], [ALONE, SHARED]] {
        let mut scheduler = scheduler(2);
        let subtask = |number| NewSubtask { number, keys: uses, attempts_made: 0 };
        scheduler.accept(job(1, &[SHARED]), 0);
        scheduler.accept(NewJob::new(JobNumber(2), [subtask(0)]), 0);
        assert_eq!(names(&start_all(&mut scheduler, 0)), [(1, 0)]);
        scheduler.check();
    }
}

#[test]
fn a_barrier_runs_after_all_earlier_ones_of_its_job_and_before_all_later_ones() {
    let mut scheduler = scheduler(9);
    let subtask =
        |number: u32, keys: Vec<KeyClaim<'static>>| NewSubtask { number, keys, attempts_made: 0 };
    let subtasks = [vec![], vec![ALONE], vec![KeyClaim::BARRIER], vec![], vec![]];
    let subtasks = (0..).zip(subtasks).map(|(number, keys)| subtask(number, keys));
    let failing =
        NewJob { on_fail: KeyFailurePolicy::StopKey, ..NewJob::new(JobNumber(1), subtasks) };
    scheduler.accept(failing, 0);
    scheduler.accept(job(2, &[ALONE, SHARED]), 0);
    let first = start_all(&mut scheduler, 0);
    assert_eq!(names(&first), [(1, 0), (1, 1)]);
    let explained = |scheduler: &Scheduler, number| {
        scheduler.explain(JobNumber(1), Step::Subtask(number)).unwrap().reasons.remove(0)
    };
    let WaitReason::Barrier { is_barrier: true, ahead: 2, head, .. } = explained(&scheduler, 2)
    else {
        panic!("{:?}", explained(&scheduler, 2))
    };
    assert_eq!(head.of.step, Step::Subtask(0));
    let WaitReason::Barrier { is_barrier: false, behind, .. } = explained(&scheduler, 4) else {
        panic!("{:?}", explained(&scheduler, 4))
    };
    assert_eq!(behind.step, Step::Subtask(2));
    // The lane of the job is no key.
    assert_eq!(scheduler.slots().keys, 1);
    assert_eq!(scheduler.keys(KeySort::Length, 9).len(), 1);
    first.iter().for_each(|start| end(&mut scheduler, *start, RunEnd::Succeeded));
    // A barrier without a key does not hold up other jobs.
    let second = start_all(&mut scheduler, 0);
    assert_eq!(names(&second), [(1, 2), (2, 0)]);
    // It fails, because no command on a key could release it.
    end(&mut scheduler, second[0], RunEnd::Failed { retry_at: None });
    assert_eq!(names(&start_all(&mut scheduler, 0)), [(1, 3), (1, 4)]);
    scheduler.check();
}
