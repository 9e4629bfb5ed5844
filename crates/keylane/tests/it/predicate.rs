//! Tasks that conflict by what their descriptors say: asked in both directions, exact through every
//! way to submit, together with keys, and with nothing parked, lost or kept.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};

use crate::common::{
    AnyHasher, Gate, LONG, Live, Log, One, block_on, eventually, hold, hold_soon, lock, pool,
    pool_of, soon, with_every_hasher,
};
use keylane::{Claims, Compatibility, Handle, Pool, SubmitErrorKind};

with_every_hasher!(
    either_of_two_can_say_that_they_conflict,
    every_way_to_submit_keeps_the_order,
    keys_and_descriptor_are_both_waited_for,
    who_waits_parks_no_worker_and_delays_nobody_else,
    what_a_wide_task_held_up_is_parallel_again_when_it_ends,
    a_barrier_is_between_what_comes_before_and_after,
    what_never_ran_comes_back_in_an_order_in_which_it_could_have,
    a_cancelled_task_keeps_its_place,
    a_wait_for_what_is_behind_is_refused,
);

/// Conflicts with what overlaps.
#[derive(Clone, Copy, Debug)]
struct Span(u32, u32);

impl Compatibility for Span {
    fn is_compatible(&self, other: &Self) -> bool {
        self.1 <= other.0 || other.1 <= self.0
    }
}

/// Readers beside readers; no task beside a writer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Access {
    Read,
    Write,
}

impl Compatibility for Access {
    fn is_compatible(&self, other: &Self) -> bool {
        (*self, *other) == (Access::Read, Access::Read)
    }

    fn class(&self) -> Option<u64> {
        Some((*self == Access::Write).into())
    }
}

/// Declares conflicts as configured.
struct Opinion {
    agrees: bool,
}

impl Compatibility for Opinion {
    fn is_compatible(&self, _: &Self) -> bool {
        self.agrees
    }
}

fn span(from: u32, to: u32) -> Claims<u32> {
    Claims::described(Span(from, to))
}

fn either_of_two_can_say_that_they_conflict<S: AnyHasher>() {
    let pool = pool_of::<S>(2);
    for (first, second) in [(true, false), (false, true), (false, false)] {
        let held = hold(&pool, Claims::described(Opinion { agrees: first }));
        let behind = pool.submit(Claims::described(Opinion { agrees: second }), || {}).unwrap();
        // A worker is free for this one, and would have been for the one before.
        pool.submit(7, || {}).unwrap().wait().unwrap().unwrap();
        assert!(!behind.is_finished() && behind.cancel());
        held.let_go();
    }
    let _held = hold(&pool, Claims::described(Opinion { agrees: true }));
    let beside = pool.submit(Claims::described(Opinion { agrees: true }), || {}).unwrap();
    assert!(beside.wait().unwrap().is_completed());
}

fn every_way_to_submit_keeps_the_order<S: AnyHasher>() {
    let pool = pool_of::<S>(3);
    let log = Log::new();
    let all = || span(0, 10);
    for n in 0..200_usize {
        let own = log.clone();
        let work = move || own.push(n);
        match n % 10 {
            0 => drop(pool.submit(all(), work).unwrap()),
            1 => pool.execute(all(), work).unwrap(),
            2 => drop(pool.try_submit(all(), work).unwrap()),
            3 => pool.task(all()).try_execute(work).unwrap(),
            4 => drop(pool.task(all()).timeout(LONG).submit(work).unwrap()),
            5 => pool.task(all()).timeout(LONG).execute(work).unwrap(),
            6 => drop(block_on(pool.task(all()).submit_async(work)).unwrap()),
            7 => {
                let fallible = move || {
                    work();
                    Ok::<_, ()>(n)
                };
                drop(pool.task(all()).fallible().submit(fallible).unwrap());
            }
            8 => drop(pool.submit_many([(all(), work)]).unwrap()),
            _ => _ = pool.execute_many([(all(), work)]).unwrap(),
        }
    }
    pool.shutdown().unwrap();
    assert!(log.take().into_iter().eq(0..200));
}

