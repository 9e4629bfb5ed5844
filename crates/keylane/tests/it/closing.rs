//! Closing refuses new work at once, draining finishes the accepted tasks, stopping returns exactly
//! those that did not begin; each from any thread, by several at a time, and from inside a task.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use crate::common::{
    AnyHasher, Gate, LONG, Live, Log, Rng, block_on, hold, lock, pool, pool_of, soon,
    with_every_hasher,
};
use keylane::{Claims, Outcome, Pool, SubmitErrorKind, WaitError};

with_every_hasher!(
    nothing_is_accepted_after_close_and_everything_comes_back,
    a_drain_finishes_what_was_accepted,
    stopping_returns_exactly_what_did_not_begin_in_an_order_to_run_it,
    stopping_a_working_pool_splits_the_tasks_into_run_and_unrun,
    several_threads_close_drain_stop_and_drop_at_once,
    all_ways_to_close_work_from_inside,
);

fn nothing_is_accepted_after_close_and_everything_comes_back<S: AnyHasher>() {
    for way in 0..3 {
        let pool = pool_of::<S>(2);
        match way {
            0 => pool.close(),
            1 => pool.shutdown().unwrap(),
            _ => assert!(pool.shutdown_now().is_empty()),
        }
        assert!(pool.is_closed());
        let ran = Arc::new(AtomicUsize::new(0));
        let work = || {
            let ran = ran.clone();
            move || _ = ran.fetch_add(1, Ordering::SeqCst)
        };
        for claims in [
            Claims::none(),
            Claims::exclusive(1),
            Claims::shared(1),
            Claims::exclusive(1).and_shared(2),
            Claims::barrier(),
        ] {
            let back = [
                pool.submit(claims.clone(), work()).map(drop).unwrap_err(),
                pool.try_submit(claims.clone(), work()).map(drop).unwrap_err(),
                pool.task(claims.clone()).timeout(LONG).submit(work()).map(drop).unwrap_err(),
                block_on(pool.task(claims.clone()).submit_async(work())).map(drop).unwrap_err(),
                pool.execute(claims.clone(), work()).unwrap_err(),
                pool.task(claims.clone()).try_execute(work()).unwrap_err(),
                pool.task(claims.clone()).timeout(LONG).execute(work()).unwrap_err(),
                block_on(pool.task(claims.clone()).execute_async(work())).unwrap_err(),
            ];
            for error in back {
                assert_eq!(error.kind(), SubmitErrorKind::Closed);
                let (same, work) = error.into_inner();
                assert_eq!(format!("{same:?}"), format!("{claims:?}"));
                work();
            }
            let batch = |n| (0..n).map(|_| (claims.clone(), work())).collect::<Vec<_>>();
            let (accepted, back) = pool.execute_many(batch(300)).unwrap_err().into_inner();
            assert_eq!((accepted, back.len()), (0, 300));
            back.into_iter().for_each(|(_, work)| work());
            let (accepted, back) = pool.submit_many(batch(300)).unwrap_err().into_inner();
            assert_eq!((accepted.len(), back.len()), (0, 300));
            back.into_iter().for_each(|(_, work)| work());
        }
        assert_eq!(ran.load(Ordering::SeqCst), 5 * 608);
        pool.shutdown_timeout(LONG).unwrap();
        assert_eq!(pool.inspect().snapshot(0).unfinished, 0);
    }
}

fn a_drain_finishes_what_was_accepted<S: AnyHasher>() {
    let pool = pool_of::<S>(2);
    let held = hold(&pool, 0);
    let ran = Arc::new(AtomicUsize::new(0));
    for n in 0..2_000 {
        let ran = ran.clone();
        let work = move || _ = ran.fetch_add(1, Ordering::SeqCst);
        match n % 40 {
            0 => pool.execute(Claims::barrier(), work).unwrap(),
            1..9 => pool.execute([n % 3, n % 5], work).unwrap(),
            9..12 => pool.execute(Claims::none(), work).unwrap(),
            _ => pool.execute(n % 7, work).unwrap(),
        }
    }
    assert_eq!(pool.shutdown_timeout(Duration::ZERO), Err(WaitError::TimedOut));
    assert_eq!(pool.shutdown_timeout(Duration::from_millis(1)), Err(WaitError::TimedOut));
    assert_eq!(pool.execute(1, || {}).unwrap_err().kind(), SubmitErrorKind::Closed);
    held.let_go();
    pool.shutdown().unwrap();
    assert_eq!(ran.load(Ordering::SeqCst), 2_000);
    pool.shutdown_timeout(Duration::ZERO).unwrap();
}

