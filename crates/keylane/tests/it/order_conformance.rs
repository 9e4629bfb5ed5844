//! The pool passes the conformance suite of order, which the service's scheduler passes as well.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::common::{AnyHasher, Collide, LONG, eventually, soon};
use keylane::{Claims, Handle, KeyBuildHasher, OnFailure, Pool};
use keylane_testkit::order::{self, Executor, Features, Use, check_order};

/// Pool whose bodies wait until the suite ends them.
struct Library<S: AnyHasher> {
    /// Dropped before the pool, which waits for its bodies.
    running: HashMap<usize, Sender<bool>>,
    handles: HashMap<usize, Handle<(), ()>>,
    pool: Pool<u8, S>,
    started: Receiver<usize>,
    starts: Sender<usize>,
}

impl<S: AnyHasher> Executor for Library<S> {
    const FEATURES: Features = Features {
        shared: true,
        limited: true,
        barriers: true,
        cancelled_leave_at_once: false,
        failed_keep_keys: false,
        pause_spares_rollups: true,
    };

    fn new(slots: usize) -> Self {
        let builder = Pool::<u8>::builder().workers(slots).capacity(1000);
        let builder = builder.on_failure(OnFailure::StopKey { after: 1 });
        let pool = builder.hasher(S::default()).build().unwrap();
        let (starts, started) = channel();
        Library { running: HashMap::new(), handles: HashMap::new(), pool, started, starts }
    }

    fn submit(&mut self, task: usize, claims: &order::Claims) {
        let claims = match claims {
            order::Claims::Barrier => Claims::barrier(),
            order::Claims::Keys(keys) => {
                keys.iter().fold(Claims::none(), |claims, &(key, how)| match how {
                    Use::Exclusive => claims.and_exclusive(key),
                    Use::Shared => claims.and_shared(key),
                    Use::Limited(most) => claims.and_limited(key, most),
                })
            }
        };
        let (end, ended) = channel();
        let starts = self.starts.clone();
        let body = move || {
            // The receiver is gone if the suite has failed.
            let _ = starts.send(task);
            if ended.recv().unwrap_or(false) { Err(()) } else { Ok(()) }
        };
        let handle = self.pool.task(claims).fallible().submit(body).unwrap();
        self.running.insert(task, end);
        self.handles.insert(task, handle);
    }

    fn next_start(&mut self, must: bool) -> Option<usize> {
        match must {
            true => self.started.recv_timeout(LONG / 10).ok(),
            false => self.started.try_recv().ok(),
        }
    }

    fn end(&mut self, task: usize, fails: bool) {
        let unfinished = self.pool.inspect().snapshot(0).unfinished;
        self.running.remove(&task).unwrap().send(fails).unwrap();
        // Its keys are released, or stopped, before its permit is.
        eventually(|| self.pool.inspect().snapshot(0).unfinished < unfinished);
    }

    fn cancel(&mut self, task: usize) {
        assert!(self.handles[&task].cancel());
        self.running.remove(&task);
    }

    fn pause(&mut self, key: u8) {
        self.pool.keys().pause(&key);
    }

    fn resume(&mut self, key: u8, _: bool) -> Option<usize> {
        self.pool.keys().resume(&key);
        None
    }

    fn resize(&mut self, slots: usize) {
        self.pool.settings().set_workers(slots).unwrap();
        eventually(|| self.pool.inspect().snapshot(0).workers.len() == slots);
    }

    fn finish(self) {
        self.pool.shutdown_timeout(LONG).unwrap();
        let snapshot = self.pool.inspect().snapshot(1);
        assert_eq!((snapshot.unfinished, snapshot.hottest.len()), (0, 0));
    }
}

#[test]
fn the_pool_with_keys_spread() {
    soon(|| check_order::<Library<KeyBuildHasher>>(0..400));
}

#[test]
fn the_pool_with_all_keys_colliding() {
    soon(|| check_order::<Library<Collide>>(400..800));
}
