//! Of tasks that are submitted as the latest of their key only the last that waits is run: the
//! others end as superseded at once, leave nothing behind, and the order holds.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use crate::common::{
    AnyHasher, CountedKey, Gate, Live, LiveWatch, Log, OpenAtLast, Rng, Wakes, block_on,
    eventually, hold, poll, pool_of, with_every_hasher,
};
use keylane::{Claims, Handle, Outcome, PendingTask, Pool, SubmitErrorKind, handler};

with_every_hasher!(
    the_replaced_learns_it_and_the_new_one_has_its_own_result,
    what_runs_is_not_replaced,
    what_was_submitted_otherwise_is_not_replaced,
    the_new_one_runs_after_all_that_came_between,
    superseded_tasks_leave_no_more_behind_than_came_between,
    other_keys_leave_nothing_behind,
    a_replacement_needs_no_room,
    a_failed_submission_changes_nothing,
    a_drop_may_call_the_pool_and_may_panic,
    a_cancelled_one_is_replaced_and_stays_cancelled,
    a_latest_task_is_held_and_taken_and_comes_back_like_any,
    it_can_be_submitted_from_inside,
    messages_come_back_with_what_they_weigh,
    a_key_that_is_bounded_stays_so,
    a_dropped_submission_has_replaced_nothing,
    a_burst_from_many_threads_ends_with_the_last,
);

const A: u32 = 1;
const B: u32 = 2;

/// Has everything that is there entered, with keys that collide.
fn let_others_run<S: AnyHasher>(pool: &Pool<u32, S>) {
    for key in 1000..1050 {
        assert!(pool.submit(key, || {}).unwrap().wait().unwrap().is_completed());
    }
}

fn superseded<T: 'static>(handle: &mut Handle<T>) -> bool {
    handle.try_join().is_some_and(|outcome| outcome.is_superseded())
}

/// Seed 001, 1b: the first submitter's future, of a `String`, yielded the integer of the second,
/// whose own future was cancelled.
fn the_replaced_learns_it_and_the_new_one_has_its_own_result<S: AnyHasher>() {
    let pool = pool_of::<S>(2);
    let live = Live::new();
    // Where it waits: in the lane, and in the inbox.
    for enters in [true, false] {
        let running = hold(&pool, A);
        let one = live.one();
        let text = move || {
            drop(one);
            "text".to_owned()
        };
        let mut first = pool.task(A).latest().submit(text).unwrap();
        if enters {
            let_others_run(&pool);
        }
        let second = pool.task(A).latest().submit(|| 42).unwrap();
        assert_eq!(live.count(), 0, "its captures are gone at once");
        assert!(superseded(&mut first), "it knows at once");
        running.let_go();
        assert_eq!(second.wait().unwrap().ok(), Some(42));
    }
    eventually(|| pool.inspect().snapshot(0).unfinished == 0);
    assert_eq!(pool.inspect().snapshot(0).superseded, 2);
}

fn what_runs_is_not_replaced<S: AnyHasher>() {
    let pool = pool_of::<S>(2);
    let (begun, goes_on) = (Gate::new(), Gate::new());
    let _open = OpenAtLast(goes_on.clone());
    let (begins, wait) = (begun.clone(), goes_on.clone());
    let run = move || {
        begins.open();
        wait.pass();
        1
    };
    let running = pool.task(A).latest().submit(run).unwrap();
    begun.pass();
    let mut waits = pool.task(A).latest().submit(|| 2).unwrap();
    let last = pool.task(A).latest().submit(|| 3).unwrap();
    assert!(superseded(&mut waits));
    goes_on.open();
    assert_eq!(running.wait().unwrap().ok(), Some(1));
    assert_eq!(last.wait().unwrap().ok(), Some(3));
}

fn what_was_submitted_otherwise_is_not_replaced<S: AnyHasher>() {
    let pool = pool_of::<S>(1);
    let running = hold(&pool, A);
    let ordinary = pool.submit(A, || 1).unwrap();
    let latest = pool.task(A).latest().submit(|| 2).unwrap();
    let other = pool.task(B).latest().submit(|| 3).unwrap();
    running.let_go();
    assert_eq!(ordinary.wait().unwrap().ok(), Some(1));
    assert_eq!(latest.wait().unwrap().ok(), Some(2));
    assert_eq!(other.wait().unwrap().ok(), Some(3));
}

