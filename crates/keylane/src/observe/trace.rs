//! Trace of a pool: records the tasks that ran in a window of time, by worker.

mod chrome;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering};

/// Recorded window of a pool: the tasks that ran on each worker, with start and duration.
///
/// See [`Pool::record_trace`](crate::control::Inspector::start_trace).
/// [`write_chrome`](Self::write_chrome) exports it for a viewer.
#[derive(Debug)]
#[non_exhaustive]
pub struct Trace<K> {
    /// Recorded slices, by start time.
    pub slices: Vec<TraceSlice<K>>,
    /// Number of slices dropped for lack of space. The earliest ones are dropped first.
    pub dropped: u64,
    /// Name of the workers' threads, without their number.
    pub thread_name: String,
}

/// Task that ran, or a part of one.
#[derive(Debug)]
#[non_exhaustive]
pub struct TraceSlice<K> {
    /// Number of the worker that ran it; `None` for a kept turn, from the keeping to its end.
    pub worker: Option<usize>,
    /// Keys that the task held.
    pub keys: Vec<TraceKey<K>>,
    /// Whether the task was a barrier.
    pub is_barrier: bool,
    /// Name of the job, for a subtask without keys.
    pub job: Option<Arc<str>>,
    /// Unique id of the task in its pool: the shard in the upper half, the position in its order in
    /// the lower. `None` for subtasks of jobs and kept turns.
    pub task: Option<u64>,
    /// Time from the start of the window to the start of the slice.
    pub start: Duration,
    /// Duration of the slice.
    pub duration: Duration,
    /// Wait of the task before its start, if it was submitted in the window.
    pub wait: Option<Duration>,
    /// End of the slice.
    pub end: TraceOutcome,
}

/// Key of a [`TraceSlice`].
#[derive(Debug)]
#[non_exhaustive]
pub struct TraceKey<K> {
    /// The key.
    pub key: K,
    /// Whether other tasks could use the key meanwhile.
    pub is_shared: bool,
    /// Maximum of tasks that could use the key meanwhile, if it is
    /// [limited](crate::Claims::limited).
    pub most: Option<u16>,
}

/// End of a [`TraceSlice`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum TraceOutcome {
    /// The body returned.
    Done,
    /// The body returned an error to its handle or job.
    Failed,
    /// The body panicked.
    Panicked,
    /// The task was cancelled before, and did not run.
    Cancelled,
    /// The turn was kept: another slice, without a worker, continues the task.
    GoesOn,
}

impl<K> TraceSlice<K> {
    /// End of the slice, from the start of the window.
    ///
    /// ```
    /// use keylane::observe::TraceSlice;
    /// # use keylane::Pool;
    /// # let pool = Pool::<u32>::builder().workers(1).build()?;
    ///
    /// pool.inspect().start_trace(1000);
    /// for _ in 0..100 {
    ///     pool.submit(7, || ())?.wait()?;
    /// }
    /// let trace = pool.inspect().take_trace().expect("one was started");
    /// let end = trace.slices.iter().map(TraceSlice::end_time).max();
    /// assert!(end >= trace.slices.iter().map(|slice| slice.start).max());
    /// println!("the last task ended after {:?}", end.unwrap_or_default());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn end_time(&self) -> Duration {
        self.start + self.duration
    }
}

impl<K> TraceKey<K> {
    pub(crate) fn new(key: K, is_shared: bool) -> Self {
        TraceKey { key, is_shared, most: None }
    }

    /// Key of a task that limits its users to `most` tasks at a time.
    pub(crate) fn limited(key: K, most: u16) -> Self {
        TraceKey { key, is_shared: true, most: Some(most) }
    }
}

impl TraceOutcome {
    /// Name of the end in lower case.
    ///
    /// ```
    /// use keylane::observe::TraceOutcome;
    ///
    /// assert_eq!(TraceOutcome::Panicked.name(), "panicked");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            TraceOutcome::Done => "done",
            TraceOutcome::Failed => "failed",
            TraceOutcome::Panicked => "panicked",
            TraceOutcome::Cancelled => "cancelled",
            TraceOutcome::GoesOn => "goes on",
        }
    }
}

