//! Keys of which nothing begins: the answers.

use std::fmt;
use std::time::Duration;

/// Why nothing of a key begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PauseReason {
    /// Somebody has paused it: see [`Pool::pause_key`](crate::control::Keys::pause).
    Paused {
        /// How long ago, to within about 10 ms.
        since: Duration,
    },
    /// Its tasks have failed too often: see [`OnFailure::StopKey`](crate::OnFailure::StopKey).
    Stopped {
        /// So many in a row.
        failures: u32,
        /// How long ago the last of them did, to within about 10 ms.
        since: Duration,
    },
    /// As many of its tasks have begun as its [rate](crate::Builder::rate_per_key) allows for now.
    RateLimited {
        /// The time until the next of them may begin.
        left: Duration,
    },
}

/// A key of which nothing begins until it is [resumed](crate::control::Keys::resume), or its
/// [rate](crate::Rate) allows it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PausedKey<K> {
    /// The key.
    pub key: K,
    /// Why.
    pub hold: PauseReason,
    /// How many tasks have the key all the same: those that run, or that a worker has just taken, and
    /// rollups that have it and wait for another key. At zero the key is at rest.
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
