//! Sticky keys return to their worker as long as no worker is idle for it; and no task waits for
//! it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ThreadId};

use crate::common::{Gate, Log, eventually, hold_soon, soon};
use keylane::{Placement, Pool};

fn sticky(workers: usize) -> Pool<u32> {
    Pool::<u32>::builder().workers(workers).placement(Placement::Sticky).build().unwrap()
}

/// The thread that runs the next task of a key, with all workers asleep before.
fn who_serves(pool: &Pool<u32>, key: u32) -> ThreadId {
    let workers = pool.inspect().snapshot(0).workers_wanted;
    eventually(|| pool.inspect().snapshot(0).workers_asleep == workers);
    pool.submit(key, || thread::current().id()).unwrap().wait().unwrap().unwrap()
}

/// Keys that the first worker serves, and keys that the other one does.
fn keys_of_two(pool: &Pool<u32>) -> (Vec<u32>, Vec<u32>) {
    let first = who_serves(pool, 0);
    (0..40).partition(|key| who_serves(pool, *key) == first)
}

/// Nearly always: a worker that was about to fall asleep may be there first, which is as well.
#[test]
fn a_key_returns_to_its_worker() {
    soon(|| {
        let pool = sticky(3);
        let first: Vec<_> = (0..30).map(|key| who_serves(&pool, key)).collect();
        let mut threads = first.clone();
        threads.sort_by_key(|id| format!("{id:?}"));
        threads.dedup();
        assert_eq!(threads.len(), 3, "all take part");
        let mut returned = 0;
        for _ in 0..5 {
            let same = |key: &u32| who_serves(&pool, *key) == first[*key as usize];
            returned += (0..30).rev().filter(same).count();
        }
        assert!(returned >= 130, "{returned} of 150");
    });
}

#[test]
fn the_keys_of_a_busy_worker_are_served_by_the_other() {
    soon(|| {
        let pool = sticky(2);
        let (mine, others) = keys_of_two(&pool);
        for busy in [mine[0], others[0]] {
            eventually(|| pool.inspect().snapshot(0).workers_asleep == 2);
            let (held, runs) = hold_soon(&pool, busy);
            runs.pass();
            let who = |key: &u32| pool.submit(*key, || thread::current().id()).unwrap();
            let tasks: Vec<_> = mine[1..4].iter().chain(&others[1..4]).map(who).collect();
            let mut served: Vec<_> =
                tasks.into_iter().map(|task| task.wait().unwrap().unwrap()).collect();
            served.dedup();
            assert_eq!(served.len(), 1, "there is but one that is free");
            held.let_go();
        }
    });
}

#[test]
fn the_keys_of_a_stuck_worker_are_served_beside_much_to_do_at_home() {
    soon(|| {
        let pool = Arc::new(sticky(2));
        let (mine, others) = keys_of_two(&pool);
        let (stuck, runs) = hold_soon(&pool, others[0]);
        runs.pass();
        let served = Arc::new(AtomicBool::new(false));
        // A task that submits the next of its own worker, as long as the other's are not served.
        fn go_on(pool: &Arc<Pool<u32>>, keys: Arc<[u32]>, n: usize, served: Arc<AtomicBool>) {
            let inside = pool.clone();
            let key = keys[n % keys.len()];
            let next = move || {
                if !served.load(Ordering::SeqCst) {
                    go_on(&inside, keys, n + 1, served);
                }
            };
            pool.execute(key, next).unwrap();
        }
        let own: Arc<[u32]> = mine.into();
        (0..4).for_each(|n| go_on(&pool, own.clone(), n, served.clone()));
        let flag = served.clone();
        let task = pool.submit(others[1], move || flag.store(true, Ordering::SeqCst)).unwrap();
        assert!(task.wait().unwrap().is_completed());
        stuck.let_go();
        eventually(|| pool.inspect().snapshot(0).unfinished == 0);
        drop(Arc::into_inner(pool));
    });
}

#[test]
fn another_number_of_workers_is_as_good() {
    soon(|| {
        let pool = sticky(1);
        let log = Log::new();
        for (round, workers) in [4, 2, 3, 1, 5].into_iter().enumerate() {
            pool.settings().set_workers(workers).unwrap();
            eventually(|| pool.inspect().snapshot(0).workers.len() == workers);
            for n in 0..2_000_u32 {
                let log = log.clone();
                pool.execute(n % 13, move || log.push((n % 13, round, n))).unwrap();
            }
        }
        pool.shutdown().unwrap();
        let mut ran = log.take();
        assert_eq!(ran.len(), 10_000);
        ran.sort_by_key(|(key, ..)| *key);
        assert!(ran.is_sorted(), "each key is in order");
    });
}

/// All that is busy ends; no worker needs to be at home for it.
#[test]
fn jobs_and_tasks_without_keys_are_served_as_ever() {
    soon(|| {
        let pool = sticky(2);
        let gate = Gate::new();
        let job = pool.job("beside").each((0..100).map(|n| move || n)).collect().unwrap();
        for _ in 0..100 {
            pool.execute(keylane::Claims::none(), || {}).unwrap();
        }
        pool.execute(keylane::Claims::barrier(), {
            let gate = gate.clone();
            move || gate.open()
        })
        .unwrap();
        gate.pass();
        assert_eq!(job.wait().unwrap().unwrap().len(), 100);
        pool.shutdown().unwrap();
    });
}
