//! Tasks begin no more often than their rates allow, and as often as that; nothing else waits for
//! it.
//!
//! The time is passed by the tests. A task is charged when it is taken, by the time that it is
//! then, so a test lets time pass only when all has begun that may.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::{AnyHasher, Log, eventually, hold, soon, with_every_hasher, with_turns};
use keylane::observe::{KeyHolder, PauseReason, PoolReason, TaskState};
use keylane::{Builder, Claims, Handle, MockClock, OnFailure, Pool, Rate, WaitError};

with_every_hasher!(
    a_key_begins_its_burst_and_then_one_by_one_in_order,
    no_other_key_waits,
    a_rollup_waits_for_its_limited_key_and_takes_a_token_of_each,
    those_that_share_begin_as_tokens_come,
    those_that_are_limited_in_number_begin_as_tokens_come,
    the_latest_of_a_key_takes_its_place_while_it_waits,
    a_barrier_waits_for_limited_tasks_and_not_for_limited_keys,
    a_paused_key_keeps_its_rate,
    a_stopped_key_keeps_its_rate,
    a_cancelled_task_keeps_its_place,
    what_waits_can_be_taken,
    a_drain_waits_up_to_its_deadline,
    a_stop_returns_exactly_what_has_not_begun,
    a_rate_of_its_own_comes_and_goes,
    the_rate_of_all_keys_changes,
    a_full_bucket_is_forgotten_and_so_is_its_lane,
    the_pool_begins_its_burst_and_then_one_by_one,
    workers_that_find_nothing_take_no_token,
    the_rate_of_the_pool_changes,
    a_pool_that_is_limited_ends,
    subtasks_count_for_the_pool,
    subtasks_with_keys_count_once_for_each,
    a_subtask_that_goes_back_to_its_key_costs_no_token,
    explanations_say_until_when,
);

const A: u32 = 1;
const B: u32 = 2;

const MS: Duration = Duration::from_millis(1);

fn builder<S: AnyHasher>(workers: usize, clock: &MockClock) -> Builder<u32, S> {
    Pool::<u32>::builder().workers(workers).clock(clock).hasher(S::default())
}

/// A pool in which each key may begin so often.
fn limited<S: AnyHasher>(workers: usize, rate: Rate) -> (Pool<u32, S>, MockClock) {
    let clock = MockClock::new();
    let pool = builder::<S>(workers, &clock).rate_per_key(rate).build().unwrap();
    (pool, clock)
}

/// Submits `n` tasks, which log their numbers.
fn submit<S: AnyHasher>(
    pool: &Pool<u32, S>,
    claims: &Claims<u32>,
    log: &Log<usize>,
    count: usize,
) -> Vec<Handle<()>> {
    let one = |n| {
        let log = log.clone();
        pool.submit(claims.clone(), move || log.push(n)).unwrap()
    };
    (0..count).map(one).collect()
}

/// Shows that the workers have looked at all that came before, by tasks that no key's rate
/// concerns: some in each shard.
fn look<S: AnyHasher>(pool: &Pool<u32, S>) {
    for _ in 0..64 {
        assert!(pool.submit(Claims::none(), || {}).unwrap().wait().unwrap().is_completed());
    }
}

fn left<S: AnyHasher>(pool: &Pool<u32, S>, key: u32) -> Option<Duration> {
    match pool.keys().paused(&key)?.hold {
        PauseReason::RateLimited { left } => Some(left),
        _ => None,
    }
}

fn a_key_begins_its_burst_and_then_one_by_one_in_order<S: AnyHasher>() {
    for workers in [1, 3] {
        let (pool, clock) = limited::<S>(workers, Rate::every(10 * MS).burst(3));
        let log = Log::new();
        let tasks = submit(&pool, &Claims::exclusive(A), &log, 8);
        tasks[2].wait_done();
        for (n, next) in tasks.iter().enumerate().skip(3) {
            eventually(|| left(&pool, A) == Some(10 * MS));
            look(&pool);
            clock.advance(10 * MS - Duration::from_nanos(1));
            look(&pool);
            assert_eq!(log.len(), n);
            assert_eq!(left(&pool, A), Some(Duration::from_nanos(1)));
            clock.advance(Duration::from_nanos(1));
            next.wait_done();
        }
        assert_eq!(log.take(), (0..8).collect::<Vec<_>>());
        // Three again, after so long.
        clock.advance(30 * MS);
        let tasks = submit(&pool, &Claims::exclusive(A), &log, 4);
        tasks[2].wait_done();
        look(&pool);
        assert_eq!(log.len(), 3);
    }
}

