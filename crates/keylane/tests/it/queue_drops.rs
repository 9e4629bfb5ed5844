//! Everything that went into a queue is dropped exactly once, also when the code of its user
//! panics, and none of that code runs while the queue is locked.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use crate::common::{Live, One, Wakes, poll, soon};
use keylane::admit::FairQueue;

fn queue<T>(capacity: usize) -> Arc<FairQueue<T>> {
    Arc::new(FairQueue::new(capacity).unwrap())
}

fn panics(code: impl FnOnce()) {
    assert!(catch_unwind(AssertUnwindSafe(code)).is_err());
}

/// Items in every place where one can be: both parts, handed to a waiter, returned, waiting,
/// refused.
#[test]
fn a_dropped_queue_drops_all_that_is_in_it() {
    let live = Live::new();
    let queue = queue(4);
    let wakes = Wakes::new();
    let mut pops: Vec<_> = (0..2).map(|_| Box::pin(queue.pop_async())).collect();
    pops.iter_mut().for_each(|pop| assert!(poll(pop.as_mut(), &wakes).is_pending()));
    queue.push_many((0..5).map(|_| live.one()).take(4)).unwrap();
    drop(pops.remove(0));
    drop(queue.try_pop().unwrap());
    queue.try_push(live.one()).unwrap();
    let mut pushes: Vec<_> =
        (0..2).map(|_| Box::pin(queue.push_many_async([live.one(), live.one()]))).collect();
    pushes.iter_mut().for_each(|push| assert!(poll(push.as_mut(), &wakes).is_pending()));
    assert_eq!(live.count(), 8);
    drop(pushes.remove(0));
    assert_eq!(live.count(), 6);
    queue.close();
    drop((pushes, pops));
    assert_eq!((live.count(), queue.len()), (4, 4));
    drop(queue);
    assert_eq!(live.count(), 0);
}

/// Calls its queue when it is dropped: it would wait forever if the queue were locked.
struct Nosy {
    queue: Weak<FairQueue<Nosy>>,
    _one: One,
}

impl Drop for Nosy {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.upgrade() {
            let _ = (queue.len(), queue.try_pop().is_ok());
        }
    }
}

#[test]
fn no_item_is_dropped_under_the_lock() {
    soon(|| {
        let live = Live::new();
        let queue = queue::<Nosy>(2);
        let nosy = || Nosy { queue: Arc::downgrade(&queue), _one: live.one() };
        let wakes = Wakes::new();
        queue.try_push(nosy()).unwrap();
        queue.try_push(nosy()).unwrap();
        drop(queue.try_push(nosy()));
        drop(queue.push_timeout(nosy(), Duration::ZERO));
        drop(queue.try_push_many([nosy(), nosy(), nosy()]));
        let mut push = Box::pin(queue.push_async(nosy()));
        let _ = poll(push.as_mut(), &wakes);
        drop(push);
        drop(queue.drain(..));
        let mut pop = Box::pin(queue.pop_async());
        assert!(poll(pop.as_mut(), &wakes).is_pending());
        queue.try_push(nosy()).unwrap();
        drop(pop);
        drop(queue.pop());
        queue.try_push_many([nosy(), nosy()]).unwrap();
        let mut push = Box::pin(queue.push_async(nosy()));
        assert!(poll(push.as_mut(), &wakes).is_pending());
        drop(queue.close_and_take());
        drop(poll(push.as_mut(), &wakes));
        assert_eq!(live.count(), 0);
    });
}

/// Calls its queue from everything that a runtime does with a waker.
struct NosyWaker {
    queue: Arc<FairQueue<u32>>,
    woken: AtomicUsize,
}

impl Wake for NosyWaker {
    fn wake(self: Arc<Self>) {
        self.woken.fetch_add(1, Ordering::SeqCst);
        self.queue.len();
    }
}

impl Drop for NosyWaker {
    fn drop(&mut self) {
        self.queue.len();
    }
}

#[test]
fn no_waker_is_called_or_dropped_under_the_lock() {
    soon(|| {
        let queue = queue(1);
        let waker = || {
            Waker::from(Arc::new(NosyWaker { queue: queue.clone(), woken: AtomicUsize::new(0) }))
        };
        let mut push = Box::pin(queue.push_async(2));
        queue.try_push(1).unwrap();
        // The second waker replaces the first, which is then dropped.
        for _ in 0..2 {
            assert!(push.as_mut().poll(&mut Context::from_waker(&waker())).is_pending());
        }
        assert_eq!(queue.try_pop(), Ok(1));
        drop(push);
        let mut pop = Box::pin(queue.pop_async());
        assert_eq!(queue.try_pop(), Ok(2));
        for _ in 0..2 {
            assert!(pop.as_mut().poll(&mut Context::from_waker(&waker())).is_pending());
        }
        drop(pop);
        let mut pop = Box::pin(queue.pop_async());
        assert!(pop.as_mut().poll(&mut Context::from_waker(&waker())).is_pending());
        queue.close();
    });
}

