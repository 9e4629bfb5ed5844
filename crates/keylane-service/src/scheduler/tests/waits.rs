//! Waits are measured and counted by their reason.

use super::{job, scheduler};
use crate::JobNumber;
use crate::scheduler::{KeyFailurePolicy, KindLimits, RunEnd, Scheduler, WaitCounts};

/// Numbers of waits for a key, a slot and a retry, and their sums in milliseconds.
fn measured(scheduler: &Scheduler) -> [(u64, u64); 3] {
    let waits = scheduler.wait_durations();
    [&waits.key, &waits.slot, &waits.backoff].map(|all| (all.count(), all.sum_ms()))
}

fn counted(scheduler: &Scheduler, jobs: u64) -> WaitCounts {
    let mut counts = WaitCounts::default();
    (1..=jobs).for_each(|job| scheduler.count_waits(JobNumber(job), &mut counts));
    counts
}

#[test]
fn a_wait_for_a_key_and_one_for_a_slot_are_measured_apart() {
    let mut scheduler = scheduler(1);
    scheduler.accept(job(1, &["a", "a"]), 100);
    let first = scheduler.poll_start(130).unwrap();
    assert_eq!(measured(&scheduler), [(0, 0), (1, 30), (0, 0)]);
    scheduler.ended(first.job, first.step, first.fence, RunEnd::Succeeded, 150).unwrap();
    assert_eq!(measured(&scheduler)[0], (1, 50));
    scheduler.poll_start(157).unwrap();
    assert_eq!(measured(&scheduler), [(1, 50), (2, 37), (0, 0)]);
}

#[test]
fn subtasks_without_keys_wait_for_a_slot_only() {
    let mut scheduler = scheduler(9);
    scheduler.accept(job(1, &["", ""]), 100);
    scheduler.poll_start(110).unwrap();
    scheduler.poll_start(115).unwrap();
    assert_eq!(measured(&scheduler), [(0, 0), (2, 25), (0, 0)]);
}

#[test]
fn a_pause_of_a_key_ends_the_wait_for_a_slot_and_begins_one_for_the_key() {
    let mut scheduler = scheduler(1);
    scheduler.accept(job(1, &["a"]), 100);
    scheduler.pause_key(b"a", 120);
    assert_eq!(measured(&scheduler), [(0, 0), (1, 20), (0, 0)]);
    scheduler.resume_key(b"a", 170);
    scheduler.poll_start(171).unwrap();
    assert_eq!(measured(&scheduler), [(1, 50), (2, 21), (0, 0)]);
}

#[test]
fn a_retry_waits_as_long_as_planned_and_then_for_a_slot() {
    let mut scheduler = scheduler(1);
    let mut new = job(1, &["a"]);
    new.attempts_allowed = 3;
    scheduler.accept(new, 0);
    let first = scheduler.poll_start(0).unwrap();
    let end = RunEnd::Failed { retry_at: Some(60) };
    scheduler.ended(first.job, first.step, first.fence, end, 10).unwrap();
    scheduler.handle_timeout(60);
    let second = scheduler.poll_start(64).unwrap();
    assert_eq!(measured(&scheduler), [(0, 0), (2, 4), (1, 50)]);
    // Without a backoff, it is ready at once.
    scheduler.ended(second.job, second.step, second.fence, RunEnd::Lost, 70).unwrap();
    scheduler.poll_start(71).unwrap();
    assert_eq!(measured(&scheduler), [(1, 0), (3, 5), (1, 50)]);
}

#[test]
fn waiting_subtasks_are_counted_by_reason() {
    let mut scheduler = scheduler(1);
    scheduler.accept(job(1, &["a", "a", "b"]), 0);
    let mut stops = job(2, &["c", "c"]);
    stops.on_fail = KeyFailurePolicy::StopKey;
    scheduler.accept(stops, 0);
    let mut delayed = job(3, &["", ""]);
    delayed.start_at = Some(500);
    scheduler.accept(delayed, 0);
    let slot = |key, slot, scheduled| WaitCounts { key, slot, scheduled, ..WaitCounts::default() };
    assert_eq!(counted(&scheduler, 3), slot(2, 3, 2));
    let first = scheduler.poll_start(0).unwrap();
    assert_eq!(counted(&scheduler, 3), slot(2, 2, 2));
    scheduler.pause_job(JobNumber(1), 0);
    let paused = WaitCounts { paused: 1, ..slot(2, 1, 2) };
    assert_eq!(counted(&scheduler, 3), paused);
    scheduler.ended(first.job, first.step, first.fence, RunEnd::Succeeded, 1).unwrap();
    let stopping = scheduler.poll_start(1).unwrap();
    let end = RunEnd::Failed { retry_at: None };
    scheduler.ended(stopping.job, stopping.step, stopping.fence, end, 2).unwrap();
    let stopped = WaitCounts { paused: 2, stopped: 1, ..slot(1, 0, 2) };
    assert_eq!(counted(&scheduler, 3), stopped);
    scheduler.resume_job(JobNumber(1), 3);
    let kind = job(1, &[]).kind;
    scheduler.set_kind(kind, KindLimits { concurrency: Some(0), ..KindLimits::default() }, 3);
    assert_eq!(counted(&scheduler, 3), stopped);
    scheduler.set_kind(kind, KindLimits { concurrency: Some(1), ..KindLimits::default() }, 3);
    scheduler.poll_start(3).unwrap();
    let limited = WaitCounts { kind: 1, stopped: 1, ..slot(1, 0, 2) };
    assert_eq!(counted(&scheduler, 3), limited);
}

/// Numbers of subtasks by the reason for which a job waits, of those that are not ready.
fn explained(scheduler: &Scheduler, job: u64) -> Vec<u64> {
    let reasons = scheduler.waiting_because(JobNumber(job)).unwrap();
    reasons.iter().map(|because| because.subtasks).collect()
}

#[test]
fn the_reasons_of_a_job_count_all_of_its_subtasks_though_a_few_are_looked_at() {
    let mut scheduler = scheduler(1);
    scheduler.accept(job(1, &["a"]), 0);
    scheduler.poll_start(0).unwrap();
    scheduler.accept(job(2, &["a", "a", "a"]), 0);
    assert_eq!(explained(&scheduler, 2), [3]);
    scheduler.accept(job(3, &["a"; 400]), 0);
    assert_eq!(explained(&scheduler, 3), [400]);
}