fn keys_and_descriptor_are_both_waited_for<S: AnyHasher>() {
    let pool = pool_of::<S>(3);
    let key = hold(&pool, 1);
    let span_held = hold(&pool, span(0, 10));
    let both = |from| Claims::exclusive(1).and_shared(2).with_descriptor(Span(from, from + 1));
    let first = pool.submit(both(5), || {}).unwrap();
    let by_key = pool.submit(2, || {}).unwrap();
    let by_span = pool.submit(span(5, 7), || {}).unwrap();
    let free = || pool.submit(span(20, 21), || {}).unwrap().wait().unwrap().unwrap();
    free();
    span_held.let_go();
    free();
    assert!(!first.is_finished() && !by_key.is_finished() && !by_span.is_finished());
    key.let_go();
    for handle in [first, by_key, by_span] {
        assert!(handle.wait().unwrap().is_completed());
    }
}

fn who_waits_parks_no_worker_and_delays_nobody_else<S: AnyHasher>() {
    let pool = pool_of::<S>(2);
    let held = hold(&pool, span(0, 10));
    let waiting: Vec<_> =
        (0..50).map(|n| pool.submit(span(n % 10, 20 + n), || {}).unwrap()).collect();
    for n in 0..100 {
        let beside = span(1000 + n, 1001 + n);
        assert!(pool.submit(beside, || {}).unwrap().wait().unwrap().is_completed());
        assert!(pool.submit(n, || {}).unwrap().wait().unwrap().is_completed());
    }
    assert!(waiting.iter().all(|handle| !handle.is_finished()));
    held.let_go();
    for handle in waiting {
        assert!(handle.wait().unwrap().is_completed());
    }
}

fn what_a_wide_task_held_up_is_parallel_again_when_it_ends<S: AnyHasher>() {
    let pool = pool_of::<S>(2);
    for _ in 0..100 {
        let held = hold(&pool, span(0, 20));
        let meet = Arc::new(Barrier::new(2));
        let mut handles = Vec::new();
        for _ in 0..3 {
            for from in [0, 10] {
                let meet = meet.clone();
                // Each of these waits until one of the other half runs too.
                let work = move || _ = meet.wait();
                handles.push(pool.submit(span(from, from + 10), work).unwrap());
            }
            handles.push(pool.submit(span(0, 20), || {}).unwrap());
        }
        held.let_go();
        for handle in handles {
            assert!(handle.wait().unwrap().is_completed());
        }
    }
}

fn a_barrier_is_between_what_comes_before_and_after<S: AnyHasher>() {
    let pool = pool_of::<S>(3);
    let before = hold(&pool, Claims::described(Access::Read));
    let waits = pool.submit(Claims::described(Access::Write), || {}).unwrap();
    let (barrier, begun) = hold_soon(&pool, Claims::barrier());
    let after = pool.submit(Claims::described(Access::Read), || {}).unwrap();
    let other = pool.submit(span(0, 1), || {}).unwrap();
    assert!(!begun.is_open());
    before.let_go();
    begun.pass();
    assert!(waits.is_finished() && !after.is_finished() && !other.is_finished());
    barrier.let_go();
    assert!(after.wait().unwrap().is_completed() && other.wait().unwrap().is_completed());
}

fn what_never_ran_comes_back_in_an_order_in_which_it_could_have<S: AnyHasher>() {
    let pool = pool_of::<S>(2);
    let held = [hold(&pool, span(0, 10)), hold(&pool, 1)];
    let log = Log::new();
    for n in 0..300 {
        let log = log.clone();
        let claims = match n % 4 {
            0 => span(0, 10),
            1 => Claims::exclusive(1).with_descriptor(Span(5, 15)),
            2 => Claims::exclusive(n).and_exclusive(1).with_descriptor(Span(9, 10)),
            _ => Claims::described(Access::Write).with_cost(3),
        };
        pool.execute(claims, move || log.push(n)).unwrap();
    }
    let unrun = pool.shutdown_now();
    assert_eq!(unrun.len(), 300, "both workers were taken");
    drop(held);
    pool.shutdown_timeout(LONG).unwrap();
    // Their claims are unchanged: in another pool they are in the same order.
    let other = pool_of::<S>(3);
    for task in unrun {
        other.execute(task.claims().clone(), move || task.run()).unwrap();
    }
    other.shutdown().unwrap();
    let log = log.take();
    assert!(log.iter().filter(|n| *n % 4 != 3).is_sorted(), "{log:?}");
    assert!(log.iter().filter(|n| *n % 4 == 3).is_sorted(), "{log:?}");
    assert_eq!(log.len(), 300);
}

