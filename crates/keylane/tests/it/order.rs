//! Tasks of one key run in the order of their submission, one at a time, and see what those before
//! them wrote; tasks of different keys run beside each other.

use std::cell::UnsafeCell;
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::Duration;

use crate::common::{AnyHasher, LONG, Log, block_on, hold, pool_of, soon, with_every_hasher};
use keylane::{Claims, Pool};

with_every_hasher!(
    tasks_of_one_key_run_in_the_order_of_their_submission,
    every_way_to_submit_keeps_the_order,
    a_task_sees_what_the_tasks_before_it_wrote,
    each_of_many_producers_keeps_its_order,
    order_follows_from_one_submission_returning_before_the_next_is_called,
    tasks_of_different_keys_run_beside_each_other,
    tasks_without_keys_wait_for_nobody,
    messages_of_one_key_are_handled_in_order,
);

fn tasks_of_one_key_run_in_the_order_of_their_submission<S: AnyHasher>() {
    let pool = pool_of::<S>(4);
    let log = Log::new();
    for n in 0..5_000 {
        let log = log.clone();
        pool.execute(n % 3, move || log.push(n)).unwrap();
    }
    pool.shutdown().unwrap();
    let log = log.take();
    assert_eq!(log.len(), 5_000);
    for key in 0..3 {
        let of_key = log.iter().copied().filter(|n| n % 3 == key);
        assert!(of_key.eq((0..5_000).filter(|n| n % 3 == key)), "key {key}");
    }
}

fn every_way_to_submit_keeps_the_order<S: AnyHasher>() {
    let pool = Arc::new(pool_of::<S>(3));
    let log = Log::new();
    let expected = Log::new();
    let task = |n: u32| {
        expected.push(n);
        let log = log.clone();
        move || log.push(n)
    };
    for round in 0..200 {
        let n = |i| round * 20 + i;
        drop(pool.submit(7, task(n(0))).unwrap());
        pool.execute(7, task(n(1))).unwrap();
        drop(pool.try_submit([7, 8], task(n(2))).unwrap());
        pool.task(vec![7, 7]).try_execute(task(n(3))).unwrap();
        drop(pool.task(7).timeout(LONG).submit(task(n(4))).unwrap());
        pool.task(Claims::barrier()).timeout(LONG).execute(task(n(5))).unwrap();
        drop(block_on(pool.task(7).submit_async(task(n(6)))).unwrap());
        block_on(pool.task([9, 7]).execute_async(task(n(7)))).unwrap();
        drop(pool.submit_many((8..11).map(|i| (7, task(n(i))))).unwrap());
        pool.execute_many((11..14).map(|i| ([7, i], task(n(i))))).unwrap();
        let fallible = task(n(14));
        drop(
            pool.task(7)
                .fallible()
                .submit(move || {
                    fallible();
                    Err::<(), _>("on purpose")
                })
                .unwrap(),
        );
        // From inside: the submission happens while the task before it runs.
        let (outer, inner) = (task(n(15)), task(n(16)));
        let own = Arc::downgrade(&pool);
        let (sent, inside) = mpsc::channel();
        pool.execute(7, move || {
            outer();
            own.upgrade().expect("it waits for this").execute(7, inner).unwrap();
            sent.send(()).unwrap();
        })
        .unwrap();
        inside.recv().unwrap();
    }
    pool.shutdown().unwrap();
    assert_eq!(log.take(), expected.take());
}

/// Only what holds a turn may touch it.
struct Unsynchronised(UnsafeCell<Vec<u32>>);
// SAFETY: the pool lets one task of a key at a time access it, which is the subject of the test.
unsafe impl Sync for Unsynchronised {}

fn a_task_sees_what_the_tasks_before_it_wrote<S: AnyHasher>() {
    const KEYS: u32 = 5;
    let pool = pool_of::<S>(4);
    let cells: Arc<Vec<_>> =
        Arc::new((0..KEYS).map(|_| Unsynchronised(UnsafeCell::default())).collect());
    let write = |key: u32, n: u32| {
        let cells = cells.clone();
        // SAFETY: the caller's task has the key.
        move || unsafe { (*cells[key as usize].0.get()).push(n) }
    };
    for n in 0..4_000 {
        let key = n % KEYS;
        if n % 7 == 0 {
            let (one, other) = (write(key, n), write((key + 1) % KEYS, n));
            let work = move || {
                one();
                other();
            };
            pool.execute([key, (key + 1) % KEYS], work).unwrap();
        } else {
            pool.execute(key, write(key, n)).unwrap();
        }
    }
    pool.shutdown().unwrap();
    for cell in cells.iter() {
        // SAFETY: every task has ended.
        let seen = unsafe { &*cell.0.get() };
        assert!(seen.is_sorted(), "{seen:?}");
    }
}

