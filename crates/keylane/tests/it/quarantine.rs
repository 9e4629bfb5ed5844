//! A key stops after the configured number of consecutive failures: its tasks wait, other keys go
//! on, the reason is visible, and the user resumes or empties the key.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::common::{
    AnyHasher, CountedKey, Gate, Live, Log, eventually, hold, with_every_hasher, with_turns,
};
use keylane::observe::{PauseReason, PausedKey};
use keylane::{BuildError, Claims, OnError, OnFailure, Pool, Turn};

with_every_hasher!(
    a_key_stops_after_so_many_failures_in_a_row,
    errors_count_as_panics_do,
    a_success_in_between_begins_anew,
    by_default_a_key_goes_on,
    a_resumed_key_may_fail_as_often_again,
    a_stopped_key_can_be_emptied,
    a_rollup_counts_for_each_of_its_keys,
    barriers_and_tasks_without_keys_stop_nothing,
    what_was_cancelled_counts_neither_way,
    those_that_share_are_counted_as_they_end,
    a_key_that_is_paused_and_stopped_goes_on_when_it_is_resumed,
    messages_fail_by_panic_by_error_and_by_their_turn,
    a_turn_that_another_task_fails_is_judged_alone,
    the_subtasks_of_a_job_do_not_count,
    the_next_task_never_begins_however_the_lane_goes_on,
);

const A: u32 = 1;
const B: u32 = 2;
const C: u32 = 3;

fn stopping<S: AnyHasher>(workers: usize, after: u32) -> Pool<u32, S> {
    let builder = Pool::<u32>::builder().workers(workers).hasher(S::default());
    builder.on_failure(OnFailure::StopKey { after }).build().unwrap()
}

/// A task that fails, one way or the other. Returns when it has ended, but for its turn.
fn fail<S: AnyHasher>(pool: &Pool<u32, S>, claims: Claims<u32>) {
    assert!(pool.submit(claims, || panic!("on purpose")).unwrap().wait().unwrap().ok().is_none());
}

fn succeed<S: AnyHasher>(pool: &Pool<u32, S>, key: u32) {
    assert!(pool.submit(key, || {}).unwrap().wait().unwrap().is_completed());
}

fn await_stop<S: AnyHasher>(pool: &Pool<u32, S>, key: u32) -> PausedKey<u32> {
    eventually(|| pool.keys().list_stopped().iter().any(|held| held.key == key));
    pool.keys().paused(&key).unwrap()
}

fn a_key_stops_after_so_many_failures_in_a_row<S: AnyHasher>() {
    let pool = stopping::<S>(2, 3);
    for _ in 0..3 {
        assert!(pool.keys().list_paused().is_empty());
        fail(&pool, Claims::exclusive(A));
    }
    let stopped = await_stop(&pool, A);
    assert!(matches!(stopped.hold, PauseReason::Stopped { failures: 3, .. }));
    let waits = pool.submit(A, || {}).unwrap();
    (0..100).for_each(|_| succeed(&pool, B));
    assert!(!waits.is_finished());
    assert!(pool.keys().resume(&A));
    assert!(waits.wait().unwrap().is_completed() && pool.keys().list_stopped().is_empty());
}

fn errors_count_as_panics_do<S: AnyHasher>() {
    let pool = stopping::<S>(1, 2);
    fail(&pool, Claims::exclusive(A));
    assert!(
        !pool.task(A).fallible().submit(|| Err::<(), _>(1)).unwrap().wait().unwrap().is_completed()
    );
    await_stop(&pool, A);
}

fn a_success_in_between_begins_anew<S: AnyHasher>() {
    let pool = stopping::<S>(2, 2);
    for _ in 0..5 {
        fail(&pool, Claims::exclusive(A));
        succeed(&pool, A);
        // Others don't count.
        fail(&pool, Claims::exclusive(B));
        assert!(
            pool.task(B)
                .fallible()
                .submit(|| Ok::<_, ()>(1))
                .unwrap()
                .wait()
                .unwrap()
                .is_completed()
        );
    }
    succeed(&pool, A);
    succeed(&pool, B);
    assert!(pool.keys().list_paused().is_empty());
}

