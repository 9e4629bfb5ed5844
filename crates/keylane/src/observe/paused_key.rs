//! Paused and limited keys, and the reason why none of their tasks starts.

use std::fmt;
use std::time::Duration;

/// Reason why no task of a key starts.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum PauseReason {
    /// Paused by [`Pool::pause_key`](crate::control::Keys::pause).
    Paused {
        /// Time since the pause, to within about 10 ms.
        since: Duration,
    },
    /// Stopped after failures: see [`OnFailure::StopKey`](crate::OnFailure::StopKey).
    Stopped {
        /// Number of consecutive failures.
        failures: u32,
        /// Time since the last failure, to within about 10 ms.
        since: Duration,
    },
    /// Limited by its [rate](crate::Builder::rate_per_key), which is used up for now.
    RateLimited {
        /// Time until the next task may start.
        left: Duration,
    },
}

/// Key whose tasks do not start until it is [resumed](crate::control::Keys::resume), or its
/// [rate](crate::Rate) permits it.
#[derive(Debug)]
#[non_exhaustive]
pub struct PausedKey<K> {
    /// The key.
    pub key: K,
    /// Reason for the pause.
    pub hold: PauseReason,
    /// Number of tasks that hold the key all the same: running ones, those that a worker has just
    /// taken, and rollups that hold it and wait for another key. The key is at rest when this is 0.
    pub running: usize,
}

impl fmt::Display for PauseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PauseReason::Paused { since } => write!(f, "has been paused for {since:?}"),
            PauseReason::Stopped { failures, since } => {
                write!(f, "was stopped {since:?} ago after {failures} failures")
            }
            PauseReason::RateLimited { left } => {
                write!(f, "is limited by its rate for another {left:?}")
            }
        }
    }
}
