//! A cycle of waits through futures is reported, and is no error: a future can go on for another
//! reason than the handle that it awaits.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::mpsc;
use std::task::Poll;
use std::time::Duration;

use keylane::observe::TaskState;
use keylane::{Handle, Outcome, Pool};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

type Awaited = Handle<&'static str>;

fn pool() -> (Runtime, Pool<u32>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let pool = Pool::builder().workers(2).runtime(runtime.handle().clone(), 9).build().unwrap();
    (runtime, pool)
}

/// Ends of a task with a future that awaits the handle that it is sent, or a word.
struct Waiter {
    handle: Handle<&'static str>,
    send: oneshot::Sender<Awaited>,
    word: oneshot::Sender<()>,
    /// Told when the future has polled the handle in vain.
    pending: mpsc::Receiver<()>,
}

fn waiter(pool: &Pool<u32>, key: u32) -> Waiter {
    let (send, sent) = oneshot::channel::<Awaited>();
    let (word, mut said) = oneshot::channel::<()>();
    let (tell, pending) = mpsc::channel();
    let (begin, begun) = mpsc::channel();
    let future = async move {
        begin.send(()).unwrap();
        let mut awaited = pin!(sent.await.unwrap());
        poll_fn(|cx| {
            if pin!(&mut said).poll(cx).is_ready() {
                return Poll::Ready("word");
            }
            match awaited.as_mut().poll(cx) {
                Poll::Ready(Ok(_)) => Poll::Ready("handle"),
                Poll::Ready(Err(_)) => Poll::Ready("refused"),
                Poll::Pending => {
                    tell.send(()).unwrap();
                    Poll::Pending
                }
            }
        })
        .await
    };
    let handle = pool.task(key).submit(future).unwrap();
    begun.recv().unwrap();
    Waiter { handle, send, word, pending }
}

fn value(handle: Handle<&'static str>) -> &'static str {
    match handle.wait().unwrap() {
        Outcome::Completed(value) => value,
        other => panic!("{other:?}"),
    }
}

/// Keys of the tasks that are reported to be in a cycle.
fn in_cycles(pool: &Pool<u32>) -> Vec<u32> {
    let stalled = pool.inspect().stalled(Duration::ZERO);
    let mut keys: Vec<_> =
        stalled.into_iter().filter(|it| it.in_cycle).flat_map(|it| it.keys).collect();
    keys.sort_unstable();
    keys
}

fn is_in_cycle(pool: &Pool<u32>, task: &Handle<&'static str>) -> bool {
    let explained = pool.inspect().explain(task);
    matches!(&explained.state, TaskState::Running(run) if run.in_cycle && run.waits)
}

/// Regression: such tasks hung, and all that diagnoses said of them was that they run.
#[test]
fn two_futures_that_wait_crosswise_are_reported_and_may_go_on() {
    let (_runtime, pool) = pool();
    let (one, two) = (waiter(&pool, 1), waiter(&pool, 2));
    let (behind_one, behind_two) =
        (pool.submit(1, || "one").unwrap(), pool.submit(2, || "two").unwrap());
    let third = waiter(&pool, 3);
    one.send.send(behind_two).unwrap();
    one.pending.recv().unwrap();
    assert!(in_cycles(&pool).is_empty());
    assert!(!is_in_cycle(&pool, &one.handle));
    two.send.send(behind_one).unwrap();
    two.pending.recv().unwrap();
    // Another future that waits for one of them is not in the cycle.
    third.send.send(pool.submit(2, || "also two").unwrap()).unwrap();
    third.pending.recv().unwrap();

    assert_eq!(in_cycles(&pool), [1, 2]);
    assert!(is_in_cycle(&pool, &one.handle) && is_in_cycle(&pool, &two.handle));
    let third_state = pool.inspect().explain(&third.handle).to_string();
    assert!(third_state.ends_with("and waits for another task"), "{third_state}");
    let stalled = pool.inspect().stalled(Duration::ZERO);
    let first = stalled.iter().find(|it| it.keys == [1]).unwrap().to_string();
    assert!(first.ends_with("waits for itself through other tasks and futures"), "{first}");
    let key = pool.inspect().explain_key(&1).to_string();
    assert!(key.contains("waits for another task"), "{key}");

    // One of them goes on for another reason: the cycle was no error.
    one.word.send(()).unwrap();
    assert_eq!(value(one.handle), "word");
    assert_eq!((value(two.handle), value(third.handle)), ("handle", "handle"));
    pool.shutdown().unwrap();
}

/// A future that waits for a task behind another one makes no cycle for that one.
#[test]
fn a_future_is_in_no_cycle_because_another_one_waits_for_a_task_behind_it() {
    let (_runtime, pool) = pool();
    let held = crate::common::hold(&pool, 5);
    let (first, second) = (waiter(&pool, 1), waiter(&pool, 2));
    let behind_first = pool.submit(1, || "behind").unwrap();
    first.send.send(pool.submit(5, || "five").unwrap()).unwrap();
    first.pending.recv().unwrap();
    second.send.send(behind_first).unwrap();
    second.pending.recv().unwrap();
    assert!(in_cycles(&pool).is_empty());
    assert!(!is_in_cycle(&pool, &first.handle) && !is_in_cycle(&pool, &second.handle));
    held.let_go();
    assert_eq!((value(first.handle), value(second.handle)), ("handle", "handle"));
    pool.shutdown().unwrap();
}

/// A wait on a thread that would close a cycle of futures is not refused, because one of them may go on.
#[test]
fn a_cycle_of_a_future_and_a_thread_is_reported() {
    let (_runtime, pool) = pool();
    let future = waiter(&pool, 1);
    let behind_future = pool.submit(1, || "behind").unwrap();
    let (send, receive) = mpsc::channel::<Awaited>();
    let thread = pool.submit([2, 3], move || receive.recv().unwrap().wait().is_ok()).unwrap();
    let behind_thread = pool.submit(3, || "behind").unwrap();
    future.send.send(behind_thread).unwrap();
    future.pending.recv().unwrap();
    send.send(behind_future).unwrap();
    crate::common::eventually(|| in_cycles(&pool) == [1, 2, 3]);
    future.word.send(()).unwrap();
    assert_eq!(value(future.handle), "word");
    assert!(thread.wait().unwrap().unwrap());
    pool.shutdown().unwrap();
}

/// A handle that outlives the future that polled it says nothing of the next task of the key.
#[test]
fn a_handle_that_leaves_its_task_is_no_wait_of_that_task() {
    let (_runtime, pool) = pool();
    let held = crate::common::hold(&pool, 5);
    let awaited = pool.submit(5, || "five").unwrap();
    let (out, took) = mpsc::channel();
    let polled = async move {
        let mut awaited = awaited;
        let pending = poll_fn(|cx| Poll::Ready(pin!(&mut awaited).poll(cx).is_pending())).await;
        out.send(awaited).unwrap();
        pending
    };
    assert!(pool.task(6).submit(polled).unwrap().wait().unwrap().unwrap());
    let kept = took.recv().unwrap();
    let next = crate::common::hold(&pool, 6);
    let stalled = pool.inspect().stalled(Duration::ZERO);
    assert!(stalled.iter().all(|it| !it.waits), "{stalled:?}");
    next.let_go();
    held.let_go();
    assert!(kept.wait().unwrap().is_completed());
    pool.shutdown().unwrap();
}