fn by_default_a_key_goes_on<S: AnyHasher>() {
    let pool = crate::common::pool_of::<S>(1);
    (0..20).for_each(|_| fail(&pool, Claims::exclusive(A)));
    succeed(&pool, A);
    assert!(pool.keys().list_paused().is_empty());
}

fn a_resumed_key_may_fail_as_often_again<S: AnyHasher>() {
    let pool = stopping::<S>(1, 2);
    for _ in 0..3 {
        fail(&pool, Claims::exclusive(A));
        fail(&pool, Claims::exclusive(A));
        await_stop(&pool, A);
        pool.keys().resume(&A);
        succeed(&pool, A);
    }
    // One that has not stopped yet begins anew as well.
    fail(&pool, Claims::exclusive(A));
    succeed(&pool, B);
    pool.keys().resume(&A);
    fail(&pool, Claims::exclusive(A));
    succeed(&pool, A);
}

fn a_stopped_key_can_be_emptied<S: AnyHasher>() {
    let pool = stopping::<S>(1, 1);
    let running = hold(&pool, B);
    pool.execute(A, || panic!("on purpose")).unwrap();
    let log = Log::new();
    for n in 0..5 {
        let log = log.clone();
        pool.execute(A, move || log.push(n)).unwrap();
    }
    running.let_go();
    await_stop(&pool, A);
    let taken = pool.keys().take(&A);
    assert!(pool.keys().paused(&A).is_some(), "it is still stopped");
    taken.into_iter().for_each(keylane::PendingTask::run);
    assert_eq!(log.take(), [0, 1, 2, 3, 4]);
    eventually(|| pool.inspect().snapshot(0).unfinished == 0);
    pool.keys().resume(&A);
    pool.shutdown().unwrap();
}

fn a_rollup_counts_for_each_of_its_keys<S: AnyHasher>() {
    let pool = stopping::<S>(2, 2);
    fail(&pool, Claims::exclusive(A).and_shared(B));
    fail(&pool, Claims::exclusive(A).and_exclusive(C));
    await_stop(&pool, A);
    assert_eq!(pool.keys().list_stopped().len(), 1);
    // A success of a rollup is one of each key, too.
    assert!(pool.submit([B, C], || {}).unwrap().wait().unwrap().is_completed());
    fail(&pool, Claims::exclusive(B).and_exclusive(C));
    succeed(&pool, B);
    succeed(&pool, C);
    assert_eq!(pool.keys().list_stopped().len(), 1);
    fail(&pool, Claims::shared(B));
    fail(&pool, Claims::exclusive(B));
    await_stop(&pool, B);
}

fn barriers_and_tasks_without_keys_stop_nothing<S: AnyHasher>() {
    let pool = stopping::<S>(1, 1);
    fail(&pool, Claims::none());
    fail(&pool, Claims::barrier());
    succeed(&pool, A);
    assert!(pool.keys().list_paused().is_empty());
}

fn what_was_cancelled_counts_neither_way<S: AnyHasher>() {
    let pool = stopping::<S>(1, 2);
    let cancel = || {
        let running = hold(&pool, B);
        let handle = pool.submit(A, || {}).unwrap();
        assert!(handle.cancel());
        running.let_go();
        eventually(|| pool.inspect().snapshot(0).unfinished == 0);
    };
    cancel();
    fail(&pool, Claims::exclusive(A));
    cancel();
    assert!(pool.keys().list_paused().is_empty());
    fail(&pool, Claims::exclusive(A));
    await_stop(&pool, A);
}

fn those_that_share_are_counted_as_they_end<S: AnyHasher>() {
    let pool = stopping::<S>(3, 2);
    let running = hold(&pool, Claims::shared(A));
    fail(&pool, Claims::shared(A));
    fail(&pool, Claims::shared(A));
    let stopped = await_stop(&pool, A);
    assert!(stopped.running >= 1);
    let waits = pool.submit(Claims::shared(A), || {}).unwrap();
    succeed(&pool, B);
    running.let_go();
    eventually(|| pool.keys().paused(&A).is_some_and(|held| held.running == 0));
    assert!(!waits.is_finished(), "a success of one that ran beside lets nobody go on");
    pool.keys().resume(&A);
    assert!(waits.wait().unwrap().is_completed());
}

