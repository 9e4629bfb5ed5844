//! How often tasks may begin, changed while the pool runs.

use std::hash::BuildHasher;

use super::Pool;
use crate::engine::Key;
use crate::error::BuildError;
use crate::order::Rate;

impl<K: Key, S: BuildHasher + Send + Sync + 'static> Pool<K, S> {
    /// Changes how often tasks of all keys together may begin, or that they may whenever they can: see
    /// [`Builder::rate`](crate::Builder::rate).
    ///
    /// What has been used of the old rate stays used, so a rate that is changed often lets nobody begin more
    /// than the rates allow.
    ///
    /// # Errors
    ///
    /// If the operating system refuses the thread that the first rate needs. Nothing has changed then.
    pub fn set_rate(&self, rate: Option<Rate>) -> Result<(), BuildError> {
        self.engine.set_rate(rate)
    }

    /// Changes how often tasks of a key may begin, for each key that has no rate
    /// [of its own](Self::set_rate_of): see [`Builder::rate_per_key`](crate::Builder::rate_per_key).
    ///
    /// What has been used of the old rate stays used. It takes a look at each key whose bucket is not
    /// full.
    ///
    /// # Errors
    ///
    /// As for [`set_rate`](Self::set_rate).
    pub fn set_rate_per_key(&self, rate: Option<Rate>) -> Result<(), BuildError> {
        self.engine.set_rate_per_key(rate)
    }

    /// Gives one key a rate of its own, whatever holds for the others, or takes it away again.
    ///
    /// Once this has returned it holds for all tasks that no worker has taken. What has been used of the old
    /// rate stays used. A key with a rate of its own costs some fifty bytes and a copy of the key until that is
    /// taken away.
    ///
    /// ```
    /// use keylane::{Hold, Pool, Rate};
    ///
    /// let pool = Pool::<&str>::builder().build()?;
    /// pool.set_rate_of(&"alice", Some(Rate::per_hour(1)))?;
    /// let first = pool.submit("alice", || "first")?;
    /// let second = pool.submit("alice", || "second")?;
    /// assert_eq!(first.wait()?.done(), Some("first"));
    /// let held = pool.held_key(&"alice").expect("one has begun");
    /// assert!(matches!(held.hold, Hold::RateLimited { .. }));
    /// pool.set_rate_of(&"alice", None)?;
    /// assert_eq!(second.wait()?.done(), Some("second"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`set_rate`](Self::set_rate).
    pub fn set_rate_of(&self, key: &K, rate: Option<Rate>) -> Result<(), BuildError> {
        self.engine.set_rate_of(key, rate)
    }
}
