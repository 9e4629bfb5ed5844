//! A worker while a trace is recorded.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::{Engine, Execute, Key, TraceInfo};
use crate::observe::{Recording, Ring, TraceOutcome};
use crate::run::current;

/// What a worker has of a recording.
pub(super) struct TraceBuffer<K> {
    worker: usize,
    recording: Arc<Recording<K>>,
    ring: Arc<Ring<K>>,
    /// The task that runs, and when it began.
    begun: Option<(TraceInfo<K>, u64)>,
}

impl<K: Key> TraceBuffer<K> {
    /// A seat in the recording that goes on, if there is one: the one that the worker has already, or
    /// a new one.
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

    pub(super) fn begins(&mut self, info: TraceInfo<K>, now: u64) {
        current::take_mishap();
        self.begun = Some((info, now));
    }

    /// What was begun has ended; or, if `is_over` is not so, its turn was kept.
    pub(super) fn ends(&mut self, now: u64, is_over: bool, job: Option<&Arc<str>>) {
        let Some((info, began)) = self.begun.take() else { return };
        let Some(start) = self.recording.time(began) else { return };
        let end = match (is_over, current::take_mishap()) {
            (false, _) => TraceOutcome::GoesOn,
            (true, mishap) => mishap.unwrap_or(TraceOutcome::Done),
        };
        let duration = Duration::from_nanos(now.saturating_sub(began));
        let mut slice = info.into_slice(Some(self.worker), start, duration, end);
        slice.job = job.cloned();
        self.ring.push(slice);
    }
}
