//! History of bodies that ran freely, and its invariants.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use keylane::{Placement, Pool};

use super::keys::{Keys, random_keys};
use crate::common::{self, AnyHasher, LONG, Rng, block_on};

/// What happened to one task.
#[derive(Clone, Debug)]
pub(crate) struct Story {
    keys: Keys,
    /// Just before it was submitted, and just after.
    submitted: (u64, u64),
    /// Absent if it was cancelled.
    ran: Option<(u64, u64)>,
    times: usize,
    inside: bool,
}

#[derive(Default)]
pub(crate) struct Marks {
    begin: AtomicU64,
    end: AtomicU64,
    times: AtomicUsize,
}

/// Runs a program of several producers and returns what happened.
pub(crate) fn history<S: AnyHasher>(seed: u64, capacity: usize) -> Vec<Story> {
    let mut rng = Rng(seed);
    let pool = Pool::<u32>::builder()
        .workers(1 + rng.below(3) as usize)
        .capacity(capacity)
        .placement(if seed.is_multiple_of(2) { Placement::Any } else { Placement::Sticky })
        .quantum(1 + rng.below(8) as usize, LONG)
        .hasher(S::default())
        .build()
        .unwrap();
    let pool = Arc::new(pool);
    let clock = Arc::new(AtomicU64::new(0));
    let tick = |clock: &AtomicU64| clock.fetch_add(1, Ordering::SeqCst);
    let stories = common::Log::new();
    thread::scope(|scope| {
        for producer in 0..3 {
            let (pool, clock, stories) = (&pool, &clock, stories.clone());
            scope.spawn(move || {
                let mut rng = Rng(seed * 31 + producer);
                for n in 0..70 {
                    let keys = random_keys(&mut rng);
                    let marks = Arc::new(Marks::default());
                    let (fails, spins) = (rng.below(15) == 0, rng.below(300));
                    let inner = (rng.below(8) == 0).then(|| random_keys(&mut rng));
                    let (own, ticks, mark) = (Arc::downgrade(pool), clock.clone(), marks.clone());
                    let log = stories.clone();
                    let work = move || {
                        mark.begin.store(tick(&ticks), Ordering::SeqCst);
                        mark.times.fetch_add(1, Ordering::SeqCst);
                        (0..spins).for_each(|_| std::hint::spin_loop());
                        if let Some(keys) = inner {
                            let pool = own.upgrade().expect("it is drained first");
                            let marks = Arc::new(Marks::default());
                            let (mark, clock) = (marks.clone(), ticks.clone());
                            let work = move || {
                                mark.begin.store(tick(&clock), Ordering::SeqCst);
                                mark.times.fetch_add(1, Ordering::SeqCst);
                                mark.end.store(tick(&clock), Ordering::SeqCst);
                            };
                            let before = tick(&ticks);
                            // Refused if the pool is being drained.
                            if pool.execute(keys.claims(), work).is_ok() {
                                log.push((keys, (before, tick(&ticks)), marks, true, false));
                            }
                        }
                        mark.end.store(tick(&ticks), Ordering::SeqCst);
                        assert!(!fails, "on purpose");
                    };
                    let before = tick(clock);
                    let claims = keys.claims();
                    let mut cancelled = false;
                    match n % 4 {
                        0 => pool.execute(claims, work).unwrap(),
                        1 => _ = pool.execute_many([(claims, work)]).unwrap(),
                        2 => drop(block_on(pool.task(claims).submit_async(work)).unwrap()),
                        _ => {
                            let handle = pool.submit(claims, work).unwrap();
                            cancelled = rng.below(3) == 0 && handle.cancel();
                        }
                    }
                    stories.push((keys, (before, tick(clock)), marks, false, cancelled));
                }
            });
        }
    });
    pool.shutdown().unwrap();
    let told = stories.take().into_iter();
    told.map(|(keys, submitted, marks, inside, cancelled)| {
        let at = |mark: &AtomicU64| mark.load(Ordering::SeqCst);
        let times = marks.times.load(Ordering::SeqCst);
        assert_eq!(times, usize::from(!cancelled), "it runs once, or was cancelled");
        let ran = (!cancelled).then(|| (at(&marks.begin), at(&marks.end)));
        Story { keys, submitted, ran, times, inside }
    })
    .collect()
}

pub(crate) fn check_history(stories: &[Story], capacity: usize) {
    for (n, one) in stories.iter().enumerate() {
        let Some((begin, end)) = one.ran else { continue };
        assert!(one.submitted.0 < begin && begin < end && one.times == 1, "{one:?}");
        for other in &stories[n + 1..] {
            let Some((other_begin, other_end)) = other.ran else { continue };
            if !one.keys.conflicts(&other.keys) {
                continue;
            }
            assert!(end < other_begin || other_end < begin, "overlap: {one:?} {other:?}");
            if one.submitted.1 < other.submitted.0 {
                assert!(end < other_begin, "disorder: {one:?} {other:?}");
            }
            if other.submitted.1 < one.submitted.0 {
                assert!(other_end < begin, "disorder: {other:?} {one:?}");
            }
        }
    }
    // When one begins that limits a key, no more run than any of them lets run.
    for one in stories {
        let Some((begin, _)) = one.ran else { continue };
        for (key, _) in one.keys.limits() {
            let beside = stories.iter().filter(|story| {
                story.ran.is_some_and(|(other, end)| other <= begin && begin < end)
            });
            let limits: Vec<u16> = beside.filter_map(|story| story.keys.limit_of(key)).collect();
            assert!(limits.iter().all(|most| limits.len() <= (*most).into()), "{key}: {one:?}");
        }
    }
    // At each admission from outside: those that were surely accepted before and surely end after.
    for one in stories.iter().filter(|story| !story.inside) {
        let now = one.submitted.1;
        let unfinished = stories.iter().filter(|story| {
            !story.inside && story.submitted.1 <= now && story.ran.is_some_and(|(_, end)| end > now)
        });
        assert!(unfinished.count() <= capacity);
    }
}
