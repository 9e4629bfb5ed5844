//! A task that has not begun can be cancelled, and its successors do not jump; one that runs is
//! asked to stop; and no turn ends before its body, whatever becomes of the handle.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use crate::common::{AnyHasher, Gate, Live, Log, hold, pool, pool_of, soon, with_every_hasher};
use keylane::{Claims, Outcome, Pool, is_cancelled};

with_every_hasher!(
    a_cancelled_task_never_runs_and_no_successor_jumps,
    a_cancelled_rollup_keeps_its_place,
    dropping_cancelling_or_timing_out_a_handle_ends_no_turn,
);

fn a_cancelled_task_never_runs_and_no_successor_jumps<S: AnyHasher>() {
    let pool = pool_of::<S>(3);
    let log = Log::new();
    let first = hold(&pool, 1);
    let handles: Vec<_> = (0..100)
        .map(|n| {
            let log = log.clone();
            pool.submit(1, move || log.push(n)).unwrap()
        })
        .collect();
    for handle in handles.iter().step_by(3) {
        assert!(handle.cancel() && handle.is_finished());
        assert!(!handle.cancel(), "it has ended");
    }
    // Workers are free, and the first one still runs.
    assert!(pool.submit(2, || {}).unwrap().wait().unwrap().is_completed());
    assert_eq!(log.len(), 0);
    first.let_go();
    pool.shutdown().unwrap();
    assert!(log.take().into_iter().eq((0..100).filter(|n| n % 3 != 0)));
    for (n, handle) in handles.into_iter().enumerate() {
        assert_eq!(handle.wait().unwrap().is_cancelled(), n % 3 == 0);
    }
}

/// Behind a cancelled rollup over A and B the tasks of B wait for those of A that it waited for: it
/// gives up its body and not its place.
fn a_cancelled_rollup_keeps_its_place<S: AnyHasher>() {
    let pool = pool_of::<S>(3);
    let first = hold(&pool, 1);
    let rollup = pool.submit([1, 2], || {}).unwrap();
    let behind = pool.submit(2, || {}).unwrap();
    assert!(rollup.cancel());
    assert!(pool.submit(3, || {}).unwrap().wait().unwrap().is_completed());
    first.let_go();
    assert!(behind.wait().unwrap().is_completed());
    assert!(rollup.wait().unwrap().is_cancelled());
    pool.shutdown().unwrap();
    assert_eq!(pool.inspect().snapshot(9).unfinished, 0);
}

/// The second article's executor gave a key free when the future of its running task was cancelled,
/// and the next task ran beside it.
fn dropping_cancelling_or_timing_out_a_handle_ends_no_turn<S: AnyHasher>() {
    let pool = pool_of::<S>(3);
    for way in 0..3 {
        let inside = Arc::new(AtomicUsize::new(0));
        let (begun, gate) = (Gate::new(), Gate::new());
        let (runs, wait, entered) = (begun.clone(), gate.clone(), inside.clone());
        let mut running = pool
            .submit(1, move || {
                entered.fetch_add(1, Ordering::SeqCst);
                runs.open();
                wait.pass();
                entered.fetch_sub(1, Ordering::SeqCst);
            })
            .unwrap();
        let entered = inside.clone();
        let next = pool.submit(1, move || entered.load(Ordering::SeqCst)).unwrap();
        begun.pass();
        match way {
            0 => drop(running),
            1 => assert!(!running.cancel()),
            _ => assert!(running.wait_timeout(Duration::ZERO).unwrap().is_none()),
        }
        assert!(pool.submit(2, || {}).unwrap().wait().unwrap().is_completed());
        assert!(!next.is_finished());
        gate.open();
        assert_eq!(next.wait().unwrap().ok(), Some(0));
    }
}

#[test]
fn a_running_task_learns_that_it_is_asked_to_stop() {
    soon(|| {
        let pool = pool(1);
        let begun = Gate::new();
        let runs = begun.clone();
        let handle = pool
            .submit(1, move || {
                assert!(!is_cancelled());
                runs.open();
                while !is_cancelled() {
                    thread::yield_now();
                }
                "stopped early"
            })
            .unwrap();
        begun.pass();
        assert!(!handle.cancel(), "it has begun");
        // It returned, so its handle has the value.
        assert_eq!(handle.wait().unwrap().ok(), Some("stopped early"));
        // The next task on the same worker has not been asked.
        assert_eq!(pool.submit(1, is_cancelled).unwrap().wait().unwrap().ok(), Some(false));
        assert!(!is_cancelled());
    });
}

