//! Kinds of jobs: handler, retries, timeouts and limits of their subtasks.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use keylane::Backoff;

use crate::handle::Handler;
use crate::kind_override::KindOverride;
use crate::wire::{OnError, OnFail};

/// Settings of the jobs of one kind.
#[derive(Clone)]
pub struct Kind {
    /// Handler of the subtasks, or leases for remote workers.
    pub work: KindExecutor,
    /// Handler of the split step, which turns a job's payload into subtasks: it returns a JSON
    /// array of subtasks in the form in which they are submitted. It runs in a slot. Without it, a
    /// job is submitted with its subtasks.
    pub split: Option<Arc<dyn Handler>>,
    /// Handler of the fan-in step, which gets the results once all subtasks have succeeded and
    /// returns the job's result.
    pub fan_in: Option<Arc<dyn Handler>>,
    /// Maximum number of attempts per subtask. An attempt ended by a server crash counts. Default:
    /// 5.
    pub attempts: u32,
    /// Delay before the next attempt. Default: 1 second, doubled per attempt up to 1 minute, with
    /// jitter.
    pub backoff: Backoff,
    /// Timeout of an attempt. Default: none.
    pub timeout: Option<Duration>,
    /// Maximum duration of a lease, heartbeats included. Default: 12 hours.
    pub max_lease: Duration,
    /// Maximum number of the kind's subtasks that run at the same time. Default: the number of
    /// slots.
    pub concurrency: Option<usize>,
    /// Maximum number of the kind's subtasks that run with a key at the same time, without an order among
    /// them. Default: 1, so that the subtasks of a key run one after another in their order.
    pub max_per_key: Option<u32>,
    /// Maximum rate of starts. Default: no limit.
    pub rate: Option<StartRate>,
    /// Maximum rate of starts of subtasks with the same key, those that share it not counted. Default: no
    /// limit.
    pub rate_per_key: Option<StartRate>,
    /// Effect of a failed subtask on the rest of its job. Default: the rest goes on.
    pub on_error: OnError,
    /// Effect of a failed subtask on its key. Default: the key goes on.
    pub on_fail: OnFail,
    /// Maximum size of an attempt's [log](crate::handle::AttemptOutput) in bytes: the last ones are kept. 0
    /// keeps none; the maximum is [`Log::MAX_BYTES`](crate::handle::AttemptOutput::MAX_BYTES). Default: 8
    /// KiB.
    pub log_bytes: usize,
}

/// Executor of the subtasks of a kind.
#[derive(Clone)]
pub enum KindExecutor {
    /// Handler that the service calls.
    Handler(Arc<dyn Handler>),
    /// Remote workers, which acquire leases over HTTP.
    Lease {
        /// Duration of a lease without a heartbeat.
        lasts: Duration,
    },
}

/// Token bucket that limits starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StartRate {
    /// Sustained starts per second.
    pub per_second: f64,
    /// Maximum number of starts at once after a pause.
    pub burst: u32,
}

impl Kind {
    /// Maximum of [`max_per_key`](Self::max_per_key): each start looks at that many subtasks at most.
    pub const MAX_PER_KEY: u16 = 256;

    /// Returns a kind with a handler and default settings.
    pub fn new(handler: impl Handler) -> Self {
        Kind::with(KindExecutor::Handler(Arc::new(handler)))
    }

    /// Returns a kind for remote workers. `lasts` is the duration of a lease without a heartbeat.
    #[must_use]
    pub fn leased(lasts: Duration) -> Self {
        Kind::with(KindExecutor::Lease { lasts })
    }

    fn with(work: KindExecutor) -> Self {
        let backoff = Backoff {
            first: Duration::from_secs(1),
            max: Duration::from_secs(60),
            ..Backoff::default()
        };
        Kind {
            work,
            split: None,
            fan_in: None,
            attempts: 5,
            backoff,
            timeout: None,
            max_lease: Duration::from_secs(12 * 3600),
            concurrency: None,
            max_per_key: None,
            rate: None,
            rate_per_key: None,
            on_error: OnError::default(),
            on_fail: OnFail::default(),
            log_bytes: 8 * 1024,
        }
    }

    /// Handlers of the steps, and of the subtasks unless remote workers execute them.
    pub(crate) fn handlers(&self) -> impl Iterator<Item = &Arc<dyn Handler>> {
        let work = match &self.work {
            KindExecutor::Handler(handler) => Some(handler),
            KindExecutor::Lease { .. } => None,
        };
        self.split.iter().chain(&self.fan_in).chain(work)
    }

    /// Name of the executor type, as in `command` or `lease`.
    #[must_use]
    pub fn sort(&self) -> &'static str {
        match &self.work {
            KindExecutor::Handler(handler) => handler.sort(),
            KindExecutor::Lease { .. } => "lease",
        }
    }
}