fn a_cancelled_task_keeps_its_place<S: AnyHasher>() {
    let pool = pool_of::<S>(2);
    let held = hold(&pool, span(0, 10));
    let middle = pool.submit(span(5, 20), || {}).unwrap();
    let last = pool.submit(span(15, 30), || {}).unwrap();
    assert!(middle.cancel());
    pool.submit(7, || {}).unwrap().wait().unwrap().unwrap();
    assert!(!last.is_finished(), "it does not overtake");
    held.let_go();
    assert!(last.wait().unwrap().is_completed());
}

/// Whether a task with these claims may wait for one that is submitted while it runs.
fn wait_inside<S: AnyHasher>(
    pool: &Pool<u32, S>,
    claims: Claims<u32>,
    awaited: impl FnOnce() -> Handle<()>,
) -> bool {
    let (give, take) = mpsc::channel::<Handle<()>>();
    let waiter = pool
        .submit(claims, move || {
            let handle = take.recv_timeout(LONG).expect("it is handed over");
            handle.wait().is_ok()
        })
        .unwrap();
    give.send(awaited()).unwrap();
    waiter.wait().unwrap().unwrap()
}

fn a_wait_for_what_is_behind_is_refused<S: AnyHasher>() {
    let pool = pool_of::<S>(3);
    // Directly.
    let direct = || pool.submit(span(5, 20), || {}).unwrap();
    assert!(!wait_inside(&pool, span(0, 10), direct));
    // By a chain of descriptors, and of keys and descriptors.
    let chain = || {
        drop(pool.submit(span(5, 20), || {}).unwrap());
        drop(pool.submit(Claims::exclusive(1).with_descriptor(Span(15, 30)), || {}).unwrap());
        pool.submit(1, || {}).unwrap()
    };
    assert!(!wait_inside(&pool, span(0, 10), chain));
    let by_key_first = || {
        drop(pool.submit(Claims::exclusive(1).with_descriptor(Span(0, 10)), || {}).unwrap());
        pool.submit(span(5, 6), || {}).unwrap()
    };
    assert!(!wait_inside(&pool, Claims::exclusive(1), by_key_first));
    // By classes: behind one of several readers, and behind a barrier that is behind them.
    let _reader = hold(&pool, Claims::described(Access::Read));
    let writer = || pool.submit(Claims::described(Access::Write), || {}).unwrap();
    assert!(!wait_inside(&pool, Claims::described(Access::Read), writer));
    // A task beside the caller may be waited for.
    let beside = || pool.submit(span(10, 20), || {}).unwrap();
    assert!(wait_inside(&pool, span(0, 10), beside));
}

/// Counts how often it is asked.
struct Counted {
    class: u64,
    asked: Arc<AtomicUsize>,
}

impl Compatibility for Counted {
    fn is_compatible(&self, other: &Self) -> bool {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.class != other.class
    }

    fn class(&self) -> Option<u64> {
        Some(self.class)
    }
}

#[test]
fn classes_are_asked_once_for_each_pair() {
    soon(|| {
        let pool = pool(2);
        let asked = Arc::new(AtomicUsize::new(0));
        let held: Vec<_> = (0..2)
            .map(|class| hold(&pool, Claims::described(Counted { class, asked: asked.clone() })))
            .collect();
        let log = Log::new();
        for n in 0..1_000 {
            let log = log.clone();
            let descriptor = Counted { class: n % 2, asked: asked.clone() };
            pool.execute(Claims::described(descriptor), move || log.push(n)).unwrap();
        }
        drop(held);
        pool.shutdown().unwrap();
        // Between the classes once in both directions, within each of them as far as the first no.
        assert_eq!(asked.load(Ordering::SeqCst), 4);
        let log = log.take();
        for class in [0, 1] {
            assert!(log.iter().filter(|n| *n % 2 == class).is_sorted());
        }
        assert_eq!(log.len(), 1_000);
    });
}

#[test]
fn readers_run_together_and_writers_alone() {
    soon(|| {
        let pool = pool(4);
        let inside = Arc::new(Mutex::new((0, 0)));
        let together = Arc::new(Barrier::new(2));
        // Two readers that can only end together.
        for _ in 0..2 {
            let together = together.clone();
            pool.execute(Claims::described(Access::Read), move || _ = together.wait()).unwrap();
        }
        for n in 0..2_000 {
            let inside = inside.clone();
            let access = if n % 5 == 0 { Access::Write } else { Access::Read };
            let work = move || {
                let enter = |by: i32| {
                    let mut inside = lock(&inside);
                    match access {
                        Access::Read => inside.0 += by,
                        Access::Write => inside.1 += by,
                    }
                    *inside
                };
                let (readers, writers) = enter(1);
                assert!(writers == 0 || (readers, writers) == (0, 1));
                enter(-1);
            };
            pool.execute(Claims::described(access), work).unwrap();
        }
        pool.shutdown().unwrap();
        assert_eq!(pool.inspect().snapshot(0).panicked, 0);
    });
}