/// Wait without an interest in the outcome's value.
trait WaitDone {
    fn wait_done(&self);
}

impl WaitDone for Handle<()> {
    #[track_caller]
    fn wait_done(&self) {
        eventually(|| self.is_finished());
    }
}

fn no_other_key_waits<S: AnyHasher>() {
    let (pool, clock) = limited::<S>(1, Rate::every(MS));
    let log = Log::new();
    let tasks = submit(&pool, &Claims::exclusive(A), &log, 100);
    let beside = submit(&pool, &Claims::none(), &log, 100);
    // The one worker is free for all of these, though a hundred wait.
    beside.iter().for_each(WaitDone::wait_done);
    look(&pool);
    tasks[0].wait_done();
    assert_eq!(log.len(), 101);
    eventually(|| pool.inspect().snapshot(0).workers_asleep == 1);
    drop(clock);
}

fn a_rollup_waits_for_its_limited_key_and_takes_a_token_of_each<S: AnyHasher>() {
    let clock = MockClock::new();
    let pool = builder::<S>(2, &clock).build().unwrap();
    pool.keys().set_rate(&A, Some(Rate::every(10 * MS))).unwrap();
    pool.keys().set_rate(&B, Some(Rate::every(10 * MS).burst(2))).unwrap();
    let log = Log::new();
    submit(&pool, &Claims::exclusive(A), &log, 1)[0].wait_done();
    let both = Claims::exclusive(A).and_exclusive(B);
    let rollups = submit(&pool, &both, &log, 2);
    let behind = submit(&pool, &Claims::exclusive(B), &log, 1);
    look(&pool);
    assert_eq!(log.len(), 1, "it has B, and waits for A");
    assert!(left(&pool, B).is_none());
    clock.advance(10 * MS);
    rollups[0].wait_done();
    eventually(|| left(&pool, A) == Some(10 * MS));
    look(&pool);
    assert_eq!(log.len(), 2);
    clock.advance(10 * MS);
    rollups[1].wait_done();
    behind[0].wait_done();
    eventually(|| left(&pool, B).is_some());
}

fn those_that_share_begin_as_tokens_come<S: AnyHasher>() {
    begin_as_tokens_come::<S>(&Claims::shared(A));
}

fn those_that_are_limited_in_number_begin_as_tokens_come<S: AnyHasher>() {
    begin_as_tokens_come::<S>(&Claims::limited(A, 40));
}

fn begin_as_tokens_come<S: AnyHasher>(claims: &Claims<u32>) {
    let (pool, clock) = limited::<S>(3, Rate::every(10 * MS).burst(4));
    let log = Log::new();
    // All of them wait for one, so they get the key together.
    let first = hold(&pool, A);
    let tasks = submit(&pool, claims, &log, 40);
    look(&pool);
    first.let_go();
    let mut begun = 3;
    loop {
        eventually(|| log.len() == begun && left(&pool, A).is_some());
        look(&pool);
        assert_eq!(log.len(), begun);
        if begun == 40 {
            break;
        }
        // As many as there are tokens, now one and now three.
        let more = (40 - begun).min(if begun % 2 == 1 { 1 } else { 3 });
        clock.advance(10 * MS * u32::try_from(more).unwrap());
        begun += more;
    }
    tasks.iter().for_each(WaitDone::wait_done);
    let mut ran = log.take();
    ran.sort_unstable();
    assert_eq!(ran, (0..40).collect::<Vec<_>>());
}

fn the_latest_of_a_key_takes_its_place_while_it_waits<S: AnyHasher>() {
    let (pool, clock) = limited::<S>(2, Rate::every(10 * MS));
    let log = Log::new();
    submit(&pool, &Claims::exclusive(A), &log, 1)[0].wait_done();
    let latest: Vec<_> = (10..13)
        .map(|n| {
            let log = log.clone();
            pool.task(A).latest().submit(move || log.push(n)).unwrap()
        })
        .collect();
    look(&pool);
    clock.advance(10 * MS);
    latest[2].wait_done();
    assert_eq!(log.take(), [0, 12]);
    eventually(|| left(&pool, A) == Some(10 * MS));
}

