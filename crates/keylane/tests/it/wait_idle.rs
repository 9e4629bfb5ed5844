//! Waiting for an idle pool: it returns when no accepted task is unfinished, by thread and by
//! future, and the pool continues.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::{
    AnyHasher, Gate, LONG, Log, Rng, Wakes, block_on, hold, poll, pool, pool_of, soon,
    with_every_hasher, with_turns,
};
use keylane::{Claims, Pool, Turn, WaitError};

with_every_hasher!(
    it_waits_for_every_kind_of_task_and_the_pool_goes_on,
    each_thread_sees_the_end_of_all_that_it_submitted,
);

/// Waits in one of the three forms.
fn wait_idle_by<S: AnyHasher>(way: usize, pool: &Pool<u32, S>) {
    match way % 3 {
        0 => pool.wait_idle().unwrap(),
        1 => pool.wait_idle_timeout(LONG).unwrap(),
        _ => block_on(pool.wait_idle_async()).unwrap(),
    }
}

fn it_waits_for_every_kind_of_task_and_the_pool_goes_on<S: AnyHasher>() {
    let pool = pool_of::<S>(2);
    let ran = Arc::new(AtomicUsize::new(0));
    for round in 1..=6 {
        let held = hold(&pool, 0);
        for n in 0..500 {
            let ran = ran.clone();
            let work = move || _ = ran.fetch_add(1, Ordering::SeqCst);
            match n % 40 {
                0 => pool.execute(Claims::barrier(), work).unwrap(),
                1..9 => pool.execute([n % 3, n % 5], work).unwrap(),
                9..12 => pool.execute(Claims::none(), work).unwrap(),
                12 => {
                    drop(pool.task(n % 7).last(keylane::OnClosedKey::NewLife).submit(work).unwrap())
                }
                _ => pool.execute(n % 7, work).unwrap(),
            }
        }
        assert_eq!(pool.wait_idle_timeout(Duration::ZERO), Err(WaitError::TimedOut));
        held.let_go();
        wait_idle_by(round, &pool);
        assert_eq!(ran.load(Ordering::SeqCst), round * 500);
        assert_eq!(pool.inspect().snapshot(0).unfinished, 0);
    }
    assert!(!pool.is_closed());
    pool.shutdown().unwrap();
    pool.wait_idle().unwrap();
}

/// Several threads submit and wait at once, in each form. A wait covers all that its own thread has
/// submitted, with the effects.
fn each_thread_sees_the_end_of_all_that_it_submitted<S: AnyHasher>() {
    let pool = Arc::new(pool_of::<S>(2));
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let pool = pool.clone();
            thread::spawn(move || {
                let mut rng = Rng(thread);
                for round in 0..60 {
                    let ran = Arc::new(AtomicUsize::new(0));
                    let count = rng.below(5) as usize;
                    for _ in 0..count {
                        let ran = ran.clone();
                        let key = rng.below(3) as u32;
                        pool.execute(key, move || _ = ran.fetch_add(1, Ordering::Relaxed)).unwrap();
                    }
                    wait_idle_by(round, &pool);
                    assert_eq!(ran.load(Ordering::Relaxed), count);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// A moment without tasks is enough, although the pool has tasks again before the waiting future is
/// polled.
#[test]
fn tasks_that_come_after_a_moment_without_any_do_not_prolong_the_wait() {
    let pool = pool(2);
    let first = hold(&pool, 1);
    let wakes = Wakes::new();
    let mut waits = pin!(pool.wait_idle_async());
    assert!(poll(waits.as_mut(), &wakes).is_pending());
    first.let_go();
    wakes.wait();
    let second = hold(&pool, 1);
    assert!(poll(waits.as_mut(), &wakes).is_ready());
    second.let_go();
}

#[test]
fn a_dropped_wait_leaves_nothing_behind() {
    let pool = pool(2);
    let held = hold(&pool, 1);
    {
        let mut waits = pin!(pool.wait_idle_async());
        assert!(poll(waits.as_mut(), &Wakes::new()).is_pending());
    }
    held.let_go();
    pool.wait_idle().unwrap();
    pool.submit(1, || ()).unwrap().wait().unwrap();
    block_on(pool.shutdown_async()).unwrap();
}

#[test]
fn paused_keys_and_kept_turns_are_waited_for() {
    let pool = pool(2);
    pool.keys().pause(&1);
    let waits = pool.submit(1, || ()).unwrap();
    assert_eq!(pool.wait_idle_timeout(Duration::ZERO), Err(WaitError::TimedOut));
    assert_eq!(pool.keys().take(&1).len(), 1);
    assert!(waits.wait().unwrap().is_cancelled());
    pool.wait_idle().unwrap();

    let (keep, kept) = std::sync::mpsc::channel();
    let pool = Pool::<u32>::builder()
        .workers(1)
        .build_handler(with_turns(move |_: &u32, (), turn: Turn| keep.send(turn).unwrap()))
        .unwrap();
    pool.send(7, ()).unwrap();
    let turn = kept.recv().unwrap();
    assert_eq!(pool.wait_idle_timeout(Duration::ZERO), Err(WaitError::TimedOut));
    drop(turn);
    pool.wait_idle().unwrap();
    block_on(pool.wait_idle_async()).unwrap();
    pool.send(7, ()).unwrap();
    drop(kept.recv().unwrap());
    block_on(pool.shutdown_async()).unwrap();
    assert!(pool.send(7, ()).is_err());
}

#[test]
fn a_job_is_waited_for_to_its_end() {
    let pool = pool(2);
    let gate = Gate::new();
    let inner = gate.clone();
    let job = pool
        .job("gated")
        .each((0..50).map(move |n| {
            let gate = inner.clone();
            move || {
                gate.pass();
                n
            }
        }))
        .collect()
        .unwrap();
    assert_eq!(pool.wait_idle_timeout(Duration::ZERO), Err(WaitError::TimedOut));
    gate.open();
    pool.wait_idle().unwrap();
    assert_eq!(job.wait().unwrap().unwrap().len(), 50);
}

#[test]
fn a_task_cannot_wait_for_its_own_pool() {
    soon(|| {
        let pool = Arc::new(pool(1));
        let answers = Log::new();
        let inside = pool.clone();
        let log = answers.clone();
        pool.submit(1, move || {
            log.push(inside.wait_idle());
            log.push(inside.wait_idle_timeout(Duration::ZERO));
            log.push(block_on(inside.wait_idle_async()));
            let closing = block_on(inside.shutdown_async());
            assert_eq!(closing, Err(WaitError::FromInside));
        })
        .unwrap()
        .join()
        .unwrap();
        assert_eq!(answers.take(), [Err(WaitError::FromInside); 3]);
        assert!(pool.is_closed());
    });
}

/// Stopping returns the tasks that had not begun; the wait ends with those that run.
#[test]
fn a_stopped_pool_is_idle_when_its_running_tasks_end() {
    let pool = Arc::new(pool(1));
    let held = hold(&pool, 1);
    pool.execute(1, || unreachable!("the pool is stopped")).unwrap();
    assert_eq!(pool.shutdown_now().len(), 1);
    assert_eq!(pool.wait_idle_timeout(Duration::ZERO), Err(WaitError::TimedOut));
    let waits = thread::spawn({
        let pool = pool.clone();
        move || block_on(pool.wait_idle_async())
    });
    held.let_go();
    assert_eq!(waits.join().unwrap(), Ok(()));
}
