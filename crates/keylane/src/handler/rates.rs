//! How often messages may be handled, changed while the pool runs.

use std::hash::BuildHasher;

use super::HandlerPool;
use crate::engine::Key;
use crate::error::BuildError;
use crate::order::Rate;

impl<K: Key, M: Send + 'static, S: BuildHasher + Send + Sync + 'static> HandlerPool<K, M, S> {
    /// Changes how often messages of all keys together may be handled. As
    /// [`Pool::set_rate`](crate::Pool::set_rate).
    ///
    /// # Errors
    ///
    /// If the operating system refuses the thread that the first rate needs.
    pub fn set_rate(&self, rate: Option<Rate>) -> Result<(), BuildError> {
        self.engine.set_rate(rate)
    }

    /// Changes how often messages of a key may be handled. As
    /// [`Pool::set_rate_per_key`](crate::Pool::set_rate_per_key).
    ///
    /// # Errors
    ///
    /// As for [`set_rate`](Self::set_rate).
    pub fn set_rate_per_key(&self, rate: Option<Rate>) -> Result<(), BuildError> {
        self.engine.set_rate_per_key(rate)
    }

    /// Gives one key a rate of its own, or takes it away again. As
    /// [`Pool::set_rate_of`](crate::Pool::set_rate_of).
    ///
    /// # Errors
    ///
    /// As for [`set_rate`](Self::set_rate).
    pub fn set_rate_of(&self, key: &K, rate: Option<Rate>) -> Result<(), BuildError> {
        self.engine.set_rate_of(key, rate)
    }
}
