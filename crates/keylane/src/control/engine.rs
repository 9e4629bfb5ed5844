//! Lists the operations of an engine that the facades call, without the engine's type parameters.
//!
//! None of them is on the path of a task, so a call through a table of functions costs nothing that
//! matters.

use std::hash::BuildHasher;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use keylane_allocate::JobId;

use crate::engine::{Engine, Execute, Key};
use crate::error::BuildError;
use crate::observe::{
    BlockedSubmitter, JobState, KeyExplanation, PausedKey, PoolExplanation, RunInfo, Snapshot,
    StallWatch, Stalled, TaskExplanation, Trace,
};
use crate::order::Rate;
use crate::sync::ThreadId;

/// Callback for a task that runs too long.
pub(crate) type OnStall<K> = Box<dyn FnMut(&Stalled<K>) + Send>;

/// Operations on single keys.
pub(crate) trait KeysEngine<K> {
    fn pause(&self, key: &K) -> bool;
    fn resume(&self, key: &K) -> bool;
    fn paused(&self, key: &K) -> Option<PausedKey<K>>;
    fn list_paused(&self) -> Vec<PausedKey<K>>;
    fn reopen(&self, key: &K) -> bool;
    fn list_closed(&self) -> Vec<K>;
    fn set_rate(&self, key: &K, rate: Option<Rate>) -> Result<(), BuildError>;
}

/// Questions about tasks, keys, jobs and the pool.
pub(crate) trait InspectEngine<K> {
    fn explain_running(&self, thread: Option<ThreadId>, name: usize) -> RunInfo;
    fn explain_waiting(&self, name: usize) -> Option<TaskExplanation<K>>;
    fn explain_key(&self, key: &K) -> KeyExplanation<K>;
    fn explain_job(&self, job: JobId) -> JobState;
    fn explain_pool(&self) -> PoolExplanation;
    fn snapshot(&self, top: usize) -> Snapshot<K>;
    fn submitters(&self) -> Vec<BlockedSubmitter>;
    fn stalled(&self, than: Duration) -> Vec<Stalled<K>>;
    fn watch_stalls(&self, than: Duration, on_stall: OnStall<K>) -> io::Result<StallWatch>;
    fn start_trace(&self, capacity: usize);
    fn take_trace(&self) -> Option<Trace<K>>;
}

/// Settings that may change while the pool runs.
pub(crate) trait SettingsEngine {
    fn set_workers(&self, workers: usize) -> Result<(), BuildError>;
    fn set_capacity(&self, capacity: usize) -> Result<(), BuildError>;
    fn set_rate(&self, rate: Option<Rate>) -> Result<(), BuildError>;
    fn set_rate_per_key(&self, rate: Option<Rate>) -> Result<(), BuildError>;
}

impl<K: Key, X: Execute<K>, S: BuildHasher + Send + Sync + 'static> KeysEngine<K>
    for Arc<Engine<K, X, S>>
{
    fn pause(&self, key: &K) -> bool {
        self.pause_key(key)
    }

    fn resume(&self, key: &K) -> bool {
        self.resume_key(key)
    }

    fn paused(&self, key: &K) -> Option<PausedKey<K>> {
        self.paused_key(key)
    }

    fn list_paused(&self) -> Vec<PausedKey<K>> {
        self.paused_keys()
    }

    fn reopen(&self, key: &K) -> bool {
        self.reopen_key(key)
    }

    fn list_closed(&self) -> Vec<K> {
        self.finished_keys()
    }

    fn set_rate(&self, key: &K, rate: Option<Rate>) -> Result<(), BuildError> {
        self.set_rate_of(key, rate)
    }
}

impl<K: Key, X: Execute<K>, S: BuildHasher + Send + Sync + 'static> InspectEngine<K>
    for Arc<Engine<K, X, S>>
{
    fn explain_running(&self, thread: Option<ThreadId>, name: usize) -> RunInfo {
        Engine::explain_running(self, thread, name)
    }

    fn explain_waiting(&self, name: usize) -> Option<TaskExplanation<K>> {
        Engine::explain_waiting(self, name)
    }

    fn explain_key(&self, key: &K) -> KeyExplanation<K> {
        Engine::explain_key(self, key)
    }

    fn explain_job(&self, job: JobId) -> JobState {
        Engine::explain_job(self, job)
    }

    fn explain_pool(&self) -> PoolExplanation {
        self.explain()
    }

    fn snapshot(&self, top: usize) -> Snapshot<K> {
        Engine::snapshot(self, top)
    }

    fn submitters(&self) -> Vec<BlockedSubmitter> {
        Engine::submitters(self)
    }

    fn stalled(&self, than: Duration) -> Vec<Stalled<K>> {
        Engine::stalled(self, than).into_iter().map(|(_, stalled)| stalled).collect()
    }

    fn watch_stalls(&self, than: Duration, on_stall: OnStall<K>) -> io::Result<StallWatch> {
        Engine::watch_stalls(self, than, on_stall)
    }

    fn start_trace(&self, capacity: usize) {
        self.begin_trace(capacity);
    }

    fn take_trace(&self) -> Option<Trace<K>> {
        self.end_trace()
    }
}

impl<K: Key, X: Execute<K>, S: BuildHasher + Send + Sync + 'static> SettingsEngine
    for Arc<Engine<K, X, S>>
{
    fn set_workers(&self, workers: usize) -> Result<(), BuildError> {
        Engine::set_workers(self, workers)
    }

    fn set_capacity(&self, capacity: usize) -> Result<(), BuildError> {
        Engine::set_capacity(self, capacity)
    }

    fn set_rate(&self, rate: Option<Rate>) -> Result<(), BuildError> {
        Engine::set_rate(self, rate)
    }

    fn set_rate_per_key(&self, rate: Option<Rate>) -> Result<(), BuildError> {
        Engine::set_rate_per_key(self, rate)
    }
}
