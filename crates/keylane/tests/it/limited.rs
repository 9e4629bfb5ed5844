//! Tasks that limit a key run beside each other, but no more of them than that; they get the key in
//! their order; and for all others of the key each counts as one that has it alone.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, RwLock, mpsc};
use std::thread;

use crate::common::{AnyHasher, Log, Rng, eventually, hold, pool_of, with_every_hasher};
use keylane::observe::{KeyHolder, TaskState};
use keylane::{Claims, OnFailure, Pool};

with_every_hasher!(
    as_many_as_may_run_together,
    never_more_than_may_run_together,
    they_begin_in_order,
    an_end_lets_the_next_in_while_others_hold_on,
    the_least_of_those_that_are_there_counts,
    room_for_more_is_given_to_all_who_fit,
    they_do_not_overtake_one_that_waits_to_be_alone,
    readers_do_not_run_beside_them,
    rollups_limit_each_of_their_keys,
    a_barrier_waits_for_all_of_them,
    a_pause_calls_those_back_that_have_no_worker,
    what_waits_can_be_taken_and_run,
    a_stop_returns_them_with_their_claims,
    a_wait_inside_is_refused_only_if_it_would_never_end,
    explanations_count_those_that_must_end_first,
    a_mix_at_full_speed_keeps_every_limit,
);

/// Shows that the workers that are free have looked at all that came before.
fn look<S: AnyHasher>(pool: &Pool<u32, S>) {
    assert!(pool.submit(99, || {}).unwrap().wait().unwrap().is_completed());
}

fn as_many_as_may_run_together<S: AnyHasher>() {
    let pool = pool_of::<S>(4);
    let meet = Arc::new(Barrier::new(3));
    for _ in 0..30 {
        let meet = meet.clone();
        pool.execute(Claims::limited(1, 3), move || _ = meet.wait()).unwrap();
    }
    pool.shutdown().unwrap();
}

fn never_more_than_may_run_together<S: AnyHasher>() {
    let pool = pool_of::<S>(6);
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..2_000 {
                    let (now, most) = (now.clone(), most.clone());
                    let body = move || {
                        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        thread::yield_now();
                        now.fetch_sub(1, Ordering::SeqCst);
                    };
                    pool.execute(Claims::limited(1, 2), body).unwrap();
                }
            });
        }
    });
    pool.shutdown().unwrap();
    assert!(most.load(Ordering::SeqCst) <= 2);
}

fn they_begin_in_order<S: AnyHasher>() {
    for workers in [1, 3] {
        let pool = pool_of::<S>(workers);
        let log = Arc::new(Mutex::new(Vec::new()));
        let gate = hold(&pool, 1);
        for n in 0..500 {
            let log = log.clone();
            // More workers than one would note it in another order than that in which they begin.
            let most = if workers == 1 { 4 } else { 1 };
            pool.execute(Claims::limited(1, most), move || log.lock().unwrap().push(n)).unwrap();
        }
        gate.let_go();
        pool.shutdown().unwrap();
        assert!(log.lock().unwrap().iter().copied().eq(0..500));
    }
}

fn an_end_lets_the_next_in_while_others_hold_on<S: AnyHasher>() {
    let pool = pool_of::<S>(4);
    let stays = hold(&pool, Claims::limited(1, 2));
    for _ in 0..100 {
        let next = pool.submit(Claims::limited(1, 2), || {}).unwrap();
        assert!(next.wait().unwrap().is_completed());
    }
    let second = hold(&pool, Claims::limited(1, 2));
    let third = pool.submit(Claims::limited(1, 2), || {}).unwrap();
    look(&pool);
    assert!(!third.is_finished());
    second.let_go();
    assert!(third.wait().unwrap().is_completed());
    stays.let_go();
}

