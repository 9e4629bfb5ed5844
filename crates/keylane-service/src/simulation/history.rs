//! Events of a simulation, as clients, handlers and workers saw them.

use std::fmt;

use super::work::{JobSpec, RunEnd};

/// Event with its time and process.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Steady time, in milliseconds.
    pub(super) at: u64,
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
}

/// Action of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Cancel { job: usize, kill: bool },
    PauseJob { job: usize },
    ResumeJob { job: usize },
    RetryJob { job: usize },
    PauseKey { key: u8 },
    ResumeKey { key: u8 },
    RetryHead { key: u8 },
    SkipHead { key: u8 },
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
}

#[derive(Clone, Debug)]
#[allow(dead_code, reason = "some fields are only printed")]
pub(super) enum Event {
    /// A client sends a job for the first time.
    Submitting { job: usize, spec: JobSpec },
    /// A client has the answer that the job is accepted.
    Accepted { job: usize, id: String },
    /// A handler or a remote worker begins.
    Started(Run),
    /// A handler ends, or a remote worker stops working and begins to report.
    Ended(Run, RunEnd),
    /// The service has answered the report of a remote worker.
    Reported { fence: u64, status: u16 },
    /// A lease holds at least until this steady time.
    Held { fence: u64, until: u64 },
    /// A remote worker sends nothing more for a lease.
    Vanished { fence: u64 },
    /// An operator sends a command for the first time.
    Commanding { number: u64, command: Command },
    /// An operator has the answer.
    Commanded { number: u64, command: Command, status: u16 },
    /// A client reads a job.
    Read(Seen),
    /// A client reads an accepted job and gets this status code.
    NotFound { job: usize, status: u16 },
    /// A process begins to serve.
    Opened,
    /// The process ends without notice.
    Crashed { is_unanswered: bool },
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
