//! Failed work is attempted again, in its place of the order: its keys wait, no worker does, and
//! each way in which its pool, its key or its handle can end it has its outcome.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{Fragile, Gate, LONG, Live, Log, One, Rng, eventually, soon};
use keylane::observe::KeyHolder;
use keylane::{
    Backoff, Builder, Claims, Handle, MockClock, OnClosedKey, OnFailure, Outcome, Placement, Pool,
    Rate, Retry, SubmitErrorKind, TaskError, WaitError, handler, is_cancelled,
};

const A: u32 = 1;
const B: u32 = 2;
const C: u32 = 3;
const SECOND: Duration = Duration::from_secs(1);

/// Builder of a pool with one worker, whose time a test advances.
fn builder(clock: &MockClock) -> Builder<u32> {
    Pool::<u32>::builder().workers(1).clock(clock).self_check(true)
}

fn build(clock: &MockClock) -> Pool<u32> {
    builder(clock).build().unwrap()
}

/// Attempts after a second each.
fn every_second(attempts: u32) -> Retry {
    Retry::attempts(attempts).backoff(Backoff::constant(SECOND))
}

/// Work that logs the number of each attempt and fails in the first `failures` of them.
fn failing(log: &Log<u32>, failures: u32) -> impl FnMut() -> Result<u32, u32> + Send + use<> {
    let log = log.clone();
    let mut attempt = 0;
    move || {
        attempt += 1;
        log.push(attempt);
        if attempt <= failures { Err(attempt) } else { Ok(attempt) }
    }
}

fn retried(pool: &Pool<u32>) -> u64 {
    pool.inspect().snapshot(0).retried
}

/// Waits until this number of further attempts was scheduled, and none runs.
fn waits_for_attempt(pool: &Pool<u32>, number: u64) {
    eventually(|| {
        let snapshot = pool.inspect().snapshot(0);
        snapshot.retried == number && !snapshot.workers.iter().any(|worker| worker.busy)
    });
}

fn is_intact(pool: &Pool<u32>) {
    assert!(pool.inspect().snapshot(0).violations.is_some_and(|violations| violations.is_none()));
}

#[test]
fn a_task_holds_its_key_and_no_worker_until_its_last_attempt() {
    soon(|| {
        let (clock, log) = (MockClock::new(), Log::new());
        let pool = build(&clock);
        let first =
            pool.task(A).fallible().retry(every_second(5)).submit(failing(&log, 2)).unwrap();
        let next = pool.submit(A, || "after the last attempt").unwrap();
        for attempt in 1..=2 {
            waits_for_attempt(&pool, attempt);
            // The only worker is free, and other keys go on.
            pool.submit(B, || ()).unwrap().join().unwrap();
            assert!(!first.is_finished() && !next.is_finished());
            assert_eq!(log.len() as u64, attempt);
            clock.advance(SECOND);
        }
        assert_eq!(first.join().unwrap(), 3);
        assert_eq!(next.join().unwrap(), "after the last attempt");
        assert_eq!(log.take(), [1, 2, 3]);
        pool.shutdown().unwrap();
        is_intact(&pool);
        let snapshot = pool.inspect().snapshot(0);
        assert_eq!((snapshot.retried, snapshot.failed, snapshot.finished), (2, 0, 4));
    });
}

#[test]
fn the_error_of_the_last_attempt_is_the_outcome() {
    soon(|| {
        let (clock, log) = (MockClock::new(), Log::new());
        let pool = build(&clock);
        let task = pool.task(A).fallible().retry(every_second(3)).submit(failing(&log, 9)).unwrap();
        for attempt in 1..=2 {
            waits_for_attempt(&pool, attempt);
            clock.advance(SECOND);
        }
        assert!(matches!(task.join(), Err(TaskError::Failed(3))));
        let once =
            pool.task(A).fallible().retry(Retry::attempts(1)).submit(failing(&log, 9)).unwrap();
        assert!(matches!(once.join(), Err(TaskError::Failed(1))));
        assert_eq!(pool.inspect().snapshot(0).failed, 2);
    });
}

