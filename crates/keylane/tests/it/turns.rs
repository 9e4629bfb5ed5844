//! A handler that keeps its turn leaves its worker free; its key waits until the turn is dropped,
//! on whatever thread, and no other key does.

use std::sync::mpsc;
use std::thread;

use crate::common::{AnyHasher, LONG, Log, eventually, with_every_hasher, with_turns};
use keylane::{HandlerPool, KeyBuildHasher, Pool, SubmitErrorKind, Turn};

with_every_hasher!(
    the_key_waits_for_the_turn_and_no_other_key_does,
    a_turn_can_be_dropped_on_any_thread,
    a_handler_that_panics_ends_its_turn,
    a_turn_counts_as_unfinished,
    a_stopped_pool_keeps_out_what_is_behind_a_turn,
    a_turn_outlives_its_pool,
);

type Kept = mpsc::Receiver<(u32, u32, Turn)>;

/// Pool that sends its turns to the test.
fn handing_out<S: AnyHasher>(workers: usize) -> (HandlerPool<u32, u32, S>, Kept) {
    let (give, turns) = mpsc::channel();
    let pool = Pool::<u32>::builder()
        .workers(workers)
        .capacity(8)
        .hasher(S::default())
        .build_handler(with_turns(move |&key, n, turn| {
            // The receiver may be gone; then the turn is dropped here.
            let _ = give.send((key, n, turn));
        }))
        .unwrap();
    (pool, turns)
}

fn next(turns: &Kept) -> (u32, u32, Turn) {
    turns.recv_timeout(LONG).expect("a handler is called")
}

fn the_key_waits_for_the_turn_and_no_other_key_does<S: AnyHasher>() {
    let (pool, turns) = handing_out::<S>(1);
    pool.send(1, 0).unwrap();
    let (_, _, kept) = next(&turns);
    pool.send(1, 1).unwrap();
    // The only worker is free for all other keys, and passes the waiting key by.
    for n in 0..100 {
        pool.send(2, n).unwrap();
        let (key, m, turn) = next(&turns);
        assert_eq!((key, m), (2, n));
        drop(turn);
    }
    assert!(turns.try_recv().is_err());
    drop(kept);
    let (key, n, _turn) = next(&turns);
    assert_eq!((key, n), (1, 1));
}

fn a_turn_can_be_dropped_on_any_thread<S: AnyHasher>() {
    let (pool, turns) = handing_out::<S>(2);
    let log = Log::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..600 {
                pool.send(n % 3, n).unwrap();
            }
        });
        let mut droppers = Vec::new();
        for _ in 0..600 {
            let (key, n, turn) = next(&turns);
            log.push((key, n));
            droppers.push(scope.spawn(move || drop(turn)));
        }
    });
    pool.shutdown().unwrap();
    let log = log.take();
    for key in 0..3 {
        let of_key = log.iter().filter(|(of, _)| *of == key).map(|(_, n)| *n);
        assert!(of_key.eq((0..600).filter(|n| n % 3 == key)));
    }
}

fn a_handler_that_panics_ends_its_turn<S: AnyHasher>() {
    let (give, turns) = mpsc::channel();
    let pool = Pool::<u32>::builder()
        .workers(1)
        .hasher(S::default())
        .build_handler(with_turns(move |_, n: u32, turn| {
            if n.is_multiple_of(2) {
                std::panic::panic_any(n);
            }
            give.send((n, turn)).unwrap();
        }))
        .unwrap();
    for n in 0..20 {
        pool.send(1, n).unwrap();
    }
    for n in (1..20).step_by(2) {
        let (m, turn) = turns.recv_timeout(LONG).unwrap();
        assert_eq!(n, m);
        drop(turn);
    }
    pool.shutdown().unwrap();
    assert_eq!(pool.inspect().snapshot(0).panicked, 10);
}

fn a_turn_counts_as_unfinished<S: AnyHasher>() {
    let (pool, turns) = handing_out::<S>(1);
    for n in 0..8 {
        pool.send(n, n).unwrap();
    }
    let mut kept: Vec<Turn> = (0..8).map(|_| next(&turns).2).collect();
    assert_eq!(pool.try_send(9, 9).unwrap_err().kind(), SubmitErrorKind::Full);
    assert_eq!(pool.inspect().snapshot(9).hottest.len(), 8);
    kept.pop();
    eventually(|| pool.inspect().snapshot(0).unfinished == 7);
    pool.send(9, 9).unwrap();
    kept.push(next(&turns).2);
    // A drain waits for them.
    assert!(pool.shutdown_timeout(std::time::Duration::from_millis(1)).is_err());
    thread::scope(|scope| {
        let drain = scope.spawn(|| pool.shutdown_timeout(LONG));
        kept.into_iter().for_each(drop);
        drain.join().unwrap().unwrap();
    });
}

fn a_stopped_pool_keeps_out_what_is_behind_a_turn<S: AnyHasher>() {
    let (pool, turns) = handing_out::<S>(1);
    pool.send(1, 0).unwrap();
    let (_, _, kept) = next(&turns);
    for n in 1..5 {
        pool.send(1, n).unwrap();
    }
    let unrun = pool.shutdown_now();
    assert!(unrun.into_iter().eq((1..5).map(|n| (1, n))));
    drop(kept);
    pool.shutdown_timeout(LONG).unwrap();
    assert!(turns.try_recv().is_err());
}

fn a_turn_outlives_its_pool<S: AnyHasher>() {
    let (pool, turns) = handing_out::<S>(1);
    pool.send(1, 0).unwrap();
    pool.send(1, 1).unwrap();
    let (_, _, kept) = next(&turns);
    drop(pool);
    drop(kept);
    assert!(turns.recv().is_err(), "the handler is gone, and was not called again");
}

/// A turn that ends on another thread frees its key at the moment at which the worker falls asleep.
#[test]
fn the_end_of_a_turn_wakes_a_worker() {
    crate::common::soon(|| {
        let (pool, turns) = handing_out::<KeyBuildHasher>(1);
        for n in 0..3_000 {
            pool.send(1, n).unwrap();
            pool.send(1, n).unwrap();
            drop(next(&turns));
            drop(next(&turns));
        }
    });
}
