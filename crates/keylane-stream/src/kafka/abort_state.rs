//! Steps of the recovery from an aborted transaction.

use super::topic_partition::TopicPartition;

/// State of the recovery from an aborted transaction.
#[derive(Debug)]
pub(super) enum AbortState {
    /// No transaction was aborted.
    None,
    /// The partitions were reported as lost; their stored progress is being fetched.
    Restoring(Vec<TopicPartition>),
    /// They were assigned again; the next transaction opens when these events were read.
    Reported,
    /// No transaction will follow.
    Hopeless,
}
