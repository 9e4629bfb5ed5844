//! The captures of a task that will not run are dropped before the next task of its key begins, and
//! no worker waits meanwhile, whatever thread drops them: the one that cancels the task, its job,
//! or the one that replaces it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::{Gate, LONG, OpenAtLast, hold, soon};
use keylane::{Claims, Handle, KeyBuildHasher, MockClock, Pool};

const KEY: u32 = 1;
const OTHER: u32 = 2;

/// A capture whose drop lasts until a gate is opened.
struct Slow {
    entered: Gate,
    goes_on: Gate,
    gone: Arc<AtomicBool>,
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.entered.open();
        self.goes_on.pass();
        self.gone.store(true, Ordering::SeqCst);
    }
}

/// Observations about such a capture.
#[derive(Clone, Default)]
struct Watched {
    entered: Gate,
    goes_on: Gate,
    gone: Arc<AtomicBool>,
}

impl Watched {
    fn capture(&self) -> Slow {
        let Watched { entered, goes_on, gone } = self.clone();
        Slow { entered, goes_on, gone }
    }

    /// A body that says whether the capture was gone when it began.
    fn is_gone(&self) -> impl FnOnce() -> bool + Send + 'static {
        let gone = self.gone.clone();
        move || gone.load(Ordering::SeqCst)
    }
}

/// One worker, which continues with a key as long as that has tasks.
fn one_worker() -> Arc<Pool<u32>> {
    let pool = Pool::<u32>::builder().workers(1).quantum(1_000, LONG);
    Arc::new(pool.build().expect("it can be built"))
}

/// The worker takes what there is, with the task whose captures are being dropped at its head.
#[track_caller]
fn worker_goes_on(pool: &Pool<u32, KeyBuildHasher>) {
    for _ in 0..100 {
        assert!(pool.submit(OTHER, || ()).unwrap().wait().unwrap().is_completed());
    }
}

/// Drops the capture of the first task of the key on another thread, by `discard`, while the worker
/// reaches it.
#[track_caller]
fn discard_slowly(
    pool: &Pool<u32, KeyBuildHasher>,
    watched: &Watched,
    held: crate::common::HeldKey,
    discard: impl FnOnce() + Send + 'static,
    next: impl FnOnce() -> Handle<bool>,
) {
    let _opens = OpenAtLast(watched.goes_on.clone());
    let discards = thread::spawn(discard);
    watched.entered.pass();
    let next = next();
    held.let_go();
    worker_goes_on(pool);
    assert!(!next.is_finished(), "the captures of the task before it are still there");
    watched.goes_on.open();
    discards.join().unwrap();
    assert_eq!(next.wait().unwrap().ok(), Some(true), "it began before they were gone");
}

#[test]
fn of_a_closure_that_is_cancelled() {
    soon(|| {
        let (pool, watched) = (one_worker(), Watched::default());
        let (held, slow) = (hold(&pool, KEY), watched.capture());
        let task = pool.submit(KEY, move || drop(slow)).unwrap();
        let next = || pool.submit(KEY, watched.is_gone()).unwrap();
        discard_slowly(&pool, &watched, held, move || assert!(task.cancel()), next);
    });
}

#[test]
fn of_a_rollup_that_is_cancelled() {
    soon(|| {
        let (pool, watched) = (one_worker(), Watched::default());
        let (held, slow) = (hold(&pool, [KEY, 7]), watched.capture());
        let task = pool.submit([KEY, 7], move || drop(slow)).unwrap();
        let next = || pool.submit(KEY, watched.is_gone()).unwrap();
        discard_slowly(&pool, &watched, held, move || assert!(task.cancel()), next);
    });
}

#[cfg(feature = "tokio")]
#[test]
fn of_a_future_that_is_cancelled_before_it_began() {
    soon(|| {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let pool = Pool::<u32>::builder().workers(1).quantum(1_000, LONG);
        let pool = Arc::new(pool.runtime(runtime.handle().clone(), 10).build().unwrap());
        let watched = Watched::default();
        let (held, slow) = (hold(&pool, KEY), watched.capture());
        let task = pool.task(KEY).submit(async move { drop(slow) }).unwrap();
        let next = || pool.submit(KEY, watched.is_gone()).unwrap();
        discard_slowly(&pool, &watched, held, move || assert!(task.cancel()), next);
    });
}

