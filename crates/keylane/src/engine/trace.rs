//! Records and checks running tasks, where that is enabled.

use super::*;
use crate::observe::{Trace, TraceKey, TraceOutcome, TraceRecording, TraceSlice};
use crate::order::{ClaimMode, RollupScope};

/// Record of a task when it begins.
pub(crate) struct TraceInfo<K> {
    keys: Vec<TraceKey<K>>,
    is_barrier: bool,
    task: Option<u64>,
    wait: Option<Duration>,
}

/// Copies a key for a record. Returns nothing if that panics.
fn copy_for_trace<T>(copy: impl FnOnce() -> T) -> Option<T> {
    catch_key_panic(copy).map_err(drop_catch_unwind).ok()
}

impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
    /// Starts a recording of at most `capacity` slices of each worker.
    pub(crate) fn begin_trace(&self, capacity: usize) {
        self.tracer.begin(self.clock.nanos(), capacity);
        self.measure_every_wait(true);
    }

    /// Ends the recording.
    pub(crate) fn end_trace(&self) -> Option<Trace<K>> {
        let recording = self.tracer.end()?;
        self.measure_every_wait(false);
        Some(recording.into_trace(self.settings.thread_name.clone()))
    }

    fn measure_every_wait(&self, every: bool) {
        let statistics = self.settings.statistics;
        for shard in &self.shards {
            let mut inbox = shard.inbox.lock();
            shard.waits.lock().set_every(every || statistics.is_every());
            let any = every || statistics.is_on();
            inbox.measure_at = if any { inbox.accepted } else { u64::MAX };
        }
    }

    /// Returns the record of a task that begins.
    pub(crate) fn trace(
        &self,
        shard: usize,
        held: &HeldLanes<K, X::Work>,
        seq: Option<u32>,
        wait: Option<Duration>,
    ) -> TraceInfo<K> {
        let name = |shard: usize| Some((shard as u64) << 32 | u64::from(seq?));
        let task = name(shard);
        match held {
            HeldLanes::Free => TraceInfo { keys: Vec::new(), is_barrier: false, task, wait },
            HeldLanes::Lane(slot) => {
                let lanes = self.shards[shard].lanes.lock();
                // Without its key, if the key's `Clone` panics: the task is not at fault.
                let key = copy_for_trace(|| lanes.key_at(*slot).cloned()).flatten();
                let is_shared = lanes.is_shared(*slot);
                drop(lanes);
                let keys = key.into_iter().map(|key| TraceKey::new(key, is_shared)).collect();
                TraceInfo { keys, is_barrier: false, task, wait }
            }
            HeldLanes::Rollup(rollup) => {
                let task = name(self.first_shard(&rollup.scope));
                let (keys, is_barrier) = match &rollup.scope {
                    RollupScope::Unkeyed { .. } => (Vec::new(), false),
                    RollupScope::Everything { .. } => (Vec::new(), true),
                    RollupScope::Keys(claims) => {
                        let info = claims.iter().filter_map(|part| {
                            let key = copy_for_trace(|| part.claim.key.clone())?;
                            Some(match part.claim.mode {
                                ClaimMode::Limited(most) => TraceKey::limited(key, most),
                                mode => TraceKey::new(key, mode == ClaimMode::Shared),
                            })
                        });
                        (info.collect(), false)
                    }
                };
                TraceInfo { keys, is_barrier, task, wait }
            }
        }
    }

    /// Checks the start of a task, in a pool with self-checks.
    pub(crate) fn check_begin(&self, shard: usize, held: &HeldLanes<K, X::Work>, seq: u32) {
        if let Some(checker) = &self.checker {
            let info = self.trace(shard, held, None, None);
            checker.begins(&info.keys, info.is_barrier, seq);
        }
    }

    /// Checks the end of a task, before it releases its lanes.
    pub(crate) fn check_end(&self, shard: usize, held: &HeldLanes<K, X::Work>) {
        if let Some(checker) = &self.checker {
            let info = self.trace(shard, held, None, None);
            checker.ends(&info.keys, info.is_barrier);
        }
    }

    /// Records a kept turn that is about to end.
    pub(super) fn trace_kept(
        &self,
        recording: &TraceRecording<K>,
        shard: usize,
        held: &HeldLanes<K, X::Work>,
        since: u64,
    ) {
        let now = self.clock.nanos();
        let info = self.trace(shard, held, None, None);
        // A turn that was kept before the recording began is shown from its beginning on.
        let start = recording.time(since).unwrap_or_default();
        let duration = recording.time(now).unwrap_or_default().saturating_sub(start);
        recording.kept().push(info.into_slice(None, start, duration, TraceOutcome::Done));
    }
}

impl<K> TraceInfo<K> {
    /// Returns the record of a job's subtask without keys.
    pub(crate) fn subtask() -> Self {
        TraceInfo { keys: Vec::new(), is_barrier: false, task: None, wait: None }
    }

    pub(crate) fn into_slice(
        self,
        worker: Option<usize>,
        start: Duration,
        duration: Duration,
        end: TraceOutcome,
    ) -> TraceSlice<K> {
        let TraceInfo { keys, is_barrier, task, wait } = self;
        TraceSlice { worker, keys, is_barrier, job: None, task, start, duration, wait, end }
    }
}
