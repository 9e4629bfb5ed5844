//! The end of a key's life runs after all that was submitted for the key before, exactly once; what
//! comes later begins a new life, or is refused, as was chosen; and nothing stays of it that was
//! not asked for.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use crate::common::{
    AnyHasher, CountedKey, Gate, LONG, Live, Log, block_on, eventually, hold, pool_of,
    with_every_hasher,
};
use keylane::{Claims, OnClosedKey, PendingTask, Pool, SubmitErrorKind};

use OnClosedKey::{NewLife, Refuse};
use SubmitErrorKind::{Closed, Full, KeyClosed, TimedOut};

with_every_hasher!(
    the_end_is_last_and_runs_once,
    everything_of_a_finished_key_is_refused_and_nothing_else,
    a_batch_gives_back_what_is_refused,
    nothing_behind_a_refused_task_is_accepted,
    a_finished_key_is_refused_without_waiting_for_room,
    a_finished_key_keeps_no_other_from_waiting_for_room,
    the_subtasks_of_a_job_come_in,
    a_life_has_one_end_and_the_next_task_begins_a_new_one,
    a_reopened_key_goes_on_behind_its_end,
    a_failed_end_is_none,
    an_end_is_held_and_not_taken_and_comes_back,
    a_cancelled_end_is_an_end_all_the_same,
    the_latest_of_a_key_is_before_its_end_or_refused,
    messages_have_an_end_too,
    nobody_overtakes_the_end_and_nobody_comes_after_it,
);

const A: u32 = 1;
const B: u32 = 2;

fn the_end_is_last_and_runs_once<S: AnyHasher>() {
    let pool = pool_of::<S>(3);
    let log = Log::new();
    let write = |name| {
        let log = log.clone();
        move || log.push(name)
    };
    let running = hold(&pool, [A, B]);
    for _ in 0..20 {
        pool.execute(A, write("message")).unwrap();
        pool.execute([A, B], write("message")).unwrap();
        pool.execute(Claims::shared(A), write("message")).unwrap();
    }
    let end = pool.task(A).last(Refuse).submit(write("end")).unwrap();
    pool.execute(B, || {}).unwrap();
    running.let_go();
    assert!(end.wait().unwrap().is_completed());
    pool.shutdown().unwrap();
    let log = log.take();
    assert_eq!(log.len(), 61);
    assert_eq!(log.iter().position(|name| *name == "end"), Some(60));
}

fn everything_of_a_finished_key_is_refused_and_nothing_else<S: AnyHasher>() {
    let pool = pool_of::<S>(2);
    let refused = || {
        assert_eq!(pool.submit(A, || 1).unwrap_err().kind(), KeyClosed);
        assert_eq!(pool.task(Claims::shared(A)).try_execute(|| {}).unwrap_err().kind(), KeyClosed);
        assert_eq!(pool.submit([B, A], || 1).unwrap_err().kind(), KeyClosed);
        assert_eq!(pool.task(A).latest().submit(|| 1).unwrap_err().kind(), KeyClosed);
        assert_eq!(pool.task(A).last(Refuse).submit(|| 1).unwrap_err().kind(), KeyClosed);
        assert_eq!(pool.task(A).last(NewLife).submit(|| 1).unwrap_err().kind(), KeyClosed);
        let (claims, work) = pool.submit(A, || 7).unwrap_err().into_inner();
        assert_eq!((format!("{claims:?}"), work()), (format!("{:?}", Claims::exclusive(A)), 7));
        assert!(pool.submit(B, || {}).unwrap().wait().unwrap().is_completed());
    };
    let running = hold(&pool, A);
    let end = pool.task(A).last(Refuse).submit(|| {}).unwrap();
    refused();
    // A refused task releases its permit.
    eventually(|| pool.inspect().snapshot(0).unfinished == 2);
    let barrier = pool.submit(Claims::barrier(), || {}).unwrap();
    running.let_go();
    assert!(end.wait().unwrap().is_completed() && barrier.wait().unwrap().is_completed());
    eventually(|| pool.inspect().snapshot(0).unfinished == 0);
    refused();
    assert_eq!(pool.keys().list_closed(), [A]);
}