fn a_barrier_waits_for_limited_tasks_and_not_for_limited_keys<S: AnyHasher>() {
    let (pool, clock) = limited::<S>(2, Rate::every(10 * MS));
    let log = Log::new();
    submit(&pool, &Claims::exclusive(A), &log, 1)[0].wait_done();
    // The key is held, and has no tasks.
    submit(&pool, &Claims::barrier(), &log, 1)[0].wait_done();
    let task = submit(&pool, &Claims::exclusive(A), &log, 1);
    let barrier = submit(&pool, &Claims::barrier(), &log, 1);
    let behind = submit(&pool, &Claims::exclusive(B), &log, 1);
    eventually(|| pool.inspect().snapshot(0).running == 0);
    assert!(!task[0].is_finished() && !barrier[0].is_finished() && !behind[0].is_finished());
    clock.advance(10 * MS);
    behind[0].wait_done();
    assert!(task[0].is_finished() && barrier[0].is_finished());
}

fn a_paused_key_keeps_its_rate<S: AnyHasher>() {
    let (pool, clock) = limited::<S>(2, Rate::every(10 * MS));
    let log = Log::new();
    let tasks = submit(&pool, &Claims::exclusive(A), &log, 3);
    tasks[0].wait_done();
    eventually(|| left(&pool, A).is_some());
    assert!(!pool.keys().resume(&A), "nobody has paused it");
    assert!(left(&pool, A).is_some());
    pool.keys().pause(&A);
    assert!(matches!(pool.keys().paused(&A).unwrap().hold, PauseReason::Paused { .. }));
    assert!(pool.keys().resume(&A));
    look(&pool);
    assert_eq!(log.len(), 1, "its rate still holds it");
    pool.keys().pause(&A);
    clock.advance(10 * MS);
    look(&pool);
    assert_eq!(log.len(), 1, "it is still paused");
    // The timer may have looked at it, or not yet.
    pool.keys().resume(&A);
    tasks[1].wait_done();
    look(&pool);
    assert_eq!(log.len(), 2);
}

fn a_stopped_key_keeps_its_rate<S: AnyHasher>() {
    let clock = MockClock::new();
    let builder = builder::<S>(2, &clock).on_failure(OnFailure::StopKey { after: 1 });
    let pool = builder.rate_per_key(Rate::every(10 * MS)).build().unwrap();
    let failing = pool.task(A).fallible().submit(|| Err::<(), _>("no")).unwrap();
    let next = pool.submit(A, || {}).unwrap();
    failing.wait().unwrap();
    eventually(|| !pool.keys().list_stopped().is_empty());
    pool.keys().resume(&A);
    look(&pool);
    assert!(left(&pool, A).is_some() && !next.is_finished());
    clock.advance(10 * MS);
    next.wait_done();
}

fn a_cancelled_task_keeps_its_place<S: AnyHasher>() {
    let (pool, clock) = limited::<S>(2, Rate::every(10 * MS));
    let log = Log::new();
    let tasks = submit(&pool, &Claims::exclusive(A), &log, 3);
    tasks[0].wait_done();
    tasks[1].cancel();
    assert!(tasks[1].is_finished());
    for _ in 0..2 {
        eventually(|| left(&pool, A) == Some(10 * MS));
        assert_eq!(log.len(), 1);
        clock.advance(10 * MS);
    }
    tasks[2].wait_done();
    assert_eq!(log.take(), [0, 2]);
}

fn what_waits_can_be_taken<S: AnyHasher>() {
    let (pool, clock) = limited::<S>(2, Rate::every(10 * MS));
    let log = Log::new();
    let tasks = submit(&pool, &Claims::exclusive(A), &log, 4);
    tasks[0].wait_done();
    look(&pool);
    assert_eq!(pool.keys().take(&A).len(), 3);
    let next = submit(&pool, &Claims::exclusive(A), &log, 1);
    look(&pool);
    assert_eq!(log.len(), 1, "the token is still missing");
    clock.advance(10 * MS);
    next[0].wait_done();
}

