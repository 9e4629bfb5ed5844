//! Steering single keys: pausing them, and taking what waits.

use std::hash::BuildHasher;

use super::{Pool, UnrunTask};
use crate::engine::Key;
use crate::observe::{HeldKey, Hold};

impl<K: Key, S: BuildHasher + Send + Sync + 'static> Pool<K, S> {
    /// Pauses a key: once this has returned no worker takes any of its tasks, until it is
    /// [resumed](Self::resume_key). Says whether it was not paused before.
    ///
    /// - A task that runs, or that a worker has just taken, ends as always;
    ///   [`held_key`](Self::held_key) says whether there is one. So does a rollup that has this key already and waits for
    ///   another of its keys, or for a worker: it is not torn out of the lanes that it holds.
    /// - Tasks are accepted as before. They wait, and count for the capacity, until the key is resumed
    ///   or they are [taken](Self::take_key) or the pool is stopped.
    /// - A rollup waits until all its keys go on, and what is behind it on the others waits for it. So
    ///   does a barrier that was submitted after a task that waits here. A paused key without tasks
    ///   holds no barrier back.
    /// - [`drain`](Self::drain) waits for what waits here, as for everything that was accepted: without
    ///   a timeout for ever, unless somebody resumes the key or takes its tasks.
    ///
    /// A key can be paused before it has any task. A paused key costs some hundred bytes until it is
    /// resumed; keys that are not paused cost nothing.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<&str>::builder().build()?;
    /// pool.pause_key(&"alice");
    /// let hers = pool.submit("alice", || "hers")?;
    /// let his = pool.submit("bob", || "his")?;
    /// assert_eq!(his.wait()?.done(), Some("his"));
    /// assert!(!hers.is_finished());
    /// pool.resume_key(&"alice");
    /// assert_eq!(hers.wait()?.done(), Some("hers"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pause_key(&self, key: &K) -> bool {
        self.engine.pause_key(key)
    }

    /// Lets a key go on that was paused or stopped, and says whether it was. Its tasks go on in
    /// their order, and [failures](crate::OnFailure) that were counted are forgotten. Its
    /// [rate](crate::Rate) is kept all the same.
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

    /// The keys that were stopped because their tasks failed: see [`OnFailure`](crate::OnFailure).
    pub fn stopped_keys(&self) -> Vec<HeldKey<K>> {
        let mut held = self.engine.held_keys();
        held.retain(|held| matches!(held.hold, Hold::Stopped { .. }));
        held
    }

    /// Takes the tasks of a key out of the pool that no worker has taken, in their order: none of them
    /// runs, unless the caller [runs](UnrunTask::run) it. Dropped, they end as
    /// [`Cancelled`](crate::Outcome::Cancelled).
    ///
    /// - Their room is free at once, for the key's own bound as well. What they
    ///   [weigh](crate::Builder::capacity_bytes) is free when they are gone, for until then they are
    ///   still in memory.
    /// - Rollups stay, for they are tasks of other keys as well. So do a job's subtasks, which end with
    ///   their job.
    /// - What is submitted meanwhile may or may not be among them. The key goes on with what comes
    ///   later, unless it is paused; pause it first to empty it for good.
    ///
    /// It takes a pass over all that waits in a part of the keys, during which tasks of that part
    /// neither begin nor end.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<&str>::builder().build()?;
    /// pool.pause_key(&"alice");
    /// let first = pool.submit("alice", || "first")?;
    /// let second = pool.submit("alice", || "second")?;
    /// let mut tasks = pool.take_key(&"alice").into_iter();
    /// tasks.next().unwrap().run();
    /// drop(tasks);
    /// assert_eq!(first.wait()?.done(), Some("first"));
    /// assert!(second.wait()?.is_cancelled());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn take_key(&self, key: &K) -> Vec<UnrunTask<K>> {
        let taken = self.engine.take_key(key).into_iter();
        taken.map(|task| UnrunTask { claims: task.claims, body: task.work }).collect()
    }
}
