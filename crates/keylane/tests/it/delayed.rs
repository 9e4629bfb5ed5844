//! Delayed tasks take their place in the order when their delay is over, and until then each way in
//! which their pool, their key or their handle can end them has its outcome.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Fragile, Live, Log, Rng, block_on, eventually, hold, soon};
use keylane::observe::TaskState;
use keylane::{
    Backoff, Builder, Claims, MockClock, OnClosedKey, Outcome, Pool, Retry, SubmitErrorKind,
    WaitError, handler,
};

const A: u32 = 1;
const B: u32 = 2;
const SECOND: Duration = Duration::from_secs(1);

/// Builder of a pool with one worker, whose time a test advances.
fn builder(clock: &MockClock) -> Builder<u32> {
    Pool::<u32>::builder().workers(1).clock(clock).self_check(true)
}

fn build(clock: &MockClock) -> Pool<u32> {
    builder(clock).build().unwrap()
}

fn delayed(pool: &Pool<u32>) -> usize {
    pool.inspect().snapshot(0).delayed
}

fn unfinished(pool: &Pool<u32>) -> usize {
    pool.inspect().snapshot(0).unfinished
}

fn is_intact(pool: &Pool<u32>) {
    assert!(pool.inspect().snapshot(0).violations.is_some_and(|violations| violations.is_none()));
}

#[test]
fn a_task_takes_its_place_when_its_delay_is_over() {
    soon(|| {
        let (clock, log) = (MockClock::new(), Log::new());
        let pool = build(&clock);
        let logs = |name: &'static str| {
            let log = log.clone();
            move || log.push(name)
        };
        let late = pool.task(A).after(2 * SECOND).submit(logs("late")).unwrap();
        let soon = pool.task(A).after(SECOND).submit(logs("soon")).unwrap();
        let same = pool.task([A, B]).after(SECOND).submit(logs("submitted after soon")).unwrap();
        pool.submit(A, logs("now")).unwrap().join().unwrap();
        assert_eq!(delayed(&pool), 3);
        assert!(!late.is_finished() && !soon.is_finished());
        clock.advance(SECOND);
        same.join().unwrap();
        pool.submit(A, logs("then")).unwrap().join().unwrap();
        assert!(!late.is_finished());
        clock.advance(SECOND);
        late.join().unwrap();
        assert_eq!(log.take(), ["now", "soon", "submitted after soon", "then", "late"]);
        is_intact(&pool);
    });
}

/// When its delay is over, a task waits for those of its keys that were submitted before.
#[test]
fn every_kind_of_claims_is_delayed() {
    let kinds = [
        (Claims::exclusive(A), Some(Claims::shared(A))),
        (Claims::shared(A), Some(Claims::exclusive(A))),
        (Claims::exclusive(A).and_exclusive(B), Some(Claims::exclusive(B))),
        (Claims::limited(A, 2), Some(Claims::exclusive(A))),
        (Claims::none(), None),
        (Claims::barrier(), Some(Claims::exclusive(B))),
    ];
    for (claims, before) in kinds {
        soon(move || {
            let clock = MockClock::new();
            let pool = builder(&clock).workers(2).build().unwrap();
            let task = pool.task(claims).after(SECOND).submit(|| ()).unwrap();
            let held = before.map(|before| {
                let (begun, gate) = (crate::common::Gate::new(), crate::common::Gate::new());
                let (runs, wait) = (begun.clone(), gate.clone());
                let before = pool.submit(before, move || {
                    runs.open();
                    wait.pass();
                });
                begun.pass();
                (before.unwrap(), gate)
            });
            clock.advance(SECOND);
            eventually(|| delayed(&pool) == 0);
            if let Some((before, gate)) = held {
                assert!(!task.is_finished());
                gate.open();
                before.join().unwrap();
            }
            task.join().unwrap();
            pool.shutdown().unwrap();
            is_intact(&pool);
        });
    }
}

