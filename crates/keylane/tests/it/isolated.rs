//! A panic ends its task alone, wherever it comes from: the body, the drop of its captures, the
//! drop of its payload, that of its descriptor, or the panic hook of the pool. The key continues,
//! and so does the worker.

use std::panic::panic_any;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, ThreadId};

use crate::common::{AnyHasher, Gate, Log, hold, lock, pool, pool_of, soon, with_every_hasher};
use keylane::{Claims, Compatibility, Outcome, Pool};

with_every_hasher!(
    a_panic_in_any_task_of_a_line_ends_that_task_alone,
    a_panic_in_a_rollup_frees_all_of_its_keys,
    a_panic_in_a_reader_lets_the_writer_in,
);

/// Panics when it is dropped.
struct Grenade;

impl Drop for Grenade {
    fn drop(&mut self) {
        // A second panic while the first unwinds would abort the process.
        if !thread::panicking() {
            panic!("a capture's drop, on purpose");
        }
    }
}

/// Payload that panics when it is dropped, this number of times in a row.
struct Chain(usize);

impl Drop for Chain {
    fn drop(&mut self) {
        if self.0 != 0 && !thread::panicking() {
            panic_any(Chain(self.0 - 1));
        }
    }
}

/// Fails unless the pool still has as many workers as it should, all alive.
fn check_workers<S: AnyHasher>(pool: &Pool<u32, S>, workers: usize) {
    let meet = Arc::new(std::sync::Barrier::new(workers));
    let handles: Vec<_> = (0..workers)
        .map(|_| {
            let meet = meet.clone();
            // They end only if each has a worker.
            pool.submit(Claims::none(), move || _ = meet.wait()).unwrap()
        })
        .collect();
    for handle in handles {
        assert!(handle.wait().unwrap().is_completed());
    }
    assert_eq!(pool.inspect().snapshot(0).workers.len(), workers);
}