fn the_new_one_runs_after_all_that_came_between<S: AnyHasher>() {
    let claims = [
        Claims::exclusive(A),
        Claims::shared(A),
        Claims::exclusive(B).and_exclusive(A),
        Claims::shared(B).and_shared(A),
        Claims::barrier(),
    ];
    for between in claims {
        for enters in [true, false] {
            let pool = pool_of::<S>(3);
            let log = Log::new();
            let write = |name| {
                let log = log.clone();
                move || log.push(name)
            };
            let running = hold(&pool, A);
            let mut old = pool.task(A).latest().submit(write("old")).unwrap();
            if enters {
                let_others_run(&pool);
            }
            pool.execute(between.clone(), write("between")).unwrap();
            let mut new = pool.task(A).latest().submit(write("new")).unwrap();
            assert!(superseded(&mut old));
            let newest = pool.task(A).latest().submit(write("newest")).unwrap();
            assert!(superseded(&mut new));
            pool.execute(A, write("last")).unwrap();
            running.let_go();
            assert!(newest.wait().unwrap().is_completed());
            pool.shutdown().unwrap();
            assert_eq!(log.take(), ["between", "newest", "last"], "{between:?}");
        }
    }
}

fn superseded_tasks_leave_no_more_behind_than_came_between<S: AnyHasher>() {
    let pool = pool_of::<S>(2);
    let running = hold(&pool, A);
    let ran = Arc::new(AtomicUsize::new(0));
    for between in 0..20 {
        for _ in 0..50 {
            let ran = ran.clone();
            pool.task(A).latest().execute(move || _ = ran.fetch_add(1, Ordering::SeqCst)).unwrap();
        }
        assert_eq!(
            pool.inspect().snapshot(0).unfinished,
            2 + between,
            "one of them, whatever came between"
        );
        pool.execute(A, || {}).unwrap();
    }
    let_others_run(&pool);
    running.let_go();
    pool.shutdown().unwrap();
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}

/// Tasks of other keys of the same shard do not come between two tasks of this one.
fn other_keys_leave_nothing_behind<S: AnyHasher>() {
    let pool = Pool::<u32>::builder().workers(2).capacity(3).hasher(S::default()).build().unwrap();
    let running = hold(&pool, A);
    for n in 0..2000 {
        let handle = pool.submit(B + n % 5, || {}).unwrap();
        pool.task(A).latest().try_execute(|| {}).unwrap();
        assert!(handle.wait().unwrap().is_completed());
        eventually(|| pool.inspect().snapshot(0).unfinished == 2);
    }
    running.let_go();
    pool.shutdown().unwrap();
}

fn a_replacement_needs_no_room<S: AnyHasher>() {
    let pool = Pool::<u32>::builder().workers(1).capacity(2).hasher(S::default()).build().unwrap();
    let running = hold(&pool, A);
    let mut old = pool.task(A).latest().try_submit(|| 1).unwrap();
    assert!(pool.task(B).try_execute(|| {}).is_err(), "the pool is full");
    let mut newer = pool.task(A).latest().try_submit(|| 2).unwrap();
    let mut newest = pool.task(A).latest().timeout(Duration::ZERO).submit(|| 3).unwrap();
    let last = block_on(pool.task(A).latest().submit_async(|| 4)).unwrap();
    assert!(superseded(&mut old) && superseded(&mut newer) && superseded(&mut newest));
    assert_eq!(pool.inspect().snapshot(0).unfinished, 2);
    running.let_go();
    assert_eq!(last.wait().unwrap().ok(), Some(4));
    pool.shutdown().unwrap();
}