#[test]
fn no_attempt_begins_after_the_maximum_time() {
    soon(|| {
        let (clock, log) = (MockClock::new(), Log::new());
        let pool = build(&clock);
        let retry = every_second(9).max_elapsed(2 * SECOND);
        let task = pool.task(A).fallible().retry(retry).submit(failing(&log, 9)).unwrap();
        waits_for_attempt(&pool, 1);
        clock.advance(SECOND);
        waits_for_attempt(&pool, 2);
        // A third attempt would begin three seconds after the first failure.
        clock.advance(SECOND);
        assert!(matches!(task.join(), Err(TaskError::Failed(3))));
    });
}

/// Every kind of claims is held between the attempts, and by nothing else.
#[test]
fn every_kind_of_claims_is_held_between_attempts() {
    let kinds = [
        (Claims::exclusive(A), Claims::shared(A), Some(Claims::exclusive(B))),
        (Claims::shared(A), Claims::exclusive(A), Some(Claims::shared(A))),
        (Claims::exclusive(A).and_exclusive(B), Claims::exclusive(B), Some(Claims::exclusive(C))),
        (Claims::limited(A, 2), Claims::exclusive(A), Some(Claims::limited(A, 2))),
        (Claims::none(), Claims::barrier(), Some(Claims::exclusive(A))),
        (Claims::barrier(), Claims::exclusive(A), None),
    ];
    for (claims, behind, beside) in kinds {
        soon(move || {
            let (clock, log) = (MockClock::new(), Log::new());
            let pool = build(&clock);
            let task = pool.task(claims).fallible().retry(every_second(2)).submit(failing(&log, 1));
            waits_for_attempt(&pool, 1);
            if let Some(beside) = beside {
                pool.submit(beside, || ()).unwrap().join().unwrap();
            }
            let behind = pool.submit(behind, || ()).unwrap();
            assert!(!behind.is_finished());
            clock.advance(SECOND);
            assert_eq!(task.unwrap().join().unwrap(), 2);
            behind.join().unwrap();
            pool.shutdown().unwrap();
            is_intact(&pool);
        });
    }
}

/// Between two attempts a cancellation ends the task at once, drops its captures and lets its key
/// go on. During an attempt no further one follows.
#[test]
fn a_cancelled_task_has_no_further_attempt() {
    soon(|| {
        let (clock, log, live) = (MockClock::new(), Log::new(), Live::new());
        let pool = build(&clock);
        let mut work = failing(&log, 9);
        let captured = live.one();
        let task = pool
            .task([A, B])
            .fallible()
            .retry(every_second(9))
            .submit(move || {
                let _ = &captured;
                work()
            })
            .unwrap();
        let next = pool.submit(A, || ()).unwrap();
        waits_for_attempt(&pool, 1);
        assert!(task.cancel());
        assert_eq!(live.count(), 0);
        assert!(!task.cancel());
        assert!(task.wait().unwrap().is_cancelled());
        next.join().unwrap();
        clock.advance(10 * SECOND);

        let (begun, gate) = (Gate::new(), Gate::new());
        let (runs, wait) = (begun.clone(), gate.clone());
        let task = pool
            .task(A)
            .fallible()
            .retry(every_second(9))
            .submit(move || {
                runs.open();
                wait.pass();
                assert!(is_cancelled());
                Err::<(), _>("the only attempt")
            })
            .unwrap();
        begun.pass();
        assert!(!task.cancel());
        gate.open();
        assert!(matches!(task.join(), Err(TaskError::Failed("the only attempt"))));
        pool.shutdown().unwrap();
        let snapshot = pool.inspect().snapshot(0);
        assert_eq!((snapshot.cancelled, snapshot.failed, snapshot.retried), (1, 1, 1));
        assert_eq!(log.take(), [1]);
    });
}

/// A task that was cancelled before it began has no attempt, and neither has one that is superseded.
#[test]
fn a_task_that_never_begins_has_no_attempt() {
    let clock = MockClock::new();
    let pool = build(&clock);
    pool.keys().pause(&A);
    let never = || || -> Result<(), ()> { unreachable!("it never begins") };
    let cancelled = pool.task(A).fallible().retry(every_second(2)).submit(never()).unwrap();
    assert!(cancelled.cancel());
    let old = pool.task(A).latest().fallible().retry(every_second(2)).submit(never()).unwrap();
    let new = pool.task(A).latest().submit(|| ()).unwrap();
    assert!(old.wait().unwrap().is_superseded());
    pool.keys().resume(&A);
    new.join().unwrap();
    assert!(cancelled.wait().unwrap().is_cancelled());
    assert_eq!(retried(&pool), 0);
}

