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

/// How long one request waits for its reply, before it is received again.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// What a broker is received.
#[derive(Debug)]
pub(super) enum MetadataRequest {
    /// What a group has committed for partitions, and which topics they are of.
    Committed(Vec<TopicPartition>),
    /// Where partitions begin and close, and which topics they are of.
    Bounds(Vec<TopicPartition>),
    /// Which ids topics have now.
    Ids(Vec<String>),
}

/// What it replies, or why it does not.
#[derive(Debug)]
pub(super) enum MetadataReply {
    Committed(Vec<TopicPartition>, KafkaResult<Vec<CommittedOffset>>),
    Bounds(Vec<TopicPartition>, KafkaResult<Vec<OffsetBounds>>),
    Ids(KafkaResult<HashMap<String, TopicId>>),
}

/// What a group has committed for a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CommittedOffset {
    pub(super) name: TopicPartition,
    pub(super) id: Option<TopicId>,
    /// None if it has not committed anything.
    pub(super) at: Option<i64>,
    /// What stands beside it.
    pub(super) metadata: String,
    /// The leader epoch of the record before it.
    pub(super) epoch: Option<u32>,
}

/// Where a partition begins and ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OffsetBounds {
    pub(super) name: TopicPartition,
    pub(super) id: Option<TopicId>,
    pub(super) first: i64,
    /// One past the last.
    pub(super) end: i64,
}

/// The thread that asks the broker what takes time to be answered, so that the one that polls need not
/// wait for it.
#[derive(Debug)]
pub(super) struct MetadataThread {
    /// Dropped, it ends the thread.
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
        // A thread that is gone has panicked, and `take` says so.
        let _ = self.requests.send(request);
    }

    /// An reply that has come. The context's wakeup is rung for each.
    ///
    /// # Panics
    /// If the thread has.
    pub(super) fn take(&self) -> Option<MetadataReply> {
        match self.replies.try_recv() {
            Ok(reply) => Some(reply),
            Err(mpsc::TryRecvError::Empty) => None,
            Err(mpsc::TryRecvError::Disconnected) => panic!("the thread that asks the broker died"),
        }
    }

    /// Lets it close after the request that it is at, for which it is not waited unless it has ended.
    pub(super) fn close(self) {
        drop(self.requests);
        if self.thread.is_finished() {
            // A panic of its own is no concern of who leaves.
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
    // Made again in between, a topic would have the id of one and the bounds of the other.
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

/// The ids of those topics that have one: neither those that are gone, nor any of a broker that is too
/// old for ids.
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
