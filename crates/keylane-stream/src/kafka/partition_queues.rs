//! Queues of single partitions.
//!
//! Each partition has a queue of its own. So the queue names the partition of a record or an error, and records are read without the
//! client's events, which cost an allocation and several locks each. A queue is split off before the partition is accepted:
//! then nothing of the partition enters the common queue.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use rdkafka::consumer::{BaseConsumer, Consumer as _};

use super::context::ClientCallbacks;
use super::ffi::PartitionQueue;
use super::topic_partition::TopicPartition;
use crate::source::SourceError;

/// Queues of the partitions that this member has, in the order in which they are read.
#[derive(Default)]
pub(super) struct PartitionQueues {
    queues: VecDeque<NamedQueue>,
}

/// Queue of a partition.
pub(super) struct NamedQueue {
    pub(super) name: TopicPartition,
    pub(super) queue: PartitionQueue<ClientCallbacks>,
}

impl PartitionQueues {
    /// Splits off the queues of partitions that are about to be accepted.
    ///
    /// # Errors
    /// If the client has no such queue.
    pub(super) fn split(
        &mut self,
        consumer: &Arc<BaseConsumer<ClientCallbacks>>,
        names: &[TopicPartition],
    ) -> Result<(), SourceError> {
        // The drop of a queue of an earlier assignment removes the callback, so it comes first.
        let renewed: HashSet<&TopicPartition> = names.iter().collect();
        self.queues.retain(|queue| !renewed.contains(&queue.name));
        for name in names {
            let wakeup = Arc::clone(&consumer.context().wakeup);
            let queue = PartitionQueue::split(consumer, name, wakeup).ok_or_else(|| {
                let partition = name.partition();
                SourceError::new(format!("the Kafka client has no queue for {partition}"))
            })?;
            self.queues.push_back(NamedQueue { name: name.clone(), queue });
        }
        Ok(())
    }

    /// Removes the queues of partitions that this member no longer has.
    pub(super) fn retain(&mut self, is_owned: impl Fn(&TopicPartition) -> bool) {
        self.queues.retain(|queue| is_owned(&queue.name));
    }

    /// Lends the queues for one round of reads. Each round begins with another queue, so that a
    /// busy partition does not keep the others from being read.
    pub(super) fn lend(&mut self) -> VecDeque<NamedQueue> {
        let mut queues = std::mem::take(&mut self.queues);
        if !queues.is_empty() {
            queues.rotate_left(1);
        }
        queues
    }

    /// Takes the queues back after [`lend`](Self::lend).
    pub(super) fn put_back(&mut self, queues: VecDeque<NamedQueue>) {
        self.queues = queues;
    }

    /// Returns the number of messages in all queues.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.queues.iter().map(|queue| queue.queue.waiting()).sum()
    }
}
