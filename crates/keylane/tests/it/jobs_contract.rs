//! The whole contract with everything at once: tasks, rollups, readers, barriers, and jobs whose
//! subtasks have keys, of several submitters, against a slow obvious model.
//!
//! Every event takes a stamp from one clock that counts up. In the end the model looks at each pair
//! of bodies:
//!
//! - if they conflict, they never ran at the same time;
//! - if they conflict, and one was submitted before the submission of the other began, it ran
//!   first. A subtask is submitted between the moment when its splitter has yielded it and the
//!   moment when the splitter is called again, or has ended;
//! - each body that was not cancelled ran exactly once, and a cancelled one at most once;
//! - a job's result is that of its subtasks, and comes after the last of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::common::{AnyHasher, Rng, lock, pool_of, with_every_hasher};
use keylane::{Claims, IntoClaims, Job, Outcome, Pool, ResultOrder};

const KEYS: u64 = 5;
const SUBMITTERS: u64 = 3;

with_every_hasher!(everything_at_once_keeps_the_contract,);

/// Claims of a body.
#[derive(Clone, Debug, PartialEq)]
enum Asks {
    Alone(Vec<u32>),
    Shared(u32),
    Everything,
    Nothing,
}

impl Asks {
    fn at_random(rng: &mut Rng) -> Asks {
        match rng.below(20) {
            0 => Asks::Everything,
            1..4 => Asks::Nothing,
            4..8 => Asks::Shared(rng.below(KEYS) as u32),
            _ => {
                let mut keys: Vec<u32> =
                    (0..1 + rng.below(3)).map(|_| rng.below(KEYS) as u32).collect();
                keys.sort_unstable();
                keys.dedup();
                Asks::Alone(keys)
            }
        }
    }

    fn claims(&self) -> Claims<u32> {
        match self {
            Asks::Alone(keys) => keys.clone().into_claims(),
            Asks::Shared(key) => Claims::shared(*key),
            Asks::Everything => Claims::barrier(),
            Asks::Nothing => Claims::none(),
        }
    }

    fn conflicts_with(&self, other: &Asks) -> bool {
        match (self, other) {
            (Asks::Everything, _) | (_, Asks::Everything) => true,
            (Asks::Alone(mine), Asks::Alone(others)) => mine.iter().any(|key| others.contains(key)),
            (Asks::Alone(keys), Asks::Shared(key)) | (Asks::Shared(key), Asks::Alone(keys)) => {
                keys.contains(key)
            }
            _ => false,
        }
    }
}

/// A body, and when what happened to it.
#[derive(Clone, Debug)]
struct Body {
    asks: Asks,
    /// The submission was somewhere between these.
    submitted: (u64, u64),
    /// When it began and ended, for each time that it ran.
    ran: Vec<(u64, u64)>,
    /// Its job was cancelled, so that it need not run.
    may_be_dropped: bool,
    /// A barrier is no one's neighbour; a subtask without keys enters the order only as it runs.
    is_free_subtask: bool,
}

#[derive(Default)]
struct World {
    clock: AtomicU64,
    bodies: Mutex<Vec<Body>>,
}

impl World {
    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// A body that is about to be submitted.
    fn add(&self, asks: Asks, is_free_subtask: bool) -> usize {
        let mut bodies = lock(&self.bodies);
        let submitted = (self.now(), u64::MAX);
        let ran = Vec::new();
        bodies.push(Body { asks, submitted, ran, may_be_dropped: false, is_free_subtask });
        bodies.len() - 1
    }

    fn was_submitted(&self, body: usize) {
        let now = self.now();
        lock(&self.bodies)[body].submitted.1 = now;
    }

    fn run(&self, body: usize) -> usize {
        let began = self.now();
        if began.is_multiple_of(7) {
            thread::yield_now();
        }
        let ended = self.now();
        lock(&self.bodies)[body].ran.push((began, ended));
        body
    }

    fn check(&self) {
        let bodies = lock(&self.bodies);
        for body in &*bodies {
            let least = usize::from(!body.may_be_dropped);
            assert!((least..=1).contains(&body.ran.len()), "{body:?}");
        }
        let ran: Vec<&Body> = bodies.iter().filter(|body| !body.ran.is_empty()).collect();
        for (number, one) in ran.iter().enumerate() {
            for other in &ran[number + 1..] {
                if one.asks.conflicts_with(&other.asks) {
                    check_pair(one, other);
                    check_pair(other, one);
                }
            }
        }
    }
}

