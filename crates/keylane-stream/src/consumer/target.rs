//! Targets of an operator: a topic, a partition or a key, and what can go wrong with a command for one.

use std::fmt;
use std::time::Duration;

use crate::Partition;

/// Part of a consumer's records that an operator [pauses](super::ConsumerHandle::pause),
/// [resumes](super::ConsumerHandle::resume) or [retries](super::ConsumerHandle::retry).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Target {
    /// All partitions of a topic, a journal or a file, by the name of its
    /// [stream](Partition::stream).
    Topic(String),
    /// A partition.
    Partition(Partition),
    /// All records with this key, in all partitions. It is the key that the consumer orders by; the
    /// record's own key if the consumer orders by partition or not at all. A record with several
    /// keys belongs to each of them.
    Key(Vec<u8>),
}

impl Target {
    /// Returns whether records of a partition can belong to the target.
    #[must_use]
    pub fn concerns(&self, partition: &Partition) -> bool {
        match self {
            Target::Topic(topic) => partition.stream() == topic,
            Target::Partition(own) => own == partition,
            Target::Key(_) => true,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Topic(topic) => write!(f, "topic {topic}"),
            Target::Partition(partition) => write!(f, "partition {partition}"),
            Target::Key(key) => write!(f, "key {}", String::from_utf8_lossy(key).escape_debug()),
        }
    }
}

/// A target that the operator has paused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PausedTarget {
    /// The target.
    pub target: Target,
    /// Time since it was paused.
    pub age: Duration,
}

/// Error of a command of the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The consumer has ended.
    #[error("the consumer has ended; start it again")]
    Ended,
    /// The consumer has not answered in time, because its source blocks. The command may still be
    /// carried out.
    #[error("the consumer does not answer in time; ask for its status before you try again")]
    NoAnswer,
    /// Too many targets are paused.
    #[error(
        "{0} targets are paused already, which is the maximum; resume one, or pause its partition"
    )]
    TooMany(usize),
}
