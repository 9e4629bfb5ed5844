//! A million of anything: tasks on one key, tasks that wait, links of a chain. Nothing recurses, so
//! the workers have stacks of 64 KiB, and so has the thread that drops the pool.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::common::{Live, hold, soon};
use keylane::{Claims, Pool};

/// A million in `demanding`, which is optimised. A debug build has a tenth of that: for a recursion the stacks are too small in either.
const MANY: u32 = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };
const SMALL_STACK: usize = 64 * 1024;

fn small_pool() -> Arc<Pool<u32>> {
    let pool = Pool::builder().workers(2).capacity(2 * MANY as usize).stack_size(SMALL_STACK);
    Arc::new(pool.build().unwrap())
}

/// Runs a test on a small stack of its own. One at a time, for each wants much memory.
fn shallow(test: impl FnOnce() + Send + 'static) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = crate::common::lock(&ALONE);
    soon(|| thread::Builder::new().stack_size(SMALL_STACK).spawn(test).unwrap().join().unwrap());
}

/// Linked tasks ran by recursion (the first article's first version): the stack overflowed after
/// some thousands.
#[test]
fn a_million_tasks_on_one_key() {
    shallow(|| {
        let pool = small_pool();
        let held = hold(&pool, 1);
        let ran = Arc::new(AtomicUsize::new(0));
        for n in 0..MANY {
            let ran = ran.clone();
            let work = move || {
                let before = ran.load(Ordering::Relaxed);
                assert_eq!(before, n as usize);
                ran.store(before + 1, Ordering::Relaxed);
            };
            pool.execute(1, work).unwrap();
        }
        held.let_go();
        pool.shutdown().unwrap();
        assert_eq!(pool.inspect().snapshot(0).panicked, 0);
        assert_eq!(ran.load(Ordering::Relaxed), MANY as usize);
    });
}

#[test]
fn a_million_tasks_that_submit_one_another() {
    fn link(pool: std::sync::Weak<Pool<u32>>, left: u32, end: crate::common::Gate) {
        match (left, pool.upgrade()) {
            (1.., Some(own)) => {
                own.execute(left % 2, move || link(pool, left - 1, end)).unwrap();
            }
            _ => end.open(),
        }
    }
    shallow(|| {
        let pool = small_pool();
        let end = crate::common::Gate::new();
        let (own, last) = (Arc::downgrade(&pool), end.clone());
        pool.execute(0, move || link(own, MANY, last)).unwrap();
        end.pass();
    });
}

/// A long list of boxes that is dropped recurses as well.
#[test]
fn a_million_waiting_tasks_are_dropped_with_their_pool() {
    shallow(|| {
        let live = Live::new();
        let pool = small_pool();
        let held = hold(&pool, 1);
        for n in 0..MANY {
            let one = live.one();
            match n % 16 {
                0 => drop(pool.submit(1, move || drop(one)).unwrap()),
                1 => pool.execute([1, n], move || drop(one)).unwrap(),
                2 => pool.execute(Claims::shared(1), move || drop(one)).unwrap(),
                _ => pool.execute(1, move || drop(one)).unwrap(),
            }
        }
        assert_eq!(live.count(), MANY as usize);
        held.let_go();
        drop(pool);
        assert_eq!(live.count(), 0);
    });
}

#[test]
fn a_million_waiting_tasks_are_stopped_and_returned() {
    shallow(|| {
        let pool = small_pool();
        let held = hold(&pool, Claims::barrier());
        for n in 0..MANY {
            pool.execute(n % 100_000, || {}).unwrap();
        }
        assert_eq!(pool.shutdown_now().len(), MANY as usize);
        held.let_go();
    });
}

/// The keys of the `n`th task of a chain: on each key a few tasks, then a rollup over it and the
/// next one, so that the end of each task starts the next, all the way.
fn link(n: u32) -> Vec<u32> {
    let key = n / 8;
    if n % 8 == 7 { vec![key, key + 1] } else { vec![key] }
}

#[test]
fn a_chain_of_a_million_tasks_linked_by_rollups() {
    shallow(|| {
        let pool = small_pool();
        let held = hold(&pool, 0);
        let ran = Arc::new(AtomicUsize::new(0));
        for n in 0..MANY {
            let ran = ran.clone();
            let work = move || {
                let before = ran.load(Ordering::Relaxed);
                assert_eq!(before, n as usize);
                ran.store(before + 1, Ordering::Relaxed);
            };
            pool.execute(link(n), work).unwrap();
        }
        held.let_go();
        pool.shutdown().unwrap();
        assert_eq!(ran.load(Ordering::Relaxed), MANY as usize);
        assert!(pool.inspect().snapshot(1).hottest.is_empty());
    });
}

#[test]
fn a_chain_of_a_million_tasks_linked_by_rollups_is_dropped() {
    shallow(|| {
        let live = Live::new();
        let pool = small_pool();
        let held = hold(&pool, 0);
        for n in 0..MANY {
            let one = live.one();
            pool.execute(link(n), move || drop(one)).unwrap();
        }
        held.let_go();
        drop(pool);
        assert_eq!(live.count(), 0);
    });
}

#[test]
fn a_million_cancelled_tasks_are_passed_over() {
    shallow(|| {
        let pool = small_pool();
        let held = hold(&pool, 1);
        for n in 0..MANY {
            assert!(pool.submit(1, move || n).unwrap().cancel());
        }
        let last = pool.submit(1, || "last").unwrap();
        held.let_go();
        assert_eq!(last.wait().unwrap().ok(), Some("last"));
    });
}
