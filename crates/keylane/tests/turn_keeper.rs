//! A handler that may keep its turn: where it does not, the turn ends when it returns, and where it does, when
//! what it has kept is dropped.

mod common;

use std::sync::Mutex;
use std::sync::mpsc;
use std::thread;

use common::{LONG, Log, eventually};
use keylane::{HandlerPool, OnFailure, Pool, Turn, TurnKeeper};

/// A pool whose handler keeps the turn of every message that can be divided by ten, and hands it out.
fn keeping(workers: usize, log: &Log<(u32, u32)>) -> (HandlerPool<u32, u32>, mpsc::Receiver<Turn>) {
    let (give, turns) = mpsc::channel();
    let log = log.clone();
    let pool = Pool::<u32>::builder().workers(workers).build_handler_keeping_turns(
        move |key: &u32, n: u32, turn: TurnKeeper<'_>| {
            log.push((*key, n));
            if n.is_multiple_of(10) {
                // The receiver may be gone; then the turn ends here.
                let _ = give.send(turn.keep());
            }
        },
    );
    (pool.unwrap(), turns)
}

#[test]
fn a_turn_that_is_not_kept_ends_when_the_handler_returns() {
    let log = Log::new();
    let (pool, turns) = keeping(2, &log);
    for n in 1..10 {
        pool.send(n % 2, n).unwrap();
    }
    pool.drain(None).unwrap();
    assert!(turns.try_recv().is_err());
    let log = log.take();
    for key in 0..2 {
        let of_key = log.iter().filter(|(of, _)| *of == key).map(|(_, n)| *n);
        assert!(of_key.eq((1..10).filter(|n| n % 2 == key)));
    }
}

#[test]
fn one_that_is_kept_holds_its_key_and_no_other_key_nor_worker() {
    let log = Log::new();
    let (pool, turns) = keeping(1, &log);
    pool.send(1, 10).unwrap();
    let kept = turns.recv_timeout(LONG).unwrap();
    pool.send(1, 11).unwrap();
    // The only worker passes the key by.
    pool.send(2, 12).unwrap();
    eventually(|| pool.snapshot(0).unfinished == 2);
    drop(kept);
    pool.drain(None).unwrap();
    assert_eq!(log.take(), [(1, 10), (2, 12), (1, 11)]);
}

#[test]
fn order_holds_whoever_ends_the_turns() {
    let log = Log::new();
    let (pool, turns) = keeping(2, &log);
    thread::scope(|scope| {
        scope.spawn(|| (0..3_000).for_each(|n| pool.send(n % 7, n).unwrap()));
        for _ in 0..300 {
            let turn = turns.recv_timeout(LONG).unwrap();
            scope.spawn(move || drop(turn));
        }
    });
    pool.drain(None).unwrap();
    let log = log.take();
    assert_eq!(log.len(), 3_000);
    for key in 0..7 {
        let of_key = log.iter().filter(|(of, _)| *of == key).map(|(_, n)| *n);
        assert!(of_key.eq((0..3_000).filter(|n| n % 7 == key)));
    }
}

#[test]
fn a_handler_that_panics_has_failed_whether_it_has_kept_the_turn_or_not() {
    let kept = Mutex::new(Vec::new());
    let pool = Pool::<u32>::builder().on_failure(OnFailure::StopKey { after: 1 });
    let pool = pool.build_handler_keeping_turns(move |key: &u32, (), turn: TurnKeeper<'_>| {
        // Dropped while it unwinds.
        let _turn = (*key == 1).then(|| turn.keep());
        kept.lock().unwrap().push(*key);
        std::panic::panic_any(());
    });
    let pool = pool.unwrap();
    pool.send(0, ()).unwrap();
    pool.send(1, ()).unwrap();
    eventually(|| pool.stopped_keys().len() == 2);
}
