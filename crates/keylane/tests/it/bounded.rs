//! Accepted and unfinished tasks never exceed the capacity; waiting submitters are served first
//! come, first served; and a cancelled wait neither loses a permit nor takes one.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use crate::common::{Gate, LONG, Log, Rng, Wakes, block_on, eventually, hold, poll, soon};
use keylane::{Claims, Pool, SubmitErrorKind};

fn bounded(workers: usize, capacity: usize) -> Arc<Pool<u32>> {
    Arc::new(Pool::builder().workers(workers).capacity(capacity).build().unwrap())
}

/// Waits until this number of submitters wait.
fn await_line(pool: &Pool<u32>, submitters: usize) {
    eventually(|| pool.inspect().snapshot(0).submitters_waiting == submitters);
}

/// Fills an idle pool, and says how many it took.
fn room_of(pool: &Pool<u32>) -> usize {
    let gate = Gate::new();
    let mut taken = 0;
    loop {
        let gate = gate.clone();
        match pool.task(Claims::none()).try_execute(move || gate.pass()) {
            Ok(()) => taken += 1,
            Err(error) => {
                assert_eq!(error.kind(), SubmitErrorKind::Full);
                break;
            }
        }
    }
    gate.open();
    eventually(|| pool.inspect().snapshot(0).unfinished == 0);
    taken
}