fn the_least_of_those_that_are_there_counts<S: AnyHasher>() {
    let pool = pool_of::<S>(6);
    let wide = [hold(&pool, Claims::limited(1, 3)), hold(&pool, Claims::limited(1, 3))];
    // It allows only one other beside it.
    let narrow = pool.submit(Claims::limited(1, 2), || {}).unwrap();
    let behind = pool.submit(Claims::limited(1, 3), || {}).unwrap();
    look(&pool);
    assert!(!narrow.is_finished() && !behind.is_finished());
    let [first, second] = wide;
    first.let_go();
    assert!(narrow.wait().unwrap().is_completed());
    assert!(behind.wait().unwrap().is_completed());
    second.let_go();

    let narrow = hold(&pool, Claims::limited(1, 2));
    let wide = hold(&pool, Claims::limited(1, 3));
    let third = pool.submit(Claims::limited(1, 3), || {}).unwrap();
    look(&pool);
    assert!(!third.is_finished(), "the first lets one beside it");
    narrow.let_go();
    assert!(third.wait().unwrap().is_completed());
    wide.let_go();
}

fn room_for_more_is_given_to_all_who_fit<S: AnyHasher>() {
    let pool = pool_of::<S>(6);
    let narrow = hold(&pool, Claims::limited(1, 1));
    let meet = Arc::new(Barrier::new(4));
    for _ in 0..4 {
        let meet = meet.clone();
        pool.execute(Claims::limited(1, 4), move || _ = meet.wait()).unwrap();
    }
    narrow.let_go();
    pool.shutdown().unwrap();

    // The same where another one stays.
    let pool = pool_of::<S>(6);
    let narrow = hold(&pool, Claims::limited(1, 2));
    let wide = hold(&pool, Claims::limited(1, 5));
    for _ in 0..4 {
        let meet = meet.clone();
        pool.execute(Claims::limited(1, 5), move || _ = meet.wait()).unwrap();
    }
    narrow.let_go();
    eventually(|| pool.inspect().snapshot(0).unfinished == 1);
    wide.let_go();
}

fn they_do_not_overtake_one_that_waits_to_be_alone<S: AnyHasher>() {
    let pool = pool_of::<S>(4);
    let first = hold(&pool, Claims::limited(1, 3));
    let log = Log::new();
    let task = |name| {
        let log = log.clone();
        move || log.push(name)
    };
    pool.execute(1, task("alone")).unwrap();
    pool.execute(Claims::limited(1, 3), task("late")).unwrap();
    look(&pool);
    assert!(log.take().is_empty());
    first.let_go();
    pool.shutdown().unwrap();
    assert_eq!(log.take(), ["alone", "late"]);
}

fn readers_do_not_run_beside_them<S: AnyHasher>() {
    let pool = pool_of::<S>(4);
    let limits = hold(&pool, Claims::limited(1, 3));
    let reader = pool.submit(Claims::shared(1), || {}).unwrap();
    look(&pool);
    assert!(!reader.is_finished());
    limits.let_go();
    assert!(reader.wait().unwrap().is_completed());

    let reader = hold(&pool, Claims::shared(1));
    let limits = pool.submit(Claims::limited(1, 3), || {}).unwrap();
    look(&pool);
    assert!(!limits.is_finished());
    reader.let_go();
    assert!(limits.wait().unwrap().is_completed());
}

fn rollups_limit_each_of_their_keys<S: AnyHasher>() {
    let pool = pool_of::<S>(4);
    let both = || Claims::limited(1, 2).and_limited(2, 1);
    let first = hold(&pool, both());
    // There is capacity at one key, but not at the other; and then there is none at either.
    let second = pool.submit(both(), || {}).unwrap();
    let third = pool.submit(Claims::limited(1, 2), || {}).unwrap();
    look(&pool);
    assert!(!second.is_finished() && !third.is_finished());
    first.let_go();
    assert!(second.wait().unwrap().is_completed() && third.wait().unwrap().is_completed());

    // Listed twice it counts once: as the least, or alone.
    let twice = hold(&pool, Claims::limited(1, 5).and_limited(1, 2));
    let beside = hold(&pool, Claims::limited(1, 5));
    let third = pool.submit(Claims::limited(1, 5), || {}).unwrap();
    let alone = pool.submit(Claims::limited(1, 5).and_shared(1), || {}).unwrap();
    look(&pool);
    assert!(!third.is_finished() && !alone.is_finished());
    twice.let_go();
    assert!(third.wait().unwrap().is_completed());
    look(&pool);
    assert!(!alone.is_finished());
    beside.let_go();
    assert!(alone.wait().unwrap().is_completed());
}