#[test]
fn every_ending_delays_a_task() {
    soon(|| {
        let clock = MockClock::new();
        let pool = build(&clock);
        let ran = Arc::new(AtomicUsize::new(0));
        let task = || pool.task(A).after(SECOND);
        let work = || {
            let ran = ran.clone();
            move || ran.fetch_add(1, Ordering::SeqCst)
        };
        let handles = [
            task().submit(work()).unwrap(),
            task().try_submit(work()).unwrap(),
            block_on(task().submit_async(work())).unwrap(),
            pool.task(A).after(SECOND).last(OnClosedKey::NewLife).submit(work()).unwrap(),
        ];
        task().execute(work()).unwrap();
        task().try_execute(work()).unwrap();
        block_on(task().execute_async(work())).unwrap();
        let past = pool.task(B).at(Instant::now()).submit(work()).unwrap();
        assert_eq!(past.join().unwrap(), 0);
        assert_eq!(ran.load(Ordering::SeqCst), 1);
        clock.advance(SECOND);
        let order: Vec<_> = handles.into_iter().map(|handle| handle.join().unwrap()).collect();
        assert_eq!(order, [1, 2, 3, 4]);
        pool.shutdown().unwrap();
        assert_eq!(ran.load(Ordering::SeqCst), 8);
    });
}

/// A delayed task has its place in the capacity, its bytes and its key's bound.
#[test]
fn a_delayed_task_counts_for_the_bounds() {
    soon(|| {
        let clock = MockClock::new();
        let pool = builder(&clock).capacity(2).capacity_per_key(1).capacity_bytes(100).build();
        let pool = pool.unwrap();
        let task = pool.task(A).cost(60).after(SECOND).submit(|| ()).unwrap();
        let kind = |keys, cost, delay| {
            let refused = pool.task(keys).cost(cost).after(delay).try_execute(|| ());
            refused.map_or_else(|refused| Some(refused.kind()), |()| None)
        };
        assert_eq!(kind(A, 0, SECOND), Some(SubmitErrorKind::KeyFull));
        assert_eq!(kind(B, 60, SECOND), Some(SubmitErrorKind::Full));
        assert_eq!(kind(B, 101, SECOND), Some(SubmitErrorKind::TooLarge));
        assert_eq!(kind(B, 40, SECOND), None);
        assert_eq!(kind(3, 0, SECOND), Some(SubmitErrorKind::Full));
        clock.advance(SECOND);
        task.join().unwrap();
        pool.wait_idle().unwrap();
        assert_eq!(kind(A, 100, Duration::ZERO), None);
        pool.shutdown().unwrap();
        assert_eq!(pool.inspect().snapshot(0).bytes, 0);
    });
}

/// Regression test: of the delayed tasks of a key only those were taken whose claims were the key
/// itself, and none that limited it or was submitted with a list.
#[test]
fn every_form_of_one_key_is_taken() {
    soon(|| {
        let pool = build(&MockClock::new());
        let forms = [
            Claims::exclusive(A),
            Claims::shared(A),
            Claims::limited(A, 2),
            Claims::from_iter([A]),
            Claims::limited(A, 2).with_cost(1),
        ];
        let all = forms.len();
        let tasks: Vec<_> = forms
            .into_iter()
            .map(|claims| pool.task(claims).after(SECOND).submit(|| ()).unwrap())
            .collect();
        let two = pool.task([A, B]).after(SECOND).submit(|| ()).unwrap();
        assert_eq!(pool.keys().take(&A).len(), all);
        assert!(tasks.iter().all(keylane::Handle::is_finished));
        assert!(!two.is_finished() && two.cancel());
    });
}

/// A cancelled task leaves its pool at once, with its captures and its capacity.
#[test]
fn a_cancelled_task_is_withdrawn() {
    soon(|| {
        let (clock, live) = (MockClock::new(), Live::new());
        let pool = builder(&clock).capacity(1).capacity_bytes(10).build().unwrap();
        for role in 0..3 {
            let task = || pool.task(A).cost(10).after(SECOND);
            let captured = live.one();
            let work = move || drop(captured);
            let task = match role {
                0 => task().submit(work),
                1 => task().latest().submit(work),
                _ => task().last(OnClosedKey::Refuse).submit(work),
            }
            .unwrap();
            assert_eq!((delayed(&pool), unfinished(&pool)), (1, 1));
            assert!(task.cancel() && !task.cancel());
            assert_eq!((delayed(&pool), unfinished(&pool), live.count()), (0, 0, 0));
            assert_eq!(pool.inspect().snapshot(0).bytes, 0);
            assert!(task.wait().unwrap().is_cancelled());
        }
        clock.advance(10 * SECOND);
        pool.submit(A, || ()).unwrap().join().unwrap();
        pool.shutdown().unwrap();
        assert_eq!(pool.inspect().snapshot(0).cancelled, 3);
    });
}

