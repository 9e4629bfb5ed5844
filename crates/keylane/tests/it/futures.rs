//! A future holds its turn until it ends, and no worker waits for it.

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane::{Claims, Handle, Outcome, Pool, SubmitErrorKind};
use tokio::runtime::Runtime;
use tokio::sync::{Barrier, oneshot};

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap()
}

fn pool(runtime: &Runtime, concurrency: usize) -> Pool<u32> {
    Pool::builder().workers(1).runtime(runtime.handle().clone(), concurrency).build().unwrap()
}

#[test]
fn a_key_waits_for_its_future_and_other_keys_do_not() {
    let runtime = runtime();
    let pool = pool(&runtime, 10);
    let log = Arc::new(Mutex::new(Vec::new()));
    let (open, gate) = oneshot::channel::<()>();
    let first = log.clone();
    let slow = pool
        .task(1)
        .submit(async move {
            gate.await.unwrap();
            first.lock().unwrap().push("future");
        })
        .unwrap();
    let next = log.clone();
    let behind = pool.submit(1, move || next.lock().unwrap().push("closure")).unwrap();
    // The one worker is free, so another key's task runs to its end.
    assert!(pool.submit(2, || ()).unwrap().wait().unwrap().is_completed());
    assert!(log.lock().unwrap().is_empty() && !behind.is_finished());
    open.send(()).unwrap();
    assert!(slow.wait().unwrap().is_completed() && behind.wait().unwrap().is_completed());
    assert_eq!(*log.lock().unwrap(), ["future", "closure"]);
}

#[test]
fn as_many_run_at_a_time_as_the_limit_says() {
    const LIMIT: usize = 3;
    let runtime = runtime();
    let pool = pool(&runtime, LIMIT);
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    // Each of them ends only when as many as are allowed have met.
    let meet = Arc::new(Barrier::new(LIMIT));
    let handles: Vec<_> = (0..LIMIT as u32 * 20)
        .map(|key| {
            let (running, most, meet) = (running.clone(), most.clone(), meet.clone());
            pool.task(key)
                .submit(async move {
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    meet.wait().await;
                    running.fetch_sub(1, Ordering::SeqCst);
                })
                .unwrap()
        })
        .collect();
    assert!(handles.into_iter().all(|handle| handle.wait().unwrap().is_completed()));
    assert_eq!(most.load(Ordering::SeqCst), LIMIT);
}

#[test]
fn a_panic_ends_the_future_alone() {
    let runtime = runtime();
    let pool = pool(&runtime, 10);
    let (panics, seen) = (Arc::new(AtomicUsize::new(0)), pool.inspect().snapshot(0).panicked);
    let bad = pool.task(1).submit(async { panic!("as expected") }).unwrap();
    let count = panics.clone();
    let good = pool.submit(1, move || count.fetch_add(1, Ordering::SeqCst)).unwrap();
    match bad.wait().unwrap() {
        Outcome::<()>::Panicked(payload) => assert_eq!(payload.message(), Some("as expected")),
        other => panic!("{other:?}"),
    }
    assert_eq!(good.wait().unwrap().unwrap(), 0);
    assert_eq!(pool.inspect().snapshot(0).panicked, seen + 1);
}

