//! Events of a simulation, as clients, handlers and workers saw them.

use std::fmt;

use serde_json::Value;

use super::work::{JobSpec, RunEnd};

/// Event with its time and process.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Steady time, in milliseconds.
    pub(super) at: u64,
    /// Wall time, in milliseconds since 1970.
    pub(super) wall: u64,
    /// Number of the process, from 0.
    pub(super) process: u32,
    pub(super) event: Event,
}

/// Attempt at a subtask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Number of the job in the simulation.
    pub(super) job: usize,
    /// Number of the subtask.
    pub(super) number: u32,
    pub(super) attempt: u32,
    pub(super) fence: u64,
    pub(super) is_lease: bool,
    /// Number of the command that has replaced its payload, if one has.
    pub(super) edition: Option<u64>,
}

/// Action of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Cancel {
        job: usize,
        kill: bool,
    },
    PauseJob {
        job: usize,
    },
    ResumeJob {
        job: usize,
    },
    RetryJob {
        job: usize,
    },
    /// Retries a subtask of a job, perhaps with a payload that names the command.
    RetrySubtask {
        job: usize,
        number: u32,
        edits: bool,
    },
    PauseKey {
        key: u8,
    },
    ResumeKey {
        key: u8,
    },
    /// Pauses a kind, by its place in [`JobKind::ALL`](super::work::JobKind::ALL).
    PauseKind {
        kind: u8,
    },
    ResumeKind {
        kind: u8,
    },
    /// Changes the number of subtasks of [`JobKind::Rated`](super::work::JobKind::Rated) that may run at once.
    LimitRated {
        at_once: u32,
    },
    RetryHead {
        key: u8,
    },
    SkipHead {
        key: u8,
    },
    SetWeight {
        job: usize,
        weight: u32,
    },
    /// Removes an ended job.
    Remove {
        job: usize,
    },
}

/// Change of a schedule by an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScheduleChange {
    Set { cron: &'static str, skips_overlap: bool, skips_missed: bool },
    Pause,
    Resume,
    Remove,
}

/// Event that a follower of all jobs has received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Followed {
    pub(super) follower: u64,
    /// Number of the process's start, and of the event in it.
    pub(super) id: (u64, u64),
    pub(super) kind: String,
    /// Identifier of its job.
    pub(super) job: Option<String>,
}

/// Answer to a request for a job.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Seen {
    pub(super) job: usize,
    /// Steady time of the request.
    pub(super) asked: u64,
    pub(super) state: String,
    pub(super) version: u64,
    pub(super) total: u64,
    pub(super) succeeded: u64,
    pub(super) failed: u64,
    pub(super) cancelled: u64,
    pub(super) superseded: u64,
    /// Result of the fan-in.
    pub(super) result: Option<Value>,
}

#[derive(Clone, Debug)]
#[allow(dead_code, reason = "some fields are only printed")]
pub(super) enum Event {
    /// A client sends a job for the first time.
    Submitting { job: usize, spec: JobSpec },
    /// A client has the answer that the job is accepted.
    Accepted { job: usize, id: String, run_at: Option<u64>, expires_at: Option<u64> },
    /// A client has the answer that the job is refused, because one of its batch waits for a job that is not there.
    Refused { job: usize, waiting: usize },
    /// A handler or a remote worker begins.
    Started(Run),
    /// The results that a fan-in has got.
    FannedIn { job: usize, results: Value },
    /// A handler ends, or a remote worker stops working and begins to report.
    Ended(Run, RunEnd),
    /// The service has answered the report of a remote worker, which was sent at this steady time.
    Reported { fence: u64, status: u16, sent: u64 },
    /// A lease holds at least until this steady time.
    Held { fence: u64, until: u64 },
    /// A remote worker sends nothing more for a lease.
    Vanished { fence: u64 },
    /// An operator sends a command for the first time.
    Commanding { number: u64, command: Command },
    /// An operator has the answer.
    Commanded { number: u64, command: Command, status: u16 },
    /// An operator begins to change a schedule.
    Scheduling { schedule: u8, change: ScheduleChange },
    /// The change of a schedule is answered.
    Scheduled { schedule: u8, change: ScheduleChange, status: u16 },
    /// Jobs of a schedule: their identifiers and moments; and the number of moments that made one.
    Fired { schedule: u8, jobs: Vec<(String, u64)>, fired: u64 },
    /// A follower begins; `after` is the last event that it has.
    Following { follower: u64, after: Option<(u64, u64)> },
    /// A follower has received an event.
    Followed(Followed),
    /// A client reads a job.
    Read(Seen),
    /// A client reads that a subtask is superseded by another one, of the job with this identifier.
    Superseded { job: usize, number: u32, by: (String, u32) },
    /// A client reads an accepted job and gets this status code.
    NotFound { job: usize, status: u16 },
    /// The receiver of webhooks has got the end of a job, and accepts it or not.
    Delivered { job: usize, id: String, state: String, accepted: bool },
    /// A handler of a schedule's job begins or ends.
    ScheduledRun { schedule: u8, id: String, begins: bool },
    /// A process begins to serve. It keeps ended jobs for so long, in milliseconds.
    Opened { keep: u64 },
    /// A process cannot start.
    NotOpened { why: String },
    /// The process ends without notice.
    Crashed { is_unanswered: bool, loses_power: bool },
    /// The process begins to shut down.
    Stopping,
    /// The process has shut down.
    Stopped { is_closed: bool },
    /// The wall clock is set.
    Set { ms: i64 },
    /// The machine has slept.
    Slept { ms: u64 },
    /// The disk becomes full, or has room again.
    Full(bool),
    /// Nothing fails from here on, and operators resume everything.
    Healed,
    /// The end: damage that the check of the store found.
    Checked { damage: Vec<String> },
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, ms) = (self.at / 1000, self.at % 1000);
        write!(f, "{seconds:5}.{ms:03} [{}] {:?}", self.process, self.event)
    }
}