fn a_batch_gives_back_what_is_refused<S: AnyHasher>() {
    let pool = pool_of::<S>(2);
    assert!(pool.task(A).last(Refuse).submit(|| {}).unwrap().wait().unwrap().is_completed());
    let batch = |keys: &[u32]| keys.iter().map(|&key| (key, move || key)).collect::<Vec<_>>();
    let error = pool.submit_many(batch(&[B, 3, A, 4, A, B])).unwrap_err();
    assert_eq!(error.kind(), KeyClosed);
    let (handles, rejected) = error.into_inner();
    let rejected: Vec<_> = rejected.into_iter().map(|(_, work)| work()).collect();
    assert_eq!(rejected, [A, 4, A, B]);
    let ran: Vec<_> = handles.into_iter().map(|handle| handle.wait().unwrap().unwrap()).collect();
    assert_eq!(ran, [B, 3]);
    let rollups = vec![(Claims::exclusive(B).and_exclusive(A), || {})];
    assert_eq!(pool.execute_many(rollups).unwrap_err().kind(), KeyClosed);
    eventually(|| pool.inspect().snapshot(0).unfinished == 0);
    assert_eq!(pool.submit_many(batch(&[B, 3])).unwrap().len(), 2);
}

/// A submission to a full pool waited for capacity first, and returned that it had timed out.
fn a_finished_key_is_refused_without_waiting_for_room<S: AnyHasher>() {
    for bounded in [false, true] {
        let builder = Pool::<u32>::builder().workers(1).capacity(1).hasher(S::default());
        let builder = if bounded { builder.capacity_per_key(1) } else { builder };
        let pool = builder.build().unwrap();
        assert!(pool.task(A).last(Refuse).submit(|| {}).unwrap().wait().unwrap().is_completed());
        let running = hold(&pool, B);
        let kind = |refused: SubmitErrorKind| assert_eq!(refused, KeyClosed);
        kind(pool.try_submit(A, || {}).unwrap_err().kind());
        kind(pool.submit(A, || {}).unwrap_err().kind());
        kind(pool.task(A).timeout(LONG).submit(|| {}).unwrap_err().kind());
        kind(pool.task([A, 3]).timeout(LONG).submit(|| {}).unwrap_err().kind());
        kind(pool.execute(Claims::shared(A), || {}).unwrap_err().kind());
        kind(pool.execute_many([(A, || {})]).unwrap_err().kind());
        kind(pool.task(A).latest().submit(|| {}).unwrap_err().kind());
        kind(pool.task(A).last(NewLife).submit(|| {}).unwrap_err().kind());
        kind(block_on(pool.task(A).submit_async(|| {})).unwrap_err().kind());
        assert_eq!(pool.try_submit(3, || {}).unwrap_err().kind(), Full);
        assert!(pool.keys().reopen(&A));
        assert_eq!(pool.try_submit(A, || {}).unwrap_err().kind(), Full);
        running.let_go();
        assert!(pool.submit(A, || {}).unwrap().wait().unwrap().is_completed());
    }
}

/// Finished keys are looked up before a submitter waits; one of another key waits all the same.
fn a_finished_key_keeps_no_other_from_waiting_for_room<S: AnyHasher>() {
    for bounded in [false, true] {
        let builder = Pool::<u32>::builder().workers(1).capacity(1).hasher(S::default());
        let builder = if bounded { builder.capacity_per_key(1) } else { builder };
        let pool = builder.build().unwrap();
        assert!(pool.task(A).last(Refuse).submit(|| {}).unwrap().wait().unwrap().is_completed());
        let running = hold(&pool, B);
        // The kind says that it would have waited.
        let at_once = pool.task(3).timeout(Duration::ZERO).submit(|| {});
        assert_eq!(at_once.unwrap_err().kind(), TimedOut);
        thread::scope(|scope| {
            let waits = scope.spawn(|| pool.submit(3, || 3).unwrap().wait().unwrap().unwrap());
            eventually(|| {
                waits.is_finished() || pool.inspect().snapshot(0).submitters_waiting == 1
            });
            running.let_go();
            assert_eq!(waits.join().unwrap(), 3);
        });
    }
}

