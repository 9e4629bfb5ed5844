//! Of a paused key nothing begins until it is resumed, and then it continues in order; nothing else
//! is held up by it, and nothing stays of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::{
    AnyHasher, CountedKey, Gate, Live, Log, Rng, eventually, hold, hold_soon, pool_of,
    with_every_hasher, with_turns,
};
use keylane::observe::PauseReason;
use keylane::{Claims, Pool, Turn, WaitError};

with_every_hasher!(
    nothing_begins_until_it_is_resumed_and_then_in_order,
    what_runs_ends_and_what_follows_waits,
    a_task_that_waits_only_for_a_worker_goes_back,
    those_that_share_end_and_nobody_joins_them,
    those_that_could_join_do_when_it_is_resumed,
    a_rollup_waits_for_all_its_keys_and_what_is_behind_it_waits_too,
    a_rollup_that_has_the_key_keeps_it,
    a_paused_key_without_tasks_holds_no_barrier_back,
    a_barrier_waits_for_the_paused_tasks_before_it,
    a_task_may_pause_its_own_key,
    a_kept_turn_ends_and_the_next_waits,
    the_subtasks_of_a_job_wait,
    paused_tasks_count_and_a_drain_waits_for_them,
    a_stop_returns_the_paused_tasks,
    many_keys_are_paused_in_one_shard,
    what_is_paused_can_be_seen,
    random_pauses_keep_the_order_and_lose_nothing,
);

const A: u32 = 1;
const B: u32 = 2;
const C: u32 = 3;

/// Returns when tasks of other keys have run that were submitted after all that was there.
fn let_others_run<S: AnyHasher>(pool: &Pool<u32, S>) {
    for key in 1000..1100 {
        assert!(pool.submit(key, || {}).unwrap().wait().unwrap().is_completed());
    }
}

fn nothing_begins_until_it_is_resumed_and_then_in_order<S: AnyHasher>() {
    let pool = pool_of::<S>(2);
    assert!(pool.keys().pause(&A));
    assert!(!pool.keys().pause(&A), "it is paused already");
    let log = Log::new();
    for n in 0..200 {
        let log = log.clone();
        pool.execute(A, move || log.push(n)).unwrap();
    }
    let_others_run(&pool);
    assert_eq!(log.len(), 0);
    assert!(pool.keys().resume(&A));
    assert!(!pool.keys().resume(&A), "it continues already");
    assert!(pool.submit(A, || {}).unwrap().wait().unwrap().is_completed());
    assert_eq!(log.take(), (0..200).collect::<Vec<_>>());
}

fn what_runs_ends_and_what_follows_waits<S: AnyHasher>() {
    // As many tasks behind the running one as make its lane the resident, and more after that.
    for behind in [0, 1, 2, 100] {
        let pool = pool_of::<S>(1);
        let (first, goes_on) = (hold(&pool, A), Gate::new());
        let second = pool
            .submit(A, {
                let gate = goes_on.clone();
                move || gate.pass()
            })
            .unwrap();
        let log = Log::new();
        let submit = |n: usize| {
            let log = log.clone();
            pool.execute(A, move || log.push(n)).unwrap();
        };
        (0..behind).for_each(submit);
        first.let_go();
        eventually(|| pool.inspect().snapshot(1).workers[0].finished == 1);
        pool.keys().pause(&A);
        (behind..2 * behind).for_each(submit);
        goes_on.open();
        // It may have begun before the key was paused, or not.
        let begun = second.is_finished();
        let_others_run(&pool);
        assert_eq!(log.len(), 0, "begun: {begun}");
        pool.keys().resume(&A);
        assert!(second.wait().unwrap().is_completed());
        assert!(pool.submit(A, || {}).unwrap().wait().unwrap().is_completed());
        assert_eq!(log.take(), (0..2 * behind).collect::<Vec<_>>());
    }
}