/// The latest task that has begun is not replaced between its attempts: the newer one waits.
#[test]
fn a_latest_task_is_not_replaced_between_attempts() {
    soon(|| {
        let (clock, log) = (MockClock::new(), Log::new());
        let pool = build(&clock);
        let task = || pool.task(A).latest().fallible().retry(every_second(9));
        let first = task().submit(failing(&log, 1)).unwrap();
        waits_for_attempt(&pool, 1);
        let second = task().submit(failing(&log, 0)).unwrap();
        let third = task().submit(failing(&log, 0)).unwrap();
        assert!(second.wait().unwrap().is_superseded());
        assert!(!first.is_finished() && !third.is_finished());
        clock.advance(SECOND);
        assert_eq!((first.join().unwrap(), third.join().unwrap()), (2, 1));
    });
}

#[test]
fn the_end_of_a_key_may_be_attempted_again() {
    soon(|| {
        let (clock, log) = (MockClock::new(), Log::new());
        let pool = build(&clock);
        let last = pool.task(A).last(OnClosedKey::NewLife).fallible().retry(every_second(2));
        let last = last.submit(failing(&log, 1)).unwrap();
        let again = pool.submit(A, || "a new life").unwrap();
        waits_for_attempt(&pool, 1);
        clock.advance(SECOND);
        assert_eq!(last.join().unwrap(), 2);
        assert_eq!(again.join().unwrap(), "a new life");
    });
}

/// A pause of any key of the task holds up its attempts, and so does a stop; resuming the key lets
/// them go on, also if the time came long before.
#[test]
fn attempts_wait_while_a_key_is_paused_or_stopped() {
    for paused in [A, B] {
        soon(move || {
            let (clock, log) = (MockClock::new(), Log::new());
            let pool = build(&clock);
            let task = pool.task([A, B]).fallible().retry(every_second(9));
            let task = task.submit(failing(&log, 2)).unwrap();
            for attempt in 1..=2 {
                waits_for_attempt(&pool, attempt);
                assert!(pool.keys().pause(&paused));
                clock.advance(SECOND);
                // The worker has looked at the attempt when it has run another task.
                for _ in 0..10 {
                    pool.submit(C, || ()).unwrap().join().unwrap();
                }
                assert_eq!(log.len() as u64, attempt);
                assert!(pool.keys().take(&A).is_empty());
                assert!(pool.keys().resume(&paused));
            }
            assert_eq!(task.join().unwrap(), 3);
            pool.shutdown().unwrap();
            is_intact(&pool);
        });
    }
    soon(|| {
        let (clock, log) = (MockClock::new(), Log::new());
        let on_failure = OnFailure::StopKey { after: 1 };
        let pool = builder(&clock).on_failure(on_failure).build().unwrap();
        let shared = || Claims::shared(A);
        let task = pool.task(shared()).fallible().retry(every_second(2)).submit(failing(&log, 1));
        waits_for_attempt(&pool, 1);
        // A failure of another reader stops the key.
        let other = pool.task(shared()).fallible().submit(|| Err::<(), _>(())).unwrap();
        assert!(matches!(other.join(), Err(TaskError::Failed(()))));
        eventually(|| !pool.keys().list_stopped().is_empty());
        clock.advance(SECOND);
        for _ in 0..10 {
            pool.submit(C, || ()).unwrap().join().unwrap();
        }
        assert_eq!(log.len(), 1);
        pool.keys().resume(&A);
        assert_eq!(task.unwrap().join().unwrap(), 2);
    });
}

/// A cancellation finds an attempt that waits for its paused key.
#[test]
fn a_paused_attempt_can_be_cancelled() {
    soon(|| {
        let (clock, log) = (MockClock::new(), Log::new());
        let pool = build(&clock);
        let task = pool.task(A).fallible().retry(every_second(9)).submit(failing(&log, 9)).unwrap();
        waits_for_attempt(&pool, 1);
        pool.keys().pause(&A);
        clock.advance(SECOND);
        pool.submit(C, || ()).unwrap().join().unwrap();
        assert!(task.cancel());
        assert!(task.wait().unwrap().is_cancelled());
        pool.keys().resume(&A);
        pool.submit(A, || ()).unwrap().join().unwrap();
        assert_eq!(log.take(), [1]);
    });
}

