//! Jobs: as submitted, and as shown.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::number::{required_whole, whole};
use super::object::objects;
use super::{Because, KeyChain, Timestamp};
use crate::KeyClaim;

/// Job to submit: `POST /v1/jobs`.
///
/// Its work is either `subtasks`, or a `payload`, with an optional `key` or `keys`, and optional
/// `shared_keys`. A payload is the input of the only subtask, or of the kind's split step. In an NDJSON request the first line
/// is this object without `subtasks`, and every further line is a subtask.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmitJob {
    /// Name of one of the server's kinds.
    pub kind: String,
    /// Name for humans. Not unique.
    #[serde(default)]
    pub name: Option<String>,
    /// Labels by which the job can be found.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Weight of the job's claim to spare workers; default 1.
    #[serde(default, deserialize_with = "whole")]
    pub weight: Option<u32>,
    /// Priority among the jobs of its tenant; default `normal`.
    #[serde(default)]
    pub priority: Option<JobPriority>,
    /// Tenant of the job; default: that of the token, or `default`.
    #[serde(default)]
    pub tenant: Option<String>,
    /// Subtasks, in order.
    #[serde(default, deserialize_with = "objects")]
    pub subtasks: Option<Vec<SubmitSubtask>>,
    /// Input of the only subtask or of the split step: any JSON.
    #[serde(default, deserialize_with = "also_null")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub payload: Option<Box<RawValue>>,
    /// Key of the only subtask.
    #[serde(default)]
    pub key: Option<String>,
    /// Keys of the only subtask, if it has several.
    #[serde(default)]
    pub keys: Option<Vec<String>>,
    /// Keys that the only subtask shares with others.
    #[serde(default)]
    pub shared_keys: Option<Vec<String>>,
    /// Whether the only subtask replaces the latest one of its key, as `latest` of a subtask; default
    /// false.
    #[serde(default)]
    pub latest: bool,
    /// Earliest start time.
    #[serde(default)]
    pub run_at: Option<Timestamp>,
    /// Minimum delay before the start, in milliseconds.
    #[serde(default, deserialize_with = "whole")]
    pub delay_ms: Option<u64>,
    /// Time from which no subtask of the job starts. Those that have not started by then are cancelled, and
    /// running ones may finish.
    #[serde(default)]
    pub expires_at: Option<Timestamp>,
    /// The same as a time after the submission, in milliseconds.
    #[serde(default, deserialize_with = "whole")]
    pub expires_ms: Option<u64>,
    /// Time for which an equal job is not accepted again, in milliseconds: one with the same kind, tenant, keys and
    /// payloads. The response to such a request is the first job.
    #[serde(default, deserialize_with = "whole")]
    pub unique_ms: Option<u64>,
    /// Jobs that must end before this one enters the order: their ids, or the ids that clients gave them; at most 64.
    #[serde(default)]
    pub after: Option<Vec<String>>,
    /// The end that the jobs in `after` must have; default: `success`.
    #[serde(default)]
    pub after_on: Option<AfterCondition>,
    /// Address to which the end of the job is sent, `http://` or `https://`; default: the kind's setting.
    #[serde(default)]
    pub webhook: Option<String>,
    /// Whether other subtasks go on after a subtask has failed on its last attempt; default: the
    /// kind's setting.
    #[serde(default)]
    pub on_error: Option<OnError>,
    /// Effect of a subtask's last failed attempt on its keys; default: the kind's setting.
    #[serde(default)]
    pub on_fail: Option<OnFail>,
    /// Maximum number of attempts per subtask; default: the kind's setting.
    #[serde(default, deserialize_with = "whole")]
    pub attempts: Option<u32>,
    /// Number of subtasks that may run with a `key` at the same time, without an order among them;
    /// default: the kind's setting.
    #[serde(default, deserialize_with = "whole")]
    pub max_per_key: Option<u32>,
    /// Timeout of an attempt, in milliseconds; default: the kind's setting.
    #[serde(default, deserialize_with = "whole")]
    pub timeout_ms: Option<u64>,
    /// Whether the kind's fan-in step, if there is one, runs over the results; default true.
    #[serde(default)]
    pub fan_in: Option<bool>,
}

/// Deserializes a present `null` as a value.
fn also_null<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

/// Subtask to submit.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmitSubtask {
    /// Key: the subtask runs after all earlier ones with this key, of this and other jobs.
    #[serde(default)]
    pub key: Option<String>,
    /// Several keys: the subtask runs after all earlier ones with any of them.
    #[serde(default)]
    pub keys: Option<Vec<String>>,
    /// Keys that the subtask only uses: it runs beside others that share them, but after all
    /// earlier ones that have them as `key` or `keys`, and before all later ones.
    #[serde(default)]
    pub shared_keys: Option<Vec<String>>,
    /// Whether it is a barrier: it runs after all earlier subtasks of its job, and before all later
    /// ones; default false.
    #[serde(default)]
    pub barrier: bool,
    /// Whether it replaces the last subtask of its key that has `latest`, too, if that has not
    /// started: the replaced one ends as `superseded`. It needs exactly one key, and neither shared
    /// keys nor a barrier; default false.
    #[serde(default)]
    pub latest: bool,
    /// Input of the handler: any JSON; default null.
    #[serde(default)]
    #[schema(value_type = Option<serde_json::Value>)]
    pub payload: Option<Box<RawValue>>,
}

