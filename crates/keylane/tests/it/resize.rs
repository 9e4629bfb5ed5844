//! The number of workers and the capacity change while the pool runs, and no task is lost or out of
//! order.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use crate::common::{Log, Rng, Wakes, eventually, hold, hold_soon, poll, pool, soon};
use keylane::{BuildError, Claims, MAX_CAPACITY, MAX_WORKERS, Pool, SubmitErrorKind};

#[test]
fn settings_out_of_range_are_refused() {
    let build = |workers, capacity, quantum| {
        let pool = Pool::<u32>::builder().workers(workers).capacity(capacity);
        pool.quantum(quantum, std::time::Duration::from_millis(1)).build().map(drop)
    };
    assert!(matches!(build(0, 1, 1), Err(BuildError::Workers(0))));
    assert!(matches!(build(MAX_WORKERS + 1, 1, 1), Err(BuildError::Workers(_))));
    assert!(matches!(build(1, 0, 1), Err(BuildError::Capacity(0))));
    assert!(matches!(build(1, MAX_CAPACITY + 1, 1), Err(BuildError::Capacity(_))));
    assert!(matches!(build(1, 1, 0), Err(BuildError::QuantumTasks)));
    assert!(build(1, 1, 1).is_ok());
    let pool = pool(1);
    assert!(matches!(pool.settings().set_workers(0), Err(BuildError::Workers(0))));
    assert!(matches!(pool.settings().set_workers(MAX_WORKERS + 1), Err(BuildError::Workers(_))));
    assert!(matches!(pool.settings().set_capacity(0), Err(BuildError::Capacity(0))));
    assert!(matches!(pool.settings().set_capacity(MAX_CAPACITY + 1), Err(BuildError::Capacity(_))));
    let snapshot = pool.inspect().snapshot(0);
    assert_eq!((snapshot.workers_wanted, snapshot.capacity), (1, 65_536));
}

#[test]
fn a_pool_has_the_default_number_of_workers() {
    let pool = Pool::<u32>::builder().build().unwrap();
    assert_eq!(pool.inspect().snapshot(0).workers_wanted, keylane_allocate::default_workers());
}

#[test]
fn more_workers_begin_what_is_ready() {
    soon(|| {
        let pool = pool(1);
        let meet = Arc::new(Barrier::new(5));
        let handles: Vec<_> = (0..5)
            .map(|key| {
                let meet = meet.clone();
                // They end only if five run at the same time.
                pool.submit(key, move || _ = meet.wait()).unwrap()
            })
            .collect();
        pool.settings().set_workers(5).unwrap();
        for handle in handles {
            assert!(handle.wait().unwrap().is_completed());
        }
        assert_eq!(pool.inspect().snapshot(0).workers.len(), 5);
    });
}

#[test]
fn surplus_workers_end_after_their_task() {
    soon(|| {
        let pool = pool(4);
        let held: Vec<_> = (0..3).map(|key| hold(&pool, key)).collect();
        pool.settings().set_workers(1).unwrap();
        // Idle workers end at once; the others when they are free.
        eventually(|| pool.inspect().snapshot(0).workers.len() == 3);
        drop(held);
        eventually(|| pool.inspect().snapshot(0).workers.len() == 1);
        let (one, _) = (hold(&pool, 1), ());
        let (second, second_runs) = hold_soon(&pool, 2);
        // The one worker is taken, and there is no other.
        assert!(!second_runs.is_open());
        one.let_go();
        second_runs.pass();
        second.let_go();
        pool.shutdown().unwrap();
    });
}

