//! A panic of what belongs to the user costs its task and no worker: a waker, and the hash, the
//! comparison, the clone or the drop of a key (`key_panics.rs` has random programs). Where one leaves
//! a part of the pool half changed, as a comparison at a bound per key does, the pool is poisoned: it
//! says so to every later call, and all that waits for it learns it.

use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use crate::common::{Collide, Gate, HeldKey, LONG, OpenAtLast, block_on, eventually, soon};
use keylane::{Claims, KeyBuildHasher, OnClosedKey, Pool, SubmitErrorKind, WaitError};

/// Panics instead of waking.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker, on purpose");
    }
}

fn poll_with_panic<F: Future + ?Sized>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(&Waker::from(Arc::new(Panics))))
}

/// Fails unless as many tasks as there are workers can run at the same time.
#[track_caller]
fn check_workers(pool: &Pool<u32, KeyBuildHasher>, workers: usize) {
    let meet = Arc::new(std::sync::Barrier::new(workers));
    let handles: Vec<_> = (0..workers)
        .map(|n| {
            let meet = meet.clone();
            pool.submit(100 + n as u32, move || _ = meet.wait()).unwrap()
        })
        .collect();
    for handle in handles {
        assert!(handle.wait().unwrap().is_completed());
    }
    assert!(!pool.inspect().snapshot(0).poisoned);
}

/// The permit of a task that ends goes to a submission whose waker panics: the worker unwound with
/// the next task in its slot, whose key was never released.
#[test]
fn a_waker_of_a_submission_that_waits_for_room() {
    soon(|| {
        // A task with one key ends in a worker's step, a rollup on a way of its own.
        for keys in [vec![1], vec![1, 2]] {
            let pool = Pool::<u32>::builder().workers(1).capacity(2).build().unwrap();
            let held = crate::common::hold(&pool, keys);
            let next = pool.submit(1, || ()).unwrap();
            let mut waits = Box::pin(pool.task(3).submit_async(|| ()));
            assert!(poll_with_panic(waits.as_mut()).is_pending());
            held.let_go();
            assert!(next.wait().unwrap().is_completed());
            let Poll::Ready(handle) = poll_with_panic(waits.as_mut()) else {
                panic!("it has room")
            };
            assert!(handle.unwrap().wait().unwrap().is_completed());
            check_workers(&pool, 1);
            pool.shutdown().unwrap();
        }
    });
}

#[test]
fn a_waker_of_a_submission_that_waits_for_its_key() {
    soon(|| {
        for keys in [vec![1], vec![1, 2]] {
            let pool = Pool::<u32>::builder().workers(1).capacity_per_key(1).build().unwrap();
            let held = crate::common::hold(&pool, keys);
            let next = pool.submit(3, || ()).unwrap();
            let mut waits = Box::pin(pool.task(1).submit_async(|| ()));
            assert!(poll_with_panic(waits.as_mut()).is_pending());
            held.let_go();
            assert!(next.wait().unwrap().is_completed());
            let mut handle = None;
            eventually(|| match poll_with_panic(waits.as_mut()) {
                Poll::Ready(entered) => {
                    handle = Some(entered.unwrap());
                    true
                }
                Poll::Pending => false,
            });
            assert!(handle.unwrap().wait().unwrap().is_completed());
            check_workers(&pool, 1);
            pool.shutdown().unwrap();
        }
    });
}

/// A waiter of a task is no part of it: the task has not failed.
#[test]
fn a_waker_of_a_handle_and_of_a_job() {
    soon(|| {
        let pool = Pool::<u32>::builder().workers(2).build().unwrap();
        let gate = Gate::new();
        let _opens = OpenAtLast(gate.clone());
        let (wait, wait_in_job) = (gate.clone(), gate.clone());
        let mut handle = Box::pin(pool.submit(1, move || wait.pass()).unwrap());
        let pieces = [(2, move || wait_in_job.pass())];
        let mut job = Box::pin(pool.job("waits").each_keyed(pieces).run().unwrap());
        assert!(poll_with_panic(handle.as_mut()).is_pending());
        assert!(poll_with_panic(job.as_mut()).is_pending());
        gate.open();
        eventually(|| handle.is_finished() && job.is_finished());
        assert!(handle.as_mut().get_mut().try_join().unwrap().is_completed());
        assert!(job.as_mut().get_mut().try_join().unwrap().is_completed());
        check_workers(&pool, 2);
        assert_eq!(pool.inspect().snapshot(0).panicked, 0);
        pool.shutdown().unwrap();
    });
}

