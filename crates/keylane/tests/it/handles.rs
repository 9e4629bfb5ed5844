//! A handle returns, once, how its task ended: to a thread that waits, to one that waits with a
//! timeout, to one that checks, and to a task that polls it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use crate::common::{Gate, LONG, Live, Wakes, block_on, eventually, hold, poll, pool, soon};
use keylane::{Outcome, Pool};

#[test]
fn waiting_returns_what_the_body_returned() {
    soon(|| {
        let pool = pool(2);
        assert_eq!(pool.submit(1, || "value").unwrap().wait().unwrap().ok(), Some("value"));
        let large = pool.submit([1, 2], || vec![7; 10_000]).unwrap();
        assert_eq!(large.wait().unwrap().unwrap().len(), 10_000);
        let fails = pool.task(1).fallible().submit(|| Err::<(), _>("no")).unwrap();
        assert!(matches!(fails.wait().unwrap(), Outcome::Failed("no")));
        let works = pool.task(1).fallible().submit(|| Ok::<_, &str>(3)).unwrap();
        assert!(matches!(works.wait().unwrap(), Outcome::Completed(3)));
        let panics = pool.submit(1, || panic!("on {}", "purpose")).unwrap();
        let Outcome::<()>::Panicked(payload) = panics.wait().unwrap() else { panic!("it must") };
        assert_eq!(payload.message(), Some("on purpose"));
        let odd = pool.submit(1, || std::panic::panic_any(42_u8)).unwrap();
        let Outcome::<()>::Panicked(payload) = odd.wait().unwrap() else { panic!("it must") };
        assert_eq!(payload.message(), None);
        assert_eq!(payload.into_inner().downcast_ref(), Some(&42_u8));
    });
}

#[test]
fn a_timed_out_wait_leaves_the_handle_as_it_was() {
    soon(|| {
        let pool = pool(1);
        let held = hold(&pool, 1);
        let mut handle = pool.submit(1, || 5).unwrap();
        assert!(handle.wait_timeout(Duration::ZERO).unwrap().is_none());
        assert!(handle.wait_timeout(Duration::from_millis(2)).unwrap().is_none());
        assert!(handle.try_join().is_none() && !handle.is_finished());
        held.let_go();
        assert_eq!(handle.wait_timeout(LONG).unwrap().unwrap().ok(), Some(5));
        assert!(handle.is_finished());
    });
}

#[test]
fn the_outcome_is_given_out_once() {
    soon(|| {
        let pool = pool(1);
        let live = Live::new();
        let one = live.one();
        let mut handle = pool.submit(1, move || one).unwrap();
        eventually(|| handle.is_finished());
        assert_eq!(live.count(), 1);
        let outcome = handle.try_join().unwrap();
        assert!(handle.is_finished() && handle.try_join().is_none());
        drop(handle);
        assert_eq!(live.count(), 1);
        drop(outcome);
        assert_eq!(live.count(), 0);
    });
}

#[test]
fn a_handle_can_be_awaited() {
    soon(|| {
        let pool = pool(2);
        for n in 0..500 {
            let keys = if n % 2 == 0 { vec![1] } else { vec![1, 2] };
            let handle = pool.submit(keys, move || n).unwrap();
            assert_eq!(block_on(handle).unwrap().ok(), Some(n));
        }
    });
}

#[test]
fn the_last_waker_is_woken_whoever_polled_before() {
    soon(|| {
        let pool = pool(1);
        let held = hold(&pool, 1);
        let mut handle = pool.submit(1, || 5).unwrap();
        let (first, second, third) = (Wakes::new(), Wakes::new(), Wakes::new());
        for wakes in [&first, &second, &first, &third] {
            assert!(poll(Pin::new(&mut handle), wakes).is_pending());
        }
        held.let_go();
        third.wait();
        assert_eq!((first.count(), second.count()), (0, 0));
        let Poll::Ready(Ok(outcome)) = poll(Pin::new(&mut handle), &third) else { panic!() };
        assert_eq!(outcome.ok(), Some(5));
    });
}

/// To ask a handle, or to wait for it for a while, took away the waker of an earlier poll: a task
/// that polled it, asked once more and then slept was never woken.
#[test]
fn asking_does_not_take_the_waker_away() {
    soon(|| {
        let pool = pool(1);
        let held = hold(&pool, 1);
        let mut asked = pool.submit(1, || 5).unwrap();
        let mut waited = pool.submit(1, || 6).unwrap();
        let (one, other) = (Wakes::new(), Wakes::new());
        assert!(poll(Pin::new(&mut asked), &one).is_pending());
        assert!(asked.try_join().is_none());
        assert!(poll(Pin::new(&mut waited), &other).is_pending());
        assert!(waited.wait_timeout(Duration::ZERO).unwrap().is_none());
        held.let_go();
        one.wait();
        other.wait();
        assert!(poll(Pin::new(&mut asked), &one).is_ready());
        assert!(poll(Pin::new(&mut waited), &other).is_ready());
    });
}

