//! Asking a running pool what it does, and why.

use std::hash::BuildHasher;
use std::time::Duration;

use super::Pool;
use crate::allocate::JobId;
use crate::complete::{Handle, TaskPhase};
use crate::engine::Key;
use crate::observe::{
    JobState, KeyExplanation, PoolExplanation, Running, StallWatch, Stalled, Submitter,
    TaskExplanation, TaskState, Trace,
};

impl<K: Key, S: BuildHasher + Send + Sync + 'static> Pool<K, S> {
    /// Says what a task does, or why it waits: behind which tasks of which keys, at what position, and who
    /// has those keys.
    ///
    /// Costs a pass over unfinished tasks, up to the one that is found; in one part of the pool at a
    /// time submissions and the end of tasks wait meanwhile. Where nobody asks, it costs nothing.
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    /// use keylane::{Pool, TaskState};
    ///
    /// let pool = Pool::<&str>::builder().build()?;
    /// let ((begin, begun), (end, ended)) = (channel(), channel::<()>());
    /// pool.execute("alice", move || {
    ///     begin.send(()).unwrap();
    ///     ended.recv().unwrap();
    /// })?;
    /// begun.recv()?;
    /// let second = pool.submit("alice", || "done")?;
    /// let why = pool.explain_task(&second);
    /// println!("{why}");
    /// assert!(matches!(why.state, TaskState::Behind(ahead) if ahead[0].tasks == 1));
    /// end.send(())?;
    /// assert!(second.wait()?.is_done());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn explain_task<T: 'static, E: 'static>(&self, task: &Handle<T, E>) -> TaskExplanation<K> {
        // What moves from one part of the pool to another meanwhile is met the second time.
        for _ in 0..2 {
            let state = match task.phase() {
                TaskPhase::Over => TaskState::Over,
                TaskPhase::Running(on) => {
                    let known = on.and_then(|thread| self.engine.explain_thread(thread));
                    TaskState::Running(known.unwrap_or_else(Running::unknown))
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

    /// Says why a job is where it is.
    pub fn explain_job(&self, job: JobId) -> JobState {
        self.engine.explain_job(job)
    }

    /// Says what the tasks of a key do, or why they wait.
    ///
    /// Costs a pass over the unfinished tasks of the key's part of the pool, during which submissions
    /// and the end of tasks wait there; and one over those of all parts, one after the other, if the key is
    /// with a task of several keys that waits for others of them. Where nobody asks, it costs nothing.
    ///
    /// ```
    /// # use keylane::Pool;
    /// # let pool = Pool::<&str>::builder().build()?;
    /// println!("{}", pool.explain_key(&"alice"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn explain_key(&self, key: &K) -> KeyExplanation<K> {
        self.engine.explain_key(key)
    }

    /// Who waits for room, in the order in which they will be served: first the line for room, then that for
    /// [bytes](crate::Builder::capacity_bytes). Who waits for room at a key of its own is in neither.
    ///
    /// ```
    /// # use keylane::Pool;
    /// # let pool = Pool::<&str>::builder().build()?;
    /// for submitter in pool.submitters() {
    ///     println!("{submitter}"); // the thread front-3 waits for room, at position 2
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn submitters(&self) -> Vec<Submitter> {
        self.engine.submitters()
    }

    /// Says why the pool does not do more than it does. As cheap as [`snapshot(0)`](Self::snapshot).
    pub fn explain(&self) -> PoolExplanation {
        self.engine.explain()
    }

    /// The tasks that have run for at least `than`, and so have held their keys for as long, the longest
    /// first. Costs running tasks nothing.
    ///
    /// Tasks of 20 µs and more are seen at once. In a row of tiny ones a worker looks at the clock only once
    /// in up to 64 tasks; of one in the middle of such a row it is known how long it has run only from
    /// the first time on that somebody has looked here. [`watch_stalls`](Self::watch_stalls) looks often enough.
    pub fn stalled(&self, than: Duration) -> Vec<Stalled<K>> {
        self.engine.stalled(than).into_iter().map(|(_, stalled)| stalled).collect()
    }

    /// Calls `on_stall` once for each task that runs for `than` or longer, on a thread of its own, which
    /// looks four times in `than`, but not more than a thousand times a second. The watch ends when it is
    /// dropped, or the pool is.
    ///
    /// A panic of `on_stall` is ignored.
    ///
    /// # Errors
    ///
    /// If the operating system refuses a thread.
    pub fn watch_stalls(
        &self,
        than: Duration,
        on_stall: impl FnMut(&Stalled<K>) + Send + 'static,
    ) -> std::io::Result<StallWatch> {
        self.engine.watch_stalls(than, on_stall)
    }

    /// Records what runs where, from now on until [`take_trace`](Self::take_trace): of each worker the last
    /// `capacity` tasks, and as many turns without a worker. A recording that goes on already is dropped.
    ///
    /// A worker takes part from its next slice of tasks on, which is at most 64 later. A task then costs about
    /// 2,000 instructions more, and a clone of its keys; as long as nothing is recorded it costs nothing.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// pool.record_trace(100_000);
    /// for task in 0..100 {
    ///     pool.submit(task % 10, || {})?.wait()?;
    /// }
    /// let trace = pool.take_trace().expect("one was begun");
    /// let mut file = Vec::new();
    /// trace.write_chrome(&mut file)?; // for https://ui.perfetto.dev
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    ///
    /// If `capacity` is zero.
    pub fn record_trace(&self, capacity: usize) {
        assert!(capacity > 0, "a recording without room records nothing");
        self.engine.begin_trace(capacity);
    }

    /// Ends the recording and returns it; nothing if there was none. What runs at this moment is not in it.
    pub fn take_trace(&self) -> Option<Trace<K>> {
        self.engine.end_trace()
    }
}