#[test]
fn of_a_subtask_whose_job_is_cancelled() {
    soon(|| {
        let (pool, watched) = (one_worker(), Watched::default());
        // With another worker, so that the job is split while the first one is held.
        pool.settings().set_workers(2).unwrap();
        let (held, slow) = (hold(&pool, KEY), watched.capture());
        let job = pool.job("slow").each_keyed([(KEY, move || drop(slow))]).run().unwrap();
        crate::common::eventually(|| job.progress().waiting == 1);
        pool.settings().set_workers(1).unwrap();
        let next = || pool.submit(KEY, watched.is_gone()).unwrap();
        discard_slowly(&pool, &watched, held, move || job.cancel(), next);
    });
}

/// The new task takes the place of the old one.
#[test]
fn of_a_task_that_is_replaced_in_its_place() {
    soon(|| {
        let (pool, watched) = (one_worker(), Watched::default());
        let (held, slow) = (hold(&pool, KEY), watched.capture());
        let old = pool.task(KEY).latest().submit(move || drop(slow)).unwrap();
        let (submits, is_gone) = (pool.clone(), watched.is_gone());
        let (tell, new) = std::sync::mpsc::channel();
        let replace =
            move || tell.send(submits.task(KEY).latest().submit(is_gone).unwrap()).unwrap();
        let next = || pool.submit(KEY, watched.is_gone()).unwrap();
        discard_slowly(&pool, &watched, held, replace, next);
        assert!(old.wait().unwrap().is_superseded());
        assert_eq!(new.recv().unwrap().wait().unwrap().ok(), Some(true));
    });
}

/// Something has come behind the old one, so the new one has another place.
#[test]
fn of_a_task_that_is_replaced_by_one_behind_others() {
    soon(|| {
        let (pool, watched) = (one_worker(), Watched::default());
        let (held, slow) = (hold(&pool, KEY), watched.capture());
        let _old = pool.task(KEY).latest().submit(move || drop(slow)).unwrap();
        let between = pool.submit(KEY, watched.is_gone()).unwrap();
        let shared = pool.submit(Claims::shared(KEY), watched.is_gone()).unwrap();
        let _opens = OpenAtLast(watched.goes_on.clone());
        let (submits, is_gone) = (pool.clone(), watched.is_gone());
        let replaces = thread::spawn(move || submits.task(KEY).latest().submit(is_gone).unwrap());
        watched.entered.pass();
        held.let_go();
        worker_goes_on(&pool);
        assert!(!between.is_finished(), "it waits for them");
        watched.goes_on.open();
        assert_eq!(between.wait().unwrap().ok(), Some(true));
        assert_eq!(shared.wait().unwrap().ok(), Some(true));
        assert_eq!(replaces.join().unwrap().wait().unwrap().ok(), Some(true));
    });
}

/// Both are in their lane, the old one behind a task that runs; and the new one is taken.
#[test]
fn of_a_task_whose_replacement_is_taken() {
    soon(|| {
        let (pool, watched) = (one_worker(), Watched::default());
        let (held, slow) = (hold(&pool, KEY), watched.capture());
        let _old = pool.task(KEY).latest().submit(move || drop(slow)).unwrap();
        let _opens = OpenAtLast(watched.goes_on.clone());
        let submits = pool.clone();
        let replaces = thread::spawn(move || submits.task(KEY).latest().submit(|| ()).unwrap());
        watched.entered.pass();
        let next = pool.submit(KEY, watched.is_gone()).unwrap();
        assert_eq!(pool.keys().take(&KEY).len(), 2);
        let next_one = pool.submit(KEY, watched.is_gone()).unwrap();
        held.let_go();
        worker_goes_on(&pool);
        assert!(!next_one.is_finished(), "it waits for them");
        watched.goes_on.open();
        assert_eq!(next_one.wait().unwrap().ok(), Some(true));
        drop((next, replaces.join().unwrap()));
        pool.shutdown().unwrap();
    });
}

/// The worker has reached the new task, which waits for the captures of the old one. A key that is
/// paused then begins nothing all the same.
#[test]
fn of_a_task_that_is_replaced_while_its_key_is_paused() {
    soon(|| {
        let (pool, watched) = (one_worker(), Watched::default());
        let (held, slow) = (hold(&pool, KEY), watched.capture());
        let _old = pool.task(KEY).latest().submit(move || drop(slow)).unwrap();
        let _opens = OpenAtLast(watched.goes_on.clone());
        let (submits, is_gone) = (pool.clone(), watched.is_gone());
        let replaces = thread::spawn(move || submits.task(KEY).latest().submit(is_gone).unwrap());
        watched.entered.pass();
        held.let_go();
        worker_goes_on(&pool);
        assert!(pool.keys().pause(&KEY));
        watched.goes_on.open();
        let new = replaces.join().unwrap();
        worker_goes_on(&pool);
        assert!(!new.is_finished(), "its key is paused");
        let more = pool.submit(KEY, || ()).unwrap();
        assert!(pool.keys().resume(&KEY));
        assert_eq!(new.wait().unwrap().ok(), Some(true));
        assert!(more.wait().unwrap().is_completed());
        pool.shutdown().unwrap();
        assert!(pool.inspect().snapshot(9).hottest.is_empty());
    });
}