fn a_barrier_waits_for_all_of_them<S: AnyHasher>() {
    let pool = pool_of::<S>(4);
    let [first, second] = [(); 2].map(|()| hold(&pool, Claims::limited(1, 2)));
    let waits = pool.submit(Claims::limited(1, 2), || {}).unwrap();
    let ended = Arc::new(RwLock::new(false));
    let sees = ended.clone();
    let barrier = pool.submit(Claims::barrier(), move || *sees.read().unwrap()).unwrap();
    first.let_go();
    assert!(waits.wait().unwrap().is_completed());
    assert!(!barrier.is_finished());
    *ended.write().unwrap() = true;
    second.let_go();
    assert_eq!(barrier.wait().unwrap().ok(), Some(true));
}

fn a_pause_calls_those_back_that_have_no_worker<S: AnyHasher>() {
    let pool = pool_of::<S>(2);
    let other = hold(&pool, 2);
    let before = hold(&pool, 1);
    let log = Log::new();
    let (begun, has_begun) = mpsc::channel();
    let (open, gate) = mpsc::channel::<()>();
    let first = move || {
        begun.send(()).unwrap();
        let _ = gate.recv();
    };
    let first = pool.submit(Claims::limited(1, 2), first).unwrap();
    let tasks: Vec<_> = ["a", "b", "c"]
        .into_iter()
        .map(|name| {
            let log = log.clone();
            pool.submit(Claims::limited(1, 2), move || log.push(name)).unwrap()
        })
        .collect();
    before.let_go();
    // Two of them have the key now, but only one has a worker.
    has_begun.recv().unwrap();
    assert!(pool.keys().pause(&1));
    assert_eq!(pool.keys().paused(&1).unwrap().running, 1);
    drop(open);
    assert!(first.wait().unwrap().is_completed());
    look(&pool);
    assert!(log.take().is_empty());
    assert!(pool.keys().resume(&1));
    for task in tasks {
        assert!(task.wait().unwrap().is_completed());
    }
    assert_eq!(log.take(), ["a", "b", "c"]);
    other.let_go();
    pool.shutdown().unwrap();
    assert!(pool.inspect().snapshot(9).hottest.is_empty());
}

fn what_waits_can_be_taken_and_run<S: AnyHasher>() {
    let pool = pool_of::<S>(3);
    let first = hold(&pool, Claims::limited(1, 1));
    let tasks: Vec<_> =
        (0..5).map(|n| pool.submit(Claims::limited(1, 1), move || n).unwrap()).collect();
    look(&pool);
    let taken = pool.keys().take(&1);
    assert_eq!(taken.len(), 5);
    taken.into_iter().for_each(|task| task.run());
    for (n, task) in tasks.into_iter().enumerate() {
        assert_eq!(task.wait().unwrap().ok(), Some(n));
    }
    let next = pool.submit(1, || {}).unwrap();
    first.let_go();
    assert!(next.wait().unwrap().is_completed());
    pool.shutdown().unwrap();
    assert_eq!(pool.inspect().snapshot(0).unfinished, 0);
}

fn a_stop_returns_them_with_their_claims<S: AnyHasher>() {
    let pool = pool_of::<S>(2);
    let first = hold(&pool, Claims::limited(1, 2));
    let second = hold(&pool, Claims::limited(1, 2));
    for _ in 0..3 {
        pool.execute(Claims::limited(1, 2), || {}).unwrap();
    }
    let unrun = pool.shutdown_now();
    first.let_go();
    second.let_go();
    assert_eq!(unrun.len(), 3);
    // In another pool they limit each other again.
    let pool = pool_of::<S>(4);
    let [first, second] = [(); 2].map(|()| hold(&pool, unrun[0].claims().clone()));
    let third = pool.submit(unrun[1].claims().clone(), || {}).unwrap();
    look(&pool);
    assert!(!third.is_finished());
    first.let_go();
    assert!(third.wait().unwrap().is_completed());
    second.let_go();
}