impl SubmitSubtask {
    /// Returns the uses of its keys, the exclusive ones first.
    pub(crate) fn claims(&self) -> impl Iterator<Item = KeyClaim<'_>> {
        let exclusive = self.keys.iter().flatten().chain(&self.key);
        let exclusive = exclusive.map(|key| KeyClaim::exclusive(key.as_bytes()));
        let shared = self.shared_keys.iter().flatten();
        let shared = shared.map(|key| KeyClaim::shared(key.as_bytes()));
        let barrier = self.barrier.then_some(KeyClaim::BARRIER);
        let latest = self.latest.then_some(KeyClaim::LATEST);
        exclusive.chain(shared).chain(barrier).chain(latest)
    }
}

/// Priority of a job among the jobs of its tenant.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum JobPriority {
    /// Its subtasks start before those of all other jobs.
    High,
    /// The default.
    #[default]
    Normal,
    /// Its subtasks start after those of all other jobs.
    Low,
}

impl JobPriority {
    /// Whether it is the default.
    pub(crate) fn is_default(&self) -> bool {
        *self == JobPriority::default()
    }

    /// Name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            JobPriority::High => "high",
            JobPriority::Normal => "normal",
            JobPriority::Low => "low",
        }
    }
}

/// End that other jobs must have before a job begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AfterCondition {
    /// All of them have succeeded. If one of them ends otherwise, the job is cancelled.
    #[default]
    Success,
    /// All of them have ended, whatever their results are.
    End,
}

impl AfterCondition {
    /// Whether it is the default.
    pub(crate) fn is_default(&self) -> bool {
        *self == AfterCondition::default()
    }
}

/// Effect of a subtask's last failed attempt on the other subtasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// The other subtasks run; the job then fails.
    #[default]
    FinishAll,
    /// Subtasks that have not started are cancelled.
    FailFast,
}

/// Effect of a subtask's last failed attempt on its keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnFail {
    /// The next subtask of the key runs.
    #[default]
    Continue,
    /// The key stops until an operator retries or skips its head.
    StopKey,
}

/// State of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Its start time has not come, or a job of its `after` has not ended.
    Scheduled,
    /// None of its subtasks has started.
    Queued,
    /// At least one of its subtasks has started.
    Running,
    /// None of its subtasks starts until the job is resumed.
    Paused,
    /// It was cancelled, and has running subtasks.
    Cancelling,
    /// All subtasks have succeeded.
    Succeeded,
    /// All subtasks have ended, and at least one failed.
    Failed,
    /// It was cancelled.
    Cancelled,
}

impl JobState {
    /// Whether the state is final.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, JobState::Succeeded | JobState::Failed | JobState::Cancelled)
    }

    /// All states.
    pub const ALL: [JobState; 8] = [
        JobState::Scheduled,
        JobState::Queued,
        JobState::Running,
        JobState::Paused,
        JobState::Cancelling,
        JobState::Succeeded,
        JobState::Failed,
        JobState::Cancelled,
    ];

    /// Name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            JobState::Scheduled => "scheduled",
            JobState::Queued => "queued",
            JobState::Running => "running",
            JobState::Paused => "paused",
            JobState::Cancelling => "cancelling",
            JobState::Succeeded => "succeeded",
            JobState::Failed => "failed",
            JobState::Cancelled => "cancelled",
        }
    }
}

/// Number of a job's subtasks by state. An end counts once it is on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Counts {
    /// Number of all subtasks, without those that a split step has not made yet.
    pub total: u64,
    /// Subtasks that wait for a key or a time, or are stopped or paused.
    pub waiting: u64,
    /// Subtasks that wait for a slot.
    pub ready: u64,
    /// Subtasks that run, or have ended and are not on the disk yet.
    pub running: u64,
    /// Subtasks that wait for their next attempt.
    pub backing_off: u64,
    /// Subtasks that succeeded.
    pub succeeded: u64,
    /// Subtasks that failed on their last attempt.
    pub failed: u64,
    /// Subtasks that were cancelled or skipped.
    pub cancelled: u64,
    /// Subtasks that were replaced by later ones of their keys.
    #[serde(default)]
    pub superseded: u64,
}

impl Counts {
    /// Number of subtasks that have ended.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.succeeded + self.failed + self.cancelled + self.superseded
    }
}

/// Tenant of jobs that name none.
pub(crate) const DEFAULT_TENANT: &str = "default";

/// Tenant of jobs in answers of servers without tenants.
fn default_tenant() -> String {
    DEFAULT_TENANT.into()
}