#[test]
fn accepted_and_unfinished_tasks_never_exceed_the_capacity() {
    soon(|| {
        const CAPACITY: isize = 7;
        let pool = bounded(2, CAPACITY as usize);
        let (unfinished, most) = (Arc::new(AtomicIsize::new(0)), Arc::new(AtomicIsize::new(0)));
        thread::scope(|scope| {
            for producer in 0..3_u64 {
                let (pool, unfinished, most) = (&pool, &unfinished, &most);
                scope.spawn(move || {
                    let mut rng = Rng(producer);
                    for n in 0..3_000 {
                        let ends = unfinished.clone();
                        let work = move || _ = ends.fetch_sub(1, Ordering::SeqCst);
                        let keys = match rng.below(4) {
                            0 => Claims::none(),
                            1 => Claims::exclusive(1).and_exclusive(2),
                            _ => Claims::exclusive(rng.below(5) as u32),
                        };
                        match n % 4 {
                            0 => pool.execute(keys, work).unwrap(),
                            1 => pool.task(keys).timeout(LONG).execute(work).unwrap(),
                            2 => block_on(pool.task(keys).execute_async(work)).unwrap(),
                            _ => _ = pool.execute_many([(keys, work)]).unwrap(),
                        }
                        // Counted late and taken off early: never more than there are.
                        let now = unfinished.fetch_add(1, Ordering::SeqCst) + 1;
                        most.fetch_max(now, Ordering::SeqCst);
                    }
                });
            }
        });
        pool.shutdown().unwrap();
        assert!(most.load(Ordering::SeqCst) <= CAPACITY, "{most:?}");
        assert_eq!(unfinished.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn every_kind_of_task_takes_one_slot() {
    soon(|| {
        let pool = bounded(1, 4);
        let held = hold(&pool, Claims::barrier());
        pool.task([1, 2, 3, 4, 5]).try_execute(|| {}).unwrap();
        pool.task(Claims::shared(1)).try_execute(|| {}).unwrap();
        pool.task(Claims::barrier()).try_execute(|| {}).unwrap();
        assert_eq!(pool.task(1).try_execute(|| {}).unwrap_err().kind(), SubmitErrorKind::Full);
        assert_eq!(pool.inspect().snapshot(0).unfinished, 4);
        held.let_go();
        eventually(|| pool.inspect().snapshot(0).unfinished == 0);
        assert_eq!(room_of(&pool), 4);
    });
}

#[test]
fn what_is_refused_comes_back_unharmed() {
    soon(|| {
        let pool = bounded(1, 1);
        let held = hold(&pool, 1);
        let log = Log::new();
        let own = log.clone();
        let error = pool.try_submit([3, 4], move || own.push("ran")).unwrap_err();
        assert_eq!(error.kind(), SubmitErrorKind::Full);
        let (claims, work) = error.into_inner();
        let error = pool.task(claims).timeout(Duration::ZERO).submit(work).unwrap_err();
        assert_eq!(error.kind(), SubmitErrorKind::TimedOut);
        let (claims, work) = error.into_inner();
        let error = pool.task(claims).timeout(Duration::from_millis(1)).execute(work).unwrap_err();
        assert_eq!(error.kind(), SubmitErrorKind::TimedOut);
        let (claims, work) = error.into_inner();
        held.let_go();
        pool.execute(claims, work).unwrap();
        pool.shutdown().unwrap();
        assert_eq!(log.take(), ["ran"]);
    });
}

#[test]
fn threads_and_futures_are_admitted_in_the_order_in_which_they_came() {
    soon(|| {
        let pool = bounded(1, 1);
        let log = Log::new();
        for _ in 0..10 {
            let held = hold(&pool, 0);
            thread::scope(|scope| {
                for n in 0..9 {
                    let (pool, log) = (&pool, &log);
                    let work = {
                        let log = log.clone();
                        move || log.push(n)
                    };
                    // Each on a key of its own, so that nothing but admission orders them.
                    let key = 10 + n;
                    scope.spawn(move || match n % 4 {
                        0 => pool.execute(key, work).unwrap(),
                        1 => block_on(pool.task(key).execute_async(work)).unwrap(),
                        2 => pool.task(key).timeout(LONG).execute(work).unwrap(),
                        _ => _ = pool.execute_many([(key, work)]).unwrap(),
                    });
                    await_line(pool, n as usize + 1);
                }
                held.let_go();
            });
            eventually(|| pool.inspect().snapshot(0).unfinished == 0);
            assert!(log.take().into_iter().eq(0..9));
        }
    });
}

/// The fair queue of the fifth article let a newcomer take the slot in the gap between the release
/// and the waking of the one that it was released for. Here it is the waiter's from the first
/// moment.
#[test]
fn a_freed_slot_belongs_to_the_waiter_before_it_knows() {
    soon(|| {
        let pool = bounded(1, 1);
        let held = hold(&pool, 1);
        let wakes = Wakes::new();
        let mut waiter = Box::pin(pool.task(2).submit_async(|| "waited"));
        assert!(poll(waiter.as_mut(), &wakes).is_pending());
        held.let_go();
        wakes.wait();
        // It has been woken, and was not polled yet.
        for _ in 0..100 {
            assert_eq!(pool.task(3).try_execute(|| {}).unwrap_err().kind(), SubmitErrorKind::Full);
        }
        let Poll::Ready(Ok(handle)) = poll(waiter.as_mut(), &wakes) else { panic!("it was told") };
        assert_eq!(handle.wait().unwrap().ok(), Some("waited"));
    });
}

#[test]
fn a_newcomer_does_not_pass_a_waiter() {
    soon(|| {
        let pool = bounded(2, 2);
        let (one, other) = (hold(&pool, 1), hold(&pool, 2));
        let wakes = Wakes::new();
        let (mut first, mut second) = (
            Box::pin(pool.task(3).execute_async(|| {})),
            Box::pin(pool.task(4).execute_async(|| {})),
        );
        assert!(poll(first.as_mut(), &wakes).is_pending());
        assert!(poll(second.as_mut(), &wakes).is_pending());
        one.let_go();
        wakes.wait();
        // A permit is free for the first; the second waits, so no other submitter may come in.
        assert!(poll(second.as_mut(), &wakes).is_pending());
        assert_eq!(pool.task(5).try_execute(|| {}).unwrap_err().kind(), SubmitErrorKind::Full);
        assert!(poll(first.as_mut(), &wakes).is_ready());
        other.let_go();
        block_on(second).unwrap();
        eventually(|| pool.inspect().snapshot(0).unfinished == 0);
        assert_eq!(room_of(&pool), 2);
    });
}

#[test]
fn a_future_wakes_the_waker_that_it_was_polled_with_last() {
    soon(|| {
        let pool = bounded(1, 1);
        let held = hold(&pool, 1);
        let (old, new) = (Wakes::new(), Wakes::new());
        let mut waiter = Box::pin(pool.task(2).execute_async(|| {}));
        assert!(poll(waiter.as_mut(), &old).is_pending());
        assert!(poll(waiter.as_mut(), &new).is_pending());
        held.let_go();
        new.wait();
        assert_eq!(old.count(), 0);
        assert!(poll(waiter.as_mut(), &new).is_ready());
    });
}

/// In the fair queue of the fifth article a timeout passed a signal on that had never been
/// received, and the queue grew beyond its bound. Here waits end at every possible moment while
/// slots come and go, and in the end there are exactly as many slots as before.
#[test]
fn waits_that_are_given_up_neither_lose_a_slot_nor_take_one() {
    soon(|| {
        const CAPACITY: usize = 3;
        let pool = bounded(2, CAPACITY);
        let (accepted, ran) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
        thread::scope(|scope| {
            for submitter in 0..4_u64 {
                let (pool, accepted, ran) = (&pool, &accepted, &ran);
                scope.spawn(move || {
                    let mut rng = Rng(submitter);
                    for _ in 0..800 {
                        let ran = ran.clone();
                        let count = move || _ = ran.fetch_add(1, Ordering::SeqCst);
                        let key = rng.below(3) as u32;
                        let done = if rng.below(2) == 0 {
                            let patience = Duration::from_micros(rng.below(60));
                            pool.task(key).timeout(patience).execute(count).is_ok()
                        } else {
                            // Polled a few times, then dropped, perhaps with a permit.
                            let mut future = pin!(pool.task(key).execute_async(count));
                            (0..rng.below(6)).any(|_| {
                                thread::yield_now();
                                poll(future.as_mut(), &Wakes::new()).is_ready()
                            })
                        };
                        accepted.fetch_add(usize::from(done), Ordering::SeqCst);
                    }
                });
            }
        });
        eventually(|| pool.inspect().snapshot(0).unfinished == 0);
        assert_eq!(pool.inspect().snapshot(0).submitters_waiting, 0);
        assert_eq!(ran.load(Ordering::SeqCst), accepted.load(Ordering::SeqCst));
        assert_eq!(room_of(&pool), CAPACITY);
    });
}

#[test]
fn who_gives_up_at_the_head_of_the_line_lets_the_next_one_in() {
    soon(|| {
        let pool = bounded(1, 1);
        let held = hold(&pool, 1);
        let (first_wakes, second_wakes) = (Wakes::new(), Wakes::new());
        let mut first = Box::pin(pool.task(2).execute_async(|| {}));
        let mut second = Box::pin(pool.task(3).execute_async(|| {}));
        assert!(poll(first.as_mut(), &first_wakes).is_pending());
        assert!(poll(second.as_mut(), &second_wakes).is_pending());
        held.let_go();
        first_wakes.wait();
        // It has the slot, and is dropped.
        drop(first);
        second_wakes.wait();
        assert!(poll(second.as_mut(), &second_wakes).is_ready());
        eventually(|| pool.inspect().snapshot(0).unfinished == 0);
        assert_eq!(room_of(&pool), 1);
    });
}

/// A future that had been granted a permit and was dropped released the permit, and woke the next
/// waiter; but a thread that waited for the pool to be empty was not woken, and waited forever.
#[test]
fn a_drain_learns_that_a_granted_future_was_dropped() {
    soon(|| {
        let pool = bounded(1, 1);
        let held = hold(&pool, 1);
        let wakes = Wakes::new();
        let mut waiter = Box::pin(pool.task(2).execute_async(|| {}));
        assert!(poll(waiter.as_mut(), &wakes).is_pending());
        held.let_go();
        wakes.wait();
        thread::scope(|scope| {
            let (drained, learnt) = mpsc::channel();
            let other = &pool;
            scope.spawn(move || drained.send(other.shutdown_timeout(LONG)).unwrap());
            eventually(|| pool.is_closed());
            // Let the drain fall asleep, if it is quick enough; the outcome is the same if not.
            for _ in 0..1_000 {
                thread::yield_now();
            }
            drop(waiter);
            assert_eq!(learnt.recv_timeout(LONG / 2), Ok(Ok(())));
        });
    });
}

#[test]
fn closing_refuses_those_who_wait_and_returns_their_tasks() {
    soon(|| {
        let pool = bounded(1, 1);
        let held = hold(&pool, 1);
        let ran = Arc::new(AtomicUsize::new(0));
        thread::scope(|scope| {
            let mut refused = Vec::new();
            for n in 0..3 {
                let (pool, ran) = (&pool, ran.clone());
                let work = move || _ = ran.fetch_add(1, Ordering::SeqCst);
                refused.push(scope.spawn(move || {
                    match n {
                        0 => pool.execute(2, work).map_err(|e| (e.kind(), e.into_inner().1)),
                        1 => pool
                            .task(2)
                            .timeout(LONG)
                            .execute(work)
                            .map_err(|e| (e.kind(), e.into_inner().1)),
                        _ => block_on(pool.task(2).execute_async(work))
                            .map_err(|e| (e.kind(), e.into_inner().1)),
                    }
                }));
            }
            await_line(&pool, 3);
            pool.close();
            for waiter in refused {
                let Err((kind, work)) = waiter.join().unwrap() else { panic!("it was closed") };
                assert_eq!(kind, SubmitErrorKind::Closed);
                work();
            }
        });
        assert_eq!(ran.load(Ordering::SeqCst), 3);
        held.let_go();
        pool.shutdown().unwrap();
        assert_eq!(ran.load(Ordering::SeqCst), 3);
    });
}

#[test]
fn a_batch_larger_than_the_capacity_goes_in_as_room_comes() {
    soon(|| {
        for capacity in [1, 3, 255, 257] {
            let pool = bounded(2, capacity);
            let log = Log::new();
            let batch = (0..2_000).map(|n| {
                let log = log.clone();
                let keys = if n % 50 == 0 { vec![n % 3, 9] } else { vec![n % 3] };
                (keys, move || log.push(n))
            });
            assert_eq!(pool.execute_many(batch).unwrap(), 2_000);
            pool.shutdown().unwrap();
            let log = log.take();
            for key in 0..3 {
                let of_key = log.iter().copied().filter(|n| n % 3 == key);
                assert!(of_key.eq((0..2_000).filter(|n| n % 3 == key)));
            }
        }
    });
}

#[test]
fn a_task_that_submits_is_never_made_to_wait_and_the_overflow_shows() {
    soon(|| {
        let pool = bounded(1, 2);
        let own = Arc::downgrade(&pool);
        let (gate, submitted) = (Gate::new(), Gate::new());
        let (wait, signal) = (gate.clone(), submitted.clone());
        let log = Log::new();
        let inner = log.clone();
        pool.execute(1, move || {
            let pool = own.upgrade().expect("it is used below");
            for n in 0..50 {
                let log = inner.clone();
                let work = move || log.push(n);
                // The only worker is here, so waiting for capacity would last forever.
                match n % 5 {
                    0 => pool.execute(1, work).unwrap(),
                    1 => pool.task([1, 2]).try_execute(work).unwrap(),
                    2 => pool.task(1).timeout(Duration::ZERO).execute(work).unwrap(),
                    3 => _ = pool.execute_many([(1, work)]).unwrap(),
                    _ => {
                        let mut future: Pin<Box<dyn Future<Output = _>>> =
                            Box::pin(pool.task(1).execute_async(work));
                        assert!(poll(future.as_mut(), &Wakes::new()).is_ready());
                    }
                }
            }
            signal.open();
            wait.pass();
        })
        .unwrap();
        submitted.pass();
        let snapshot = pool.inspect().snapshot(0);
        assert_eq!((snapshot.capacity, snapshot.unfinished), (2, 51));
        // Submitters from outside wait until the bound holds again.
        assert_eq!(pool.task(9).try_execute(|| {}).unwrap_err().kind(), SubmitErrorKind::Full);
        gate.open();
        pool.execute(9, || {}).unwrap();
        eventually(|| pool.inspect().snapshot(0).unfinished == 0);
        assert!(log.take().into_iter().eq(0..50));
        assert_eq!(room_of(&pool), 2);
        pool.shutdown().unwrap();
    });
}

/// Two pools that feed each other: only a pool's own tasks are exempt from its bound.
#[test]
fn a_task_of_another_pool_waits_like_anybody() {
    soon(|| {
        let (front, back) = (bounded(1, 4), bounded(1, 1));
        let held = hold(&back, 1);
        let next = back.clone();
        let passed_on = front
            .submit(1, move || {
                assert_eq!(
                    next.task(2).try_execute(|| {}).unwrap_err().kind(),
                    SubmitErrorKind::Full
                );
                next.execute(2, || {}).unwrap();
            })
            .unwrap();
        await_line(&back, 1);
        assert!(!passed_on.is_finished());
        held.let_go();
        assert!(passed_on.wait().unwrap().is_completed());
        back.shutdown().unwrap();
    });
}

#[test]
fn messages_are_bounded_too() {
    soon(|| {
        let (gate, wait) = {
            let gate = Gate::new();
            (gate.clone(), gate)
        };
        let pool = Pool::<u32>::builder()
            .workers(1)
            .capacity(2)
            .build_handler(move |_: &u32, _: String| wait.pass())
            .unwrap();
        pool.send(1, "a".into()).unwrap();
        pool.try_send(1, "b".into()).unwrap();
        let error = pool.try_send(2, "c".into()).unwrap_err();
        assert_eq!(error.kind(), SubmitErrorKind::Full);
        assert_eq!(error.into_inner(), (2, "c".to_owned()));
        let error = pool.send_timeout(2, "c".into(), Duration::from_millis(1)).unwrap_err();
        assert_eq!(error.kind(), SubmitErrorKind::TimedOut);
        assert_eq!(error.into_inner(), (2, "c".to_owned()));
        gate.open();
        pool.send(2, "c".into()).unwrap();
        assert_eq!(pool.send_many((0..100).map(|n| (n, "d".into()))).unwrap(), 100);
        pool.shutdown().unwrap();
    });
}
