//! Steers single keys: pause, resume, take, reopen, and rates.

use std::borrow::Borrow;
use std::fmt;

use super::engine::KeysEngine;
use crate::error::BuildError;
use crate::observe::{PauseReason, PausedKey};
use crate::order::Rate;
use crate::unwind::drop_catch_unwind;

/// Operations on single keys of a pool, from [`Pool::keys`](crate::Pool::keys).
///
/// `T` is a task that has not begun: a [`PendingTask`](crate::PendingTask) of a
/// [`Pool`](crate::Pool), a message of a [`HandlerPool`](crate::HandlerPool). Keys are looked up by
/// any borrowed form, as in `HashMap`: with `Pool<String>`, `pool.keys().pause("alice")`.
///
/// ```
/// use keylane::Pool;
///
/// let pool = Pool::<String>::builder().build()?;
/// pool.keys().pause("alice");
/// let hers = pool.submit("alice".to_owned(), || "hers")?;
/// let his = pool.submit("bob".to_owned(), || "his")?;
/// assert_eq!(his.wait()?.ok(), Some("his"));
/// assert!(!hers.is_finished());
/// pool.keys().resume("alice");
/// assert_eq!(hers.wait()?.ok(), Some("hers"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Keys<'p, K, T> {
    engine: &'p (dyn TakeKey<K, T> + 'p),
}

/// [`KeysEngine`] for tasks whose type is known.
pub(crate) trait TakeKey<K, T>: KeysEngine<K> + Sync {
    fn take(&self, key: &K) -> Vec<T>;
}

