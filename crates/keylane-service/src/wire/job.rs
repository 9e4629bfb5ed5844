use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::number::whole;
use super::object::objects;
use super::{Because, Timestamp};

/// A job to be done: `POST /v1/jobs`.
///
/// Its work is one of `subtasks`; `payload`, with `key` or `keys` if it has any, which is one subtask, or
/// what the kind's split step gets. In an NDJSON request the first line is this without `subtasks`, and
/// every further line is a subtask.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmitJob {
    /// What is to be done with it: one of the kinds that the server has.
    pub kind: String,
    /// What people call it. Not unique.
    #[serde(default)]
    pub name: Option<String>,
    /// For finding it again.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Its claim to spare workers beside other jobs; 1 unless said.
    #[serde(default, deserialize_with = "whole")]
    pub weight: Option<u32>,
    /// Its subtasks, in order.
    #[serde(default, deserialize_with = "objects")]
    pub subtasks: Option<Vec<SubmitSubtask>>,
    /// What its only subtask, or the split step, gets: any JSON.
    #[serde(default, deserialize_with = "also_null")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub payload: Option<Box<RawValue>>,
    /// The key of its only subtask.
    #[serde(default)]
    pub key: Option<String>,
    /// Its keys, if it has several.
    #[serde(default)]
    pub keys: Option<Vec<String>>,
    /// Not before this time.
    #[serde(default)]
    pub run_at: Option<Timestamp>,
    /// Not before so long from now.
    #[serde(default, deserialize_with = "whole")]
    pub delay_ms: Option<u64>,
    /// Whether others go on when a subtask has failed for good; the kind's choice unless said.
    #[serde(default)]
    pub on_error: Option<OnErrorChoice>,
    /// What becomes of a key when one of its subtasks has failed for good; the kind's choice unless said.
    #[serde(default)]
    pub on_fail: Option<OnFailChoice>,
    /// How often each subtask is tried; the kind's number unless said.
    #[serde(default, deserialize_with = "whole")]
    pub attempts: Option<u32>,
    /// How long an attempt may take; the kind's bound unless said.
    #[serde(default, deserialize_with = "whole")]
    pub timeout_ms: Option<u64>,
    /// Whether the kind's fan-in step runs over the results at the end, if it has one. Yes unless said.
    #[serde(default)]
    pub fan_in: Option<bool>,
}

/// A null that is there is a value, and not nothing.
fn also_null<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

/// A subtask to be done.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmitSubtask {
    /// It is done after all earlier ones with this key, of this and other jobs.
    #[serde(default)]
    pub key: Option<String>,
    /// The same with several keys: after all earlier ones with any of them.
    #[serde(default)]
    pub keys: Option<Vec<String>>,
    /// What its handler gets: any JSON, null unless given.
    #[serde(default)]
    #[schema(value_type = Option<serde_json::Value>)]
    pub payload: Option<Box<RawValue>>,
}

/// Whether others go on when a subtask has failed for good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnErrorChoice {
    /// All others are done; the job has then failed.
    #[default]
    FinishAll,
    /// Those that have not begun are cancelled.
    FailFast,
}

/// What becomes of a key when one of its subtasks has failed for good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnFailChoice {
    /// The next one of the key goes on.
    #[default]
    Continue,
    /// The key stands still until somebody retries or skips its head.
    StopKey,
}

/// How a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Its time has not come.
    Scheduled,
    /// Nothing of it has begun.
    Queued,
    /// Something of it has begun.
    Running,
    /// Nothing of it begins until it is resumed.
    Paused,
    /// It was cancelled, and what runs has not ended.
    Cancelling,
    /// All subtasks have succeeded.
    Succeeded,
    /// All have ended, and not all well.
    Failed,
    /// It was cancelled.
    Cancelled,
}

impl JobState {
    /// Whether nothing about it changes any more.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, JobState::Succeeded | JobState::Failed | JobState::Cancelled)
    }

    /// All of them.
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

    /// As it is on the wire.
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

/// How many of a job's subtasks are where. What has ended is counted when that is on the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Counts {
    /// All of them; those that a split step has yet to make are not known.
    pub total: u64,
    /// They wait for a key, for a time, or because somebody holds them.
    pub waiting: u64,
    /// They could begin, if there were a slot.
    pub ready: u64,
    /// They run.
    pub running: u64,
    /// They wait for their next attempt.
    pub backing_off: u64,
    /// They have succeeded.
    pub succeeded: u64,
    /// They have failed for good.
    pub failed: u64,
    /// They were cancelled, or skipped.
    pub cancelled: u64,
}

impl Counts {
    /// How many have ended.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.succeeded + self.failed + self.cancelled
    }
}

/// A job.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Job {
    /// What it is called: `job_` and 32 hexadecimal digits.
    pub id: String,
    /// What its client calls it, if that is how it was submitted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub client_id: Option<String>,
    /// What is done with it.
    pub kind: String,
    /// What people call it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// For finding it again.
    pub labels: BTreeMap<String, String>,
    /// How it is.
    pub state: JobState,
    /// Its claim to spare workers.
    pub weight: u32,
    /// Where its subtasks are.
    pub counts: Counts,
    /// The part of it that has ended, from 0 to 1. A job without subtasks is done.
    pub progress: f64,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When its first subtask began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When its last one ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// Not before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_at: Option<Timestamp>,
    /// How long it will take from now, if it goes on as it went. Unknown while nothing has ended, and while something of it
    /// waits for an operator, a worker or room on the disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eta_ms: Option<u64>,
    /// Where it is in its client's trace: what `traceparent` of its submission said (W3C Trace Context).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub traceparent: Option<String>,
    /// What tracing systems have added to that, in `tracestate`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tracestate: Option<String>,
    /// Why its subtasks that could be done are not: the most frequent reason first.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub waiting_because: Vec<Because>,
    /// What its fan-in step made of the results.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(value_type = Option<serde_json::Value>)]
    pub result: Option<Box<RawValue>>,
    /// Why it failed: the error of the subtask that failed first.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
    /// It grows with each change of the job: what `ETag` says.
    pub version: u64,
}

/// What of a job can be changed: `PATCH /v1/jobs/{id}`.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobPatch {
    /// Its claim to spare workers.
    #[serde(default, deserialize_with = "whole")]
    pub weight: Option<u32>,
    /// All its labels.
    #[serde(default)]
    pub labels: Option<BTreeMap<String, String>>,
    /// What people call it.
    #[serde(default)]
    pub name: Option<String>,
}

/// How a job is cancelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CancelMode {
    /// What runs may end.
    #[default]
    Graceful,
    /// What runs is ended.
    Kill,
}

/// `POST /v1/jobs/{id}/cancel`.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelRequest {
    /// How.
    #[serde(default)]
    pub mode: CancelMode,
    /// Why, for those who look at it later.
    #[serde(default)]
    pub reason: Option<String>,
}

/// Which subtasks are done again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RetryOnly {
    /// Those that failed.
    #[default]
    Failed,
    /// Those that failed and those that were cancelled.
    Unsuccessful,
}

/// `POST /v1/jobs/{id}/retry`.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RetryRequest {
    /// Which.
    #[serde(default)]
    pub only: RetryOnly,
}
