//! The requirements of the tests of KeyAffinityExecutor, applied to Keylane.
//!
//! One of its tests has no counterpart here: that only the newest waiting task of a key runs when
//! duplicates are skipped.

use std::panic::panic_any;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread;

use crate::common::{Gate, LONG, Log, OpenAtLast, eventually, hold, lock, pool, soon};
use keylane::{Outcome, Pool, SubmitErrorKind};

/// `close`, then each way to submit is refused, and the accepted tasks have run.
#[test]
fn a_closed_pool_rejects() {
    soon(|| {
        let pool = pool(3);
        let ran = Arc::new(AtomicUsize::new(0));
        for key in 0..100 {
            let ran = ran.clone();
            pool.execute(key % 7, move || _ = ran.fetch_add(1, Ordering::SeqCst)).unwrap();
        }
        pool.shutdown().unwrap();
        assert_eq!(ran.load(Ordering::SeqCst), 100);
        assert_eq!(pool.execute(1, || {}).unwrap_err().kind(), SubmitErrorKind::Closed);
        assert_eq!(pool.submit(1, || {}).unwrap_err().kind(), SubmitErrorKind::Closed);
        assert_eq!(pool.try_submit(1, || {}).unwrap_err().kind(), SubmitErrorKind::Closed);
        let late = pool.task(1).timeout(LONG).submit(|| {}).unwrap_err();
        assert_eq!(late.kind(), SubmitErrorKind::Closed);
    });
}

/// There, the tasks of a key run on one thread for as long as it has some. Here the thread may
/// change, which has no visible effect: one runs at a time, and each sees the writes of the one
/// before it.
#[test]
fn a_busy_key_is_on_one_thread_at_a_time() {
    soon(|| {
        let pool = pool(4);
        type Seen = Mutex<(Option<thread::ThreadId>, u32)>;
        let on: Arc<Vec<Seen>> = Arc::new((0..10).map(|_| Mutex::new((None, 0))).collect());
        for n in 0..5_000_u32 {
            let on = on.clone();
            pool.execute(n % 10, move || {
                let state = &on[(n % 10) as usize];
                let before = lock(state).0.replace(thread::current().id());
                assert_eq!(before, None, "nobody else has the key");
                thread::yield_now();
                let mut state = lock(state);
                assert_eq!(state.0.take(), Some(thread::current().id()));
                assert_eq!(state.1, n / 10, "in order");
                state.1 += 1;
            })
            .unwrap();
        }
        pool.shutdown().unwrap();
        assert_eq!(pool.inspect().snapshot(0).panicked, 0);
    });
}

