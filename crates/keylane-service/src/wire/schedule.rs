//! Recurring jobs: as set, and as shown.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{SubmitJob, Timestamp};

/// Recurring job: `PUT /v1/schedules/{name}`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetSchedule {
    /// Cron pattern: minute, hour, day of the month, month, day of the week; or `@hourly`,
    /// `@daily`, `@weekly`, `@monthly`, `@yearly`.
    pub cron: String,
    /// Time zone of the pattern: an IANA name such as `Europe/Berlin`; default `UTC`.
    ///
    /// A pattern with one hour and one minute fires once per day: if the clock is put forward over
    /// it, right after that; if it is put back, at the first occurrence. Every other pattern
    /// follows the local clock: skipped times do not fire, and repeated ones fire twice.
    #[serde(default)]
    pub time_zone: Option<String>,
    /// Job that is submitted each time: as for `POST /v1/jobs`, without `run_at`.
    #[schema(value_type = SubmitJob)]
    pub job: Box<RawValue>,
    /// Whether a job is made while the previous one is unfinished.
    #[serde(default)]
    pub overlap: OverlapChoice,
    /// Handling of times at which the server could not make a job.
    #[serde(default)]
    pub missed: MissedChoice,
    /// Whether the schedule is paused; default: unchanged, and false for a new one.
    #[serde(default)]
    pub paused: Option<bool>,
}

/// Whether a job is made while the previous one is unfinished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OverlapChoice {
    /// A job is made.
    #[default]
    Allow,
    /// The time is skipped.
    Skip,
}

/// Handling of times that passed by a minute or more before the server could make their jobs,
/// because it was down or its disk was full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MissedChoice {
    /// One job is made for all of them: that of the last missed time, or of one that is due by
    /// then.
    #[default]
    Once,
    /// They are skipped.
    Skip,
}

/// A schedule.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Schedule {
    /// Name of the schedule.
    pub name: String,
    /// Cron pattern of its times.
    pub cron: String,
    /// Time zone of the pattern.
    pub time_zone: String,
    /// Job that is submitted each time.
    #[schema(value_type = serde_json::Value)]
    pub job: Box<RawValue>,
    /// Whether a job is made while the previous one is unfinished.
    pub overlap: OverlapChoice,
    /// Handling of missed times.
    pub missed: MissedChoice,
    /// Whether the schedule is paused.
    pub paused: bool,
    /// Time of its creation.
    pub created_at: Timestamp,
    /// Time of its last change by an operator.
    pub changed_at: Timestamp,
    /// Its next times; empty while it is paused, or if there are none.
    pub next: Vec<Timestamp>,
    /// Id of its last job, made by schedule or by hand.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_job: Option<String>,
    /// Last time that made a job.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_fired: Option<Timestamp>,
    /// Last time that made no job, with the reason.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_passed: Option<PassedOver>,
    /// Reason for which a due time has not made its job yet. It is retried.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub held_up: Option<String>,
    /// Number of times that made a job.
    pub fired: u64,
    /// Number of times that made no job, except those during a pause.
    pub passed: u64,
    /// Version, which grows with every change.
    pub version: u64,
}

/// Time that made no job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PassedOver {
    /// The time; of several, the last one.
    pub at: Timestamp,
    /// Reason code: `overlap`, `missed`, `refused`; or `changed`, `paused` for a change while the
    /// time was due.
    pub reason: String,
    /// Reason in a sentence.
    pub text: String,
}