fn a_panic_in_any_task_of_a_line_ends_that_task_alone<S: AnyHasher>() {
    let pool = pool_of::<S>(2);
    for bad in 0..20 {
        let log = Log::new();
        let handles: Vec<_> = (0..20)
            .map(|n| {
                let log = log.clone();
                let work = move || {
                    assert!(n != bad, "on purpose");
                    log.push(n);
                };
                pool.submit(1, work).unwrap()
            })
            .collect();
        for (n, handle) in handles.into_iter().enumerate() {
            match handle.wait().unwrap() {
                Outcome::Completed(()) => assert_ne!(n, bad),
                Outcome::Panicked(payload) => {
                    assert_eq!((n, payload.message()), (bad, Some("on purpose")));
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(log.take().into_iter().eq((0..20).filter(|n| *n != bad)));
    }
    assert_eq!(pool.inspect().snapshot(0).panicked, 20);
    check_workers(&pool, 2);
}

fn a_panic_in_a_rollup_frees_all_of_its_keys<S: AnyHasher>() {
    let pool = pool_of::<S>(2);
    for _ in 0..50 {
        pool.execute([1, 2, 3], || panic_any(())).unwrap();
        for key in 1..4 {
            assert!(pool.submit(key, || {}).unwrap().wait().unwrap().is_completed());
        }
    }
    check_workers(&pool, 2);
}

fn a_panic_in_a_reader_lets_the_writer_in<S: AnyHasher>() {
    let pool = pool_of::<S>(2);
    for _ in 0..50 {
        pool.execute(Claims::shared(1), || panic_any(())).unwrap();
        pool.execute(Claims::shared(1).and_shared(2), || panic_any(())).unwrap();
        assert!(pool.submit(1, || {}).unwrap().wait().unwrap().is_completed());
    }
    check_workers(&pool, 2);
}

#[test]
fn a_panic_in_the_drop_of_the_captures_ends_its_task_alone() {
    soon(|| {
        let pool = pool(1);
        // The capture is dropped by the body, after the body, when it is cancelled, and unrun.
        let by_body = Grenade;
        let handle = pool.submit(1, move || drop(by_body)).unwrap();
        assert!(matches!(handle.wait().unwrap(), Outcome::Panicked(_)));
        let after_body = Grenade;
        pool.execute(1, move || _ = &after_body).unwrap();
        let large = (Grenade, [0; 100]);
        pool.execute([1, 2], move || _ = &large).unwrap();
        assert!(pool.submit([1, 2], || {}).unwrap().wait().unwrap().is_completed());
        check_workers(&pool, 1);
    });
}

#[test]
fn a_result_that_nobody_waits_for_may_panic_when_it_is_dropped() {
    soon(|| {
        let pool = pool(1);
        for _ in 0..10 {
            // It ends after its handle was dropped, so that the worker drops the result.
            let (dropped, is_dropped) = mpsc::channel();
            let result = move || {
                is_dropped.recv().unwrap();
                Grenade
            };
            drop(pool.submit(1, result).unwrap());
            dropped.send(()).unwrap();
            assert!(pool.submit(1, || {}).unwrap().wait().unwrap().is_completed());
        }
        check_workers(&pool, 1);
    });
}

#[test]
fn a_payload_that_panics_when_it_is_dropped_ends_no_worker() {
    soon(|| {
        let pool = pool(1);
        for links in 0..5 {
            pool.execute(1, move || panic_any(Chain(links))).unwrap();
            let (dropped, is_dropped) = mpsc::channel();
            let panics = move || {
                is_dropped.recv().unwrap();
                panic_any(Chain(links))
            };
            drop(pool.submit(1, panics).unwrap());
            dropped.send(()).unwrap();
            pool.execute([1, 2], move || panic_any(Chain(links))).unwrap();
            assert!(pool.submit([1, 2], || {}).unwrap().wait().unwrap().is_completed());
        }
        check_workers(&pool, 1);
    });
}

#[test]
fn the_hook_learns_of_each_panic_before_the_key_goes_on() {
    soon(|| {
        let log = Log::new();
        let told = log.clone();
        let pool = Pool::<u32>::builder()
            .workers(2)
            .on_panic(move |payload| {
                told.push(format!("told {}", payload.downcast_ref::<u32>().expect("a number")));
            })
            .build()
            .unwrap();
        for n in 0..20_u32 {
            pool.execute(1, move || panic_any(n)).unwrap();
            let ran = log.clone();
            pool.execute(1, move || ran.push(format!("after {n}"))).unwrap();
            drop(pool.submit(1, move || panic_any(n)).unwrap());
            let ran = log.clone();
            pool.execute(1, move || ran.push(format!("after {n}"))).unwrap();
        }
        pool.shutdown().unwrap();
        let expected =
            (0..40).flat_map(|n| [format!("told {}", n / 2), format!("after {}", n / 2)]);
        assert!(log.take().into_iter().eq(expected));
    });
}

#[test]
fn a_hook_that_panics_ends_no_worker() {
    soon(|| {
        let told = Arc::new(AtomicUsize::new(0));
        let count = told.clone();
        let pool = Pool::<u32>::builder()
            .workers(1)
            .on_panic(move |_| panic_any(Chain(count.fetch_add(1, Ordering::SeqCst) % 4)))
            .build()
            .unwrap();
        for _ in 0..10 {
            pool.execute(1, || panic_any(1)).unwrap();
            let handle = pool.submit(1, || panic_any(2)).unwrap();
            assert!(matches!(handle.wait().unwrap(), Outcome::<()>::Panicked(_)));
        }
        assert_eq!(told.load(Ordering::SeqCst), 20);
        check_workers(&pool, 1);
    });
}

/// A handle waited forever if the captures of its task panicked when the pool dropped them: the
/// outcome was set, and no waiter was woken.
#[test]
fn a_handle_learns_that_its_task_was_dropped_even_if_the_drop_panics() {
    soon(|| {
        let pool = pool(1);
        let held = hold(&pool, 1);
        let capture = Grenade;
        let handle = pool.submit(1, move || drop(capture)).unwrap();
        let waiting = Gate::new();
        let waits = waiting.clone();
        let waiter = thread::spawn(move || {
            waits.open();
            handle.wait().unwrap().is_cancelled()
        });
        waiting.pass();
        // Let it fall asleep, if it is quick enough; the outcome is the same if not.
        for _ in 0..1_000 {
            thread::yield_now();
        }
        let unrun = pool.shutdown_now();
        let dropped = thread::spawn(move || drop(unrun)).join();
        assert!(dropped.is_err(), "the panic is the dropper's");
        assert!(waiter.join().unwrap());
        held.let_go();
    });
}

/// A descriptor that conflicts with all others, and panics when it is dropped.
struct Brittle {
    /// Called when it is compared with another.
    asked: Box<dyn Fn() + Send + Sync>,
    _drop: Grenade,
}

impl Compatibility for Brittle {
    fn is_compatible(&self, _: &Self) -> bool {
        (self.asked)();
        false
    }
}

fn brittle(asked: impl Fn() + Send + Sync + 'static) -> Claims<u32> {
    Claims::described(Brittle { asked: Box::new(asked), _drop: Grenade })
}

/// A descriptor is dropped when its task has ended. A panic there ended the worker, outside of the
/// part that catches a task's panics, and no other took its place.
#[test]
fn a_descriptor_that_panics_when_it_is_dropped_ends_no_worker() {
    soon(|| {
        let pool = pool(1);
        for claims in [brittle(|| ()), brittle(|| ()).and_exclusive(1)] {
            let held = hold(&pool, 1);
            // The submitter has released it when the task begins, so the worker is the last owner.
            let task = pool.submit(claims, || ()).unwrap();
            held.let_go();
            assert!(task.wait().unwrap().is_completed());
        }
        check_workers(&pool, 1);
    });
}

/// A scan keeps the descriptors of the tasks that it compares with, and drops one if its task has
/// ended meanwhile. A panic there reached the submitter of another task, after that was accepted,
/// and before anything could have made it ready: it waited forever, and so did all behind it.
#[test]
fn a_descriptor_that_panics_when_its_asker_drops_it_leaves_no_task_behind() {
    soon(|| {
        let pool = Arc::new(pool(1));
        let held = Mutex::new(Some(hold(&pool, brittle(|| ()))));
        let asks = pool.clone();
        let asked = move || {
            drop(lock(&held).take());
            // The only worker does something else, so it has let go of the one that is asked about.
            assert!(asks.submit(9, || ()).unwrap().wait().unwrap().is_completed());
        };
        let task = pool.submit(brittle(asked), || ()).unwrap();
        assert!(task.wait().unwrap().is_completed());
        check_workers(&pool, 1);
    });
}

/// Dropping a pool dropped the tasks that had not run, on the dropper's thread: a panic there left
/// workers that were never joined, and a second one ended the process.
#[test]
fn a_pool_can_be_dropped_whatever_its_tasks_captured() {
    soon(|| {
        let pool = pool(1);
        let held = hold(&pool, 1);
        let ended = Gate::new();
        for _ in 0..3 {
            let capture = Grenade;
            pool.execute(1, move || drop(capture)).unwrap();
            let capture = Grenade;
            drop(pool.submit([1, 2], move || drop(capture)).unwrap());
        }
        let dropped = ended.clone();
        let dropper = thread::spawn(move || {
            drop(pool);
            dropped.open();
        });
        held.let_go();
        assert!(dropper.join().is_ok());
        ended.pass();
    });
}

/// A worker that died with its task was replaced by a new thread for every failure (the second
/// article's executor), or not at all (the fourth's pool: an `Error` ended the worker silently).
#[test]
fn the_same_threads_serve_before_and_after_panics() {
    soon(|| {
        let pool = pool(2);
        let threads = |pool: &Pool<u32>| {
            let meet = Arc::new(std::sync::Barrier::new(2));
            let handles: Vec<_> = (0..2)
                .map(|_| {
                    let meet = meet.clone();
                    let work = move || {
                        meet.wait();
                        thread::current().id()
                    };
                    pool.submit(Claims::none(), work).unwrap()
                })
                .collect();
            let mut ids: Vec<ThreadId> =
                handles.into_iter().map(|handle| handle.wait().unwrap().unwrap()).collect();
            ids.sort_by_key(|id| format!("{id:?}"));
            ids
        };
        let before = threads(&pool);
        for n in 0..200 {
            pool.execute(n % 3, || panic_any(())).unwrap();
            pool.execute([n % 3, 7], || panic_any(())).unwrap();
            pool.execute(Claims::none(), || panic_any(())).unwrap();
        }
        assert_eq!(threads(&pool), before);
    });
}

#[test]
fn a_handler_that_panics_goes_on_with_the_next_message() {
    soon(|| {
        let log = Log::new();
        let seen = log.clone();
        let pool = Pool::<u32>::builder()
            .workers(2)
            .build_handler(move |&key: &u32, n: u32| {
                assert!(n % 10 != 3, "on purpose");
                seen.push((key, n));
            })
            .unwrap();
        assert_eq!(pool.send_many((0..1_000).map(|n| (n % 2, n))).unwrap(), 1_000);
        pool.shutdown().unwrap();
        assert_eq!(pool.inspect().snapshot(0).panicked, 100);
        let log = log.take();
        for key in 0..2 {
            let of_key = log.iter().filter(|(of, _)| *of == key).map(|(_, n)| *n);
            assert!(of_key.eq((0..1_000).filter(|n| n % 2 == key && n % 10 != 3)));
        }
    });
}
