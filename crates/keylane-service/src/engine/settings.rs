//! Settings of a service.

use std::path::PathBuf;
use std::time::Duration;

use keylane_allocate::JobPolicy;

use super::wall_clock::ManualClock;
use crate::head::SubmissionLimits;

/// Settings of a service.
#[derive(Clone, Debug)]
pub struct ServiceSettings {
    /// Path of the store's file.
    pub path: PathBuf,
    /// Maximum number of concurrent subtasks, including those of remote workers. Default: 64.
    pub slots: usize,
    /// Policy that decides which job is served next. Default: the four rules.
    pub order: JobPolicy,
    /// Limits of submitted jobs.
    pub bounds: SubmissionLimits,
    /// Retention time of finished jobs; unlimited if `None`. Default: a week.
    pub keep: Option<Duration>,
    /// Retention time of idempotency keys. Default: a day.
    pub keep_idempotency: Duration,
    /// Retention time of entries in the audit log; limited only by `max_audit` if `None`. Default:
    /// 90 days.
    pub keep_audit: Option<Duration>,
    /// Maximum number of entries in the audit log, at least 1; the oldest are removed first.
    /// Default: 100,000, about 40 MB.
    pub max_audit: u64,
    /// Settings of the store.
    pub store: crate::store::StoreSettings,
    /// Wall clock of the service, for tests. Default: the system clock.
    pub clock: Option<ManualClock>,
}

impl ServiceSettings {
    /// Creates default settings with the store at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        const DAY: Duration = Duration::from_secs(24 * 3600);
        ServiceSettings {
            path: path.into(),
            slots: 64,
            order: JobPolicy::default(),
            bounds: SubmissionLimits::default(),
            keep: Some(7 * DAY),
            keep_idempotency: DAY,
            keep_audit: Some(90 * DAY),
            max_audit: 100_000,
            store: crate::store::StoreSettings::default(),
            clock: None,
        }
    }
}
