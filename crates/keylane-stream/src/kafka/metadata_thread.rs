//! Thread for slow requests to the broker, so that the polling thread does not wait for them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::metadata::MetadataBroker;
use rdkafka::topic_partition_list::Offset;
use rdkafka::types::RDKafkaErrorCode;

use super::context::ClientCallbacks;
use super::ffi::{self, TopicId};
use super::topic_partition::{TopicPartition, list};
use super::topic_partitions::partitions_of;

/// Timeout of a request; it is repeated afterwards.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// A request to the broker.
#[derive(Debug)]
pub(super) enum MetadataRequest {
    /// Committed offsets of a group, with topic ids.
    Committed(Vec<TopicPartition>),
    /// First and last offsets, with topic ids.
    Bounds(Vec<TopicPartition>),
    /// Current ids of topics.
    Ids(Vec<String>),
    /// All partitions of topics.
    Partitions(Vec<String>),
}

/// Reply to a request, or its error.
#[derive(Debug)]
pub(super) enum MetadataReply {
    Committed(Vec<TopicPartition>, KafkaResult<Vec<CommittedOffset>>),
    Bounds(PartialBounds),
    Ids(KafkaResult<HashMap<String, TopicId>>),
    Partitions(Vec<String>, KafkaResult<Vec<TopicPartition>>),
}

/// Committed offset of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CommittedOffset {
    pub(super) name: TopicPartition,
    pub(super) id: Option<TopicId>,
    /// `None` without a commit.
    pub(super) at: Option<i64>,
    /// Metadata of the commit.
    pub(super) metadata: String,
    /// Leader epoch of the record before the offset.
    pub(super) epoch: Option<u32>,
}

/// Offset range of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OffsetBounds {
    pub(super) name: TopicPartition,
    pub(super) id: Option<TopicId>,
    pub(super) first: i64,
    /// One past the last record.
    pub(super) end: i64,
}

/// Offset ranges of partitions. One without a leader does not keep the others from an answer.
#[derive(Debug)]
pub(super) struct PartialBounds {
    pub(super) found: Vec<OffsetBounds>,
    /// Partitions without an answer, with the first error.
    pub(super) failed: Option<(Vec<TopicPartition>, KafkaError)>,
}

/// Handle of the thread.
#[derive(Debug)]
pub(super) struct MetadataThread {
    /// Dropping it ends the thread.
    requests: Sender<MetadataRequest>,
    replies: Receiver<MetadataReply>,
    thread: JoinHandle<()>,
}

impl MetadataThread {
    pub(super) fn new(consumer: Arc<BaseConsumer<ClientCallbacks>>) -> Self {
        let (requests, received) = mpsc::channel();
        let (sender, replies) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("keylane-lookup".to_owned())
            .spawn(move || serve(&consumer, &received, &sender))
            .expect("a thread can be started");
        MetadataThread { requests, replies, thread }
    }

    pub(super) fn ask(&self, request: MetadataRequest) {
        // If the thread has panicked, `take` reports it.
        let _ = self.requests.send(request);
    }

    /// Returns a reply, if there is one. The source is notified of each.
    ///
    /// # Panics
    /// If the thread has panicked.
    pub(super) fn take(&self) -> Option<MetadataReply> {
        match self.replies.try_recv() {
            Ok(reply) => Some(reply),
            Err(mpsc::TryRecvError::Empty) => None,
            Err(mpsc::TryRecvError::Disconnected) => panic!("the metadata thread has panicked"),
        }
    }

    /// Ends the thread after its current request, without waiting for it.
    pub(super) fn close(self) {
        drop(self.requests);
        if self.thread.is_finished() {
            // A panic of the thread no longer matters.
            let _ = self.thread.join();
        }
    }
}

fn serve(
    consumer: &BaseConsumer<ClientCallbacks>,
    received: &Receiver<MetadataRequest>,
    replies: &Sender<MetadataReply>,
) {
    for request in received {
        let reply = match request {
            MetadataRequest::Committed(names) => {
                let reply = committed(consumer, &names);
                MetadataReply::Committed(names, reply)
            }
            MetadataRequest::Bounds(names) => {
                let reply = bounds(consumer, &names);
                MetadataReply::Bounds(reply.unwrap_or_else(|error| PartialBounds {
                    found: Vec::new(),
                    failed: Some((names, error)),
                }))
            }
            MetadataRequest::Ids(topics) => MetadataReply::Ids(ids(consumer, topics)),
            MetadataRequest::Partitions(topics) => {
                let reply = partitions_of(consumer, &topics, REQUEST_TIMEOUT);
                MetadataReply::Partitions(topics, reply)
            }
        };
        if replies.send(reply).is_err() {
            return;
        }
        consumer.context().wakeup.notify();
    }
}

