//! What goes wrong in a job ends that job at the most: in its splitter, in a subtask, in its fold,
//! in a drop. However its pool ends, a job's handle does.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::common::{Gate, Live, OpenAtLast, block_on, eventually, hold, pool, soon};
use keylane::{KeyBuildHasher, OnError, Outcome, Pool, SubmitErrorKind};

struct PanicsInDrop;

impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        panic!("in a drop");
    }
}

#[track_caller]
fn works(pool: &Pool<u32, KeyBuildHasher>) {
    let job = pool.job("after").each_keyed((0..100).map(|n| (n % 3, move || n))).collect().unwrap();
    assert_eq!(job.wait().unwrap().unwrap(), (0..100).collect::<Vec<_>>());
    assert!(pool.submit(1, || ()).unwrap().wait().unwrap().is_completed());
}

#[track_caller]
fn message<T: std::fmt::Debug, E: std::fmt::Debug>(outcome: Outcome<T, E>) -> String {
    match outcome {
        Outcome::Panicked(payload) => payload.message().expect("a message").to_owned(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_panic_in_a_splitter_ends_its_job_alone() {
    soon(|| {
        let pool = pool(2);
        for at in [0, 1, 100, 1000] {
            let beside = pool.job("beside").each((0..1000).map(|n| move || n)).collect().unwrap();
            let pieces = (0..2000).map(move |n| {
                assert_ne!(n, at, "split");
                || ()
            });
            let job = pool.job("splits").each(pieces).run().unwrap();
            assert!(message(job.wait().unwrap()).contains("split"));
            assert!(beside.wait().unwrap().is_completed());
        }
        works(&pool);
    });
}

#[test]
fn a_panic_in_a_subtask_is_a_failure() {
    soon(|| {
        let pool = pool(2);
        for on_error in [OnError::FailFast, OnError::FinishAll] {
            for keyed in [false, true] {
                let piece = |n: u32| move || assert_ne!(n, 30, "ran");
                let builder = pool.job("panics").on_error(on_error);
                let job = match keyed {
                    true => builder.each_keyed((0..200).map(move |n| (n % 3, piece(n)))).run(),
                    false => builder.each((0..200).map(piece)).run(),
                };
                let job = job.unwrap();
                eventually(|| job.is_finished());
                let progress = job.progress();
                assert!(progress.failed == 1 && progress.running == 0, "{progress:?}");
                // Failing fast, the other worker may have run all that is left while one unwinds.
                let all_others = progress.done == 199;
                assert!(all_others || matches!(on_error, OnError::FailFast), "{progress:?}");
                assert!(message(job.wait().unwrap()).contains("ran"));
            }
        }
        works(&pool);
    });
}

#[test]
fn a_panic_in_a_fold_ends_its_job_alone() {
    soon(|| {
        let hooked = Arc::new(AtomicUsize::new(0));
        let count = hooked.clone();
        let hook = move |_: &(dyn std::any::Any + Send)| {
            count.fetch_add(1, Ordering::SeqCst);
        };
        let pool = Pool::<u32>::builder().workers(2).on_panic(hook).build().unwrap();
        for at in [0, 1, 500] {
            let pieces = (0..100_000).map(|n| move || n);
            let job = pool.job("folds").each(pieces).fold(0, move |sum, n| {
                assert_ne!(n, at, "folded");
                sum + n
            });
            assert!(message(job.unwrap().wait().unwrap()).contains("folded"));
        }
        assert_eq!(hooked.load(Ordering::SeqCst), 3);
        works(&pool);
    });
}

#[test]
fn a_panic_in_a_drop_ends_nothing() {
    soon(|| {
        let pool = pool(2);
        // Of results whose handle is gone,
        let gone = Gate::new();
        let wait = gone.clone();
        let result = move || {
            wait.pass();
            PanicsInDrop
        };
        drop(pool.job("result").each([result]).collect().unwrap());
        gone.open();
        // of a splitter and of subtasks that are cancelled,
        let held = hold(&pool, 1);
        let in_splitter = PanicsInDrop;
        let pieces = (0..1000).map(move |_| {
            let _ = &in_splitter;
            let in_subtask = PanicsInDrop;
            (1, move || std::mem::forget(in_subtask))
        });
        let job = pool.job("cancelled").each_keyed(pieces).run().unwrap();
        eventually(|| job.progress().waiting == 256);
        job.cancel();
        assert!(job.wait().unwrap().is_cancelled());
        held.let_go();
        // of subtasks that a splitter has yielded before it panics,
        let yielded = |n: u32| {
            assert!(n < 30, "it was asked for once more");
            let in_subtask = PanicsInDrop;
            move || std::mem::forget(in_subtask)
        };
        let job = pool.job("free").prefetch(64).each((0..40).map(yielded)).run().unwrap();
        assert!(matches!(job.wait().unwrap(), Outcome::Panicked(_)));
        let held = hold(&pool, 1);
        let pieces = (0..40).map(move |n| (1, yielded(n)));
        let job = pool.job("keyed").each_keyed(pieces).run().unwrap();
        assert!(matches!(job.wait().unwrap(), Outcome::Panicked(_)));
        held.let_go();
        // of the accumulator of a job that fails.
        let pieces = (0..10).map(|n| move || if n == 5 { Err(n) } else { Ok(n) });
        let job = pool.job("fails").try_each(pieces).fold(PanicsInDrop, |acc, _| acc).unwrap();
        assert!(matches!(job.wait().unwrap(), Outcome::Failed(5)));
        works(&pool);
        pool.shutdown().unwrap();
    });
}

#[test]
fn what_is_cancelled_is_dropped_at_once_and_keeps_its_place() {
    soon(|| {
        let pool = pool(2);
        let live = Live::new();
        let held = hold(&pool, 1);
        let counted = live.one();
        let pieces = (0..1000).map(move |_| {
            let counted = counted.clone();
            (1, move || drop(counted))
        });
        let job = pool.job("cancelled").each_keyed(pieces).run().unwrap();
        eventually(|| job.progress().waiting == 256);
        let behind = pool.submit(1, || ()).unwrap();
        job.cancel();
        assert_eq!(live.count(), 0);
        assert!(block_on(job).unwrap().is_cancelled());
        assert!(!behind.is_finished());
        held.let_go();
        assert!(behind.wait().unwrap().is_completed());
        pool.shutdown().unwrap();
    });
}

#[test]
fn a_closed_pool_finishes_its_jobs_and_refuses_new_ones() {
    soon(|| {
        let pool = pool(2);
        let held = hold(&pool, 1);
        let job =
            pool.job("continues").each_keyed((0..1000).map(|n| (1, move || n))).collect().unwrap();
        pool.close();
        let refused = pool.job("late").each([|| 1]).collect().unwrap_err();
        assert_eq!(refused.kind(), SubmitErrorKind::Closed);
        held.let_go();
        pool.shutdown().unwrap();
        assert!(job.is_finished(), "drained, and yet a job is not over");
        assert_eq!(job.wait().unwrap().unwrap().len(), 1000);
        assert_eq!(pool.inspect().snapshot(0).unfinished, 0);
    });
}

#[test]
fn a_job_ends_with_its_pool() {
    soon(|| {
        for stops in [true, false] {
            let pool = pool(2);
            let (gate, begun) = (Gate::new(), Gate::new());
            let open = OpenAtLast(gate.clone());
            let held = hold(&pool, 1);
            let live = Live::new();
            let counted = live.one();
            let keyed = pool
                .job("keyed")
                .each_keyed((0..1000).map(move |_| {
                    let counted = counted.clone();
                    (1, move || drop(counted))
                }))
                .run()
                .unwrap();
            eventually(|| keyed.progress().waiting == 256);
            let begins = begun.clone();
            let running = pool
                .job("running")
                .each((0..10).map(move |_| {
                    let (begins, gate) = (begins.clone(), gate.clone());
                    move || {
                        begins.open();
                        gate.pass();
                    }
                }))
                .run()
                .unwrap();
            begun.pass();
            let in_line = pool.job("in line").each((0..10).map(|_| || ())).run().unwrap();
            let paused = pool.job("paused").each((0..10).map(|_| || ())).run().unwrap();
            paused.pause();
            let task = pool.submit(1, || ()).unwrap();
            if stops {
                let unrun = pool.shutdown_now();
                assert_eq!(unrun.len(), 1, "the task, and not the job's subtasks");
                assert_eq!(live.count(), 0);
                assert!(pool.job("late").each([|| ()]).run().is_err());
            }
            assert!(!running.is_finished() || !stops);
            let ends = thread::spawn(move || drop(pool));
            // Before the running tasks are released, or they might be done before they are
            // cancelled.
            for job in [keyed, in_line, paused] {
                assert!(job.wait().unwrap().is_cancelled());
            }
            assert!(task.wait().unwrap().is_cancelled());
            held.let_go();
            drop(open);
            assert!(running.wait().unwrap().is_cancelled());
            ends.join().unwrap();
            assert_eq!(live.count(), 0);
        }
    });
}
