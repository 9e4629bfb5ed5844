//! A key with many tasks yields to others after its quantum, and no task waits forever.

use std::any::TypeId;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::common::{AnyHasher, Collide, Gate, LONG, Log, hold, soon, with_every_hasher};
use keylane::{Claims, Pool};

with_every_hasher!(
    a_key_that_feeds_itself_lets_others_in_after_its_quantum,
    a_key_with_a_long_line_lets_others_in_after_its_quantum,
    many_keys_ahead_cost_a_quantum_each,
    rollups_readers_barriers_and_free_tasks_get_through_to_a_busy_pool,
);

const HOT: u32 = 0;

fn pool_with_quantum<S: AnyHasher>(workers: usize, tasks: usize) -> Arc<Pool<u32, S>> {
    let pool = Pool::<u32>::builder()
        .workers(workers)
        // The test counts tasks: no turn ends by the clock.
        .quantum(tasks, LONG)
        .hasher(S::default())
        .build()
        .unwrap();
    Arc::new(pool)
}

/// Tiny tasks that a worker may run in one shard of the keys before it looks at the others.
fn slack<S: AnyHasher>() -> usize {
    if TypeId::of::<S>() == TypeId::of::<Collide>() { 0 } else { 64 }
}

/// The tasks of `HOT` that began between a submission and a begin.
#[derive(Clone, Default)]
struct Counter(Arc<AtomicUsize>);