/// A task counts as one failure of its key, after its last attempt.
#[test]
fn only_the_last_attempt_counts_for_the_key() {
    soon(|| {
        let (clock, log) = (MockClock::new(), Log::new());
        let on_failure = OnFailure::StopKey { after: 2 };
        let pool = builder(&clock).on_failure(on_failure).build().unwrap();
        let mut scheduled = 0;
        for round in 1..=2 {
            let task = pool.task(A).fallible().retry(every_second(3)).submit(failing(&log, 9));
            for _ in 1..3 {
                scheduled += 1;
                waits_for_attempt(&pool, scheduled);
                clock.advance(SECOND);
            }
            assert!(matches!(task.unwrap().join(), Err(TaskError::Failed(3))));
            // Two tasks with six failed attempts are two failures, if no success is in between.
            if round == 1 {
                eventually(|| pool.inspect().snapshot(0).failed == 1);
                assert!(pool.keys().list_stopped().is_empty());
            }
        }
        eventually(|| pool.keys().list_stopped().len() == 1);
    });
}

#[test]
fn a_panic_in_any_attempt_ends_the_task() {
    soon(|| {
        let clock = MockClock::new();
        let pool = build(&clock);
        for panics_in in 1..=2 {
            let mut attempt = 0;
            let task = pool.task(A).fallible().retry(every_second(9)).submit(move || {
                attempt += 1;
                assert_ne!(attempt, panics_in, "as expected");
                Err::<(), _>(())
            });
            if panics_in == 2 {
                waits_for_attempt(&pool, 1);
                clock.advance(SECOND);
            }
            assert!(matches!(task.unwrap().join(), Err(TaskError::Panicked(_))));
            pool.submit(A, || ()).unwrap().join().unwrap();
        }
        assert_eq!(pool.inspect().snapshot(0).panicked, 2);
        is_intact(&pool);
    });
}

#[test]
fn a_closed_pool_goes_on_with_attempts_and_a_shutdown_waits_for_them() {
    soon(|| {
        let (clock, log) = (MockClock::new(), Log::new());
        let pool = build(&clock);
        let task = pool.task(A).fallible().retry(every_second(9)).submit(failing(&log, 2)).unwrap();
        waits_for_attempt(&pool, 1);
        pool.close();
        assert_eq!(pool.shutdown_timeout(Duration::ZERO), Err(WaitError::TimedOut));
        clock.advance(SECOND);
        waits_for_attempt(&pool, 2);
        clock.advance(SECOND);
        pool.shutdown().unwrap();
        assert_eq!(task.join().unwrap(), 3);
    });
}

/// A pool that is stopped or dropped begins no further attempt, and returns the task not as one that
/// never began.
#[test]
fn a_stopped_pool_ends_tasks_between_attempts_as_cancelled() {
    for drops in [false, true] {
        soon(move || {
            let (clock, log, live) = (MockClock::new(), Log::new(), Live::new());
            let pool = build(&clock);
            let captured = live.one();
            let mut work = failing(&log, 9);
            let task = pool
                .task([A, B])
                .fallible()
                .retry(every_second(9))
                .submit(move || {
                    let _ = &captured;
                    work()
                })
                .unwrap();
            waits_for_attempt(&pool, 1);
            let behind = pool.submit(A, || ()).unwrap();
            if drops {
                drop(pool);
            } else {
                let unrun = pool.shutdown_now();
                assert!(unrun.len() <= 1, "only the task behind it may not have begun");
                pool.wait_idle().unwrap();
            }
            assert!(task.wait().unwrap().is_cancelled());
            assert_eq!(live.count(), 0);
            drop(behind);
            clock.advance(SECOND);
            assert_eq!(log.take(), [1]);
        });
    }
}

/// An attempt that fails while its pool stops is the last one.
#[test]
fn an_attempt_that_runs_while_the_pool_stops_is_the_last() {
    soon(|| {
        let clock = MockClock::new();
        let pool = build(&clock);
        let (begun, gate) = (Gate::new(), Gate::new());
        let (runs, wait) = (begun.clone(), gate.clone());
        let task = pool.task(A).fallible().retry(every_second(9)).submit(move || {
            runs.open();
            wait.pass();
            Err::<(), _>("the only attempt")
        });
        begun.pass();
        assert!(pool.shutdown_now().is_empty());
        gate.open();
        assert!(matches!(task.unwrap().join(), Err(TaskError::Failed("the only attempt"))));
        pool.wait_idle().unwrap();
    });
}

