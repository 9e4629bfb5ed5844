//! Lag of a consumer group, by its stored progress.

use std::collections::HashMap;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;

use super::context::ClientCallbacks;
use super::metadata_thread::{self, CommittedOffset};
use super::settings::ClientSettings;
use super::start_offset::identity;
use super::topic_partition::TopicPartition;
use crate::source::SourceError;
use crate::tracker::{OffsetMapError, OffsetMapPolicy, decode};
use crate::{Partition, Position};

/// Timeout for the brokers' answer about topics.
const METADATA_TIMEOUT: Duration = Duration::from_secs(10);

/// Lag of a group in a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionLag {
    /// The partition.
    pub partition: Partition,
    /// First available position.
    pub first: Position,
    /// One past the last record.
    pub end: Position,
    /// Watermark of the last commit: all positions below are complete. `None` without a commit.
    pub committed: Option<Position>,
    /// One past the highest completed position.
    pub highest_done: Option<Position>,
    /// Number of incomplete positions up to the end, including positions without a record.
    pub open: u64,
    /// Error of the map, if it cannot be read: then all positions from the committed one on count
    /// as incomplete.
    pub unreadable: Option<OffsetMapError>,
}

/// Returns the lag of a group in each partition of a topic, by its stored progress. Does not join
/// the group.
///
/// # Errors
/// If a setting is invalid, the topic does not exist, or the brokers do not answer.
pub fn lag(
    client: &ClientSettings,
    group: &str,
    topic: &str,
) -> Result<Vec<PartitionLag>, SourceError> {
    let consumer = consumer(client, group)?;
    let cannot = |error| SourceError::because("the brokers do not answer", error);
    let names = partitions(&consumer, topic)?;
    let committed = metadata_thread::committed(&consumer, &names).map_err(cannot)?;
    let bounds = metadata_thread::bounds(&consumer, &names).map_err(cannot)?;
    if let Some((_, error)) = bounds.failed {
        return Err(cannot(error));
    }
    let mut bounds: HashMap<TopicPartition, (i64, i64)> =
        bounds.found.into_iter().map(|bounds| (bounds.name, (bounds.first, bounds.end))).collect();
    let lags = committed.iter().filter_map(|committed| {
        let bounds = bounds.remove(&committed.name)?;
        Some(of_partition(committed, bounds))
    });
    Ok(lags.collect())
}

/// Returns the names of all topics of a cluster that the client may know of, in order.
///
/// # Errors
/// If a setting is invalid, or the brokers do not answer.
pub fn topic_names(client: &ClientSettings, group: &str) -> Result<Vec<String>, SourceError> {
    let metadata = consumer(client, group)?
        .fetch_metadata(None, METADATA_TIMEOUT)
        .map_err(|error| SourceError::because("cannot fetch the names of the topics", error))?;
    let mut names: Vec<_> = metadata.topics().iter().map(|topic| topic.name().to_owned()).collect();
    names.sort_unstable();
    Ok(names)
}

fn consumer(
    client: &ClientSettings,
    group: &str,
) -> Result<BaseConsumer<ClientCallbacks>, SourceError> {
    let config = client.config(&[], &[("group.id", group), ("enable.auto.commit", "false")])?;
    config
        .create_with_context(ClientCallbacks::default())
        .map_err(|error| SourceError::because("cannot start the Kafka client", error))
}

fn partitions(
    consumer: &BaseConsumer<ClientCallbacks>,
    topic: &str,
) -> Result<Vec<TopicPartition>, SourceError> {
    let failed =
        |error: KafkaError| SourceError::because("cannot fetch the topic's metadata", error);
    let metadata = consumer.fetch_metadata(Some(topic), METADATA_TIMEOUT).map_err(failed)?;
    let found = metadata.topics().first().filter(|topic| topic.error().is_none());
    let found = found.ok_or_else(|| SourceError::new(format!("topic {topic} does not exist")))?;
    let mut numbers: Vec<i32> = found.partitions().iter().map(|partition| partition.id()).collect();
    numbers.sort_unstable();
    Ok(numbers
        .into_iter()
        .map(|number| TopicPartition { topic: topic.to_owned(), number })
        .collect())
}

fn of_partition(committed: &CommittedOffset, (first, end): (i64, i64)) -> PartitionLag {
    let place = |offset| Position::checked(offset).unwrap_or_default();
    let (first, end) = (place(first), place(end));
    let mut lag = PartitionLag {
        partition: committed.name.partition(),
        first,
        end,
        committed: None,
        highest_done: None,
        open: end.get() - first.get().min(end.get()),
        unreadable: None,
    };
    let Some(at) = committed.at.and_then(Position::checked) else { return lag };
    lag.committed = Some(at);
    let from = at.max(first);
    lag.open = end.get().saturating_sub(from.get());
    let stream = identity(&committed.name, committed.id);
    match decode(at, &committed.metadata, &stream, OffsetMapPolicy::default()) {
        Ok(found) => {
            let progress = found.into_progress();
            lag.highest_done = Some(progress.end().max(progress.watermark()));
            let beyond = progress.end().get().saturating_sub(at.get());
            // Of the positions in the map, the watermark and the incomplete ones are open.
            let open_there = progress.incomplete().len() as u64 + u64::from(beyond > 0);
            lag.open = lag.open.saturating_sub(beyond - open_there);
        }
        Err(error) => {
            lag.highest_done = Some(at);
            lag.unreadable = Some(error);
        }
    }
    lag
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tracker::Progress;

    fn committed(at: Option<i64>, metadata: &str) -> CommittedOffset {
        let name = TopicPartition { topic: "orders".to_owned(), number: 1 };
        CommittedOffset { name, id: None, at, metadata: metadata.to_owned(), epoch: None }
    }

    #[test]
    fn positions_completed_in_the_map_are_not_open() {
        let progress =
            Progress::with_map(Position::new(10), Position::new(20), vec![Position::new(15)]);
        let text = progress.encode(&identity(&committed(None, "").name, None));
        let lag = of_partition(&committed(Some(10), &text), (0, 25));
        // 10 and 15, and 20 to 24.
        assert_eq!((lag.open, lag.highest_done), (7, Some(Position::new(20))));
        assert_eq!(lag.unreadable, None);
    }

    #[test]
    fn without_a_map_all_behind_the_commit_is_open() {
        let lag = of_partition(&committed(Some(10), ""), (0, 25));
        assert_eq!((lag.open, lag.highest_done), (15, Some(Position::new(10))));
        let lag = of_partition(&committed(Some(10), "somebody's words"), (0, 25));
        assert_eq!((lag.open, lag.unreadable), (15, Some(OffsetMapError::Foreign)));
        let lag = of_partition(&committed(None, ""), (5, 25));
        assert_eq!((lag.open, lag.committed), (20, None));
        let behind_retention = of_partition(&committed(Some(1), ""), (5, 25));
        assert_eq!(behind_retention.open, 20);
    }
}
