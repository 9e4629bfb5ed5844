//! A job's subtasks can be futures: they hold their turns until they end, no worker waits for them,
//! and the job is over when they are.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{Live, Log, eventually, soon};
use keylane::{Claims, OnError, Outcome, Pool, ResultOrder, SubmitErrorKind};
use tokio::runtime::Runtime;
use tokio::sync::{Barrier, oneshot};

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap()
}

fn pool(runtime: &Runtime, concurrency: usize) -> Pool<u32> {
    Pool::builder().workers(1).runtime(runtime.handle().clone(), concurrency).build().unwrap()
}

#[test]
fn as_many_run_as_the_limit_says_and_their_values_are_in_order() {
    soon(|| {
        let runtime = runtime();
        let pool = pool(&runtime, 100);
        // Each of them ends only when a hundred have met.
        let meet = Arc::new(Barrier::new(100));
        let replies = (0..500_u32).map(move |n| {
            let meet = meet.clone();
            (Claims::none(), async move {
                meet.wait().await;
                n
            })
        });
        let job = pool.job("meets").each_future(replies).collect().unwrap();
        assert_eq!(job.wait().unwrap().unwrap(), (0..500).collect::<Vec<_>>());
        pool.shutdown().unwrap();
    });
}

#[test]
fn a_key_waits_for_its_future_and_the_worker_does_not() {
    soon(|| {
        let runtime = runtime();
        let pool = pool(&runtime, 10);
        let log = Log::new();
        let (open, gate) = oneshot::channel::<()>();
        let (first, next) = (log.clone(), log.clone());
        let future = async move {
            gate.await.unwrap();
            first.push("future");
        };
        let job = pool.job("waits").each_future([(1, future)]).run().unwrap();
        eventually(|| job.progress().waiting == 1);
        let behind = pool.submit(1, move || next.push("task")).unwrap();
        assert!(pool.submit(2, || ()).unwrap().wait().unwrap().is_completed());
        assert!(log.len() == 0 && !behind.is_finished() && !job.is_finished());
        open.send(()).unwrap();
        assert!(job.wait().unwrap().is_completed() && behind.wait().unwrap().is_completed());
        assert_eq!(log.take(), ["future", "task"]);
    });
}

#[test]
fn a_cancelled_job_is_over_when_its_futures_are_dropped() {
    soon(|| {
        let runtime = runtime();
        let pool = pool(&runtime, 10);
        let live = Live::new();
        let counted = live.one();
        let futures = (0..100).map(move |n: u32| {
            let counted = counted.clone();
            (n, async move {
                pending::<()>().await;
                drop(counted);
            })
        });
        let job = pool.job("forever").each_future(futures).run().unwrap();
        eventually(|| job.progress().waiting == 64);
        job.cancel();
        assert!(job.wait().unwrap().is_cancelled());
        assert_eq!(live.count(), 0);
        pool.shutdown().unwrap();
    });
}

#[test]
fn a_future_that_fails_or_panics_is_a_failure_of_its_job() {
    soon(|| {
        let runtime = runtime();
        let pool = pool(&runtime, 10);
        for on_error in [OnError::FailFast, OnError::FinishAll] {
            let ended = Arc::new(AtomicUsize::new(0));
            let counter = ended.clone();
            let futures = (0..1000_u32).map(move |n| {
                let ended = counter.clone();
                (n % 3, async move {
                    tokio::task::yield_now().await;
                    ended.fetch_add(1, Ordering::SeqCst);
                    if n == 20 { Err(n) } else { Ok(n) }
                })
            });
            let job = pool.job("fails").on_error(on_error).try_each_future(futures).collect();
            assert!(matches!(job.unwrap().wait().unwrap(), Outcome::Failed(20)));
            assert_eq!(
                ended.load(Ordering::SeqCst) == 1000,
                matches!(on_error, OnError::FinishAll)
            );
        }
        let panics = [(1, async { panic!("in a future") })];
        let job = pool.job("panics").each_future::<_, (), _, _>(panics).collect().unwrap();
        assert!(matches!(job.wait().unwrap(), Outcome::Panicked(_)));
        pool.shutdown().unwrap();
    });
}

