//! Jobs, as seen from their pool.

use std::hash::BuildHasher;
use std::sync::Arc;

use super::{Closures, Pool};
use crate::allocate::Record;
use crate::control::{Jobs, JobsEngine};
use crate::engine::{Engine, Key};
use crate::job::{JobBuilder, JobInfo};

impl<K: Key, S: BuildHasher + Send + Sync + 'static> Pool<K, S> {
    /// Begins a job: many subtasks under one name, with one result.
    ///
    /// Jobs share the workers by four rules, so that several make progress at once, none takes all
    /// workers, and the one with the fewest subtasks left is done first; [`allocate`](crate::allocate)
    /// has them, and [`Builder::job_order`](crate::Builder::job_order) chooses another order. Work outside
    /// jobs shares as if each task were a job of its own.
    ///
    /// - Subtasks are split lazily: the iterator is asked for one when a worker is free for it, and so
    ///   may be endless, or of millions, in little memory. It is asked by one worker at a time.
    /// - Subtasks with keys belong to the same order as everything else in the pool.
    /// - A panic in the iterator, in a subtask or in a fold ends its job at the most.
    /// - A worker changes jobs only between two subtasks. It may take up to 64 at a time where they are
    ///   tiny and nobody else wants a worker; what of them waits behind a long one goes to whoever is idle.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// let squares = pool.job("squares").each((0..1000_u64).map(|n| move || n * n)).collect()?;
    /// let sum = pool.job("sum").each((0..1000_u64).map(|n| move || n)).fold(0, |sum, n| sum + n)?;
    /// assert_eq!(squares.wait()?.unwrap()[31], 961);
    /// assert_eq!(sum.wait()?.unwrap(), 499_500);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn job(&self, name: impl Into<String>) -> JobBuilder<K, S> {
        JobBuilder::new(self.engine.clone(), name.into())
    }

    /// Returns the operations on all jobs.
    pub fn jobs(&self) -> Jobs<'_> {
        Jobs::new(&self.engine)
    }
}

impl<K: Key, S: BuildHasher + Send + Sync + 'static> JobsEngine for Arc<Engine<K, Closures, S>> {
    fn list(&self) -> Vec<JobInfo> {
        let jobs = self.snapshot_jobs().into_iter();
        jobs.map(|((id, job), progress)| JobInfo { id, name: job.name().clone(), progress })
            .collect()
    }

    fn record(&self, capacity: usize) {
        self.record_jobs(capacity);
    }

    fn recorded(&self) -> Option<Record> {
        self.recorded_jobs()
    }
}
