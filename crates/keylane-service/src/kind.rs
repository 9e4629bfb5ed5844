//! Kinds of jobs: what is done with a subtask, how often it is tried, and how many at a time.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
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
            longest: Duration::from_secs(60),
            ..Backoff::default()
        };
        Kind {
            work,
            split: None,
            fan_in: None,
            attempts: 5,
            backoff,
            timeout: None,
            concurrency: None,
            rate: None,
            on_error: OnErrorChoice::default(),
            on_fail: OnFailChoice::default(),
            log_bytes: 8 * 1024,
        }
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
            .field("concurrency", &self.concurrency)
            .field("rate", &self.rate)
            .finish_non_exhaustive()
    }
}

/// The kinds of a service, by name and by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kinds {
    all: Vec<(Arc<str>, Kind)>,
    by_name: HashMap<Arc<str>, u32>,
}

impl Kinds {
    /// Adds one, in place of what had its name before.
    pub(crate) fn add(&mut self, name: &str, kind: Kind) {
        let name: Arc<str> = name.into();
        match self.by_name.get(&name) {
            Some(&number) => self.all[number as usize].1 = kind,
            None => {
                let number = u32::try_from(self.all.len()).expect("nobody names so many kinds");
                self.by_name.insert(Arc::clone(&name), number);
                self.all.push((name, kind));
            }
        }
    }

    pub(crate) fn number(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn get(&self, number: u32) -> &Kind {
        &self.all[number as usize].1
    }

    pub(crate) fn name(&self, number: u32) -> &Arc<str> {
        &self.all[number as usize].0
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Arc<str>, &Kind)> {
        (0..).zip(&self.all).map(|(number, (name, kind))| (number, name, kind))
    }
}