/// A task that was taken out of its pool runs without one: its first attempt is its last.
#[test]
fn a_task_that_runs_outside_of_its_pool_has_one_attempt() {
    let (clock, log) = (MockClock::new(), Log::new());
    let pool = build(&clock);
    pool.keys().pause(&A);
    let task = pool.task(A).fallible().retry(every_second(9)).submit(failing(&log, 9)).unwrap();
    pool.keys().take(&A).pop().unwrap().run();
    assert!(matches!(task.join(), Err(TaskError::Failed(1))));
}

/// Between attempts the task has its place in the capacity, its bytes and its key's bound.
#[test]
fn a_task_between_attempts_keeps_its_capacity() {
    soon(|| {
        let (clock, log) = (MockClock::new(), Log::new());
        let pool = builder(&clock).capacity(2).capacity_per_key(1).capacity_bytes(100).build();
        let pool = pool.unwrap();
        let task = pool.task(A).cost(60).fallible().retry(every_second(2));
        let task = task.submit(failing(&log, 1)).unwrap();
        waits_for_attempt(&pool, 1);
        let kind = |keys, cost| {
            let refused = pool.task(keys).cost(cost).try_execute(|| ());
            refused.map_or_else(|refused| Some(refused.kind()), |()| None)
        };
        assert_eq!(kind(A, 0), Some(SubmitErrorKind::KeyFull));
        assert_eq!(kind(B, 60), Some(SubmitErrorKind::Full));
        assert_eq!(kind(B, 40), None);
        clock.advance(SECOND);
        task.join().unwrap();
        pool.wait_idle().unwrap();
        // The bytes of a kept turn are given back a moment after its permit.
        eventually(|| kind(A, 60).is_none());
        assert_eq!(pool.inspect().snapshot(0).capacity, 2);
    });
}

/// A rate counts the task once, when it begins.
#[test]
fn a_rate_counts_the_first_attempt_only() {
    soon(|| {
        let (clock, log) = (MockClock::new(), Log::new());
        let rate = Rate::per_hour(1);
        let pool = builder(&clock).rate(rate).rate_per_key(rate).build().unwrap();
        let task = pool.task(A).fallible().retry(every_second(9)).submit(failing(&log, 2)).unwrap();
        eventually(|| retried(&pool) == 1);
        let next = pool.submit(B, || ()).unwrap();
        for attempt in 1..=2 {
            eventually(|| retried(&pool) == attempt);
            clock.advance(SECOND);
        }
        assert_eq!(task.join().unwrap(), 3);
        assert!(!next.is_finished());
        clock.advance(Duration::from_secs(3600));
        next.join().unwrap();
    });
}

/// Attempts find a worker whatever its placement and quantum, with other numbers of workers, and
/// beside a job.
#[test]
fn attempts_find_a_worker() {
    let settings: [fn(Builder<u32>) -> Builder<u32>; 3] =
        [|pool| pool, |pool| pool.placement(Placement::Sticky), |pool| pool.strict_quantum()];
    for setting in settings {
        soon(move || {
            let (clock, log) = (MockClock::new(), Log::new());
            let pool = setting(builder(&clock)).workers(2).build().unwrap();
            let task = || pool.task(A).fallible().retry(every_second(9));
            let first = task().submit(failing(&log, 3)).unwrap();
            waits_for_attempt(&pool, 1);
            pool.settings().set_workers(1).unwrap();
            clock.advance(SECOND);
            waits_for_attempt(&pool, 2);
            clock.advance(SECOND);
            waits_for_attempt(&pool, 3);
            let job = pool.job("long").each((0..u32::MAX).map(|n| move || n)).run().unwrap();
            pool.settings().set_workers(3).unwrap();
            clock.advance(SECOND);
            assert_eq!(first.join().unwrap(), 4);
            job.cancel();
            assert_eq!(log.take(), [1, 2, 3, 4]);
            is_intact(&pool);
        });
    }
}

