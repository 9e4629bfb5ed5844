//! A barrier runs after all that was submitted before it and before all that is submitted after it,
//! alone.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use crate::common::{AnyHasher, Log, hold, hold_soon, pool_of, with_every_hasher};
use keylane::Claims;

with_every_hasher!(
    a_barrier_separates_what_is_before_it_from_what_is_after_it,
    a_barrier_is_alone,
    what_is_before_a_barrier_is_still_parallel,
    what_is_after_a_barrier_is_parallel_again,
    barriers_in_a_row_keep_their_order,
    barriers_of_many_producers_do_not_hang,
    a_cancelled_barrier_holds_its_place_and_no_more,
    a_barrier_that_panics_lets_the_rest_go_on,
);

fn barrier() -> Claims<u32> {
    Claims::barrier()
}

fn a_barrier_separates_what_is_before_it_from_what_is_after_it<S: AnyHasher>() {
    let pool = pool_of::<S>(4);
    for _ in 0..100 {
        let log = Log::new();
        let submit_all = |name: &'static str| {
            let kinds = (0..6).map(Claims::exclusive).chain([
                Claims::none(),
                Claims::shared(3),
                Claims::exclusive(1).and_shared(2),
            ]);
            for claims in kinds {
                let log = log.clone();
                pool.execute(claims, move || log.push(name)).unwrap();
            }
        };
        submit_all("before");
        let own = log.clone();
        pool.execute(barrier(), move || own.push("barrier")).unwrap();
        submit_all("after");
        assert!(pool.submit(barrier(), || {}).unwrap().wait().unwrap().is_completed());
        let log = log.take();
        let at = log.iter().position(|name| *name == "barrier").unwrap();
        assert!(log[..at].iter().all(|name| *name == "before"), "{log:?}");
        assert!(log[at + 1..].iter().all(|name| *name == "after"), "{log:?}");
        assert_eq!((at, log.len()), (9, 19));
    }
}

fn a_barrier_is_alone<S: AnyHasher>() {
    let pool = pool_of::<S>(4);
    let running = Arc::new(AtomicUsize::new(0));
    for n in 0..4_000 {
        let running = running.clone();
        let alone = n % 20 == 0;
        let claims = match n % 3 {
            _ if alone => barrier(),
            0 => Claims::none(),
            1 => Claims::exclusive(n),
            _ => Claims::exclusive(n % 5).and_exclusive(n % 7),
        };
        let work = move || {
            let others = running.fetch_add(1, Ordering::SeqCst);
            assert!(!alone || others == 0);
            running.fetch_sub(1, Ordering::SeqCst);
        };
        pool.execute(claims, work).unwrap();
    }
    pool.shutdown().unwrap();
    assert_eq!(pool.inspect().snapshot(0).panicked, 0);
}

fn what_is_before_a_barrier_is_still_parallel<S: AnyHasher>() {
    let pool = pool_of::<S>(3);
    let held = hold(&pool, 1);
    let meet = Arc::new(Barrier::new(2));
    for claims in [Claims::exclusive(2), Claims::none()] {
        let meet = meet.clone();
        pool.execute(claims, move || _ = meet.wait()).unwrap();
    }
    let alone = pool.submit(barrier(), || {}).unwrap();
    let after = pool.submit(3, || {}).unwrap();
    let both = pool.inspect().snapshot(0);
    assert!(!alone.is_finished() && !after.is_finished(), "{both:?}");
    held.let_go();
    assert!(after.wait().unwrap().is_completed() && alone.is_finished());
}

fn what_is_after_a_barrier_is_parallel_again<S: AnyHasher>() {
    let pool = pool_of::<S>(4);
    for _ in 0..100 {
        let (held, runs) = hold_soon(&pool, barrier());
        let meet = Arc::new(Barrier::new(4));
        let after: Vec<_> = [
            Claims::exclusive(1),
            Claims::none(),
            Claims::shared(2),
            Claims::shared(2).and_exclusive(3),
        ]
        .into_iter()
        .map(|claims| {
            let meet = meet.clone();
            pool.submit(claims, move || _ = meet.wait()).unwrap()
        })
        .collect();
        runs.pass();
        assert!(after.iter().all(|handle| !handle.is_finished()));
        held.let_go();
        for handle in after {
            assert!(handle.wait().unwrap().is_completed());
        }
    }
}

fn barriers_in_a_row_keep_their_order<S: AnyHasher>() {
    for workers in [1, 3] {
        let pool = pool_of::<S>(workers);
        let log = Log::new();
        for n in 0..300 {
            let log = log.clone();
            pool.execute(barrier(), move || log.push(n)).unwrap();
        }
        pool.shutdown().unwrap();
        assert!(log.take().into_iter().eq(0..300));
    }
}

fn barriers_of_many_producers_do_not_hang<S: AnyHasher>() {
    let pool = pool_of::<S>(2);
    let ran = Arc::new(AtomicUsize::new(0));
    thread::scope(|scope| {
        for producer in 0..4 {
            let (pool, ran) = (&pool, &ran);
            scope.spawn(move || {
                for n in 0..200 {
                    let count = || {
                        let ran = ran.clone();
                        move || _ = ran.fetch_add(1, Ordering::Relaxed)
                    };
                    pool.execute(barrier(), count()).unwrap();
                    pool.execute([producer, n], count()).unwrap();
                    pool.execute(Claims::none(), count()).unwrap();
                }
            });
        }
    });
    pool.shutdown().unwrap();
    assert_eq!(ran.load(Ordering::Relaxed), 4 * 200 * 3);
}

fn a_cancelled_barrier_holds_its_place_and_no_more<S: AnyHasher>() {
    let pool = pool_of::<S>(3);
    let held = hold(&pool, 1);
    let alone = pool.submit(barrier(), || {}).unwrap();
    let after = pool.submit(2, || {}).unwrap();
    assert!(alone.cancel());
    held.let_go();
    assert!(after.wait().unwrap().is_completed());
    assert!(alone.wait().unwrap().is_cancelled());
    pool.shutdown().unwrap();
}

fn a_barrier_that_panics_lets_the_rest_go_on<S: AnyHasher>() {
    let pool = pool_of::<S>(2);
    for _ in 0..20 {
        let alone = pool.submit(barrier(), || std::panic::panic_any(7)).unwrap();
        let after = pool.submit(1, || {}).unwrap();
        assert!(after.wait().unwrap().is_completed());
        assert!(matches!(alone.wait().unwrap(), keylane::Outcome::Panicked(_)));
    }
}
