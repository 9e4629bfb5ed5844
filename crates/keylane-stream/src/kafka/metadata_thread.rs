//! Thread for slow requests to the broker, so that the polling thread does not wait for them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::topic_partition_list::Offset;
use rdkafka::types::RDKafkaErrorCode;

use super::context::Context;
use super::ffi::{self, TopicId};
use super::topic_partition::{TopicPartition, list};

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
}

/// Reply to a request, or its error.
#[derive(Debug)]
pub(super) enum MetadataReply {
    Committed(Vec<TopicPartition>, KafkaResult<Vec<CommittedOffset>>),
    Bounds(Vec<TopicPartition>, KafkaResult<Vec<OffsetBounds>>),
    Ids(KafkaResult<HashMap<String, TopicId>>),
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

/// Handle of the thread.
#[derive(Debug)]
pub(super) struct MetadataThread {
    /// Dropping it ends the thread.
    requests: Sender<MetadataRequest>,
    replies: Receiver<MetadataReply>,
    thread: JoinHandle<()>,
}

impl MetadataThread {
    pub(super) fn new(consumer: Arc<BaseConsumer<Context>>) -> Self {
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
    consumer: &BaseConsumer<Context>,
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
                MetadataReply::Bounds(names, reply)
            }
            MetadataRequest::Ids(topics) => MetadataReply::Ids(ids(consumer, topics)),
        };
        if replies.send(reply).is_err() {
            return;
        }
        consumer.context().wakeup.notify();
    }
}

pub(super) fn committed(
    consumer: &BaseConsumer<Context>,
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
    consumer: &BaseConsumer<Context>,
    names: &[TopicPartition],
) -> KafkaResult<Vec<OffsetBounds>> {
    let ids = ids_of(consumer, names)?;
    let bounds = names.iter().map(|name| {
        let (first, end) = consumer.fetch_watermarks(&name.topic, name.number, REQUEST_TIMEOUT)?;
        Ok(OffsetBounds { name: name.clone(), id: ids.get(&name.topic).copied(), first, end })
    });
    let bounds = bounds.collect::<KafkaResult<_>>()?;
    // If the topic was recreated in between, its id and its offsets would not match.
    if ids_of(consumer, names)? != ids {
        return Err(KafkaError::MetadataFetch(RDKafkaErrorCode::UnknownTopicId));
    }
    Ok(bounds)
}

fn ids_of(
    consumer: &BaseConsumer<Context>,
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
    consumer: &BaseConsumer<Context>,
    topics: Vec<String>,
) -> KafkaResult<HashMap<String, TopicId>> {
    if topics.is_empty() {
        return Ok(HashMap::new());
    }
    let broker = consumer.fetch_metadata(Some(&topics[0]), REQUEST_TIMEOUT)?.orig_broker_id();
    let names: Vec<&str> = topics.iter().map(String::as_str).collect();
    match ffi::describe(consumer.client(), broker, &names, REQUEST_TIMEOUT) {
        Ok(described) => Ok(described
            .into_iter()
            .filter_map(|described| Some((described.topic, described.id.ok()??)))
            .collect()),
        Err(RDKafkaErrorCode::UnsupportedFeature) => Ok(HashMap::new()),
        Err(code) => Err(KafkaError::MetadataFetch(code)),
    }
}
