//! Pausing, cancelling, retrying and skipping, and the steps of a job.

use super::{job, names, scheduler, start_all, subtask};
use crate::JobNumber;
use crate::scheduler::{
    AcceptResult, JobFailurePolicy, JobOutcome, KeyFailurePolicy, KeyHeadError, NewJob, RunEnd,
    Scheduler, SchedulerSettings, Step, SubtaskFate, UnfinishedState, WaitReason,
};
use keylane_allocate::JobPolicy;

#[test]
fn a_rollup_waits_for_all_its_keys_and_delays_nobody_else() {
    let mut scheduler = scheduler(9);
    scheduler.accept(job(1, &["a", "b", "ab", "c", "a"]), 0);
    scheduler.accept(job(2, &["b", "c", ""]), 0);
    let first = start_all(&mut scheduler, 0);
    assert_eq!(names(&first), [(1, 0), (2, 2), (1, 1), (1, 3)]);
    for start in &first {
        scheduler.ended(start.job, start.step, start.fence, RunEnd::Succeeded, 1).unwrap();
        scheduler.check();
    }
    // The rollup, and the subtask behind c.
    let mut second = names(&start_all(&mut scheduler, 1));
    second.sort_unstable();
    assert_eq!(second, [(1, 2), (2, 1)]);
}

#[test]
fn a_head_that_backs_off_keeps_its_key_and_no_slot() {
    let mut scheduler = scheduler(1);
    let mut new = job(1, &["a", "a", "b"]);
    new.attempts_allowed = 2;
    scheduler.accept(new, 0);
    let start = scheduler.poll_start(0).unwrap();
    let end = RunEnd::Failed { retry_at: Some(50) };
    let ended = scheduler.ended(start.job, start.step, start.fence, end, 1).unwrap();
    assert_eq!(ended.fate, SubtaskFate::Again { at: Some(50) });
    let other = scheduler.poll_start(1).unwrap();
    assert_eq!(other.step, Step::Subtask(2));
    scheduler.ended(other.job, other.step, other.fence, RunEnd::Succeeded, 2).unwrap();
    assert_eq!(scheduler.poll_start(2), None);
    assert_eq!(scheduler.next_timeout(), Some(50));
    scheduler.handle_timeout(50);
    let again = scheduler.poll_start(50).unwrap();
    assert_eq!((again.step, again.attempt), (Step::Subtask(0), 2));
    assert!(again.fence > start.fence);
}

#[test]
fn a_stopped_key_goes_on_when_its_head_is_skipped() {
    let mut scheduler = scheduler(4);
    let mut new = job(1, &["a", "a"]);
    new.on_fail = KeyFailurePolicy::StopKey;
    scheduler.accept(new, 0);
    let start = scheduler.poll_start(0).unwrap();
    let end = RunEnd::Failed { retry_at: None };
    let ended = scheduler.ended(start.job, start.step, start.fence, end, 1).unwrap();
    assert_eq!((ended.fate, ended.over), (SubtaskFate::Stopped, None));
    assert_eq!(scheduler.key(b"a").unwrap().head.unwrap().state, UnfinishedState::Stopped);
    assert_eq!(scheduler.poll_start(1), None);
    let skipped = scheduler.skip_head(b"a", 2).unwrap();
    assert_eq!((skipped.job, skipped.subtask, skipped.ended.over), (JobNumber(1), 0, None));
    let next = scheduler.poll_start(2).unwrap();
    assert_eq!(scheduler.skip_head(b"a", 2), Err(KeyHeadError::Running));
    let ended = scheduler.ended(next.job, next.step, next.fence, RunEnd::Succeeded, 3).unwrap();
    assert_eq!(ended.over, Some(JobOutcome::Failed));
    scheduler.check_empty();
}

#[test]
fn a_job_that_fails_fast_says_what_it_drops_and_waits_for_what_runs() {
    let mut scheduler = scheduler(2);
    let mut new = job(1, &["", "", "", "a", "", "a"]);
    new.on_error = JobFailurePolicy::FailFast;
    scheduler.accept(new, 0);
    scheduler.accept(job(2, &["a"]), 0);
    let starts = start_all(&mut scheduler, 0);
    assert_eq!(names(&starts), [(1, 3), (1, 0)]);
    let end = RunEnd::Failed { retry_at: None };
    let ended = scheduler.ended(starts[1].job, starts[1].step, starts[1].fence, end, 1).unwrap();
    assert_eq!((ended.dropped, ended.over), (4, None));
    // Its other subtask runs, and keeps its key.
    assert_eq!(scheduler.poll_start(1), None);
    let start = starts[0];
    let ended = scheduler.ended(start.job, start.step, start.fence, RunEnd::Succeeded, 2).unwrap();
    assert_eq!(ended.over, Some(JobOutcome::Failed));
    assert_eq!(names(&start_all(&mut scheduler, 2)), [(2, 0)]);
}