/// Panics when it is asked about others.
struct Faulty;

impl Compatibility for Faulty {
    fn is_compatible(&self, _: &Self) -> bool {
        panic!("on purpose");
    }
}

#[test]
fn a_predicate_that_panics_counts_as_a_conflict_and_is_reported() {
    soon(|| {
        let reported = Log::new();
        let log = reported.clone();
        let pool = Pool::<u32>::builder()
            .workers(2)
            .on_panic(move |payload| log.push(payload.downcast_ref::<&str>().copied()))
            .build()
            .unwrap();
        let held = hold(&pool, Claims::described(Faulty));
        let behind = pool.submit(Claims::described(Faulty), || {}).unwrap();
        pool.submit(7, || {}).unwrap().wait().unwrap().unwrap();
        assert!(!behind.is_finished());
        assert_eq!(reported.take(), [Some("on purpose")]);
        held.let_go();
        assert!(behind.wait().unwrap().is_completed());
        assert_eq!(pool.inspect().snapshot(0).panicked, 1);
        pool.shutdown().unwrap();
    });
}

/// What one of many says to the one that asks about all.
#[derive(Clone, Copy, PartialEq)]
enum Says {
    Asks,
    Compatible,
    Conflicts,
    Panics,
}

impl Compatibility for Says {
    fn is_compatible(&self, other: &Self) -> bool {
        assert!([*self, *other] != [Says::Asks, Says::Panics], "on purpose");
        ![*self, *other].contains(&Says::Asks) || ![*self, *other].contains(&Says::Conflicts)
    }
}

#[test]
fn a_panic_about_one_of_many_says_nothing_of_the_others() {
    soon(|| {
        let panics = Arc::new(AtomicUsize::new(0));
        let count = panics.clone();
        let pool = Pool::<u32>::builder()
            .workers(8)
            .on_panic(move |_| _ = count.fetch_add(1, Ordering::SeqCst))
            .build()
            .unwrap();
        let hold_one = |says| hold(&pool, Claims::described(says));
        let last = hold_one(Says::Conflicts);
        let _beside = hold_one(Says::Compatible);
        let faulty = [hold_one(Says::Panics), hold_one(Says::Panics)];
        let _between = hold_one(Says::Compatible);
        let first = hold_one(Says::Conflicts);
        let behind = pool.submit(Claims::described(Says::Asks), || {}).unwrap();
        assert_eq!(panics.load(Ordering::SeqCst), 2, "once about each of the two");
        for held in [first].into_iter().chain(faulty).chain([last]) {
            pool.submit(7, || {}).unwrap().wait().unwrap().unwrap();
            assert!(!behind.is_finished());
            held.let_go();
        }
        assert!(behind.wait().unwrap().is_completed());
    });
}

/// Touches some of 64 things.
struct Touches {
    things: u64,
    /// The class, if it has one.
    class: Option<u64>,
    asked: Arc<AtomicUsize>,
}

impl Compatibility for Touches {
    fn is_compatible(&self, other: &Self) -> bool {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.things & other.things == 0
    }

    fn class(&self) -> Option<u64> {
        self.class
    }

    fn summary(&self) -> u64 {
        self.things
    }
}

