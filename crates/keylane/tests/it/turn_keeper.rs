//! A handler that may keep its turn: otherwise the turn ends when it returns; a kept turn ends when
//! it has been dropped as well.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Gate, LONG, Log, OpenAtLast, eventually, with_turns};
use keylane::observe::{KeyHolder, Statistics};
use keylane::{HandlerPool, OnFailure, Pool, TaskContext, Turn, handler};

/// Pool whose handler keeps the turn of every message that can be divided by ten, and sends it to
/// the test.
fn keeping(workers: usize, log: &Log<(u32, u32)>) -> (HandlerPool<u32, u32>, mpsc::Receiver<Turn>) {
    let (give, turns) = mpsc::channel();
    let log = log.clone();
    let pool = Pool::<u32>::builder().workers(workers).build_handler(handler::with_context(
        move |key: &u32, n: u32, turn: TaskContext<'_>| {
            log.push((*key, n));
            if n.is_multiple_of(10) {
                // The receiver may be gone; then the turn ends here.
                let _ = give.send(turn.keep());
            }
        },
    ));
    (pool.unwrap(), turns)
}

#[test]
fn a_turn_that_is_not_kept_ends_when_the_handler_returns() {
    let log = Log::new();
    let (pool, turns) = keeping(2, &log);
    for n in 1..10 {
        pool.send(n % 2, n).unwrap();
    }
    pool.shutdown().unwrap();
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
    eventually(|| pool.inspect().snapshot(0).unfinished == 2);
    drop(kept);
    pool.shutdown().unwrap();
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
    pool.shutdown().unwrap();
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
    let pool =
        pool.build_handler(handler::with_context(move |key: &u32, (), turn: TaskContext<'_>| {
            // Dropped while it unwinds.
            let _turn = (*key == 1).then(|| turn.keep());
            kept.lock().unwrap().push(*key);
            std::panic::panic_any(());
        }));
    let pool = pool.unwrap();
    pool.send(0, ()).unwrap();
    pool.send(1, ()).unwrap();
    eventually(|| pool.keys().list_stopped().len() == 2);
}

/// Two messages of a key; the body of the first continues after its turn was dropped on another
/// thread.
fn body_outlives_turn(build: impl FnOnce(Handler, keylane::Builder<u32>) -> HandlerPool<u32, u32>) {
    let log = Log::new();
    let (give, turns) = mpsc::channel();
    let gate = Gate::new();
    let _open = OpenAtLast(gate.clone());
    let (noted, wait) = (log.clone(), gate.clone());
    let handler: Handler = Box::new(move |n, turn| {
        noted.push((n, "begins"));
        if n == 1 {
            give.send(turn).unwrap();
            wait.pass();
        }
        noted.push((n, "returns"));
    });
    let pool = build(handler, Pool::<u32>::builder().workers(3).self_check(true));
    pool.send(7, 1).unwrap();
    pool.send(7, 2).unwrap();
    drop(turns.recv_timeout(LONG).unwrap());
    // What another worker could have of this key it would have before that of a key which comes
    // later.
    pool.send(8, 3).unwrap();
    eventually(|| log.len() >= 3);
    assert_eq!(log.take(), [(1, "begins"), (3, "begins"), (3, "returns")]);
    eventually(|| pool.inspect().snapshot(0).unfinished == 2);
    gate.open();
    pool.shutdown().unwrap();
    assert_eq!(log.take(), [(1, "returns"), (2, "begins"), (2, "returns")]);
    assert!(pool.inspect().snapshot(0).violations.unwrap().is_none());
}

type Handler = Box<dyn Fn(u32, Turn) + Send + Sync>;

#[test]
fn nothing_of_the_key_begins_before_the_handler_has_returned() {
    body_outlives_turn(|handler, pool| {
        pool.build_handler(handler::with_context(move |_: &u32, n, turn| handler(n, turn.keep())))
            .unwrap()
    });
    body_outlives_turn(|handler, pool| {
        pool.build_handler(with_turns(move |_: &u32, n, turn| handler(n, turn))).unwrap()
    });
}