/// Those behind a refused task were accepted, so that handles and tasks no longer were where the
/// caller expects them; but not those in later pieces of the batch.
fn nothing_behind_a_refused_task_is_accepted<S: AnyHasher>() {
    for (refused, tasks) in [(0, 2), (1, 300), (255, 600), (256, 600), (300, 700), (599, 600)] {
        for several in [None, Some(refused - 1), Some(refused), Some(refused + 1)] {
            let pool = Pool::<u32>::builder().workers(2).capacity(10_000).hasher(S::default());
            let pool = pool.build().unwrap();
            assert!(
                pool.task(A).last(Refuse).submit(|| {}).unwrap().wait().unwrap().is_completed()
            );
            let claims = |n: i32| {
                let key = if n == refused { A } else { 2 + n as u32 % 40 };
                match several == Some(n) {
                    true => Claims::exclusive(key).and_exclusive(50),
                    false => Claims::exclusive(key),
                }
            };
            let batch = (0..tasks).map(|n| (claims(n), move || n));
            let (handles, rejected) = pool.submit_many(batch).unwrap_err().into_inner();
            let rejected: Vec<_> = rejected.into_iter().map(|(_, work)| work()).collect();
            assert_eq!(rejected, (refused..tasks).collect::<Vec<_>>());
            let ran = handles.into_iter().map(|handle| handle.wait().unwrap().unwrap());
            assert_eq!(ran.collect::<Vec<_>>(), (0..refused).collect::<Vec<_>>());
            eventually(|| pool.inspect().snapshot(0).unfinished == 0);
        }
    }
}

fn the_subtasks_of_a_job_come_in<S: AnyHasher>() {
    let pool = pool_of::<S>(2);
    assert!(pool.task(A).last(Refuse).submit(|| {}).unwrap().wait().unwrap().is_completed());
    let job = pool.job("late").each_keyed([A, B, A].map(|key| (key, move || key))).collect();
    assert_eq!(job.unwrap().wait().unwrap().unwrap(), [A, B, A]);
    // Also if they have a cost.
    let pool = Pool::<u32>::builder().workers(2).capacity_bytes(9).hasher(S::default());
    let pool = pool.build().unwrap();
    assert!(pool.task(A).last(Refuse).submit(|| {}).unwrap().wait().unwrap().is_completed());
    let costing = |key| (Claims::exclusive(key).with_cost(3), move || key);
    let job = pool.job("late").each_keyed([A, B, A].map(costing)).collect();
    assert_eq!(job.unwrap().wait().unwrap().unwrap(), [A, B, A]);
}

fn a_life_has_one_end_and_the_next_task_begins_a_new_one<S: AnyHasher>() {
    let pool = pool_of::<S>(2);
    let log = Log::new();
    let write = |name| {
        let log = log.clone();
        move || log.push(name)
    };
    let running = hold(&pool, A);
    pool.execute(A, write("first life")).unwrap();
    drop(pool.task(A).last(NewLife).submit(write("first end")).unwrap());
    let refused = pool.task(A).last(NewLife).submit(write("twice")).unwrap_err();
    assert_eq!(refused.kind(), KeyClosed);
    pool.execute(A, write("second life")).unwrap();
    drop(pool.task(A).last(NewLife).submit(write("second end")).unwrap());
    // A rollup begins one as well, and so does a latest task.
    pool.execute([A, B], write("third life")).unwrap();
    drop(pool.task(A).last(NewLife).submit(write("third end")).unwrap());
    pool.task(A).latest().execute(write("fourth life")).unwrap();
    drop(pool.task(A).last(Refuse).submit(write("fourth end")).unwrap());
    assert_eq!(pool.execute(A, || {}).unwrap_err().kind(), KeyClosed);
    running.let_go();
    eventually(|| pool.inspect().snapshot(0).unfinished == 0);
    let lives = ["first", "second", "third", "fourth"];
    assert_eq!(log.take(), lives.map(|n| [format!("{n} life"), format!("{n} end")]).concat());
    assert!(pool.keys().reopen(&A));
    // An end that has run is forgotten.
    for _ in 0..3 {
        let end = pool.task(A).last(NewLife).submit(|| {}).unwrap();
        assert!(end.wait().unwrap().is_completed());
        eventually(|| pool.inspect().snapshot(0).unfinished == 0);
    }
    assert!(pool.keys().list_closed().is_empty());
}