fn check_pair(one: &Body, other: &Body) {
    let ((began, ended), (others_began, _)) = (one.ran[0], other.ran[0]);
    assert!(ended < others_began || others_began < began, "at the same time: {one:?} {other:?}");
    // A barrier and a subtask without keys exclude each other; their order is not specified.
    let in_order = !one.is_free_subtask && !other.is_free_subtask;
    if in_order && one.submitted.1 < other.submitted.0 {
        assert!(ended < others_began, "overtaken: {one:?} {other:?}");
    }
}

fn everything_at_once_keeps_the_contract<S: AnyHasher>() {
    for seed in 0..12 {
        let mut rng = Rng(seed * 31 + 5);
        let pool = Arc::new(pool_of::<S>(1 + rng.below(4) as usize));
        let world = Arc::new(World::default());
        let submitters: Vec<_> = (0..SUBMITTERS)
            .map(|me| {
                let (pool, world) = (pool.clone(), world.clone());
                thread::spawn(move || submit(&pool, &world, &mut Rng(seed * 100 + me)))
            })
            .collect();
        submitters.into_iter().for_each(|thread| thread.join().unwrap());
        pool.shutdown().unwrap();
        world.check();
        let left = pool.inspect().snapshot(10);
        assert_eq!((left.unfinished, left.panicked, left.hottest.len()), (0, 0, 0));
        assert!(pool.jobs().list().is_empty());
    }
}

fn submit<S: AnyHasher>(pool: &Pool<u32, S>, world: &Arc<World>, rng: &mut Rng) {
    let mut jobs = Vec::new();
    for _ in 0..40 {
        if rng.below(4) == 0 {
            jobs.push(submit_job(pool, world, rng));
            continue;
        }
        let asks = Asks::at_random(rng);
        let body = world.add(asks.clone(), false);
        let inside = world.clone();
        pool.execute(asks.claims(), move || _ = inside.run(body)).unwrap();
        world.was_submitted(body);
    }
    jobs.into_iter().for_each(|job| job.check(world));
}

struct Submitted {
    job: Job<Vec<usize>>,
    /// Its bodies, in the order of the splitter.
    bodies: Arc<Mutex<Vec<usize>>>,
    was_cancelled: bool,
}

fn submit_job<S: AnyHasher>(pool: &Pool<u32, S>, world: &Arc<World>, rng: &mut Rng) -> Submitted {
    let bodies = Arc::<Mutex<Vec<usize>>>::default();
    let (mut seeds, inside, list) = (Rng(rng.next()), world.clone(), bodies.clone());
    let mut left = rng.below(60);
    let pieces = std::iter::from_fn(move || {
        // Asked again: the one before has been entered.
        if let Some(&last) = lock(&list).last() {
            inside.was_submitted(last);
        }
        left = left.checked_sub(1)?;
        let asks = Asks::at_random(&mut seeds);
        let body = inside.add(asks.clone(), asks == Asks::Nothing);
        lock(&list).push(body);
        let world = inside.clone();
        Some((asks.claims(), move || world.run(body)))
    });
    let job = pool
        .job("mixed")
        .result_order(ResultOrder::Submission)
        .each_keyed(pieces)
        .collect()
        .unwrap();
    match rng.below(6) {
        0 => {
            job.pause();
            job.resume();
        }
        1 => drop(job.set_weight(rng.below(5) as u32)),
        _ => {}
    }
    let was_cancelled = rng.below(6) == 0;
    if was_cancelled {
        job.cancel();
    }
    Submitted { job, bodies, was_cancelled }
}

impl Submitted {
    fn check(self, world: &World) {
        let outcome = self.job.wait().unwrap();
        let waited = world.now();
        let numbers = lock(&self.bodies);
        let mut bodies = lock(&world.bodies);
        for &body in &*numbers {
            assert!(bodies[body].ran.iter().all(|(_, ended)| *ended < waited), "told too early");
            bodies[body].may_be_dropped = self.was_cancelled;
        }
        match outcome {
            Outcome::Completed(ran) => assert_eq!(ran, *numbers, "in the order of the splitter"),
            Outcome::Cancelled => assert!(self.was_cancelled),
            other => panic!("{other:?}"),
        }
    }
}