/// Tasks of busy keys do not keep an attempt from a worker.
#[test]
fn a_busy_pool_runs_attempts() {
    soon(|| {
        fn refill(pool: &Arc<Pool<u32>>, key: u32, stop: &Gate) {
            let (inside, gate) = (pool.clone(), stop.clone());
            pool.execute(key, move || {
                if !gate.is_open() {
                    refill(&inside, key, &gate);
                }
            })
            .unwrap();
        }
        let pool = Arc::new(Pool::<u32>::builder().workers(1).build().unwrap());
        let (log, stop) = (Log::new(), Gate::new());
        (10..13).for_each(|key| refill(&pool, key, &stop));
        let retry = Retry::attempts(5).backoff(Backoff::constant(Duration::ZERO));
        let task = pool.task(A).fallible().retry(retry).submit(failing(&log, 4)).unwrap();
        assert_eq!(task.join().unwrap(), 5);
        stop.open();
        pool.shutdown().unwrap();
    });
}

/// Attempts without a wait follow each other, and leave the other keys their worker.
#[test]
fn attempts_without_a_wait_delay_no_other_key() {
    soon(|| {
        let pool = Pool::<u32>::builder().workers(1).build().unwrap();
        let gate = Gate::new();
        let wait = gate.clone();
        let retry = Retry::forever().backoff(Backoff::constant(Duration::ZERO));
        let task = pool
            .task(A)
            .fallible()
            .retry(retry)
            .submit(move || if wait.is_open() { Ok(()) } else { Err(()) })
            .unwrap();
        for _ in 0..100 {
            pool.submit(B, || ()).unwrap().join().unwrap();
        }
        gate.open();
        task.join().unwrap();
    });
}

/// A later attempt is inside of its pool, at its place in the order: it submits beyond the capacity,
/// and a wait for a task behind it is refused.
#[test]
fn an_attempt_is_inside_of_its_pool() {
    soon(|| {
        let clock = MockClock::new();
        let pool = Arc::new(builder(&clock).capacity(2).build().unwrap());
        let behind = Arc::new(std::sync::Mutex::new(None::<Handle<()>>));
        let (inside, theirs) = (pool.clone(), behind.clone());
        let mut attempt = 0;
        let task = pool.task([A, B]).fallible().retry(every_second(2)).submit(move || {
            attempt += 1;
            if attempt == 1 {
                return Err(());
            }
            let other = inside.submit(C, || 7).unwrap();
            assert_eq!(other.join().unwrap(), 7);
            let behind = theirs.lock().unwrap().take().unwrap();
            assert!(behind.wait().is_err(), "it waits for this task");
            assert!(inside.shutdown().is_err());
            Ok(())
        });
        waits_for_attempt(&pool, 1);
        *behind.lock().unwrap() = Some(pool.submit(B, || ()).unwrap());
        clock.advance(SECOND);
        task.unwrap().join().unwrap();
        pool.wait_idle().unwrap();
    });
}

/// A task may wait for another one that is between its attempts.
#[test]
fn a_task_waits_for_the_attempts_of_another() {
    soon(|| {
        let (clock, log) = (MockClock::new(), Log::new());
        let pool = build(&clock);
        let task = pool.task(A).fallible().retry(every_second(2)).submit(failing(&log, 1)).unwrap();
        waits_for_attempt(&pool, 1);
        let waits = pool.submit(B, move || task.join().unwrap()).unwrap();
        clock.advance(SECOND);
        assert_eq!(waits.join().unwrap(), 2);
    });
}

#[test]
fn a_key_says_for_how_long_its_task_backs_off() {
    soon(|| {
        let (clock, log) = (MockClock::new(), Log::new());
        let pool = build(&clock);
        let retry = Retry::attempts(2).backoff(Backoff::constant(LONG));
        let task = pool.task(A).fallible().retry(retry).submit(failing(&log, 1)).unwrap();
        waits_for_attempt(&pool, 1);
        let KeyHolder::Running(running) = pool.inspect().explain_key(&A).holder else {
            panic!("the task holds its key");
        };
        assert!(running.backs_off.is_some_and(|left| left <= LONG && left > LONG / 2));
        clock.advance(LONG);
        assert_eq!(task.join().unwrap(), 2);
    });
}

