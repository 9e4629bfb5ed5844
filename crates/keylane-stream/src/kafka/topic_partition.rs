//! Partition names of the Kafka client.

use rdkafka::topic_partition_list::TopicPartitionList;

use crate::source::Partition;

/// A topic's partition, as the client names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct TopicPartition {
    pub(super) topic: String,
    pub(super) number: i32,
}

impl TopicPartition {
    /// Converts to the consumer's name of the partition.
    pub(super) fn partition(&self) -> Partition {
        let number = u32::try_from(self.number).expect("partition numbers are not negative");
        Partition::new(self.topic.as_str(), number)
    }

    pub(super) fn of(partition: &Partition) -> Self {
        let number = i32::try_from(partition.number()).expect("the number came from a broker");
        TopicPartition { topic: partition.stream().to_owned(), number }
    }
}

pub(super) fn partitions_of(list: &TopicPartitionList) -> Vec<TopicPartition> {
    let elements = list.elements().into_iter();
    elements
        .map(|element| TopicPartition {
            topic: element.topic().to_owned(),
            number: element.partition(),
        })
        .collect()
}

pub(super) fn list(names: &[TopicPartition]) -> TopicPartitionList {
    let mut list = TopicPartitionList::with_capacity(names.len());
    for name in names {
        list.add_partition(&name.topic, name.number);
    }
    list
}
