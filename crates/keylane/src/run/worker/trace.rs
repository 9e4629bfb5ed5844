//! A worker while a trace is recorded.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::{Engine, Execute, Key, TraceInfo};
use crate::observe::{Recording, Ring, SliceEnd};
use crate::run::current;

/// What a worker has of a recording.
pub(super) struct Seat<K> {
    worker: usize,
    recording: Arc<Recording<K>>,
    ring: Arc<Ring<K>>,
    /// The task that runs, and when it began.
    begun: Option<(TraceInfo<K>, u64)>,
}

impl<K: Key> Seat<K> {
    /// A seat in the recording that goes on, if there is one: the one that the worker has already, or
    /// a new one.
    pub(super) fn refresh<X: Execute<K>, S>(
        seat: Option<Box<Self>>,
        engine: &Engine<K, X, S>,
        worker: usize,
    ) -> Option<Box<Self>> {
        let recording = engine.tracer.recording()?;
        match seat {
            Some(seat) if Arc::ptr_eq(&seat.recording, &recording) => Some(seat),
            _ => {
                let ring = recording.ring();
                Some(Box::new(Seat { worker, recording, ring, begun: None }))
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
            (false, _) => SliceEnd::GoesOn,
            (true, mishap) => mishap.unwrap_or(SliceEnd::Done),
        };
        let duration = Duration::from_nanos(now.saturating_sub(began));
        let mut slice = info.into_slice(Some(self.worker), start, duration, end);
        slice.job = job.cloned();
        self.ring.push(slice);
    }
}
