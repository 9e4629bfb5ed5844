//! Subtasks with keys run on the workers that find them in their lanes, several under one report. The job and all others see
//! no difference.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use keylane::{Job, OnError, Outcome};

use crate::common::{Gate, eventually, hold, pool, soon};

/// Lets subtasks of key 1 gather in their lane, followed by a task without a handle, and calls `check` while one worker runs
/// them.
fn followed<E: Send + 'static>(
    subtask: impl Fn(u32) -> Result<(), E> + Clone + Send + 'static,
    next: impl FnOnce() + Send + 'static,
    check: impl FnOnce(Job<(), E>),
) {
    let pool = pool(2);
    let held = hold(&pool, 1);
    let subtasks = (0..100).map(move |n| {
        let subtask = subtask.clone();
        (1, move || subtask(n))
    });
    let job = pool.job("short").try_each_keyed(subtasks).run().unwrap();
    eventually(|| job.progress().to_come == Some(0));
    // The other worker begins this when it has enqueued them all.
    let other_worker = hold(&pool, 2);
    pool.execute(1, next).unwrap();
    held.let_go();
    check(job);
    other_worker.let_go();
}

/// The worker of the last subtasks goes on with a task that takes long.
#[test]
fn a_job_is_over_before_a_later_task_of_its_key_ends() {
    soon(|| {
        for _ in 0..50 {
            let gate = Gate::new();
            let wait = gate.clone();
            followed(
                |_| Ok::<(), ()>(()),
                move || wait.pass(),
                |job| {
                    assert!(job.wait().unwrap().is_completed());
                    gate.open();
                },
            );
        }
    });
}

/// The worker of a subtask that ends its job tells the next task nothing of that.
#[test]
fn a_task_behind_the_subtasks_of_a_job_that_has_failed_is_not_cancelled() {
    soon(|| {
        for _ in 0..50 {
            let (tell, told) = mpsc::channel();
            let next = move || tell.send(keylane::is_cancelled()).unwrap();
            let subtask = |n| if n == 99 { Err(n) } else { Ok(()) };
            followed(subtask, next, |job| {
                assert!(!told.recv().unwrap(), "it is asked to stop");
                assert!(matches!(job.wait().unwrap(), Outcome::Failed(99)));
            });
        }
    });
}

#[test]
fn each_outcome_is_delivered_once_and_a_failure_can_end_the_job() {
    soon(|| {
        for workers in [1, 2, 4] {
            let pool = pool(workers);
            let failing = || {
                let outcome = |n| if n % 10 == 3 { Err(n) } else { Ok(n) };
                (0..1000_u32).map(move |n| (n % 7, move || outcome(n)))
            };
            let all = pool.job("all").on_error(OnError::FinishAll).try_each_keyed(failing());
            let numbers = all.fold_outcomes(Vec::new(), |mut numbers, outcome| {
                numbers.push(match outcome {
                    Outcome::Completed(n) | Outcome::Failed(n) => n,
                    other => panic!("{other:?}"),
                });
                numbers
            });
            let mut numbers = numbers.unwrap().wait().unwrap().unwrap();
            numbers.sort_unstable();
            assert_eq!(numbers, (0..1000).collect::<Vec<_>>());

            let first = pool.job("first").on_error(OnError::FailFast).try_each_keyed(failing());
            assert!(matches!(first.run().unwrap().wait().unwrap(), Outcome::Failed(_)));
            let panics = (0..100).map(|n| (n % 3, move || assert!(n != 50)));
            let panics = pool.job("panics").each_keyed(panics).run().unwrap();
            assert!(matches!(panics.wait().unwrap(), Outcome::Panicked(_)));
        }
    });
}

/// A small job gets its turn while a huge one has subtasks in all lanes.
#[test]
fn another_job_is_not_kept_waiting() {
    soon(|| {
        let pool = pool(2);
        let left = Arc::new(AtomicUsize::new(100_000));
        let counter = left.clone();
        let subtasks = (0..100_000_u32).map(move |n| {
            let counter = counter.clone();
            (n % 100, move || _ = counter.fetch_sub(1, Ordering::SeqCst))
        });
        let huge = pool.job("huge").each_keyed(subtasks).run().unwrap();
        eventually(|| left.load(Ordering::SeqCst) < 99_000);
        let seen = left.clone();
        let small = pool.job("small").each_keyed([(1, move || seen.load(Ordering::SeqCst))]);
        let seen = small.collect().unwrap().wait().unwrap().unwrap()[0];
        assert!(seen > 0, "it came last");
        huge.cancel();
        assert!(huge.wait().unwrap().is_cancelled());
    });
}