/// After its delay the task is cancelled as any other, in every kind of work.
#[test]
fn a_task_can_be_cancelled_after_its_delay() {
    soon(|| {
        let clock = MockClock::new();
        let pool = build(&clock);
        pool.keys().pause(&A);
        let never = || -> Result<(), ()> { unreachable!("it never begins") };
        let retry = Retry::attempts(2);
        let plain = pool.task(A).after(SECOND).submit(|| unreachable!("it never begins")).unwrap();
        let retrying = pool.task(A).after(SECOND).fallible().retry(retry).submit(never).unwrap();
        clock.advance(SECOND);
        eventually(|| delayed(&pool) == 0);
        assert!(plain.cancel() && retrying.cancel());
        pool.keys().resume(&A);
        pool.submit(A, || ()).unwrap().join().unwrap();
        assert!(plain.wait().unwrap().is_cancelled() && retrying.wait().unwrap().is_cancelled());
    });
}

/// Each of a burst replaces the one before and begins the delay anew; a single one runs. They need
/// one place in the pool together.
#[test]
fn the_last_of_a_burst_runs_after_a_quiet_time() {
    soon(|| {
        let (clock, live) = (MockClock::new(), Live::new());
        let pool = builder(&clock).capacity(2).build().unwrap();
        let task = |key| pool.task(key).latest().after(3 * SECOND);
        let mut handles = Vec::new();
        for n in 0..6 {
            let captured = live.one();
            let work = move || {
                drop(captured);
                n
            };
            handles.push(match n % 3 {
                0 => task(A).submit(work).unwrap(),
                1 => task(A).try_submit(work).unwrap(),
                _ => block_on(task(A).submit_async(work)).unwrap(),
            });
            assert_eq!((live.count(), delayed(&pool), unfinished(&pool)), (1, 1, 1));
            clock.advance(2 * SECOND);
        }
        let other = task(B).submit(|| "another key").unwrap();
        let last = handles.pop().unwrap();
        assert!(!last.is_finished());
        clock.advance(SECOND);
        assert_eq!(last.join().unwrap(), 5);
        for handle in handles {
            assert!(handle.wait().unwrap().is_superseded());
        }
        clock.advance(2 * SECOND);
        assert_eq!(other.join().unwrap(), "another key");
        assert_eq!(pool.inspect().snapshot(0).superseded, 5);
    });
}

/// A burst with a cost: each task needs its own bytes, and those of the replaced one are free.
#[test]
fn a_burst_with_a_cost_keeps_the_bound() {
    soon(|| {
        let clock = MockClock::new();
        let pool = builder(&clock).capacity(9).capacity_bytes(100).build().unwrap();
        let task = |bytes| pool.task(A).cost(bytes).latest().after(SECOND);
        let first = task(60).submit(|| 60).unwrap();
        let refused = task(60).try_submit(|| 60).unwrap_err();
        assert_eq!(refused.kind(), SubmitErrorKind::Full);
        assert!(!first.is_finished());
        let second = task(40).submit(|| 40).unwrap();
        assert!(first.wait().unwrap().is_superseded());
        let snapshot = pool.inspect().snapshot(0);
        assert_eq!((snapshot.bytes, snapshot.unfinished), (40, 1));
        // One without a cost takes over the capacity, and the bytes are free.
        let third = task(0).submit(|| 0).unwrap();
        assert!(second.wait().unwrap().is_superseded());
        let snapshot = pool.inspect().snapshot(0);
        assert_eq!((snapshot.bytes, snapshot.unfinished), (0, 1));
        clock.advance(SECOND);
        assert_eq!(third.join().unwrap(), 0);
        pool.shutdown().unwrap();
        assert_eq!(pool.inspect().snapshot(0).bytes, 0);
    });
}