fn a_drain_waits_up_to_its_deadline<S: AnyHasher>() {
    let (pool, clock) = limited::<S>(2, Rate::every(10 * MS));
    let log = Log::new();
    let tasks = submit(&pool, &Claims::exclusive(A), &log, 3);
    tasks[0].wait_done();
    assert_eq!(pool.shutdown_timeout(Duration::ZERO), Err(WaitError::TimedOut));
    let passing = clock.clone();
    let passes = std::thread::spawn(move || {
        for task in &tasks[1..] {
            passing.advance(10 * MS);
            task.wait_done();
        }
    });
    pool.shutdown().unwrap();
    passes.join().unwrap();
    assert_eq!(log.take(), [0, 1, 2]);
}

fn a_stop_returns_exactly_what_has_not_begun<S: AnyHasher>() {
    let (pool, clock) = limited::<S>(2, Rate::every(10 * MS).burst(2));
    let log = Log::new();
    let tasks = submit(&pool, &Claims::exclusive(A), &log, 6);
    tasks[1].wait_done();
    let readers = submit(&pool, &Claims::shared(A), &log, 3);
    look(&pool);
    let unrun = pool.shutdown_now();
    assert_eq!(unrun.len(), 4 + 3);
    clock.advance(Duration::from_secs(1));
    unrun.into_iter().for_each(|task| task.run());
    assert_eq!(log.take(), [0, 1, 2, 3, 4, 5, 0, 1, 2]);
    drop((pool, readers));
}

fn a_rate_of_its_own_comes_and_goes<S: AnyHasher>() {
    let clock = MockClock::new();
    let pool = builder::<S>(2, &clock).build().unwrap();
    let log = Log::new();
    let some = |count| submit(&pool, &Claims::exclusive(A), &log, count);
    pool.keys().set_rate(&A, Some(Rate::every(10 * MS).burst(2))).unwrap();
    let tasks = some(20);
    tasks[1].wait_done();
    eventually(|| left(&pool, A) == Some(10 * MS));
    look(&pool);
    assert_eq!(log.len(), 2);
    // Half of the wait is over; now a wait is ten times as long.
    clock.advance(5 * MS);
    pool.keys().set_rate(&A, Some(Rate::every(100 * MS).burst(2))).unwrap();
    assert_eq!(left(&pool, A), Some(50 * MS));
    // Two of three have been used.
    pool.keys().set_rate(&A, Some(Rate::every(100 * MS).burst(3))).unwrap();
    tasks[2].wait_done();
    look(&pool);
    assert_eq!(log.len(), 3);
    // Changing the rate to and fro does not forget used tokens.
    for _ in 0..5 {
        pool.keys().set_rate(&A, Some(Rate::every(10 * MS).burst(3))).unwrap();
        pool.keys().set_rate(&A, Some(Rate::every(100 * MS).burst(3))).unwrap();
    }
    look(&pool);
    assert_eq!(log.len(), 3);
    pool.keys().set_rate(&A, None).unwrap();
    tasks[19].wait_done();
    assert!(pool.keys().list_paused().is_empty());
    assert_eq!(pool.inspect().snapshot(0).metered_keys, 0);
    // A key that has no tasks can be given one, and a new one has all of its burst.
    pool.keys().set_rate(&A, Some(Rate::every(10 * MS))).unwrap();
    let tasks = some(2);
    tasks[0].wait_done();
    look(&pool);
    assert!(!tasks[1].is_finished());
    clock.advance(10 * MS);
    tasks[1].wait_done();
}

fn the_rate_of_all_keys_changes<S: AnyHasher>() {
    let (pool, clock) = limited::<S>(2, Rate::every(10 * MS));
    pool.keys().set_rate(&B, Some(Rate::every(MS))).unwrap();
    let logs: Vec<_> = (0..50).map(|_| Log::new()).collect();
    let tasks: Vec<_> =
        (0..50).map(|key| submit(&pool, &Claims::exclusive(key), &logs[key as usize], 3)).collect();
    tasks.iter().for_each(|tasks| tasks[0].wait_done());
    look(&pool);
    assert!(logs.iter().all(|log| log.len() == 1));
    clock.advance(5 * MS);
    eventually(|| logs[B as usize].len() == 2);
    pool.settings().set_rate_per_key(Some(Rate::every(2 * MS))).unwrap();
    eventually(|| left(&pool, A) == Some(MS));
    clock.advance(MS);
    tasks.iter().for_each(|tasks| tasks[1].wait_done());
    tasks[B as usize][2].wait_done();
    look(&pool);
    assert!(
        logs.iter().enumerate().all(|(key, log)| log.len() == 2 + usize::from(key == B as usize))
    );
    pool.settings().set_rate_per_key(None).unwrap();
    tasks.iter().for_each(|tasks| tasks[2].wait_done());
    assert_eq!(pool.inspect().snapshot(0).metered_keys, 1, "the one with its own");
}

