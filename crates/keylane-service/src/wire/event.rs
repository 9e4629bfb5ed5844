use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Job, Summary, Timeline, Timestamp};

/// What an event is about: the `event:` line of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A job was accepted.
    JobAccepted,
    /// A job has changed: more is done, or it was paused, resumed, cancelled, retried.
    JobChanged,
    /// A job is over.
    JobEnded,
    /// A job and all about it was removed.
    JobPurged,
    /// A subtask has failed for good.
    SubtaskFailed,
    /// Somebody has paused, resumed, retried or skipped at a key, or it has stopped.
    KeyChanged,
    /// A schedule has made a job.
    ScheduleFired,
    /// A time of a schedule has passed without a job; `error` says why.
    SchedulePassed,
    /// Somebody has set, paused, resumed or removed a schedule.
    ScheduleChanged,
    /// The server in numbers, once a second; for those who asked for it.
    Summary,
    /// What ran meanwhile; for those who asked for it.
    Timeline,
    /// What came before is no longer known: ask for everything again.
    Reset,
}

impl EventKind {
    /// As it is on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            EventKind::JobAccepted => "job_accepted",
            EventKind::JobChanged => "job_changed",
            EventKind::JobEnded => "job_ended",
            EventKind::JobPurged => "job_purged",
            EventKind::SubtaskFailed => "subtask_failed",
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

/// Something that happened: the `data:` of `GET /v1/events` and `GET /v1/jobs/{id}/events`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Its place among all events: what `Last-Event-ID` says.
    pub id: String,
    /// What it is about.
    pub event: EventKind,
    /// When.
    pub at: Timestamp,
    /// The job.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub job: Option<Box<Job>>,
    /// The subtask's number in it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub number: Option<u32>,
    /// The key.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub key: Option<String>,
    /// The schedule.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub schedule: Option<String>,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
    /// The server in numbers.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub summary: Option<Box<Summary>>,
    /// What ran meanwhile.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub timeline: Option<Box<Timeline>>,
}
