//! Kinds of jobs: handler, retries, timeouts and limits of their subtasks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use keylane::Backoff;

use crate::handle::Handler;
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
    /// Address to which the ends of jobs are sent that name none. Default: none.
    pub webhook: Option<String>,
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
    /// Time for which its finished jobs are kept. Default: that of the service.
    pub keep: KeepJobs,
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
    /// Remote workers, which acquire leases over HTTP; and the servers, if there is a handler.
    Lease {
        /// Duration of a lease without a heartbeat.
        lasts: Duration,
        /// Handler that each server of the store calls, under leases that its [`LeaseRunner`](crate::LeaseRunner) acquires.
        handler: Option<Arc<dyn Handler>>,
    },
}

/// Time for which the finished jobs of a kind are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeepJobs {
    /// As those of kinds without a time of their own: [`ServiceSettings::keep`](crate::ServiceSettings::keep).
    #[default]
    AsService,
    /// For this time after their ends.
    For(Duration),
    /// Until an operator removes them.
    Forever,
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
        Kind::with(KindExecutor::Lease { lasts, handler: None })
    }

    /// Returns a kind that runs at all servers of a store: each leases subtasks, and calls the handler. `lasts` is the duration of a lease without a
    /// heartbeat. A server sends three heartbeats in that time.
    pub fn on_all_servers(lasts: Duration, handler: impl Handler) -> Self {
        Kind::with(KindExecutor::Lease { lasts, handler: Some(Arc::new(handler)) })
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
            webhook: None,
            max_lease: Duration::from_secs(12 * 3600),
            concurrency: None,
            max_per_key: None,
            rate: None,
            rate_per_key: None,
            on_error: OnError::default(),
            on_fail: OnFail::default(),
            keep: KeepJobs::default(),
            log_bytes: 8 * 1024,
        }
    }

    /// Handlers of the steps, and of the subtasks unless only remote workers execute them.
    pub(crate) fn handlers(&self) -> impl Iterator<Item = &Arc<dyn Handler>> {
        let work = match &self.work {
            KindExecutor::Handler(handler) => Some(handler),
            KindExecutor::Lease { handler, .. } => handler.as_ref(),
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
            KindExecutor::Lease { lasts, .. } => {
                f.debug_struct("Lease").field("lasts", lasts).finish_non_exhaustive()
            }
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