#[test]
fn without_a_runtime_the_job_comes_back() {
    let pool = Pool::<u32>::builder().workers(1).build().unwrap();
    let refused = pool.job("lost").each_future([(1, async {})]).run().unwrap_err();
    assert_eq!(refused.kind(), SubmitErrorKind::NoRuntime);
    assert_eq!(pool.inspect().snapshot(0).unfinished, 0);
}

#[test]
fn a_stopped_pool_or_runtime_ends_the_job() {
    soon(|| {
        let runtime = runtime();
        for stops_pool in [true, false] {
            let pool = pool(&runtime, 100);
            let futures = (0..30_u32).map(|n| (n, pending::<()>()));
            let job = pool.job("forever").each_future(futures).run().unwrap();
            eventually(|| job.progress().waiting == 30);
            if stops_pool {
                pool.shutdown_now();
            } else {
                drop(pool);
            }
            assert!(job.wait().unwrap().is_cancelled());
        }
    });
}

/// The fold of futures was called outside of their pool. Its submissions waited for capacity, which
/// a full pool has only when the fold has returned; and nothing kept it from waiting for a task
/// behind its own subtask.
#[test]
fn a_fold_stands_where_its_future_stood() {
    soon(|| {
        let runtime = runtime();
        let pool = Pool::<u32>::builder().workers(1).capacity(1);
        let pool = Arc::new(pool.runtime(runtime.handle().clone(), 10).build().unwrap());
        let inside = pool.clone();
        let job = pool.job("folds").each_future((0..10).map(|_| (1, async {})));
        let job = job.fold(0, move |refused, ()| {
            let behind = inside.try_submit(1, || ()).expect("it comes from inside");
            let beside = inside.try_submit(7, || ()).expect("so does this");
            assert!(beside.wait().unwrap().is_completed());
            refused + u32::from(behind.wait().is_err())
        });
        assert_eq!(job.unwrap().wait().unwrap().ok(), Some(10));
        pool.shutdown().unwrap();
    });
}

/// A result that waits for earlier ones is folded at the end of the job, if those do not come: by
/// the thread that has ended the last future, whose turn has ended by then.
#[test]
fn the_last_fold_of_a_job_is_inside_its_pool_too() {
    soon(|| {
        let runtime = runtime();
        let pool = Pool::<u32>::builder().workers(1).capacity(1);
        let pool = Arc::new(pool.runtime(runtime.handle().clone(), 10).build().unwrap());
        pool.keys().pause(&1);
        let inside = pool.clone();
        // The first does not begin, for the second fails.
        let futures = [1, 2].map(|key| (key, async move { Err::<(), _>(key) }));
        let job = pool.job("fails").result_order(ResultOrder::Submission).try_each_future(futures);
        let job = job.fold_outcomes(0, move |folded, outcome| {
            assert!(matches!(outcome, Outcome::Failed(2)));
            let next = inside.try_submit(2, || ()).expect("it comes from inside");
            assert!(next.wait().expect("its key is free").is_completed());
            folded + 1
        });
        assert_eq!(job.unwrap().wait().unwrap().ok(), Some(1));
        pool.keys().resume(&1);
        pool.shutdown().unwrap();
    });
}

/// Regression test: a panic left the job's flag on the runtime's thread.
#[test]
fn a_panic_leaves_no_cancel_flag_on_the_thread_of_the_runtime() {
    soon(|| {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let pool = pool(&runtime, 1);
        let panics = [(Claims::none(), async { assert!(keylane::is_cancelled(), "on purpose") })];
        let job = pool.job("fails").on_error(OnError::FailFast).each_future(panics);
        assert!(matches!(job.run().unwrap().wait().unwrap(), Outcome::Panicked(_)));
        let is_cancelled = runtime.spawn(async { keylane::is_cancelled() });
        assert!(!runtime.block_on(is_cancelled).unwrap(), "no task runs there");
    });
}