fn a_reopened_key_goes_on_behind_its_end<S: AnyHasher>() {
    let pool = pool_of::<S>(2);
    let log = Log::new();
    let write = |name| {
        let log = log.clone();
        move || log.push(name)
    };
    assert!(!pool.keys().reopen(&A));
    let running = hold(&pool, A);
    drop(pool.task(A).last(Refuse).submit(write("end")).unwrap());
    assert!(pool.keys().reopen(&A));
    let late = pool.submit(A, write("late")).unwrap();
    assert!(!pool.keys().reopen(&A));
    running.let_go();
    assert!(late.wait().unwrap().is_completed());
    assert_eq!(log.take(), ["end", "late"]);
}

fn a_failed_end_is_none<S: AnyHasher>() {
    let pool = Pool::<u32>::builder().workers(1).capacity(1).hasher(S::default()).build().unwrap();
    let running = hold(&pool, B);
    let full = pool.task(A).last(Refuse).try_submit(|| {}).unwrap_err();
    assert_eq!(full.kind(), Full);
    running.let_go();
    assert!(pool.submit(A, || {}).unwrap().wait().unwrap().is_completed());
    assert!(pool.keys().list_closed().is_empty());
    pool.close();
    assert_eq!(pool.task(A).last(Refuse).submit(|| {}).unwrap_err().kind(), Closed);
    assert!(pool.keys().list_closed().is_empty());
}

fn an_end_is_held_and_not_taken_and_comes_back<S: AnyHasher>() {
    let pool = pool_of::<S>(2);
    let log = Log::new();
    let write = |name| {
        let log = log.clone();
        move || log.push(name)
    };
    pool.keys().pause(&A);
    pool.execute(A, write("taken")).unwrap();
    let end = pool.task(A).last(NewLife).submit(write("end")).unwrap();
    assert!(pool.submit(B, || {}).unwrap().wait().unwrap().is_completed());
    assert!(!end.is_finished());
    assert_eq!(pool.keys().take(&A).len(), 1);
    pool.keys().resume(&A);
    assert!(end.wait().unwrap().is_completed());
    assert_eq!(log.take(), ["end"]);
    pool.keys().pause(&A);
    eventually(|| pool.inspect().snapshot(0).unfinished == 0);
    drop(pool.task(A).last(Refuse).submit(write("end")).unwrap());
    drop(pool.task(B).last(Refuse).submit(|| {}).unwrap());
    eventually(|| pool.inspect().snapshot(0).unfinished == 1);
    let unrun = pool.shutdown_now();
    assert_eq!((unrun.len(), log.len()), (1, 0));
    unrun.into_iter().for_each(PendingTask::run);
    assert_eq!(log.take(), ["end"]);
}

fn a_cancelled_end_is_an_end_all_the_same<S: AnyHasher>() {
    let pool = pool_of::<S>(1);
    let running = hold(&pool, A);
    let end = pool.task(A).last(Refuse).submit(|| {}).unwrap();
    assert!(end.cancel());
    running.let_go();
    eventually(|| pool.inspect().snapshot(0).unfinished == 0);
    assert_eq!(pool.execute(A, || {}).unwrap_err().kind(), KeyClosed);
}

fn the_latest_of_a_key_is_before_its_end_or_refused<S: AnyHasher>() {
    for after in [NewLife, Refuse] {
        let pool = pool_of::<S>(1);
        let log = Log::new();
        let write = |name| {
            let log = log.clone();
            move || log.push(name)
        };
        let running = hold(&pool, A);
        pool.task(A).latest().execute(write("before")).unwrap();
        drop(pool.task(A).last(after).submit(write("end")).unwrap());
        let late = pool.task(A).latest().execute(write("after"));
        assert_eq!(
            late.map_err(|error| error.kind()),
            match after {
                NewLife => Ok(()),
                _ => Err(KeyClosed),
            }
        );
        running.let_go();
        pool.shutdown().unwrap();
        let ran = log.take();
        match after {
            NewLife => assert_eq!(ran, ["end", "after"], "the first was superseded"),
            _ => assert_eq!(ran, ["before", "end"]),
        }
    }
}

