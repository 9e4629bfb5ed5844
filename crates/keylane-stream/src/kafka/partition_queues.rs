//! Queues of single partitions, for a source with several topics.
//!
//! The client reports the end of a partition with its number, without its topic. With one topic the
//! number is enough. With several topics each partition gets a queue of its own, so that the queue
//! names the partition. A queue is split off before the partition is accepted: then nothing of the
//! partition enters the common queue.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaResult;
use rdkafka::message::BorrowedMessage;

use super::context::ClientCallbacks;
use super::topic_partition::TopicPartition;

/// Queues of the partitions that this member has, in the order in which they are polled.
pub(super) struct PartitionQueues {
    queues: VecDeque<NamedQueue>,
    /// Whether partitions get queues of their own.
    is_split: bool,
}

/// Queue of a partition.
pub(super) struct NamedQueue {
    pub(super) name: TopicPartition,
    queue: PartitionQueue<ClientCallbacks>,
}

impl NamedQueue {
    pub(super) fn poll(&self) -> Option<KafkaResult<BorrowedMessage<'_>>> {
        self.queue.poll(Duration::ZERO)
    }
}

impl PartitionQueues {
    pub(super) fn new(is_split: bool) -> Self {
        PartitionQueues { queues: VecDeque::new(), is_split }
    }

    /// Splits off the queues of partitions that are about to be accepted.
    pub(super) fn split(
        &mut self,
        consumer: &Arc<BaseConsumer<ClientCallbacks>>,
        names: &[TopicPartition],
    ) {
        if !self.is_split {
            return;
        }
        // The drop of a queue of an earlier assignment disables the callback, so it comes first.
        let renewed: HashSet<&TopicPartition> = names.iter().collect();
        self.queues.retain(|queue| !renewed.contains(&queue.name));
        for name in names {
            // `None` is out of memory. The records then come by the common queue.
            let Some(mut queue) = consumer.split_partition_queue(&name.topic, name.number) else {
                continue;
            };
            let wakeup = Arc::clone(&consumer.context().wakeup);
            queue.set_nonempty_callback(move || wakeup.notify());
            self.queues.push_back(NamedQueue { name: name.clone(), queue });
        }
    }

    /// Removes the queues of partitions that this member no longer has.
    pub(super) fn retain(&mut self, is_owned: impl Fn(&TopicPartition) -> bool) {
        self.queues.retain(|queue| is_owned(&queue.name));
    }

    /// Lends the queues for one round of polls. Each round begins with another queue, so that a
    /// busy partition does not keep the others from being polled.
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
}
