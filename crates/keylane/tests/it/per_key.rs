//! A key never has more unfinished tasks than its bound, so a hot key cannot fill the pool.
//! Submitters that wait for their key's bound delay no others, and are served first come, first
//! served; and a cancelled wait neither loses a permit nor takes one.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use crate::common::{
    AnyHasher, Gate, LONG, Log, Rng, Wakes, block_on, eventually, hold, lock, poll, soon,
    with_every_hasher, with_turns,
};
use keylane::{BuildError, Claims, Outcome, Pool, SubmitErrorKind, Turn};

with_every_hasher!(
    a_hot_key_cannot_fill_the_pool,
    a_held_submitter_holds_nobody_else_up,
    threads_and_futures_come_in_as_they_came,
    nobody_passes_those_who_wait_at_a_key,
    a_rollup_waits_for_all_of_its_keys_and_holds_no_others_up,
    crossing_rollups_all_come_in,
    every_end_of_a_task_gives_its_place_back,
    no_key_ever_has_more_than_it_may,
    a_wait_that_is_given_up_leaves_no_trace,
    closing_and_stopping_wake_the_held,
    a_task_that_submits_is_never_held,
    random_programs_do_what_the_model_does,
);

fn per_key<S: AnyHasher>(workers: usize, capacity: usize, most: usize) -> Arc<Pool<u32, S>> {
    let builder = Pool::<u32>::builder().workers(workers).capacity(capacity);
    Arc::new(builder.capacity_per_key(most).hasher(S::default()).build().unwrap())
}

fn await_held<S: AnyHasher>(pool: &Pool<u32, S>, submitters: usize) {
    eventually(|| pool.inspect().snapshot(0).submitters_held == submitters);
}

/// How many places an idle key has.
fn room_of<S: AnyHasher>(pool: &Pool<u32, S>, key: u32) -> usize {
    let gate = Gate::new();
    let mut taken = 0;
    loop {
        let gate = gate.clone();
        match pool.task(key).try_execute(move || gate.pass()) {
            Ok(()) => taken += 1,
            Err(error) => {
                assert_eq!(error.kind(), SubmitErrorKind::KeyFull);
                break;
            }
        }
    }
    gate.open();
    eventually(|| pool.inspect().snapshot(0).unfinished == 0);
    taken
}

fn a_hot_key_cannot_fill_the_pool<S: AnyHasher>() {
    let pool = per_key::<S>(2, 8, 3);
    let held = hold(&pool, 1);
    pool.execute(1, || {}).unwrap();
    pool.execute(Claims::shared(1), || {}).unwrap();
    let error = pool.task(1).try_execute(|| {}).unwrap_err();
    assert_eq!(error.kind(), SubmitErrorKind::KeyFull);
    let error = pool.task(1).timeout(Duration::from_millis(1)).execute(|| {}).unwrap_err();
    assert_eq!(error.kind(), SubmitErrorKind::TimedOut);
    assert_eq!(pool.task([2, 1]).try_execute(|| {}).unwrap_err().kind(), SubmitErrorKind::KeyFull);
    // The rest of the pool is free for other keys.
    for key in 2..7 {
        pool.task(key).try_execute(|| {}).unwrap();
    }
    held.let_go();
    eventually(|| pool.inspect().snapshot(0).unfinished == 0);
    assert_eq!(room_of(&pool, 1), 3);
    assert_eq!(room_of(&pool, 2), 3, "what was refused has taken nothing at its other key");
}

fn a_held_submitter_holds_nobody_else_up<S: AnyHasher>() {
    let pool = per_key::<S>(2, 2, 1);
    let held = hold(&pool, 1);
    let log = Log::new();
    thread::scope(|scope| {
        let late = log.clone();
        let own = &pool;
        scope.spawn(move || own.execute(1, move || late.push(1)).unwrap());
        await_held(&pool, 1);
        // It has no permit of the gate, since only one is left; and it is in no other wait queue.
        assert_eq!(pool.inspect().snapshot(0).submitters_waiting, 0);
        for key in 2..100 {
            let seen = log.clone();
            pool.submit(key, move || seen.push(key)).unwrap().wait().unwrap();
            block_on(pool.task(key).execute_async(|| {})).unwrap();
        }
        assert!(log.take().into_iter().eq(2..100), "all the others were served meanwhile");
        held.let_go();
    });
    pool.shutdown().unwrap();
    assert_eq!(log.take(), [1]);
}

