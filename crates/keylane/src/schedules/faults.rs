//! Panics of wakers, captures and bodies; threads that cannot be started.
//!
//! Shuttle releases no lock while a thread unwinds. So a panic whose unwinding takes a lock of the pool
//! cannot be tested here: that of a hash, or of captures that `cancel` drops.

use std::panic::resume_unwind;

use shuttle::thread::spawn;

use super::*;
use crate::sync::REFUSES_THREADS;
use crate::{Claims, Outcome};

/// Panics, and nothing is printed.
fn fail() -> ! {
    resume_unwind(Box::new("on purpose"));
}

/// Panics when it is dropped.
struct PanicsOnDrop;

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        fail();
    }
}

/// Panics when it is called.
struct PanicsOnWake;

impl Wake for PanicsOnWake {
    fn wake(self: Arc<Self>) {
        fail();
    }
}

fn panicking_waker() -> Waker {
    Waker::from(Arc::new(PanicsOnWake))
}

#[test]
fn a_waker_that_panics_costs_no_worker() {
    check(|| {
        let pool = builder(1).capacity(2).build().unwrap();
        let mut task = pool.submit(1, || ()).unwrap();
        let polled = std::pin::Pin::new(&mut task);
        let is_over = polled.poll(&mut Context::from_waker(&panicking_waker())).is_ready();
        let other = {
            let pool = pool.clone();
            spawn(move || pool.submit(2, || 7).unwrap().join().unwrap())
        };
        let mut waiting = Box::pin(pool.task(1).execute_async(|| ()));
        let polled = waiting.as_mut().poll(&mut Context::from_waker(&panicking_waker()));
        if polled.is_pending() {
            block_on(waiting).unwrap();
        }
        assert_eq!(other.join().unwrap(), 7);
        assert!(is_over || task.wait().unwrap().is_completed());
        pool.shutdown().unwrap();
    });
}

#[test]
fn panics_of_bodies_and_captures_end_one_task_alone() {
    check(|| {
        let (pool, log) = (pool(2), Log::default());
        let captured = PanicsOnDrop;
        let first = pool.submit(1, move || drop(captured)).unwrap();
        let second = pool.submit([1, 2], || fail()).unwrap();
        let last = pool.submit(Claims::barrier(), log.write(1)).unwrap();
        last.join().unwrap();
        assert!(matches!(first.wait().unwrap(), Outcome::Panicked(_)));
        assert!(matches!(second.wait().unwrap(), Outcome::Panicked(_)));
        pool.shutdown().unwrap();
        assert_eq!(log.numbers(), [1]);
    });
}

/// A wait inside a task needs another thread. Without one it is refused, or another worker runs the
/// awaited task; the pool goes on.
#[test]
fn a_thread_that_cannot_be_started_loses_no_task() {
    check(|| {
        REFUSES_THREADS.set(false);
        let pool = pool(1);
        let own = pool.clone();
        REFUSES_THREADS.set(true);
        assert!(pool.settings().set_workers(2).is_err());
        let outer = pool.submit(1, move || {
            let inner = own.submit(2, || 7).unwrap();
            inner.wait().map_err(crate::WouldDeadlock::into_inner)
        });
        let other = {
            let pool = pool.clone();
            spawn(move || {
                REFUSES_THREADS.set(false);
                pool.settings().set_workers(2).unwrap();
                pool.submit(3, || 8).unwrap().join().unwrap()
            })
        };
        let inner = match outer.unwrap().join().unwrap() {
            Ok(outcome) => outcome,
            Err(inner) => inner.wait().unwrap(),
        };
        assert_eq!((inner.ok(), other.join().unwrap()), (Some(7), 8));
        pool.shutdown().unwrap();
    });
}

/// The pool is dropped while its tasks run and wait, also from inside one of them.
#[test]
fn a_drop_ends_all_threads() {
    check(|| {
        let (pool, log) = (pool(2), Log::default());
        let own = pool.clone();
        let last = pool.submit(1, move || drop(own)).unwrap();
        let tasks = [1, 2].map(|key| pool.submit(key, log.write(key)).unwrap());
        drop(pool);
        last.wait().unwrap();
        tasks.into_iter().for_each(|task| _ = task.wait().unwrap());
    });
}
