//! A key without unfinished tasks costs no memory, and the captures of a task are dropped before
//! the next task of its key begins.

use std::sync::Arc;

use crate::common::{
    AnyHasher, CountedKey, Gate, Live, Log, One, eventually, hold, pool, pool_of, soon,
    with_every_hasher, with_turns,
};
use keylane::{Claims, Pool, Turn};

with_every_hasher!(
    captures_are_dropped_before_the_next_task_of_the_key,
    nothing_lives_after_a_drain,
    no_lane_is_left_after_a_drain,
    lanes_go_while_others_work,
);

fn captures_are_dropped_before_the_next_task_of_the_key<S: AnyHasher>() {
    let pool = pool_of::<S>(3);
    let live = Live::new();
    let mut handles = Vec::new();
    for n in 0..2_000_u32 {
        let one = live.one();
        let large = [0_u8; 100];
        let fails = n % 7 == 3;
        let work = move || {
            assert!(!fails, "on purpose");
            // The earlier tasks have left nothing.
            drop(one);
            large.len()
        };
        let keys = match n % 3 {
            0 => Claims::exclusive(1),
            1 => Claims::exclusive(1).and_exclusive(2),
            _ => Claims::exclusive(1).and_shared(n),
        };
        handles.push(pool.submit(keys, work).unwrap());
    }
    // On the same key: when it begins, all captures of all before it are gone.
    let count = live.watch();
    let last = pool.submit(1, move || count.now()).unwrap();
    assert_eq!(last.wait().unwrap().ok(), Some(0));
    for handle in handles {
        assert!(!handle.wait().unwrap().is_cancelled());
    }
    // And each step of the way: a task sees itself alone.
    let chain = Live::new();
    let (seen, held) = (Log::new(), hold(&pool, 1));
    for _ in 0..500 {
        let (one, seen) = (chain.one(), seen.clone());
        pool.execute(1, move || {
            seen.push(one.count());
        })
        .unwrap();
    }
    held.let_go();
    pool.shutdown().unwrap();
    // Those that have not begun live, those that have ended do not.
    assert!(seen.take().into_iter().eq((1..=500).rev()));
}

fn nothing_lives_after_a_drain<S: AnyHasher>() {
    let pool = Arc::new(pool_of::<S>(2));
    let live = Live::new();
    for n in 0..3_000_u32 {
        let one = live.one();
        let inner = one.clone();
        let own = Arc::downgrade(&pool);
        let keys = match n % 5 {
            0 => Claims::none(),
            1 => Claims::barrier(),
            2 => Claims::shared(n % 3),
            3 => Claims::exclusive(n % 3).and_exclusive(n % 7),
            _ => Claims::exclusive(n % 4),
        };
        let work = move || {
            let _one = one;
            if n % 10 == 4 {
                // Refused when the drain has begun; then it comes back and goes the same way.
                let _ = own.upgrade().map(|pool| pool.execute(n, move || drop(inner)));
            }
            if n % 11 == 4 {
                std::panic::panic_any(());
            }
        };
        let handle = pool.submit(keys, work).unwrap();
        if n % 6 == 0 {
            handle.cancel();
        }
    }
    pool.shutdown().unwrap();
    assert_eq!(live.count(), 0);
}

fn no_lane_is_left_after_a_drain<S: AnyHasher>() {
    let pool = pool_of::<S>(2);
    let held = hold(&pool, Claims::shared(0));
    for n in 1..2_000_u32 {
        pool.execute([n, n + 1, n % 5], || {}).unwrap();
        pool.execute(Claims::shared(n), || {}).unwrap();
        pool.submit([n, n], || {}).unwrap().cancel();
    }
    let snapshot = pool.inspect().snapshot(10);
    assert_eq!(snapshot.hottest.len(), 10, "{snapshot:?}");
    assert!(snapshot.unfinished > 0);
    held.let_go();
    pool.shutdown().unwrap();
    let snapshot = pool.inspect().snapshot(10);
    assert_eq!((snapshot.hottest.len(), snapshot.unfinished), (0, 0), "{snapshot:?}");
}

fn lanes_go_while_others_work<S: AnyHasher>() {
    let pool = pool_of::<S>(2);
    let held = hold(&pool, 0);
    for n in 1..1_000 {
        assert!(pool.submit(n, || {}).unwrap().wait().unwrap().is_completed());
    }
    // Its handle learns before its lane goes.
    eventually(|| pool.inspect().snapshot(10).hottest.len() == 1);
    let snapshot = pool.inspect().snapshot(10);
    assert_eq!((snapshot.hottest[0].key, snapshot.hottest[0].len), (0, 1));
    assert!(snapshot.hottest[0].running);
    held.let_go();
}

#[test]
fn no_copy_of_a_key_is_left_when_its_tasks_have_ended() {
    soon(|| {
        let live = Live::new();
        let key = |n| CountedKey::new(n, &live);
        let pool = Pool::<CountedKey>::builder().workers(2).build().unwrap();
        let handled = Pool::<CountedKey>::builder()
            .workers(2)
            .build_handler(|_: &CountedKey, _: u32| {})
            .unwrap();
        for n in 0..3_000 {
            pool.execute(key(n % 50), || {}).unwrap();
            pool.execute([key(n % 3), key(n % 7), key(n % 3)], || {}).unwrap();
            pool.execute(Claims::shared(key(n % 3)).and_exclusive(key(n)), || {}).unwrap();
            handled.send(key(n % 50), n).unwrap();
        }
        // The workers go to sleep, and the pools live on.
        eventually(|| {
            pool.inspect().snapshot(0).unfinished + handled.inspect().snapshot(0).unfinished == 0
        });
        eventually(|| live.count() == 0);
        drop(pool);
        drop(handled);
    });
}

#[test]
fn the_outcome_that_nobody_took_goes_with_the_handle() {
    soon(|| {
        let pool = pool(1);
        let live = Live::new();
        let (held, one) = (hold(&pool, 1), live.one());
        let handle = pool.submit(1, move || one).unwrap();
        held.let_go();
        pool.shutdown().unwrap();
        assert!(handle.is_finished());
        assert_eq!(live.count(), 1);
        drop(handle);
        assert_eq!(live.count(), 0);
    });
}

/// Messages and the other arguments of a handler are dropped before the next message of the key.
#[test]
fn messages_are_dropped_before_the_next_of_their_key() {
    soon(|| {
        let live = Live::new();
        let (gate, seen) = (Gate::new(), Log::new());
        let (wait, log) = (gate.clone(), seen.clone());
        let pool = Pool::<u32>::builder()
            .workers(2)
            .build_handler(move |_: &u32, message: One| {
                wait.pass();
                log.push(message.count());
                if message.count().is_multiple_of(10) {
                    std::panic::panic_any(());
                }
            })
            .unwrap();
        for _ in 0..300 {
            pool.send(1, live.one()).unwrap();
        }
        gate.open();
        pool.shutdown().unwrap();
        assert!(seen.take().into_iter().eq((1..=300).rev()));
        assert_eq!(live.count(), 0);
    });
}

#[test]
fn a_turn_that_is_never_used_costs_nothing_when_it_is_dropped() {
    soon(|| {
        let pool = Pool::<u32>::builder()
            .workers(1)
            .capacity(4)
            .build_handler(with_turns(|_, _: u32, turn: Turn| drop(turn)))
            .unwrap();
        for n in 0..1_000 {
            pool.send(n % 3, n).unwrap();
        }
        eventually(|| pool.inspect().snapshot(9).unfinished == 0);
        assert!(pool.inspect().snapshot(9).hottest.is_empty());
    });
}