/// Seed 001, 1a: a submission that failed left the key with a task that no thread would run, and
/// every later one was taken for its duplicate.
fn a_failed_submission_changes_nothing<S: AnyHasher>() {
    let pool = Pool::<u32>::builder().workers(1).capacity(1).hasher(S::default()).build().unwrap();
    let running = hold(&pool, B);
    for _ in 0..5 {
        let refused = pool.task(A).latest().try_submit(|| 1).unwrap_err();
        assert_eq!(refused.kind(), SubmitErrorKind::Full);
        let (_, work) = refused.into_inner();
        assert_eq!(work(), 1);
        let late = pool.task(A).latest().timeout(Duration::from_nanos(1)).submit(|| 1).unwrap_err();
        assert_eq!(late.kind(), SubmitErrorKind::TimedOut);
    }
    running.let_go();
    for n in 0..5 {
        assert_eq!(pool.task(A).latest().submit(move || n).unwrap().wait().unwrap().ok(), Some(n));
    }
    // One that waits continues although a later one is refused.
    pool.keys().pause(&A);
    eventually(|| pool.inspect().snapshot(0).unfinished == 0);
    let waits = pool.task(A).latest().submit(|| 6).unwrap();
    pool.close();
    let refused = pool.task(A).latest().try_submit(|| 7).unwrap_err();
    assert_eq!(refused.kind(), SubmitErrorKind::Closed);
    assert_eq!(pool.task(A).latest().submit(|| 7).unwrap_err().kind(), SubmitErrorKind::Closed);
    pool.keys().resume(&A);
    assert_eq!(waits.wait().unwrap().ok(), Some(6));
}

fn a_drop_may_call_the_pool_and_may_panic<S: AnyHasher>() {
    struct Meddles<S: AnyHasher>(Arc<Pool<u32, S>>, bool);
    impl<S: AnyHasher> Drop for Meddles<S> {
        fn drop(&mut self) {
            // Nothing is locked: each of these takes the locks of the key.
            self.0.task(A).latest().execute(|| {}).unwrap();
            self.0.keys().pause(&A);
            self.0.keys().resume(&A);
            self.0.inspect().snapshot(5);
            assert!(!self.1, "on purpose");
        }
    }
    let pool = Arc::new(pool_of::<S>(1));
    for panics in [false, true] {
        let running = hold(&pool, A);
        let meddles = Meddles(pool.clone(), panics);
        let mut old = pool.task(A).latest().submit(move || drop(meddles)).unwrap();
        let new = pool.task(A).latest().submit(|| 1).unwrap();
        assert!(superseded(&mut old));
        running.let_go();
        // The task that the drop has submitted came later.
        assert!(new.wait().unwrap().is_superseded());
    }
    eventually(|| pool.inspect().snapshot(0).unfinished == 0);
}

fn a_cancelled_one_is_replaced_and_stays_cancelled<S: AnyHasher>() {
    let pool = pool_of::<S>(1);
    let running = hold(&pool, A);
    let old = pool.task(A).latest().submit(|| 1).unwrap();
    assert!(old.cancel());
    let new = pool.task(A).latest().submit(|| 2).unwrap();
    assert_eq!(pool.inspect().snapshot(0).unfinished, 2);
    assert!(old.wait().unwrap().is_cancelled());
    let mut newer = pool.task(A).latest().submit(|| 3).unwrap();
    assert!(!newer.cancel() || superseded(&mut newer) || newer.is_finished());
    assert!(new.wait().unwrap().is_superseded());
    running.let_go();
    pool.shutdown().unwrap();
}

fn a_latest_task_is_held_and_taken_and_comes_back_like_any<S: AnyHasher>() {
    let pool = pool_of::<S>(2);
    let log = Log::new();
    let write = |name| {
        let log = log.clone();
        move || log.push(name)
    };
    pool.keys().pause(&A);
    pool.execute(A, write("first")).unwrap();
    pool.task(A).latest().execute(write("old")).unwrap();
    let_others_run(&pool);
    pool.task(A).latest().execute(write("taken")).unwrap();
    pool.execute(A, write("second")).unwrap();
    pool.task(A).latest().execute(write("also taken")).unwrap();
    let taken = pool.keys().take(&A);
    assert_eq!(taken.len(), 3);
    taken.into_iter().for_each(PendingTask::run);
    assert_eq!(log.take(), ["first", "second", "also taken"]);
    eventually(|| pool.inspect().snapshot(0).unfinished == 0);
    // A taken task cannot be replaced.
    pool.task(A).latest().execute(write("new")).unwrap();
    pool.keys().resume(&A);
    eventually(|| log.len() == 1);
    pool.keys().pause(&A);
    pool.task(A).latest().execute(write("third")).unwrap();
    pool.execute(A, write("fourth")).unwrap();
    pool.task(A).latest().execute(write("fifth")).unwrap();
    let unrun = pool.shutdown_now();
    assert_eq!(unrun.len(), 2);
    unrun.into_iter().for_each(PendingTask::run);
    assert_eq!(log.take(), ["new", "fourth", "fifth"]);
}