fn a_task_that_waits_only_for_a_worker_goes_back<S: AnyHasher>() {
    for claims in [Claims::exclusive(A), Claims::shared(A)] {
        let pool = Arc::new(pool_of::<S>(1));
        let log = Log::new();
        let (inside, own) = (pool.clone(), log.clone());
        let done = pool.submit(B, move || {
            for n in 0..3 {
                let log = own.clone();
                inside.execute(claims.clone(), move || log.push(n)).unwrap();
            }
            // A wait inside a task enters everything in the inboxes, so the first has its key now.
            // There is no other worker, except during the wait, which ends at once.
            let waited = inside.submit(B, || {}).unwrap().wait();
            assert!(waited.is_err(), "it is behind this task");
            inside.keys().pause(&A);
        });
        assert!(done.unwrap().wait().unwrap().is_completed());
        let_others_run(&pool);
        assert_eq!(log.len(), 0);
        pool.keys().resume(&A);
        assert!(pool.submit(A, || {}).unwrap().wait().unwrap().is_completed());
        let mut ran = log.take();
        ran.sort_unstable();
        assert_eq!(ran, [0, 1, 2]);
    }
}

fn those_that_share_end_and_nobody_joins_them<S: AnyHasher>() {
    let pool = pool_of::<S>(4);
    let readers = [hold(&pool, Claims::shared(A)), hold(&pool, Claims::shared(A))];
    pool.keys().pause(&A);
    let newcomer = pool.submit(Claims::shared(A), || {}).unwrap();
    let_others_run(&pool);
    assert!(!newcomer.is_finished());
    drop(readers);
    let_others_run(&pool);
    assert!(!newcomer.is_finished());
    pool.keys().resume(&A);
    assert!(newcomer.wait().unwrap().is_completed());
}

fn those_that_could_join_do_when_it_is_resumed<S: AnyHasher>() {
    let pool = pool_of::<S>(4);
    let reader = hold(&pool, Claims::shared(A));
    pool.keys().pause(&A);
    let together = pool.submit(Claims::shared(A), || {}).unwrap();
    let rollup = pool.submit(Claims::shared(A).and_exclusive(B), || {}).unwrap();
    let writer = pool.submit(A, || {}).unwrap();
    let behind = pool.submit(Claims::shared(A), || {}).unwrap();
    let_others_run(&pool);
    pool.keys().resume(&A);
    assert!(together.wait().unwrap().is_completed(), "beside the reader that runs");
    assert!(rollup.wait().unwrap().is_completed(), "and so does a rollup");
    let_others_run(&pool);
    assert!(!writer.is_finished() && !behind.is_finished());
    reader.let_go();
    assert!(writer.wait().unwrap().is_completed() && behind.wait().unwrap().is_completed());
}

fn a_rollup_waits_for_all_its_keys_and_what_is_behind_it_waits_too<S: AnyHasher>() {
    let pool = pool_of::<S>(2);
    pool.keys().pause(&A);
    let log = Log::new();
    let task = |name| {
        let log = log.clone();
        move || log.push(name)
    };
    let rollup = pool.submit([A, B], task("rollup")).unwrap();
    let behind = pool.submit(B, task("behind")).unwrap();
    let_others_run(&pool);
    assert!(!rollup.is_finished() && !behind.is_finished());
    pool.keys().pause(&B);
    pool.keys().resume(&A);
    // It had B already.
    assert!(rollup.wait().unwrap().is_completed());
    let_others_run(&pool);
    assert!(!behind.is_finished());
    pool.keys().resume(&B);
    assert!(behind.wait().unwrap().is_completed());
    assert_eq!(log.take(), ["rollup", "behind"]);
}

