//! Jobs, tasks, rollups and barriers at random, with cancels, pauses and changes of size in
//! between: nothing runs twice, no two that conflict overlap, each key sees its tasks in the order
//! of submission, and every handle ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;

use crate::common::{AnyHasher, Rng, pool_of, with_every_hasher};
use keylane::{Claims, Job, OnError, Outcome, Pool, ResultOrder};

with_every_hasher!(jobs_and_tasks_at_random);

const KEYS: u64 = 6;
const SUBMITTERS: u64 = 3;

/// State of each key: the running tasks, and the last task of each stream there.
struct World {
    inside: Vec<AtomicUsize>,
    last: Vec<Vec<AtomicU64>>,
    /// Everything that runs; a barrier must find itself alone.
    running: AtomicUsize,
}

impl World {
    fn new(streams: u64) -> Arc<Self> {
        Arc::new(World {
            inside: (0..KEYS).map(|_| AtomicUsize::new(0)).collect(),
            last: (0..KEYS).map(|_| (0..streams).map(|_| AtomicU64::new(0)).collect()).collect(),
            running: AtomicUsize::new(0),
        })
    }

    /// Number `n` of a stream, which counts up, runs on these keys.
    fn visit(&self, stream: u64, n: u64, keys: &[u32]) {
        self.running.fetch_add(1, Ordering::SeqCst);
        for &key in keys {
            let others = self.inside[key as usize].fetch_add(1, Ordering::SeqCst);
            assert_eq!(others, 0, "two on key {key}");
            let last = &self.last[key as usize][stream as usize];
            assert!(last.swap(n, Ordering::SeqCst) < n, "out of order on key {key}");
        }
        for &key in keys {
            self.inside[key as usize].fetch_sub(1, Ordering::SeqCst);
        }
        self.running.fetch_sub(1, Ordering::SeqCst);
    }

    fn be_alone(&self) {
        assert_eq!(self.running.fetch_add(1, Ordering::SeqCst), 0, "a barrier is not alone");
        self.running.fetch_sub(1, Ordering::SeqCst);
    }
}

fn some_keys(rng: &mut Rng) -> Vec<u32> {
    let mut keys: Vec<u32> = (0..=rng.below(3)).map(|_| rng.below(KEYS) as u32).collect();
    keys.sort_unstable();
    keys.dedup();
    keys.truncate(rng.below(4) as usize);
    keys
}

fn jobs_and_tasks_at_random<S: AnyHasher>() {
    for seed in 0..6 {
        let mut rng = Rng(seed * 1000 + 7);
        let pool = Arc::new(pool_of::<S>(1 + rng.below(4) as usize));
        pool.jobs().start_decision_log(500);
        let rounds = 60;
        // A stream for each submitter's tasks, and one for each job.
        let world = World::new(SUBMITTERS * (rounds + 1));
        let over = Arc::new(AtomicBool::new(false));
        let resizer = {
            let (pool, over) = (pool.clone(), over.clone());
            let mut rng = Rng(seed);
            thread::spawn(move || {
                while !over.load(Ordering::SeqCst) {
                    pool.settings().set_workers(1 + rng.below(5) as usize).unwrap();
                    thread::yield_now();
                }
            })
        };
        let submitters: Vec<_> = (0..SUBMITTERS)
            .map(|me| {
                let (pool, world) = (pool.clone(), world.clone());
                thread::spawn(move || submit(&pool, &world, me, rounds, Rng(seed * 77 + me)))
            })
            .collect();
        let jobs: Vec<Job<u64, u64>> =
            submitters.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        if seed % 2 == 0 {
            pool.shutdown().unwrap();
            assert!(jobs.iter().all(Job::is_finished));
        }
        for job in jobs {
            if let Outcome::Panicked(payload) = job.wait().unwrap() {
                panic!("{}", payload.message().unwrap_or("?"));
            }
        }
        over.store(true, Ordering::SeqCst);
        resizer.join().unwrap();
        assert!(pool.jobs().list().is_empty());
        pool.jobs().decision_log().unwrap().replay().unwrap();
        assert_eq!(pool.inspect().snapshot(0).panicked, 0);
    }
}

fn submit<S: AnyHasher>(
    pool: &Pool<u32, S>,
    world: &Arc<World>,
    me: u64,
    rounds: u64,
    mut rng: Rng,
) -> Vec<Job<u64, u64>> {
    let mut jobs: Vec<Job<u64, u64>> = Vec::new();
    for round in 1..=rounds {
        match rng.below(10) {
            0 => {
                let world = world.clone();
                pool.execute(Claims::barrier(), move || world.be_alone()).unwrap();
            }
            1..=3 => {
                let keys = some_keys(&mut rng);
                let (world, on) = (world.clone(), keys.clone());
                pool.execute(keys, move || world.visit(me, round, &on)).unwrap();
            }
            _ => {
                let stream = SUBMITTERS + me * rounds + round - 1;
                jobs.push(submit_job(pool, world, stream, &mut rng));
            }
        }
        if !jobs.is_empty() {
            let one = &jobs[rng.below(jobs.len() as u64) as usize];
            match rng.below(8) {
                0 => one.cancel(),
                1 => {
                    one.pause();
                    one.progress();
                    one.resume();
                }
                2 => {
                    one.set_weight(rng.below(5) as u32);
                }
                _ => {}
            }
        }
    }
    jobs
}

fn submit_job<S: AnyHasher>(
    pool: &Pool<u32, S>,
    world: &Arc<World>,
    stream: u64,
    rng: &mut Rng,
) -> Job<u64, u64> {
    let count = rng.below(300);
    let keyed = rng.below(3);
    let fails_at = if rng.below(3) == 0 { rng.below(300) } else { u64::MAX };
    let order = [ResultOrder::Completion, ResultOrder::Submission][rng.below(2) as usize];
    let on_error = [OnError::FailFast, OnError::FinishAll][rng.below(2) as usize];
    let (world, mut keys_of) = (world.clone(), Rng(rng.next()));
    let pieces = (1..=count).map(move |n| {
        let keys = match keyed {
            0 => Vec::new(),
            1 => some_keys(&mut keys_of),
            _ => vec![keys_of.below(KEYS) as u32],
        };
        let (world, on) = (world.clone(), keys.clone());
        let work = move || {
            world.visit(stream, n, &on);
            if n == fails_at { Err(n) } else { Ok(n) }
        };
        (keys, work)
    });
    let builder =
        pool.job("random").result_order(order).on_error(on_error).weight(rng.below(3) as u32);
    let mut last = 0;
    let fold = move |sum, n| {
        assert!(matches!(order, ResultOrder::Completion) || n > last, "folded out of order");
        last = n;
        sum + n
    };
    builder.try_each_keyed(pieces).fold(0, fold).map_err(|refused| refused.kind()).unwrap()
}
