//! Taking the waiting tasks of a key: in order, exactly those that have not begun; their handles
//! complete, their capacity is free at once, and everything else continues as if they had never
//! been there.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::common::{AnyHasher, Live, Log, Rng, eventually, hold, pool_of, with_every_hasher};
use keylane::{Claims, PendingTask, Pool, handler};

with_every_hasher!(
    exactly_those_come_back_that_have_not_begun_in_order,
    what_is_dropped_ends_as_cancelled_and_leaves_nothing,
    places_are_free_at_once,
    rollups_stay_and_go_on,
    those_that_share_beside_each_other_join_when_the_writer_is_taken,
    tasks_behind_a_barrier_are_taken_too,
    tasks_that_wait_only_for_a_worker_are_taken_too,
    a_handler_pool_gives_its_messages_back,
    each_task_runs_or_is_taken,
);

const A: u32 = 1;
const B: u32 = 2;

fn exactly_those_come_back_that_have_not_begun_in_order<S: AnyHasher>() {
    let pool = pool_of::<S>(2);
    let log = Log::new();
    let running = hold(&pool, A);
    // Some in the lane, some in the backlog, some in the inbox.
    for n in 0..200 {
        let log = log.clone();
        pool.execute(A, move || log.push(n)).unwrap();
        if n % 50 == 0 {
            assert!(pool.submit(B, || {}).unwrap().wait().unwrap().is_completed());
        }
    }
    let taken = pool.keys().take(&A);
    assert_eq!(taken.len(), 200);
    assert!(pool.keys().take(&A).is_empty() && pool.keys().take(&B).is_empty());
    let after = pool.submit(A, || {}).unwrap();
    running.let_go();
    assert!(after.wait().unwrap().is_completed());
    assert_eq!(log.len(), 0);
    taken.into_iter().for_each(PendingTask::run);
    assert_eq!(log.take(), (0..200).collect::<Vec<_>>());
}

fn what_is_dropped_ends_as_cancelled_and_leaves_nothing<S: AnyHasher>() {
    let pool = pool_of::<S>(1);
    let (live, running) = (Live::new(), hold(&pool, A));
    let handles: Vec<_> = (0..10)
        .map(|n| {
            let one = live.one();
            let claims = if n % 3 == 0 { Claims::shared(A) } else { Claims::exclusive(A) };
            pool.submit(claims, move || drop(one)).unwrap()
        })
        .collect();
    let taken = pool.keys().take(&A);
    assert!(taken.iter().all(|task| format!("{:?}", task.claims()).contains('1')));
    drop(taken);
    assert_eq!(live.count(), 0);
    for handle in handles {
        assert!(handle.wait().unwrap().is_cancelled());
    }
    running.let_go();
    eventually(|| pool.inspect().snapshot(0).unfinished == 0);
    pool.shutdown().unwrap();
}

fn places_are_free_at_once<S: AnyHasher>() {
    let builder = Pool::<u32>::builder().workers(1).capacity(4).capacity_bytes(100);
    let pool = builder.capacity_per_key(3).hasher(S::default()).build().unwrap();
    let running = hold(&pool, A);
    for _ in 0..2 {
        pool.execute(Claims::exclusive(A).with_cost(50), || {}).unwrap();
    }
    assert!(pool.task(A).try_execute(|| {}).is_err(), "the key is full");
    assert_eq!(pool.inspect().snapshot(0).bytes, 100);
    thread::scope(|scope| {
        let held = scope.spawn(|| pool.execute(A, || {}));
        eventually(|| pool.inspect().snapshot(0).submitters_held == 1);
        let taken = pool.keys().take(&A);
        // Some may be the one that was held, if it was quick.
        assert!((2..=3).contains(&taken.len()));
        held.join().unwrap().unwrap();
        drop(taken);
    });
    assert_eq!(pool.inspect().snapshot(0).bytes, 0);
    drop(pool.keys().take(&A));
    assert_eq!(pool.inspect().snapshot(0).unfinished, 1);
    for _ in 0..2 {
        pool.task(Claims::exclusive(A).with_cost(50)).try_execute(|| {}).unwrap();
    }
    pool.task(B).try_execute(|| {}).unwrap();
    running.let_go();
    pool.shutdown().unwrap();
}

fn rollups_stay_and_go_on<S: AnyHasher>() {
    let pool = pool_of::<S>(2);
    let log = Log::new();
    let task = |name| {
        let log = log.clone();
        move || log.push(name)
    };
    let running = hold(&pool, A);
    pool.execute(A, task("taken")).unwrap();
    let rollup = pool.submit([A, B], task("rollup")).unwrap();
    pool.execute(A, task("taken")).unwrap();
    let behind = pool.submit(B, task("behind")).unwrap();
    assert_eq!(pool.keys().take(&A).len(), 2);
    running.let_go();
    assert!(rollup.wait().unwrap().is_completed() && behind.wait().unwrap().is_completed());
    assert_eq!(log.take(), ["rollup", "behind"]);
}

