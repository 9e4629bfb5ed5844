//! Kinds of jobs: what is done with a subtask, how often it is tried, and how many at a time.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use keylane_stream::retry::Backoff;

use crate::handle::Handler;
use crate::wire::{OnErrorChoice, OnFailChoice};

/// What is done with the jobs of one kind.
#[derive(Clone)]
pub struct Kind {
    /// What does the work.
    pub work: Work,
    /// What makes the subtasks of a job of its payload, when a slot is free for that: its answer is a JSON
    /// array of subtasks as they are submitted. Without it a job comes with its subtasks.
    pub split: Option<Arc<dyn Handler>>,
    /// What is run over the results when all subtasks have succeeded; its answer is the job's result.
    pub fan_in: Option<Arc<dyn Handler>>,
    /// How often a subtask is tried. A crash of the server counts. Default: 5.
    pub attempts: u32,
    /// How long to wait after a failed attempt. Default: a second, twice as long each time, at most a
    /// minute, with jitter.
    pub backoff: Backoff,
    /// How long an attempt may take; none for as long as it takes. Default: none.
    pub timeout: Option<Duration>,
    /// Maximum duration of a lease, however often its worker asks for more time. Default: 12 hours.
    pub max_lease: Duration,
    /// How many of its subtasks run at once. Default: as many as there are slots.
    pub concurrency: Option<usize>,
    /// How many of its subtasks begin in a time. Default: no bound.
    pub rate: Option<Rate>,
    /// Whether others of the job go on when a subtask has failed for good. Default: they do.
    pub on_error: OnErrorChoice,
    /// What becomes of its key. Default: it goes on.
    pub on_fail: OnFailChoice,
    /// How many bytes of what an attempt [says](crate::handle::Log) are kept: the last ones; 0 for nothing, and at
    /// most [`Log::MOST_BYTES`](crate::handle::Log::MOST_BYTES). Default: 8 KiB.
    pub log_bytes: usize,
}

/// What does the work of a kind.
#[derive(Clone)]
pub enum Work {
    /// Something that the service calls.
    Handler(Arc<dyn Handler>),
    /// Workers elsewhere, who ask for leases.
    Lease {
        /// How long a lease lasts without a heartbeat.
        lasts: Duration,
    },
}

/// How many begin in a time: a bucket of tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// How many in a second, in the long run.
    pub per_second: f64,
    /// How many at once, after a pause.
    pub burst: u32,
}

impl Kind {
    /// Done by this handler.
    pub fn new(handler: impl Handler) -> Self {
        Kind::with(Work::Handler(Arc::new(handler)))
    }

    /// Done by workers elsewhere, whose leases last so long without a heartbeat.
    #[must_use]
    pub fn leased(lasts: Duration) -> Self {
        Kind::with(Work::Lease { lasts })
    }

    fn with(work: Work) -> Self {
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
            rate: None,
            on_error: OnErrorChoice::default(),
            on_fail: OnFailChoice::default(),
            log_bytes: 8 * 1024,
        }
    }

    /// Its handlers: of its steps, and of its subtasks if they are done here.
    pub(crate) fn handlers(&self) -> impl Iterator<Item = &Arc<dyn Handler>> {
        let work = match &self.work {
            Work::Handler(handler) => Some(handler),
            Work::Lease { .. } => None,
        };
        self.split.iter().chain(&self.fan_in).chain(work)
    }

    /// What does the work, in a word.
    #[must_use]
    pub fn sort(&self) -> &'static str {
        match &self.work {
            Work::Handler(handler) => handler.sort(),
            Work::Lease { .. } => "lease",
        }
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Work::Handler(handler) => f.debug_tuple("Handler").field(&handler.sort()).finish(),
            Work::Lease { lasts } => f.debug_struct("Lease").field("lasts", lasts).finish(),
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

/// The kinds of a service, by name and by number. They can be replaced while it runs; a kind keeps its number.
#[derive(Debug, Default)]
pub(crate) struct Kinds {
    /// Locked for moments, and innermost.
    table: RwLock<Table>,
}

#[derive(Debug, Default)]
struct Table {
    all: Vec<Entry>,
    /// Numbers of all kinds that there are or were.
    by_name: HashMap<Arc<str>, u32>,
}

/// A kind under its number.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) number: u32,
    pub(crate) name: Arc<str>,
    pub(crate) kind: Arc<Kind>,
    /// Whether there is such a kind. If not, jobs that have it wait until there is one again.
    pub(crate) is_there: bool,
}

impl Kinds {
    fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds one, in place of what had its name before. Returns what it replaces.
    pub(crate) fn add(&self, name: &str, kind: Kind) -> Option<Arc<Kind>> {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let kind = Arc::new(kind);
        if let Some(&number) = table.by_name.get(name) {
            let entry = &mut table.all[number as usize];
            entry.is_there = true;
            return Some(std::mem::replace(&mut entry.kind, kind));
        }
        let number = u32::try_from(table.all.len()).expect("kinds are fewer than 2^32");
        let name: Arc<str> = name.into();
        table.by_name.insert(Arc::clone(&name), number);
        table.all.push(Entry { number, name, kind, is_there: true });
        None
    }

    /// The kind of this number is none any more.
    pub(crate) fn remove(&self, number: u32) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.all[number as usize].is_there = false;
    }

    /// The number of a kind that there is.
    pub(crate) fn number(&self, name: &str) -> Option<u32> {
        let table = self.read();
        let number = table.by_name.get(name).copied();
        number.filter(|number| table.all[*number as usize].is_there)
    }

    pub(crate) fn get(&self, number: u32) -> Arc<Kind> {
        Arc::clone(&self.read().all[number as usize].kind)
    }

    pub(crate) fn name(&self, number: u32) -> Arc<str> {
        Arc::clone(&self.read().all[number as usize].name)
    }

    /// All kinds that there are.
    pub(crate) fn present(&self) -> Vec<Entry> {
        self.read().all.iter().filter(|entry| entry.is_there).cloned().collect()
    }

    /// All kinds that there are or were.
    pub(crate) fn all(&self) -> Vec<Entry> {
        self.read().all.clone()
    }
}