fn a_full_bucket_is_forgotten_and_so_is_its_lane<S: AnyHasher>() {
    let (pool, clock) = limited::<S>(2, Rate::every(10 * MS).burst(2));
    let last: Vec<_> = (0..3_000).map(|key| pool.submit(key, || {}).unwrap()).collect();
    last.iter().for_each(WaitDone::wait_done);
    assert_eq!(pool.inspect().snapshot(0).metered_keys, 3_000);
    clock.advance(Duration::from_secs(1));
    eventually(|| pool.inspect().snapshot(0).metered_keys == 0);
    let twice: Vec<_> = (0..6_000).map(|n| pool.submit(n / 2, || {}).unwrap()).collect();
    twice.iter().for_each(WaitDone::wait_done);
    eventually(|| pool.keys().list_paused().len() == 3_000);
    clock.advance(Duration::from_secs(1));
    eventually(|| pool.inspect().snapshot(0).metered_keys == 0);
    assert!(pool.keys().list_paused().is_empty());
    // Not at the end alone: a stream of keys needs no more than those whose buckets are not full.
    for round in 0..100 {
        let some: Vec<_> =
            (0..100).map(|n| pool.submit(10_000 + 100 * round + n, || {}).unwrap()).collect();
        some.iter().for_each(WaitDone::wait_done);
        clock.advance(20 * MS);
        assert!(pool.inspect().snapshot(0).metered_keys < 2_500);
    }
}

fn the_pool_begins_its_burst_and_then_one_by_one<S: AnyHasher>() {
    for workers in [1, 4] {
        let clock = MockClock::new();
        let rate = Rate::every(10 * MS).burst(5);
        let pool = builder::<S>(workers, &clock).rate(rate).build().unwrap();
        let begun = Arc::new(AtomicUsize::new(0));
        let claims = [
            Claims::none(),
            Claims::exclusive(A),
            Claims::shared(B),
            Claims::exclusive(A).and_exclusive(B),
        ];
        for n in 0..20 {
            let begun = begun.clone();
            let body = move || _ = begun.fetch_add(1, Ordering::SeqCst);
            pool.execute(claims[n % 4].clone(), body).unwrap();
        }
        for allowed in 5..=20 {
            eventually(|| begun.load(Ordering::SeqCst) == allowed);
            eventually(|| pool.inspect().snapshot(0).workers_asleep == workers);
            assert_eq!(begun.load(Ordering::SeqCst), allowed);
            clock.advance(10 * MS);
        }
        pool.shutdown().unwrap();
    }
}

fn workers_that_find_nothing_take_no_token<S: AnyHasher>() {
    let clock = MockClock::new();
    let pool = builder::<S>(4, &clock).rate(Rate::every(MS).burst(3)).build().unwrap();
    for _ in 0..50 {
        // All workers have looked for something, most of them in vain.
        eventually(|| pool.inspect().snapshot(0).workers_asleep == 4);
        let log = Log::new();
        let tasks = submit(&pool, &Claims::none(), &log, 3);
        tasks.iter().for_each(WaitDone::wait_done);
        clock.advance(3 * MS);
    }
}