fn a_rollup_that_has_the_key_keeps_it<S: AnyHasher>() {
    let pool = pool_of::<S>(2);
    let a = hold(&pool, A);
    let rollup = pool.submit([A, B], || {}).unwrap();
    let_others_run(&pool);
    pool.keys().pause(&B);
    let behind = pool.submit(B, || {}).unwrap();
    a.let_go();
    assert!(rollup.wait().unwrap().is_completed());
    let_others_run(&pool);
    assert!(!behind.is_finished());
    pool.keys().resume(&B);
    assert!(behind.wait().unwrap().is_completed());
}

fn a_paused_key_without_tasks_holds_no_barrier_back<S: AnyHasher>() {
    let pool = pool_of::<S>(2);
    let running = hold(&pool, B);
    for key in [A, B, C] {
        pool.keys().pause(&key);
    }
    let barrier = pool.submit(Claims::barrier(), || {}).unwrap();
    let behind = pool.submit(A, || {}).unwrap();
    running.let_go();
    assert!(barrier.wait().unwrap().is_completed());
    // And one that is resumed, or paused, while a barrier waits.
    let running = hold(&pool, 5);
    assert!(!behind.is_finished());
    pool.keys().resume(&A);
    assert!(behind.wait().unwrap().is_completed());
    pool.keys().pause(&A);
    let barrier = pool.submit(Claims::barrier(), || {}).unwrap();
    pool.keys().pause(&7);
    pool.keys().resume(&C);
    running.let_go();
    assert!(barrier.wait().unwrap().is_completed());
}

fn a_barrier_waits_for_the_paused_tasks_before_it<S: AnyHasher>() {
    for takes in [false, true] {
        let pool = pool_of::<S>(2);
        pool.keys().pause(&A);
        let before = pool.submit(A, || {}).unwrap();
        let_others_run(&pool);
        let barrier = pool.submit(Claims::barrier(), || {}).unwrap();
        let behind = pool.submit(C, || {}).unwrap();
        eventually(|| pool.inspect().snapshot(0).workers_asleep == 2);
        assert!(!barrier.is_finished() && !behind.is_finished());
        match takes {
            true => assert_eq!(pool.keys().take(&A).len(), 1),
            false => assert!(pool.keys().resume(&A)),
        }
        assert!(barrier.wait().unwrap().is_completed() && behind.wait().unwrap().is_completed());
        assert_eq!(before.wait().unwrap().is_cancelled(), takes);
    }
}

fn a_task_may_pause_its_own_key<S: AnyHasher>() {
    let pool = Arc::new(pool_of::<S>(1));
    let inside = pool.clone();
    let first = pool.submit(A, move || assert!(inside.keys().pause(&A))).unwrap();
    let second = pool.submit(A, || {}).unwrap();
    assert!(first.wait().unwrap().is_completed());
    let_others_run(&pool);
    assert!(!second.is_finished());
    pool.keys().resume(&A);
    assert!(second.wait().unwrap().is_completed());
}

fn a_kept_turn_ends_and_the_next_waits<S: AnyHasher>() {
    let turns: Log<Turn> = Log::new();
    let pool = Pool::<u32>::builder().workers(1).hasher(S::default());
    let keep = turns.clone();
    let pool = pool.build_handler(with_turns(move |_, (), turn| keep.push(turn))).unwrap();
    pool.send_many([(A, ()), (A, ()), (A, ())]).unwrap();
    eventually(|| turns.len() == 1);
    pool.keys().pause(&A);
    drop(turns.take());
    eventually(|| pool.inspect().snapshot(0).unfinished == 2);
    pool.send(B, ()).unwrap();
    eventually(|| turns.len() == 1);
    assert_eq!(pool.inspect().snapshot(0).unfinished, 3);
    assert_eq!(pool.keys().paused(&A).map(|held| held.running), Some(0));
    pool.keys().resume(&A);
    eventually(|| turns.len() == 2);
    drop(turns.take());
    eventually(|| turns.len() == 1);
    drop(turns.take());
    pool.shutdown().unwrap();
}