fn messages_have_an_end_too<S: AnyHasher>() {
    let (handled, gate) = (Log::new(), Gate::new());
    let (log, wait) = (handled.clone(), gate.clone());
    let pool = Pool::<u32>::builder().workers(2).hasher(S::default());
    let pool = pool.build_handler(move |key: &u32, text: &'static str| {
        wait.pass();
        log.push((*key, text));
    });
    let pool = pool.unwrap();
    pool.send(A, "message").unwrap();
    pool.try_close_key(A, Refuse, "closed").unwrap();
    let refused = pool.send(A, "late").unwrap_err();
    assert_eq!((refused.kind(), refused.into_inner()), (KeyClosed, (A, "late")));
    assert_eq!(pool.send_many([(B, "other"), (A, "late")]).unwrap_err().kind(), KeyClosed);
    assert_eq!(pool.send_latest(A, "late").unwrap_err().kind(), KeyClosed);
    assert_eq!(pool.close_key(A, NewLife, "late").unwrap_err().into_inner(), (A, "late"));
    assert_eq!(pool.keys().list_closed(), [A]);
    assert!(pool.keys().reopen(&A) && pool.keys().list_closed().is_empty());
    pool.close_key(B, NewLife, "gone").unwrap();
    gate.open();
    pool.shutdown().unwrap();
    let mut log = handled.take();
    log.sort_by_key(|(key, _)| *key);
    assert_eq!(log, [(A, "message"), (A, "closed"), (B, "other"), (B, "gone")]);
}

/// Seed 000, 0h: the handler of a connection's end could overtake messages that were queued, and
/// messages could run after it.
fn nobody_overtakes_the_end_and_nobody_comes_after_it<S: AnyHasher>() {
    for round in 0..60 {
        let pool = Arc::new(pool_of::<S>(2));
        let accepted = Arc::new(AtomicUsize::new(0));
        let (ran, start) = (Arc::new(AtomicUsize::new(0)), Arc::new(Barrier::new(3)));
        let producers: Vec<_> = (0..2)
            .map(|_| {
                let (pool, ran) = (pool.clone(), ran.clone());
                let (accepted, start) = (accepted.clone(), start.clone());
                thread::spawn(move || {
                    start.wait();
                    for n in 0..100 {
                        let ran = ran.clone();
                        let body = move || _ = ran.fetch_add(1, Ordering::SeqCst);
                        let result = match n % 3 {
                            0 => pool.execute([A, B], body),
                            _ => pool.execute(A, body),
                        };
                        match result {
                            Ok(()) => _ = accepted.fetch_add(1, Ordering::SeqCst),
                            Err(error) => {
                                assert_eq!(error.kind(), KeyClosed);
                                return;
                            }
                        }
                    }
                })
            })
            .collect();
        start.wait();
        (0..round * 30).for_each(|_| thread::yield_now());
        let at_the_end = ran.clone();
        let end =
            pool.task(A).last(Refuse).submit(move || at_the_end.load(Ordering::SeqCst)).unwrap();
        producers.into_iter().for_each(|producer| producer.join().unwrap());
        let before = end.wait().unwrap().unwrap();
        pool.shutdown().unwrap();
        assert_eq!(before, accepted.load(Ordering::SeqCst));
        assert_eq!(before, ran.load(Ordering::SeqCst));
    }
}

#[test]
fn nothing_stays_of_a_finished_key_that_was_not_asked_for() {
    let live = Live::new();
    let key = |n| CountedKey::new(n, &live);
    let pool = Pool::<CountedKey>::builder().workers(2).build().unwrap();
    for n in 0..200 {
        pool.execute(key(n), || {}).unwrap();
        let after = if n % 2 == 0 { NewLife } else { Refuse };
        drop(pool.task(key(n)).last(after).submit(|| {}).unwrap());
    }
    eventually(|| pool.inspect().snapshot(0).unfinished == 0 && live.count() == 100);
    assert_eq!(pool.keys().list_closed().len(), 100);
    (0..200).for_each(|n| assert_eq!(pool.keys().reopen(&key(n)), n % 2 != 0));
    eventually(|| live.count() == 0);
}
