//! Steering single keys: pausing them, and taking what waits.

use std::hash::BuildHasher;

use super::{HandlerPool, keyed};
use crate::engine::Key;
use crate::observe::{HeldKey, Hold};

impl<K: Key, M: Send + 'static, S: BuildHasher + Send + Sync + 'static> HandlerPool<K, M, S> {
    /// Pauses a key: once this has returned no worker takes any of its messages, until it is resumed. As [`Pool::pause_key`](crate::Pool::pause_key).
    pub fn pause_key(&self, key: &K) -> bool {
        self.engine.pause_key(key)
    }

    /// Lets a key go on that is held. As [`Pool::resume_key`](crate::Pool::resume_key).
    pub fn resume_key(&self, key: &K) -> bool {
        self.engine.resume_key(key)
    }

    /// Whether a key is held, why, since when, and whether it is at rest.
    pub fn held_key(&self, key: &K) -> Option<HeldKey<K>> {
        self.engine.held_key(key)
    }

    /// The keys that are held, in no particular order.
    pub fn held_keys(&self) -> Vec<HeldKey<K>> {
        self.engine.held_keys()
    }

    /// The keys that were stopped because their messages failed: see [`OnFailure`](crate::OnFailure).
    pub fn stopped_keys(&self) -> Vec<HeldKey<K>> {
        let mut held = self.engine.held_keys();
        held.retain(|held| matches!(held.hold, Hold::Stopped { .. }));
        held
    }

    /// Takes the messages of a key out of the pool that no worker has taken, in their order.
    /// Their room is free at once, and so is what they [weigh](crate::Builder::capacity_bytes).
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().build_handler(|_: &u32, _: &str| unreachable!())?;
    /// pool.pause_key(&7);
    /// pool.send(7, "one")?;
    /// pool.send(7, "two")?;
    /// assert_eq!(pool.take_key(&7), ["one", "two"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn take_key(&self, key: &K) -> Vec<M> {
        let taken = self.engine.take_key(key).into_iter();
        taken.map(|task| keyed((task.claims, task.work)).1).collect()
    }
}
