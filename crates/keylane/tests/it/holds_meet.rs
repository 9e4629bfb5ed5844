//! Reasons for pausing a key meet: pauses, rates, taking waiting tasks, and the subtasks of jobs.
//!
//! A rate resumes at most as many of the tasks that share or limit a key as there are tokens, and
//! keeps the others back meanwhile. So a paused key could have tasks that wait for a worker alone.
//! A pause assumed that there are none, and they began after it; taking waiting tasks put them
//! before the pause marker, which then let everything through, or kept a barrier waiting forever.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{AnyHasher, eventually, hold, with_every_hasher};
use keylane::{Claims, MockClock, OnFailure, Pool, Rate};

with_every_hasher!(
    taking_a_key_leaves_the_rate_of_a_jobs_sharing_subtasks,
    taking_a_key_leaves_the_rate_of_a_jobs_limiting_subtasks,
    a_pause_calls_back_what_a_token_has_let_go,
    a_smaller_burst_calls_back_what_a_token_has_let_go,
    a_stop_for_failures_calls_back_what_a_token_has_let_go,
    a_pause_costs_no_token,
    a_paused_key_keeps_back_what_a_paused_job_was_granted,
    a_paused_key_keeps_back_subtasks_that_limit_it,
    a_stopped_key_keeps_back_what_a_paused_job_was_granted,
);

const A: u32 = 1;
const B: u32 = 2;
const SECOND: Duration = Duration::from_secs(1);

/// A pool where key `A` has a rate of one task a second.
struct World<S: AnyHasher> {
    pool: Pool<u32, S>,
    clock: MockClock,
    workers: usize,
    begun: Arc<AtomicUsize>,
}

impl<S: AnyHasher> World<S> {
    fn new() -> Self {
        World::with_burst(1, 1)
    }

    /// All tokens of `A` were taken.
    fn with_burst(workers: usize, burst: u32) -> Self {
        let clock = MockClock::new();
        let builder = Pool::<u32>::builder().workers(workers).clock(&clock);
        let on_failure = OnFailure::StopKey { after: 1 };
        let pool = builder.on_failure(on_failure).hasher(S::default()).build().unwrap();
        pool.keys().set_rate(&A, Some(Rate::every(SECOND).burst(burst))).unwrap();
        for _ in 0..burst {
            assert!(pool.submit(A, || {}).unwrap().wait().unwrap().is_completed());
        }
        World { pool, clock, workers, begun: Arc::default() }
    }

    fn body(&self) -> impl FnOnce() + Send + 'static {
        let begun = self.begun.clone();
        move || _ = begun.fetch_add(1, Ordering::SeqCst)
    }

    /// No worker has anything to do.
    fn rest(&self) {
        eventually(|| self.pool.inspect().snapshot(0).workers_asleep == self.workers);
    }

    fn begun(&self) -> usize {
        self.rest();
        self.begun.load(Ordering::SeqCst)
    }

    /// A token comes for a task that waits, while the worker is busy elsewhere.
    fn token_comes(&self) -> crate::common::HeldKey {
        let busy = hold(&self.pool, B);
        self.clock.advance(SECOND);
        eventually(|| self.pool.keys().paused(&A).is_some_and(|held| held.running == 1));
        busy
    }
}

fn taking_a_key_leaves_the_rate<S: AnyHasher>(claims: Claims<u32>) {
    let world = World::<S>::new();
    let pieces: Vec<_> = (0..4).map(|_| (claims.clone(), world.body())).collect();
    let job = world.pool.job("sharing").each_keyed(pieces).run().unwrap();
    eventually(|| job.progress().waiting == 4);
    world.rest();
    let busy = world.token_comes();
    assert!(world.pool.keys().take(&A).is_empty());
    busy.let_go();
    for expected in 1..=4 {
        assert_eq!(world.begun(), expected);
        world.clock.advance(SECOND);
        if expected < 4 {
            eventually(|| world.begun.load(Ordering::SeqCst) > expected);
        }
    }
    assert!(job.wait().unwrap().is_completed());
    eventually(|| world.pool.keys().list_paused().is_empty());
    assert!(world.pool.submit(Claims::barrier(), || {}).unwrap().wait().unwrap().is_completed());
}

fn taking_a_key_leaves_the_rate_of_a_jobs_sharing_subtasks<S: AnyHasher>() {
    taking_a_key_leaves_the_rate::<S>(Claims::shared(A));
}

fn taking_a_key_leaves_the_rate_of_a_jobs_limiting_subtasks<S: AnyHasher>() {
    taking_a_key_leaves_the_rate::<S>(Claims::limited(A, 3));
}

/// Two tasks share the key, and one of them has been let go for a token that has come.
fn one_of_two_was_let_go<S: AnyHasher>() -> (World<S>, crate::common::HeldKey) {
    let world = World::new();
    for _ in 0..2 {
        world.pool.execute(Claims::shared(A), world.body()).unwrap();
    }
    world.rest();
    let busy = world.token_comes();
    (world, busy)
}

fn a_pause_calls_back_what_a_token_has_let_go<S: AnyHasher>() {
    let (world, busy) = one_of_two_was_let_go::<S>();
    assert!(world.pool.keys().pause(&A));
    assert_eq!(world.pool.keys().paused(&A).unwrap().running, 0);
    busy.let_go();
    assert_eq!(world.begun(), 0);
    world.clock.advance(5 * SECOND);
    assert_eq!(world.begun(), 0);
    world.pool.keys().resume(&A);
    eventually(|| world.begun.load(Ordering::SeqCst) == 1);
    world.clock.advance(SECOND);
    world.pool.shutdown().unwrap();
}