fn a_key_that_is_paused_and_stopped_goes_on_when_it_is_resumed<S: AnyHasher>() {
    let pool = stopping::<S>(2, 1);
    let fails = Gate::new();
    let wait = fails.clone();
    let begun = Gate::new();
    let begins = begun.clone();
    pool.execute(A, move || {
        begins.open();
        wait.pass();
        panic!("on purpose");
    })
    .unwrap();
    begun.pass();
    pool.keys().pause(&A);
    fails.open();
    await_stop(&pool, A);
    assert!(pool.keys().pause(&A) || pool.keys().list_paused().len() == 1);
    pool.keys().resume(&A);
    assert!(pool.keys().list_paused().is_empty());
    succeed(&pool, A);
}

fn messages_fail_by_panic_by_error_and_by_their_turn<S: AnyHasher>() {
    let builder = || {
        let builder = Pool::<u32>::builder().workers(1).hasher(S::default());
        builder.on_failure(OnFailure::StopKey { after: 2 })
    };
    let panics = builder().build_handler(|_: &u32, fails: bool| assert!(!fails)).unwrap();
    let errs = builder().build_handler(|_: &u32, fails: bool| if fails { Err(()) } else { Ok(()) });
    for pool in [panics, errs.unwrap()] {
        pool.send_many([true, false, true, true, false].map(|fails| (A, fails))).unwrap();
        eventually(|| pool.keys().list_stopped().len() == 1);
        assert_eq!(pool.keys().take(&A), [false]);
        pool.keys().resume(&A);
        pool.shutdown().unwrap();
    }
    // A turn that was kept is judged when it ends, wherever that is.
    let turns: Log<Turn> = Log::new();
    let keep = turns.clone();
    let pool = builder().build_handler(with_turns(move |_, panics: bool, turn| {
        assert!(!panics, "on purpose");
        keep.push(turn);
    }));
    let pool = pool.unwrap();
    pool.send(A, true).unwrap();
    pool.send(A, false).unwrap();
    eventually(|| turns.len() == 1);
    turns.take().into_iter().for_each(drop);
    pool.send_many([(A, true), (A, false), (A, false)]).unwrap();
    eventually(|| turns.len() == 1);
    assert!(pool.keys().list_paused().is_empty(), "the turn that ended well began anew");
    let turn = turns.take().pop();
    let dropped = thread::spawn(move || {
        let _turn = turn;
        panic!("on purpose");
    });
    assert!(dropped.join().is_err());
    eventually(|| pool.keys().list_stopped().len() == 1);
    pool.keys().resume(&A);
    eventually(|| turns.len() == 1);
    turns.take().into_iter().for_each(Turn::fail);
    pool.send(A, false).unwrap();
    eventually(|| turns.len() == 1);
    turns.take().into_iter().for_each(Turn::fail);
    eventually(|| pool.keys().list_stopped().len() == 1);
}

fn a_turn_that_another_task_fails_is_judged_alone<S: AnyHasher>() {
    let turns: Log<Turn> = Log::new();
    let keep = turns.clone();
    let builder = Pool::<u32>::builder().workers(1).hasher(S::default());
    let builder = builder.on_failure(OnFailure::StopKey { after: 1 });
    let pool = builder.build_handler(with_turns(move |key, (), turn| match *key {
        A => keep.push(turn),
        _ => keep.take().into_iter().for_each(Turn::fail),
    }));
    let pool = pool.unwrap();
    pool.send(A, ()).unwrap();
    eventually(|| turns.len() == 1);
    pool.send_many([(B, ()), (B, ())]).unwrap();
    eventually(|| pool.inspect().snapshot(0).unfinished == 0);
    let stopped: Vec<_> = pool.keys().list_stopped().into_iter().map(|held| held.key).collect();
    assert_eq!(stopped, [A]);
}

fn the_subtasks_of_a_job_do_not_count<S: AnyHasher>() {
    let pool = stopping::<S>(2, 2);
    fail(&pool, Claims::exclusive(A));
    let job = pool.job("failing").on_error(OnError::FinishAll);
    let job = job.each_keyed((0..10).map(|n| (A, move || assert!(n % 2 == 0)))).run().unwrap();
    let _ = job.wait();
    assert!(pool.keys().list_paused().is_empty());
    fail(&pool, Claims::exclusive(A));
    await_stop(&pool, A);
}