fn threads_and_futures_come_in_as_they_came<S: AnyHasher>() {
    for most in [1, 2, 5] {
        let pool = per_key::<S>(2, 100, most);
        for _ in 0..20 {
            let log = Log::new();
            let held = hold(&pool, 7);
            for _ in 1..most {
                pool.execute(7, || {}).unwrap();
            }
            thread::scope(|scope| {
                for n in 0..9 {
                    let (pool, log) = (&pool, log.clone());
                    let work = move || log.push(n);
                    scope.spawn(move || match n % 5 {
                        0 => pool.execute(7, work).unwrap(),
                        1 => block_on(pool.task(7).execute_async(work)).unwrap(),
                        2 => pool.task(7).timeout(LONG).execute(work).unwrap(),
                        3 => _ = pool.execute_many([(7, work)]).unwrap(),
                        _ => _ = pool.submit([7, 8], work).unwrap(),
                    });
                    await_held(pool, n as usize + 1);
                }
                held.let_go();
            });
            eventually(|| pool.inspect().snapshot(0).unfinished == 0);
            assert!(log.take().into_iter().eq(0..9), "the order of arrival is that of the key");
        }
    }
}

fn nobody_passes_those_who_wait_at_a_key<S: AnyHasher>() {
    let pool = per_key::<S>(1, 10, 1);
    let held = hold(&pool, 1);
    let wakes = Wakes::new();
    let mut waiter = Box::pin(pool.task(1).submit_async(|| "waited"));
    assert!(poll(waiter.as_mut(), &wakes).is_pending());
    held.let_go();
    wakes.wait();
    // The place is the waiter's from the moment at which it was freed.
    for _ in 0..100 {
        assert_eq!(pool.task(1).try_execute(|| {}).unwrap_err().kind(), SubmitErrorKind::KeyFull);
        pool.task(2).try_execute(|| {}).ok();
    }
    assert_eq!(block_on(waiter).unwrap().wait().unwrap().ok(), Some("waited"));
}

fn a_rollup_waits_for_all_of_its_keys_and_holds_no_others_up<S: AnyHasher>() {
    let pool = per_key::<S>(3, 100, 1);
    let (one, two) = (hold(&pool, 1), hold(&pool, 2));
    let log = Log::new();
    let seen = log.clone();
    let wakes = Wakes::new();
    let mut rollup = Box::pin(pool.task([1, 2, 3, 1]).execute_async(move || seen.push("rollup")));
    assert!(poll(rollup.as_mut(), &wakes).is_pending());
    // A later submitter for one of its keys waits behind it, even where there is capacity.
    let wakes_3 = Wakes::new();
    let seen = log.clone();
    let mut behind = Box::pin(pool.task(3).execute_async(move || seen.push("behind")));
    assert!(poll(behind.as_mut(), &wakes_3).is_pending());
    one.let_go();
    wakes.wait();
    assert!(poll(rollup.as_mut(), &wakes).is_pending(), "it has no place at 2 yet");
    assert!(pool.submit(4, || {}).unwrap().wait().unwrap().is_completed());
    two.let_go();
    block_on(rollup).unwrap();
    block_on(behind).unwrap();
    eventually(|| pool.inspect().snapshot(0).unfinished == 0);
    assert_eq!(log.take(), ["rollup", "behind"]);
    for key in 1..5 {
        assert_eq!(room_of(&pool, key), 1);
    }
}