/// When its delay is over, a latest task replaces the latest one that waits; one without a delay
/// leaves a delayed one in place.
#[test]
fn a_delayed_latest_task_replaces_when_its_delay_is_over() {
    soon(|| {
        let (clock, live) = (MockClock::new(), Live::new());
        let pool = build(&clock);
        pool.keys().pause(&A);
        let later = pool.task(A).latest().after(SECOND).submit(|| "later").unwrap();
        let captured = live.one();
        let now = pool.task(A).latest().submit(move || drop(captured)).unwrap();
        assert!(!now.is_finished() && !later.is_finished());
        clock.advance(SECOND);
        assert!(now.wait().unwrap().is_superseded());
        assert_eq!((live.count(), unfinished(&pool)), (0, 1));
        pool.keys().resume(&A);
        assert_eq!(later.join().unwrap(), "later");
        is_intact(&pool);
    });
}

#[test]
fn a_paused_key_keeps_the_task_after_its_delay() {
    soon(|| {
        let clock = MockClock::new();
        let pool = build(&clock);
        pool.keys().pause(&A);
        let task = pool.task(A).after(SECOND).submit(|| ()).unwrap();
        clock.advance(SECOND);
        eventually(|| delayed(&pool) == 0);
        pool.submit(B, || ()).unwrap().join().unwrap();
        assert!(!task.is_finished());
        pool.keys().resume(&A);
        task.join().unwrap();
    });
}

/// Taking the tasks of a key takes the delayed ones behind the others, by their times; the end of
/// the key and tasks of other keys stay.
#[test]
fn delayed_tasks_of_a_key_are_taken() {
    soon(|| {
        let (clock, log) = (MockClock::new(), Log::new());
        let pool = builder(&clock).capacity_bytes(100).build().unwrap();
        let logs = |n: u32| {
            let log = log.clone();
            move || log.push(n)
        };
        pool.keys().pause(&A);
        pool.task(A).cost(10).after(2 * SECOND).execute(logs(3)).unwrap();
        pool.task(A).cost(20).latest().after(SECOND).execute(logs(2)).unwrap();
        pool.task(A).after(SECOND).last(OnClosedKey::NewLife).execute(logs(5)).unwrap();
        pool.task([A, B]).after(SECOND).execute(logs(6)).unwrap();
        pool.task(B).after(SECOND).execute(logs(7)).unwrap();
        pool.execute(A, logs(1)).unwrap();
        let taken = pool.keys().take(&A);
        // Their bytes are free when they are dropped.
        assert_eq!(pool.inspect().snapshot(0).bytes, 30);
        taken.into_iter().for_each(|task| task.run());
        assert_eq!(pool.inspect().snapshot(0).bytes, 0);
        assert_eq!(log.take(), [1, 2, 3]);
        assert_eq!((delayed(&pool), unfinished(&pool)), (3, 3));
        pool.keys().resume(&A);
        clock.advance(2 * SECOND);
        pool.shutdown().unwrap();
        let mut rest = log.take();
        rest.sort_unstable();
        assert_eq!(rest, [5, 6, 7]);
    });
}

/// A task whose key refuses tasks when its delay is over is cancelled, as is a second end.
#[test]
fn a_key_that_was_closed_meanwhile_cancels_the_task() {
    soon(|| {
        let clock = MockClock::new();
        let pool = build(&clock);
        let late = pool.task(A).after(SECOND).submit(|| ()).unwrap();
        let end = pool.task(A).after(SECOND).last(OnClosedKey::Refuse).submit(|| ()).unwrap();
        pool.task(A).last(OnClosedKey::Refuse).submit(|| ()).unwrap().join().unwrap();
        let refused = pool.task(A).after(SECOND).submit(|| ()).unwrap_err();
        assert_eq!(refused.kind(), SubmitErrorKind::KeyClosed);
        clock.advance(SECOND);
        assert!(late.wait().unwrap().is_cancelled() && end.wait().unwrap().is_cancelled());
        pool.wait_idle().unwrap();
        assert_eq!(pool.inspect().snapshot(0).cancelled, 2);
    });
}