fn those_that_share_beside_each_other_join_when_the_writer_is_taken<S: AnyHasher>() {
    let pool = pool_of::<S>(3);
    let reader = hold(&pool, Claims::shared(A));
    let writer = pool.submit(A, || {}).unwrap();
    // A rollup, so it stays.
    let behind = pool.submit(Claims::shared(A).and_shared(B), || {}).unwrap();
    // In one shard, all earlier tasks have been entered when it runs.
    assert!(pool.submit(7, || {}).unwrap().wait().unwrap().is_completed());
    assert!(!behind.is_finished());
    drop(pool.keys().take(&A));
    assert!(behind.wait().unwrap().is_completed(), "beside the reader that runs");
    assert!(writer.wait().unwrap().is_cancelled());
    reader.let_go();
}

fn tasks_behind_a_barrier_are_taken_too<S: AnyHasher>() {
    let pool = pool_of::<S>(2);
    let running = hold(&pool, A);
    let barrier = pool.submit(Claims::barrier(), || {}).unwrap();
    for _ in 0..3 {
        pool.execute(A, || {}).unwrap();
    }
    eventually(|| pool.inspect().snapshot(0).workers_asleep == 1);
    assert_eq!(pool.keys().take(&A).len(), 3);
    assert!(!barrier.is_finished());
    running.let_go();
    assert!(barrier.wait().unwrap().is_completed());
    pool.shutdown().unwrap();
}

fn tasks_that_wait_only_for_a_worker_are_taken_too<S: AnyHasher>() {
    for claims in [Claims::exclusive(A), Claims::shared(A)] {
        let pool = Arc::new(pool_of::<S>(1));
        let inside = pool.clone();
        let taken = pool.submit(B, move || {
            for _ in 0..3 {
                inside.execute(claims.clone(), || {}).unwrap();
            }
            // A wait inside a task enters everything in the inboxes.
            assert!(inside.submit(B, || {}).unwrap().wait().is_err(), "it is behind this task");
            inside.keys().take(&A).len()
        });
        assert_eq!(taken.unwrap().wait().unwrap().unwrap(), 3);
        assert!(pool.submit(A, || {}).unwrap().wait().unwrap().is_completed());
        pool.shutdown().unwrap();
    }
}

fn a_handler_pool_gives_its_messages_back<S: AnyHasher>() {
    let log = Log::new();
    let (handled, builder) = (log.clone(), Pool::<u32>::builder().capacity_bytes(1000));
    let pool = builder
        .workers(1)
        .hasher(S::default())
        .build_handler(handler::weighed(|n| *n, move |_: &u32, n: usize| handled.push(n)))
        .unwrap();
    pool.keys().pause(&A);
    for n in 1..=5 {
        pool.send(A, n).unwrap();
    }
    assert_eq!(pool.inspect().snapshot(0).bytes, 15);
    assert_eq!(pool.keys().list_paused().len(), 1);
    assert_eq!(pool.keys().take(&A), [1, 2, 3, 4, 5]);
    assert_eq!((pool.inspect().snapshot(0).bytes, pool.inspect().snapshot(0).unfinished), (0, 0));
    pool.send(A, 6).unwrap();
    assert!(pool.keys().paused(&A).is_some());
    assert!(pool.keys().resume(&A));
    pool.shutdown().unwrap();
    assert_eq!(log.take(), [6]);
}

/// A thread takes while tasks are submitted and run. Each one runs or is taken, once, in order.
fn each_task_runs_or_is_taken<S: AnyHasher>() {
    const KEYS: u32 = 4;
    const TASKS: usize = 4000;
    let pool = Arc::new(pool_of::<S>(3));
    let fate: Arc<Vec<AtomicUsize>> = Arc::new((0..TASKS).map(|_| AtomicUsize::new(0)).collect());
    let last: Arc<Vec<AtomicUsize>> = Arc::new((0..KEYS).map(|_| AtomicUsize::new(0)).collect());
    let over = crate::common::Gate::new();
    let taker = {
        let (pool, over) = (pool.clone(), over.clone());
        thread::spawn(move || {
            let mut rng = Rng(3);
            let mut taken = Vec::new();
            while !over.is_open() {
                taken.push(pool.keys().take(&(rng.below(KEYS.into()) as u32)));
            }
            taken
        })
    };
    let mut rng = Rng(4);
    for n in 0..TASKS {
        let (fate, last) = (fate.clone(), last.clone());
        let key = rng.below(KEYS.into()) as u32;
        let body = move || {
            fate[n].fetch_add(1, Ordering::SeqCst);
            // A task that was taken runs at the end, when nothing compares any more.
            last[key as usize].fetch_max(n, Ordering::SeqCst)
        };
        match rng.below(8) {
            0 => pool.execute(Claims::shared(key), move || _ = body()).unwrap(),
            1 => pool.execute([key, key + 1], move || _ = body()).unwrap(),
            _ => pool.execute(key, move || assert!(body() < n || n == 0)).unwrap(),
        }
    }
    over.open();
    let taken = taker.join().unwrap();
    pool.shutdown().unwrap();
    assert_eq!(pool.inspect().snapshot(0).panicked, 0);
    drop(pool);
    let ran: usize = fate.iter().map(|fate| fate.load(Ordering::SeqCst)).sum();
    assert_eq!(ran + taken.iter().map(Vec::len).sum::<usize>(), TASKS);
    for task in taken.into_iter().flatten() {
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| task.run()));
        drop(ran);
    }
    assert!(fate.iter().all(|fate| fate.load(Ordering::SeqCst) == 1));
}