fn it_can_be_submitted_from_inside<S: AnyHasher>() {
    let pool = Arc::new(
        Pool::<u32>::builder().workers(1).capacity(1).hasher(S::default()).build().unwrap(),
    );
    let inside = pool.clone();
    let handles = pool.submit(A, move || {
        let old = inside.task(A).latest().submit(|| 1).unwrap();
        let new = inside.task(A).latest().submit(|| 2).unwrap();
        let new = new.wait().unwrap_err().into_inner();
        (old, new)
    });
    let (old, new) = handles.unwrap().wait().unwrap().unwrap();
    assert!(old.wait().unwrap().is_superseded());
    assert_eq!(new.wait().unwrap().ok(), Some(2));
}

fn messages_come_back_with_what_they_weigh<S: AnyHasher>() {
    let handled = Log::new();
    let log = handled.clone();
    let builder = Pool::<u32>::builder().workers(1).capacity_bytes(100).hasher(S::default());
    let pool = builder
        .build_handler(handler::weighed(|n| *n, move |_: &u32, n: usize| log.push(n)))
        .unwrap();
    pool.keys().pause(&A);
    assert_eq!(pool.send_latest(A, 60).unwrap(), None);
    assert_eq!(pool.inspect().snapshot(0).bytes, 60);
    let refused = pool.try_send_latest(A, 50).unwrap_err();
    assert_eq!((refused.kind(), refused.into_inner()), (SubmitErrorKind::Full, (A, 50)));
    assert_eq!(pool.send_latest(A, 40).unwrap(), Some(60));
    assert_eq!(pool.inspect().snapshot(0).bytes, 40);
    assert_eq!(
        pool.send_latest(A, 0).unwrap(),
        Some(40),
        "it weighs nothing, and waits for nothing"
    );
    assert_eq!(pool.inspect().snapshot(0).bytes, 0);
    assert_eq!(pool.send_latest_timeout(A, 30, Duration::ZERO).unwrap(), Some(0));
    pool.send(A, 20).unwrap();
    assert_eq!(block_on(pool.send_latest_async(A, 10)).unwrap(), Some(30));
    assert_eq!((pool.inspect().snapshot(0).bytes, pool.inspect().snapshot(0).unfinished), (30, 2));
    pool.keys().resume(&A);
    pool.shutdown().unwrap();
    assert_eq!(handled.take(), [20, 10]);
    assert_eq!(pool.inspect().snapshot(0).bytes, 0);
}

fn a_key_that_is_bounded_stays_so<S: AnyHasher>() {
    let builder = Pool::<u32>::builder().workers(1).capacity_per_key(2).hasher(S::default());
    let pool = builder.build().unwrap();
    let running = hold(&pool, A);
    let mut first = pool.task(A).latest().try_submit(|| 1).unwrap();
    let second = pool.task(A).latest().try_submit(|| 2).unwrap();
    assert!(superseded(&mut first));
    let refused = pool.task(A).try_execute(|| {}).unwrap_err();
    assert_eq!(refused.kind(), SubmitErrorKind::KeyFull);
    running.let_go();
    assert!(second.wait().unwrap().is_completed());
    eventually(|| pool.inspect().snapshot(0).unfinished == 0);
    let _running = hold(&pool, A);
    pool.task(A).try_execute(|| {}).unwrap();
    let refused = pool.task(A).latest().try_submit(|| {}).unwrap_err();
    assert_eq!(refused.kind(), SubmitErrorKind::KeyFull);
}