#[test]
fn descriptors_with_disjoint_summaries_are_never_asked() {
    soon(|| {
        let pool = pool(4);
        let asked = Arc::new(AtomicUsize::new(0));
        let touches = |things: u64, class: Option<u64>| {
            Claims::described(Touches { things, class, asked: asked.clone() })
        };
        let held = hold(&pool, touches(1, None));
        let class = hold(&pool, touches(2, Some(1)));
        // More than a page of them, with others between, so that pages are passed over and looked
        // at.
        for nth in 0..300_u64 {
            pool.execute(touches(4 << (nth % 62), None), || {}).unwrap();
            if nth >= 62 {
                continue;
            }
            pool.execute(touches(0, Some(nth + 2)), || {}).unwrap();
        }
        let among_the_others = asked.swap(0, Ordering::SeqCst);
        assert!(among_the_others <= 300 * 5, "each about those that touch the same, and no others");
        let behind = pool.submit(touches(1, None), || {}).unwrap();
        assert_eq!(asked.swap(0, Ordering::SeqCst), 1, "about one of a few hundred");
        let behind_class = pool.submit(touches(2, None), || {}).unwrap();
        assert_eq!(asked.swap(0, Ordering::SeqCst), 1, "about one of the class, and nobody else");
        let beside = pool.submit(touches(0, None), || {}).unwrap();
        assert!(beside.wait().unwrap().is_completed());
        assert_eq!(asked.load(Ordering::SeqCst), 0, "it touches nothing");
        assert!(!behind.is_finished() && !behind_class.is_finished());
        held.let_go();
        class.let_go();
        assert!(
            behind.wait().unwrap().is_completed() && behind_class.wait().unwrap().is_completed()
        );
        pool.shutdown().unwrap();
    });
}

#[test]
fn many_submitters_with_summaries_keep_each_pair_apart() {
    soon(|| {
        let pool = pool(4);
        let cells: Arc<Vec<Mutex<()>>> = Arc::new((0..64).map(|_| Mutex::new(())).collect());
        let asked = Arc::new(AtomicUsize::new(0));
        let gate = Gate::new();
        std::thread::scope(|scope| {
            for producer in 0..4_u32 {
                let (pool, cells, asked, gate) = (&pool, &cells, &asked, &gate);
                scope.spawn(move || {
                    gate.pass();
                    for n in 0..2_000_u32 {
                        let (one, two) = ((n * 7 + producer * 3) % 64, n * 11 % 64);
                        let things = 1 << one | 1 << two;
                        let class = (one == two || n % 5 == 0).then_some(things);
                        let descriptor = Touches { things, class, asked: asked.clone() };
                        let cells = cells.clone();
                        let work = move || {
                            let mine = (0..64).filter(|cell| things & 1 << cell != 0);
                            let _locked: Vec<_> = mine
                                .map(|cell| cells[cell].try_lock().expect("nobody else"))
                                .collect();
                        };
                        pool.execute(Claims::described(descriptor), work).unwrap();
                    }
                });
            }
            gate.open();
        });
        pool.shutdown().unwrap();
        assert_eq!(pool.inspect().snapshot(0).panicked, 0);
    });
}

/// Submits to the pool when it is asked.
struct Submits(Arc<Pool<u32>>, Log<u32>);

impl Compatibility for Submits {
    fn is_compatible(&self, _: &Self) -> bool {
        let log = self.1.clone();
        self.0.execute(span(0, 1).and_exclusive(3), move || log.push(1)).unwrap();
        false
    }
}

#[test]
fn a_predicate_may_submit() {
    soon(|| {
        let pool = Arc::new(pool(2));
        let log = Log::new();
        let held = hold(&pool, Claims::described(Submits(pool.clone(), log.clone())));
        let behind = Claims::described(Submits(pool.clone(), log.clone()));
        pool.execute(behind, || {}).unwrap();
        held.let_go();
        pool.shutdown().unwrap();
        assert_eq!(log.len(), 1);
    });
}

/// Is counted while it lives.
struct Heavy {
    class: Option<u64>,
    _one: One,
}

impl Compatibility for Heavy {
    fn is_compatible(&self, _: &Self) -> bool {
        true
    }

    fn class(&self) -> Option<u64> {
        self.class
    }
}

#[test]
fn a_descriptor_is_dropped_with_its_task() {
    soon(|| {
        for class in [None, Some(1)] {
            let pool = pool(2);
            let live = Live::new();
            let heavy = || Claims::described(Heavy { class, _one: live.one() });
            // One that lasts keeps nothing of the others.
            let lasting = hold(&pool, heavy());
            for _ in 0..200 {
                pool.submit(heavy(), || {}).unwrap().wait().unwrap().unwrap();
            }
            eventually(|| live.count() == 1);
            lasting.let_go();
            eventually(|| live.count() == 0);
            // A stop keeps nothing either.
            let held = [hold(&pool, 1), hold(&pool, 2)];
            (0..20).for_each(|_| pool.execute(heavy(), || {}).unwrap());
            drop(pool.shutdown_now());
            assert_eq!(live.count(), 0);
            drop(held);
        }
    });
}