/// A waker whose drop and clone look at the handle that it is kept by: they were called under its
/// lock.
#[test]
fn the_drop_of_a_waker_may_wait_for_what_the_end_of_its_task_allows() {
    /// Lets the task end whose handle keeps the waker, and waits for the next task of its key.
    struct Waits(Mutex<Option<(HeldKey, mpsc::Receiver<()>)>>);
    impl Wake for Waits {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for Waits {
        fn drop(&mut self) {
            let (held, next) = crate::common::lock(&self.0).take().unwrap();
            held.let_go();
            next.recv().unwrap();
        }
    }
    soon(|| {
        let pool = crate::common::pool(1);
        let held = crate::common::hold(&pool, 1);
        let mut handle = pool.submit(1, || ()).unwrap();
        let (tell, next) = mpsc::channel();
        pool.execute(1, move || tell.send(()).unwrap()).unwrap();
        let first = Waker::from(Arc::new(Waits(Some((held, next)).into())));
        let mut poll = |waker: &Waker| {
            std::pin::Pin::new(&mut handle).poll(&mut Context::from_waker(waker)).is_pending()
        };
        assert!(poll(&first));
        drop(first);
        // The second waker replaces the first, which is dropped. Under the lock of the task's
        // state, the task could not end.
        assert!(poll(&Waker::from(crate::common::Wakes::new())));
        assert!(handle.wait().unwrap().is_completed());
    });
}

/// Action of an armed key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Hash,
    Eq,
    Clone,
    Drop,
}

/// A key that panics, once it is armed.
#[derive(Debug)]
struct Key {
    id: u32,
    fault: Fault,
    armed: Arc<AtomicBool>,
}

impl Key {
    #[track_caller]
    fn fail(&self, at: Fault) {
        if self.fault == at && self.armed.load(Ordering::SeqCst) && !thread::panicking() {
            panic!("a key, on purpose: {at:?}");
        }
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.fail(Fault::Hash);
        self.id.hash(state);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.fail(Fault::Eq);
        self.id == other.id
    }
}

impl Eq for Key {}

impl Clone for Key {
    fn clone(&self) -> Self {
        self.fail(Fault::Clone);
        Key { id: self.id, fault: self.fault, armed: self.armed.clone() }
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.fail(Fault::Drop);
    }
}

/// Makes keys that are armed together.
struct Keys {
    fault: Fault,
    armed: Arc<AtomicBool>,
}

impl Keys {
    fn new(fault: Fault) -> Self {
        Keys { fault, armed: Arc::default() }
    }

    fn key(&self, id: u32) -> Key {
        Key { id, fault: self.fault, armed: self.armed.clone() }
    }

    fn arm(&self, armed: bool) {
        self.armed.store(armed, Ordering::SeqCst);
    }
}

/// A pool in which every look at a key compares it.
fn colliding(workers: usize) -> Pool<Key, Collide> {
    Pool::<Key>::builder().workers(workers).capacity(64).hasher(Collide).build().unwrap()
}

/// A pool like [`colliding`] with a bound per key, whose entries are found by comparisons.
fn bounded(workers: usize, capacity: usize) -> Pool<Key, Collide> {
    let builder = Pool::<Key>::builder().workers(workers).capacity(capacity).capacity_per_key(32);
    builder.hasher(Collide).build().unwrap()
}