/// A job.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Job {
    /// Id of the job: `job_` and 32 hexadecimal digits.
    pub id: String,
    /// Id given by the client, if it was submitted with one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub client_id: Option<String>,
    /// Kind of the job.
    pub kind: String,
    /// Name for humans.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Labels by which the job can be found.
    pub labels: BTreeMap<String, String>,
    /// State of the job.
    pub state: JobState,
    /// Weight of its claim to spare workers.
    pub weight: u32,
    /// Priority among the jobs of its tenant.
    #[serde(default)]
    pub priority: JobPriority,
    /// Tenant of the job.
    #[serde(default = "default_tenant")]
    pub tenant: String,
    /// Number of its subtasks that may run with a key at the same time, if they run in no order.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub max_per_key: Option<u16>,
    /// Number of its subtasks by state.
    pub counts: Counts,
    /// Fraction of its subtasks that has ended, from 0 to 1; 1 for a job without subtasks.
    pub progress: f64,
    /// Time of its acceptance.
    pub created_at: Timestamp,
    /// Time of the start of its first subtask.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// Time of the end of its last subtask.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// Earliest start time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_at: Option<Timestamp>,
    /// Time from which no subtask starts.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub expires_at: Option<Timestamp>,
    /// Whether this time came before the end of the job.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub expired: bool,
    /// Jobs that had to end, or have to end, before it enters the order.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub after: Vec<String>,
    /// The end that these jobs must have.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub after_on: Option<AfterCondition>,
    /// Job of `after` that did not succeed, for which this one was cancelled.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub after_failed: Option<String>,
    /// Address to which its end is sent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub webhook: Option<String>,
    /// Estimated time to its end at its present speed, in milliseconds. Absent before the first
    /// subtask has ended, and while subtasks wait for an operator, a worker or disk space.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eta_ms: Option<u64>,
    /// Key with the longest chain of subtasks that run one after another before the job can end; found from a sample. Only in
    /// the answer to a request for the job.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub longest_key: Option<KeyChain>,
    /// Number of workers beyond which more do not end the job earlier, if all subtasks take equally long: its unfinished
    /// subtasks divided by this chain.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub useful_workers: Option<u64>,
    /// `traceparent` of its submission (W3C Trace Context).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub traceparent: Option<String>,
    /// `tracestate` of its submission.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tracestate: Option<String>,
    /// Reasons for which unfinished subtasks do not run, the most frequent first.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub waiting_because: Vec<Because>,
    /// Result of its fan-in step.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(value_type = Option<serde_json::Value>)]
    pub result: Option<Box<RawValue>>,
    /// Error of the first failed subtask.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
    /// Version, which grows with every change of the job, also over restarts and when the system's
    /// clock is set back: its `ETag`.
    pub version: u64,
}

/// Changes to a job: `PATCH /v1/jobs/{id}`.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobPatch {
    /// Weight of the job's claim to spare workers.
    #[serde(default, deserialize_with = "whole")]
    pub weight: Option<u32>,
    /// New labels, which replace all labels.
    #[serde(default)]
    pub labels: Option<BTreeMap<String, String>>,
    /// Name for humans.
    #[serde(default)]
    pub name: Option<String>,
}

/// Mode of a cancellation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CancelMode {
    /// Running attempts may end.
    #[default]
    Graceful,
    /// Running attempts are killed.
    Kill,
}

/// `POST /v1/jobs/{id}/cancel`.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelRequest {
    /// Mode of the cancellation.
    #[serde(default)]
    pub mode: CancelMode,
    /// Reason, for the audit log.
    #[serde(default)]
    pub reason: Option<String>,
}

/// Selection of subtasks to retry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RetryOnly {
    /// Subtasks that failed.
    #[default]
    Failed,
    /// Subtasks that failed or were cancelled.
    Unsuccessful,
}

/// `POST /v1/jobs/{id}/retry`.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RetryRequest {
    /// Selection by result. Default: subtasks that failed.
    #[serde(default)]
    pub only: Option<RetryOnly>,
    /// Chosen subtasks that failed or were cancelled, instead of `only`: 1 to 1,000. The others keep their results.
    #[serde(default, deserialize_with = "objects")]
    #[schema(min_items = 1, max_items = 1000)]
    pub subtasks: Option<Vec<RetrySubtask>>,
}

/// Subtask to retry.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RetrySubtask {
    /// Number of the subtask in its job, from 0.
    #[serde(deserialize_with = "required_whole")]
    pub number: u32,
    /// Payload that replaces the present one, for good: any JSON. A request has at most 100.
    #[serde(default, deserialize_with = "also_null")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub payload: Option<Box<RawValue>>,
}

/// Reasons why a job waits.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Explained {
    /// Reasons, most frequent first.
    pub(crate) because: Vec<Because>,
    /// As in the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) longest_key: Option<KeyChain>,
    /// As in the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) useful_workers: Option<u64>,
}
