//! Trace buffer of a worker: records each task while a recording is active.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::{Engine, Execute, Key, TraceInfo};
use crate::observe::{TraceOutcome, TraceRecording, TraceRing};
use crate::run::current;

/// Connection of a worker to a recording.
pub(super) struct TraceBuffer<K> {
    worker: usize,
    recording: Arc<TraceRecording<K>>,
    ring: Arc<TraceRing<K>>,
    /// Running task, with its start in nanoseconds since the pool was built.
    begun: Option<(TraceInfo<K>, u64)>,
}

impl<K: Key> TraceBuffer<K> {
    /// Returns a buffer of the active recording, if there is one: the current one if it belongs to
    /// that recording, or a new one.
    pub(super) fn refresh<X: Execute<K>, S>(
        trace_buffer: Option<Box<Self>>,
        engine: &Engine<K, X, S>,
        worker: usize,
    ) -> Option<Box<Self>> {
        let recording = engine.tracer.recording()?;
        match trace_buffer {
            Some(trace_buffer) if Arc::ptr_eq(&trace_buffer.recording, &recording) => {
                Some(trace_buffer)
            }
            _ => {
                let ring = recording.ring();
                Some(Box::new(TraceBuffer { worker, recording, ring, begun: None }))
            }
        }
    }

    pub(super) fn task_started(&mut self, info: TraceInfo<K>, now: u64) {
        current::take_abnormal_end();
        self.begun = Some((info, now));
    }

    /// Records the end of the running task. `is_over` is false if the task has kept its turn and
    /// continues.
    pub(super) fn task_ended(&mut self, now: u64, is_over: bool, job: Option<&Arc<str>>) {
        let Some((info, began)) = self.begun.take() else { return };
        let Some(start) = self.recording.time(began) else { return };
        let end = match (is_over, current::take_abnormal_end()) {
            (false, _) => TraceOutcome::GoesOn,
            (true, abnormal_end) => abnormal_end.unwrap_or(TraceOutcome::Done),
        };
        let duration = Duration::from_nanos(now.saturating_sub(began));
        let mut slice = info.into_slice(Some(self.worker), start, duration, end);
        slice.job = job.cloned();
        self.ring.push(slice);
    }
}
