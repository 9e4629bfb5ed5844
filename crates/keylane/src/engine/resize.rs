//! Changes the number of workers and the capacity of a running engine.

use std::hash::BuildHasher;
use std::sync::Arc;

use super::{Engine, Execute, Key};
use crate::builder::{MAX_CAPACITY, MAX_WORKERS};
use crate::error::BuildError;
use crate::observe::TraceEvents;
use crate::run::SpawnWorkers;

impl<K: Key, X: Execute<K>, S: BuildHasher + Send + Sync + 'static> Engine<K, X, S> {
    pub(crate) fn set_workers(self: &Arc<Self>, workers: usize) -> Result<(), BuildError> {
        if !(1..=MAX_WORKERS).contains(&workers) {
            return Err(BuildError::Workers(workers));
        }
        self.workers.set_wanted(workers);
        if let Some(affinity) = &self.affinity {
            affinity.resize(workers);
        }
        TraceEvents::workers(&self.settings.thread_name, workers);
        self.resync_worker_count();
        // Surplus sleeping workers must wake to learn that they end.
        self.idle.wake_all();
        self.spawn_workers().map_err(BuildError::Thread)
    }

    pub(crate) fn set_capacity(&self, capacity: usize) -> Result<(), BuildError> {
        if !(1..=MAX_CAPACITY).contains(&capacity) {
            return Err(BuildError::Capacity(capacity));
        }
        TraceEvents::capacity(&self.settings.thread_name, capacity);
        self.admission.set_capacity(capacity, || self.collect());
        Ok(())
    }
}
