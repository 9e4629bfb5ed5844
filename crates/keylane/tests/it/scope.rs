//! Tasks of a scope borrow from outside of it, and are over when it returns, however they and their
//! pool end. Clones of a pool are the same pool.

use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use crate::common::{
    AnyHasher, Fragile, Gate, Live, Log, OpenAtLast, Rng, eventually, hold, pool, pool_of, soon,
    with_every_hasher,
};
use keylane::{Claims, OnClosedKey, Pool, ScopeError, SubmitErrorKind};

with_every_hasher!(tasks_borrow_and_are_in_order, tasks_submit_further_tasks_to_their_scope);

const A: u32 = 1;
const B: u32 = 2;

fn tasks_borrow_and_are_in_order<S: AnyHasher>() {
    let pool = pool_of::<S>(3);
    let mut rng = Rng(1);
    // Miri interprets each step.
    let (rounds, tasks) = if cfg!(miri) { (1, 20) } else { (20, 200) };
    for round in 0..rounds {
        let names: Vec<String> = (0..tasks).map(|n| format!("task {n} of {round}")).collect();
        let logs: Vec<Log<&str>> = (0..5).map(|_| Log::new()).collect();
        let mut expected = vec![Vec::new(); 5];
        let mut lengths = vec![0; names.len()];
        let value = pool.scope(|scope| {
            for (name, length) in names.iter().zip(&mut lengths) {
                let keys = [rng.below(5) as usize, rng.below(5) as usize];
                let touched: Vec<_> = (0..5).filter(|key| keys.contains(key)).collect();
                touched.iter().for_each(|key| expected[*key].push(name.as_str()));
                let logs = &logs;
                let work = move || {
                    touched.iter().for_each(|key| logs[*key].push(name.as_str()));
                    *length = name.len();
                };
                scope.execute(keys.map(|key| key as u32), work).unwrap();
            }
            round
        });
        assert_eq!(value.unwrap(), round);
        assert!(lengths.iter().zip(&names).all(|(length, name)| *length == name.len()));
        for (log, expected) in logs.iter().zip(expected) {
            assert_eq!(log.take(), expected);
        }
    }
    assert!(!pool.is_closed());
}

fn tasks_submit_further_tasks_to_their_scope<S: AnyHasher>() {
    // A task inside never waits for capacity.
    let pool = Pool::<u32>::builder().workers(2).capacity(1).hasher(S::default()).build().unwrap();
    let count = AtomicUsize::new(0);
    let counted = &count;
    pool.scope(|scope| {
        for key in 0..10 {
            let work = move || {
                for inner in 0..10 {
                    let work = move || _ = counted.fetch_add(1, Ordering::Relaxed);
                    scope.execute([key, inner], work).unwrap();
                }
            };
            scope.execute(key, work).unwrap();
        }
    })
    .unwrap();
    assert_eq!(count.into_inner(), 100);
}

/// Tasks of a scope and others are in one order.
#[test]
fn other_tasks_of_the_keys_are_in_order_with_those_of_a_scope() {
    let pool = pool(2);
    let log = Log::new();
    let held = hold(&pool, [A, B]);
    let gate = Gate::new();
    thread::scope(|threads| {
        threads.spawn(|| {
            let scoped = &log;
            pool.scope(|scope| {
                scope.execute(Claims::shared(A), move || scoped.push("scoped")).unwrap();
                gate.open();
            })
            .unwrap();
            log.push("after the scope");
        });
        gate.pass();
        let outside = log.clone();
        let last = pool.submit(A, move || outside.push("outside")).unwrap();
        held.let_go();
        last.join().unwrap();
    });
    let order = log.take();
    assert_eq!(order[0], "scoped");
    assert_eq!(order.len(), 3);
}

/// The panic of a task ends that task alone. The scope waits for the others, and returns the first.
#[test]
fn a_panic_of_a_task_is_returned_when_all_have_ended() {
    soon(|| {
        let pool = pool(2);
        let (ran, live) = (AtomicUsize::new(0), Live::new());
        let count = &ran;
        let result = pool.scope(|scope| {
            for n in 0..20 {
                let captured = live.one();
                let work = move || {
                    let _captured = captured;
                    assert!(n != 3 && n != 7, "panic of {n}");
                    count.fetch_add(1, Ordering::Relaxed);
                };
                scope.execute(A, work).unwrap();
            }
        });
        let Err(ScopeError::Panicked(payload)) = result else { panic!("{result:?}") };
        assert_eq!(payload.message(), Some("panic of 3"));
        assert_eq!((ran.into_inner(), live.count()), (18, 0));
        assert_eq!(pool.inspect().snapshot(0).panicked, 2);
    });
}