fn the_rate_of_the_pool_changes<S: AnyHasher>() {
    let clock = MockClock::new();
    let pool = builder::<S>(2, &clock).build().unwrap();
    let log = Log::new();
    pool.settings().set_rate(Some(Rate::every(10 * MS))).unwrap();
    let tasks = submit(&pool, &Claims::none(), &log, 20);
    eventually(|| log.len() == 1 && pool.inspect().snapshot(0).workers_asleep == 2);
    clock.advance(4 * MS);
    pool.settings().set_rate(Some(Rate::every(MS))).unwrap();
    eventually(|| pool.inspect().snapshot(0).workers_asleep == 2);
    assert_eq!(log.len(), 1, "three fifths of a token are missing");
    clock.advance(MS);
    eventually(|| log.len() == 2 && pool.inspect().snapshot(0).workers_asleep == 2);
    pool.settings().set_rate(Some(Rate::every(MS).burst(4))).unwrap();
    eventually(|| log.len() == 5 && pool.inspect().snapshot(0).workers_asleep == 2);
    pool.settings().set_rate(None).unwrap();
    tasks.iter().for_each(WaitDone::wait_done);
}

fn a_pool_that_is_limited_ends<S: AnyHasher>() {
    let clock = MockClock::new();
    let pool = builder::<S>(2, &clock).rate(Rate::every(MS)).build().unwrap();
    let log = Log::new();
    let tasks = submit(&pool, &Claims::exclusive(A), &log, 6);
    tasks[0].wait_done();
    // Fewer workers, and more, while none may begin anything.
    pool.settings().set_workers(1).unwrap();
    eventually(|| pool.inspect().snapshot(0).workers.len() == 1);
    pool.settings().set_workers(3).unwrap();
    clock.advance(MS);
    tasks[1].wait_done();
    assert_eq!(pool.shutdown_timeout(Duration::ZERO), Err(WaitError::TimedOut));
    let unrun = pool.shutdown_now();
    assert_eq!(unrun.len(), 4);
    drop(unrun);
    assert_eq!(log.take(), [0, 1]);
}

fn subtasks_count_for_the_pool<S: AnyHasher>() {
    let clock = MockClock::new();
    let pool = builder::<S>(2, &clock).rate(Rate::every(MS).burst(2)).build().unwrap();
    let begun = Arc::new(AtomicUsize::new(0));
    let one = {
        let begun = begun.clone();
        move |_| {
            let begun = begun.clone();
            move || _ = begun.fetch_add(1, Ordering::SeqCst)
        }
    };
    let job = pool.job("tiny ones").each((0..12).map(one)).run().unwrap();
    let log = Log::new();
    let beside = submit(&pool, &Claims::exclusive(A), &log, 2);
    let all = || begun.load(Ordering::SeqCst) + log.len();
    for allowed in 2..=14 {
        eventually(|| all() == allowed);
        eventually(|| pool.inspect().snapshot(0).workers_asleep == 2);
        assert_eq!(all(), allowed);
        clock.advance(MS);
    }
    job.wait().unwrap();
    beside.iter().for_each(WaitDone::wait_done);
}

fn subtasks_with_keys_count_once_for_each<S: AnyHasher>() {
    let clock = MockClock::new();
    let rate = Rate::every(MS).burst(3);
    let pool = builder::<S>(2, &clock).rate(rate).build().unwrap();
    pool.keys().set_rate(&A, Some(Rate::every(10 * MS))).unwrap();
    let begun = Log::new();
    let log = begun.clone();
    let one = move |n: u32| {
        let begun = log.clone();
        (if n < 3 { A } else { 10 + n }, move || begun.push(n))
    };
    let job = pool.job("with keys").each_keyed((0..9).map(one)).run().unwrap();
    eventually(|| begun.len() == 3);
    eventually(|| pool.inspect().snapshot(0).workers_asleep == 2);
    assert_eq!(begun.len(), 3);
    assert_eq!(begun.take().iter().filter(|n| **n < 3).count(), 1);
    for _ in 0..4 {
        clock.advance(MS);
        eventually(|| begun.len() == 1);
        eventually(|| pool.inspect().snapshot(0).workers_asleep == 2);
        assert!(begun.take()[0] >= 3);
    }
    for _ in 0..2 {
        clock.advance(10 * MS);
        eventually(|| begun.len() == 1);
        eventually(|| left(&pool, A).is_some());
        assert!(begun.take()[0] < 3);
    }
    job.wait().unwrap();
}

#[test]
fn a_mock_clock_says_how_far_it_was_advanced() {
    let clock = MockClock::new();
    assert_eq!(clock.now(), Duration::ZERO);
    clock.clone().advance(10 * MS);
    clock.advance(MS);
    assert_eq!(clock.now(), 11 * MS);
}