/// A stopped pool's task that was run inside another task took that task's request to stop away.
#[test]
fn a_task_that_is_run_inside_another_leaves_its_request_to_stop_alone() {
    soon(|| {
        let (one, other) = (pool(1), pool(1));
        let held = hold(&one, 1);
        let inner = one.submit(1, is_cancelled).unwrap();
        let mut unrun = one.shutdown_now();
        held.let_go();
        let begun = Gate::new();
        let runs = begun.clone();
        let outer = other
            .submit(1, move || {
                runs.open();
                while !is_cancelled() {
                    thread::yield_now();
                }
                unrun.remove(0).run();
                is_cancelled()
            })
            .unwrap();
        begun.pass();
        outer.cancel();
        assert_eq!(inner.wait().unwrap().ok(), Some(false), "nobody has cancelled it");
        assert_eq!(outer.wait().unwrap().ok(), Some(true), "it has been cancelled");
    });
}

#[test]
fn cancelling_drops_the_captures_at_once() {
    soon(|| {
        let pool = pool(1);
        let live = Live::new();
        let held = hold(&pool, 1);
        let one = live.one();
        let handle = pool.submit(1, move || drop(one)).unwrap();
        assert_eq!(live.count(), 1);
        assert!(handle.cancel());
        assert_eq!(live.count(), 0);
        held.let_go();
    });
}

#[test]
fn a_cancelled_task_gives_its_slot_back_when_its_place_is_reached() {
    soon(|| {
        let pool = keylane::Pool::<u32>::builder().workers(1).capacity(3).build().unwrap();
        for _ in 0..50 {
            let held = hold(&pool, 1);
            for keys in [Claims::exclusive(1), Claims::exclusive(1).and_exclusive(2)] {
                let handle = pool.submit(keys, || {}).unwrap();
                assert!(handle.cancel());
            }
            held.let_go();
            crate::common::eventually(|| pool.inspect().snapshot(0).unfinished == 0);
        }
    });
}

/// Cancelling and beginning at the same moment: the task runs or it does not, and the handle says
/// which.
#[test]
fn a_race_with_the_beginning_has_one_winner() {
    soon(|| {
        let pool = pool(2);
        let ran = Arc::new(AtomicUsize::new(0));
        let (mut done, mut cancelled) = (0, 0);
        for n in 0..3_000 {
            let count = ran.clone();
            let handle = pool.submit(n % 3, move || count.fetch_add(1, Ordering::SeqCst)).unwrap();
            for _ in 0..n % 40 {
                std::hint::spin_loop();
            }
            let in_time = handle.cancel();
            match handle.wait().unwrap() {
                Outcome::Completed(_) => {
                    assert!(!in_time);
                    done += 1;
                }
                Outcome::Cancelled => {
                    assert!(in_time);
                    cancelled += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(ran.load(Ordering::SeqCst), done);
        assert_eq!(done + cancelled, 3_000);
    });
}

/// The turn passed while the canceller was still dropping the captures.
#[test]
fn the_captures_of_a_cancelled_task_are_gone_before_the_next_begins() {
    struct Slow(mpsc::Sender<()>, mpsc::Receiver<()>, Arc<AtomicBool>);
    impl Drop for Slow {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
            self.1.recv().unwrap();
            self.2.store(true, Ordering::SeqCst);
        }
    }
    let pool = Pool::<u32>::builder().workers(1).build().unwrap();
    let (let_go, held) = mpsc::channel::<()>();
    pool.execute(1, move || held.recv().unwrap()).unwrap();
    let (begin, begun) = mpsc::channel();
    let (end, ended) = mpsc::channel();
    let gone = Arc::new(AtomicBool::new(false));
    let slow = Slow(begin, ended, gone.clone());
    let cancelled = pool.submit(1, move || drop(slow)).unwrap();
    let next = pool.submit(1, move || gone.load(Ordering::SeqCst)).unwrap();
    let canceller = std::thread::spawn(move || cancelled.cancel());
    begun.recv().unwrap();
    // The worker comes to the cancelled task while its captures are being dropped.
    let_go.send(()).unwrap();
    end.send(()).unwrap();
    assert!(canceller.join().unwrap());
    assert!(next.wait().unwrap().unwrap());
}
