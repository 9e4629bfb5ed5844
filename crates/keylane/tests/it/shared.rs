//! Tasks that share a key run together; an exclusive task runs alone; and no sharing task overtakes
//! a waiting exclusive one.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, RwLock};

use crate::common::{AnyHasher, Log, Rng, hold, pool_of, with_every_hasher};
use keylane::Claims;

with_every_hasher!(
    readers_run_together,
    a_writer_runs_alone,
    a_reader_does_not_overtake_a_waiting_writer,
    readers_behind_a_writer_run_together_when_it_ends,
    the_last_of_the_readers_lets_the_writer_in,
    readers_in_rollups_are_readers,
    a_cancelled_writer_lets_no_reader_through_early_and_none_wait_for_ever,
);

fn readers_run_together<S: AnyHasher>() {
    let pool = pool_of::<S>(4);
    let meet = Arc::new(Barrier::new(4));
    for _ in 0..8 {
        let meet = meet.clone();
        pool.execute(Claims::shared(1), move || _ = meet.wait()).unwrap();
    }
    pool.shutdown().unwrap();
}

fn a_writer_runs_alone<S: AnyHasher>() {
    let pool = pool_of::<S>(4);
    let key = Arc::new(RwLock::new(0));
    let max_readers = Arc::new(AtomicUsize::new(0));
    let mut rng = Rng(3);
    let mut writers = 0;
    for _ in 0..4_000 {
        let (key, max_readers) = (key.clone(), max_readers.clone());
        if rng.below(4) == 0 {
            writers += 1;
            let alone = move || *key.try_write().expect("a writer is alone") += 1;
            pool.execute(1, alone).unwrap();
        } else {
            let beside = move || {
                let _read = key.try_read().expect("no writer is here");
                max_readers.fetch_add(1, Ordering::Relaxed);
            };
            pool.execute(Claims::shared(1), beside).unwrap();
        }
    }
    pool.shutdown().unwrap();
    assert_eq!(pool.inspect().snapshot(0).panicked, 0);
    assert_eq!(*key.read().unwrap(), writers);
    assert_eq!(max_readers.load(Ordering::Relaxed), 4_000 - writers);
}

fn a_reader_does_not_overtake_a_waiting_writer<S: AnyHasher>() {
    let pool = pool_of::<S>(3);
    let reader = hold(&pool, Claims::shared(1));
    let log = Log::new();
    let task = |name| {
        let log = log.clone();
        move || log.push(name)
    };
    let writer = pool.submit(1, task("writer")).unwrap();
    let late = pool.submit(Claims::shared(1), task("late reader")).unwrap();
    // Two workers are free, and this shows that they have looked at all of it.
    assert!(pool.submit(2, || {}).unwrap().wait().unwrap().is_completed());
    assert!(!writer.is_finished() && !late.is_finished());
    reader.let_go();
    assert!(late.wait().unwrap().is_completed());
    assert_eq!(log.take(), ["writer", "late reader"]);
}

fn readers_behind_a_writer_run_together_when_it_ends<S: AnyHasher>() {
    let pool = pool_of::<S>(3);
    for _ in 0..100 {
        let writer = hold(&pool, 1);
        let meet = Arc::new(Barrier::new(3));
        let readers: Vec<_> = (0..3)
            .map(|_| {
                let meet = meet.clone();
                pool.submit(Claims::shared(1), move || _ = meet.wait()).unwrap()
            })
            .collect();
        writer.let_go();
        for reader in readers {
            assert!(reader.wait().unwrap().is_completed());
        }
    }
}

fn the_last_of_the_readers_lets_the_writer_in<S: AnyHasher>() {
    let pool = pool_of::<S>(4);
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let mut readers: Vec<_> = (0..3).map(|_| Some(hold(&pool, Claims::shared(1)))).collect();
        let writer = pool.submit(1, || {}).unwrap();
        for (left, reader) in order.into_iter().enumerate() {
            assert!(pool.submit(2, || {}).unwrap().wait().unwrap().is_completed());
            assert!(!writer.is_finished(), "{} readers still read", 3 - left);
            drop(readers[reader].take());
        }
        assert!(writer.wait().unwrap().is_completed());
    }
}

fn readers_in_rollups_are_readers<S: AnyHasher>() {
    let pool = pool_of::<S>(3);
    let meet = Arc::new(Barrier::new(3));
    let wait = || {
        let meet = meet.clone();
        move || _ = meet.wait()
    };
    // Each has a key of its own, and all share one.
    for key in 10..13 {
        pool.execute(Claims::shared(1).and_exclusive(key), wait()).unwrap();
    }
    // A single and two rollups together.
    pool.execute(Claims::shared(1), wait()).unwrap();
    pool.execute(Claims::shared(1).and_shared(2), wait()).unwrap();
    pool.execute(Claims::shared(2).and_shared(1), wait()).unwrap();
    let writer = pool.submit([1, 2], || {}).unwrap();
    assert!(writer.wait().unwrap().is_completed());
    pool.shutdown().unwrap();
}

/// Guava's ExecutionSequencer lets a cancelled task that has not begun keep its place. The same
/// here: the reader behind the cancelled writer must wait for its turn to be reached, and does not
/// wait longer.
fn a_cancelled_writer_lets_no_reader_through_early_and_none_wait_for_ever<S: AnyHasher>() {
    let pool = pool_of::<S>(3);
    let reader = hold(&pool, Claims::shared(1));
    let writer = pool.submit(1, || {}).unwrap();
    let first = pool.submit(Claims::shared(1), || {}).unwrap();
    let second = pool.submit(1, || {}).unwrap();
    assert!(writer.cancel());
    assert!(pool.submit(2, || {}).unwrap().wait().unwrap().is_completed());
    assert!(!first.is_finished());
    reader.let_go();
    assert!(first.wait().unwrap().is_completed());
    assert!(second.wait().unwrap().is_completed());
    assert!(writer.wait().unwrap().is_cancelled());
}