impl<'p, K, T> Keys<'p, K, T> {
    pub(crate) fn new(engine: &'p (dyn TakeKey<K, T> + 'p)) -> Self {
        Keys { engine }
    }

    /// Pauses a key. After this returns no worker takes any of its tasks until the key is
    /// [resumed](Self::resume). Returns false if the key was paused already.
    ///
    /// - A task that runs, or that a worker has just taken, ends as usual; [`paused`](Self::paused)
    ///   tells whether there is one. A rollup that has this key already and waits for another key,
    ///   or for a worker, runs as well. No further [attempt](crate::Task::retry) begins.
    /// - Tasks are accepted as before. They wait, and count for the capacity, until the key is
    ///   resumed, they are [taken](Self::take), or the pool is stopped.
    /// - A rollup waits until none of its keys is paused, and the tasks behind it on the other keys
    ///   wait for it. So does a barrier that was submitted after a task that waits here. A paused
    ///   key without tasks holds no barrier back.
    /// - [`shutdown`](crate::Pool::shutdown) waits for the tasks of paused keys too.
    ///
    /// A key can be paused before it has any task. A paused key costs some hundred bytes until it
    /// is resumed; keys that are not paused cost nothing.
    pub fn pause<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: ToOwned<Owned = K> + ?Sized,
    {
        self.engine.pause(&key.to_owned())
    }

    /// Lets a paused or stopped key continue, and returns whether it was paused or stopped. Its
    /// tasks run in their order, and its counted [failures](crate::OnFailure) are forgotten. Its
    /// [rate](Self::set_rate) stays.
    pub fn resume<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: ToOwned<Owned = K> + ?Sized,
    {
        self.engine.resume(&key.to_owned())
    }

    /// Returns why and since when a key is paused, stopped or limited by its rate, and how many of
    /// its tasks run all the same. `None` if its tasks may begin.
    ///
    /// ```
    /// use keylane::Pool;
    /// use keylane::observe::PauseReason;
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// assert!(pool.keys().paused(&7).is_none());
    /// pool.keys().pause(&7);
    /// let paused = pool.keys().paused(&7).expect("it was paused");
    /// println!("{} {}", paused.key, paused.hold); // 7 has been paused for 0ns
    /// assert!(matches!(paused.hold, PauseReason::Paused { .. }));
    /// assert_eq!(paused.running, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn paused<Q>(&self, key: &Q) -> Option<PausedKey<K>>
    where
        K: Borrow<Q>,
        Q: ToOwned<Owned = K> + ?Sized,
    {
        self.engine.paused(&key.to_owned())
    }

    /// Returns all keys that are paused, stopped or limited by their rate, in no particular order.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// pool.keys().pause(&7);
    /// pool.keys().pause(&8);
    /// for paused in pool.keys().list_paused() {
    ///     assert!(pool.keys().resume(&paused.key));
    /// }
    /// assert!(pool.keys().list_paused().is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn list_paused(&self) -> Vec<PausedKey<K>> {
        self.engine.list_paused()
    }

    /// Returns the keys that were stopped because their tasks failed: see
    /// [`OnFailure`](crate::OnFailure).
    ///
    /// ```
    /// use keylane::{OnFailure, Pool};
    ///
    /// let on_failure = OnFailure::StopKey { after: 1 };
    /// let pool = Pool::<u32>::builder().on_failure(on_failure).build()?;
    /// pool.task(7).fallible().execute(|| "no number".parse::<u32>())?;
    /// pool.wait_idle()?;
    /// let next = pool.submit(7, || "after the repair")?;
    /// assert_eq!(pool.keys().list_stopped()[0].key, 7);
    /// assert!(pool.keys().resume(&7));
    /// assert_eq!(next.join()?, "after the repair");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn list_stopped(&self) -> Vec<PausedKey<K>> {
        let mut stopped = self.engine.list_paused();
        stopped.retain(|key| matches!(key.hold, PauseReason::Stopped { .. }));
        stopped
    }

    /// Removes the tasks of a key that no worker has taken, and returns them in their order. They
    /// run only if the caller [runs](crate::PendingTask::run) them. Dropped, they end as
    /// [`Cancelled`](crate::Outcome::Cancelled).
    ///
    /// - Their capacity is free at once, that of the key as well. Their
    ///   [bytes](crate::Builder::capacity_bytes) are free when they are dropped, because until then
    ///   they are in memory.
    /// - Rollups stay, because they are tasks of other keys too. Subtasks of jobs stay; they end
    ///   with their job.
    /// - [Delayed](crate::Task::after) tasks of the key come behind the others, by their times. A task
    ///   between two [attempts](crate::Task::retry) has begun, and stays; so do tasks of a
    ///   [scope](crate::Pool::scope).
    /// - Tasks submitted at the same time may or may not be among them. Later tasks run as usual
    ///   unless the key is paused: to empty a key for good, pause it first.
    ///
    /// It passes over everything that waits in one shard of the keys. Tasks of that shard neither
    /// begin nor end during the pass.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<&str>::builder().build()?;
    /// pool.keys().pause(&"alice");
    /// let first = pool.submit("alice", || "first")?;
    /// let second = pool.submit("alice", || "second")?;
    /// let mut tasks = pool.keys().take(&"alice").into_iter();
    /// tasks.next().unwrap().run();
    /// drop(tasks);
    /// assert_eq!(first.wait()?.ok(), Some("first"));
    /// assert!(second.wait()?.is_cancelled());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn take<Q>(&self, key: &Q) -> Vec<T>
    where
        K: Borrow<Q>,
        Q: ToOwned<Owned = K> + ?Sized,
    {
        let key = key.to_owned();
        let taken = self.engine.take(&key);
        // A panic of the drop at the end would leak the tasks.
        drop_catch_unwind(key);
        taken
    }

    /// Accepts tasks of a [closed](crate::Task::last) key again, and returns whether it was
    /// closed. Tasks that are submitted before the key's last task has run run after it.
    ///
    /// ```
    /// use keylane::{OnClosedKey, Pool, SubmitErrorKind};
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// pool.task(7).last(OnClosedKey::Refuse).execute(|| println!("connection 7 is closed"))?;
    /// assert_eq!(pool.execute(7, || ()).unwrap_err().kind(), SubmitErrorKind::KeyClosed);
    /// assert!(pool.keys().reopen(&7));
    /// pool.execute(7, || println!("a message of another connection"))?;
    /// assert!(!pool.keys().reopen(&7)); // it was not closed
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reopen<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: ToOwned<Owned = K> + ?Sized,
    {
        self.engine.reopen(&key.to_owned())
    }

    /// Returns all keys whose tasks are refused, in no particular order.
    ///
    /// ```
    /// use keylane::{OnClosedKey, Pool};
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// pool.task(7).last(OnClosedKey::Refuse).execute(|| println!("connection 7 is closed"))?;
    /// assert_eq!(pool.keys().list_closed(), [7]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn list_closed(&self) -> Vec<K> {
        self.engine.list_closed()
    }

    /// Gives a key its own rate, in place of
    /// [`Builder::rate_per_key`](crate::Builder::rate_per_key), or removes it.
    ///
    /// After this returns the rate holds for all tasks that no worker has taken. Starts that the
    /// old rate counted stay counted. A key with its own rate costs some fifty bytes and a copy of
    /// the key until the rate is removed.
    ///
    /// ```
    /// use keylane::observe::PauseReason;
    /// use keylane::{Pool, Rate};
    ///
    /// let pool = Pool::<&str>::builder().build()?;
    /// pool.keys().set_rate(&"alice", Some(Rate::per_hour(1)))?;
    /// let first = pool.submit("alice", || "first")?;
    /// let second = pool.submit("alice", || "second")?;
    /// assert_eq!(first.wait()?.ok(), Some("first"));
    /// let paused = pool.keys().paused(&"alice").expect("one has begun");
    /// assert!(matches!(paused.hold, PauseReason::RateLimited { .. }));
    /// pool.keys().set_rate(&"alice", None)?;
    /// assert_eq!(second.wait()?.ok(), Some("second"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`BuildError::Thread`] if the operating system refuses the thread that the first rate needs.
    /// Nothing has changed then.
    pub fn set_rate<Q>(&self, key: &Q, rate: Option<Rate>) -> Result<(), BuildError>
    where
        K: Borrow<Q>,
        Q: ToOwned<Owned = K> + ?Sized,
    {
        self.engine.set_rate(&key.to_owned(), rate)
    }
}

impl<K, T> fmt::Debug for Keys<'_, K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").finish_non_exhaustive()
    }
}
