//! What unfinished tasks weigh together never exceeds the bound on bytes, large tasks do not
//! starve, and every end of a task gives its bytes back.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use crate::common::{
    Gate, LONG, Log, Rng, Wakes, block_on, eventually, lock, poll, soon, with_turns,
};
use keylane::{BuildError, Claims, MAX_CAPACITY_BYTES, Pool, SubmitErrorKind, Turn, handler};

fn weighed(workers: usize, bytes: usize) -> Arc<Pool<u32>> {
    Arc::new(Pool::builder().workers(workers).capacity_bytes(bytes).build().unwrap())
}

fn costing(bytes: usize) -> Claims<u32> {
    Claims::none().with_cost(bytes)
}

fn await_line<S: crate::common::AnyHasher>(pool: &Pool<u32, S>, submitters: usize) {
    eventually(|| pool.inspect().snapshot(0).submitters_waiting == submitters);
}

/// All bytes can be had at once, and no more.
fn assert_whole(pool: &Pool<u32>, bytes: usize) {
    eventually(|| pool.inspect().snapshot(0).bytes == 0);
    let gate = Gate::new();
    let wait = gate.clone();
    let whole = pool.try_submit(costing(bytes), move || wait.pass()).unwrap();
    assert_eq!(pool.try_submit(costing(1), || {}).unwrap_err().kind(), SubmitErrorKind::Full);
    gate.open();
    assert!(whole.wait().unwrap().is_completed());
}