/// A hundred thousand tasks between attempts need one thread more, and end with their pool.
#[test]
fn many_tasks_wait_for_their_attempts() {
    soon(|| {
        let clock = MockClock::new();
        let pool =
            Pool::<u32>::builder().workers(2).capacity(200_000).clock(&clock).build().unwrap();
        let done = Arc::new(AtomicUsize::new(0));
        for key in 0..100_000 {
            let (done, mut attempt) = (done.clone(), 0);
            let task = pool.task(key).fallible().retry(every_second(2));
            task.execute(move || {
                attempt += 1;
                if attempt == 1 { Err(()) } else { Ok(_ = done.fetch_add(1, Ordering::Relaxed)) }
            })
            .unwrap();
        }
        eventually(|| pool.inspect().snapshot(0).retried == 100_000);
        assert_eq!(done.load(Ordering::Relaxed), 0);
        clock.advance(SECOND);
        pool.shutdown().unwrap();
        assert_eq!(done.load(Ordering::Relaxed), 100_000);
    });
}

/// Random tasks that fail at random, with every kind of claims, while keys are paused, tasks
/// cancelled and workers changed: the order holds, no task is lost, and each has the attempts that
/// it needs.
#[test]
fn random_failures_change_no_order() {
    for seed in 0..6 {
        soon(move || random_program(seed));
    }
}

fn random_program(seed: u64) {
    let mut rng = Rng(seed);
    let pool = Pool::<u32>::builder().workers(3).capacity(1_000).self_check(true).build().unwrap();
    let order: Vec<_> = (0..5).map(|_| Log::new()).collect();
    let mut expected = vec![Vec::new(); 5];
    let mut tasks = Vec::new();
    for number in 0..400_u64 {
        let keys = [rng.below(5) as u32, rng.below(5) as u32];
        let failures = rng.below(4) as u32;
        let max = 1 + rng.below(4) as u32;
        let logs: Vec<_> = (0..5)
            .filter(|key| keys.contains(&(*key as u32)))
            .map(|key| (expected[key].push(number), order[key].clone()).1)
            .collect();
        let mut attempt = 0;
        let wait = Duration::from_micros(rng.below(300));
        let retry = Retry::attempts(max).backoff(Backoff::constant(wait));
        let task = pool.task(keys).fallible().retry(retry).submit(move || {
            attempt += 1;
            if attempt == 1 {
                logs.iter().for_each(|log| log.push(number));
            }
            if attempt <= failures { Err(attempt) } else { Ok(attempt) }
        });
        tasks.push((task.unwrap(), failures, max));
        match rng.below(30) {
            0 => _ = pool.keys().pause(&keys[0]),
            1..5 => (0..5).for_each(|key| _ = pool.keys().resume(&key)),
            5 => pool.settings().set_workers(1 + rng.below(4) as usize).unwrap(),
            6 => pool.execute(Claims::barrier(), || ()).unwrap(),
            _ => {}
        }
    }
    (0..5).for_each(|key| _ = pool.keys().resume(&key));
    for (task, failures, max) in tasks {
        match task.wait().unwrap() {
            Outcome::Completed(attempts) => assert_eq!(attempts, failures + 1),
            Outcome::Failed(attempts) => assert_eq!((attempts, failures >= max), (max, true)),
            other => panic!("{other:?}"),
        }
    }
    pool.shutdown().unwrap();
    is_intact(&pool);
    for (log, expected) in order.iter().zip(expected) {
        assert_eq!(log.take(), expected);
    }
}

/// Handles that cancel at any moment: each task ends once, and its key continues.
#[test]
fn cancellations_at_any_moment_lose_no_task() {
    soon(|| {
        let pool = Arc::new(Pool::<u32>::builder().workers(2).self_check(true).build().unwrap());
        let mut rng = Rng(7);
        for _ in 0..300 {
            let live = Live::new();
            let mut attempt = 0;
            let captured = live.one();
            let retry =
                Retry::forever().backoff(Backoff::constant(Duration::from_micros(rng.below(60))));
            let task = pool
                .task([A, B])
                .fallible()
                .retry(retry)
                .submit(move || {
                    let _ = &captured;
                    attempt += 1;
                    Err::<(), _>(attempt)
                })
                .unwrap();
            let next = pool.submit(B, || ()).unwrap();
            (0..rng.below(2_000)).for_each(|_| std::hint::spin_loop());
            task.cancel();
            assert!(matches!(task.wait().unwrap(), Outcome::Failed(_) | Outcome::Cancelled));
            next.join().unwrap();
            assert_eq!(live.count(), 0);
        }
        pool.shutdown().unwrap();
        is_intact(&pool);
    });
}

