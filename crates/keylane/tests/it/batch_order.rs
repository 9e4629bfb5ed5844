//! The tasks of a batch are in order as if they had been submitted one by one.
//!
//! They were appended to their inboxes one inbox after the other, in the order of the shards. A
//! rollup or barrier that another thread submitted meanwhile came between them: behind the entry of
//! an index, say, and before the data that it is about, which the batch had before it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use crate::common::{lock, soon};
use keylane::{Claims, Pool};

const KEYS: u32 = 48;

fn pool() -> Arc<Pool<u32>> {
    Arc::new(crate::common::pool(4))
}

/// Each batch sets all cells to its number, one after the other. A task that reads them all at once
/// finds none that is ahead of one before it.
fn reads_from_its_front(claims: Claims<u32>, rounds: u32) {
    let pool = pool();
    let cells: Arc<Vec<AtomicU32>> = Arc::new((0..KEYS).map(|_| AtomicU32::new(0)).collect());
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=rounds {
                let batch = (0..KEYS).map(|key| {
                    let cells = cells.clone();
                    (key, move || cells[key as usize].store(round, Ordering::SeqCst))
                });
                pool.execute_many(batch).unwrap();
            }
            over.store(true, Ordering::SeqCst);
        });
        while !over.load(Ordering::SeqCst) {
            let cells = cells.clone();
            let read = move || cells.iter().map(|cell| cell.load(Ordering::SeqCst)).collect();
            let read: Vec<u32> =
                pool.submit(claims.clone(), read).unwrap().wait().unwrap().unwrap();
            assert!(read.is_sorted_by(|before, after| before >= after), "{read:?}");
        }
    });
    pool.shutdown().unwrap();
}

#[test]
fn rollups_see_a_batch_from_its_front() {
    let all = (0..KEYS).fold(Claims::none(), Claims::and_shared);
    soon(|| reads_from_its_front(all, 500));
}

#[test]
fn barriers_see_a_batch_from_its_front() {
    soon(|| reads_from_its_front(Claims::barrier(), 500));
}

/// Batches of two threads that meet on all keys are in one order on all of them.
#[test]
fn two_batches_are_one_before_the_other() {
    soon(two_batches);
}

fn two_batches() {
    let pool = pool();
    let logs: Arc<Vec<_>> = Arc::new((0..KEYS).map(|_| std::sync::Mutex::default()).collect());
    thread::scope(|scope| {
        for writer in 0..2_u32 {
            let (pool, logs) = (pool.clone(), logs.clone());
            scope.spawn(move || {
                for round in 0..500_u32 {
                    let batch = (0..KEYS).map(|key| {
                        let logs = logs.clone();
                        let write = move || {
                            let mut log: std::sync::MutexGuard<'_, Vec<_>> =
                                lock(&logs[key as usize]);
                            log.push((writer, round));
                        };
                        (key, write)
                    });
                    pool.execute_many(batch).unwrap();
                }
            });
        }
    });
    pool.shutdown().unwrap();
    let first = lock(&logs[0]).clone();
    assert_eq!(first.len(), 1000);
    for log in &logs[1..] {
        assert!(*lock(log) == first, "batches are in another order on another key");
    }
}

/// Each batch sets the cells of its first half, then runs a task of this kind, then sets the others. A task that reads
/// all cells finds them equal: no other task comes into the middle of a batch.
fn is_not_interrupted(middle: impl Fn() -> Claims<u32> + Sync, rounds: u32) {
    let pool = pool();
    let cells: Arc<Vec<AtomicU32>> = Arc::new((0..KEYS).map(|_| AtomicU32::new(0)).collect());
    let over = AtomicBool::new(false);
    let all = || (0..KEYS).fold(Claims::none(), Claims::and_shared);
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=rounds {
                let set = |key: u32| -> (Claims<u32>, Box<dyn FnOnce() + Send>) {
                    let cells = cells.clone();
                    let set = move || cells[key as usize].store(round, Ordering::SeqCst);
                    (Claims::exclusive(key), Box::new(set))
                };
                let mut batch: Vec<_> = (0..KEYS).map(set).collect();
                batch.insert(KEYS as usize / 2, (middle(), Box::new(|| ())));
                pool.execute_many(batch).unwrap();
            }
            over.store(true, Ordering::SeqCst);
        });
        while !over.load(Ordering::SeqCst) {
            let cells = cells.clone();
            let read = move || cells.iter().map(|cell| cell.load(Ordering::SeqCst)).collect();
            let read: Vec<u32> = pool.submit(all(), read).unwrap().wait().unwrap().unwrap();
            assert!(read.iter().all(|cell| *cell == read[0]), "{read:?}");
        }
    });
    pool.shutdown().unwrap();
}

