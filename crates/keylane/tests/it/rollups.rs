//! A rollup, a task with several keys, waits for all of its lanes and holds them all while it runs;
//! it delays nothing else, parks no worker, and its keys are parallel again as soon as it ends.

use std::sync::{Arc, Barrier};

use crate::common::{AnyHasher, Gate, Log, Rng, hold, hold_soon, pool_of, with_every_hasher};
use keylane::{Claims, KeyBuildHasher};

with_every_hasher!(
    a_rollup_runs_after_all_before_it_and_before_all_after_it,
    a_rollup_delays_no_other_key_and_parks_no_worker,
    its_keys_are_parallel_again_as_soon_as_it_ends,
    a_pool_with_one_worker_runs_any_rollups,
    crossing_rollups_neither_hang_nor_overlap,
    a_key_that_is_listed_twice_counts_once,
    a_chain_of_rollups_runs_link_by_link,
    parts_that_are_free_are_held_until_the_others_are,
);

fn a_rollup_runs_after_all_before_it_and_before_all_after_it<S: AnyHasher>() {
    let pool = pool_of::<S>(4);
    for round in 0..300 {
        let log = Log::new();
        let task = |name: &'static str| {
            let log = log.clone();
            move || log.push(name)
        };
        let keys = [round, round + 1, round + 2];
        for key in keys {
            pool.execute(key, task("before")).unwrap();
            pool.execute(key, task("before")).unwrap();
        }
        pool.execute(keys, task("rollup")).unwrap();
        for key in keys {
            pool.execute(key, task("after")).unwrap();
        }
        assert!(pool.submit(keys, || {}).unwrap().wait().unwrap().is_completed());
        let log = log.take();
        assert!(log[..6].iter().all(|name| *name == "before"), "{log:?}");
        assert_eq!(log[6], "rollup", "{log:?}");
        assert_eq!(log.len(), 10);
    }
}

fn a_rollup_delays_no_other_key_and_parks_no_worker<S: AnyHasher>() {
    const A: u32 = 1;
    const B: u32 = 2;
    const C: u32 = 3;
    let pool = pool_of::<S>(2);
    let a = hold(&pool, A);
    // Both of these wait, and the second worker must not wait with them.
    let rollup = pool.submit([A, B], || {}).unwrap();
    let behind = pool.submit(B, || {}).unwrap();
    for _ in 0..100 {
        assert!(pool.submit(C, || {}).unwrap().wait().unwrap().is_completed());
    }
    assert!(!rollup.is_finished() && !behind.is_finished());
    a.let_go();
    assert!(behind.wait().unwrap().is_completed() && rollup.is_finished());
}

fn its_keys_are_parallel_again_as_soon_as_it_ends<S: AnyHasher>() {
    let pool = pool_of::<S>(2);
    for round in 0..200 {
        // The backlog on both keys is there before the rollup runs, and after it.
        let held = hold(&pool, [1, 2]);
        let meet = Arc::new(Barrier::new(2));
        let mut handles = Vec::new();
        for _ in 0..3 {
            drop(pool.submit([1, 2], || {}).unwrap());
            for key in [1, 2] {
                let meet = meet.clone();
                // Each of these waits until the other key's runs too.
                handles.push(pool.submit(key, move || _ = meet.wait()).unwrap());
            }
        }
        held.let_go();
        for handle in handles {
            assert!(handle.wait().unwrap().is_completed(), "round {round}");
        }
    }
}

fn a_pool_with_one_worker_runs_any_rollups<S: AnyHasher>() {
    let pool = pool_of::<S>(1);
    let mut rng = Rng(1);
    let log = Log::new();
    for n in 0..3_000 {
        let log = log.clone();
        let keys: Vec<u32> = (0..1 + rng.below(4)).map(|_| rng.below(6) as u32).collect();
        let mut claims = Claims::none();
        for &key in &keys {
            claims =
                if rng.below(4) == 0 { claims.and_shared(key) } else { claims.and_exclusive(key) };
        }
        pool.execute(claims, move || log.push(n)).unwrap();
    }
    pool.shutdown().unwrap();
    assert_eq!(log.len(), 3_000);
}

