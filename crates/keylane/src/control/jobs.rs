//! Lists the jobs of a pool, and records the decisions that share workers among them.

use std::fmt;

use keylane_allocate::Record;

use crate::job::JobInfo;

/// The jobs of a pool, from [`Pool::jobs`](crate::Pool::jobs).
pub struct Jobs<'p> {
    engine: &'p (dyn JobsEngine + Sync + 'p),
}

/// Operations on all jobs of an engine.
pub(crate) trait JobsEngine {
    fn list(&self) -> Vec<JobInfo>;
    fn record(&self, capacity: usize);
    fn recorded(&self) -> Option<Record>;
}

impl<'p> Jobs<'p> {
    pub(crate) fn new(engine: &'p (dyn JobsEngine + Sync + 'p)) -> Self {
        Jobs { engine }
    }

    /// Returns the jobs that have not ended, the oldest first, including those that wait to be
    /// admitted.
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// let (end, ended) = channel::<()>();
    /// let job = pool.job("import").each([move || _ = ended.recv()]).run()?;
    /// for info in pool.jobs().list() {
    ///     println!("{}: {} subtasks done", info.name, info.progress.done);
    ///     assert_eq!(info.id, job.id());
    /// }
    /// drop(end);
    /// job.wait()?;
    /// assert!(pool.jobs().list().is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn list(&self) -> Vec<JobInfo> {
        self.engine.list()
    }

    /// Starts to record which worker went to which job, when, and by which rule. The last
    /// `capacity` events are kept. Times are in milliseconds.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// pool.jobs().start_decision_log(1000);
    /// pool.job("import").each((0..100).map(|n| move || println!("{n}"))).run()?.wait()?;
    /// let log = pool.jobs().decision_log().expect("a job has run");
    /// assert!(log.entries().count() > 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    ///
    /// If `capacity` is zero.
    pub fn start_decision_log(&self, capacity: usize) {
        assert!(capacity > 0, "a decision log needs a capacity of at least 1");
        self.engine.record(capacity);
    }

    /// Returns the decisions recorded so far; `None` if [recording](Self::start_decision_log) was
    /// not started or there has been no job. They can be [replayed](Record::replay).
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// assert!(pool.jobs().decision_log().is_none());
    /// pool.jobs().start_decision_log(1000);
    /// pool.job("import").each((0..100).map(|n| move || println!("{n}"))).run()?.wait()?;
    /// let log = pool.jobs().decision_log().expect("a job has run");
    /// log.replay()?; // the same events give the same decisions
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn decision_log(&self) -> Option<Record> {
        self.engine.recorded()
    }
}

impl fmt::Debug for Jobs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jobs").finish_non_exhaustive()
    }
}
