//! End of an attempt: how it ended, when, and whether another run has to repeat it.

use std::process::ExitStatus;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How an attempt has ended.
#[derive(Debug)]
pub(crate) enum RecordEnd {
    /// Its command has ended.
    Exited(ExitStatus),
    /// A worker has answered.
    Answered,
    /// It failed for this reason.
    Failed(String),
}

/// Start and end of an attempt, in microseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttemptTimes {
    pub(crate) start_us: i64,
    pub(crate) end_us: i64,
}

/// Attempt that has ended.
#[derive(Debug)]
pub(crate) struct EndedAttempt {
    pub(crate) end: RecordEnd,
    pub(crate) times: AttemptTimes,
    /// Bytes that its command wrote to standard output.
    pub(crate) received: u64,
    pub(crate) result: Result<(), AttemptFailure>,
    /// The run ended the command, could not start it, or lost its output.
    pub(crate) is_interrupted: bool,
}

/// Why an attempt has failed.
#[derive(Debug, PartialEq)]
pub(crate) struct AttemptFailure {
    pub(crate) why: String,
    /// A further attempt would fail as well.
    pub(crate) is_final: bool,
}

/// Clock of a run. Setting the system's clock does not reorder its times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttemptClock {
    start: Instant,
    /// Time of the start, since 1970.
    since_1970: Duration,
}

impl AttemptClock {
    /// Returns a clock that shows no time before `earliest_us`.
    pub(crate) fn new(earliest_us: i64) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let earliest = Duration::from_micros(u64::try_from(earliest_us).unwrap_or(0));
        AttemptClock { start: Instant::now(), since_1970: now.max(earliest) }
    }

    /// Returns the time in microseconds since 1970.
    pub(crate) fn now_us(&self) -> i64 {
        let since_1970 = self.since_1970 + self.start.elapsed();
        i64::try_from(since_1970.as_micros()).unwrap_or(i64::MAX)
    }
}
