//! Answers questions about a running pool: what a task, a key or a job does, or why it waits.

use std::borrow::Borrow;
use std::fmt;
use std::io;
use std::time::Duration;

use keylane_allocate::JobId;

use super::engine::InspectEngine;
use crate::complete::{Handle, TaskPhase};
use crate::observe::{
    BlockedSubmitter, JobState, KeyExplanation, PoolExplanation, Snapshot, StallWatch, Stalled,
    TaskExplanation, TaskState, Trace,
};

/// Diagnostics of a pool, from [`Pool::inspect`](crate::Pool::inspect). They cost nothing until
/// they are called.
pub struct Inspector<'p, K> {
    engine: &'p (dyn InspectEngine<K> + Sync + 'p),
}

impl<'p, K> Inspector<'p, K> {
    pub(crate) fn new(engine: &'p (dyn InspectEngine<K> + Sync + 'p)) -> Self {
        Inspector { engine }
    }

    /// Returns the state of a task and, if it waits, the tasks and keys that it waits for and its
    /// position.
    ///
    /// It passes over unfinished tasks up to this one. Submissions and ends of tasks wait during
    /// that, in one shard of the keys at a time.
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    /// use keylane::Pool;
    /// use keylane::observe::TaskState;
    ///
    /// let pool = Pool::<&str>::builder().build()?;
    /// let ((begin, begun), (end, ended)) = (channel(), channel::<()>());
    /// pool.execute("alice", move || {
    ///     begin.send(()).unwrap();
    ///     ended.recv().unwrap();
    /// })?;
    /// begun.recv()?;
    /// let second = pool.submit("alice", || "done")?;
    /// let why = pool.inspect().explain(&second);
    /// println!("{why}");
    /// assert!(matches!(why.state, TaskState::Behind(ahead) if ahead[0].tasks == 1));
    /// end.send(())?;
    /// assert!(second.wait()?.is_completed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn explain<T: 'static, E: 'static>(&self, task: &Handle<T, E>) -> TaskExplanation<K> {
        // A task that moves from one shard to another during the first pass is met in the second.
        for _ in 0..2 {
            let state = match task.phase() {
                TaskPhase::Over => TaskState::Over,
                TaskPhase::Running(on) => {
                    TaskState::Running(self.engine.explain_running(on, task.name()))
                }
                TaskPhase::Waiting => match self.engine.explain_waiting(task.name()) {
                    Some(explanation) => return explanation,
                    None => continue,
                },
            };
            return TaskExplanation { state, age: None };
        }
        TaskExplanation { state: TaskState::Taken, age: None }
    }

    /// Returns the state of a key's tasks, or why they wait. The key is looked up by any borrowed
    /// form, as in `HashMap`.
    ///
    /// It passes over the unfinished tasks of the key's shard, during which submissions and ends of
    /// tasks wait there. If the key is one of several keys of a waiting task, it passes over all
    /// shards, one after the other.
    ///
    /// ```
    /// let pool = keylane::Pool::<String>::builder().build()?;
    /// println!("{}", pool.inspect().explain_key("alice"));
    /// # Ok::<(), keylane::BuildError>(())
    /// ```
    pub fn explain_key<Q>(&self, key: &Q) -> KeyExplanation<K>
    where
        K: Borrow<Q>,
        Q: ToOwned<Owned = K> + ?Sized,
    {
        self.engine.explain_key(&key.to_owned())
    }

    /// Returns the state of a job and why it makes no progress, if it makes none.
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    /// use keylane::Pool;
    /// use keylane::observe::JobState;
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// let (end, ended) = channel::<()>();
    /// let job = pool.job("import").each([move || _ = ended.recv()]).run()?;
    /// let id = job.id();
    /// job.pause();
    /// assert!(matches!(pool.inspect().explain_job(id), JobState::Paused));
    /// job.resume();
    /// drop(end);
    /// job.wait()?;
    /// assert!(matches!(pool.inspect().explain_job(id), JobState::Over));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn explain_job(&self, job: JobId) -> JobState {
        self.engine.explain_job(job)
    }

    /// Returns why the pool starts no more tasks than it does. As cheap as
    /// [`snapshot(0)`](Self::snapshot).
    ///
    /// ```
    /// use keylane::Pool;
    /// use keylane::observe::PoolReason;
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// assert!(matches!(pool.inspect().explain_pool().reasons[..], [PoolReason::NothingToDo]));
    /// pool.keys().pause(&7);
    /// pool.execute(7, || println!("later"))?;
    /// let why = pool.inspect().explain_pool();
    /// println!("{why}");
    /// let is_pause = |reason: &PoolReason| matches!(reason, PoolReason::KeysPaused { keys: 1 });
    /// assert!(why.reasons.iter().any(is_pause));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn explain_pool(&self) -> PoolExplanation {
        self.engine.explain_pool()
    }

    /// Returns counts and states of the pool, with the `top` keys that have the most unfinished
    /// tasks and the `top` keys whose tasks have waited longest.
    ///
    /// Unless `top` is 0 it passes over all unfinished tasks. Submissions and ends of tasks wait
    /// during that, in one shard of the keys at a time.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<&str>::builder().build()?;
    /// pool.keys().pause(&"alice");
    /// for n in 0..3 {
    ///     pool.execute("alice", move || println!("{n}"))?;
    /// }
    /// let snapshot = pool.inspect().snapshot(10);
    /// assert_eq!(snapshot.unfinished, 3);
    /// assert_eq!((snapshot.hottest[0].key, snapshot.hottest[0].len), ("alice", 3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn snapshot(&self, top: usize) -> Snapshot<K> {
        self.engine.snapshot(top)
    }

    /// Returns the submitters that wait for capacity in the order in which they will be served,
    /// then those that wait for [bytes](crate::Builder::capacity_bytes). Submitters that wait for
    /// the bound of a single key are in neither list.
    ///
    /// ```
    /// # let pool = keylane::Pool::<&str>::builder().build()?;
    /// for submitter in pool.inspect().submitters() {
    ///     println!("{submitter}"); // the thread front-3 waits for capacity, at position 2
    /// }
    /// # Ok::<(), keylane::BuildError>(())
    /// ```
    pub fn submitters(&self) -> Vec<BlockedSubmitter> {
        self.engine.submitters()
    }

    /// Returns the tasks that have run for at least `than`, the longest first.
    ///
    /// Tasks of 20 µs and more are seen at once. In a row of tiny tasks a worker reads the clock
    /// only once in up to 64 tasks, so the time of a task in such a row is counted from the first
    /// call that sees it. [`watch_stalls`](Self::watch_stalls) looks often enough.
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    /// use std::time::Duration;
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// let ((begin, begun), (end, ended)) = (channel(), channel::<()>());
    /// pool.execute(7, move || {
    ///     begin.send(()).unwrap();
    ///     _ = ended.recv();
    /// })?;
    /// begun.recv()?;
    /// assert_eq!(pool.inspect().stalled(Duration::ZERO)[0].keys, [7]);
    /// assert!(pool.inspect().stalled(Duration::from_secs(3600)).is_empty());
    /// drop(end);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stalled(&self, than: Duration) -> Vec<Stalled<K>> {
        self.engine.stalled(than)
    }

    /// Calls `on_stall` once for each task that runs for `than` or longer, on its own thread. The
    /// thread looks four times in `than`, but at most a thousand times a second. The watch ends
    /// when it is dropped, or the pool is. A panic of `on_stall` is ignored.
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    /// use std::time::Duration;
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// let ((tell, told), (end, ended)) = (channel(), channel::<()>());
    /// let watch = pool.inspect().watch_stalls(Duration::from_millis(1), move |stalled| {
    ///     println!("{stalled}"); // a task of 7 has run for 1.2ms on the thread keylane-0
    ///     tell.send(stalled.keys.clone()).unwrap();
    /// })?;
    /// pool.execute(7, move || _ = ended.recv())?;
    /// assert_eq!(told.recv()?, [7]);
    /// drop(watch);
    /// drop(end);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the operating system refuses a thread.
    pub fn watch_stalls(
        &self,
        than: Duration,
        on_stall: impl FnMut(&Stalled<K>) + Send + 'static,
    ) -> io::Result<StallWatch> {
        self.engine.watch_stalls(than, Box::new(on_stall))
    }

    /// Starts a trace of the tasks that run: the last `capacity` tasks of each worker, and as many
    /// turns without a worker. A trace that is being recorded is dropped.
    ///
    /// A worker takes part from its next slice of tasks, at most 64 tasks later. A traced task
    /// costs about 2,000 instructions more, and a clone of its keys.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// pool.inspect().start_trace(100_000);
    /// for task in 0..100 {
    ///     pool.submit(task % 10, || {})?.wait()?;
    /// }
    /// let trace = pool.inspect().take_trace().expect("one was started");
    /// let mut file = Vec::new();
    /// trace.write_chrome(&mut file)?; // for https://ui.perfetto.dev
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    ///
    /// If `capacity` is zero.
    pub fn start_trace(&self, capacity: usize) {
        assert!(capacity > 0, "a trace needs a capacity of at least 1");
        self.engine.start_trace(capacity);
    }

    /// Ends the trace and returns it; `None` if there was none. Tasks that run at this moment are
    /// not in it.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().workers(1).build()?;
    /// assert!(pool.inspect().take_trace().is_none());
    /// pool.inspect().start_trace(1000);
    /// for _ in 0..100 {
    ///     pool.submit(7, || ())?.wait()?;
    /// }
    /// let trace = pool.inspect().take_trace().expect("one was started");
    /// assert!(trace.slices.iter().all(|slice| slice.keys[0].key == 7));
    /// assert!(pool.inspect().take_trace().is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn take_trace(&self) -> Option<Trace<K>> {
        self.engine.take_trace()
    }
}

impl<K> fmt::Debug for Inspector<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inspector").finish_non_exhaustive()
    }
}