/// Were a rollup to keep one key while it comes later than another for the next, they would wait
/// for each other forever.
fn crossing_rollups_all_come_in<S: AnyHasher>() {
    let pool = per_key::<S>(2, 4, 1);
    let ran = Arc::new(AtomicUsize::new(0));
    thread::scope(|scope| {
        for submitter in 0..4_u64 {
            let (pool, ran) = (&pool, &ran);
            scope.spawn(move || {
                let mut rng = Rng(submitter);
                for n in 0..500 {
                    let mut keys: Vec<u32> = (0..6).collect();
                    (0..3)
                        .for_each(|_| _ = keys.swap_remove(rng.below(keys.len() as u64) as usize));
                    let ran = ran.clone();
                    let work = move || _ = ran.fetch_add(1, Ordering::SeqCst);
                    match n % 3 {
                        0 => pool.execute(keys, work).unwrap(),
                        1 => block_on(pool.task(keys).execute_async(work)).unwrap(),
                        _ => pool.task(keys).timeout(LONG).execute(work).unwrap(),
                    }
                }
            });
        }
    });
    pool.shutdown().unwrap();
    assert_eq!(ran.load(Ordering::SeqCst), 2_000);
    assert_eq!(pool.inspect().snapshot(0).submitters_held, 0);
}

fn every_end_of_a_task_gives_its_place_back<S: AnyHasher>() {
    let pool = per_key::<S>(2, 50, 2);
    for _ in 0..20 {
        // Done, failed, panicked, cancelled; alone, shared, of several keys.
        for keys in [Claims::exclusive(1), Claims::shared(1), Claims::exclusive(1).and_shared(2)] {
            assert!(pool.submit(keys.clone(), || {}).unwrap().wait().unwrap().is_completed());
            let failed =
                pool.task(keys.clone()).fallible().submit(|| Err::<(), _>("on purpose")).unwrap();
            assert!(matches!(failed.wait().unwrap(), Outcome::Failed("on purpose")));
            let panicked = pool.submit(keys.clone(), || panic!("on purpose")).unwrap();
            assert!(matches!(panicked.wait().unwrap(), Outcome::Panicked(_)));
            pool.execute(keys.clone(), || panic!("on purpose")).unwrap();
            let held = hold(&pool, 1);
            let cancelled = pool.submit(keys.clone(), || {}).unwrap();
            assert!(cancelled.cancel());
            // It keeps its place in the line, and with it the key's.
            assert_eq!(
                pool.task(1).try_execute(|| {}).unwrap_err().kind(),
                SubmitErrorKind::KeyFull
            );
            held.let_go();
        }
        // Neither of these counts in any key.
        pool.execute(Claims::none(), || {}).unwrap();
        pool.execute(Claims::barrier(), || {}).unwrap();
    }
    eventually(|| pool.inspect().snapshot(0).unfinished == 0);
    assert_eq!((room_of(&pool, 1), room_of(&pool, 2)), (2, 2));
}

/// Each task counts itself late, after it was accepted, and off early, before it ends.
fn no_key_ever_has_more_than_it_may<S: AnyHasher>() {
    const MOST: isize = 3;
    let pool = per_key::<S>(2, 20, MOST as usize);
    let counts: Arc<[(AtomicIsize, AtomicIsize); 4]> = Arc::default();
    let last = Arc::new(Mutex::new(HashMap::<(u64, u32), u32>::new()));
    thread::scope(|scope| {
        for producer in 0..4_u64 {
            let (pool, counts, last) = (&pool, &counts, &last);
            scope.spawn(move || {
                let mut rng = Rng(producer);
                for n in 0..2_000 {
                    let (key, other) = (rng.below(4) as u32, rng.below(4) as u32);
                    let (ends, order) = (counts.clone(), last.clone());
                    let work = move || {
                        let before = lock(&order).insert((producer, key), n);
                        assert!(before.is_none_or(|before| before < n), "out of order");
                        ends[key as usize].0.fetch_sub(1, Ordering::SeqCst);
                    };
                    let keys = match rng.below(4) {
                        0 if other != key => Claims::exclusive(key).and_exclusive(other),
                        _ => Claims::exclusive(key),
                    };
                    match n % 4 {
                        0 => pool.execute(keys, work).unwrap(),
                        1 => pool.task(keys).timeout(LONG).execute(work).unwrap(),
                        2 => block_on(pool.task(keys).execute_async(work)).unwrap(),
                        _ => _ = pool.execute_many([(keys, work)]).unwrap(),
                    }
                    let now = counts[key as usize].0.fetch_add(1, Ordering::SeqCst) + 1;
                    counts[key as usize].1.fetch_max(now, Ordering::SeqCst);
                    // The visible counts do not exceed it either.
                    if n % 100 == 0 {
                        for lane in pool.inspect().snapshot(4).hottest {
                            assert!(lane.len <= MOST as usize, "{lane:?}");
                        }
                    }
                }
            });
        }
    });
    eventually(|| pool.inspect().snapshot(0).unfinished == 0);
    assert_eq!(pool.inspect().snapshot(0).panicked, 0);
    for (key, (_, most)) in counts.iter().enumerate() {
        assert!(most.load(Ordering::SeqCst) <= MOST, "{most:?}");
        assert_eq!(room_of(&pool, key as u32), MOST as usize);
    }
}