fn a_smaller_burst_calls_back_what_a_token_has_let_go<S: AnyHasher>() {
    let world = World::<S>::with_burst(1, 3);
    for _ in 0..3 {
        world.pool.execute(Claims::shared(A), world.body()).unwrap();
    }
    world.rest();
    let busy = world.token_comes();
    // The bucket is empty now: it holds one token, and lacks two.
    world.pool.keys().set_rate(&A, Some(Rate::every(SECOND))).unwrap();
    assert_eq!(world.pool.keys().paused(&A).unwrap().running, 0);
    busy.let_go();
    for expected in 0..3 {
        assert_eq!(world.begun(), expected);
        world.clock.advance(SECOND);
        eventually(|| world.begun.load(Ordering::SeqCst) > expected);
    }
    world.pool.shutdown().unwrap();
}

fn a_stop_for_failures_calls_back_what_a_token_has_let_go<S: AnyHasher>() {
    let world = World::<S>::with_burst(2, 1);
    let (fail, begun) = (crate::common::Gate::new(), crate::common::Gate::new());
    let (pass, begins) = (fail.clone(), begun.clone());
    world.clock.advance(SECOND);
    let failing = world.pool.task(Claims::shared(A)).fallible().submit(move || {
        begins.open();
        pass.pass();
        Err::<(), _>("on purpose")
    });
    begun.pass();
    for _ in 0..2 {
        world.pool.execute(Claims::shared(A), world.body()).unwrap();
    }
    // The other worker has put them into their line.
    eventually(|| world.pool.inspect().snapshot(0).workers_asleep == 1);
    let busy = hold(&world.pool, B);
    world.clock.advance(SECOND);
    eventually(|| world.pool.keys().paused(&A).is_some_and(|held| held.running == 2));
    fail.open();
    failing.unwrap().wait().unwrap();
    eventually(|| !world.pool.keys().list_stopped().is_empty());
    busy.let_go();
    assert_eq!(world.begun(), 0);
    world.pool.keys().resume(&A);
    eventually(|| world.begun.load(Ordering::SeqCst) == 1);
    world.clock.advance(SECOND);
    world.pool.shutdown().unwrap();
}

/// A task that a pause has called back had taken no token, so it begins at once when the key is
/// resumed.
fn a_pause_costs_no_token<S: AnyHasher>() {
    let (world, busy) = one_of_two_was_let_go::<S>();
    assert!(world.pool.keys().pause(&A));
    assert!(world.pool.keys().resume(&A));
    busy.let_go();
    eventually(|| world.begun.load(Ordering::SeqCst) == 1);
    assert_eq!(world.begun(), 1);
    world.clock.advance(SECOND);
    world.pool.shutdown().unwrap();
}

/// A job's subtasks with these claims have the key, and wait for a worker, for their job is paused.
fn granted_to_a_paused_job<S: AnyHasher>(
    pool: &Pool<u32, S>,
    claims: &Claims<u32>,
    subtasks: usize,
    begun: &Arc<AtomicUsize>,
) -> keylane::Job<()> {
    let before = hold(pool, A);
    let piece = |_| {
        let begun = begun.clone();
        (claims.clone(), move || _ = begun.fetch_add(1, Ordering::SeqCst))
    };
    let pieces: Vec<_> = (0..subtasks).map(piece).collect();
    let job = pool.job("paused").each_keyed(pieces).run().unwrap();
    eventually(|| job.progress().waiting == subtasks as u64);
    assert!(job.pause());
    before.let_go();
    eventually(|| job.progress().ready != 0);
    eventually(|| pool.inspect().snapshot(0).workers_asleep == 2);
    job
}

fn keeps_back<S: AnyHasher>(claims: Claims<u32>, subtasks: usize, stops: bool) {
    let builder = Pool::<u32>::builder().workers(2).hasher(S::default());
    let pool = builder.on_failure(OnFailure::StopKey { after: 1 }).build().unwrap();
    let begun = Arc::new(AtomicUsize::new(0));
    let job = granted_to_a_paused_job(&pool, &claims, subtasks, &begun);
    match stops {
        true => {
            let failing =
                pool.task(Claims::shared(A)).fallible().submit(|| Err::<(), _>("on purpose"));
            failing.unwrap().wait().unwrap();
            eventually(|| pool.keys().list_stopped().len() == 1);
        }
        false => assert!(pool.keys().pause(&A)),
    }
    assert!(job.resume());
    eventually(|| pool.inspect().snapshot(0).workers_asleep == 2);
    assert_eq!(begun.load(Ordering::SeqCst), 0);
    assert_eq!(pool.keys().paused(&A).unwrap().running, 0);
    let progress = job.progress();
    assert_eq!((progress.ready, progress.running), (0, 0), "{progress:?}");
    // A barrier waits for the tasks that wait there, and nothing is lost.
    let barrier = pool.submit(Claims::barrier(), || {}).unwrap();
    assert!(pool.keys().take(&A).is_empty());
    assert!(pool.keys().resume(&A));
    assert!(job.wait().unwrap().is_completed());
    assert_eq!(begun.load(Ordering::SeqCst), subtasks);
    assert!(barrier.wait().unwrap().is_completed());
    eventually(|| pool.inspect().snapshot(9).hottest.is_empty());
}

fn a_paused_key_keeps_back_what_a_paused_job_was_granted<S: AnyHasher>() {
    keeps_back::<S>(Claims::exclusive(A), 3, false);
}

fn a_paused_key_keeps_back_subtasks_that_limit_it<S: AnyHasher>() {
    keeps_back::<S>(Claims::limited(A, 2), 4, false);
}

fn a_stopped_key_keeps_back_what_a_paused_job_was_granted<S: AnyHasher>() {
    keeps_back::<S>(Claims::shared(A), 3, true);
}