impl fmt::Debug for KindExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KindExecutor::Handler(handler) => {
                f.debug_tuple("Handler").field(&handler.sort()).finish()
            }
            KindExecutor::Lease { lasts } => f.debug_struct("Lease").field("lasts", lasts).finish(),
        }
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kind")
            .field("work", &self.sort())
            .field("split", &self.split.is_some())
            .field("fan_in", &self.fan_in.is_some())
            .field("attempts", &self.attempts)
            .field("timeout", &self.timeout)
            .field("max_lease", &self.max_lease)
            .field("concurrency", &self.concurrency)
            .field("rate", &self.rate)
            .finish_non_exhaustive()
    }
}

/// Registry of kinds by name and by number. A kind can be replaced at run time and keeps its
/// number.
#[derive(Debug, Default)]
pub(crate) struct KindRegistry {
    /// Innermost lock, held briefly.
    table: RwLock<KindMap>,
}

#[derive(Debug, Default)]
struct KindMap {
    all: Vec<KindEntry>,
    /// Numbers of present, removed and reserved kinds.
    by_name: HashMap<Arc<str>, u32>,
}

impl KindMap {
    fn insert(&mut self, name: &str, configured: Arc<Kind>, is_there: bool) -> u32 {
        let number = u32::try_from(self.all.len()).expect("kinds are fewer than 2^32");
        let name: Arc<str> = name.into();
        self.by_name.insert(Arc::clone(&name), number);
        let (kind, changed) = (Arc::clone(&configured), Arc::default());
        self.all.push(KindEntry { number, name, kind, configured, changed, is_there });
        number
    }
}

/// Kind with its number.
#[derive(Clone, Debug)]
pub(crate) struct KindEntry {
    pub(crate) number: u32,
    pub(crate) name: Arc<str>,
    /// The kind as it is in force: as configured, with the changes of operators.
    pub(crate) kind: Arc<Kind>,
    pub(crate) configured: Arc<Kind>,
    pub(crate) changed: Arc<KindOverride>,
    /// False for a kind that was removed or is not configured: its jobs wait until a kind of its
    /// name is added.
    pub(crate) is_there: bool,
}

impl KindEntry {
    fn apply(&mut self) {
        self.kind = match self.changed.is_empty() {
            true => Arc::clone(&self.configured),
            false => Arc::new(self.changed.applied(&self.configured)),
        };
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.changed.paused.is_some()
    }
}

impl KindRegistry {
    fn read(&self) -> RwLockReadGuard<'_, KindMap> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a kind, or replaces the kind of its name. Returns the replaced kind.
    pub(crate) fn add(&self, name: &str, kind: Kind) -> Option<Arc<Kind>> {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let kind = Arc::new(kind);
        if let Some(&number) = table.by_name.get(name) {
            let entry = &mut table.all[number as usize];
            entry.is_there = true;
            let replaced = std::mem::replace(&mut entry.configured, kind);
            entry.apply();
            return Some(replaced);
        }
        table.insert(name, kind, true);
        None
    }

    /// Returns the number of a kind, and gives one to a name that is not configured, so that a kind
    /// that is added later has the number of the jobs that wait for it.
    pub(crate) fn reserve(&self, name: &str) -> u32 {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(&number) = table.by_name.get(name) {
            return number;
        }
        // Nothing reads the settings of a kind that is not present, because none of its jobs runs.
        table.insert(name, Arc::new(Kind::leased(Duration::ZERO)), false)
    }

    /// Marks the kind as removed.
    pub(crate) fn remove(&self, number: u32) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.all[number as usize].is_there = false;
    }

    /// Number of a present kind.
    pub(crate) fn number(&self, name: &str) -> Option<u32> {
        let table = self.read();
        let number = table.by_name.get(name).copied();
        number.filter(|number| table.all[*number as usize].is_there)
    }

    /// Replaces the changes of a kind, which may not be configured.
    pub(crate) fn change(&self, name: &str, changed: KindOverride) -> KindEntry {
        let number = self.reserve(name);
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let entry = &mut table.all[number as usize];
        entry.changed = Arc::new(changed);
        entry.apply();
        entry.clone()
    }

    /// Returns a kind with its configuration and its changes.
    pub(crate) fn entry(&self, number: u32) -> KindEntry {
        self.read().all[number as usize].clone()
    }

    pub(crate) fn get(&self, number: u32) -> Arc<Kind> {
        Arc::clone(&self.read().all[number as usize].kind)
    }

    pub(crate) fn name(&self, number: u32) -> Arc<str> {
        Arc::clone(&self.read().all[number as usize].name)
    }

    /// Present kinds.
    pub(crate) fn present(&self) -> Vec<KindEntry> {
        self.read().all.iter().filter(|entry| entry.is_there).cloned().collect()
    }

    /// Present, removed and reserved kinds.
    pub(crate) fn all(&self) -> Vec<KindEntry> {
        self.read().all.clone()
    }
}