#[track_caller]
fn is_poisoned(pool: &Pool<Key, Collide>, keys: &Keys) {
    keys.arm(false);
    for _ in 0..3 {
        assert_eq!(pool.submit(keys.key(1), || ()).unwrap_err().kind(), SubmitErrorKind::Poisoned);
        assert_eq!(pool.execute(keys.key(1), || ()).unwrap_err().kind(), SubmitErrorKind::Poisoned);
        let several = [keys.key(1), keys.key(2)];
        assert_eq!(pool.try_submit(several, || ()).unwrap_err().kind(), SubmitErrorKind::Poisoned);
        let latest = pool.task(keys.key(1)).latest().submit(|| ());
        assert_eq!(latest.unwrap_err().kind(), SubmitErrorKind::Poisoned);
        let batch = pool.execute_many([(keys.key(1), || ())]);
        assert_eq!(batch.unwrap_err().kind(), SubmitErrorKind::Poisoned);
        let job = pool.job("late").each([|| ()]).run();
        assert_eq!(job.unwrap_err().kind(), SubmitErrorKind::Poisoned);
    }
    assert_eq!(pool.shutdown(), Err(WaitError::Poisoned));
    assert!(pool.is_closed() && pool.inspect().snapshot(0).poisoned);
    assert!(pool.shutdown_now().is_empty(), "it was dropped");
}

/// The worker releases the bound of a key by a comparison. All waiters return an error: a handle, a
/// job, a submitter that waits for capacity, and a thread that drains.
#[test]
fn a_key_that_panics_at_its_bound_poisons_the_pool() {
    soon(move || {
        let (keys, pool) = (Keys::new(Fault::Eq), Arc::new(bounded(1, 64)));
        let (gate, begun) = (Gate::new(), Gate::new());
        let _opens = OpenAtLast(gate.clone());
        let (wait, runs) = (gate.clone(), begun.clone());
        let runs_on = pool.submit(keys.key(0), move || {
            runs.open();
            wait.pass();
            7
        });
        begun.pass();
        let ran = Arc::new(AtomicUsize::new(0));
        let mut waiting: Vec<_> = (0..9)
            .map(|n| {
                let (ran, sets) = (ran.clone(), vec![keys.key(n % 3), keys.key(n % 3 + 4)]);
                pool.submit(sets, move || _ = ran.fetch_add(1, Ordering::SeqCst)).unwrap()
            })
            .collect();
        waiting.extend((0..20).map(|n| pool.submit(keys.key(n % 3), || ()).unwrap()));
        let pieces = (0..3).map(|n| (keys.key(n), || ())).collect::<Vec<_>>();
        let job = pool.job("waits").each_keyed(pieces).run().unwrap();
        let drains = pool.clone();
        let drains = thread::spawn(move || drains.shutdown());
        let waits = pool.clone();
        let waits = thread::spawn(move || block_on(waits.wait_idle_async()));
        eventually(|| pool.is_closed());
        keys.arm(true);
        gate.open();
        assert_eq!(runs_on.unwrap().wait().unwrap().ok(), Some(7), "it had begun");
        for handle in waiting {
            assert!(handle.wait().unwrap().is_cancelled());
        }
        assert!(!job.wait().unwrap().is_completed());
        assert_eq!(drains.join().unwrap(), Err(WaitError::Poisoned));
        assert_eq!(waits.join().unwrap(), Err(WaitError::Poisoned));
        is_poisoned(&pool, &keys);
    });
}

/// A key's latest task and its last one are also referenced by the inbox. The worker panics while it
/// moves such a task from the inbox into its lane, so the task is in neither: it fails.
#[test]
fn a_latest_task_and_an_end_that_were_being_entered_fail() {
    for submit in [
        |pool: &Pool<Key, Collide>, key| pool.task(key).latest().submit(|| ()).unwrap(),
        |pool: &Pool<Key, Collide>, key| {
            pool.task(key).last(OnClosedKey::Refuse).submit(|| ()).unwrap()
        },
    ] {
        soon(move || {
            let (keys, pool) = (Keys::new(Fault::Eq), colliding(1));
            pool.keys().pause(&keys.key(1));
            let (gate, begun) = (Gate::new(), Gate::new());
            let _opens = OpenAtLast(gate.clone());
            let (wait, runs) = (gate.clone(), begun.clone());
            let running = move || {
                runs.open();
                wait.pass();
            };
            pool.execute(keys.key(0), running).unwrap();
            begun.pass();
            let entered = submit(&pool, keys.key(2));
            keys.arm(true);
            gate.open();
            let outcome = entered.wait().unwrap();
            assert!(matches!(outcome, keylane::Outcome::Panicked(_)), "{outcome:?}");
            keys.arm(false);
            // The key has no latest task any more, and no end that is to come.
            pool.keys().reopen(&keys.key(2));
            let next = submit(&pool, keys.key(2));
            assert!(next.wait().unwrap().is_completed());
            pool.keys().resume(&keys.key(1));
            pool.shutdown().unwrap();
        });
    }
}