/// Conflicts among tasks that name their keys.
#[derive(Clone, Debug)]
struct Keys {
    keys: Vec<(u32, bool)>,
    barrier: bool,
}

impl Keys {
    fn random(rng: &mut Rng) -> Self {
        let keys = (0..rng.below(4)).map(|_| (rng.below(5) as u32, rng.below(3) == 0)).collect();
        Keys { keys, barrier: rng.below(25) == 0 }
    }

    fn claims(&self) -> Claims<u32> {
        if self.barrier {
            return Claims::barrier();
        }
        self.keys.iter().fold(Claims::none(), |claims, &(key, shared)| match shared {
            true => claims.and_shared(key),
            false => claims.and_exclusive(key),
        })
    }

    fn conflicts(&self, other: &Self) -> bool {
        self.barrier
            || other.barrier
            || self.keys.iter().any(|(key, shared)| {
                other.keys.iter().any(|(also, with)| key == also && !(*shared && *with))
            })
    }
}

fn stopping_returns_exactly_what_did_not_begin_in_an_order_to_run_it<S: AnyHasher>() {
    for seed in 0..60 {
        let mut rng = Rng(seed);
        let pool = pool_of::<S>(1 + (seed % 3) as usize);
        // Nothing else begins meanwhile.
        let held = hold(&pool, Claims::barrier());
        let log = Log::new();
        let all: Vec<Keys> = (0..120).map(|_| Keys::random(&mut rng)).collect();
        let mut handles = Vec::new();
        for (n, keys) in all.iter().enumerate() {
            let log = log.clone();
            if n % 2 == 0 {
                pool.execute(keys.claims(), move || log.push(n)).unwrap();
            } else {
                handles.push((n, pool.submit(keys.claims(), move || log.push(n)).unwrap()));
            }
        }
        let unrun = pool.shutdown_now();
        assert_eq!(unrun.len(), 120);
        assert!(pool.shutdown_now().is_empty());
        assert!(handles.iter().all(|(_, handle)| !handle.is_finished()));
        held.let_go();
        pool.shutdown().unwrap();
        // Half of them on this thread; a handle learns the outcome, wherever the body runs.
        let (mut here, mut elsewhere) = (Vec::new(), Vec::new());
        let next = pool_of::<S>(2);
        if seed % 2 == 0 {
            unrun.into_iter().for_each(|task| task.run());
            here = log.take();
        } else {
            // With the claims that come with them, on another pool.
            for task in unrun {
                next.execute(task.claims().clone(), move || task.run()).unwrap();
            }
            next.shutdown().unwrap();
            elsewhere = log.take();
        }
        let order = if here.is_empty() { elsewhere } else { here };
        assert_eq!(order.len(), 120);
        for (place, &later) in order.iter().enumerate() {
            for &earlier in &order[place + 1..] {
                let in_order = later < earlier || !all[later].conflicts(&all[earlier]);
                assert!(in_order, "{earlier} {:?} {later} {:?}", all[earlier], all[later]);
            }
        }
        for (_, handle) in handles {
            assert!(handle.wait().unwrap().is_completed());
        }
    }
}

