use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{SubmitJob, Timestamp};

/// A job to be done again and again: `PUT /v1/schedules/{name}`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetSchedule {
    /// When: minute, hour, day of the month, month, day of the week; or `@hourly`, `@daily`, `@weekly`, `@monthly`,
    /// `@yearly`.
    pub cron: String,
    /// Whose clock that is: an IANA name such as `Europe/Berlin`; `UTC` unless said.
    ///
    /// A pattern of one hour and one minute comes once a day, also when the clock is put forward over it (then right
    /// after that) or back (then the first time). Any other pattern follows what the clock shows: what it jumps over
    /// is not there, and what it shows twice is there twice.
    #[serde(default)]
    pub time_zone: Option<String>,
    /// What is submitted each time: as for `POST /v1/jobs`, without `run_at`.
    #[schema(value_type = SubmitJob)]
    pub job: Box<RawValue>,
    /// Whether a job is made while the one before is not over.
    #[serde(default)]
    pub overlap: OverlapChoice,
    /// What becomes of times that passed while the server could not make their jobs.
    #[serde(default)]
    pub missed: MissedChoice,
    /// Whether it makes no jobs for now; unless said, as it was, and a new one does.
    #[serde(default)]
    pub paused: Option<bool>,
}

/// Whether a job is made while the one before is not over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OverlapChoice {
    /// It is.
    #[default]
    Allow,
    /// The time is passed over.
    Skip,
}

/// What becomes of times that passed, by a minute or more, before the server could make their jobs: it was down, or
/// its disk was full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MissedChoice {
    /// All of them together have one job: that of the last one, or of one that is due by then.
    #[default]
    Once,
    /// They are passed over.
    Skip,
}

/// A schedule.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Schedule {
    /// What it is called.
    pub name: String,
    /// When its jobs are made,
    pub cron: String,
    /// by whose clock.
    pub time_zone: String,
    /// What is submitted each time.
    #[schema(value_type = serde_json::Value)]
    pub job: Box<RawValue>,
    /// Whether a job is made while the one before is not over.
    pub overlap: OverlapChoice,
    /// What becomes of times that were missed.
    pub missed: MissedChoice,
    /// Whether it makes no jobs for now.
    pub paused: bool,
    /// When it was made.
    pub created_at: Timestamp,
    /// When somebody has changed it last.
    pub changed_at: Timestamp,
    /// Its next times; none while it is paused, or if there are none.
    pub next: Vec<Timestamp>,
    /// Its last job, made by hand or in time.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_job: Option<String>,
    /// The last time that made a job.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_fired: Option<Timestamp>,
    /// The last time that made none, and why.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_passed: Option<PassedOver>,
    /// Why a time that is due has made no job yet. It is tried again.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub held_up: Option<String>,
    /// How many times have made a job.
    pub fired: u64,
    /// How many times have made none: those that nobody wanted, while it was paused, apart.
    pub passed: u64,
    /// Another one after each change.
    pub version: u64,
}

/// A time that made no job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PassedOver {
    /// Which: the last one, of several.
    pub at: Timestamp,
    /// Why, in a word: `overlap`, `missed`, `refused`; or `changed`, `paused`, if that was done while it was due.
    pub reason: String,
    /// The same in words.
    pub text: String,
}