/// A panic of the scope's own closure continues after all tasks have ended, and so does a panic in
/// the drop of captures.
#[test]
fn a_panic_of_the_scope_goes_on_after_its_tasks() {
    soon(|| {
        let pool = pool(1);
        let ran = AtomicUsize::new(0);
        let counted = &ran;
        let gate = Gate::new();
        let _open = OpenAtLast(gate.clone());
        let unwinds = AssertUnwindSafe(|| {
            pool.scope(|scope| {
                let wait = gate.clone();
                scope.execute(A, move || wait.pass()).unwrap();
                for _ in 0..9 {
                    let work = move || _ = counted.fetch_add(1, Ordering::Relaxed);
                    scope.execute(A, work).unwrap();
                }
                gate.open();
                panic!("of the scope");
            })
        });
        let payload = catch_unwind(unwinds).unwrap_err();
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"of the scope"));
        assert_eq!(ran.into_inner(), 9);

        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("in a drop");
            }
        }
        let result = pool.scope(|scope| {
            let bomb = Bomb;
            scope.execute(A, move || drop(bomb)).unwrap();
        });
        assert!(matches!(result, Err(ScopeError::Panicked(_))));
        pool.submit(A, || ()).unwrap().join().unwrap();
    });
}

/// Inside of a task a scope of the same pool is refused before anything runs; one of another pool is
/// not, even with one worker each.
#[test]
fn a_scope_in_a_task_is_one_of_another_pool() {
    soon(|| {
        let (outer, inner) = (Arc::new(pool(1)), Arc::new(pool(1)));
        let (own, other) = (outer.clone(), inner);
        let sum = outer.submit(A, move || {
            let refused = own.scope(|_| unreachable!("it is refused")).map(|(): ()| ());
            assert!(matches!(refused, Err(ScopeError::FromInside)));
            let mut sums = [0; 10];
            other
                .scope(|scope| {
                    for (n, sum) in sums.iter_mut().enumerate() {
                        // The waiting worker is replaced, so its pool continues.
                        let own = &own;
                        let add = move || *sum = own.submit(B, move || n).unwrap().join().unwrap();
                        scope.execute(A, add).unwrap();
                    }
                })
                .unwrap();
            sums.iter().sum::<usize>()
        });
        assert_eq!(sum.unwrap().join().unwrap(), 45);
    });
}

/// A refused task comes back with its borrows, and the scope does not wait for it.
#[test]
fn a_refused_task_comes_back() {
    let pool = pool(1);
    let name = String::from("borrowed");
    let mut log = Vec::new();
    let _ = pool.task(B).last(OnClosedKey::Refuse).submit(|| ()).unwrap().join();
    pool.scope(|scope| {
        let name = &name;
        let refused = scope.execute(B, || log.push(name.as_str())).unwrap_err();
        assert_eq!(refused.kind(), SubmitErrorKind::KeyClosed);
        let (_, work) = refused.into_inner();
        work();
        pool.close();
        let refused = scope.execute(A, || ()).unwrap_err();
        assert_eq!(refused.kind(), SubmitErrorKind::Closed);
    })
    .unwrap();
    assert_eq!(log, ["borrowed"]);
}

/// A stop drops the tasks of a scope that have not begun, and does not return them; the scope says
/// so, after those that run.
#[test]
fn a_stop_ends_the_scope() {
    soon(|| {
        let pool = pool(1);
        let (live, begun, gate) = (Live::new(), Gate::new(), Gate::new());
        let (runs, wait) = (&begun, &gate);
        let watch = live.watch();
        let result = pool.scope(|scope| {
            scope
                .execute(A, move || {
                    runs.open();
                    wait.pass();
                })
                .unwrap();
            begun.pass();
            for _ in 0..5 {
                let captured = live.one();
                scope.execute([A, B], move || drop(captured)).unwrap();
            }
            pool.execute(A, || unreachable!("it is returned")).unwrap();
            assert_eq!(pool.shutdown_now().len(), 1);
            gate.open();
        });
        assert!(matches!(result, Err(ScopeError::Cancelled)));
        assert_eq!(watch.now(), 0);
    });
}

/// A paused key holds up the scope; its tasks are not taken.
#[test]
fn tasks_of_a_scope_are_not_taken() {
    soon(|| {
        let pool = pool(1);
        pool.keys().pause(&A);
        let ran = AtomicUsize::new(0);
        let counted = &ran;
        let (submitted, wait) = channel();
        thread::scope(|threads| {
            let scopes = threads.spawn(|| {
                pool.scope(|scope| {
                    for keys in [Claims::exclusive(A), Claims::shared(A), Claims::limited(A, 2)] {
                        let work = move || _ = counted.fetch_add(1, Ordering::Relaxed);
                        scope.execute(keys, work).unwrap();
                    }
                    submitted.send(()).unwrap();
                })
            });
            wait.recv().unwrap();
            pool.execute(A, || unreachable!("it is taken")).unwrap();
            assert_eq!(pool.keys().take(&A).len(), 1);
            assert!(!scopes.is_finished());
            pool.keys().resume(&A);
            scopes.join().unwrap().unwrap();
        });
        assert_eq!(ran.into_inner(), 3);
    });
}