#[test]
fn a_long_line_of_conflicts_needs_no_stack() {
    soon(|| {
        let pool = Pool::<u32>::builder().workers(1).stack_size(64 * 1024).build().unwrap();
        let ran = Arc::new(AtomicUsize::new(0));
        let held = hold(&pool, Claims::described(Access::Write));
        for _ in 0..20_000 {
            let ran = ran.clone();
            let claims = Claims::described(Access::Write);
            pool.execute(claims, move || _ = ran.fetch_add(1, Ordering::SeqCst)).unwrap();
        }
        held.let_go();
        pool.submit(Claims::barrier(), || {}).unwrap().wait().unwrap().unwrap();
        assert_eq!(ran.load(Ordering::SeqCst), 20_000);
        let _held = hold(&pool, Claims::described(Access::Write));
        for _ in 0..20_000 {
            pool.execute(Claims::described(Access::Write), || {}).unwrap();
        }
        assert_eq!(pool.shutdown_now().len(), 20_000);
    });
}

#[test]
fn the_bounds_hold_for_described_tasks_too() {
    soon(|| {
        let pool = Pool::<u32>::builder()
            .workers(1)
            .capacity_per_key(1)
            .capacity_bytes(10)
            .build()
            .unwrap();
        for _ in 0..3 {
            let claims = || Claims::exclusive(1).with_cost(6).with_descriptor(Span(0, 1));
            let held = hold(&pool, claims());
            let refused = pool.try_submit(claims(), || {}).unwrap_err();
            assert_eq!(refused.kind(), SubmitErrorKind::KeyFull);
            let refused = pool.try_submit(span(4, 5).with_cost(5), || {}).unwrap_err();
            assert_eq!(refused.kind(), SubmitErrorKind::Full);
            let (claims, _) = refused.into_inner();
            assert_eq!(claims.cost(), 5);
            held.let_go();
            eventually(|| pool.inspect().snapshot(0).unfinished == 0);
        }
    });
}

#[test]
fn what_a_closed_pool_refuses_comes_back_as_it_was() {
    soon(|| {
        let open = pool(2);
        let closed = pool(2);
        closed.close();
        let claims = Claims::exclusive(1).with_descriptor(Span(0, 10)).with_cost(4);
        let refused = closed.submit(claims, || 5).unwrap_err();
        let (claims, work) = refused.into_inner();
        assert_eq!(claims.cost(), 4);
        let held = hold(&open, span(9, 10));
        let behind = open.submit(claims, work).unwrap();
        open.submit(7, || {}).unwrap().wait().unwrap().unwrap();
        assert!(!behind.is_finished(), "it still has its descriptor");
        held.let_go();
        assert_eq!(behind.wait().unwrap().ok(), Some(5));
    });
}

#[test]
fn subtasks_of_a_job_can_be_described() {
    soon(|| {
        let pool = pool(3);
        let log = Log::new();
        let own = log.clone();
        let held = hold(&pool, span(0, 10));
        let subtasks = (0..100_u32).map(move |n| {
            let log = own.clone();
            (span(5, 6), move || log.push(n))
        });
        let job = pool.job("described").each_keyed(subtasks).collect().unwrap();
        held.let_go();
        assert!(job.wait().unwrap().is_completed());
        assert!(log.take().into_iter().eq(0..100));
    });
}

#[test]
fn many_submitters_at_once_keep_each_pair_apart() {
    soon(|| {
        let pool = pool(4);
        let cells: Arc<Vec<Mutex<()>>> = Arc::new((0..8).map(|_| Mutex::new(())).collect());
        let gate = Gate::new();
        std::thread::scope(|scope| {
            for producer in 0..4_u32 {
                let (pool, cells, gate) = (&pool, &cells, &gate);
                scope.spawn(move || {
                    gate.pass();
                    for n in 0..1_000_u32 {
                        let from = (n * 7 + producer * 3) % 8;
                        let to = (from + 1 + n % 3).min(8);
                        let cells = cells.clone();
                        let claims = match n % 3 {
                            0 => span(from, to).and_exclusive(n % 5),
                            _ => span(from, to),
                        };
                        pool.execute(claims, move || {
                            let mine = cells[from as usize..to as usize].iter();
                            let _locked: Vec<_> =
                                mine.map(|cell| cell.try_lock().expect("nobody else")).collect();
                        })
                        .unwrap();
                    }
                });
            }
            gate.open();
        });
        pool.shutdown().unwrap();
        assert_eq!(pool.inspect().snapshot(0).panicked, 0);
    });
}