#[test]
fn nor_if_the_handler_drops_what_it_has_kept_itself() {
    let log = Log::new();
    let gate = Gate::new();
    let _open = OpenAtLast(gate.clone());
    let (noted, wait) = (log.clone(), gate.clone());
    let pool = Pool::<u32>::builder().workers(3).build_handler(handler::with_context(
        move |key: &u32, n: u32, turn: TaskContext<'_>| {
            drop(turn.keep());
            noted.push((*key, n));
            if n == 1 {
                wait.pass();
            }
        },
    ));
    let pool = pool.unwrap();
    for (key, n) in [(7, 1), (7, 2), (8, 3)] {
        pool.send(key, n).unwrap();
    }
    eventually(|| log.len() >= 2);
    let mut begun = log.take();
    begun.sort_unstable();
    assert_eq!(begun, [(7, 1), (8, 3)]);
    gate.open();
    pool.shutdown().unwrap();
    assert_eq!(log.take(), [(7, 2)]);
}

#[test]
fn bodies_of_a_key_never_overlap_whoever_drops_their_turns_and_when() {
    const KEYS: u32 = 5;
    let (give, turns) = mpsc::channel::<Turn>();
    let busy: [AtomicBool; KEYS as usize] = Default::default();
    let pool = Pool::<u32>::builder().workers(3).self_check(true).build_handler(
        handler::with_context(move |key: &u32, n: u32, turn: TaskContext<'_>| {
            let busy = &busy[*key as usize];
            assert!(!busy.swap(true, Ordering::SeqCst), "two bodies of {key} at a time");
            // A third are not kept, a third are dropped here, the others by another thread at any
            // time.
            match n % 3 {
                0 => {}
                1 => drop(turn.keep()),
                _ => give.send(turn.keep()).unwrap(),
            }
            for _ in 0..n % 64 {
                std::hint::spin_loop();
            }
            busy.store(false, Ordering::SeqCst);
        }),
    );
    let pool = pool.unwrap();
    thread::scope(|scope| {
        scope.spawn(|| (0..6_000).for_each(|n| pool.send(n % KEYS, n).unwrap()));
        (0..2_000).for_each(|_| drop(turns.recv_timeout(LONG).unwrap()));
    });
    pool.shutdown().unwrap();
    let seen = pool.inspect().snapshot(0);
    assert_eq!(seen.panicked, 0);
    assert!(seen.violations.unwrap().is_none());
}

/// Pool whose handler keeps its turn and panics, once the owner of the turn releases it.
fn panicking_after_it_has_kept() -> (HandlerPool<u32, ()>, mpsc::Receiver<Turn>, mpsc::Sender<()>) {
    let (give, turns) = mpsc::channel();
    let (go_on, wait) = mpsc::channel();
    let wait = Mutex::new(wait);
    let pool = Pool::<u32>::builder().on_failure(OnFailure::StopKey { after: 1 });
    let pool =
        pool.build_handler(handler::with_context(move |_: &u32, (), turn: TaskContext<'_>| {
            give.send(turn.keep()).unwrap();
            wait.lock().unwrap().recv_timeout(LONG).unwrap();
            std::panic::resume_unwind(Box::new(()));
        }));
    (pool.unwrap(), turns, go_on)
}

#[test]
fn a_panic_counts_though_the_turn_is_dropped_later_and_ends_well() {
    let (pool, turns, go_on) = panicking_after_it_has_kept();
    pool.send(7, ()).unwrap();
    let turn = turns.recv_timeout(LONG).unwrap();
    go_on.send(()).unwrap();
    eventually(|| pool.inspect().snapshot(0).panicked == 1);
    drop(turn);
    eventually(|| pool.keys().list_stopped().len() == 1);
}