/// A pool that a panic of a key has ended drops the tasks of a scope.
#[test]
fn a_poisoned_pool_ends_the_scope() {
    soon(|| {
        let armed = Arc::new(AtomicBool::new(false));
        let key = |number| Fragile(number, armed.clone());
        // The entries of a bound per key are found by comparisons.
        let pool = Pool::<Fragile>::builder().workers(1).capacity_per_key(9).build().unwrap();
        pool.keys().pause(&key(A));
        let live = Live::new();
        let result = pool.scope(|scope| {
            for _ in 0..3 {
                let captured = live.one();
                scope.execute(key(A), move || drop(captured)).unwrap();
            }
            armed.store(true, Ordering::SeqCst);
            drop(catch_unwind(AssertUnwindSafe(|| pool.execute(key(A), || ()))));
            eventually(|| pool.inspect().snapshot(0).poisoned);
        });
        assert!(matches!(result, Err(ScopeError::Cancelled)));
        assert_eq!(live.count(), 0);
    });
}

/// Key that panics when it is hashed while it is armed.
#[derive(Clone)]
struct Unhashable(Arc<AtomicBool>);

impl PartialEq for Unhashable {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Unhashable {}

impl Hash for Unhashable {
    fn hash<H: Hasher>(&self, _: &mut H) {
        assert!(!self.0.load(Ordering::SeqCst), "as expected");
    }
}

/// The scope would wait forever for a task that was counted and never came in.
#[test]
fn a_submission_that_unwinds_leaves_the_scope() {
    soon(|| {
        let pool = Pool::<Unhashable>::builder().workers(1).build().unwrap();
        let key = Unhashable(Arc::default());
        let live = Live::default();
        let ran = AtomicUsize::new(0);
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            pool.scope(|scope| {
                let counted = &ran;
                let work = move || _ = counted.fetch_add(1, Ordering::SeqCst);
                scope.execute(key.clone(), work).unwrap();
                key.0.store(true, Ordering::SeqCst);
                let capture = live.one();
                let refused = scope.execute(key.clone(), move || drop(capture));
                unreachable!("the key has panicked: {}", refused.is_ok());
            })
        }));
        assert!(unwound.is_err());
        assert_eq!((ran.into_inner(), live.count()), (1, 0));
    });
}

/// The drop of one clone changes nothing, on any thread and inside of a task; that of the last one
/// stops the pool.
#[test]
fn a_pool_ends_with_its_last_clone() {
    soon(|| {
        let first = pool(2);
        let ran = Arc::new(AtomicUsize::new(0));
        let clones: Vec<_> = (0..4).map(|_| first.clone()).collect();
        let threads: Vec<_> = clones
            .into_iter()
            .map(|clone| {
                let ran = ran.clone();
                thread::spawn(move || {
                    let inside = clone.clone();
                    let counted = ran.clone();
                    clone.execute(A, move || {
                        counted.fetch_add(1, Ordering::SeqCst);
                        drop(inside);
                    })
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
        first.wait_idle().unwrap();
        assert_eq!(ran.load(Ordering::SeqCst), 4);
        assert!(!first.is_closed());
        let last = first.clone();
        drop(first);
        last.keys().pause(&A);
        let waits = last.submit(A, || ()).unwrap();
        last.close();
        assert!(last.clone().is_closed());
        drop(last);
        assert!(waits.wait().unwrap().is_cancelled());
    });
}

/// The last clone may be dropped by a task of its own pool.
#[test]
fn the_last_clone_may_be_dropped_inside() {
    soon(|| {
        let first = pool(2);
        let inside = first.clone();
        let (gate, dropped) = (Gate::new(), Gate::new());
        let (wait, done) = (gate.clone(), dropped.clone());
        let last = first
            .submit(A, move || {
                wait.pass();
                drop(inside);
                done.open();
            })
            .unwrap();
        drop(first);
        gate.open();
        dropped.pass();
        last.join().unwrap();
    });
}

#[test]
fn clones_of_a_pool_of_messages_are_one_pool() {
    soon(|| {
        let log = Log::new();
        let calls = log.clone();
        let handler = move |_: &u32, message: u32| calls.push(message);
        let first = Pool::<u32>::builder().workers(1).build_handler(handler).unwrap();
        let second = first.clone();
        first.send(A, 1).unwrap();
        second.send(A, 2).unwrap();
        drop(first);
        second.send(A, 3).unwrap();
        second.shutdown().unwrap();
        assert_eq!(log.take(), [1, 2, 3]);
    });
}