fn the_subtasks_of_a_job_wait<S: AnyHasher>() {
    let pool = pool_of::<S>(2);
    pool.keys().pause(&A);
    let ran = Arc::new(AtomicUsize::new(0));
    let subtasks = [A, B, A, C].map(|key| {
        let ran = ran.clone();
        (key, move || _ = ran.fetch_add(1, Ordering::SeqCst))
    });
    let job = pool.job("job").each_keyed(subtasks).run().unwrap();
    eventually(|| ran.load(Ordering::SeqCst) == 2);
    let_others_run(&pool);
    assert_eq!(ran.load(Ordering::SeqCst), 2);
    assert!(pool.keys().take(&A).is_empty(), "they belong to their job");
    pool.keys().resume(&A);
    assert!(job.wait().unwrap().is_completed());
    assert_eq!(ran.load(Ordering::SeqCst), 4);
}

fn paused_tasks_count_and_a_drain_waits_for_them<S: AnyHasher>() {
    let pool = Pool::<u32>::builder().workers(2).capacity(2).hasher(S::default()).build().unwrap();
    pool.keys().pause(&A);
    pool.execute(A, || {}).unwrap();
    pool.execute(A, || {}).unwrap();
    assert!(pool.task(B).try_execute(|| {}).is_err(), "they have their slots");
    assert_eq!(pool.shutdown_timeout(Duration::ZERO), Err(WaitError::TimedOut));
    pool.keys().resume(&A);
    assert_eq!(pool.shutdown(), Ok(()));
}

fn a_stop_returns_the_paused_tasks<S: AnyHasher>() {
    let pool = pool_of::<S>(2);
    let log = Log::new();
    let running = hold(&pool, B);
    for key in [A, B] {
        pool.keys().pause(&key);
        for n in 0..3 {
            let log = log.clone();
            pool.execute(key, move || log.push((key, n))).unwrap();
        }
    }
    let_others_run(&pool);
    let unrun = pool.shutdown_now();
    assert_eq!(unrun.len(), 6);
    unrun.into_iter().for_each(keylane::PendingTask::run);
    let mut ran = log.take();
    // Stable: those of a key stay in their order.
    ran.sort_by_key(|(key, _)| *key);
    assert_eq!(ran, [A, B].map(|key| [0, 1, 2].map(|n| (key, n))).concat());
    // Too late to matter, and no harm.
    pool.keys().resume(&A);
    pool.keys().resume(&B);
    pool.keys().pause(&B);
    running.let_go();
    pool.keys().resume(&B);
}

fn many_keys_are_paused_in_one_shard<S: AnyHasher>() {
    let pool = pool_of::<S>(2);
    let ran = Arc::new(AtomicUsize::new(0));
    for key in 0..100 {
        pool.keys().pause(&key);
        let ran = ran.clone();
        pool.execute(key, move || _ = ran.fetch_add(1, Ordering::SeqCst)).unwrap();
    }
    let_others_run(&pool);
    assert_eq!(ran.load(Ordering::SeqCst), 0);
    assert_eq!(pool.keys().list_paused().len(), 100);
    for key in 0..100 {
        assert!(pool.keys().resume(&key));
    }
    assert!(pool.keys().list_paused().is_empty());
    pool.shutdown().unwrap();
    assert_eq!(ran.load(Ordering::SeqCst), 100);
}

/// How many tasks a key has, and whether the first of them has it.
fn tasks_of<S: AnyHasher>(pool: &Pool<u32, S>, key: u32) -> Option<(usize, bool)> {
    let lanes = pool.inspect().snapshot(9).hottest;
    lanes.iter().find(|lane| lane.key == key).map(|lane| (lane.len, lane.running))
}