impl Counter {
    fn count(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn now(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// Each task submits the next one, so the key is never without one.
fn feed<S: AnyHasher>(pool: Weak<Pool<u32, S>>, key: u32, ran: Counter, stop: Arc<AtomicBool>) {
    ran.count();
    if stop.load(Ordering::SeqCst) {
        return;
    }
    if let Some(own) = pool.upgrade() {
        // Refused when the pool is closed, and then it ends as well.
        let _ = own.execute(key, move || feed(pool, key, ran, stop));
    }
}

fn a_key_that_feeds_itself_lets_others_in_after_its_quantum<S: AnyHasher>() {
    for quantum in [1, 8, 64] {
        let pool = pool_with_quantum::<S>(1, quantum);
        let (ran, stop) = (Counter::default(), Arc::<AtomicBool>::default());
        let (own, count, end) = (Arc::downgrade(&pool), ran.clone(), stop.clone());
        // Two chains, so that there is always one behind the other in the lane.
        for _ in 0..2 {
            let (own, count, end) = (own.clone(), count.clone(), end.clone());
            pool.execute(HOT, move || feed(own, HOT, count, end)).unwrap();
        }
        for other in 1..40 {
            // Submitted from inside the hot key's own task, so that the count is exact.
            let (own, count) = (Arc::downgrade(&pool), ran.clone());
            let waited = Log::new();
            let (log, begun) = (waited.clone(), Gate::new());
            let runs = begun.clone();
            let submit = move || {
                let (submitted, count) = (count.now(), count.clone());
                let work = move || {
                    log.push(count.now() - submitted);
                    runs.open();
                };
                own.upgrade().expect("it is in use").execute(other, work).unwrap();
            };
            pool.execute(HOT, submit).unwrap();
            begun.pass();
            let waited = waited.take()[0];
            // The rest of the turn that submits, and one more that waited already. And one more if
            // the hashes are equal: the recent runs of a key are counted by its hash.
            let most = 3 * quantum + slack::<S>();
            assert!(waited <= most, "{waited} tasks of the hot key, quantum {quantum}");
        }
        stop.store(true, Ordering::SeqCst);
        drop(end);
        pool.shutdown().unwrap();
    }
}

/// A chain of linked tasks ran to its end on its worker (the first article's defect): a task that
/// came while a thousand tasks of a key waited ran after all of them.
fn a_key_with_a_long_line_lets_others_in_after_its_quantum<S: AnyHasher>() {
    for quantum in [1, 8, 64] {
        let pool = pool_with_quantum::<S>(1, quantum);
        let held = hold(&pool, HOT);
        let ran = Counter::default();
        for _ in 0..1_000 {
            let ran = ran.clone();
            pool.execute(HOT, move || ran.count()).unwrap();
        }
        let count = ran.clone();
        let other = pool.submit(1, move || count.now()).unwrap();
        held.let_go();
        let waited = other.wait().unwrap().unwrap();
        let most = quantum + slack::<S>();
        assert!(waited <= most, "{waited} tasks of the hot key, quantum {quantum}");
        pool.shutdown().unwrap();
    }
}

/// A task waits for the tasks before it and, of later ones, for at most a quantum of each key.
fn many_keys_ahead_cost_a_quantum_each<S: AnyHasher>() {
    const QUANTUM: usize = 4;
    const KEYS: usize = 10;
    let pool = pool_with_quantum::<S>(1, QUANTUM);
    let (ran, stop) = (Counter::default(), Arc::<AtomicBool>::default());
    for chain in 0..2 * KEYS {
        let (own, count, end) = (Arc::downgrade(&pool), ran.clone(), stop.clone());
        let key = chain as u32 / 2;
        pool.execute(key, move || feed(own, key, count, end)).unwrap();
    }
    for _ in 0..40 {
        let (own, count) = (Arc::downgrade(&pool), ran.clone());
        let (waited, begun) = (Log::new(), Gate::new());
        let (log, runs) = (waited.clone(), begun.clone());
        let submit = move || {
            let (submitted, count) = (count.now(), count.clone());
            let work = move || {
                log.push(count.now() - submitted);
                runs.open();
            };
            own.upgrade().expect("it is in use").execute(KEYS as u32, work).unwrap();
        };
        pool.execute(HOT, submit).unwrap();
        begun.pass();
        let waited = waited.take()[0];
        // From shard to shard a worker takes a slice of tiny tasks each.
        let most = QUANTUM * (KEYS + 1) + 8 * slack::<S>();
        assert!(waited <= most, "{waited} tasks of {KEYS} keys, quantum {QUANTUM}");
    }
    stop.store(true, Ordering::SeqCst);
    pool.shutdown().unwrap();
}

fn rollups_readers_barriers_and_free_tasks_get_through_to_a_busy_pool<S: AnyHasher>() {
    for workers in [1, 2] {
        let pool = pool_with_quantum::<S>(workers, 16);
        let (ran, stop) = (Counter::default(), Arc::<AtomicBool>::default());
        for key in 0..6 {
            let (own, ran, stop) = (Arc::downgrade(&pool), ran.clone(), stop.clone());
            pool.execute(key, move || feed(own, key, ran, stop)).unwrap();
        }
        for _ in 0..30 {
            for claims in [
                Claims::none(),
                Claims::exclusive(0).and_exclusive(1),
                Claims::shared(2),
                Claims::shared(3).and_exclusive(99),
                Claims::barrier(),
            ] {
                assert!(pool.submit(claims, || {}).unwrap().wait().unwrap().is_completed());
            }
        }
        stop.store(true, Ordering::SeqCst);
        pool.shutdown().unwrap();
    }
}

/// The quantum of time: a lane with long tasks yields although its count is far from used up.
#[test]
fn a_lane_yields_when_its_time_is_over() {
    soon(|| {
        let pool: Pool<u32, Collide> = Pool::<u32>::builder()
            .workers(1)
            .quantum(1_000_000, Duration::from_micros(1))
            .hasher(Collide)
            .build()
            .unwrap();
        let ran = Counter::default();
        let held = hold(&pool, HOT);
        for _ in 0..200 {
            let ran = ran.clone();
            pool.execute(HOT, move || {
                ran.count();
                let begun = std::time::Instant::now();
                while begun.elapsed() < Duration::from_micros(30) {}
            })
            .unwrap();
        }
        let count = ran.clone();
        let other = pool.submit(1, move || count.now()).unwrap();
        held.let_go();
        // Long tasks are looked at one by one; the first of them used its time up.
        assert!(other.wait().unwrap().unwrap() <= 66);
    });
}

/// Messages are served by the same rules.
#[test]
fn no_key_of_a_handler_starves() {
    soon(|| {
        let ran = Counter::default();
        let (count, seen) = (ran.clone(), Log::new());
        let log = seen.clone();
        let gate = Gate::new();
        let wait = gate.clone();
        let pool = Pool::<u32>::builder()
            .workers(1)
            .quantum(8, LONG)
            .hasher(Collide)
            .build_handler(move |&key: &u32, first: bool| {
                if first {
                    wait.pass();
                } else if key == HOT {
                    count.count();
                } else {
                    log.push(count.now());
                }
            })
            .unwrap();
        pool.send(HOT, true).unwrap();
        pool.send_many((0..1_000).map(|_| (HOT, false))).unwrap();
        pool.send(1, false).unwrap();
        gate.open();
        pool.shutdown().unwrap();
        let waited = seen.take()[0];
        assert!(waited <= 8, "{waited} of the hot key");
    });
}