/// A handler that is called again keeps the order of each key; later messages wait, and each
/// message is dropped before the next one of its key begins.
#[test]
fn a_handler_is_called_again_in_order() {
    soon(|| {
        let (clock, log) = (MockClock::new(), Log::new());
        let calls = log.clone();
        let handler = move |key: &u32, message: &(u32, One), attempt: u32| {
            calls.push((*key, message.0, attempt));
            assert!(message.1.count() <= 3);
            if attempt <= message.0 { Err(()) } else { Ok(()) }
        };
        let pool =
            builder(&clock).build_handler(handler::retrying(every_second(3), handler)).unwrap();
        let live = Live::new();
        // Fails once; fails in all of its three attempts; succeeds at once.
        for failures in [1, 9, 0] {
            pool.send(A, (failures, live.one())).unwrap();
        }
        for scheduled in 1..=3 {
            eventually(|| pool.inspect().snapshot(0).retried == scheduled);
            let before = log.len();
            pool.send(B, (0, live.one())).unwrap();
            eventually(|| log.len() == before + 1);
            clock.advance(SECOND);
        }
        pool.wait_idle().unwrap();
        let of_a: Vec<_> = log.take().into_iter().filter(|(key, ..)| *key == A).collect();
        let expected = [(1, 1), (1, 2), (9, 1), (9, 2), (9, 3), (0, 1)];
        assert_eq!(of_a, expected.map(|(message, attempt)| (A, message, attempt)));
        assert_eq!(live.count(), 0);
        let snapshot = pool.inspect().snapshot(0);
        assert_eq!((snapshot.failed, snapshot.retried), (1, 3));
    });
}

/// Panics of a handler, pauses, a stop and the drop of the pool, between the attempts of a message.
#[test]
fn a_message_between_attempts_ends_as_a_task_does() {
    soon(|| {
        let (clock, log, live) = (MockClock::new(), Log::new(), Live::new());
        let calls = log.clone();
        let handler = move |_: &u32, message: &(&str, One), attempt: u32| {
            calls.push(attempt);
            assert!(message.0 != "panics" || attempt < 2, "as expected");
            Err(())
        };
        let pool =
            builder(&clock).build_handler(handler::retrying(every_second(9), handler)).unwrap();
        pool.send(A, ("panics", live.one())).unwrap();
        eventually(|| pool.inspect().snapshot(0).retried == 1);
        clock.advance(SECOND);
        pool.wait_idle().unwrap();
        assert_eq!((log.take(), live.count()), (vec![1, 2], 0));
        assert_eq!(pool.inspect().snapshot(0).panicked, 1);

        pool.send(A, ("fails", live.one())).unwrap();
        eventually(|| pool.inspect().snapshot(0).retried == 2);
        pool.keys().pause(&A);
        clock.advance(SECOND);
        assert!(pool.keys().take(&A).is_empty());
        pool.keys().resume(&A);
        eventually(|| pool.inspect().snapshot(0).retried == 3);
        assert!(pool.shutdown_now().is_empty());
        pool.wait_idle().unwrap();
        assert_eq!((log.take(), live.count()), (vec![1, 2], 0));
        assert_eq!(pool.inspect().snapshot(0).cancelled, 1);
    });
}

/// A pool that a panic of a key has ended begins no further attempt.
#[test]
fn a_poisoned_pool_ends_tasks_between_attempts_as_cancelled() {
    soon(|| {
        let armed = Arc::new(AtomicBool::new(false));
        let key = |number| Fragile(number, armed.clone());
        let (clock, log, live) = (MockClock::new(), Log::new(), Live::new());
        let builder = Pool::<Fragile>::builder().workers(1).clock(&clock);
        // The entries of a bound per key are found by comparisons.
        let pool = builder.capacity_per_key(9).build().unwrap();
        let mut work = failing(&log, 9);
        let captured = live.one();
        let task = pool.task(key(A)).fallible().retry(every_second(9));
        let task = task.submit(move || {
            let _ = &captured;
            work()
        });
        eventually(|| pool.inspect().snapshot(0).retried == 1);
        armed.store(true, Ordering::SeqCst);
        let behind = AssertUnwindSafe(|| pool.execute(key(A), || ()));
        drop(catch_unwind(behind));
        eventually(|| pool.inspect().snapshot(0).poisoned);
        assert!(task.unwrap().wait().unwrap().is_cancelled());
        assert_eq!((log.take(), live.count()), (vec![1], 0));
    });
}