#[test]
fn a_split_adds_subtasks_and_the_fan_in_comes_last() {
    let mut scheduler = scheduler(4);
    let mut new = job(1, &[]);
    (new.split, new.fan_in) = (Some(0), Some(0));
    scheduler.accept(new, 0);
    let split = scheduler.poll_start(0).unwrap();
    assert_eq!((split.step, scheduler.poll_start(0)), (Step::Split, None));
    scheduler.add_subtasks(JobNumber(1), [subtask(0, "a"), subtask(1, "a")], 1).unwrap();
    let first = scheduler.poll_start(1).unwrap();
    assert_eq!(first.step, Step::Subtask(0));
    scheduler.ended(first.job, first.step, first.fence, RunEnd::Succeeded, 2).unwrap();
    let second = scheduler.poll_start(2).unwrap();
    scheduler.ended(second.job, second.step, second.fence, RunEnd::Succeeded, 3).unwrap();
    // The split may still make some.
    assert_eq!(scheduler.poll_start(3), None);
    let ended = scheduler.ended(split.job, split.step, split.fence, RunEnd::Succeeded, 4).unwrap();
    assert_eq!(ended.over, None);
    let fan_in = scheduler.poll_start(4).unwrap();
    assert_eq!(fan_in.step, Step::FanIn);
    let ended =
        scheduler.ended(fan_in.job, fan_in.step, fan_in.fence, RunEnd::Succeeded, 5).unwrap();
    assert_eq!(ended.over, Some(JobOutcome::Succeeded));
    scheduler.check_empty();
}

#[test]
fn a_job_that_is_let_finish_ends_cancelled_if_its_fan_in_needs_another_attempt() {
    let mut scheduler = scheduler(4);
    let mut new = job(1, &[]);
    (new.fan_in, new.attempts_allowed) = (Some(0), 3);
    scheduler.accept(new, 0);
    let fan_in = scheduler.poll_start(0).unwrap();
    assert!(scheduler.let_finish(JobNumber(1)));
    let end = RunEnd::Failed { retry_at: Some(9) };
    let ended = scheduler.ended(fan_in.job, fan_in.step, fan_in.fence, end, 1).unwrap();
    assert_eq!(ended.over, Some(JobOutcome::Cancelled));
    scheduler.check_empty();
}

#[test]
fn a_scheduled_job_blocks_no_key_and_stands_where_it_begins() {
    let mut scheduler = scheduler(4);
    let mut new = job(1, &["a"]);
    new.start_at = Some(100);
    scheduler.accept(new, 0);
    scheduler.accept(job(2, &["a", "a"]), 0);
    let first = scheduler.poll_start(0).unwrap();
    assert_eq!(first.job, JobNumber(2));
    assert_eq!(scheduler.handle_timeout(99), []);
    assert_eq!(scheduler.handle_timeout(100), [JobNumber(1)]);
    // Told once; and it is not in the order before it is told to begin.
    assert_eq!(scheduler.handle_timeout(100), []);
    scheduler.accept(job(3, &["a"]), 100);
    assert_eq!(
        scheduler.begin(JobNumber(1), 100),
        Some(AcceptResult { entered: 1, ..AcceptResult::default() })
    );
    assert_eq!(scheduler.begin(JobNumber(1), 100), None);
    let mut order = vec![first];
    while let Some(start) = order.last().copied() {
        scheduler.ended(start.job, start.step, start.fence, RunEnd::Succeeded, 100).unwrap();
        let Some(next) = scheduler.poll_start(100) else { break };
        order.push(next);
    }
    assert_eq!(names(&order), [(2, 0), (2, 1), (3, 0), (1, 0)]);
}

#[test]
fn nothing_starts_while_it_drains_and_what_runs_ends() {
    let mut scheduler = scheduler(1);
    scheduler.accept(job(1, &["", ""]), 0);
    let start = scheduler.poll_start(0).unwrap();
    scheduler.drain();
    scheduler.ended(start.job, start.step, start.fence, RunEnd::Succeeded, 0).unwrap();
    assert_eq!(scheduler.poll_start(0), None);
    assert!(scheduler.slots().draining);
}

