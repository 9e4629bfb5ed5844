//! The latest subtask of a key replaces the one before it.

use super::{names, scheduler, start_all};
use crate::scheduler::{
    JobOutcome, NewJob, NewSubtask, RestoredState, RunEnd, Scheduler, Step, SupersededSubtask,
};
use crate::{JobNumber, KeyClaim, SubtaskId};

type Job = NewJob<Vec<NewSubtask<Vec<KeyClaim<'static>>>>>;

/// Job whose subtasks have the key `k`: one for each letter. `l` is a latest one, `o` an ordinary one.
fn job(number: u64, letters: &str) -> Job {
    let subtask = |(number, letter): (usize, char)| {
        let key = KeyClaim::exclusive(b"k");
        let keys = if letter == 'l' { vec![key, KeyClaim::LATEST] } else { vec![key] };
        NewSubtask { number: number as u32, keys, attempts_made: 0 }
    };
    NewJob::new(JobNumber(number), letters.chars().enumerate().map(subtask).collect())
}

fn id(job: u64, number: u32) -> SubtaskId {
    SubtaskId { job: JobNumber(job), number }
}

/// Replaced subtasks, each with the one that has replaced it.
fn replaced(by: &[SupersededSubtask]) -> Vec<(SubtaskId, SubtaskId)> {
    by.iter().map(|it| (it.subtask, it.by)).collect()
}

fn end_all(scheduler: &mut Scheduler) -> Vec<(u64, u32)> {
    let mut ended = Vec::new();
    while let Some(start) = scheduler.poll_start(0) {
        ended.extend(names(&[start]));
        scheduler.ended(start.job, start.step, start.fence, RunEnd::Succeeded, 0).unwrap();
    }
    ended
}

#[test]
fn the_last_of_those_that_wait_runs_and_its_job_and_the_others_are_over() {
    let mut scheduler = scheduler(1);
    scheduler.accept(job(1, "o"), 0);
    let first = start_all(&mut scheduler, 0)[0];
    assert_eq!(scheduler.accept(job(2, "l"), 0).superseded, []);
    let accepted = scheduler.accept(job(3, "lol"), 0);
    let wanted = [(id(2, 0), id(3, 0)), (id(3, 0), id(3, 2))];
    assert_eq!(replaced(&accepted.superseded), wanted);
    assert_eq!(accepted.superseded[0].over, Some(JobOutcome::Succeeded));
    assert_eq!(accepted.superseded[1].over, None);
    assert_eq!(scheduler.counts(JobNumber(2)), None);
    let counts = scheduler.counts(JobNumber(3)).unwrap();
    assert_eq!((counts.superseded, counts.waiting, counts.total()), (1, 2, 3));
    scheduler.ended(first.job, first.step, first.fence, RunEnd::Succeeded, 0).unwrap();
    assert_eq!(end_all(&mut scheduler), [(3, 1), (3, 2)]);
    scheduler.check_empty();
}

#[test]
fn one_that_has_started_is_not_replaced_whatever_became_of_the_start() {
    let failed = RunEnd::Failed { retry_at: Some(50) };
    for end in [failed, RunEnd::Lost, RunEnd::Withdrawn] {
        let mut scheduler = scheduler(1);
        scheduler.accept(NewJob { attempts_allowed: 2, ..job(1, "l") }, 0);
        let first = start_all(&mut scheduler, 0)[0];
        assert_eq!(scheduler.accept(job(2, "l"), 0).superseded, []);
        scheduler.ended(first.job, first.step, first.fence, end, 0).unwrap();
        let accepted = scheduler.accept(job(3, "l"), 0);
        assert_eq!(replaced(&accepted.superseded), [(id(2, 0), id(3, 0))], "{end:?}");
        scheduler.handle_timeout(50);
        assert_eq!(end_all(&mut scheduler), [(1, 0), (3, 0)], "{end:?}");
    }
}

#[test]
fn one_with_a_lease_or_an_attempt_before_a_restart_is_not_replaced() {
    let mut scheduler = scheduler(2);
    scheduler.accept(job(1, "l"), 0);
    let lease = RestoredState::Running { fence: 7, since: 0 };
    assert!(scheduler.restore(JobNumber(1), 0, lease, 0));
    assert_eq!(scheduler.accept(job(2, "l"), 0).superseded, []);
    let mut tried = job(3, "l");
    (tried.attempts_allowed, tried.subtasks[0].attempts_made) = (2, 1);
    // It has replaced the one before it when it was new.
    assert_eq!(scheduler.accept(tried, 0).superseded, []);
    let accepted = scheduler.accept(job(4, "l"), 0);
    assert_eq!(replaced(&accepted.superseded), [(id(2, 0), id(4, 0))]);
}

#[test]
fn one_that_waits_for_an_operator_or_a_slot_is_replaced_and_one_of_a_dropped_job_is_not() {
    let mut scheduler = scheduler(0);
    scheduler.accept(job(1, "l"), 0);
    let ready = scheduler.accept(job(2, "l"), 0);
    assert_eq!(replaced(&ready.superseded), [(id(1, 0), id(2, 0))]);
    scheduler.pause_key(b"k", 0);
    scheduler.pause_job(JobNumber(2), 0);
    let paused = scheduler.accept(job(3, "lo"), 0);
    assert_eq!(replaced(&paused.superseded), [(id(2, 0), id(3, 0))]);
    scheduler.cancel_job(JobNumber(3), 0);
    assert_eq!(scheduler.accept(job(4, "l"), 0).superseded, []);
    scheduler.resume_key(b"k", 0);
    scheduler.resize(1, 0);
    assert_eq!(end_all(&mut scheduler), [(4, 0)]);
    scheduler.check_empty();
}

#[test]
fn a_fan_in_runs_when_the_last_subtask_is_replaced() {
    let mut scheduler = scheduler(1);
    scheduler.accept(job(1, "o"), 0);
    let first = start_all(&mut scheduler, 0)[0];
    scheduler.accept(NewJob { fan_in: Some(0), ..job(2, "l") }, 0);
    scheduler.accept(job(3, "l"), 0);
    scheduler.ended(first.job, first.step, first.fence, RunEnd::Succeeded, 0).unwrap();
    let next = scheduler.poll_start(0).unwrap();
    assert_eq!((next.job, next.step), (JobNumber(2), Step::FanIn));
}
