//! Subtasks with keys run on the workers that find them in their lanes, several under one report. The job and all others see
//! no difference.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use keylane::{Job, OnError, Outcome};

use crate::common::{Gate, Log, eventually, hold, pool, soon};

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
            assert_eq!(pool.inspect().snapshot(0).failed, 100, "each failure is counted");

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

/// Work that the splitter submits before a subtask comes before that, and work that follows what it has yielded comes after that.
#[test]
fn a_subtask_is_in_the_order_before_the_splitter_is_called_again() {
    soon(|| {
        let (pool, log) = (pool(2), Log::new());
        let (other, entries) = (pool.clone(), log.clone());
        let subtasks = (0..1000_u32).map(move |n| {
            let (after, this) = (entries.clone(), entries.clone());
            if n > 0 {
                other.execute(1, move || after.push((n - 1, "after"))).unwrap();
            }
            (1, move || this.push((n, "subtask")))
        });
        let job = pool.job("between").each_keyed(subtasks).run().unwrap();
        assert!(job.wait().unwrap().is_completed());
        pool.wait_idle().unwrap();
        let expected: Vec<_> =
            (0..1000).flat_map(|n| [(n, "subtask"), (n, "after")]).take(1999).collect();
        assert_eq!(log.take(), expected);
    });
}

#[test]
fn a_splitter_may_wait_for_the_subtask_before() {
    soon(|| {
        let pool = pool(2);
        let (tell, told) = mpsc::channel();
        tell.send(()).unwrap();
        let subtasks = (0..1000_u32).map(move |n| {
            told.recv().unwrap();
            let tell = tell.clone();
            (n % 7, move || tell.send(()).unwrap())
        });
        let job = pool.job("chain").each_keyed(subtasks).run().unwrap();
        assert!(job.wait().unwrap().is_completed());
    });
}

/// Iterator with fewer items than its `size_hint` says.
struct Promises(u32);

impl Iterator for Promises {
    type Item = (u32, fn());

    fn next(&mut self) -> Option<Self::Item> {
        self.0 = self.0.checked_sub(1)?;
        Some((self.0 % 3, || ()))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (1000, Some(1000))
    }
}

#[test]
fn a_wrong_size_hint_does_no_harm() {
    soon(|| {
        let pool = pool(2);
        for count in 0..200 {
            let job = pool.job("wrong").each_keyed(Promises(count)).run().unwrap();
            assert!(job.wait().unwrap().is_completed());
        }
        let short = pool.job("right").each_keyed([(1, || 7)]).collect().unwrap();
        assert_eq!(short.wait().unwrap().unwrap(), [7]);
    });
}

/// The results behind the first subtask of key 1 hold the splitter up. Its worker goes on with the next one of that key, which takes
/// long.
#[test]
fn a_splitter_goes_on_when_a_fold_has_room_again() {
    soon(|| {
        for _ in 0..20 {
            let pool = pool(2);
            let (first, second) = (Gate::new(), Gate::new());
            let (wait_first, wait_second) = (first.clone(), second.clone());
            let subtasks = (0..2000_u32).map(move |n| {
                let gate = match n {
                    31 => Some(wait_first.clone()),
                    300 => Some(wait_second.clone()),
                    _ => None,
                };
                let key = if gate.is_some() { 1 } else { 2 + n % 50 };
                (key, move || gate.iter().for_each(Gate::pass))
            });
            let job = pool.job("folded").each_keyed(subtasks);
            let job = job.fold(0, |count, _| count + 1).unwrap();
            eventually(|| job.progress().done > 200);
            first.open();
            // All but what waits for the second gate, and what is split ahead of that.
            eventually(|| job.progress().done > 500);
            second.open();
            assert_eq!(job.wait().unwrap().unwrap(), 2000);
        }
    });
}
