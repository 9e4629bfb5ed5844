//! A kept turn that is resumed continues on a worker of its pool, before all tasks that conflict with
//! it, and is one start for the rates.

use std::sync::mpsc;
use std::time::Duration;

use crate::common::{AnyHasher, LONG, Log, pool_of, with_every_hasher};
use keylane::{Claims, MockClock, Pool, Rate, TaskContext, Turn};

with_every_hasher!(
    resumed_work_comes_before_a_barrier_that_waits_for_its_turn,
    a_turn_can_be_resumed_again_and_again,
    resumed_work_that_panics_ends_its_turn,
    a_stopped_pool_drops_the_work_and_ends_the_turn,
);

/// Submits a task that keeps its turn, and returns the turn.
fn kept<S: AnyHasher>(pool: &Pool<u32, S>, claims: Claims<u32>) -> Turn {
    let (give, turn) = mpsc::channel();
    pool.execute_with_context(claims, move |task: TaskContext<'_>| give.send(task.keep()).unwrap())
        .unwrap();
    turn.recv_timeout(LONG).unwrap()
}

fn resumed_work_comes_before_a_barrier_that_waits_for_its_turn<S: AnyHasher>() {
    let pool = pool_of::<S>(2);
    let log = Log::new();
    for claims in [
        Claims::exclusive(1),
        Claims::exclusive(1).and_exclusive(2),
        Claims::shared(1),
        Claims::limited(1, 3),
        Claims::none(),
    ] {
        let turn = kept(&pool, claims);
        let (barrier, resumed) = (log.clone(), log.clone());
        let waits = pool.submit(Claims::barrier(), move || barrier.push("barrier")).unwrap();
        turn.resume(move |_: TaskContext<'_>| resumed.push("resumed"));
        waits.join().unwrap();
        assert_eq!(log.take(), ["resumed", "barrier"]);
    }
}

fn a_turn_can_be_resumed_again_and_again<S: AnyHasher>() {
    let pool = pool_of::<S>(2);
    let log = Log::new();
    let mut turn = kept(&pool, Claims::exclusive(1).and_shared(2));
    let after = log.clone();
    let last = pool.submit(2, move || after.push(100)).unwrap();
    for n in 0..50 {
        let (give, next) = mpsc::channel();
        let log = log.clone();
        turn.resume(move |task: TaskContext<'_>| {
            log.push(n);
            give.send(task.keep()).unwrap();
        });
        turn = next.recv_timeout(LONG).unwrap();
    }
    drop(turn);
    last.join().unwrap();
    assert_eq!(log.take(), (0..50).chain([100]).collect::<Vec<_>>());
}

fn resumed_work_that_panics_ends_its_turn<S: AnyHasher>() {
    let pool = pool_of::<S>(1);
    kept(&pool, Claims::exclusive(1)).resume(|_: TaskContext<'_>| panic!("in resumed work"));
    pool.submit(1, || {}).unwrap().join().unwrap();
    assert_eq!(pool.inspect().snapshot(0).panicked, 1);
}

fn a_stopped_pool_drops_the_work_and_ends_the_turn<S: AnyHasher>() {
    let pool = pool_of::<S>(1);
    let turn = kept(&pool, Claims::exclusive(1));
    drop(pool.shutdown_now());
    let (held, dropped) = mpsc::channel::<()>();
    turn.resume(move |_: TaskContext<'_>| {
        let _held = held;
        unreachable!("the pool is stopped");
    });
    // Its captures are gone.
    assert!(dropped.recv_timeout(LONG).is_err());
}

#[test]
fn resumed_work_is_not_charged_to_the_rates() {
    let clock = MockClock::new();
    let rate = Rate::every(Duration::from_secs(3600));
    let pool = Pool::<u32>::builder()
        .workers(1)
        .rate(rate)
        .rate_per_key(rate)
        .clock(&clock)
        .build()
        .unwrap();
    let turn = kept(&pool, Claims::exclusive(1));
    // The clock stands still, so no other task starts.
    let (give, done) = mpsc::channel();
    turn.resume(move |_: TaskContext<'_>| give.send(()).unwrap());
    done.recv_timeout(LONG).unwrap();
}