/// The submitter, too, compares keys under a lock. The panic is its own, and nothing has changed.
#[test]
fn a_key_that_panics_in_a_submission_costs_the_submission_alone() {
    soon(|| {
        let (keys, pool) = (Keys::new(Fault::Eq), colliding(1));
        let (gate, begun) = (Gate::new(), Gate::new());
        let _opens = OpenAtLast(gate.clone());
        let (wait, runs) = (gate.clone(), begun.clone());
        let running = move || {
            runs.open();
            wait.pass();
        };
        // The one worker enters nothing meanwhile.
        let running = pool.submit(keys.key(0), running).unwrap();
        begun.pass();
        let waits = pool.submit(keys.key(1), || ()).unwrap();
        let latest = pool.task(keys.key(1)).latest().submit(|| ()).unwrap();
        keys.arm(true);
        let submits = || pool.task(keys.key(1)).latest().submit(|| ()).map(drop);
        assert!(catch_unwind(AssertUnwindSafe(submits)).is_err(), "it learns of it");
        let takes = || drop(pool.keys().take(&keys.key(1)));
        assert!(catch_unwind(AssertUnwindSafe(takes)).is_err());
        keys.arm(false);
        gate.open();
        for handle in [running, waits, latest] {
            assert!(handle.wait().unwrap().is_completed());
        }
        eventually(|| pool.inspect().snapshot(0).unfinished == 0);
        pool.shutdown().unwrap();
    });
}

/// The copies of a key with which a pool finds its latest task go with the task.
#[test]
fn a_poisoned_pool_keeps_no_key_of_a_latest_task() {
    soon(move || {
        let (keys, watched) = (Keys::new(Fault::Eq), Keys::new(Fault::Eq));
        let pool = Arc::new(bounded(1, 64));
        let (gate, begun) = (Gate::new(), Gate::new());
        let _opens = OpenAtLast(gate.clone());
        let (wait, runs) = (gate.clone(), begun.clone());
        let runs_on = pool.submit(keys.key(0), move || {
            runs.open();
            wait.pass();
        });
        begun.pass();
        let of_watched = || Arc::strong_count(&watched.armed) - 1;
        let single = pool.submit(watched.key(1), || ()).unwrap();
        let latest = pool.task(watched.key(2)).latest().submit(|| ()).unwrap();
        assert!(of_watched() > 2, "the bound has a copy of each, and the inbox others");
        keys.arm(true);
        gate.open();
        assert!(latest.wait().unwrap().is_cancelled() && single.wait().unwrap().is_cancelled());
        assert!(runs_on.unwrap().wait().unwrap().is_completed());
        // Those of the bound.
        eventually(|| of_watched() <= 2);
        is_poisoned(&pool, &keys);
    });
}

/// A submitter that waits for capacity, which the poisoned pool will never have.
#[test]
fn who_waits_for_room_learns_that_the_pool_is_poisoned() {
    soon(|| {
        let keys = Keys::new(Fault::Eq);
        let pool = Arc::new(bounded(1, 2));
        let (gate, begun) = (Gate::new(), Gate::new());
        let _opens = OpenAtLast(gate.clone());
        let (wait, runs) = (gate.clone(), begun.clone());
        let running = move || {
            runs.open();
            wait.pass();
        };
        let _running = pool.submit(keys.key(1), running).unwrap();
        begun.pass();
        let waits = pool.submit(keys.key(2), || ()).unwrap();
        let submits = pool.clone();
        let submits = thread::spawn(move || submits.submit(Claims::none(), || ()).map(drop));
        eventually(|| pool.inspect().snapshot(0).submitters_waiting == 1);
        keys.arm(true);
        let submits_too = || drop(pool.submit(keys.key(1), || ()));
        assert!(catch_unwind(AssertUnwindSafe(submits_too)).is_err());
        let refused = submits.join().unwrap().unwrap_err();
        assert_eq!(refused.kind(), SubmitErrorKind::Poisoned);
        assert!(waits.wait().unwrap().is_cancelled());
        is_poisoned(&pool, &keys);
    });
}

