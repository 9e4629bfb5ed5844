//! What ran where and when, as it is recorded and as it is handed out.

mod chrome;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering};

/// A window of a pool's life: which task ran on which worker, from when to when.
///
/// See [`Pool::record_trace`](crate::control::Inspector::start_trace). [`write_chrome`](Self::write_chrome) writes it for
/// a viewer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Trace<K> {
    /// What ran, by the time at which it began.
    pub slices: Vec<TraceSlice<K>>,
    /// How much more ran in the window than there was room for. What ran first was left out.
    pub dropped: u64,
    /// What the workers' threads are called, before their number.
    pub thread_name: String,
}

/// A task that ran, or a part of one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TraceSlice<K> {
    /// The number of the worker that ran it. None for a turn that was kept, from then on to its end.
    pub worker: Option<usize>,
    /// The keys that it held.
    pub keys: Vec<TraceKey<K>>,
    /// It held everything.
    pub is_barrier: bool,
    /// The job whose subtask it was, where that has no keys.
    pub job: Option<Arc<str>>,
    /// Tells the tasks of a pool apart: the part of the keys in the upper half, the place in the order there
    /// in the lower. Subtasks of jobs and kept turns have none.
    pub task: Option<u64>,
    /// From the beginning of the window to its own.
    pub start: Duration,
    /// How long it ran.
    pub duration: Duration,
    /// How long the task waited before it began, if it was submitted in the window.
    pub wait: Option<Duration>,
    /// How it ended.
    pub end: TraceOutcome,
}

/// A key of a [`TraceSlice`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceKey<K> {
    /// The key.
    pub key: K,
    /// Others could share it meanwhile, or use it as this one does.
    pub is_shared: bool,
    /// So many could, if it is [limited](crate::Claims::limited).
    pub most: Option<u16>,
}

/// How a [`TraceSlice`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TraceOutcome {
    /// Its body returned.
    Done,
    /// Its body returned an error to its handle or job.
    Failed,
    /// Its body panicked.
    Panicked,
    /// It had been cancelled before, and did nothing.
    Cancelled,
    /// Its turn was kept: another slice, without a worker, goes on from there.
    GoesOn,
}

impl<K> TraceSlice<K> {
    /// When it ended, from the beginning of the window.
    pub fn end_time(&self) -> Duration {
        self.start + self.duration
    }
}

impl<K> TraceKey<K> {
    pub(crate) fn new(key: K, is_shared: bool) -> Self {
        TraceKey { key, is_shared, most: None }
    }

    /// Of a task that lets so many use it at once.
    pub(crate) fn limited(key: K, most: u16) -> Self {
        TraceKey { key, is_shared: true, most: Some(most) }
    }
}

impl TraceOutcome {
    /// In a word.
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

/// Whether a pool is being traced, and where to.
pub(crate) struct Tracer<K> {
    /// There is a recording. Read without a lock by whoever has ended a task and looks at the clock anyway.
    on: AtomicBool,
    recording: Mutex<Option<Arc<Recording<K>>>>,
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
        let before = self.recording.lock().replace(Arc::new(Recording::new(now, capacity)));
        self.on.store(true, Ordering::Relaxed);
        drop(before);
    }

    pub(crate) fn end(&self) -> Option<Arc<Recording<K>>> {
        self.on.store(false, Ordering::Relaxed);
        self.recording.lock().take()
    }

    pub(crate) fn recording(&self) -> Option<Arc<Recording<K>>> {
        if self.is_on() { self.recording.lock().clone() } else { None }
    }
}

/// What has been recorded so far.
pub(crate) struct Recording<K> {
    /// When it began, in nanoseconds since the pool was built.
    began: u64,
    /// The most slices in each ring.
    capacity: usize,
    /// Every worker's ring, and that of the turns without a worker.
    rings: Mutex<Vec<Arc<Ring<K>>>>,
    kept: Arc<Ring<K>>,
}

/// The last slices of one worker. Written by that one, under a lock that nobody else takes before the end.
pub(crate) struct Ring<K> {
    slices: Mutex<VecDeque<TraceSlice<K>>>,
    capacity: usize,
    dropped: AtomicU64,
}

impl<K> Recording<K> {
    fn new(began: u64, capacity: usize) -> Self {
        let kept = Ring::new(capacity);
        Recording { began, capacity, rings: Mutex::new(vec![kept.clone()]), kept }
    }

    /// A ring for one worker.
    pub(crate) fn ring(&self) -> Arc<Ring<K>> {
        let ring = Ring::new(self.capacity);
        self.rings.lock().push(ring.clone());
        ring
    }

    /// For the turns that go on without a worker.
    pub(crate) fn kept(&self) -> &Ring<K> {
        &self.kept
    }

    /// A time in the window, if it is in it.
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

impl<K> Ring<K> {
    fn new(capacity: usize) -> Arc<Self> {
        let dropped = AtomicU64::new(0);
        Arc::new(Ring { slices: Mutex::new(VecDeque::new()), capacity, dropped })
    }

    pub(crate) fn push(&self, slice: TraceSlice<K>) {
        let mut slices = self.slices.lock();
        let oldest = if slices.len() == self.capacity { slices.pop_front() } else { None };
        slices.push_back(slice);
        drop(slices);
        if oldest.is_some() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        // A key's drop is user code.
        drop(oldest);
    }
}

impl<K> fmt::Debug for Tracer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer").field("on", &self.is_on()).finish_non_exhaustive()
    }
}
