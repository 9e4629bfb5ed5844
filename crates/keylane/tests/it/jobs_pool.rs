//! Jobs in a real pool: their subtasks run, each once, and their results come in the order that was
//! asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{AnyHasher, Gate, Log, hold, pool, pool_of, soon, with_every_hasher};
use keylane::{Claims, OnError, Outcome, ResultOrder};

with_every_hasher!(
    each_subtask_runs_once_and_the_results_are_in_order,
    keyed_subtasks_keep_their_order_with_the_rest_of_the_pool,
    a_barrier_is_alone_among_subtasks,
);

fn each_subtask_runs_once_and_the_results_are_in_order<S: AnyHasher>() {
    for workers in [1, 2, 4] {
        let pool = pool_of::<S>(workers);
        for count in [0, 1, 2, 63, 64, 65, 5000_u32] {
            let plain = pool.job("plain").each((0..count).map(|n| move || n)).collect().unwrap();
            let keyed = (0..count).map(|n| (n % 7, move || n));
            let keyed = pool.job("keyed").each_keyed(keyed).collect().unwrap();
            let fold = pool
                .job("fold")
                .result_order(ResultOrder::Submission)
                .each((0..count).map(|n| move || n))
                .fold(Vec::new(), |mut all, n| {
                    all.push(n);
                    all
                })
                .unwrap();
            let want: Vec<u32> = (0..count).collect();
            assert_eq!(fold.wait().unwrap().unwrap(), want);
            assert_eq!(keyed.wait().unwrap().unwrap(), want);
            assert_eq!(plain.progress().total(), Some(u64::from(count)));
            assert_eq!(plain.wait().unwrap().unwrap(), want);
        }
        assert!(pool.jobs().list().is_empty());
    }
}

fn keyed_subtasks_keep_their_order_with_the_rest_of_the_pool<S: AnyHasher>() {
    let pool = pool_of::<S>(3);
    let log = Log::new();
    let held = hold(&pool, 1);
    let (first, second) = (log.clone(), log.clone());
    pool.execute(1, move || first.push(0)).unwrap();
    let split = Gate::new();
    let (at_end, subtasks) = (split.clone(), log.clone());
    let pieces = (1..=50_u32).map(move |n| {
        if n == 50 {
            at_end.open();
        }
        let log = subtasks.clone();
        (1, move || log.push(n))
    });
    let job = pool.job("keyed").each_keyed(pieces).run().unwrap();
    split.pass();
    crate::common::eventually(|| job.progress().waiting == 50);
    pool.execute(1, move || second.push(51)).unwrap();
    assert_eq!(log.len(), 0);
    held.let_go();
    pool.shutdown().unwrap();
    assert!(job.wait().unwrap().is_completed());
    assert_eq!(log.take(), (0..=51).collect::<Vec<_>>());
}

fn a_barrier_is_alone_among_subtasks<S: AnyHasher>() {
    let pool = pool_of::<S>(3);
    let running = Arc::new(AtomicUsize::new(0));
    let subtasks = running.clone();
    let job = pool
        .job("tiny")
        .each((0..20_000).map(move |_| {
            let running = subtasks.clone();
            move || {
                running.fetch_add(1, Ordering::SeqCst);
                std::thread::yield_now();
                running.fetch_sub(1, Ordering::SeqCst);
            }
        }))
        .run()
        .unwrap();
    while !job.is_finished() {
        let running = running.clone();
        // A subtask that runs beside it would be seen by one look or another.
        let look = move |_| {
            std::thread::yield_now();
            running.load(Ordering::SeqCst)
        };
        let alone =
            pool.submit(Claims::barrier(), move || (0..50).map(look).sum::<usize>()).unwrap();
        assert_eq!(alone.wait().unwrap().unwrap(), 0);
    }
    assert!(job.wait().unwrap().is_completed());
}

#[test]
fn the_first_failure_ends_the_job_or_the_others_go_on() {
    soon(|| {
        let pool = pool(2);
        for (on_error, all) in [(OnError::FailFast, false), (OnError::FinishAll, true)] {
            let ran = Arc::new(AtomicUsize::new(0));
            let counter = ran.clone();
            let pieces = (0..100_000_u32).map(move |n| {
                let ran = counter.clone();
                move || {
                    ran.fetch_add(1, Ordering::SeqCst);
                    if n == 10 { Err(n) } else { Ok(n) }
                }
            });
            let job = pool.job("fails").on_error(on_error).try_each(pieces).collect().unwrap();
            match job.wait().unwrap() {
                Outcome::Failed(10) => {}
                other => panic!("{other:?}"),
            }
            assert_eq!(ran.load(Ordering::SeqCst) == 100_000, all);
        }
    });
}

#[test]
fn a_cancelled_job_ends_when_what_runs_has() {
    soon(|| {
        let pool = pool(2);
        let (gate, begun) = (Gate::new(), Gate::new());
        let (wait, runs) = (gate.clone(), begun.clone());
        let pieces = (0..10).map(move |_| {
            let (wait, runs) = (wait.clone(), runs.clone());
            move || {
                runs.open();
                wait.pass();
            }
        });
        let job = pool.job("cancelled").each(pieces).run().unwrap();
        begun.pass();
        job.cancel();
        assert!(!job.is_finished());
        gate.open();
        assert!(job.wait().unwrap().is_cancelled());
    });
}