/// A hash is computed when nothing is locked: its panic costs the submission, and no permit is
/// lost.
#[test]
fn a_hash_that_panics_costs_the_submission_alone() {
    soon(|| {
        let keys = Keys::new(Fault::Hash);
        let pool = Pool::<Key>::builder().workers(1).capacity(2).quantum(9, LONG).build().unwrap();
        for _ in 0..5 {
            keys.arm(true);
            let panics = |submits: &dyn Fn()| {
                assert!(catch_unwind(AssertUnwindSafe(submits)).is_err());
            };
            panics(&|| drop(pool.submit(keys.key(1), || ())));
            panics(&|| drop(pool.execute(keys.key(1), || ())));
            panics(&|| drop(pool.submit([keys.key(1), keys.key(2)], || ())));
            panics(&|| drop(pool.task(keys.key(1)).latest().submit(|| ())));
            panics(&|| {
                drop(pool.task(keys.key(1)).last(keylane::OnClosedKey::NewLife).submit(|| ()))
            });
            panics(&|| _ = pool.keys().pause(&keys.key(1)));
            keys.arm(false);
            // Both slots are there.
            let one = pool.try_submit(keys.key(1), || ()).unwrap();
            let two = pool.try_submit(keys.key(2), || ()).unwrap();
            assert!(one.wait().unwrap().is_completed() && two.wait().unwrap().is_completed());
            eventually(|| pool.inspect().snapshot(0).unfinished == 0);
        }
        pool.shutdown().unwrap();
    });
}

/// A worker drops keys when nothing is locked, and continues.
#[test]
fn a_drop_of_a_key_that_panics_costs_nothing() {
    soon(|| {
        let keys = Keys::new(Fault::Drop);
        let pool = Pool::<Key>::builder().workers(2).build().unwrap();
        keys.arm(true);
        let handles: Vec<_> = (0..200)
            .map(|n| match n % 3 {
                0 => pool.submit([keys.key(n % 5), keys.key(n % 7 + 10)], || ()).unwrap(),
                _ => pool.submit(keys.key(n % 5), || ()).unwrap(),
            })
            .collect();
        for handle in handles {
            assert!(handle.wait().unwrap().is_completed());
        }
        pool.shutdown().unwrap();
        assert!(!pool.inspect().snapshot(0).poisoned);
        keys.arm(false);
    });
}

/// A handler is given a copy of the key, made under a lock.
#[test]
fn a_key_that_panics_costs_its_message() {
    soon(|| {
        let keys = Keys::new(Fault::Clone);
        let (ran, panics) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (runs, counts) = (ran.clone(), panics.clone());
        let pool = Pool::<Key>::builder()
            .workers(2)
            .hasher(Collide)
            .on_panic(move |_| _ = counts.fetch_add(1, Ordering::SeqCst))
            .build_handler(move |_: &Key, _: u32| _ = runs.fetch_add(1, Ordering::SeqCst));
        let pool = pool.unwrap();
        keys.arm(true);
        (0..100).for_each(|n| pool.send(keys.key(n), n).unwrap());
        pool.wait_idle().unwrap();
        let ran_armed = ran.load(Ordering::SeqCst);
        assert!(panics.load(Ordering::SeqCst) >= 100 - ran_armed, "each loss is reported");
        keys.arm(false);
        (0..100).for_each(|n| pool.send(keys.key(n), n).unwrap());
        pool.shutdown().unwrap();
        assert_eq!(ran.load(Ordering::SeqCst), ran_armed + 100);
        assert!(!pool.inspect().snapshot(0).poisoned);
    });
}