#[test]
fn a_closed_pool_enters_delayed_tasks_and_a_shutdown_waits_for_them() {
    soon(|| {
        let clock = MockClock::new();
        let pool = build(&clock);
        let task = pool.task(A).after(SECOND).submit(|| "in time").unwrap();
        let latest = pool.task(A).latest().after(SECOND).submit(|| "the latest").unwrap();
        pool.close();
        for refused in [
            pool.task(A).after(SECOND).submit(|| "").unwrap_err().kind(),
            pool.task(A).latest().after(SECOND).submit(|| "").unwrap_err().kind(),
        ] {
            assert_eq!(refused, SubmitErrorKind::Closed);
        }
        assert_eq!(pool.shutdown_timeout(Duration::ZERO), Err(WaitError::TimedOut));
        clock.advance(SECOND);
        pool.shutdown().unwrap();
        assert_eq!((task.join().unwrap(), latest.join().unwrap()), ("in time", "the latest"));
    });
}

/// A stop returns the delayed tasks behind those that are in the order; the drop of a pool cancels
/// them.
#[test]
fn a_stopped_pool_returns_its_delayed_tasks() {
    soon(|| {
        let (clock, log) = (MockClock::new(), Log::new());
        let pool = build(&clock);
        let logs = |n: u32| {
            let log = log.clone();
            move || log.push(n)
        };
        let held = hold(&pool, A);
        pool.task(A).after(2 * SECOND).execute(logs(3)).unwrap();
        pool.task(B).after(SECOND).execute(logs(2)).unwrap();
        pool.execute(A, logs(1)).unwrap();
        let unrun = pool.shutdown_now();
        assert_eq!(unrun.len(), 3);
        held.let_go();
        pool.wait_idle().unwrap();
        unrun.into_iter().for_each(|task| task.run());
        assert_eq!(log.take(), [1, 2, 3]);

        let pool = build(&clock);
        let task = pool.task(A).after(SECOND).submit(|| ()).unwrap();
        drop(pool);
        assert!(task.wait().unwrap().is_cancelled());
    });
}

#[test]
fn a_failing_task_may_be_delayed_and_attempted_again() {
    soon(|| {
        let clock = MockClock::new();
        let pool = build(&clock);
        let mut attempt = 0;
        let retry = Retry::attempts(2).backoff(Backoff::constant(SECOND));
        let task = pool.task(A).after(SECOND).fallible().retry(retry).submit(move || {
            attempt += 1;
            if attempt < 2 { Err(()) } else { Ok(attempt) }
        });
        clock.advance(SECOND);
        eventually(|| pool.inspect().snapshot(0).retried == 1);
        clock.advance(SECOND);
        assert_eq!(task.unwrap().join().unwrap(), 2);
    });
}

/// A task cannot wait for a delayed one of its pool, which may enter behind it.
#[test]
fn a_task_cannot_wait_for_a_delayed_one() {
    soon(|| {
        let clock = MockClock::new();
        let pool = Arc::new(build(&clock));
        let inside = pool.clone();
        let waits = pool.submit(A, move || {
            let later = inside.task(A).after(SECOND).submit(|| ()).unwrap();
            later.wait().map_err(|refused| refused.into_inner()).unwrap_err()
        });
        let later = waits.unwrap().join().unwrap();
        clock.advance(SECOND);
        later.join().unwrap();
    });
}

#[test]
fn a_delayed_task_says_for_how_long() {
    let clock = MockClock::new();
    let pool = build(&clock);
    let task = pool.task(A).after(3 * SECOND).submit(|| ()).unwrap();
    clock.advance(SECOND);
    let state = pool.inspect().explain(&task).state;
    assert!(matches!(state, TaskState::Delayed { left } if left == 2 * SECOND), "{state}");
    assert_eq!(state.to_string(), "delayed for another 2.0s");
}