#[test]
fn resizing_under_load_loses_no_task_and_no_order() {
    soon(|| {
        let pool = Pool::<u32>::builder().workers(2).capacity(64).build().unwrap();
        let logs: Vec<Log<u32>> = (0..5).map(|_| Log::new()).collect();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut rng = Rng(11);
                while !done.load(Ordering::SeqCst) {
                    pool.settings().set_workers(1 + rng.below(6) as usize).unwrap();
                    pool.settings().set_capacity(1 + rng.below(100) as usize).unwrap();
                    thread::yield_now();
                }
            });
            for n in 0..8_000_u32 {
                let key = n % 5;
                let own = logs[key as usize].clone();
                if n % 97 == 0 {
                    let (next, other) = ((key + 1) % 5, logs[(key as usize + 1) % 5].clone());
                    pool.execute([key, next], move || {
                        own.push(n);
                        other.push(n);
                    })
                    .unwrap();
                } else if n % 1_009 == 0 {
                    pool.execute(Claims::barrier(), move || own.push(n)).unwrap();
                } else {
                    pool.execute(key, move || own.push(n)).unwrap();
                }
            }
            done.store(true, Ordering::SeqCst);
        });
        pool.settings().set_workers(3).unwrap();
        pool.shutdown().unwrap();
        let mut all = Vec::new();
        for log in logs {
            let log = log.take();
            assert!(log.is_sorted(), "in the order of submission");
            all.extend(log);
        }
        all.sort_unstable();
        all.dedup();
        assert!(all.into_iter().eq(0..8_000));
        eventually(|| pool.inspect().snapshot(0).workers.len() == 3);
        assert_eq!(pool.inspect().snapshot(0).unfinished, 0);
    });
}

/// A producer that was blocked by the old capacity saw the new one only when another producer came
/// (the second article's executor).
#[test]
fn more_room_lets_those_who_wait_in() {
    soon(|| {
        let pool = Pool::<u32>::builder().workers(1).capacity(1).build().unwrap();
        let held = hold(&pool, 1);
        let wakes: Vec<_> = (0..4).map(|_| Wakes::new()).collect();
        let mut waiters: Vec<_> =
            (0..4).map(|key| Box::pin(pool.task(key).execute_async(|| {}))).collect();
        for (waiter, wakes) in waiters.iter_mut().zip(&wakes) {
            assert!(poll(waiter.as_mut(), wakes).is_pending());
        }
        pool.settings().set_capacity(3).unwrap();
        wakes[0].wait();
        wakes[1].wait();
        assert_eq!((wakes[2].count(), wakes[3].count()), (0, 0));
        for (n, waiter) in waiters.iter_mut().enumerate() {
            assert_eq!(poll(waiter.as_mut(), &wakes[n]).is_ready(), n < 2);
        }
        assert_eq!(pool.inspect().snapshot(0).unfinished, 3);
        held.let_go();
        wakes[3].wait();
    });
}

#[test]
fn less_room_admits_nobody_until_enough_has_ended() {
    soon(|| {
        let pool = Pool::<u32>::builder().workers(4).capacity(4).build().unwrap();
        let mut held: Vec<_> = (0..4).map(|key| hold(&pool, key)).collect();
        pool.settings().set_capacity(2).unwrap();
        for left in [4, 3, 2] {
            eventually(|| pool.inspect().snapshot(0).unfinished == left);
            let refused = pool.task(9).try_execute(|| {}).unwrap_err();
            assert_eq!(refused.kind(), SubmitErrorKind::Full, "{left} are unfinished");
            drop(held.pop());
        }
        eventually(|| pool.inspect().snapshot(0).unfinished == 1);
        pool.task(9).try_execute(|| {}).unwrap();
        assert_eq!(pool.inspect().snapshot(0).capacity, 2);
    });
}

#[test]
fn a_task_resizes_its_own_pool() {
    soon(|| {
        let pool = Arc::new(pool(1));
        for workers in [3, 1, 2, 1] {
            let own = Arc::downgrade(&pool);
            let resize = move || {
                let pool = own.upgrade().expect("the test waits");
                pool.settings().set_workers(workers).unwrap();
                pool.settings().set_capacity(workers).unwrap();
            };
            assert!(pool.submit(1, resize).unwrap().wait().unwrap().is_completed());
            eventually(|| pool.inspect().snapshot(0).workers.len() == workers);
            assert!(pool.submit(1, || {}).unwrap().wait().unwrap().is_completed());
        }
    });
}