#[test]
fn a_panicking_closure_changes_nothing() {
    let live = Live::new();
    let queue = queue(4);
    queue.push_many([live.one(), live.one()]).unwrap();
    panics(|| queue.peek(|_| panic!("the closure fails")).unwrap());
    panics(|| queue.for_each(|_| panic!("the closure fails")));
    assert_eq!((queue.len(), live.count()), (2, 2));
    drop(queue.pop().unwrap());
    queue.push(live.one()).unwrap();
    drop(queue);
    assert_eq!(live.count(), 0);
}

/// Its third clone fails; and when it is dropped, it calls its queue.
struct Uncopied {
    queue: Weak<FairQueue<Uncopied>>,
    clones: Arc<AtomicUsize>,
    one: One,
}

impl Clone for Uncopied {
    fn clone(&self) -> Self {
        assert!(self.clones.fetch_add(1, Ordering::SeqCst) < 2, "the third clone fails");
        let (queue, clones) = (self.queue.clone(), self.clones.clone());
        Uncopied { queue, clones, one: self.one.clone() }
    }
}

impl Drop for Uncopied {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.upgrade() {
            queue.len();
        }
    }
}

#[test]
fn a_panicking_clone_drops_the_copies_without_the_lock() {
    soon(|| {
        let live = Live::new();
        let queue = queue(8);
        let clones = Arc::new(AtomicUsize::new(0));
        queue
            .push_many((0..4).map(|_| Uncopied {
                queue: Arc::downgrade(&queue),
                clones: clones.clone(),
                one: live.one(),
            }))
            .unwrap();
        panics(|| drop(queue.snapshot()));
        assert_eq!((live.count(), queue.len()), (4, 4));
        drop(queue);
        assert_eq!(live.count(), 0);
    });
}

/// Fails when it is dropped.
struct Bomb(#[expect(dead_code, reason = "it counts")] One);

impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("the drop fails");
        }
    }
}

#[test]
fn a_panicking_drop_spares_the_others_and_the_queue() {
    let live = Live::new();
    let queue = queue(2);
    queue.try_push_many([Bomb(live.one()), Bomb(live.one())]).unwrap();
    panics(|| drop(queue.try_push(Bomb(live.one()))));
    panics(|| drop(queue.push_timeout(Bomb(live.one()), Duration::ZERO)));
    let mut push = Box::pin(queue.push_async(Bomb(live.one())));
    assert!(poll(push.as_mut(), &Wakes::new()).is_pending());
    panics(|| drop(push));
    assert_eq!((queue.len(), queue.waiting_to_push(), live.count()), (2, 0, 2));
    panics(|| drop(queue.pop()));
    assert_eq!((queue.len(), live.count()), (1, 1));
    panics(|| drop(queue));
    assert_eq!(live.count(), 0);
}

/// The items come from the user's iterator, which is asked before anything is locked or changed.
#[test]
fn a_panicking_iterator_pushes_nothing() {
    let live = Live::new();
    let queue = queue(8);
    let items = || {
        (0..4).map(|i| {
            queue.len();
            assert!(i < 2, "the iterator fails");
            live.one()
        })
    };
    panics(|| queue.push_many(items()).unwrap());
    panics(|| drop(queue.try_push_many(items())));
    assert_eq!((queue.len(), live.count()), (0, 0));
}

/// Of several waiters woken at once, one has a waker that fails: the others are woken nevertheless.
#[test]
fn a_panicking_waker_keeps_nobody_else_waiting() {
    struct Fails;
    impl Wake for Fails {
        fn wake(self: Arc<Self>) {
            panic!("this waker fails");
        }
    }
    let queue = queue(8);
    let mut pops: Vec<_> = (0..3).map(|_| Box::pin(queue.pop_async())).collect();
    let wakes = Wakes::new();
    let fails = Waker::from(Arc::new(Fails));
    for (i, pop) in pops.iter_mut().enumerate() {
        let own = Waker::from(wakes.clone());
        let waker = if i == 0 { &fails } else { &own };
        assert!(pop.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
    }
    // It belongs to another task than the one that pushes.
    queue.push_many([1, 2, 3]).unwrap();
    assert_eq!(wakes.count(), 2);
    for (i, pop) in pops.iter_mut().enumerate() {
        assert_eq!(poll(pop.as_mut(), &wakes), std::task::Poll::Ready(Ok(i + 1)));
    }
}