fn a_wait_inside_is_refused_only_if_it_would_never_end<S: AnyHasher>() {
    for (most, refused) in [(1, true), (2, false)] {
        let pool = Arc::new(pool_of::<S>(3));
        let other = hold(&pool, 2);
        let inner = pool.clone();
        let waits = move || {
            let behind = inner.submit(Claims::limited(1, most), || {}).unwrap();
            behind.wait().is_err()
        };
        let waits = pool.submit(Claims::limited(1, most), waits).unwrap();
        assert_eq!(waits.wait().unwrap().ok(), Some(refused));
        other.let_go();
        pool.shutdown().unwrap();
    }
    // Behind one that waits to be alone, which waits for this one.
    let pool = Arc::new(pool_of::<S>(3));
    let inner = pool.clone();
    let waits = move || {
        inner.execute(1, || {}).unwrap();
        let behind = inner.submit(Claims::limited(1, 2), || {}).unwrap();
        behind.wait().is_err()
    };
    let waits = pool.submit(Claims::limited(1, 2), waits).unwrap();
    assert_eq!(waits.wait().unwrap().ok(), Some(true));
    pool.shutdown().unwrap();
}

fn explanations_count_those_that_must_end_first<S: AnyHasher>() {
    let pool = pool_of::<S>(4);
    let holders = [(); 2].map(|()| hold(&pool, Claims::limited(1, 2)));
    let waiting: Vec<_> =
        (0..3).map(|_| pool.submit(Claims::limited(1, 2), || {}).unwrap()).collect();
    let alone = pool.submit(1, || {}).unwrap();
    let last = pool.submit(Claims::limited(1, 2), || {}).unwrap();
    look(&pool);
    let before = |task: &keylane::Handle<()>| match pool.inspect().explain(task).state {
        TaskState::Behind(lines) => lines[0].tasks,
        other => panic!("{other:?}"),
    };
    assert_eq!(waiting.iter().map(before).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!((before(&alone), before(&last)), (5, 6));
    let key = pool.inspect().explain_key(&1);
    assert_eq!(key.tasks, 7);
    assert!(matches!(key.holder, KeyHolder::Running(_)), "{key:?}");
    assert_eq!(pool.inspect().snapshot(1).hottest[0].len, 7);
    holders.into_iter().for_each(|holder| holder.let_go());
    assert!(last.wait().unwrap().is_completed());
}

fn a_mix_at_full_speed_keeps_every_limit<S: AnyHasher>() {
    let on_failure = OnFailure::StopKey { after: u32::MAX };
    let builder = Pool::<u32>::builder().workers(4).hasher(S::default()).self_check(true);
    let pool = builder.on_failure(on_failure).build().unwrap();
    // For each key: the tasks that have it, and the least that any of them allows.
    let keys: Arc<Vec<Mutex<Vec<u16>>>> = Arc::new((0..3).map(|_| Mutex::default()).collect());
    thread::scope(|scope| {
        for seed in 0..2 {
            let (pool, keys) = (&pool, &keys);
            scope.spawn(move || {
                let mut rng = Rng(seed + 7);
                for _ in 0..3_000 {
                    let mut used = Vec::new();
                    for key in 0..3_usize {
                        if rng.below(2) == 0 {
                            used.push((key, rng.below(4) as u16));
                        }
                    }
                    let claims =
                        used.iter().fold(Claims::none(), |claims, &(key, most)| match most {
                            0 => claims.and_exclusive(key as u32),
                            most => claims.and_limited(key as u32, most),
                        });
                    let keys = keys.clone();
                    let body = move || {
                        for &(key, most) in &used {
                            let mut here = keys[key].lock().unwrap();
                            here.push(most.max(1));
                            let least = *here.iter().min().unwrap();
                            assert!(here.len() <= least.into(), "{here:?}");
                        }
                        thread::yield_now();
                        for &(key, most) in &used {
                            let mut here = keys[key].lock().unwrap();
                            let at = here.iter().position(|it| *it == most.max(1)).unwrap();
                            here.swap_remove(at);
                        }
                    };
                    pool.execute(claims, body).unwrap();
                    if rng.below(200) == 0 {
                        pool.keys().pause(&1);
                        pool.keys().resume(&1);
                    }
                }
            });
        }
    });
    pool.shutdown().unwrap();
    let snapshot = pool.inspect().snapshot(9);
    assert_eq!((snapshot.panicked, snapshot.unfinished), (0, 0));
    assert!(snapshot.hottest.is_empty());
}

#[test]
#[should_panic(expected = "it must be at least 1")]
fn a_limit_of_none_is_refused() {
    let _ = Claims::limited(1, 0);
}
