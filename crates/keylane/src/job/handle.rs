//! Handle of a job: waits for the result, reads the progress, pauses, resumes and cancels.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use keylane_allocate::{JobId, JobProgress};

use super::core::JobOps;
use super::sink::SharedResult as JobResult;
use crate::complete::{JoinState, NoWorker, Outcome, WouldDeadlock, block};

/// Handle of a job: waits for its outcome, watches and controls it.
///
/// - Dropping the handle detaches the job: it continues, and its outcome is discarded.
/// - The handle is a future for any runtime, and a thread can wait for it too.
/// - A job ends with its pool: a pool that is stopped or dropped cancels its jobs.
///
/// # Outcomes
///
/// | outcome | condition |
/// |---|---|
/// | [`Completed`](Outcome::Completed) | every subtask has ended, and no failure remained outside of the fold |
/// | [`Failed`](Outcome::Failed), [`Panicked`](Outcome::Panicked) | the first failed subtask failed or panicked; or the splitter or the fold has panicked |
/// | [`Cancelled`](Outcome::Cancelled) | the job was cancelled, or its pool was stopped |
///
/// # Inside a task
///
/// A task or subtask of the same pool cannot wait for a job: a subtask that is still to be split
/// could be ordered behind it, and both would wait forever. Such a wait fails at once with
/// [`WouldDeadlock`]. A task of another pool can wait; a substitute replaces its worker meanwhile,
/// as for a [`Handle`](crate::Handle). Cycles of such waits through several pools are not detected:
/// a task that waits for a job of another pool, whose subtask waits for a task behind the first,
/// waits forever.
#[must_use = "a dropped handle detaches its job"]
pub struct Job<R, E = Infallible> {
    ops: Arc<dyn JobOps>,
    result: Arc<JobResult<R, E>>,
    id: JobId,
}

/// State of one of a pool's jobs, at one moment: see [`Pool::jobs`](crate::control::Jobs::list).
#[derive(Debug)]
#[non_exhaustive]
pub struct JobInfo {
    /// Id of the job in the scheduler.
    pub id: JobId,
    /// Name of the job; several jobs can have the same name.
    pub name: Arc<str>,
    /// Progress of the job.
    pub progress: JobProgress,
}

impl<R: Send + 'static, E: Send + 'static> Job<R, E> {
    pub(super) fn new(ops: Arc<dyn JobOps>, result: Arc<JobResult<R, E>>, id: JobId) -> Self {
        Job { ops, result, id }
    }