#[test]
fn messages_are_delayed_and_debounced() {
    soon(|| {
        let (clock, log) = (MockClock::new(), Log::new());
        let calls = log.clone();
        let handler = move |key: &u32, message: &'static str| calls.push((*key, message));
        let pool = builder(&clock).capacity(4).build_handler(handler).unwrap();
        pool.send_after(A, "later", 2 * SECOND).unwrap();
        assert_eq!(pool.send_latest_after(A, "one", SECOND).unwrap(), None);
        assert_eq!(pool.send_latest_after(A, "two", SECOND).unwrap(), Some("one"));
        assert_eq!(pool.send_latest_after(B, "three", SECOND).unwrap(), None);
        pool.send(A, "now").unwrap();
        eventually(|| log.len() == 1);
        clock.advance(SECOND);
        eventually(|| log.len() == 3);
        clock.advance(SECOND);
        pool.wait_idle().unwrap();
        let calls = log.take();
        let of_a: Vec<_> = calls.into_iter().filter(|(key, _)| *key == A).collect();
        assert_eq!(of_a, [(A, "now"), (A, "two"), (A, "later")]);
        pool.send_after(A, "never", SECOND).unwrap();
        pool.send_latest_after(A, "neither", SECOND).unwrap();
        assert_eq!(pool.keys().take(&A), ["never", "neither"]);
        pool.send_after(A, "never", SECOND).unwrap();
        assert_eq!(pool.shutdown_now(), [(A, "never")]);
        assert_eq!(pool.send_after(A, "", SECOND).unwrap_err().kind(), SubmitErrorKind::Closed);
    });
}

/// Messages with a cost give their bytes back, whether they are handled, replaced or taken.
#[test]
fn messages_with_a_cost_keep_the_bound() {
    soon(|| {
        let clock = MockClock::new();
        let pool = builder(&clock)
            .capacity_bytes(100)
            .build_handler(handler::weighed(Vec::len, |_: &u32, _: Vec<u8>| ()))
            .unwrap();
        let bytes = || pool.inspect().snapshot(0).bytes;
        pool.send_after(A, vec![0; 10], SECOND).unwrap();
        pool.send_latest_after(A, vec![0; 20], SECOND).unwrap();
        assert_eq!(pool.send_latest_after(A, vec![0; 30], SECOND).unwrap().unwrap().len(), 20);
        assert_eq!(bytes(), 40);
        assert_eq!(pool.keys().take(&A).len(), 2);
        assert_eq!(bytes(), 0);
        pool.send_after(A, vec![0; 10], SECOND).unwrap();
        pool.send_latest_after(A, vec![0; 20], SECOND).unwrap();
        clock.advance(SECOND);
        pool.wait_idle().unwrap();
        assert_eq!(bytes(), 0);
        pool.send_after(A, vec![0; 70], SECOND).unwrap();
        assert_eq!(pool.shutdown_now().len(), 1);
        assert_eq!(bytes(), 0);
    });
}

#[cfg(feature = "tokio")]
#[test]
fn futures_are_delayed() {
    soon(|| {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let clock = MockClock::new();
        let pool = builder(&clock).runtime(runtime.handle().clone(), 2).build().unwrap();
        let cancelled = pool.task(A).after(SECOND).submit(async {}).unwrap();
        let task = pool.task(A).after(SECOND).submit(async { "after the delay" }).unwrap();
        assert!(cancelled.cancel());
        assert_eq!(unfinished(&pool), 1);
        clock.advance(SECOND);
        assert_eq!(task.join().unwrap(), "after the delay");
        drop(pool);
    });
}

/// A pool that a panic of a key has ended cancels its delayed tasks.
#[test]
fn a_poisoned_pool_cancels_its_delayed_tasks() {
    soon(|| {
        let (clock, live) = (MockClock::new(), Live::new());
        let armed = Arc::new(AtomicBool::new(false));
        let key = |number| Fragile(number, armed.clone());
        let builder = Pool::<Fragile>::builder().workers(1).clock(&clock);
        // The entries of a bound per key are found by comparisons.
        let pool = builder.capacity_per_key(9).build().unwrap();
        let captured = live.one();
        let task = pool.task(key(A)).after(SECOND).submit(move || drop(captured)).unwrap();
        pool.keys().pause(&key(A));
        armed.store(true, Ordering::SeqCst);
        drop(catch_unwind(AssertUnwindSafe(|| pool.execute(key(A), || ()))));
        eventually(|| pool.inspect().snapshot(0).poisoned);
        assert!(task.wait().unwrap().is_cancelled());
        assert_eq!(live.count(), 0);
        let refused = pool.task(key(A)).after(SECOND).submit(|| ()).unwrap_err();
        assert_eq!(refused.kind(), SubmitErrorKind::Poisoned);
    });
}

