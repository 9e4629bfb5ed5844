//! Settings of a service.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use keylane_allocate::JobPolicy;

use super::backups::BackupSchedule;
use super::traces::TraceSettings;
use super::wall_clock::ManualClock;
use super::webhooks::WebhookSettings;
use crate::job_definition::SubmissionLimits;
use crate::tenant::Tenants;

/// Build of the program, as the metric `keylane_build_info` reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildInfo {
    /// Version. Default: that of this crate.
    pub version: String,
    /// Revision of the source; empty if unknown, as by default.
    pub revision: String,
    /// Cargo features of the program, in order; none by default.
    pub features: Vec<String>,
}

impl Default for BuildInfo {
    fn default() -> Self {
        let version = env!("CARGO_PKG_VERSION").into();
        BuildInfo { version, revision: String::new(), features: Vec::new() }
    }
}

impl fmt::Display for BuildInfo {
    /// Writes the labels of the metric.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let escaped =
            |text: &str| text.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n");
        let (version, revision) = (escaped(&self.version), escaped(&self.revision));
        let features = escaped(&self.features.join(","));
        write!(f, r#"{{version="{version}",revision="{revision}",features="{features}"}}"#)
    }
}

/// Settings of a service.
#[derive(Clone, Debug)]
pub struct ServiceSettings {
    /// Path of the store's file. With a store in a database, the name from which those of the node's own files beside it are made.
    pub path: PathBuf,
    /// Maximum number of concurrent subtasks, including those of remote workers. Default: 64.
    pub slots: usize,
    /// Policy that decides which job is served next. Default: the four rules.
    pub order: JobPolicy,
    /// Tenants among which the slots are shared. Default: none but the default tenant is
    /// configured, and all are accepted.
    pub tenants: Tenants,
    /// Limits of submitted jobs.
    pub bounds: SubmissionLimits,
    /// Retention time of finished jobs; unlimited if `None`. Default: a week.
    pub keep: Option<Duration>,
    /// Time after which a slot goes to jobs of a lower priority although those of higher ones wait: so none waits forever.
    /// `None`: a lower priority waits as long as higher ones have work. Default: 30 seconds.
    pub priority_ageing: Option<Duration>,
    /// Retention time of idempotency keys. Default: a day.
    pub keep_idempotency: Duration,
    /// Retention time of entries in the audit log; limited only by `max_audit` if `None`. Default:
    /// 90 days.
    pub keep_audit: Option<Duration>,
    /// Maximum number of entries in the audit log, at least 1; the oldest are removed first.
    /// Default: 100,000, about 40 MB.
    pub max_audit: u64,
    /// Copies of the store that the service makes by itself; none by default.
    pub backups: Option<BackupSchedule>,
    /// Whether the past is kept for charts: a file beside the store with the suffix `-history`, of at most 64 MiB. It has
    /// up to 4 keys of some attempts, cut to 64 bytes, for 24 hours. Default: false.
    pub keeps_history: bool,
    /// Secrets and networks of webhooks. Without them, no job can have a webhook. Default: none.
    pub webhooks: Option<WebhookSettings>,
    /// Collector to which the spans of jobs and attempts are sent. Default: none.
    pub traces: Option<TraceSettings>,
    /// Settings of the store.
    pub store: crate::store::StoreSettings,
    /// Wall clock of the service, for tests. Default: the system clock.
    pub clock: Option<ManualClock>,
    /// Build of the program.
    pub build: BuildInfo,
}

impl ServiceSettings {
    /// Creates default settings with the store at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        const DAY: Duration = Duration::from_secs(24 * 3600);
        ServiceSettings {
            path: path.into(),
            slots: 64,
            order: JobPolicy::Arrival,
            tenants: Tenants::default(),
            bounds: SubmissionLimits::default(),
            keep: Some(7 * DAY),
            priority_ageing: Some(Duration::from_secs(30)),
            keep_idempotency: DAY,
            keep_audit: Some(90 * DAY),
            max_audit: 100_000,
            backups: None,
            keeps_history: false,
            webhooks: None,
            traces: None,
            store: crate::store::StoreSettings::default(),
            clock: None,
            build: BuildInfo::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::BuildInfo;

    #[test]
    fn a_build_is_written_as_labels() {
        let build = BuildInfo {
            version: "1.2.3".into(),
            revision: "a\"b\\c\nd".into(),
            features: vec!["consume".into(), "service".into()],
        };
        let labels = r#"{version="1.2.3",revision="a\"b\\c\nd",features="consume,service"}"#;
        assert_eq!(build.to_string(), labels);
        assert!(BuildInfo::default().to_string().ends_with(r#",revision="",features=""}"#));
    }
}