/// Its job is paused when its key is granted, and its key is paused when its job goes on.
fn a_subtask_that_goes_back_to_its_key_costs_no_token<S: AnyHasher>() {
    let clock = MockClock::new();
    // A token for the task before, and one for the subtask.
    let pool = builder::<S>(2, &clock).rate(Rate::every(MS).burst(2)).build().unwrap();
    let before = hold(&pool, A);
    let job = pool.job("paused").each_keyed([(A, || ())]).run().unwrap();
    eventually(|| job.progress().waiting == 1);
    assert!(job.pause());
    before.let_go();
    eventually(|| job.progress().ready == 1);
    assert!(pool.keys().pause(&A) && job.resume());
    eventually(|| job.progress().waiting == 1 && job.progress().running == 0);
    assert!(pool.keys().resume(&A));
    assert!(job.wait().unwrap().is_completed());
    // Both tokens are taken now.
    let next = pool.submit(B, || {}).unwrap();
    eventually(|| pool.inspect().snapshot(0).workers_asleep == 2);
    assert!(!next.is_finished());
    clock.advance(MS);
    assert!(next.wait().unwrap().is_completed());
}

fn explanations_say_until_when<S: AnyHasher>() {
    let (pool, clock) = limited::<S>(2, Rate::every(10 * MS));
    let log = Log::new();
    let tasks = submit(&pool, &Claims::exclusive(A), &log, 3);
    tasks[0].wait_done();
    eventually(|| left(&pool, A).is_some());
    look(&pool);
    // Once all of them have been taken from their inbox.
    let is_limited = |holder: &_| matches!(holder, KeyHolder::Paused(PauseReason::RateLimited { left }) if *left == 10 * MS);
    eventually(|| match pool.inspect().explain(&tasks[2]).state {
        TaskState::Behind(lines) => lines[0].tasks == 1 && is_limited(&lines[0].holder),
        _ => false,
    });
    clock.advance(4 * MS);
    let first = pool.inspect().explain(&tasks[1]).to_string();
    assert!(
        first.starts_with("the next of 1, which is limited by its rate for another 6ms"),
        "{first}"
    );
    let key = pool.inspect().explain_key(&A);
    let is_left = |it| matches!(it, PauseReason::RateLimited { left } if left == 6 * MS);
    assert!(key.hold.is_some_and(is_left), "{key}");
    let reasons = pool.inspect().explain_pool().reasons;
    assert!(reasons.iter().any(|it| matches!(it, PoolReason::KeysRateLimited { keys: 1 })));
    assert!(
        !pool
            .inspect()
            .explain_pool()
            .reasons
            .iter()
            .any(|it| matches!(it, PoolReason::KeysPaused { .. }))
    );

    pool.settings().set_rate_per_key(None).unwrap();
    tasks[2].wait_done();
    pool.settings().set_rate(Some(Rate::every(10 * MS))).unwrap();
    let tasks = submit(&pool, &Claims::exclusive(B), &log, 2);
    tasks[0].wait_done();
    eventually(|| pool.inspect().snapshot(0).workers_asleep == 2);
    clock.advance(4 * MS);
    let state = pool.inspect().explain(&tasks[1]).state;
    assert!(matches!(state, TaskState::RateLimited { left } if left == 6 * MS), "{state}");
    let reasons = pool.inspect().explain_pool().reasons;
    let is_left = |it: &_| matches!(it, PoolReason::RateLimited { left } if *left == 6 * MS);
    assert!(reasons.iter().any(is_left), "{reasons:?}");
}

/// By the system's clock: never sooner, however late.
#[test]
fn the_system_clock_keeps_rates_too() {
    let rate = Rate::every(2 * MS);
    let pool = Pool::<u32>::builder().workers(2).rate_per_key(rate).rate(rate).build().unwrap();
    let log = Log::new();
    let start = Instant::now();
    for _ in 0..20 {
        let log = log.clone();
        pool.execute(A, move || log.push(Instant::now())).unwrap();
    }
    pool.shutdown().unwrap();
    assert!(start.elapsed() >= 19 * 2 * MS);
    assert_eq!(log.len(), 20);
}

