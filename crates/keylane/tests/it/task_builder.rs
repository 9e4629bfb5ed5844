//! A task with options can be submitted by every ending: with a handle or without, waiting or not,
//! blocking the thread or not; as a closure or a future, that may fail or not.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use keylane::{Claims, OnClosedKey, Pool, SubmitErrorKind, TaskError};

use crate::common::block_on;

const A: u32 = 1;
const B: u32 = 2;

/// Pool in which nothing begins on key A, with a capacity for this number of tasks.
fn held(capacity: usize) -> Pool<u32> {
    let pool = Pool::<u32>::builder().workers(1).capacity(capacity).build().unwrap();
    pool.keys().pause(&A);
    pool
}

#[test]
fn every_ending_runs_a_closure() {
    let pool = Pool::<u32>::builder().build().unwrap();
    let ran = Arc::new(AtomicUsize::new(0));
    let count = || {
        let ran = ran.clone();
        move || ran.fetch_add(1, Ordering::SeqCst)
    };
    let handles = [
        pool.task(A).submit(count()).unwrap(),
        pool.task(A).try_submit(count()).unwrap(),
        block_on(pool.task(A).submit_async(count())).unwrap(),
    ];
    pool.task(A).execute(count()).unwrap();
    pool.task(A).try_execute(count()).unwrap();
    block_on(pool.task(A).execute_async(count())).unwrap();
    let order: Vec<_> = handles.into_iter().map(|handle| handle.join().unwrap()).collect();
    assert_eq!(order, [0, 1, 2]);
    pool.shutdown().unwrap();
    assert_eq!(ran.load(Ordering::SeqCst), 6);
}

#[test]
fn every_ending_runs_fallible_work_and_counts_its_failures() {
    let pool = Pool::<u32>::builder().build().unwrap();
    let fail = || || Err::<(), _>("as expected");
    let handles = [
        pool.task(A).fallible().submit(fail()).unwrap(),
        pool.task(A).fallible().try_submit(fail()).unwrap(),
        block_on(pool.task(A).fallible().submit_async(fail())).unwrap(),
        pool.task(A).latest().fallible().submit(fail()).unwrap(),
    ];
    for handle in handles {
        assert!(matches!(handle.join(), Err(TaskError::Failed("as expected"))));
    }
    pool.task(A).fallible().execute(fail()).unwrap();
    pool.task(A).fallible().try_execute(fail()).unwrap();
    block_on(pool.task(A).fallible().execute_async(fail())).unwrap();
    pool.shutdown().unwrap();
    assert_eq!(pool.inspect().snapshot(0).failed, 7);
}

#[cfg(feature = "tokio")]
#[test]
fn every_ending_runs_a_future() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let pool = Pool::<u32>::builder().runtime(runtime.handle().clone(), 10).build().unwrap();
    let handles = [
        pool.task(A).submit(std::future::ready(1)).unwrap(),
        pool.task(A).try_submit(std::future::ready(2)).unwrap(),
        block_on(pool.task(A).submit_async(std::future::ready(3))).unwrap(),
        pool.task(A).latest().submit(std::future::ready(4)).unwrap(),
    ];
    let values: Vec<_> = handles.into_iter().map(|handle| handle.join().unwrap()).collect();
    assert_eq!(values, [1, 2, 3, 4]);
    let failed = pool.task(A).fallible().submit(async { Err::<(), _>("as expected") }).unwrap();
    assert!(matches!(failed.join(), Err(TaskError::Failed("as expected"))));
    pool.task(A).execute(async {}).unwrap();
    block_on(pool.task(A).execute_async(async {})).unwrap();
    let last = pool.task(A).last(OnClosedKey::NewLife).submit(async { "closed" }).unwrap();
    assert_eq!(last.join().unwrap(), "closed");
    pool.shutdown().unwrap();
    assert_eq!(pool.inspect().snapshot(0).failed, 1);
}