/// However the tasks lie: in the backlog, in a line, in the inbox of a resident lane.
fn the_next_task_never_begins_however_the_lane_goes_on<S: AnyHasher>() {
    for fails_at in [0, 1, 5, 70, 99] {
        let pool = stopping::<S>(2, 1);
        let running = hold(&pool, A);
        let ran = Arc::new(AtomicUsize::new(0));
        for n in 0..100 {
            let ran = ran.clone();
            pool.execute(A, move || {
                ran.fetch_add(1, Ordering::SeqCst);
                assert_ne!(n, fails_at);
            })
            .unwrap();
            if n == 50 {
                succeed(&pool, B);
            }
        }
        running.let_go();
        await_stop(&pool, A);
        succeed(&pool, B);
        assert_eq!(ran.load(Ordering::SeqCst), fails_at + 1);
        assert_eq!(pool.keys().take(&A).len(), 99 - fails_at);
    }
}

#[test]
fn no_failure_at_all_is_no_bound() {
    let built = Pool::<u32>::builder().on_failure(OnFailure::StopKey { after: 0 }).build();
    assert!(matches!(built, Err(BuildError::Failures)));
}

#[test]
fn nothing_stays_of_a_key_that_has_failed_once_one_has_succeeded() {
    let live = Live::new();
    let key = |n| CountedKey::new(n, &live);
    let on_failure = OnFailure::StopKey { after: 2 };
    let pool = Pool::<CountedKey>::builder().workers(1).on_failure(on_failure).build().unwrap();
    for n in 0..100 {
        assert!(pool.submit(key(n), || panic!("on purpose")).unwrap().wait().is_ok());
    }
    eventually(|| pool.inspect().snapshot(0).unfinished == 0);
    assert_eq!(live.count(), 100, "what was counted");
    for n in 0..50 {
        assert!(pool.submit(key(n), || {}).unwrap().wait().unwrap().is_completed());
    }
    (50..100).for_each(|n| _ = pool.keys().resume(&key(n)));
    eventually(|| pool.inspect().snapshot(0).unfinished == 0 && live.count() == 0);
}

#[cfg(feature = "tokio")]
#[test]
fn a_future_that_panics_counts_and_one_that_is_cancelled_does_not() {
    crate::common::soon(|| {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        let builder = Pool::<u32>::builder().workers(1).runtime(runtime.handle().clone(), 4);
        let pool = builder.on_failure(OnFailure::StopKey { after: 2 }).build().unwrap();
        let panics = || {
            let handle = pool.task(A).submit(async { panic!("on purpose") });
            assert!(!handle.unwrap().wait().unwrap().is_completed());
        };
        panics();
        let endless = pool.task(A).submit(std::future::pending::<()>()).unwrap();
        eventually(|| pool.inspect().snapshot(9).hottest.first().is_some_and(|lane| lane.running));
        endless.cancel();
        assert!(endless.wait().unwrap().is_cancelled());
        eventually(|| pool.inspect().snapshot(0).unfinished == 0);
        assert!(pool.keys().list_paused().is_empty());
        panics();
        eventually(|| pool.keys().list_stopped().len() == 1);
        pool.keys().resume(&A);
        panics();
        let done = pool.task(A).submit(async { 1 }).unwrap();
        assert!(done.wait().unwrap().is_completed());
        panics();
        eventually(|| pool.inspect().snapshot(0).unfinished == 0);
        assert!(pool.keys().list_paused().is_empty());
    });
}

#[test]
fn a_taken_task_that_panics_stops_nothing() {
    let pool = stopping::<keylane::KeyBuildHasher>(1, 1);
    pool.keys().pause(&A);
    pool.execute(A, || panic!("on purpose")).unwrap();
    for task in pool.keys().take(&A) {
        assert!(catch_unwind(AssertUnwindSafe(|| task.run())).is_err());
    }
    assert!(pool.keys().list_stopped().is_empty());
}