thread_local! {
    /// Action of the next key that this thread drops.
    static IN_DROP: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

/// A key whose drop takes its time.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Slow;

impl Drop for Slow {
    fn drop(&mut self) {
        let act = IN_DROP.with_borrow_mut(Option::take);
        act.into_iter().for_each(|act| act());
    }
}

/// A change of rate updates the timer when nothing is locked any more, and drops the key of an
/// ended lane before that. If the key was paused again meanwhile, until the very same time, the
/// wake-up for that was the one that was cancelled, and the key was paused forever.
#[test]
fn a_key_that_is_let_go_and_held_until_the_same_moment_goes_on_then() {
    soon(|| {
        let clock = MockClock::new();
        // All that fills up with time, and lets everything begin.
        let filling = Rate::every(Duration::from_nanos(1)).burst(2);
        let slow = Rate::every(10 * MS);
        let pool = Pool::<Slow>::builder().workers(1).clock(&clock).rate_per_key(filling);
        let pool = Arc::new(pool.build().unwrap());
        pool.keys().set_rate(&Slow, Some(slow)).unwrap();
        assert!(pool.submit(Slow, || {}).unwrap().wait().unwrap().is_completed());
        let is_held = |pool: &Pool<Slow>| pool.keys().paused(&Slow).is_some();
        eventually(|| is_held(&pool));
        let inside = pool.clone();
        IN_DROP.set(Some(Box::new(move || {
            assert!(!is_held(&inside));
            inside.keys().set_rate(&Slow, Some(slow)).unwrap();
            assert!(is_held(&inside));
        })));
        pool.keys().set_rate(&Slow, None).unwrap();
        assert!(IN_DROP.with_borrow(Option::is_none), "the key was let go");
        let next = pool.submit(Slow, || {}).unwrap();
        clock.advance(10 * MS);
        assert!(next.wait().unwrap().is_completed());
    });
}

/// The messages of a handler, and turns that go on without a worker.
#[test]
fn a_handler_keeps_the_rate_by_beginnings() {
    let clock = MockClock::new();
    let builder = Pool::<u32>::builder().workers(2).clock(&clock);
    let turns = Log::new();
    let kept = turns.clone();
    let pool = builder
        .rate_per_key(Rate::every(10 * MS))
        .build_handler(with_turns(move |_: &u32, n: u32, turn| kept.push((n, turn))))
        .unwrap();
    (0..3).for_each(|n| pool.send(A, n).unwrap());
    eventually(|| turns.len() == 1);
    // The turn ends long after the next could have begun.
    clock.advance(50 * MS);
    eventually(|| pool.keys().paused(&A).is_none());
    assert_eq!(turns.len(), 1);
    drop(turns.take());
    eventually(|| turns.len() == 1);
    drop(turns.take());
    eventually(|| pool.keys().paused(&A).is_some_and(|held| held.running == 0));
    assert_eq!(turns.len(), 0, "the third waits for a token");
    pool.keys().set_rate(&A, None).unwrap();
    pool.settings().set_rate_per_key(None).unwrap();
    eventually(|| turns.len() == 1);
    drop(turns.take());
    pool.shutdown().unwrap();
}

/// No thread is started without a request, and nothing stays.
#[cfg(target_os = "linux")]
#[test]
fn there_is_one_more_thread_and_only_while_there_is_a_rate() {
    let threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names =
            tasks.filter_map(|it| std::fs::read_to_string(it.ok()?.path().join("comm")).ok());
        names.filter(|name| name.trim() == "lone-timer").count()
    };
    let build = || Pool::<u32>::builder().workers(1).thread_name("lone");
    let pool = build().build().unwrap();
    pool.submit(A, || {}).unwrap().wait().unwrap();
    assert_eq!(threads(), 0);
    pool.keys().set_rate(&A, Some(Rate::per_second(1))).unwrap();
    pool.settings().set_rate(Some(Rate::per_second(1))).unwrap();
    eventually(|| threads() == 1);
    drop(pool);
    // The system may list it for a moment after it was joined.
    eventually(|| threads() == 0);
    let pool = build().rate_per_key(Rate::per_second(1)).build().unwrap();
    eventually(|| threads() == 1);
    pool.shutdown_now();
    eventually(|| threads() == 0);
}
