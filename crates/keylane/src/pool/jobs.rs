//! Creates and lists the jobs of a pool.

use std::hash::BuildHasher;
use std::sync::Arc;

use keylane_allocate::Record;

use super::{ClosureExecutor, Pool};
use crate::control::{Jobs, JobsEngine};
use crate::engine::{Engine, Key};
use crate::job::{JobBuilder, JobInfo};

impl<K: Key, S: BuildHasher + Send + Sync + 'static> Pool<K, S> {
    /// Begins a job: many subtasks under one name, with one result.
    ///
    /// Jobs share the workers by four rules, so that several make progress at once, none takes all
    /// workers, and the one with the fewest subtasks left is done first;
    /// [`allocate`](keylane_allocate) describes them, and
    /// [`Builder::job_policy`](crate::Builder::job_policy) selects another policy. Work outside jobs
    /// shares as if each task were a job of its own.
    ///
    /// - Subtasks are split lazily: the iterator is called for one when a worker is free for it, so
    ///   it may be endless, or yield millions, in little memory. One worker calls it at a time.
    /// - Subtasks with keys belong to the same order as everything else in the pool.
    /// - A panic in the iterator, in a subtask or in a fold ends at most its job.
    /// - A worker changes jobs only between two subtasks. It may take up to 64 at a time if they
    ///   are tiny and nothing else needs a worker; those that wait behind a long one go to idle
    ///   workers.
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
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// let (end, ended) = channel::<()>();
    /// let job = pool.job("import").each([move || _ = ended.recv()]).run()?;
    /// assert_eq!(&*pool.jobs().list()[0].name, "import");
    /// drop(end);
    /// assert!(job.wait()?.is_completed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn jobs(&self) -> Jobs<'_> {
        Jobs::new(&self.engine)
    }
}

impl<K: Key, S: BuildHasher + Send + Sync + 'static> JobsEngine
    for Arc<Engine<K, ClosureExecutor, S>>
{
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