fn crossing_rollups_neither_hang_nor_overlap<S: AnyHasher>() {
    let pool = pool_of::<S>(4);
    let inside: Arc<Vec<std::sync::Mutex<()>>> =
        Arc::new((0..4).map(|_| Default::default()).collect());
    std::thread::scope(|scope| {
        for producer in 0..3_u64 {
            let (pool, inside) = (&pool, &inside);
            scope.spawn(move || {
                let mut rng = Rng(producer);
                for _ in 0..1_500 {
                    let (one, other) = (rng.below(4) as u32, rng.below(4) as u32);
                    let inside = inside.clone();
                    pool.execute([one, other], move || {
                        let alone = "nobody else has the key";
                        let _one = inside[one as usize].try_lock().expect(alone);
                        if one != other {
                            let _other = inside[other as usize].try_lock().expect(alone);
                        }
                    })
                    .unwrap();
                }
            });
        }
    });
    let snapshot = pool.inspect().snapshot(0);
    pool.shutdown().unwrap();
    assert_eq!(pool.inspect().snapshot(0).panicked, 0, "{snapshot:?}");
}

fn a_key_that_is_listed_twice_counts_once<S: AnyHasher>() {
    let pool = pool_of::<S>(2);
    for keys in [vec![5, 5], vec![5, 6, 5], vec![5; 40]] {
        assert!(pool.submit(keys, || {}).unwrap().wait().unwrap().is_completed());
    }
    // Exclusive wins over shared, whichever is listed first.
    for claims in [Claims::shared(5).and_exclusive(5), Claims::exclusive(5).and_shared(5)] {
        let reader = hold(&pool, Claims::shared(5));
        let writer = pool.submit(claims, || {}).unwrap();
        let free = pool.submit(9, || {}).unwrap();
        assert!(free.wait().unwrap().is_completed() && !writer.is_finished());
        reader.let_go();
        assert!(writer.wait().unwrap().is_completed());
    }
    // And twice shared is shared.
    let reader = hold(&pool, Claims::shared(5));
    let other = pool.submit(Claims::shared(5).and_shared(5).and_shared(6), || {}).unwrap();
    assert!(other.wait().unwrap().is_completed());
    reader.let_go();
}

fn a_chain_of_rollups_runs_link_by_link<S: AnyHasher>() {
    let pool = pool_of::<S>(3);
    let first = hold(&pool, 0);
    let log = Log::new();
    for n in 0..2_000 {
        let log = log.clone();
        pool.execute([n, n + 1], move || log.push(n)).unwrap();
    }
    first.let_go();
    pool.shutdown().unwrap();
    assert!(log.take().into_iter().eq(0..2_000));
}

/// A rollup that waits for one lane blocks the tasks behind it in its other lanes, or they would
/// overtake it: a wait for a conflict.
fn parts_that_are_free_are_held_until_the_others_are<S: AnyHasher>() {
    let pool = pool_of::<S>(3);
    let one = hold(&pool, 1);
    let (rollup, rollup_runs) = hold_soon(&pool, [1, 2, 3]);
    let behind: Vec<_> = [2, 3].map(|key| pool.submit(key, || {}).unwrap()).into();
    assert!(pool.submit(4, || {}).unwrap().wait().unwrap().is_completed());
    assert!(!rollup_runs.is_open());
    one.let_go();
    rollup_runs.pass();
    assert!(pool.submit(4, || {}).unwrap().wait().unwrap().is_completed());
    assert!(behind.iter().all(|handle| !handle.is_finished()));
    rollup.let_go();
    for handle in behind {
        assert!(handle.wait().unwrap().is_completed());
    }
}

/// Rollups whose lanes are freed by two workers at the same moment: exactly one of the two makes it
/// ready.
#[test]
fn a_rollup_whose_lanes_are_freed_at_the_same_moment_runs_once() {
    crate::common::soon(|| {
        let pool = pool_of::<KeyBuildHasher>(2);
        for _ in 0..3_000 {
            let gate = Gate::new();
            let (one, two) = (gate.clone(), gate.clone());
            pool.execute(1, move || one.pass()).unwrap();
            pool.execute(2, move || two.pass()).unwrap();
            let both = pool.submit([1, 2], || 1).unwrap();
            gate.open();
            assert_eq!(both.wait().unwrap().ok(), Some(1));
        }
    });
}