pub(super) fn committed(
    consumer: &BaseConsumer<ClientCallbacks>,
    names: &[TopicPartition],
) -> KafkaResult<Vec<CommittedOffset>> {
    let ids = ids_of(consumer, names)?;
    let found = consumer.committed_offsets(list(names), REQUEST_TIMEOUT)?;
    let beside = ffi::metadata(&found).into_iter().zip(ffi::leader_epochs(&found));
    let elements = found.elements().into_iter().zip(beside);
    elements
        .map(|(element, (metadata, epoch))| {
            element.error()?;
            let name =
                TopicPartition { topic: element.topic().to_owned(), number: element.partition() };
            let at = match element.offset() {
                Offset::Offset(at) => Some(at),
                _ => None,
            };
            Ok(CommittedOffset { id: ids.get(&name.topic).copied(), name, at, metadata, epoch })
        })
        .collect()
}

pub(super) fn bounds(
    consumer: &BaseConsumer<ClientCallbacks>,
    names: &[TopicPartition],
) -> KafkaResult<PartialBounds> {
    let ids = ids_of(consumer, names)?;
    let mut bounds = PartialBounds { found: Vec::with_capacity(names.len()), failed: None };
    for name in names {
        match consumer.fetch_watermarks(&name.topic, name.number, REQUEST_TIMEOUT) {
            Ok((first, end)) => {
                let (name, id) = (name.clone(), ids.get(&name.topic).copied());
                bounds.found.push(OffsetBounds { name, id, first, end });
            }
            Err(error) => {
                let (failed, _) = bounds.failed.get_or_insert((Vec::new(), error));
                failed.push(name.clone());
            }
        }
    }
    // If the topic was recreated in between, its id and its offsets would not match.
    if ids_of(consumer, names)? != ids {
        return Err(KafkaError::MetadataFetch(RDKafkaErrorCode::UnknownTopicId));
    }
    Ok(bounds)
}

fn ids_of(
    consumer: &BaseConsumer<ClientCallbacks>,
    names: &[TopicPartition],
) -> KafkaResult<HashMap<String, TopicId>> {
    let mut topics: Vec<String> = names.iter().map(|name| name.topic.clone()).collect();
    topics.sort();
    topics.dedup();
    ids(consumer, topics)
}

/// Returns the ids of topics. Missing topics have none, nor have the topics of a broker that is too
/// old.
fn ids(
    consumer: &BaseConsumer<ClientCallbacks>,
    topics: Vec<String>,
) -> KafkaResult<HashMap<String, TopicId>> {
    if topics.is_empty() {
        return Ok(HashMap::new());
    }
    let metadata = consumer.fetch_metadata(Some(&topics[0]), REQUEST_TIMEOUT)?;
    // The first connection has no broker id until the cluster's list of brokers has arrived. A
    // request for broker -1 would go to the controller, and time out while that is unknown.
    let broker = match metadata.orig_broker_id() {
        -1 => metadata.brokers().first().map_or(-1, MetadataBroker::id),
        broker => broker,
    };
    let names: Vec<&str> = topics.iter().map(String::as_str).collect();
    match ffi::describe(
        consumer.client(),
        broker,
        &names,
        ffi::Operations::Omitted,
        REQUEST_TIMEOUT,
    ) {
        Ok(described) => Ok(described
            .into_iter()
            .filter_map(|described| Some((described.topic, described.id.ok()??)))
            .collect()),
        Err(RDKafkaErrorCode::UnsupportedFeature) => Ok(HashMap::new()),
        Err(code) => Err(KafkaError::MetadataFetch(code)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use rdkafka::mocking::MockCluster;

    use super::*;
    use crate::kafka::ClientSettings;

    #[test]
    fn a_partition_without_an_answer_does_not_keep_others_from_theirs() {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic("orders", 1, 1).unwrap();
        let client = ClientSettings::new(cluster.bootstrap_servers());
        let config = client.config(&[], &[("group.id", "billing")]).unwrap();
        let consumer: BaseConsumer<ClientCallbacks> =
            config.create_with_context(ClientCallbacks::default()).unwrap();
        let name = |number| TopicPartition { topic: "orders".to_owned(), number };
        let ended = AtomicBool::new(false);
        let bounds = thread::scope(|scope| {
            // As the source's thread does meanwhile.
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    drop(consumer.poll(Duration::from_millis(10)));
                }
            });
            let bounds = bounds(&consumer, &[name(7), name(0)]);
            ended.store(true, Ordering::Relaxed);
            bounds.unwrap()
        });
        let found: Vec<_> = bounds.found.iter().map(|bounds| bounds.name.clone()).collect();
        assert_eq!(found, [name(0)]);
        assert_eq!(bounds.failed.unwrap().0, [name(7)]);
    }
}