#[test]
fn of_a_task_that_is_replaced_while_the_pool_is_stopped() {
    soon(|| {
        let (pool, watched) = (one_worker(), Watched::default());
        let (held, slow) = (hold(&pool, KEY), watched.capture());
        let _old = pool.task(KEY).latest().submit(move || drop(slow)).unwrap();
        let _opens = OpenAtLast(watched.goes_on.clone());
        let submits = pool.clone();
        let replaces = thread::spawn(move || submits.task(KEY).latest().submit(|| ()).unwrap());
        watched.entered.pass();
        held.let_go();
        worker_goes_on(&pool);
        let unrun = pool.shutdown_now();
        assert_eq!(unrun.len(), 1, "the new task has not begun");
        watched.goes_on.open();
        let new = replaces.join().unwrap();
        drop(unrun);
        assert!(new.wait().unwrap().is_cancelled());
        pool.shutdown().unwrap();
    });
}

/// A cancelled task that is being dropped is replaced: the new one waits for that drop as well.
#[test]
fn of_a_task_that_is_cancelled_and_then_replaced() {
    soon(|| {
        let (pool, watched) = (one_worker(), Watched::default());
        let (held, slow) = (hold(&pool, KEY), watched.capture());
        let old = pool.task(KEY).latest().submit(move || drop(slow)).unwrap();
        let next = || pool.task(KEY).latest().submit(watched.is_gone()).unwrap();
        discard_slowly(&pool, &watched, held, move || assert!(old.cancel()), next);
    });
}

/// Both are delayed. The delay of the new one is over while the captures of the old one are dropped; a third one then
/// replaces it, and waits for them as well.
#[test]
fn of_a_delayed_task_that_is_replaced() {
    const SECOND: Duration = Duration::from_secs(1);
    for replaced_again in [false, true] {
        soon(move || {
            let (clock, watched) = (MockClock::new(), Watched::default());
            let pool = Pool::<u32>::builder().workers(1).clock(&clock).build().unwrap();
            let slow = watched.capture();
            let old = pool.task(KEY).latest().after(SECOND).submit(move || drop(slow)).unwrap();
            let _opens = OpenAtLast(watched.goes_on.clone());
            let (submits, is_gone) = (pool.clone(), watched.is_gone());
            let replaces = thread::spawn(move || {
                submits.task(KEY).latest().after(SECOND).submit(is_gone).unwrap()
            });
            watched.entered.pass();
            // The timer serves delays in the order of their ends.
            let pass = || {
                let marker = pool.task(OTHER).after(SECOND).submit(|| ()).unwrap();
                clock.advance(SECOND);
                assert!(marker.wait().unwrap().is_completed());
                worker_goes_on(&pool);
            };
            pass();
            let third = replaced_again.then(|| {
                let third = pool.task(KEY).latest().after(SECOND).submit(watched.is_gone());
                pass();
                third.unwrap()
            });
            watched.goes_on.open();
            let new = replaces.join().unwrap();
            assert!(old.wait().unwrap().is_superseded());
            let (new, third) = (new.wait().unwrap(), third.map(|third| third.wait().unwrap().ok()));
            match third {
                None => assert_eq!(new.ok(), Some(true)),
                Some(third) => assert!(new.is_superseded() && third == Some(true)),
            }
            pool.shutdown().unwrap();
        });
    }
}

/// A guard that releases something in the pool when it is dropped, and waits for that: the only
/// worker waited for the thread that cancels, and that thread for the worker.
#[test]
fn whose_drop_waits_for_the_pool() {
    soon(|| {
        struct Releases {
            pool: Arc<Pool<u32>>,
            held: Option<crate::common::HeldKey>,
        }
        impl Drop for Releases {
            fn drop(&mut self) {
                self.held.take();
                worker_goes_on(&self.pool);
            }
        }
        let pool = one_worker();
        let guard = Releases { pool: pool.clone(), held: Some(hold(&pool, KEY)) };
        let task = pool.submit(KEY, move || drop(guard)).unwrap();
        let next = pool.submit(KEY, || ()).unwrap();
        assert!(task.cancel());
        assert!(next.wait().unwrap().is_completed());
        assert!(task.wait().unwrap().is_cancelled());
    });
}