#[test]
fn bytes_never_exceed_the_bound() {
    soon(|| {
        const BOUND: usize = 1_000;
        let pool = weighed(2, BOUND);
        let (held, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        thread::scope(|scope| {
            for producer in 0..4_u64 {
                let (pool, held, most) = (&pool, &held, &most);
                scope.spawn(move || {
                    let mut rng = Rng(producer);
                    for n in 0..2_000 {
                        let bytes = rng.below(BOUND as u64 / if n % 50 == 0 { 1 } else { 10 });
                        let bytes = bytes as usize;
                        let (off, count, peak) = (held.clone(), held.clone(), most.clone());
                        let work = move || {
                            // Counted late, and taken off early: never more than there are.
                            let now = count.fetch_add(bytes, Ordering::SeqCst) + bytes;
                            peak.fetch_max(now, Ordering::SeqCst);
                            thread::yield_now();
                            off.fetch_sub(bytes, Ordering::SeqCst);
                        };
                        let keys = match rng.below(3) {
                            0 => Claims::none(),
                            1 => Claims::exclusive(1).with_cost(7).and_shared(2),
                            _ => Claims::exclusive(rng.below(5) as u32),
                        };
                        let keys = keys.with_cost(bytes);
                        match n % 5 {
                            0 => pool.execute(keys, work).unwrap(),
                            1 => pool.task(keys).timeout(LONG).execute(work).unwrap(),
                            2 => block_on(pool.task(keys).execute_async(work)).unwrap(),
                            3 => _ = pool.execute_many([(keys, work)]).unwrap(),
                            _ => drop(pool.submit(keys, work).unwrap()),
                        }
                        assert!(pool.inspect().snapshot(0).bytes <= BOUND);
                    }
                });
            }
        });
        eventually(|| pool.inspect().snapshot(0).unfinished == 0);
        assert!(most.load(Ordering::SeqCst) <= BOUND, "{most:?}");
        assert_whole(&pool, BOUND);
    });
}

#[test]
fn a_large_task_does_not_starve() {
    soon(|| {
        let pool = weighed(2, 10);
        let gates = [Gate::new(), Gate::new()];
        for gate in &gates {
            let gate = gate.clone();
            pool.execute(costing(5), move || gate.pass()).unwrap();
        }
        let log = Log::new();
        thread::scope(|scope| {
            let (own, seen) = (&pool, log.clone());
            scope.spawn(move || own.execute(costing(10), move || seen.push("large")).unwrap());
            await_line(&pool, 1);
            gates[0].open();
            eventually(|| pool.inspect().snapshot(0).bytes == 5);
            // A small one, which has come later, would fit.
            let error = pool.task(costing(1)).try_execute(|| {}).unwrap_err();
            assert_eq!(error.kind(), SubmitErrorKind::Full);
            assert_eq!(error.into_inner().0.cost(), 1, "the claims come back with their cost");
            let error = pool.task(costing(1)).timeout(Duration::ZERO).execute(|| {}).unwrap_err();
            assert_eq!(error.kind(), SubmitErrorKind::TimedOut);
            // What weighs nothing waits for nothing.
            pool.task(Claims::none()).try_execute(|| {}).unwrap();
            let seen = log.clone();
            let own = &pool;
            scope.spawn(move || own.execute(costing(1), move || seen.push("small")).unwrap());
            await_line(&pool, 2);
            gates[1].open();
        });
        eventually(|| pool.inspect().snapshot(0).unfinished == 0);
        assert_eq!(log.take(), ["large", "small"]);
        assert_whole(&pool, 10);
    });
}

#[test]
fn what_is_larger_than_the_bound_is_refused_with_a_clear_error() {
    soon(|| {
        let pool = weighed(1, 10);
        for bytes in [11, usize::MAX] {
            let refused = pool.execute(costing(bytes), || {}).unwrap_err();
            assert_eq!(refused.kind(), SubmitErrorKind::TooLarge);
        }
        let refused = block_on(pool.task(costing(11)).submit_async(|| {})).unwrap_err();
        assert_eq!(refused.kind(), SubmitErrorKind::TooLarge);
        // A batch stops there, and the rest comes back in order.
        let batch = [3, 11, 4].map(|bytes| (costing(bytes), || {}));
        let refused = pool.execute_many(batch).unwrap_err();
        assert_eq!((refused.kind(), *refused.accepted()), (SubmitErrorKind::TooLarge, 1));
        let rest = refused.into_inner().1;
        assert!(rest.iter().map(|(claims, _)| claims.cost()).eq([11, 4]));
        let own = Arc::downgrade(&pool);
        let inside = pool.submit(1, move || {
            let pool = own.upgrade().expect("it is used below");
            pool.execute(costing(11), || {}).unwrap_err().kind()
        });
        assert_eq!(inside.unwrap().wait().unwrap().ok(), Some(SubmitErrorKind::TooLarge));
        assert_whole(&pool, 10);
        // Without a bound a cost means nothing.
        let pool = Pool::<u32>::builder().workers(1).build().unwrap();
        pool.execute(costing(usize::MAX), || {}).unwrap();
        let batch = [costing(9), Claims::exclusive(1).with_cost(9)].map(|claims| (claims, || {}));
        assert_eq!(pool.execute_many(batch).unwrap(), 2);
        assert_eq!(
            (pool.inspect().snapshot(0).bytes, pool.inspect().snapshot(0).capacity_bytes),
            (0, None)
        );
        for bytes in [0, MAX_CAPACITY_BYTES + 1] {
            let error = Pool::<u32>::builder().capacity_bytes(bytes).build().unwrap_err();
            assert!(matches!(error, BuildError::Bytes(n) if n == bytes));
        }
    });
}

#[test]
fn every_end_of_a_task_gives_its_bytes_back() {
    soon(|| {
        let pool = weighed(2, 100);
        for keys in [Claims::none(), Claims::exclusive(1), Claims::shared(1).and_exclusive(2)] {
            let keys = keys.with_cost(60);
            let large = [0_u8; 100];
            assert!(
                pool.submit(keys.clone(), move || large.len())
                    .unwrap()
                    .wait()
                    .unwrap()
                    .is_completed()
            );
            pool.submit(keys.clone(), || panic!("on purpose")).unwrap().wait().unwrap();
            pool.execute(keys.clone(), || panic!("on purpose")).unwrap();
            pool.execute(keys.clone(), move || _ = large.len()).unwrap();
            let gate = Gate::new();
            let wait = gate.clone();
            pool.execute(Claims::barrier(), move || wait.pass()).unwrap();
            let cancelled = pool.submit(keys.clone(), || {}).unwrap();
            assert!(cancelled.cancel());
            gate.open();
            // A wait that is given up, before and after the bytes are granted.
            let wakes = Wakes::new();
            for polls in 0..4 {
                let mut future = Box::pin(pool.task(keys.clone()).execute_async(|| {}));
                (0..polls).any(|_| poll(future.as_mut(), &wakes).is_ready());
            }
            eventually(|| pool.inspect().snapshot(0).unfinished == 0);
            assert_whole(&pool, 100);
        }
        let gate = Gate::new();
        let wait = gate.clone();
        let (began, has_begun) = mpsc::channel();
        let first = move || {
            began.send(()).unwrap();
            wait.pass();
        };
        pool.execute(Claims::exclusive(1).with_cost(10), first).unwrap();
        pool.execute(Claims::exclusive(1).with_cost(20), || {}).unwrap();
        has_begun.recv().unwrap();
        thread::scope(|scope| {
            let own = &pool;
            let waiter = scope.spawn(move || own.execute(costing(90), || {}).unwrap_err());
            await_line(&pool, 1);
            let unrun = pool.shutdown_now();
            assert_eq!(waiter.join().unwrap().kind(), SubmitErrorKind::Closed);
            assert_eq!(unrun.len(), 1);
            assert_eq!(pool.inspect().snapshot(0).bytes, 30);
            unrun.into_iter().for_each(|task| task.run());
        });
        assert_eq!(pool.inspect().snapshot(0).bytes, 10);
        gate.open();
        pool.shutdown().unwrap();
        assert_eq!(pool.inspect().snapshot(0).bytes, 0);
    });
}

#[test]
fn a_task_that_submits_never_waits_for_bytes() {
    soon(|| {
        let pool = weighed(1, 10);
        let own = Arc::downgrade(&pool);
        let seen = pool.submit(Claims::exclusive(1).with_cost(10), move || {
            let pool = own.upgrade().expect("it is used below");
            pool.execute(costing(10), || {}).unwrap();
            block_on(pool.task(costing(10)).execute_async(|| {})).unwrap();
            pool.execute_many([(costing(10), || {})]).unwrap();
            pool.inspect().snapshot(0).bytes
        });
        assert_eq!(seen.unwrap().wait().unwrap().ok(), Some(40));
        eventually(|| pool.inspect().snapshot(0).unfinished == 0);
        assert_whole(&pool, 10);
    });
}

#[test]
fn messages_weigh_what_the_pool_is_told() {
    soon(|| {
        let (turns, kept) = mpsc::channel::<(Vec<u8>, Turn)>();
        let turns = Mutex::new(turns);
        let pool = Pool::<u32>::builder()
            .workers(1)
            .capacity_bytes(10)
            .build_handler(handler::weighed(
                Vec::len,
                with_turns(move |_, page: Vec<u8>, turn| {
                    assert_ne!(page.len(), 3, "on purpose");
                    lock(&turns).send((page, turn)).unwrap();
                }),
            ))
            .unwrap();
        for _ in 0..20 {
            pool.send(1, vec![0; 6]).unwrap();
            let (page, turn) = kept.recv().unwrap();
            assert_eq!(page.len(), 6);
            // The handler has returned, and the bytes are held until the turn ends.
            let error = pool.try_send(2, vec![0; 5]).unwrap_err();
            assert_eq!((error.kind(), error.into_inner().1.len()), (SubmitErrorKind::Full, 5));
            assert_eq!(
                pool.try_send(2, vec![0; 11]).unwrap_err().kind(),
                SubmitErrorKind::TooLarge
            );
            pool.try_send(2, vec![]).unwrap();
            let wakes = Wakes::new();
            let mut waiter = Box::pin(pool.send_async(2, vec![0; 5]));
            assert!(poll(waiter.as_mut(), &wakes).is_pending());
            drop(turn);
            block_on(waiter).unwrap();
            // Of one key: the second begins when the turn of the first has ended.
            (0..2).for_each(|_| drop(kept.recv().unwrap()));
            // A handler that panics gives them back, too.
            pool.send(1, vec![0; 3]).unwrap();
            eventually(|| pool.inspect().snapshot(0).bytes == 0);
        }
        let kept_back = pool.send(1, vec![0; 4]).map(|()| kept.recv().unwrap()).unwrap();
        assert_eq!(pool.send_many((0..2).map(|n| (1, vec![0; 1 + n]))).unwrap(), 2);
        assert_eq!(pool.inspect().snapshot(0).bytes, 7);
        assert!(pool.shutdown_now().iter().map(|(_, page)| page.len()).eq([1, 2]));
        assert_eq!(pool.inspect().snapshot(0).bytes, 4);
        drop(kept_back);
        assert_eq!(pool.inspect().snapshot(0).bytes, 0);
    });
}

/// Places at keys, bytes and slots at once, all scarce, from all sides.
#[test]
fn all_bounds_together_neither_deadlock_nor_leak() {
    soon(|| {
        let pool = Pool::<u32>::builder()
            .workers(2)
            .capacity(3)
            .capacity_per_key(2)
            .capacity_bytes(10)
            .build()
            .unwrap();
        let (pool, ran) = (Arc::new(pool), Arc::new(AtomicUsize::new(0)));
        let accepted = AtomicUsize::new(0);
        thread::scope(|scope| {
            for submitter in 0..4_u64 {
                let (pool, ran, accepted) = (&pool, &ran, &accepted);
                scope.spawn(move || {
                    let mut rng = Rng(submitter);
                    for _ in 0..1_500 {
                        let (count, own) = (ran.clone(), Arc::downgrade(pool));
                        let (again, more) = (rng.below(20) == 0, rng.below(11) as usize);
                        let work = move || {
                            count.fetch_add(1, Ordering::SeqCst);
                            if again && let Some(pool) = own.upgrade() {
                                let work = move || _ = count.fetch_add(1, Ordering::SeqCst);
                                pool.execute(Claims::exclusive(0).with_cost(more), work).unwrap();
                            }
                        };
                        let keys = (0..rng.below(3)).map(|_| rng.below(4) as u32);
                        let keys = keys.fold(Claims::none(), Claims::and_exclusive);
                        let keys = keys.with_cost(rng.below(11) as usize);
                        let done = match rng.below(5) {
                            0 => pool.execute(keys, work).is_ok(),
                            1 => pool.task(keys).try_execute(work).is_ok(),
                            2 => pool.execute_many([(keys, work)]).is_ok(),
                            3 => {
                                let patience = Duration::from_micros(rng.below(60));
                                pool.task(keys).timeout(patience).execute(work).is_ok()
                            }
                            _ => {
                                let mut future = Box::pin(pool.task(keys).execute_async(work));
                                (0..rng.below(6)).any(|_| {
                                    thread::yield_now();
                                    poll(future.as_mut(), &Wakes::new()).is_ready()
                                })
                            }
                        };
                        if done {
                            accepted.fetch_add(1 + usize::from(again), Ordering::SeqCst);
                        }
                    }
                });
            }
        });
        eventually(|| pool.inspect().snapshot(0).unfinished == 0);
        assert_eq!(ran.load(Ordering::SeqCst), accepted.load(Ordering::SeqCst));
        let snapshot = pool.inspect().snapshot(0);
        assert_eq!((snapshot.submitters_held, snapshot.submitters_waiting), (0, 0));
        assert_whole(&pool, 10);
    });
}