fn a_dropped_submission_has_replaced_nothing<S: AnyHasher>() {
    let pool = Pool::<u32>::builder().workers(1).capacity(1).hasher(S::default()).build().unwrap();
    let live = Live::new();
    let running = hold(&pool, B);
    let one = live.one();
    let mut waits = Box::pin(pool.task(A).latest().submit_async(move || drop(one)));
    let wakes = Wakes::new();
    assert!(poll(waits.as_mut(), &wakes).is_pending());
    assert_eq!(live.count(), 1);
    drop(waits);
    assert_eq!(live.count(), 0);
    let mut waits = Box::pin(pool.task(A).latest().submit_async(|| 1));
    assert!(poll(waits.as_mut(), &wakes).is_pending());
    running.let_go();
    wakes.wait();
    let Poll::Ready(Ok(handle)) = poll(waits.as_mut(), &wakes) else { panic!("there is room") };
    assert_eq!(handle.wait().unwrap().ok(), Some(1));
}

/// Many threads, each with rising numbers for each key. Every one runs or is superseded, those of a
/// thread run in order, and the last of each key runs.
fn a_burst_from_many_threads_ends_with_the_last<S: AnyHasher>() {
    const KEYS: u32 = 3;
    const TASKS: usize = 700;
    let pool = Arc::new(
        Pool::<u32>::builder().workers(2).capacity(8).hasher(S::default()).build().unwrap(),
    );
    let (say, ran) = mpsc::channel();
    let threads: Vec<_> = (0..3)
        .map(|thread| {
            let (pool, say) = (pool.clone(), say.clone());
            thread::spawn(move || {
                let mut rng = Rng(thread as u64);
                let mut handles = Vec::new();
                for n in 0..TASKS {
                    let key = rng.below(KEYS.into()) as u32;
                    let say = say.clone();
                    let body = move || say.send((key, thread, n)).unwrap();
                    match rng.below(8) {
                        0 => handles.push((key, n, pool.submit(key, body).unwrap())),
                        1 => handles.push((key, n, pool.submit([key, key + 1], body).unwrap())),
                        _ => handles.push((key, n, pool.task(key).latest().submit(body).unwrap())),
                    }
                }
                handles
            })
        })
        .collect();
    let mut done = 0;
    for thread in threads {
        for (_, _, handle) in thread.join().unwrap() {
            match handle.wait().unwrap() {
                Outcome::Completed(()) => done += 1,
                outcome => assert!(outcome.is_superseded()),
            }
        }
    }
    for key in 0..KEYS {
        let say = say.clone();
        let last = pool.task(key).latest().submit(move || say.send((key, 9, 0)).unwrap()).unwrap();
        assert!(last.wait().unwrap().is_completed());
    }
    pool.shutdown().unwrap();
    drop((pool, say));
    let ran: Vec<_> = ran.into_iter().collect();
    assert_eq!(ran.len(), done + KEYS as usize);
    for key in 0..KEYS {
        for thread in 0..3 {
            let own = ran.iter().filter(|(k, t, _)| (*k, *t) == (key, thread));
            assert!(own.map(|(_, _, n)| n).is_sorted());
        }
        assert_eq!(ran.iter().rfind(|(k, _, _)| *k == key), Some(&(key, 9, 0)));
    }
}

#[test]
fn nothing_stays_of_a_latest_task() {
    let live = Live::new();
    let watch: LiveWatch = live.watch();
    let key = |n| CountedKey::new(n, &live);
    let pool = Pool::<CountedKey>::builder().workers(2).build().unwrap();
    for n in 0..200 {
        for _ in 0..3 {
            pool.task(key(n % 20)).latest().execute(|| {}).unwrap();
            pool.execute(key(n % 7), || {}).unwrap();
        }
    }
    eventually(|| pool.inspect().snapshot(0).unfinished == 0 && watch.now() == 0);
    // Nor of one that never ran.
    pool.keys().pause(&key(1));
    pool.task(key(1)).latest().execute(|| {}).unwrap();
    drop(pool.keys().take(&key(1)));
    pool.keys().resume(&key(1));
    eventually(|| watch.now() == 0);
}
