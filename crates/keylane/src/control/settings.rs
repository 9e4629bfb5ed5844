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
    /// ```
    /// use keylane::{Pool, SubmitErrorKind};
    ///
    /// let pool = Pool::<u32>::builder().capacity(1).build()?;
    /// pool.keys().pause(&7);
    /// pool.execute(7, || println!("takes the only permit"))?;
    /// let refused = pool.try_submit(8, || "eight").unwrap_err();
    /// assert_eq!(refused.kind(), SubmitErrorKind::Full);
    /// pool.settings().set_capacity(2)?;
    /// assert_eq!(pool.try_submit(8, || "eight")?.join()?, "eight");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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
    /// ```
    /// use keylane::{Pool, Rate};
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// pool.settings().set_rate(Some(Rate::per_hour(1)))?;
    /// pool.submit(7, || println!("takes the only token"))?.join()?;
    /// let second = pool.submit(8, || "second")?;
    /// assert!(!second.is_finished());
    /// pool.settings().set_rate(None)?;
    /// assert_eq!(second.join()?, "second");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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
    /// ```
    /// use keylane::{Pool, Rate};
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// pool.settings().set_rate_per_key(Some(Rate::per_hour(1)))?;
    /// pool.submit(7, || println!("takes the only token of 7"))?.join()?;
    /// let second = pool.submit(7, || "second")?;
    /// assert_eq!(pool.submit(8, || "eight")?.join()?, "eight");
    /// assert!(!second.is_finished());
    /// pool.settings().set_rate_per_key(None)?;
    /// assert_eq!(second.join()?, "second");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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