/// Regression: a batch was split before and after each task without exactly one key.
#[test]
fn a_batch_with_a_rollup_has_one_place() {
    soon(|| is_not_interrupted(|| [KEYS, KEYS + 1].into_iter().collect(), 500));
    soon(|| is_not_interrupted(|| [0, KEYS - 1].into_iter().collect(), 500));
}

#[test]
fn a_batch_with_a_barrier_or_a_task_without_a_key_has_one_place() {
    soon(|| is_not_interrupted(Claims::barrier, 300));
    soon(|| is_not_interrupted(Claims::none, 300));
}

/// Regression: from inside of a task each task of a batch had a place of its own.
#[test]
fn a_batch_from_inside_of_a_task_has_one_place() {
    soon(|| {
        let pool = pool();
        let cells: Arc<Vec<AtomicU32>> = Arc::new((0..KEYS).map(|_| AtomicU32::new(0)).collect());
        let over = Arc::new(AtomicBool::new(false));
        let (inner, written, told) = (pool.clone(), cells.clone(), over.clone());
        let writer = move || {
            for round in 1..=300 {
                let batch = (0..KEYS).map(|key| {
                    let cells = written.clone();
                    (key, move || cells[key as usize].store(round, Ordering::SeqCst))
                });
                inner.execute_many(batch).unwrap();
            }
            told.store(true, Ordering::SeqCst);
        };
        let writer = pool.submit(KEYS, writer).unwrap();
        let all = (0..KEYS).fold(Claims::none(), Claims::and_shared);
        while !over.load(Ordering::SeqCst) {
            let cells = cells.clone();
            let read = move || cells.iter().map(|cell| cell.load(Ordering::SeqCst)).collect();
            let read: Vec<u32> = pool.submit(all.clone(), read).unwrap().wait().unwrap().unwrap();
            assert!(read.iter().all(|cell| *cell == read[0]), "{read:?}");
        }
        assert!(writer.wait().unwrap().is_completed());
    });
}

/// A refused task in the middle of a batch comes back with all behind it, and those before it have entered.
#[test]
fn a_mixed_batch_is_accepted_up_to_the_refused_task() {
    let pool = pool();
    drop(pool.task(9).last(keylane::OnClosedKey::Refuse).submit(|| ()).unwrap());
    let ran = Arc::new(AtomicU32::new(0));
    let task = |claims: Claims<u32>| {
        let ran = ran.clone();
        (claims, move || _ = ran.fetch_add(1, Ordering::SeqCst))
    };
    let batch = [
        task(Claims::exclusive(1)),
        task([2, 3].into_iter().collect()),
        task(Claims::barrier()),
        task([9, 4].into_iter().collect()),
        task(Claims::barrier()),
        task(Claims::none()),
        task(Claims::exclusive(5).with_cost(3)),
    ];
    let error = pool.execute_many(batch).unwrap_err();
    assert_eq!(error.kind(), keylane::SubmitErrorKind::KeyClosed);
    let (accepted, rejected) = error.into_inner();
    assert_eq!((accepted, rejected.len(), rejected[3].0.cost()), (3, 4, 3));
    // The refused barrier is gone from all accounts: tasks without keys start without it.
    pool.wait_idle().unwrap();
    assert_eq!(ran.load(Ordering::SeqCst), 3);
    assert_eq!(pool.execute_many(rejected.into_iter().skip(1)).unwrap(), 3);
    pool.shutdown().unwrap();
    assert_eq!(ran.load(Ordering::SeqCst), 6);
}