/// Says when it is dropped.
struct Tell(mpsc::Sender<&'static str>);
impl Drop for Tell {
    fn drop(&mut self) {
        let _ = self.0.send("dropped");
    }
}

#[test]
fn a_cancelled_future_is_dropped_before_its_turn_ends() {
    let runtime = runtime();
    let pool = pool(&runtime, 10);
    let (tell, told) = mpsc::channel();
    let (begun, began) = mpsc::channel();
    let captured = Tell(tell.clone());
    let endless = pool
        .task(1)
        .submit(async move {
            let _captured = captured;
            begun.send(()).unwrap();
            pending::<()>().await;
        })
        .unwrap();
    let behind = pool.submit(1, move || tell.send("behind").unwrap()).unwrap();
    began.recv().unwrap();
    assert!(!endless.cancel(), "it has begun");
    assert!(endless.wait().unwrap().is_cancelled());
    behind.wait().unwrap().unwrap();
    assert_eq!(pool.inspect().snapshot(0).cancelled, 1);
    assert_eq!(told.iter().take(2).collect::<Vec<_>>(), ["dropped", "behind"]);
}

#[test]
fn a_future_that_has_not_begun_never_does_once_cancelled() {
    let runtime = runtime();
    let pool = pool(&runtime, 10);
    let (open, gate) = oneshot::channel::<()>();
    let first = pool.task(1).submit(async move { gate.await.unwrap() }).unwrap();
    let second = pool.task(1).submit(async { unreachable!("it was cancelled") }).unwrap();
    let third = pool.submit(1, || ()).unwrap();
    assert!(second.cancel());
    assert!(!third.is_finished(), "a successor never jumps");
    open.send(()).unwrap();
    assert!(first.wait().unwrap().is_completed() && third.wait().unwrap().is_completed());
    let second: Outcome<()> = second.wait().unwrap();
    assert!(second.is_cancelled());
}

#[test]
fn the_end_of_the_runtime_ends_the_turns() {
    let runtime = runtime();
    let pool = pool(&runtime, 10);
    let (begun, began) = mpsc::channel();
    let endless = pool
        .task(1)
        .submit(async move {
            begun.send(()).unwrap();
            pending::<()>().await;
        })
        .unwrap();
    began.recv().unwrap();
    let queued = pool.task(1).submit(pending::<()>()).unwrap();
    let behind = pool.submit(1, || ()).unwrap();
    runtime.shutdown_background();
    assert!(endless.wait().unwrap().is_cancelled());
    assert!(queued.wait().unwrap().is_cancelled());
    assert!(behind.wait().unwrap().is_completed());
}

#[test]
fn a_future_submits_to_its_own_full_pool_without_waiting() {
    let runtime = runtime();
    let pool = Arc::new(
        Pool::<u32>::builder()
            .workers(1)
            .capacity(1)
            .runtime(runtime.handle().clone(), 10)
            .build()
            .unwrap(),
    );
    let own = pool.clone();
    let outer = pool
        .task(1)
        .submit(async move {
            let inner = own.submit(2, || 42).unwrap();
            inner.await.unwrap().unwrap()
        })
        .unwrap();
    assert_eq!(outer.wait().unwrap().unwrap(), 42);
}

#[test]
fn a_future_that_awaits_what_is_ordered_behind_it_gets_an_error() {
    let runtime = runtime();
    let pool = Arc::new(pool(&runtime, 10));
    let own = pool.clone();
    let outer = pool
        .task(1)
        .submit(async move {
            let behind = own.submit(1, || ()).unwrap();
            behind.await.is_err()
        })
        .unwrap();
    assert!(outer.wait().unwrap().unwrap());
}

#[test]
fn without_a_runtime_the_future_comes_back() {
    let pool = Pool::<u32>::builder().workers(1).capacity(1).build().unwrap();
    let error = pool.task(1).submit(async { 42 }).unwrap_err();
    assert_eq!(error.kind(), SubmitErrorKind::NoRuntime);
    let (_, future) = error.into_inner();
    assert_eq!(runtime().block_on(future), 42);
    // The slot that it was given is free again.
    assert!(pool.try_submit(1, || ()).is_ok());
}

#[test]
fn a_closed_pool_gives_the_future_back() {
    let runtime = runtime();
    let pool = pool(&runtime, 1);
    pool.close();
    assert_eq!(pool.task(1).submit(async {}).unwrap_err().kind(), SubmitErrorKind::Closed);
}

#[test]
fn a_concurrency_of_nothing_is_refused() {
    let runtime = runtime();
    let error = Pool::<u32>::builder().runtime(runtime.handle().clone(), 0).build().unwrap_err();
    assert!(matches!(error, keylane::BuildError::Concurrency(0)), "{error}");
}

#[test]
fn a_future_keeps_its_keys_place_and_its_bytes_until_it_ends() {
    let runtime = runtime();
    let builder = Pool::<u32>::builder().workers(1).capacity_per_key(1).capacity_bytes(10);
    // Without a runtime it is refused, and has taken nothing.
    let without = builder.build().unwrap();
    for _ in 0..3 {
        let error = without.task(Claims::exclusive(1).with_cost(9)).submit(async {}).unwrap_err();
        assert_eq!(error.kind(), SubmitErrorKind::NoRuntime);
        assert_eq!(error.into_inner().0.cost(), 9);
    }
    assert!(without.try_submit(Claims::exclusive(1).with_cost(10), || ()).is_ok());
    let builder = Pool::<u32>::builder().workers(1).capacity_per_key(1).capacity_bytes(10);
    let pool = builder.runtime(runtime.handle().clone(), 10).build().unwrap();
    for ends in [true, false] {
        let (open, gate) = oneshot::channel::<()>();
        let (begun, runs) = mpsc::channel();
        let slow = pool
            .task(Claims::exclusive(1).with_cost(9))
            .submit(async move {
                begun.send(()).unwrap();
                gate.await.unwrap();
            })
            .unwrap();
        runs.recv().unwrap();
        // The worker has started it, and is free.
        assert!(pool.submit(2, || ()).unwrap().wait().unwrap().is_completed());
        assert_eq!(pool.try_submit(1, || ()).unwrap_err().kind(), SubmitErrorKind::KeyFull);
        let heavy = pool.try_submit(Claims::exclusive(3).with_cost(2), || ()).unwrap_err();
        assert_eq!(heavy.kind(), SubmitErrorKind::Full);
        if ends {
            open.send(()).unwrap();
        } else {
            assert!(!slow.cancel(), "it has begun, and is dropped at its next step");
        }
        // Both wait until it has ended.
        assert!(pool.submit(1, || ()).unwrap().wait().unwrap().is_completed());
        let heavy = pool.submit(Claims::exclusive(3).with_cost(10), || ()).unwrap();
        assert!(heavy.wait().unwrap().is_completed());
        assert_eq!(slow.wait().unwrap().is_completed(), ends);
    }
    pool.shutdown().unwrap();
    assert_eq!(pool.inspect().snapshot(0).bytes, 0);
}

/// It waited forever: it runs on no thread in particular, so it was not seen that it is the task
/// it waits for.
#[test]
fn a_future_cannot_await_its_own_handle() {
    let runtime = runtime();
    for keys in [Claims::none(), Claims::exclusive(1)] {
        let pool = pool(&runtime, 10);
        let (send, own) = oneshot::channel::<Handle<bool>>();
        let (say, said) = mpsc::channel();
        let handle = pool.task(keys).submit(async move {
            let refused = own.await.unwrap().await.is_err();
            say.send(refused).unwrap();
            refused
        });
        assert!(send.send(handle.unwrap()).is_ok());
        assert!(said.recv().unwrap());
        pool.shutdown().unwrap();
    }
}

/// The future comes last: the other task waits on its worker's thread, and is counted.
#[test]
fn a_future_cannot_close_a_cycle_of_waits() {
    let runtime = runtime();
    let pool = pool(&runtime, 10);
    let (give, given) = mpsc::channel::<Handle<()>>();
    let waits = pool.submit(1, move || given.recv().unwrap().wait().is_ok()).unwrap();
    let (open, gate) = oneshot::channel::<Handle<()>>();
    let future = pool.task(2).submit(async move { gate.await.unwrap().await.is_err() }).unwrap();
    let (behind_one, behind_two) = (pool.submit(1, || ()).unwrap(), pool.submit(2, || ()).unwrap());
    give.send(behind_two).unwrap();
    while !pool.inspect().stalled(Duration::ZERO).iter().any(|task| task.waits) {
        std::thread::yield_now();
    }
    assert!(open.send(behind_one).is_ok());
    assert!(future.wait().unwrap().unwrap());
    assert!(waits.wait().unwrap().unwrap());
}
