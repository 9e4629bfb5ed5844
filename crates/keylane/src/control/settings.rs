//! Changes settings while the pool runs: workers, capacity, rates.

use std::fmt;

use super::engine::SettingsEngine;
use crate::error::BuildError;
use crate::order::Rate;

/// Settings of a running pool, from [`Pool::settings`](crate::Pool::settings).
pub struct Settings<'p> {
    engine: &'p (dyn SettingsEngine + Sync + 'p),
}

impl<'p> Settings<'p> {
    pub(crate) fn new(engine: &'p (dyn SettingsEngine + Sync + 'p)) -> Self {
        Settings { engine }
    }

    /// Changes the number of workers. Surplus workers end after the task that they run.
    ///
    /// ```
    /// let pool = keylane::Pool::<u64>::builder().workers(2).build()?;
    /// pool.settings().set_workers(4)?;
    /// # Ok::<(), keylane::BuildError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the number is out of its range or the operating system refuses a thread.
    pub fn set_workers(&self, workers: usize) -> Result<(), BuildError> {
        self.engine.set_workers(workers)
    }

    /// Changes the capacity. If more tasks are unfinished than that, none is admitted until enough
    /// have ended.
    ///
    /// # Errors
    ///
    /// If the number is out of its range.
    pub fn set_capacity(&self, capacity: usize) -> Result<(), BuildError> {
        self.engine.set_capacity(capacity)
    }

    /// Changes how often tasks of all keys together may begin, or removes that limit: see
    /// [`Builder::rate`](crate::Builder::rate). Starts that the old rate counted stay counted, so
    /// changing the rate often allows no extra starts.
    ///
    /// # Errors
    ///
    /// [`BuildError::Thread`] if the operating system refuses the thread that the first rate needs.
    /// Nothing has changed then.
    pub fn set_rate(&self, rate: Option<Rate>) -> Result<(), BuildError> {
        self.engine.set_rate(rate)
    }

    /// Changes how often tasks of one key may begin, for each key without a rate [of its
    /// own](super::Keys::set_rate): see [`Builder::rate_per_key`](crate::Builder::rate_per_key). It
    /// looks at each key that has started tasks within its rate's interval.
    ///
    /// # Errors
    ///
    /// As for [`set_rate`](Self::set_rate).
    pub fn set_rate_per_key(&self, rate: Option<Rate>) -> Result<(), BuildError> {
        self.engine.set_rate_per_key(rate)
    }
}

impl fmt::Debug for Settings<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").finish_non_exhaustive()
    }
}