fn what_is_paused_can_be_seen<S: AnyHasher>() {
    let pool = pool_of::<S>(2);
    assert!(pool.keys().paused(&A).is_none());
    pool.keys().pause(&A);
    let held = pool.keys().paused(&A).unwrap();
    assert!(matches!(held.hold, PauseReason::Paused { .. }) && held.running == 0);
    assert!(pool.inspect().snapshot(9).hottest.is_empty(), "it has no task");
    let (running, begun) = hold_soon(&pool, A);
    let_others_run(&pool);
    assert_eq!(tasks_of(&pool, A), Some((1, false)));
    let keys: Vec<u32> = pool.keys().list_paused().into_iter().map(|held| held.key).collect();
    assert_eq!(keys, [A]);
    pool.keys().resume(&A);
    begun.pass();
    pool.keys().pause(&A);
    let waits = pool.submit(A, || {}).unwrap();
    let_others_run(&pool);
    assert_eq!(tasks_of(&pool, A), Some((2, true)), "the phantom is no task");
    assert_eq!(pool.keys().paused(&A).unwrap().running, 1);
    running.let_go();
    pool.keys().resume(&A);
    assert!(waits.wait().unwrap().is_completed());
    eventually(|| pool.inspect().snapshot(9).hottest.is_empty());
}

#[test]
fn nothing_stays_of_a_key_that_was_paused() {
    let live = Live::new();
    let key = |n| CountedKey::new(n, &live);
    let pool = Pool::<CountedKey>::builder().workers(1).build().unwrap();
    for n in 0..50 {
        pool.keys().pause(&key(n));
        pool.execute(key(n), || {}).unwrap();
        pool.execute([key(n), key(n + 1)], || {}).unwrap();
    }
    assert!(live.count() >= 50);
    for n in (0..50).rev() {
        drop(pool.keys().take(&key(n)));
        pool.keys().resume(&key(n));
    }
    eventually(|| pool.inspect().snapshot(0).unfinished == 0 && live.count() == 0);
}

/// Producers, and a thread that pauses and resumes their keys all the time. Everything runs, in
/// order.
fn random_pauses_keep_the_order_and_lose_nothing<S: AnyHasher>() {
    const KEYS: u32 = 6;
    const TASKS: usize = 3000;
    let pool = Arc::new(pool_of::<S>(3));
    let seen: Arc<Vec<AtomicUsize>> = Arc::new((0..KEYS).map(|_| AtomicUsize::new(0)).collect());
    let over = Gate::new();
    let meddler = {
        let (pool, over) = (pool.clone(), over.clone());
        thread::spawn(move || {
            let mut rng = Rng(7);
            while !over.is_open() {
                let key = rng.below(KEYS.into()) as u32;
                pool.keys().pause(&key);
                if rng.below(4) == 0 {
                    thread::yield_now();
                }
                pool.keys().resume(&(rng.below(KEYS.into()) as u32));
            }
            (0..KEYS).for_each(|key| _ = pool.keys().resume(&key));
        })
    };
    let mut rng = Rng(8);
    let mut next = vec![0; KEYS as usize];
    for _ in 0..TASKS {
        let key = rng.below(KEYS.into()) as usize;
        let other = rng.below(KEYS.into()) as usize;
        let (at, seen) = (next[key], seen.clone());
        let body = move || assert_eq!(seen[key].fetch_add(1, Ordering::SeqCst), at);
        next[key] += 1;
        match rng.below(10) {
            0 => pool.execute([key as u32, other as u32], body).unwrap(),
            1 => {
                pool.execute(Claims::barrier(), body).unwrap();
            }
            2 => {
                pool.execute(Claims::shared(other as u32).and_exclusive(key as u32), body).unwrap();
            }
            _ => pool.execute(key as u32, body).unwrap(),
        }
    }
    over.open();
    meddler.join().unwrap();
    pool.shutdown().unwrap();
    assert_eq!(pool.inspect().snapshot(0).panicked, 0);
    let seen: Vec<usize> = seen.iter().map(|count| count.load(Ordering::SeqCst)).collect();
    assert_eq!(seen, next);
}