#[test]
fn a_panic_counts_though_the_turn_was_dropped_before_and_ended_well() {
    let (pool, turns, go_on) = panicking_after_it_has_kept();
    pool.send(7, ()).unwrap();
    drop(turns.recv_timeout(LONG).unwrap());
    assert!(pool.keys().list_stopped().is_empty());
    go_on.send(()).unwrap();
    eventually(|| pool.keys().list_stopped().len() == 1);
}

#[test]
fn a_turn_that_fails_counts_though_its_body_goes_on_and_returns() {
    let (give, turns) = mpsc::channel::<Turn>();
    let gate = Gate::new();
    let _open = OpenAtLast(gate.clone());
    let wait = gate.clone();
    let pool = Pool::<u32>::builder().on_failure(OnFailure::StopKey { after: 1 });
    let pool =
        pool.build_handler(handler::with_context(move |_: &u32, (), turn: TaskContext<'_>| {
            give.send(turn.keep()).unwrap();
            wait.pass();
        }));
    let pool = pool.unwrap();
    pool.send(7, ()).unwrap();
    turns.recv_timeout(LONG).unwrap().fail();
    assert!(pool.keys().list_stopped().is_empty());
    gate.open();
    eventually(|| pool.keys().list_stopped().len() == 1);
}

#[test]
fn a_turn_that_is_kept_late_has_run_since_its_body_began() {
    let (begun, begins) = mpsc::channel();
    let (give, turns) = mpsc::channel();
    let gate = Gate::new();
    let _open = OpenAtLast(gate.clone());
    let wait = gate.clone();
    let pool = Pool::<u32>::builder().workers(1).statistics(Statistics::Every);
    let pool =
        pool.build_handler(handler::with_context(move |_: &u32, (), turn: TaskContext<'_>| {
            begun.send(Instant::now()).unwrap();
            wait.pass();
            give.send((turn.keep(), Instant::now())).unwrap();
        }));
    let pool = pool.unwrap();
    pool.send(7, ()).unwrap();
    let began = begins.recv_timeout(LONG).unwrap();
    // A pause separates the time since the turn was kept from the time since here.
    let while_in_the_body = Duration::from_millis(20);
    eventually(|| began.elapsed() > while_in_the_body);
    gate.open();
    let (turn, kept) = turns.recv_timeout(LONG).unwrap();
    // Until the handler has returned, its worker is reported.
    let (at_least, at_most) = loop {
        match pool.inspect().explain_key(&7).holder {
            KeyHolder::Running(running) if running.worker.is_none() => {
                break (running.at_least, running.at_most);
            }
            _ => thread::yield_now(),
        }
    };
    assert!(at_least >= kept - began, "{at_least:?}");
    assert_eq!(at_least, at_most);
    let stalled = pool.inspect().stalled(kept - began);
    assert_eq!(stalled.len(), 1, "{stalled:?}");
    drop(turn);
    let run_time = pool.inspect().snapshot(0).run_time;
    assert_eq!(run_time.count(), 1);
    assert!(run_time.max() >= while_in_the_body, "{run_time:?}");
}

#[test]
fn what_a_message_weighs_is_taken_for_as_long_as_its_turn_is_kept() {
    let (give, turns) = mpsc::channel();
    let pool = Pool::<u32>::builder().workers(1).capacity_bytes(100);
    let pool = pool.build_handler(handler::weighed(
        |weight: &usize| *weight,
        handler::with_context(move |_: &u32, weight, turn: TaskContext<'_>| {
            if weight == 60 {
                give.send(turn.keep()).unwrap();
            }
        }),
    ));
    let pool = pool.unwrap();
    pool.send(7, 60).unwrap();
    let turn = turns.recv_timeout(LONG).unwrap();
    pool.send(8, 40).unwrap();
    // That one is given back when its handler returns, and the other is not.
    eventually(|| pool.inspect().snapshot(0).bytes == 60);
    assert_eq!(pool.try_send(9, 41).unwrap_err().into_inner(), (9, 41));
    drop(turn);
    pool.send(9, 100).unwrap();
    pool.shutdown().unwrap();
}