/// A key that panics while its delayed task enters costs that task.
#[test]
fn a_key_that_panics_when_its_task_enters_costs_the_task() {
    soon(|| {
        let (clock, live) = (MockClock::new(), Live::new());
        let armed = Arc::new(AtomicBool::new(false));
        let key = |number| Fragile(number, armed.clone());
        let pool = Pool::<Fragile>::builder().workers(1).clock(&clock).build().unwrap();
        pool.keys().pause(&key(A));
        let latest = |seconds: u32| {
            let captured = live.one();
            let task = pool.task(key(A)).latest().after(seconds * SECOND);
            task.submit(move || drop(captured)).unwrap()
        };
        let first = latest(1);
        clock.advance(SECOND);
        // The worker has entered it into its lane, for which it compares keys too.
        eventually(|| pool.inspect().snapshot(0).blocked == 1);
        let second = latest(1);
        let third = pool.task(key(B)).after(2 * SECOND).submit(|| ()).unwrap();
        // The second replaces the first, for which the keys are compared.
        armed.store(true, Ordering::SeqCst);
        clock.advance(SECOND);
        assert!(second.wait().unwrap().is_cancelled());
        eventually(|| pool.inspect().snapshot(0).panicked != 0);
        armed.store(false, Ordering::SeqCst);
        pool.keys().resume(&key(A));
        clock.advance(SECOND);
        for task in [first, third] {
            assert!(task.wait().unwrap().is_completed());
        }
        assert_eq!(live.count(), 0);
        pool.shutdown().unwrap();
    });
}

/// Tasks with random delays, roles and cancellations, and a stop at any moment: each runs, is
/// cancelled, replaced or returned, once, and the pool is empty.
#[test]
fn each_delayed_task_ends_once() {
    for seed in 0..30 {
        soon(move || random_program(seed));
    }
}

fn random_program(seed: u64) {
    let mut rng = Rng(seed);
    let live = Live::new();
    let pool = Arc::new(Pool::<u32>::builder().workers(2).self_check(true).build().unwrap());
    let ran = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    let stops_at = rng.below(400);
    let mut returned = 0;
    for number in 0..300 {
        if number == stops_at {
            let stops = pool.clone();
            returned = thread::spawn(move || stops.shutdown_now().len()).join().unwrap();
        }
        let key = rng.below(4) as u32;
        let (ran, captured) = (ran.clone(), live.one());
        let work = move || {
            ran.fetch_add(1, Ordering::SeqCst);
            drop(captured);
        };
        let delay = Duration::from_micros(rng.below(500));
        let submitted = match rng.below(6) {
            0 => pool.task([key, 9]).after(delay).submit(work),
            1 => pool.task(Claims::barrier()).after(delay).submit(work),
            2 | 3 => pool.task(key).latest().after(delay).submit(work),
            4 => pool.task(key).submit(work),
            _ => pool.task(key).after(delay).submit(work),
        };
        match submitted {
            Ok(task) if rng.below(5) == 0 => {
                task.cancel();
                tasks.push(task);
            }
            Ok(task) => tasks.push(task),
            Err(refused) => {
                assert!(number >= stops_at);
                assert_eq!(refused.kind(), SubmitErrorKind::Closed);
            }
        }
    }
    pool.shutdown().unwrap();
    let (mut completed, mut others) = (0, 0);
    for task in tasks {
        match task.wait().unwrap() {
            Outcome::Completed(()) => completed += 1,
            Outcome::Cancelled | Outcome::Superseded => others += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(ran.load(Ordering::SeqCst), completed);
    assert!(others >= returned);
    assert_eq!(live.count(), 0);
    assert_eq!(unfinished(&pool), 0);
    is_intact(&pool);
}