    /// Name of the job.
    ///
    /// ```
    /// let pool = keylane::Pool::<u32>::builder().build()?;
    /// let job = pool.job("import").each([|| ()]).run()?;
    /// assert_eq!(job.name(), "import");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn name(&self) -> &str {
        self.ops.name()
    }

    /// Id of the job in the scheduler, as in [`Pool::jobs`](crate::control::Jobs::list) and in a
    /// [decision log](crate::control::Jobs::decision_log).
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// let job = || pool.job("import").each([|| ()]).run();
    /// let (first, second) = (job()?, job()?);
    /// assert_eq!(first.name(), second.name());
    /// assert_ne!(first.id(), second.id());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn id(&self) -> JobId {
        self.id
    }

    /// Progress of the job; after its end, its final progress.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// let job = pool.job("squares").each((0..100_u64).map(|n| move || n * n)).run()?;
    /// println!("{} of 100 done", job.progress().done);
    /// pool.wait_idle()?;
    /// assert_eq!(job.progress().done, 100);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn progress(&self) -> JobProgress {
        self.ops.progress()
    }

    /// Blocks until the job has ended.
    ///
    /// ```
    /// use keylane::{Outcome, Pool};
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// let sum = pool.job("sum").each((0..100_u64).map(|n| move || n)).fold(0, |sum, n| sum + n)?;
    /// assert!(matches!(sum.wait()?, Outcome::Completed(4950)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`WouldDeadlock`] inside a task of the same pool, unless the job has ended; inside a task of
    /// another pool, if no worker of that pool would be left. The error returns the handle.
    ///
    /// # Panics
    ///
    /// If the outcome was taken before, by [`try_join`](Self::try_join),
    /// [`wait_timeout`](Self::wait_timeout) or by awaiting a reference to the handle.
    pub fn wait(self) -> Result<Outcome<R, E>, WouldDeadlock<Self>> {
        if self.would_deadlock() {
            return Err(WouldDeadlock::new(self));
        }
        match block(&*self.result, None) {
            Ok(outcome) => {
                Ok(outcome.expect("the outcome of a job can be taken once; it was taken before"))
            }
            Err(NoWorker) => Err(WouldDeadlock::no_worker(self)),
        }
    }

    /// Blocks until the job has ended, at most for `timeout`. Returns `None` on a timeout: the job
    /// continues, and the handle can be used again.
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    /// use std::time::Duration;
    /// use keylane::{Outcome, Pool};
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// let (end, ended) = channel::<()>();
    /// let mut job = pool.job("import").each([move || ended.recv().is_err()]).collect()?;
    /// assert!(job.wait_timeout(Duration::from_millis(1))?.is_none());
    /// drop(end);
    /// let outcome = job.wait_timeout(Duration::from_secs(60))?;
    /// assert_eq!(outcome.and_then(Outcome::ok), Some(vec![true]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`wait`](Self::wait), without waiting.
    pub fn wait_timeout(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<Outcome<R, E>>, WouldDeadlock<()>> {
        if self.would_deadlock() {
            return Err(WouldDeadlock::new(()));
        }
        let outcome = block(&*self.result, Instant::now().checked_add(timeout));
        outcome.map_err(|NoWorker| WouldDeadlock::no_worker(()))
    }

    /// Returns the outcome, if the job has ended and the outcome was not taken before.
    ///
    /// ```
    /// use keylane::{Outcome, Pool};
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// let mut job = pool.job("squares").each((0..4).map(|n| move || n * n)).collect()?;
    /// pool.wait_idle()?;
    /// assert_eq!(job.try_join().and_then(Outcome::ok), Some(vec![0, 1, 4, 9]));
    /// assert!(job.try_join().is_none()); // it was taken
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_join(&mut self) -> Option<Outcome<R, E>> {
        self.result.poll(None)
    }

    /// Returns whether the job has ended.
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// let (end, ended) = channel::<()>();
    /// let job = pool.job("import").each([move || _ = ended.recv()]).run()?;
    /// assert!(!job.is_finished());
    /// drop(end);
    /// pool.wait_idle()?;
    /// assert!(job.is_finished());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_finished(&self) -> bool {
        self.result.progress().is_completed()
    }

    /// Cancels the job: no further subtask starts. Subtasks that have not started are dropped now;
    /// entries in the queues of keys stay until their turn, so that no task overtakes another.
    /// Running subtasks are [asked to stop](crate::is_cancelled), and the job ends with them.
    ///
    /// No effect after the end of the job.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// let endless = pool.job("endless").each((0_u64..).map(|n| move || n)).run()?;
    /// endless.cancel();
    /// assert!(endless.wait()?.is_cancelled());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel(&self) {
        self.ops.cancel();
    }

    /// Pauses the job: no subtask starts and none is split until it is [resumed](Self::resume).
    /// Running subtasks continue. Subtasks with granted keys keep them, unless such a key is
    /// [paused](crate::control::Keys::pause) when the job is resumed: then they wait for it again.
    /// Returns false if the job has ended.
    ///
    /// [`Pool::shutdown`](crate::Pool::shutdown) waits for a paused job like for any other.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// let endless = pool.job("endless").each((0_u64..).map(|n| move || n)).run()?;
    /// assert!(endless.pause());
    /// assert!(endless.progress().paused);
    /// pool.submit(7, || println!("the pool continues"))?.join()?;
    /// endless.cancel();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pause(&self) -> bool {
        self.ops.ask(&mut |control, id| control.pause_job(id, true))
    }

    /// Undoes [`pause`](Self::pause). Returns false if the job has ended.
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// let (end, ended) = channel::<()>();
    /// let job = pool.job("import").each([move || _ = ended.recv()]).run()?;
    /// job.pause();
    /// assert!(job.resume());
    /// assert!(!job.progress().paused);
    /// drop(end);
    /// assert!(job.wait()?.is_completed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resume(&self) -> bool {
        self.ops.ask(&mut |control, id| control.pause_job(id, false))
    }

    /// Changes the claim to spare workers: see [`JobBuilder::weight`](crate::JobBuilder::weight).
    /// Returns false if the job has ended.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// let endless = pool.job("endless").each((0_u64..).map(|n| move || n)).run()?;
    /// assert!(endless.set_weight(10)); // it has become urgent
    /// endless.cancel();
    /// pool.wait_idle()?;
    /// assert!(!endless.set_weight(1)); // it has ended
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_weight(&self, weight: u32) -> bool {
        self.ops.ask(&mut |control, id| control.set_job_weight(id, weight))
    }

    fn would_deadlock(&self) -> bool {
        !self.result.progress().is_completed() && self.ops.ask(&mut |control, _| control.is_here())
    }
}

/// Cancel safe: only the poll that returns the outcome takes it.
impl<R: Send + 'static, E: Send + 'static> Future for Job<R, E> {
    type Output = Result<Outcome<R, E>, WouldDeadlock<()>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.result.poll(Some(cx.waker())) {
            Some(outcome) => Poll::Ready(Ok(outcome)),
            None if self.would_deadlock() => Poll::Ready(Err(WouldDeadlock::new(()))),
            None => Poll::Pending,
        }
    }
}

impl<R, E> fmt::Debug for Job<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("name", &self.ops.name()).field("id", &self.id).finish()
    }
}