/// The caller's clock is set: what lasts goes on lasting, and all times are those of that clock.
#[test]
fn all_that_is_said_goes_by_the_clock_that_was_set() {
    for by in [7_000, -7_000] {
        let mut scheduler = scheduler(1);
        let clock = |steady: u64| steady.strict_add_signed(by);
        let mut new = job(1, &["a", "b", "c"]);
        new.attempts_allowed = 2;
        scheduler.accept(new, 10_000);
        let mut later = job(2, &["z"]);
        later.start_at = Some(30_000);
        scheduler.accept(later, 10_000);
        let start = scheduler.poll_start(10_000).unwrap();
        let end = RunEnd::Failed { retry_at: Some(20_000) };
        scheduler.ended(start.job, start.step, start.fence, end, 11_000).unwrap();
        let running = scheduler.poll_start(11_000).unwrap();
        scheduler.shift(by);

        let backs_off = scheduler.explain(JobNumber(1), Step::Subtask(0)).unwrap();
        assert_eq!(backs_off.state, UnfinishedState::BackingOff { until: clock(20_000) });
        assert_eq!(backs_off.reasons, [WaitReason::BackingOff { until: clock(20_000) }]);
        let runs = scheduler.explain(JobNumber(1), running.step).unwrap();
        assert_eq!(
            runs.state,
            UnfinishedState::Running { fence: running.fence, since: clock(11_000) }
        );
        assert_eq!(scheduler.running()[0].since, clock(11_000));
        assert_eq!(scheduler.key(b"c").unwrap().head.unwrap().since, clock(10_000));
        // The time of a job that was put off is one of the calendar.
        assert_eq!(scheduler.next_timeout(), Some(clock(20_000).min(30_000)));
        assert_eq!(scheduler.handle_timeout(clock(20_000) - 1), []);
        assert_eq!(scheduler.handle_timeout(29_999), []);
        assert_eq!(scheduler.handle_timeout(30_000), [JobNumber(2)]);
        let end = RunEnd::Failed { retry_at: Some(clock(50_000)) };
        let ended = scheduler.ended(running.job, running.step, running.fence, end, clock(40_000));
        assert_eq!(ended.unwrap().fate, SubtaskFate::Again { at: Some(clock(50_000)) });
    }
}

#[test]
fn a_restored_subtask_without_an_attempt_left_fails_and_says_how_many_it_drops() {
    let mut scheduler = scheduler(4);
    let mut new = job(1, &["a", "a", "a", "b"]);
    (new.on_error, new.subtasks[0].attempts_made) = (JobFailurePolicy::FailFast, 1);
    let accepted = scheduler.accept(new, 0);
    assert_eq!(accepted.failed, [Step::Subtask(0)]);
    assert_eq!((accepted.dropped, accepted.over), (3, Some(JobOutcome::Failed)));
    scheduler.check_empty();
}

#[test]
fn a_ready_subtask_is_told_whether_it_starts_at_once_or_how_many_jobs_come_before() {
    let order = JobPolicy::Balanced;
    let settings = SchedulerSettings { order, max_active: Some(1), ..SchedulerSettings::new(1) };
    let mut scheduler = Scheduler::new(settings);
    let reason = |scheduler: &Scheduler, number: u64| {
        scheduler.waiting_because(JobNumber(number)).unwrap()[0].reason.clone()
    };
    scheduler.accept(job(1, &[""; 2]), 0);
    assert_eq!(reason(&scheduler, 1), WaitReason::Starting);
    scheduler.poll_start(0).unwrap();
    let waits = reason(&scheduler, 1);
    assert_eq!(waits, WaitReason::NoSlot { running: 1, slots: 1, ahead: Some(0) });
}

#[test]
fn as_many_decisions_are_kept_as_is_set() {
    let settings = SchedulerSettings { decisions_kept: 2, ..SchedulerSettings::new(9) };
    let mut scheduler = Scheduler::new(settings);
    scheduler.accept(job(1, &[""; 3]), 0);
    start_all(&mut scheduler, 0);
    let kept: Vec<Step> = scheduler.decisions(9).map(|decision| decision.start.step).collect();
    assert_eq!(kept, [Step::Subtask(1), Step::Subtask(2)]);
}

/// The need of a job is divided by its weight.
#[test]
fn a_job_with_a_high_weight_is_not_behind_a_shorter_one() {
    let settings = SchedulerSettings { order: JobPolicy::Balanced, ..SchedulerSettings::new(2) };
    let mut scheduler = Scheduler::new(settings);
    scheduler.accept(job(1, &[""; 6]), 0);
    scheduler.poll_start(0).unwrap();
    scheduler.accept(NewJob { weight: 5, ..job(2, &[""; 20]) }, 0);
    assert_eq!(names(&start_all(&mut scheduler, 0)), [(2, 0)]);
    let ahead = |scheduler: &Scheduler, number: u64| match scheduler
        .waiting_because(JobNumber(number))
        .unwrap()[0]
        .reason
    {
        WaitReason::NoSlot { ahead, .. } => ahead,
        _ => panic!("it waits for a slot"),
    };
    assert_eq!([1, 2].map(|number| ahead(&scheduler, number)), [Some(1), Some(0)]);
}
