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
