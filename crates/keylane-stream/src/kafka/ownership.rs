//! Decides whether this member has all partitions of its topics, which a consumer with an order over all
//! partitions needs.

use super::metadata_thread::MetadataRequest;
use super::source::KafkaSource;
use super::topic_partition::TopicPartition;
use super::topic_partitions::TopicPartitions;
use crate::source::PartitionOwnership;

/// Number of missing partitions that a message names.
const MAX_NAMED: usize = 5;

impl KafkaSource {
    /// Returns the names of the subscribed topics. Of a pattern these are the topics with an assigned
    /// partition: the group assigns the others to members as well.
    fn subscribed(&self) -> Vec<String> {
        let named = self.topics.iter().filter(|topic| !topic.starts_with('^')).cloned();
        let assigned = self.owned.keys().map(|name| name.topic.clone());
        let mut all: Vec<_> = named.chain(assigned).collect();
        all.sort();
        all.dedup();
        all
    }

    /// Returns whether the group has assigned all partitions to this member. Asks the brokers for them
    /// first, so that the number of partitions is that of now.
    pub(super) fn all_partitions(&mut self) -> PartitionOwnership {
        if !self.revoked.is_empty() {
            return PartitionOwnership::Some("the group takes partitions back".to_owned());
        }
        let all = match &self.topic_partitions {
            TopicPartitions::Known(all) => all,
            TopicPartitions::Requested => return PartitionOwnership::Unknown,
            TopicPartitions::NotRequested => {
                self.topic_partitions = TopicPartitions::Requested;
                self.ask(MetadataRequest::Partitions(self.subscribed()));
                return PartitionOwnership::Unknown;
            }
        };
        let is_coming = |name: &TopicPartition| {
            self.pending_assignments.iter().any(|pending| pending.names.contains(name))
        };
        let missing = all.iter().filter(|name| !self.owned.contains_key(name));
        let missing: Vec<_> = missing.filter(|name| !is_coming(name)).collect();
        if missing.is_empty() && !self.pending_assignments.is_empty() {
            return PartitionOwnership::Unknown;
        }
        let names = missing.iter().take(MAX_NAMED).map(|name| name.partition().to_string());
        let names = names.collect::<Vec<_>>().join(", ");
        let more = missing.len().saturating_sub(MAX_NAMED);
        let is_all = missing.is_empty();
        self.topic_partitions = TopicPartitions::NotRequested;
        match more {
            _ if is_all => PartitionOwnership::All,
            0 => PartitionOwnership::Some(format!("another member of the group has {names}")),
            more => PartitionOwnership::Some(format!(
                "other members of the group have {names} and {more} more"
            )),
        }
    }
}
