//! Order, bounds, time, jobs, replaced tasks, changes of size and stops.

use std::time::Duration;

use shuttle::thread::spawn;

use super::*;
use crate::sync::{AtomicUsize, Ordering};
use crate::{Backoff, Claims, MockClock, Outcome, Retry};

const SECOND: Duration = Duration::from_secs(1);

/// Tasks of two submitters with one key, several keys and all keys.
#[test]
fn tasks_of_a_key_run_in_their_order_and_one_at_a_time() {
    check(|| {
        let (pool, log) = (pool(2), Log::default());
        let running = Arc::new(AtomicUsize::new(0));
        let other = {
            let (pool, log) = (pool.clone(), log.clone());
            spawn(move || {
                for number in 10..13 {
                    pool.execute(2, log.write(number)).unwrap();
                }
            })
        };
        let mut tasks = Vec::new();
        for number in 0..4 {
            let claims = match number {
                2 => Claims::exclusive(1).and_exclusive(2),
                3 => Claims::barrier(),
                _ => Claims::exclusive(1),
            };
            let (work, running) = (log.write(number), running.clone());
            tasks.push(pool.submit(claims, move || {
                assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0, "two tasks of a key run");
                work();
                running.fetch_sub(1, Ordering::SeqCst);
            }));
        }
        other.join().unwrap();
        tasks.into_iter().for_each(|task| task.unwrap().join().unwrap());
        pool.shutdown().unwrap();
        let numbers = log.numbers();
        assert_eq!(numbers.len(), 7);
        assert!(numbers.iter().filter(|number| **number < 10).eq(&[0, 1, 2, 3]), "{numbers:?}");
        assert!(numbers.iter().filter(|number| **number >= 10).eq(&[10, 11, 12]), "{numbers:?}");
    });
}

/// Submitters that block, one that waits as a future, and one that gives up.
#[test]
fn submitters_wait_for_capacity_and_none_is_forgotten() {
    check(|| {
        let pool = builder(1).capacity(1).build().unwrap();
        let log = Log::default();
        let blocking = [1, 2].map(|number| {
            let (pool, work) = (pool.clone(), log.write(number));
            spawn(move || pool.execute(number, work).unwrap())
        });
        let waiting = {
            let (pool, work) = (pool.clone(), log.write(3));
            spawn(move || block_on(pool.task(3).execute_async(work)).unwrap())
        };
        {
            // Its place in the wait queue is given up, or its permit is returned.
            let mut given_up = Box::pin(pool.task(4).execute_async(|| ()));
            let _ = given_up.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        }
        blocking.into_iter().for_each(|thread| thread.join().unwrap());
        waiting.join().unwrap();
        pool.shutdown().unwrap();
        let mut numbers = log.numbers();
        numbers.sort_unstable();
        assert_eq!(numbers, [1, 2, 3]);
    });
}

/// A delay, a wait between two attempts, and a rate, all by the timer thread.
#[test]
fn no_alarm_is_missed() {
    check(|| {
        let clock = MockClock::new();
        let (pool, log) = (builder(1).clock(&clock).build().unwrap(), Log::default());
        pool.keys().set_rate(&3, Some(crate::Rate::every(SECOND))).unwrap();
        let delayed = pool.task(1).after(SECOND).submit(log.write(1)).unwrap();
        let mut attempts = 0;
        let retry = Retry::attempts(2).backoff(Backoff::constant(SECOND));
        let retried = pool.task(1).fallible().retry(retry).submit(move || {
            attempts += 1;
            if attempts < 2 { Err(()) } else { Ok(attempts) }
        });
        let limited = [31, 32].map(|number| pool.submit(3, log.write(number)).unwrap());
        let withdrawn = pool.task(2).after(SECOND).submit(log.write(2)).unwrap();
        let canceller = spawn(move || {
            withdrawn.cancel();
            withdrawn
        });
        let retried = retried.unwrap();
        while !(delayed.is_finished()
            && retried.is_finished()
            && limited.iter().all(|task| task.is_finished()))
        {
            clock.advance(SECOND);
            crate::sync::yield_now();
        }
        assert!(matches!(retried.join(), Ok(2)));
        clock.advance(SECOND);
        let outcome = canceller.join().unwrap().wait().unwrap();
        assert!(matches!(outcome, Outcome::Cancelled | Outcome::Completed(())));
        pool.shutdown().unwrap();
    });
}

/// A job whose subtasks share a key with tasks, and one that is cancelled.
#[test]
fn jobs_end_beside_tasks() {
    check(|| {
        let (pool, log) = (pool(2), Log::default());
        let subtasks: Vec<_> =
            (0..3).map(|number| (Claims::exclusive(number % 2), log.write(number))).collect();
        let job = pool.job("job").each_keyed(subtasks).run().unwrap();
        let cancelled = pool.job("cancelled").each((0..2).map(|_| || ())).run().unwrap();
        let task = pool.submit(0, log.write(9)).unwrap();
        let pauser = {
            let pool = pool.clone();
            spawn(move || {
                pool.keys().pause(&1);
                pool.keys().resume(&1);
            })
        };
        cancelled.cancel();
        assert!(job.wait().unwrap().is_completed());
        cancelled.wait().unwrap();
        task.join().unwrap();
        pauser.join().unwrap();
        pool.shutdown().unwrap();
        assert_eq!(log.numbers().len(), 4);
    });
}

/// Two submitters replace the latest task of a key. Each task runs or is replaced, and the last one
/// in the order runs.
#[test]
fn the_latest_task_runs() {
    check(|| {
        let (pool, log) = (pool(1), Log::default());
        let threads = [10, 20].map(|first| {
            let (pool, log) = (pool.clone(), log.clone());
            spawn(move || {
                let task = |number| pool.task(1).latest().submit(log.write(number)).unwrap();
                let tasks = [task(first), task(first + 1)];
                tasks.map(|task| task.wait().unwrap().is_completed())
            })
        });
        let ends = threads.map(|thread| thread.join().unwrap());
        let ran = ends.iter().flatten().filter(|ran| **ran).count();
        assert_eq!(log.numbers().len(), ran);
        assert!(ends.iter().any(|[_, last]| *last), "{ends:?}");
        pool.shutdown().unwrap();
    });
}

/// Workers come and go while tasks are submitted.
#[test]
fn a_change_of_size_loses_no_task() {
    check(|| {
        let (pool, log) = (pool(1), Log::default());
        let resizer = {
            let pool = pool.clone();
            spawn(move || [3, 1, 2].map(|size| pool.settings().set_workers(size).unwrap()))
        };
        let tasks: Vec<_> = (0..4).map(|key| pool.submit(key, log.write(key)).unwrap()).collect();
        tasks.into_iter().for_each(|task| task.join().unwrap());
        resizer.join().unwrap();
        pool.shutdown().unwrap();
    });
}

/// A stop beside submissions returns exactly the accepted tasks that have not run.
#[test]
fn a_stop_returns_what_has_not_run() {
    check(|| {
        let (pool, log) = (pool(2), Log::default());
        let submitter = {
            let (pool, log) = (pool.clone(), log.clone());
            spawn(move || {
                let claims = |key| match key {
                    2 => Claims::exclusive(0).and_exclusive(1),
                    key => Claims::exclusive(key),
                };
                (0..4).filter(|key| pool.execute(claims(*key), log.write(*key)).is_ok()).count()
            })
        };
        let unrun = pool.shutdown_now();
        let accepted = submitter.join().unwrap();
        pool.shutdown().unwrap();
        assert_eq!(log.numbers().len() + unrun.len(), accepted);
    });
}
