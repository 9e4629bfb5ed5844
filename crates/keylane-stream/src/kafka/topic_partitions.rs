//! All partitions of the subscribed topics, as the brokers know them.

use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaResult;

use super::context::ClientCallbacks;
use super::topic_partition::TopicPartition;

/// Partitions of the subscribed topics, as far as they are known.
#[derive(Debug, Default)]
pub(super) enum TopicPartitions {
    /// Nothing was requested since the last answer.
    #[default]
    NotRequested,
    Requested,
    Known(Vec<TopicPartition>),
}

/// Returns the partitions of topics. A topic that does not exist has none.
pub(super) fn partitions_of(
    consumer: &BaseConsumer<ClientCallbacks>,
    topics: &[String],
    timeout: Duration,
) -> KafkaResult<Vec<TopicPartition>> {
    let mut all = Vec::new();
    for name in topics {
        let metadata = consumer.fetch_metadata(Some(name), timeout)?;
        for topic in metadata.topics() {
            let numbers = topic.partitions().iter().map(|partition| partition.id());
            let topic = topic.name();
            all.extend(numbers.map(|number| TopicPartition { topic: topic.to_owned(), number }));
        }
    }
    Ok(all)
}