/// Trace recorder of a pool.
pub(crate) struct Tracer<K> {
    /// Whether a recording is active. Read without a lock by workers at their clock reads.
    on: AtomicBool,
    recording: Mutex<Option<Arc<TraceRecording<K>>>>,
}

impl<K> Default for Tracer<K> {
    fn default() -> Self {
        Tracer { on: AtomicBool::new(false), recording: Mutex::new(None) }
    }
}

impl<K> Tracer<K> {
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    pub(crate) fn begin(&self, now: u64, capacity: usize) {
        let before = self.recording.lock().replace(Arc::new(TraceRecording::new(now, capacity)));
        self.on.store(true, Ordering::Relaxed);
        drop(before);
    }

    pub(crate) fn end(&self) -> Option<Arc<TraceRecording<K>>> {
        self.on.store(false, Ordering::Relaxed);
        self.recording.lock().take()
    }

    pub(crate) fn recording(&self) -> Option<Arc<TraceRecording<K>>> {
        if self.is_on() { self.recording.lock().clone() } else { None }
    }
}

/// Recorded slices.
pub(crate) struct TraceRecording<K> {
    /// Start of the recording, in nanoseconds since the pool was built.
    began: u64,
    /// Maximum of slices in each ring.
    capacity: usize,
    /// Rings of all workers, and that of the kept turns.
    rings: Mutex<Vec<Arc<TraceRing<K>>>>,
    kept: Arc<TraceRing<K>>,
}

/// Last slices of one worker, which writes them. The lock is uncontended until the end of the
/// recording.
pub(crate) struct TraceRing<K> {
    slices: Mutex<VecDeque<TraceSlice<K>>>,
    capacity: usize,
    dropped: AtomicU64,
}

impl<K> TraceRecording<K> {
    fn new(began: u64, capacity: usize) -> Self {
        let kept = TraceRing::new(capacity);
        TraceRecording { began, capacity, rings: Mutex::new(vec![kept.clone()]), kept }
    }

    /// Creates a ring for one worker.
    pub(crate) fn ring(&self) -> Arc<TraceRing<K>> {
        let ring = TraceRing::new(self.capacity);
        self.rings.lock().push(ring.clone());
        ring
    }

    /// Ring of the turns kept without a worker.
    pub(crate) fn kept(&self) -> &TraceRing<K> {
        &self.kept
    }

    /// Converts a time into one of the window, or `None` if it is before the window.
    pub(crate) fn time(&self, nanos: u64) -> Option<Duration> {
        Some(Duration::from_nanos(nanos.checked_sub(self.began)?))
    }

    pub(crate) fn into_trace(self: Arc<Self>, thread_name: String) -> Trace<K> {
        let (mut slices, mut dropped) = (Vec::new(), 0);
        for ring in self.rings.lock().iter() {
            slices.extend(ring.slices.lock().drain(..));
            dropped += ring.dropped.load(Ordering::Relaxed);
        }
        slices.sort_by_key(|slice| (slice.start, slice.end_time()));
        Trace { slices, dropped, thread_name }
    }
}

impl<K> TraceRing<K> {
    fn new(capacity: usize) -> Arc<Self> {
        let dropped = AtomicU64::new(0);
        Arc::new(TraceRing { slices: Mutex::new(VecDeque::new()), capacity, dropped })
    }

    pub(crate) fn push(&self, slice: TraceSlice<K>) {
        let mut slices = self.slices.lock();
        let oldest = if slices.len() == self.capacity { slices.pop_front() } else { None };
        slices.push_back(slice);
        drop(slices);
        if oldest.is_some() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        // Dropped after the lock is released, because a key's drop is user code.
        drop(oldest);
    }
}

impl<K> fmt::Debug for Tracer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer").field("on", &self.is_on()).finish_non_exhaustive()
    }
}