#[cfg(feature = "tokio")]
#[test]
fn a_future_without_a_runtime_comes_back_at_once() {
    let pool = held(1);
    pool.execute(A, || ()).unwrap();
    // The pool is full: waiting for capacity would not help.
    let refused = pool.task(B).submit(async { 7 }).unwrap_err();
    assert_eq!(refused.kind(), SubmitErrorKind::NoRuntime);
    let (_, future) = refused.into_inner();
    assert_eq!(block_on(future), 7);
}

#[test]
fn a_timeout_or_a_deadline_ends_the_wait_and_returns_the_work() {
    let pool = held(1);
    pool.execute(A, || ()).unwrap();
    let late = pool.task(B).timeout(Duration::from_millis(1)).submit(|| 7).unwrap_err();
    assert_eq!(late.kind(), SubmitErrorKind::TimedOut);
    let (claims, work) = late.into_inner();
    let late = pool.task(claims).deadline(Instant::now()).execute(work).unwrap_err();
    assert_eq!(late.kind(), SubmitErrorKind::TimedOut);
    assert_eq!(late.into_inner().1(), 7);
    let full = pool.task(B).timeout(Duration::MAX).try_execute(|| ()).unwrap_err();
    assert_eq!(full.kind(), SubmitErrorKind::Full);
}

#[test]
fn the_latest_without_blocking_takes_over_the_permit_of_the_replaced_one() {
    let pool = held(1);
    let old = block_on(pool.task([A]).latest().submit_async(|| 1)).unwrap();
    let new = block_on(pool.task([A]).latest().submit_async(|| 2)).unwrap();
    assert!(old.wait().unwrap().is_superseded());
    pool.keys().resume(&A);
    assert_eq!(new.join().unwrap(), 2);
}

#[test]
fn the_last_without_blocking_closes_its_key() {
    let pool = held(2);
    block_on(pool.task(A).last(OnClosedKey::Refuse).execute_async(|| ())).unwrap();
    let second = block_on(pool.task(A).last(OnClosedKey::Refuse).submit_async(|| ())).unwrap_err();
    assert_eq!(second.kind(), SubmitErrorKind::KeyClosed);
    assert_eq!(pool.execute(A, || ()).unwrap_err().kind(), SubmitErrorKind::KeyClosed);
}

#[test]
fn a_replaced_task_frees_its_cost() {
    let pool = Pool::<u32>::builder().workers(1).capacity_bytes(100).build().unwrap();
    pool.keys().pause(&A);
    let old = pool.task(A).cost(60).latest().submit(|| 1).unwrap();
    let large = pool.task(A).cost(60).latest().try_submit(|| 2).unwrap_err();
    assert_eq!(large.kind(), SubmitErrorKind::Full, "both are in memory for a moment");
    let new = pool.task(A).cost(40).latest().try_submit(|| 3).unwrap();
    assert!(old.wait().unwrap().is_superseded());
    pool.task(B).cost(60).try_execute(|| ()).unwrap();
    pool.keys().resume(&A);
    assert_eq!(new.join().unwrap(), 3);
}

#[test]
fn claims_come_from_iterators() {
    let pool = Pool::<u32>::builder().workers(4).build().unwrap();
    pool.keys().pause(&7);
    let mut claims: Claims<u32> = (0..5).collect();
    claims.extend(HashSet::from([7, 8]));
    let all = pool.task(claims).submit(|| "after all of them").unwrap();
    let behind = pool.task(3).submit(|| ()).unwrap();
    pool.submit(6, || ()).unwrap().join().unwrap();
    assert!(!all.is_finished() && !behind.is_finished());
    pool.keys().resume(&7);
    assert_eq!(all.join().unwrap(), "after all of them");
    behind.join().unwrap();
}

#[test]
#[should_panic(expected = "exactly one key")]
fn the_latest_of_two_keys_is_refused() {
    let pool = Pool::<u32>::builder().build().unwrap();
    drop(pool.task([A, B]).latest());
}

#[test]
#[should_panic(expected = "exactly one key")]
fn the_last_of_a_shared_key_is_refused() {
    let pool = Pool::<u32>::builder().build().unwrap();
    drop(pool.task(Claims::shared(A)).last(OnClosedKey::NewLife));
}