fn stopping_a_working_pool_splits_the_tasks_into_run_and_unrun<S: AnyHasher>() {
    for seed in 0..40 {
        let pool = pool_of::<S>(2);
        let (ran, accepted, refused) = (Log::new(), Log::new(), Log::new());
        let unrun = Mutex::new(Vec::new());
        let some = Gate::new();
        thread::scope(|scope| {
            for producer in 0..2_u64 {
                let (pool, ran, accepted, refused, some) =
                    (&pool, &ran, &accepted, &refused, &some);
                scope.spawn(move || {
                    let mut rng = Rng(seed * 7 + producer);
                    for n in 0..2_000 {
                        let (id, ran) = (producer * 10_000 + n, ran.clone());
                        let claims = Keys::random(&mut rng).claims();
                        match pool.execute(claims, move || ran.push(id)) {
                            Ok(()) => accepted.push(id),
                            Err(error) => {
                                refused.push(id);
                                drop(error.into_inner());
                                break;
                            }
                        }
                        if n == 50 * seed {
                            some.open();
                        }
                    }
                    some.open();
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    some.pass();
                    lock(&unrun).extend(pool.shutdown_now());
                });
            }
        });
        pool.shutdown().unwrap();
        let ran_in_pool: BTreeSet<u64> = ran.take().into_iter().collect();
        let accepted = accepted.take();
        let unrun = unrun.into_inner().unwrap();
        assert_eq!(ran_in_pool.len() + unrun.len(), accepted.len());
        unrun.into_iter().for_each(|task| task.run());
        let ran_after: BTreeSet<u64> = ran.take().into_iter().collect();
        assert!(ran_in_pool.is_disjoint(&ran_after));
        let all: BTreeSet<u64> = ran_in_pool.union(&ran_after).copied().collect();
        assert_eq!(all, accepted.into_iter().collect());
    }
}

fn several_threads_close_drain_stop_and_drop_at_once<S: AnyHasher>() {
    for _ in 0..60 {
        let pool = Arc::new(pool_of::<S>(2));
        let live = Live::new();
        for n in 0..200 {
            let one = live.one();
            pool.execute([n % 5, n % 3], move || drop(one)).unwrap();
        }
        let threads: Vec<_> = (0..6)
            .map(|way| {
                let pool = pool.clone();
                thread::spawn(move || match way % 3 {
                    0 => pool.close(),
                    1 => pool.shutdown_timeout(LONG).unwrap(),
                    _ => drop(pool.shutdown_now()),
                })
            })
            .collect();
        drop(pool);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(live.count(), 0);
    }
}

fn all_ways_to_close_work_from_inside<S: AnyHasher>() {
    for way in 0..4 {
        let pool = Arc::new(pool_of::<S>(1));
        let own = Mutex::new(Some(pool.clone()));
        let (begun, gate) = (Gate::new(), Gate::new());
        let (runs, wait) = (begun.clone(), gate.clone());
        let (say, said) = mpsc::channel();
        pool.execute(1, move || {
            runs.open();
            wait.pass();
            let pool = lock(&own).take().expect("it runs once");
            let unrun = match way {
                0 => {
                    pool.close();
                    None
                }
                1 => {
                    assert_eq!(pool.shutdown(), Err(WaitError::FromInside));
                    None
                }
                2 => Some(pool.shutdown_now().len()),
                _ => {
                    // The last one goes here, on its own worker.
                    drop(pool);
                    say.send(None).unwrap();
                    return;
                }
            };
            assert_eq!(pool.execute(1, || {}).unwrap_err().kind(), SubmitErrorKind::Closed);
            say.send(unrun).unwrap();
        })
        .unwrap();
        let behind: Vec<_> =
            [1, 2].into_iter().map(|key| pool.submit([key, 3], || {}).unwrap()).collect();
        begun.pass();
        if way == 3 {
            drop(pool);
            gate.open();
            assert_eq!(said.recv_timeout(LONG), Ok(None));
            for handle in behind {
                assert!(handle.wait().unwrap().is_cancelled());
            }
            continue;
        }
        gate.open();
        let unrun = said.recv_timeout(LONG).unwrap();
        assert_eq!(unrun, (way == 2).then_some(2));
        pool.shutdown_timeout(LONG).unwrap();
        for handle in behind {
            assert_eq!(handle.wait().unwrap().is_cancelled(), way == 2);
        }
    }
}

#[test]
fn what_was_not_run_is_cancelled_when_it_is_dropped_and_done_when_it_is_run() {
    soon(|| {
        let pool = pool(1);
        let held = hold(&pool, 1);
        let dropped = pool.submit(1, || 1).unwrap();
        let run = pool.submit([1, 2], || 2).unwrap();
        let panics = pool.submit(Claims::barrier(), || std::panic::panic_any(3)).unwrap();
        let detached = pool.execute(Claims::none(), || std::panic::panic_any(4));
        assert!(detached.is_ok());
        let mut unrun = pool.shutdown_now().into_iter();
        // No key conflicts with nothing but the barrier, behind which it is.
        drop(unrun.next());
        assert!(dropped.wait().unwrap().is_cancelled());
        unrun.next().unwrap().run();
        assert_eq!(run.wait().unwrap().ok(), Some(2));
        unrun.next().unwrap().run();
        assert!(matches!(panics.wait().unwrap(), Outcome::<()>::Panicked(_)));
        let last = unrun.next().unwrap();
        assert!(thread::spawn(move || last.run()).join().is_err(), "nobody else can be told");
        assert!(unrun.next().is_none());
        held.let_go();
    });
}

