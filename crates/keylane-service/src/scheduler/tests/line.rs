//! Only what shares a key with a large job waits while that enters.

use super::*;
use crate::scheduler::{EndedCounts, KeySet, PackedSubtasks, RunEnd, WaitCounts, WaitReason};

/// Keys `from` to `to` of a letter, one for each subtask.
fn packed(letter: char, numbers: std::ops::Range<u32>) -> PackedSubtasks {
    let mut packed = PackedSubtasks::default();
    for number in numbers {
        let key = format!("{letter}{number}");
        let keys = [key.as_bytes()];
        packed.push_within(NewSubtask { number, keys, attempts_made: 0 }, 4);
    }
    packed
}

/// A job of one subtask with these keys.
fn one(number: u64, keys: &[&'static str]) -> NewJob<Vec<NewSubtask<Keys>>> {
    let keys = keys.iter().map(|key| key.as_bytes()).collect();
    NewJob::new(JobNumber(number), vec![NewSubtask { number: 0, keys, attempts_made: 0 }])
}

fn slices_of_four() -> Scheduler {
    Scheduler::new(SchedulerSettings { slice: 4, ..SchedulerSettings::new(100) })
}

fn is_entering(scheduler: &Scheduler, job: u64, subtask: u32) -> bool {
    let explained = scheduler.explain(JobNumber(job), Step::Subtask(subtask)).unwrap();
    matches!(explained.reasons[..], [WaitReason::Entering { .. }])
}

fn work_off(scheduler: &mut Scheduler) -> Vec<u64> {
    let mut jobs = Vec::new();
    while let Some(done) = scheduler.work_off(0) {
        scheduler.check();
        jobs.push(done.job.0);
    }
    jobs
}

/// Each job waited until the large one had entered, whatever its keys were.
#[test]
fn what_shares_no_key_with_a_large_job_passes_it() {
    let mut scheduler = slices_of_four();
    scheduler.accept_packed(NewJob::new(JobNumber(1), packed('a', 0..100)), 0);
    assert!(is_entering(&scheduler, 1, 99));
    scheduler.accept(one(2, &["b"]), 0);
    assert!(!is_entering(&scheduler, 2, 0));
    // One key is one of the large job, entered or not.
    scheduler.accept(one(3, &["a99", "c"]), 0);
    scheduler.accept(one(4, &["a0"]), 0);
    // It waits for the one behind the large job, and not for that.
    scheduler.accept(one(5, &["c"]), 0);
    scheduler.accept(one(6, &["d"]), 0);
    assert_eq!([3, 4, 5, 6].map(|job| is_entering(&scheduler, job, 0)), [true, true, true, false]);
    scheduler.check();
    work_off(&mut scheduler);
    assert_eq!([3, 4, 5].map(|job| is_entering(&scheduler, job, 0)), [false; 3]);
    let starts = names(&start_all(&mut scheduler, 0));
    let starts_of = |job: u64| starts.iter().filter(|(other, _)| *other == job).count();
    assert_eq!([1, 2, 3, 4, 5, 6].map(starts_of), [98, 1, 0, 0, 0, 1]);
}

#[test]
fn large_jobs_enter_side_by_side_as_long_as_they_share_no_key() {
    let mut scheduler = slices_of_four();
    scheduler.accept_packed(NewJob::new(JobNumber(1), packed('a', 0..40)), 0);
    // The first half is its own, the second is the first job's.
    let mut mixed = packed('b', 0..20);
    for number in 20..40 {
        let key = format!("a{number}");
        let keys = [key.as_bytes()];
        mixed.push_within(NewSubtask { number, keys, attempts_made: 0 }, 4);
    }
    scheduler.accept_packed(NewJob::new(JobNumber(2), mixed), 0);
    assert!(!is_entering(&scheduler, 2, 0) && is_entering(&scheduler, 2, 19));
    let turns = work_off(&mut scheduler);
    let last_of_first = turns.iter().rposition(|job| *job == 1).unwrap();
    let before = turns[..last_of_first].iter().filter(|job| **job == 2).count();
    // It has entered its own half meanwhile, and then waited.
    assert!((8..=9).contains(&before), "{turns:?}");
    assert_eq!(turns[..6], [1, 2, 1, 2, 1, 2]);
    assert!(turns[last_of_first + 1..].iter().all(|job| *job == 2), "{turns:?}");
}

#[test]
fn all_parts_of_a_fed_job_are_before_what_shares_their_keys() {
    let mut scheduler = slices_of_four();
    let mut keys = KeySet::default();
    (0..40).for_each(|number| keys.add(format!("a{number}").as_bytes()));
    scheduler.accept_fed(NewJob::new(JobNumber(1), packed('a', 0..10)), 40, keys, 0);
    work_off(&mut scheduler);
    scheduler.accept(one(2, &["a39"]), 0);
    scheduler.accept(one(3, &["b"]), 0);
    assert_eq!([2, 3].map(|job| is_entering(&scheduler, job, 0)), [true, false]);
    scheduler.feed(JobNumber(1), packed('a', 10..40), 0);
    work_off(&mut scheduler);
    assert!(is_entering(&scheduler, 2, 0));
    scheduler.end_feed(JobNumber(1), EndedCounts::default(), 0);
    work_off(&mut scheduler);
    assert!(!is_entering(&scheduler, 2, 0));
    let starts = names(&start_all(&mut scheduler, 0));
    assert!(starts.contains(&(1, 39)) && !starts.contains(&(2, 0)));
}

#[test]
fn subtasks_that_were_not_fed_count_as_they_have_ended() {
    let mut scheduler = slices_of_four();
    let mut keys = KeySet::default();
    keys.add(b"a0");
    scheduler.accept_fed(NewJob::new(JobNumber(1), packed('a', 0..1)), 16, keys, 0);
    work_off(&mut scheduler);
    let rest = EndedCounts { succeeded: 1, failed: 2, cancelled: 4, superseded: 8 };
    assert_eq!(scheduler.end_feed(JobNumber(1), rest, 0), None);
    let counts = scheduler.counts(JobNumber(1)).unwrap();
    assert_eq!((counts.entering, counts.ready), (0, 1));
    assert_eq!(
        [counts.succeeded, counts.failed, counts.cancelled, counts.superseded],
        [1, 2, 4, 8]
    );
}

#[test]
fn subtasks_that_enter_are_counted_and_so_are_those_before_them() {
    let mut scheduler = slices_of_four();
    scheduler.accept_packed(NewJob::new(JobNumber(1), packed('a', 0..100)), 0);
    scheduler.accept(one(2, &["a99"]), 0);
    let entering = scheduler.counts(JobNumber(1)).unwrap().entering;
    assert!(entering > 80, "{entering}");
    let because = scheduler.waiting_because(JobNumber(2)).unwrap();
    assert!(matches!(because[0].reason, WaitReason::Entering { ahead } if ahead == entering));
    let mut counts = WaitCounts::default();
    [1, 2].iter().for_each(|job| scheduler.count_waits(JobNumber(*job), &mut counts));
    assert_eq!(counts.entering, entering + 1);
}

#[test]
fn packed_subtasks_say_how_much_memory_they_take() {
    let [few, many] = [10, 1000].map(|count| packed('a', 0..count));
    assert!(
        many.memory() > few.memory() + many.key_bytes() / 2,
        "{} {}",
        few.memory(),
        many.memory()
    );
}

/// A sweep of a large job, and a large job that enters, have their slices in turns.
#[test]
fn a_large_job_that_is_cancelled_keeps_no_other_from_entering() {
    let mut scheduler = slices_of_four();
    scheduler.accept_packed(NewJob::new(JobNumber(1), packed('a', 0..100)), 0);
    work_off(&mut scheduler);
    scheduler.cancel_job(JobNumber(1), 0);
    scheduler.accept_packed(NewJob::new(JobNumber(2), packed('b', 0..10)), 0);
    let turns = work_off(&mut scheduler);
    let last = turns.iter().rposition(|job| *job == 2).unwrap();
    assert!(last < 12 && turns.len() > 20, "{turns:?}");
}

/// Its timer is due before the sweep reaches it.
#[test]
fn a_subtask_of_a_cancelled_job_that_backed_off_does_not_start() {
    let mut scheduler = slices_of_four();
    let new = NewJob { attempts_allowed: 2, ..NewJob::new(JobNumber(1), packed('a', 0..40)) };
    scheduler.accept_packed(new, 0);
    work_off(&mut scheduler);
    for start in start_all(&mut scheduler, 0) {
        let end = RunEnd::Failed { retry_at: Some(5) };
        scheduler.ended(start.job, start.step, start.fence, end, 1).unwrap();
    }
    scheduler.cancel_job(JobNumber(1), 2);
    assert!(scheduler.has_work());
    scheduler.handle_timeout(5);
    scheduler.check();
    assert_eq!(start_all(&mut scheduler, 5), []);
    work_off(&mut scheduler);
    scheduler.check_empty();
}

#[test]
fn subtasks_without_keys_that_a_split_adds_pass_those_that_enter() {
    let mut scheduler = slices_of_four();
    let new = NewJob { split: Some(0), ..NewJob::new(JobNumber(1), packed('a', 0..100)) };
    scheduler.accept_packed(new, 0);
    assert!(start_all(&mut scheduler, 0).iter().any(|start| start.step == Step::Split));
    scheduler.add_subtasks(JobNumber(1), [subtask(100, "")], 0).unwrap();
    assert_eq!([99, 100].map(|number| is_entering(&scheduler, 1, number)), [true, false]);
}