fn a_wait_that_is_given_up_leaves_no_trace<S: AnyHasher>() {
    let pool = per_key::<S>(2, 3, 2);
    let (accepted, ran) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    thread::scope(|scope| {
        for submitter in 0..4_u64 {
            let (pool, accepted, ran) = (&pool, &accepted, &ran);
            scope.spawn(move || {
                let mut rng = Rng(submitter);
                for _ in 0..800 {
                    let ran = ran.clone();
                    let count = move || _ = ran.fetch_add(1, Ordering::SeqCst);
                    let keys = match rng.below(3) {
                        0 => vec![1, 2],
                        key => vec![key as u32],
                    };
                    let done = if rng.below(2) == 0 {
                        let patience = Duration::from_micros(rng.below(60));
                        pool.task(keys).timeout(patience).execute(count).is_ok()
                    } else {
                        // Polled a few times, then dropped, perhaps with a permit.
                        let mut future = Box::pin(pool.task(keys).execute_async(count));
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
    let snapshot = pool.inspect().snapshot(0);
    assert_eq!((snapshot.submitters_waiting, snapshot.submitters_held), (0, 0));
    assert_eq!(ran.load(Ordering::SeqCst), accepted.load(Ordering::SeqCst));
    assert_eq!((room_of(&pool, 1), room_of(&pool, 2)), (2, 2));
}

fn closing_and_stopping_wake_the_held<S: AnyHasher>() {
    for stop in [false, true] {
        let pool = per_key::<S>(1, 10, 1);
        let held = hold(&pool, 1);
        thread::scope(|scope| {
            let mut refused = Vec::new();
            for n in 0..4 {
                let pool = &pool;
                let work = move || n;
                refused.push(scope.spawn(move || {
                    match n {
                        0 => pool.submit(1, work).map_err(|e| (e.kind(), e.into_inner().1)),
                        1 => pool
                            .task(1)
                            .timeout(LONG)
                            .submit(work)
                            .map_err(|e| (e.kind(), e.into_inner().1)),
                        2 => pool.submit([1, 2], work).map_err(|e| (e.kind(), e.into_inner().1)),
                        _ => block_on(pool.task(1).submit_async(work))
                            .map_err(|e| (e.kind(), e.into_inner().1)),
                    }
                }));
            }
            await_held(&pool, 4);
            if stop {
                assert!(pool.shutdown_now().is_empty());
            } else {
                pool.close();
            }
            for (n, waiter) in refused.into_iter().enumerate() {
                let Err((kind, work)) = waiter.join().unwrap() else { panic!("it was closed") };
                assert_eq!((kind, work()), (SubmitErrorKind::Closed, n));
            }
        });
        assert_eq!(pool.task(3).try_execute(|| {}).unwrap_err().kind(), SubmitErrorKind::Closed);
        held.let_go();
        pool.shutdown().unwrap();
    }
}

fn a_task_that_submits_is_never_held<S: AnyHasher>() {
    let pool = per_key::<S>(1, 100, 1);
    let own = Arc::downgrade(&pool);
    let log = Log::new();
    let inner = log.clone();
    let (gate, submitted) = (Gate::new(), Gate::new());
    let (wait, signal) = (gate.clone(), submitted.clone());
    pool.execute(1, move || {
        let pool = own.upgrade().expect("it is used below");
        for n in 0..40 {
            let log = inner.clone();
            let work = move || log.push(n);
            match n % 4 {
                0 => pool.execute(1, work).unwrap(),
                1 => pool.task([1, 2]).try_execute(work).unwrap(),
                2 => _ = pool.execute_many([(1, work)]).unwrap(),
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
    let lane = &pool.inspect().snapshot(1).hottest[0];
    assert_eq!((lane.key, lane.len), (1, 41), "the overflow is counted");
    assert_eq!(pool.task(1).try_execute(|| {}).unwrap_err().kind(), SubmitErrorKind::KeyFull);
    gate.open();
    // Submitters from outside wait until the bound holds again.
    pool.execute(1, || {}).unwrap();
    eventually(|| pool.inspect().snapshot(0).unfinished == 0);
    assert!(log.take().into_iter().eq(0..40));
    assert_eq!((room_of(&pool, 1), room_of(&pool, 2)), (1, 1));
}

/// Tasks that run until released, futures that wait, ends, cancelled waits: after each step exactly
/// those submissions are admitted that a list predicts.
fn random_programs_do_what_the_model_does<S: AnyHasher>() {
    for seed in 0..150 {
        program::<S>(seed);
    }
}

/// Submission of the model: its claims, and whether it is admitted.
struct Submitted<'a> {
    keys: Vec<u32>,
    future: Option<Pin<Box<dyn Future<Output = bool> + 'a>>>,
    gate: Gate,
}

fn program<S: AnyHasher>(seed: u64) {
    const KEYS: u32 = 4;
    let mut rng = Rng(seed);
    let most = 1 + rng.below(3) as usize;
    // As many workers as can ever run, so that every task runs at once or waits for its keys.
    let pool = per_key::<S>(4, 1_000, most);
    // In the order of arrival; gone are those that have ended or were dropped.
    let mut all: Vec<Submitted<'_>> = Vec::new();
    for _ in 0..60 {
        match rng.below(5) {
            0..=2 => {
                let mut keys: Vec<u32> = (0..KEYS).filter(|_| rng.below(3) == 0).collect();
                if keys.is_empty() {
                    keys.push(rng.below(u64::from(KEYS)) as u32);
                }
                let gate = Gate::new();
                let (wait, own, claims) = (gate.clone(), &pool, keys.clone());
                let future: Pin<Box<dyn Future<Output = bool>>> = Box::pin(async move {
                    own.task(claims).execute_async(move || wait.pass()).await.is_ok()
                });
                all.push(Submitted { keys, future: Some(future), gate });
            }
            3 => {
                // The oldest that is in ends, if it heads all of its keys.
                if let Some(at) = all.iter().position(|s| s.future.is_none()) {
                    let before = pool.inspect().snapshot(0).unfinished;
                    let ended = all.remove(at);
                    ended.gate.open();
                    eventually(|| pool.inspect().snapshot(0).unfinished == before - 1);
                }
            }
            _ => {
                // One that waits gives up, polled or not.
                let waiting: Vec<_> =
                    (0..all.len()).filter(|&at| all[at].future.is_some()).collect();
                if !waiting.is_empty() {
                    let at = waiting[rng.below(waiting.len() as u64) as usize];
                    drop(all.remove(at));
                }
            }
        }
        settle(&mut all);
        check(&all, most, seed);
    }
    // All that are left come in and end.
    while !all.is_empty() {
        let at = all.iter().position(|s| s.future.is_none()).expect("the first is always in");
        let before = pool.inspect().snapshot(0).unfinished;
        all.remove(at).gate.open();
        eventually(|| pool.inspect().snapshot(0).unfinished == before - 1);
        settle(&mut all);
        check(&all, most, seed);
    }
    for key in 0..KEYS {
        assert_eq!(room_of(&pool, key), most, "seed {seed}");
    }
}

/// Polls all that wait until none of them gets any further.
fn settle(all: &mut [Submitted<'_>]) {
    let mut moved = true;
    while std::mem::take(&mut moved) {
        for submitted in all.iter_mut() {
            if let Some(future) = &mut submitted.future
                && poll(future.as_mut(), &Wakes::new()).is_ready()
            {
                submitted.future = None;
                moved = true;
            }
        }
    }
}

/// Admitted is a submission with capacity at each of its keys, where no earlier one waits; and an
/// admitted one stays so.
fn check(all: &[Submitted<'_>], most: usize, seed: u64) {
    let mut taken = HashMap::<u32, usize>::new();
    for submitted in all.iter().filter(|s| s.future.is_none()) {
        submitted.keys.iter().for_each(|key| *taken.entry(*key).or_default() += 1);
    }
    assert!(taken.values().all(|&taken| taken <= most), "seed {seed}: too many: {taken:?}");
    for (at, waiting) in all.iter().enumerate().filter(|(_, s)| s.future.is_some()) {
        let stopped = waiting.keys.iter().any(|key| {
            let full = taken.get(key).is_some_and(|&taken| taken >= most);
            let ahead = all[..at].iter().any(|s| s.future.is_some() && s.keys.contains(key));
            full || ahead
        });
        assert!(stopped, "seed {seed}: {:?} waits for nothing; taken: {taken:?}", waiting.keys);
    }
}

#[test]
fn messages_are_bounded_by_key_and_a_kept_turn_keeps_its_place() {
    soon(|| {
        let (turns, kept) = mpsc::channel::<(u32, Turn)>();
        let turns = Mutex::new(turns);
        let pool = Pool::<u32>::builder()
            .workers(1)
            .capacity_per_key(1)
            .build_handler(with_turns(move |_, n: u32, turn| {
                lock(&turns).send((n, turn)).unwrap();
            }))
            .unwrap();
        for n in 0..50 {
            pool.send(1, n).unwrap();
            let (at, turn) = kept.recv().unwrap();
            assert_eq!(at, n);
            // The handler has returned, and the worker is free; the turn lasts.
            let error = pool.try_send(1, 99).unwrap_err();
            assert_eq!((error.kind(), error.into_inner()), (SubmitErrorKind::KeyFull, (1, 99)));
            pool.send(2, 100).unwrap();
            let (at, other) = kept.recv().unwrap();
            assert_eq!(at, 100);
            drop(other);
            drop(turn);
        }
        pool.shutdown().unwrap();
    });
}

#[test]
fn the_bound_holds_whatever_becomes_of_the_size_of_the_pool() {
    soon(|| {
        let pool = per_key::<keylane::KeyBuildHasher>(1, 4, 2);
        let held = hold(&pool, 1);
        pool.execute(1, || {}).unwrap();
        for capacity in [100_000, 3, 2, 100_000] {
            pool.settings().set_capacity(capacity).unwrap();
            pool.settings().set_workers(1 + capacity % 2).unwrap();
            assert_eq!(
                pool.task(1).try_execute(|| {}).unwrap_err().kind(),
                SubmitErrorKind::KeyFull
            );
        }
        for key in 2..1_000 {
            pool.task(key).try_execute(|| {}).unwrap();
        }
        held.let_go();
        eventually(|| pool.inspect().snapshot(0).unfinished == 0);
        assert_eq!(room_of(&pool, 1), 2);
    });
}

#[test]
fn a_batch_goes_in_as_its_keys_have_room() {
    soon(|| {
        let pool = per_key::<keylane::KeyBuildHasher>(2, 100, 2);
        let log = Log::new();
        let batch = (0..1_000_u32).map(|n| {
            let log = log.clone();
            let keys = if n % 50 == 0 { vec![n % 3, 9] } else { vec![n % 3] };
            (keys, move || log.push(n))
        });
        assert_eq!(pool.execute_many(batch).unwrap(), 1_000);
        let handles = pool.submit_many((0..100).map(|n| (1, move || n))).unwrap();
        for (n, handle) in handles.into_iter().enumerate() {
            assert_eq!(handle.wait().unwrap().ok(), Some(n));
        }
        pool.shutdown().unwrap();
        let log = log.take();
        for key in 0..3 {
            let of_key = log.iter().copied().filter(|n| n % 3 == key);
            assert!(of_key.eq((0..1_000).filter(|n| n % 3 == key)));
        }
    });
}

#[test]
fn a_bound_that_admits_nobody_is_refused() {
    let error = Pool::<u32>::builder().capacity_per_key(0).build().unwrap_err();
    assert!(matches!(error, BuildError::PerKey));
}