#[test]
fn cancelling_and_stopping_wake_who_awaits() {
    soon(|| {
        let pool = pool(1);
        let held = hold(&pool, 1);
        let (cancelled_wakes, stopped_wakes) = (Wakes::new(), Wakes::new());
        let mut cancelled = pool.submit(1, || ()).unwrap();
        let mut stopped = pool.submit(1, || ()).unwrap();
        assert!(poll(Pin::new(&mut cancelled), &cancelled_wakes).is_pending());
        assert!(poll(Pin::new(&mut stopped), &stopped_wakes).is_pending());
        assert!(cancelled.cancel());
        cancelled_wakes.wait();
        drop(pool.shutdown_now());
        stopped_wakes.wait();
        for mut handle in [cancelled, stopped] {
            assert!(handle.try_join().unwrap().is_cancelled());
        }
        held.let_go();
    });
}

#[test]
fn many_threads_wait_for_many_handles() {
    soon(|| {
        let pool = pool(2);
        let held = hold(&pool, 0);
        let handles: Vec<_> = (0..20).map(|n| pool.submit(0, move || n).unwrap()).collect();
        let waiters: Vec<_> = handles
            .into_iter()
            .map(|handle| thread::spawn(move || handle.wait().unwrap().ok()))
            .collect();
        held.let_go();
        for (n, waiter) in waiters.into_iter().enumerate() {
            assert_eq!(waiter.join().unwrap(), Some(n));
        }
    });
}

#[test]
fn handles_outlive_their_pool() {
    soon(|| {
        let pool = pool(1);
        let done = pool.submit(1, || 1).unwrap();
        eventually(|| done.is_finished());
        let (gate, begun) = (Gate::new(), Gate::new());
        let (wait, runs) = (gate.clone(), begun.clone());
        let running = pool
            .submit(1, move || {
                runs.open();
                wait.pass();
                2
            })
            .unwrap();
        let waiting = pool.submit(1, || 3).unwrap();
        begun.pass();
        let dropper = thread::spawn(move || drop(pool));
        assert!(waiting.wait().unwrap().is_cancelled());
        gate.open();
        dropper.join().unwrap();
        assert!(running.is_finished());
        assert_eq!(running.wait().unwrap().ok(), Some(2));
        assert_eq!(done.wait().unwrap().ok(), Some(1));
    });
}

#[test]
fn a_batch_gives_a_handle_for_each_task_in_order() {
    soon(|| {
        let pool = pool(2);
        let handles = pool.submit_many((0..600).map(|n| (n % 5, move || n))).unwrap();
        assert_eq!(handles.len(), 600);
        for (n, handle) in handles.into_iter().enumerate() {
            assert_eq!(handle.wait().unwrap().ok(), Some(n as u32));
        }
    });
}

#[test]
fn dropping_a_handle_detaches() {
    soon(|| {
        let pool = pool(1);
        let live = Live::new();
        let held = hold(&pool, 1);
        let (one, ran) = (live.one(), Gate::new());
        let runs = ran.clone();
        drop(pool.submit(1, move || {
            runs.open();
            one
        }));
        held.let_go();
        ran.pass();
        pool.shutdown().unwrap();
        // The value that it returned was dropped.
        assert_eq!(live.count(), 0);
    });
}

#[test]
fn handles_and_pools_can_be_sent_and_shared() {
    fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<keylane::Handle<u8>>();
    is_send_and_sync::<Pool<String>>();
    is_send_and_sync::<keylane::HandlerPool<String, Vec<u8>>>();
    is_send_and_sync::<Arc<Pool<u8>>>();
    fn is_send<T: Send>() {}
    is_send::<keylane::PendingTask<String>>();
    is_send::<keylane::Turn>();
}

/// It blocked forever.
#[test]
fn an_outcome_that_was_taken_is_not_waited_for() {
    let pool = Pool::<u32>::builder().workers(1).build().unwrap();
    let mut handle = pool.submit(1, || 42).unwrap();
    pool.shutdown().unwrap();
    assert_eq!(handle.try_join().unwrap().unwrap(), 42);
    assert!(handle.wait_timeout(Duration::from_secs(3600)).unwrap().is_none());
    let waited = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| handle.wait()));
    assert!(waited.is_err());
}