/// An exception of `executeEx` reaches the handler; that of `submit` the future.
#[test]
fn what_a_task_throws_reaches_the_handler() {
    soon(|| {
        let reached = Log::new();
        let log = reached.clone();
        let pool = Pool::<u32>::builder()
            .workers(2)
            .on_panic(move |payload| log.push(payload.downcast_ref::<u32>().copied()))
            .build()
            .unwrap();
        pool.execute(1, || panic_any(17_u32)).unwrap();
        let handle = pool.submit(1, || panic_any(18_u32)).unwrap();
        match handle.wait().unwrap() {
            Outcome::Panicked(payload) => {
                assert_eq!(payload.into_inner().downcast_ref::<u32>(), Some(&18));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(reached.take(), [Some(17), Some(18)]);
    });
}

/// Five threads, then three, then seven, under load: no two tasks of a key at a time, all in order.
#[test]
fn threads_come_and_go_and_no_key_overlaps() {
    soon(|| {
        let pool = pool(5);
        let next: Arc<Vec<Mutex<u32>>> = Arc::new((0..20).map(|_| Mutex::new(0)).collect());
        let mut feed = {
            let mut n = 0_u32;
            let pool = &pool;
            move |tasks: u32| {
                for _ in 0..tasks {
                    let (key, turn, next) = (n % 20, n / 20, next.clone());
                    n += 1;
                    pool.execute(key, move || {
                        let mut next = next[key as usize].try_lock().expect("nobody else");
                        assert_eq!(*next, turn);
                        *next += 1;
                        thread::yield_now();
                    })
                    .unwrap();
                }
            }
        };
        for workers in [5, 3, 7, 1, 5] {
            pool.settings().set_workers(workers).unwrap();
            feed(2_000);
            eventually(|| pool.inspect().snapshot(0).workers.len() == workers);
        }
        pool.shutdown().unwrap();
        assert_eq!(pool.inspect().snapshot(0).panicked, 0);
    });
}

/// Fewer threads while every key has a backlog: the keys of those that go are served by the others.
#[test]
fn reducing_the_threads_strands_no_key() {
    soon(|| {
        let pool = pool(5);
        let held: Vec<_> = (0..5).map(|key| hold(&pool, key)).collect();
        let log = Log::new();
        for n in 0..500 {
            let log = log.clone();
            pool.execute(n % 50, move || log.push(n)).unwrap();
        }
        pool.settings().set_workers(1).unwrap();
        drop(held);
        pool.shutdown().unwrap();
        let log = log.take();
        for key in 0..50 {
            assert!(log.iter().filter(|n| *n % 50 == key).is_sorted());
        }
        assert_eq!((log.len(), pool.inspect().snapshot(0).workers_wanted), (500, 1));
    });
}

/// A submitter that waits comes in when the bound grows, without any other submission.
#[test]
fn a_larger_bound_lets_a_blocked_submitter_in() {
    soon(|| {
        let pool = Arc::new(Pool::<u32>::builder().workers(1).capacity(2).build().unwrap());
        let _held = hold(&pool, 1);
        pool.execute(1, || {}).unwrap();
        let blocked = thread::spawn({
            let pool = pool.clone();
            move || pool.execute(2, || {}).is_ok()
        });
        eventually(|| pool.inspect().snapshot(0).submitters_waiting == 1);
        pool.settings().set_capacity(3).unwrap();
        assert!(blocked.join().unwrap());
    });
}

/// And a smaller one blocks, though there is more than it allows already.
#[test]
fn a_smaller_bound_blocks_until_enough_has_ended() {
    soon(|| {
        let pool = Pool::<u32>::builder().workers(1).capacity(10).build().unwrap();
        let gate = Gate::new();
        let _open = OpenAtLast(gate.clone());
        for _ in 0..5 {
            let gate = gate.clone();
            pool.execute(1, move || gate.pass()).unwrap();
        }
        pool.settings().set_capacity(2).unwrap();
        assert_eq!(pool.task(2).try_execute(|| {}).unwrap_err().kind(), SubmitErrorKind::Full);
        gate.open();
        // It comes in as soon as fewer than two are left.
        pool.execute(2, || {}).unwrap();
        pool.shutdown().unwrap();
    });
}

/// The numbers of an idle pool, of one with a task for each thread, and of one with more.
#[test]
fn the_statistics_count_idle_busy_and_queued() {
    soon(|| {
        let pool = Pool::<u32>::builder().workers(3).capacity(10).build().unwrap();
        eventually(|| pool.inspect().snapshot(0).workers_asleep == 3);
        assert_eq!(
            (pool.inspect().snapshot(0).unfinished, pool.inspect().snapshot(0).capacity),
            (0, 10)
        );
        let held: Vec<_> = (0..3).map(|key| hold(&pool, key)).collect();
        let busy = pool.inspect().snapshot(0);
        assert_eq!(busy.workers.iter().filter(|worker| worker.busy).count(), 3);
        assert_eq!(busy.unfinished, 3);
        for n in 0..4 {
            pool.execute(n % 2, || {}).unwrap();
        }
        let queued = pool.inspect().snapshot(2);
        assert_eq!(queued.unfinished, 7);
        let lengths: Vec<_> = queued.hottest.iter().map(|lane| lane.len).collect();
        assert_eq!(lengths, [3, 3], "each holder and the two behind it");
        drop(held);
        eventually(|| pool.inspect().snapshot(0).unfinished == 0);
        eventually(|| pool.inspect().snapshot(0).workers_asleep == 3);
    });
}

/// A thread factory names the threads.
#[test]
fn threads_have_the_name_that_was_asked_for() {
    soon(|| {
        let pool = Pool::<u32>::builder().workers(2).thread_name("ads").build().unwrap();
        let name = || thread::current().name().map(str::to_owned);
        let name = pool.submit(1, name).unwrap().wait().unwrap().unwrap();
        assert!(name.as_ref().is_some_and(|name| name.starts_with("ads")), "{name:?}");
    });
}

/// An executor is made when it is first used, once, by whichever thread comes first.
#[test]
fn a_pool_that_begins_late_begins_once() {
    static BEGUN: AtomicUsize = AtomicUsize::new(0);
    static POOL: LazyLock<Pool<u32>> = LazyLock::new(|| {
        BEGUN.fetch_add(1, Ordering::SeqCst);
        pool(2)
    });
    soon(|| {
        assert_eq!(BEGUN.load(Ordering::SeqCst), 0);
        thread::scope(|scope| {
            for key in 0..4 {
                scope.spawn(move || POOL.submit(key, || {}).unwrap().wait().unwrap().unwrap());
            }
        });
        assert_eq!(BEGUN.load(Ordering::SeqCst), 1);
        POOL.shutdown().unwrap();
    });
}