#[test]
fn dropping_a_pool_waits_for_the_bodies_that_run() {
    soon(|| {
        let pool = pool(2);
        let live = Live::new();
        let (gate, begun) = (Gate::new(), Gate::new());
        for key in 0..2 {
            let (one, wait, runs) = (live.one(), gate.clone(), begun.clone());
            pool.execute(key, move || {
                runs.open();
                wait.pass();
                drop(one);
            })
            .unwrap();
        }
        begun.pass();
        let opener = thread::spawn(move || gate.open());
        drop(pool);
        assert_eq!(live.count(), 0);
        opener.join().unwrap();
    });
}

#[test]
fn a_stopped_handler_pool_returns_the_messages() {
    soon(|| {
        let (gate, begun) = (Gate::new(), Gate::new());
        let (wait, runs) = (gate.clone(), begun.clone());
        let pool = Pool::<String>::builder()
            .workers(1)
            .build_handler(move |_: &String, _: u32| {
                runs.open();
                wait.pass();
            })
            .unwrap();
        pool.send("first".into(), 0).unwrap();
        begun.pass();
        for n in 0..500 {
            pool.send(format!("key {}", n % 5), n).unwrap();
        }
        let unrun = pool.shutdown_now();
        assert_eq!(unrun.len(), 500);
        for key in 0..5 {
            let name = format!("key {key}");
            let of_key = unrun.iter().filter(|(of, _)| *of == name).map(|(_, n)| *n);
            assert!(of_key.eq((0..500).filter(|n| n % 5 == key)));
        }
        let error = pool.send("late".into(), 1).unwrap_err();
        assert_eq!(
            (error.kind(), error.into_inner()),
            (SubmitErrorKind::Closed, ("late".into(), 1))
        );
        let error = pool.send_many((0..3).map(|n| ("late".to_owned(), n))).unwrap_err();
        assert_eq!(error.accepted(), &0);
        assert_eq!(error.into_inner().1.len(), 3);
        gate.open();
        pool.shutdown().unwrap();
    });
}

/// A batch that meets the end of its pool: each accepted task runs or is returned by the stop, the
/// rest is returned in the error, and no task is in both.
#[test]
fn a_batch_that_is_cut_off_loses_nothing() {
    soon(|| {
        for seed in 0..60 {
            let pool = Pool::<u32>::builder().workers(2).capacity(40).build().unwrap();
            let ran = Log::new();
            thread::scope(|scope| {
                let batch = (0..3_000_u32).map(|n| {
                    let ran = ran.clone();
                    let mut rng = Rng(u64::from(n) + seed);
                    (Keys::random(&mut rng).claims(), move || ran.push(n))
                });
                let other = &pool;
                let stopper = scope.spawn(move || {
                    crate::common::eventually(|| {
                        other.inspect().snapshot(0).accepted > 40 * (seed % 8)
                    });
                    if seed % 2 == 0 {
                        other.shutdown_now()
                    } else {
                        other.close();
                        Vec::new()
                    }
                });
                let back = match pool.execute_many(batch) {
                    Ok(accepted) => {
                        assert_eq!(accepted, 3_000);
                        Vec::new()
                    }
                    Err(error) => {
                        let (accepted, back) = error.into_inner();
                        assert_eq!(accepted + back.len(), 3_000);
                        back
                    }
                };
                let unrun = stopper.join().unwrap();
                pool.shutdown().unwrap();
                unrun.into_iter().for_each(|task| task.run());
                back.into_iter().for_each(|(_, work)| work());
            });
            let mut ran = ran.take();
            ran.sort_unstable();
            assert!(ran.into_iter().eq(0..3_000));
        }
    });
}
