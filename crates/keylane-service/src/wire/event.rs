//! Events of the streams, with all their types.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Job, SubtaskRef, Summary, Timeline, Timestamp};

/// Type of an event: the `event:` line of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A job was accepted.
    JobAccepted,
    /// A job has changed: progress was made, or it was paused, resumed, cancelled or retried.
    JobChanged,
    /// A job has ended.
    JobEnded,
    /// A job was removed with all its data.
    JobPurged,
    /// A subtask has failed on its last attempt.
    SubtaskFailed,
    /// A subtask was replaced by a later one of its key, `superseded_by`.
    SubtaskSuperseded,
    /// A key was paused or resumed, its head was retried or skipped, or a failure stopped it.
    KeyChanged,
    /// A schedule has made a job.
    ScheduleFired,
    /// A schedule has made no job at one of its times; `error` has the reason.
    SchedulePassed,
    /// A schedule was set, paused, resumed or removed.
    ScheduleChanged,
    /// State of the server in numbers, once per second; only on request.
    Summary,
    /// Recent runs; only on request.
    Timeline,
    /// Earlier events are lost: the client must reload its state.
    Reset,
}

impl EventKind {
    /// Name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            EventKind::JobAccepted => "job_accepted",
            EventKind::JobChanged => "job_changed",
            EventKind::JobEnded => "job_ended",
            EventKind::JobPurged => "job_purged",
            EventKind::SubtaskFailed => "subtask_failed",
            EventKind::SubtaskSuperseded => "subtask_superseded",
            EventKind::KeyChanged => "key_changed",
            EventKind::ScheduleFired => "schedule_fired",
            EventKind::SchedulePassed => "schedule_passed",
            EventKind::ScheduleChanged => "schedule_changed",
            EventKind::Summary => "summary",
            EventKind::Timeline => "timeline",
            EventKind::Reset => "reset",
        }
    }
}

/// Event: the `data:` of `GET /v1/events` and `GET /v1/jobs/{id}/events`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Position among all events, for `Last-Event-ID`.
    pub id: String,
    /// Type of the event.
    pub event: EventKind,
    /// Time of the event.
    pub at: Timestamp,
    /// The job.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub job: Option<Box<Job>>,
    /// Number of the subtask in the job.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub number: Option<u32>,
    /// Subtask that has replaced it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub superseded_by: Option<SubtaskRef>,
    /// The key.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub key: Option<String>,
    /// The schedule.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub schedule: Option<String>,
    /// Error message.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
    /// State of the server in numbers.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub summary: Option<Box<Summary>>,
    /// Recent runs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub timeline: Option<Box<Timeline>>,
}