fn each_of_many_producers_keeps_its_order<S: AnyHasher>() {
    let pool = pool_of::<S>(2);
    let logs: Vec<Log<(u32, u32)>> = (0..3).map(|_| Log::new()).collect();
    let start = Barrier::new(4);
    thread::scope(|scope| {
        for producer in 0..4 {
            let (pool, logs, start) = (&pool, &logs, &start);
            scope.spawn(move || {
                start.wait();
                for n in 0..2_000 {
                    let key = n % 3;
                    let log = logs[key as usize].clone();
                    if n % 5 == 0 {
                        let batch = (0..3).map(|i| {
                            let log = log.clone();
                            (key, move || log.push((producer, n * 10 + i)))
                        });
                        pool.execute_many(batch).unwrap();
                    } else {
                        pool.execute(key, move || log.push((producer, n * 10))).unwrap();
                    }
                }
            });
        }
    });
    pool.shutdown().unwrap();
    for log in logs.iter().map(Log::take) {
        for producer in 0..4 {
            let own: Vec<_> = log.iter().filter(|(by, _)| *by == producer).collect();
            assert!(!own.is_empty() && own.is_sorted(), "producer {producer}");
        }
    }
}

fn order_follows_from_one_submission_returning_before_the_next_is_called<S: AnyHasher>() {
    let pool = pool_of::<S>(3);
    let log = Log::new();
    // A token goes round three producers; its owner submits.
    let (mut senders, receivers): (Vec<_>, Vec<_>) = (0..3).map(|_| mpsc::channel::<u32>()).unzip();
    senders.rotate_left(1);
    let first = senders[2].clone();
    thread::scope(|scope| {
        for (next, own) in senders.into_iter().zip(receivers) {
            let (pool, log) = (&pool, &log);
            scope.spawn(move || {
                for n in own {
                    let log = log.clone();
                    let keys = if n % 4 == 0 { vec![1, 2] } else { vec![1] };
                    pool.execute(keys, move || log.push(n)).unwrap();
                    if n == 3_000 {
                        break;
                    }
                    // The last receivers are gone when the last task is in.
                    if next.send(n + 1).is_err() {
                        break;
                    }
                }
            });
        }
        first.send(0).unwrap();
        drop(first);
    });
    pool.shutdown().unwrap();
    assert!(log.take().into_iter().eq(0..=3_000));
}

fn tasks_of_different_keys_run_beside_each_other<S: AnyHasher>() {
    let pool = pool_of::<S>(4);
    let meet = Arc::new(Barrier::new(4));
    for key in 0..4 {
        let meet = meet.clone();
        // They end only if they all run at the same time.
        pool.execute(key, move || _ = meet.wait()).unwrap();
    }
    pool.shutdown().unwrap();
}

fn tasks_without_keys_wait_for_nobody<S: AnyHasher>() {
    let pool = pool_of::<S>(4);
    let held = hold(&pool, 1);
    pool.execute(1, || {}).unwrap();
    let meet = Arc::new(Barrier::new(3));
    for keys in
        [Claims::none(), Vec::<u32>::new().into_iter().fold(Claims::none(), Claims::and_shared)]
    {
        let meet = meet.clone();
        pool.execute(keys, move || _ = meet.wait()).unwrap();
    }
    let empty: [u32; 0] = [];
    let last = pool.submit(empty, move || _ = meet.wait()).unwrap();
    assert!(last.wait().unwrap().is_completed());
    held.let_go();
}

fn messages_of_one_key_are_handled_in_order<S: AnyHasher>() {
    let log = Log::new();
    let seen = log.clone();
    let pool = Pool::<u32>::builder()
        .workers(3)
        .hasher(S::default())
        .build_handler(move |&key: &u32, n: u32| seen.push((key, n)))
        .unwrap();
    let mut n = 0;
    while n < 6_000 {
        pool.send(n % 4, n).unwrap();
        pool.try_send((n + 1) % 4, n + 1).unwrap();
        pool.send_timeout((n + 2) % 4, n + 2, Duration::from_secs(60)).unwrap();
        block_on(pool.send_async((n + 3) % 4, n + 3)).unwrap();
        let many = pool.send_many((n + 4..n + 600).map(|n| (n % 4, n)));
        assert_eq!(many.unwrap(), 596);
        n += 600;
    }
    pool.shutdown().unwrap();
    let log = log.take();
    for key in 0..4 {
        let of_key = log.iter().filter(|(of, _)| *of == key).map(|(_, n)| *n);
        assert!(of_key.eq((0..6_000).filter(|n| n % 4 == key)), "key {key}");
    }
}

/// The last task of a burst was lost (Netty's NonStickyEventExecutorGroup, #8230): a worker saw an
/// empty queue, a producer appended and saw that a worker was there, and the worker left. So each
/// task here is submitted just as the one before it ends, thousands of times, on one key.
#[test]
fn the_last_task_of_a_burst_is_not_lost() {
    soon(|| {
        for workers in [1, 2] {
            let pool = pool_of::<keylane::KeyBuildHasher>(workers);
            for n in 0..10_000_u32 {
                let (done, ended) = mpsc::channel();
                let keys = if n % 3 == 0 { vec![1, 2] } else { vec![1] };
                pool.execute(keys, move || done.send(n).unwrap()).unwrap();
                // The worker is about to leave the lane while the next round submits.
                assert_eq!(ended.recv_timeout(LONG), Ok(n));
            }
        }
    });
}
