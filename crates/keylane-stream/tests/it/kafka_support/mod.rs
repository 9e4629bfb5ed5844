//! Shared fixtures of the Kafka tests: writing records, reading commits, and driving a source by
//! hand.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use keylane_stream::kafka::{ClientSettings, KafkaSettings, KafkaSource};
use keylane_stream::source::{
    CommitError, Partition, PartitionAssignment, ProgressCommit, Source, SourceError, SourceEvent,
};
use keylane_stream::tracker::Progress;
use keylane_stream::{DeliveredRecord, Position};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaErrorCode;

/// Maximum wait of a test, longer than any event takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// Waits for a future, without a runtime.
pub(crate) fn wait<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park();
    }
}

pub(crate) fn admin(brokers: &str) -> AdminClient<DefaultClientContext> {
    ClientConfig::new().set("bootstrap.servers", brokers).create().expect("an admin client starts")
}

pub(crate) fn create_topic(brokers: &str, topic: &str, partitions: i32) {
    create_copied_topic(brokers, topic, partitions, 1);
}

/// Creates a topic with `copies` replicas of each partition.
pub(crate) fn create_copied_topic(brokers: &str, topic: &str, partitions: i32, copies: i32) {
    let admin = admin(brokers);
    let new = [NewTopic::new(topic, partitions, TopicReplication::Fixed(copies))];
    // A deleted topic of the name may still exist. If an answer was lost or the broker is slow, the
    // topic may have been created all the same.
    let mut may_be_made = false;
    until("the topic is made", || {
        let made = wait(admin.create_topics(&new, &AdminOptions::new()));
        match made.as_ref().map(|results| &results[0]) {
            Ok(Ok(_)) => return Some(()),
            Ok(Err((_, RDKafkaErrorCode::TopicAlreadyExists))) => {}
            Ok(Err(_)) | Err(_) => may_be_made = true,
        }
        may_be_made.then(|| has_leaders(&admin, topic, partitions)).flatten()
    });
    // Once created, it takes a moment until its leaders are known.
    until("its partitions have leaders", || has_leaders(&admin, topic, partitions));
}

fn has_leaders(
    admin: &AdminClient<DefaultClientContext>,
    topic: &str,
    partitions: i32,
) -> Option<()> {
    let metadata = admin.inner().fetch_metadata(Some(topic), Duration::from_secs(5)).ok()?;
    let topic = metadata.topics().first()?;
    let ready = topic.partitions().iter().filter(|partition| partition.leader() >= 0).count();
    (ready == partitions as usize).then_some(())
}

pub(crate) fn delete_topic(brokers: &str, topic: &str) {
    let results = wait(admin(brokers).delete_topics(&[topic], &AdminOptions::new()));
    results.expect("the broker answers")[0].as_ref().expect("the topic is deleted");
}

/// Removes the records of a partition below an offset, as retention does.
pub(crate) fn delete_records(brokers: &str, topic: &str, partition: i32, below: i64) {
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, partition, Offset::Offset(below)).expect("it is an offset");
    let deleted = wait(admin(brokers).delete_records(&list, &AdminOptions::new()));
    let deleted = deleted.expect("the broker answers");
    deleted.elements()[0].error().expect("the records are deleted");
}

/// Calls `ask` until it returns a value.
///
/// # Panics
/// If it does not within [`PATIENCE`].
pub(crate) fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "it never came about that {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Writes records with keys and payloads to a partition and waits until they are acknowledged.
pub(crate) fn write(brokers: &str, topic: &str, partition: i32, records: &[(&str, &str)]) {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("linger.ms", "0")
        .create()
        .expect("a producer starts");
    for (key, payload) in records {
        let record = BaseRecord::to(topic).partition(partition).key(*key).payload(*payload);
        producer.send(record).map_err(|(error, _)| error).expect("there is room");
    }
    producer.flush(PATIENCE).expect("the broker takes them");
}

/// Writes records numbered from `from` on, each with its number as payload, and its own key.
pub(crate) fn write_numbers(
    brokers: &str,
    topic: &str,
    partition: i32,
    numbers: std::ops::Range<u64>,
) {
    let texts: Vec<String> = numbers.map(|number| number.to_string()).collect();
    let records: Vec<(&str, &str)> = texts.iter().map(|text| (&text[..], &text[..])).collect();
    write(brokers, topic, partition, &records);
}

/// Returns a group's commit for a partition: the offset and its metadata.
pub(crate) fn committed(
    brokers: &str,
    group: &str,
    topic: &str,
    partition: i32,
) -> Option<(i64, String)> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("group.id", group)
        .create()
        .expect("a consumer starts");
    let mut list = TopicPartitionList::new();
    list.add_partition(topic, partition);
    until("the group's offsets are known", || {
        let list = consumer.committed_offsets(list.clone(), Duration::from_secs(5)).ok()?;
        let element = &list.elements()[0];
        element.error().ok()?;
        match element.offset() {
            Offset::Offset(at) => Some(Some((at, element.metadata().to_owned()))),
            _ => Some(None),
        }
    })
}

/// Source that a test drives by hand, with the events so far.
pub(crate) struct Driven {
    pub(crate) source: KafkaSource,
    pub(crate) assigned: BTreeMap<Partition, PartitionAssignment>,
    pub(crate) records: BTreeMap<Partition, Vec<DeliveredRecord>>,
    pub(crate) reached: BTreeMap<Partition, Position>,
    pub(crate) committed: Vec<(Partition, Result<(), CommitError>)>,
    pub(crate) revoked: Vec<Vec<Partition>>,
    pub(crate) lost: Vec<Vec<Partition>>,
    pub(crate) notices: Vec<String>,
    /// Number of skipped positions.
    pub(crate) missed: u64,
    pub(crate) exhausted: BTreeSet<Partition>,
}

impl Driven {
    pub(crate) fn join(brokers: &str, topic: &str, group: &str) -> Self {
        Self::with(settings(brokers, topic, group))
    }

    pub(crate) fn with(settings: KafkaSettings) -> Self {
        Driven {
            source: KafkaSource::join(settings).expect("the settings are right"),
            assigned: BTreeMap::new(),
            records: BTreeMap::new(),
            reached: BTreeMap::new(),
            committed: Vec::new(),
            revoked: Vec::new(),
            lost: Vec::new(),
            notices: Vec::new(),
            missed: 0,
            exhausted: BTreeSet::new(),
        }
    }

    /// Polls once, and records the events.
    pub(crate) fn poll(&mut self) {
        self.try_poll().expect("the source goes on");
    }

    /// Polls once, where the source may end.
    pub(crate) fn try_poll(&mut self) -> Result<(), SourceError> {
        let mut events = Vec::new();
        let polled = self.source.poll(Duration::from_millis(50), 100, &mut events);
        for event in events {
            match event {
                SourceEvent::Assigned(assigned) => {
                    self.records.remove(&assigned.partition);
                    self.reached.remove(&assigned.partition);
                    self.exhausted.remove(&assigned.partition);
                    self.assigned.insert(assigned.partition.clone(), assigned);
                }
                SourceEvent::Exhausted(partition) => {
                    assert!(self.exhausted.insert(partition), "it ends once");
                }
                SourceEvent::Records { partition, records } => {
                    assert!(!self.exhausted.contains(&partition), "{partition} has ended");
                    assert!(self.assigned.contains_key(&partition), "{partition} is not ours");
                    self.records.entry(partition).or_default().extend(records);
                }
                SourceEvent::Reached { partition, position } => {
                    self.reached.insert(partition, position);
                }
                SourceEvent::Committed { partition, result } => {
                    self.committed.push((partition, result))
                }
                SourceEvent::Revoked(partitions) => self.revoked.push(partitions),
                SourceEvent::Lost(partitions) => {
                    partitions.iter().for_each(|partition| drop(self.assigned.remove(partition)));
                    self.lost.push(partitions);
                }
                SourceEvent::Missed { positions, .. } => self.missed += positions,
                SourceEvent::Notice(notice) => self.notices.push(notice),
                event => panic!("no Kafka source reports {event:?}"),
            }
        }
        polled
    }

    /// Polls until the source ends, and returns the reason.
    pub(crate) fn poll_to_the_end(&mut self) -> String {
        until("the source ends", || self.try_poll().err()).to_string()
    }

    pub(crate) fn poll_until<T>(
        &mut self,
        what: &str,
        mut ask: impl FnMut(&mut Self) -> Option<T>,
    ) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(answer) = ask(self) {
                return answer;
            }
            assert!(Instant::now() < deadline, "it never came about that {what}: {}", self.say());
            self.poll();
        }
    }

    /// Polls until `count` records of a partition have arrived.
    pub(crate) fn poll_records(&mut self, partition: &Partition, count: usize) {
        self.poll_until("the records come", |driven| {
            (driven.payloads(partition).len() >= count).then_some(())
        });
    }

    /// Commits progress, and waits for the answer.
    pub(crate) fn commit(
        &mut self,
        partition: &Partition,
        progress: Progress,
    ) -> Result<(), CommitError> {
        self.committed.clear();
        self.source.commit(vec![ProgressCommit { partition: partition.clone(), progress }]);
        self.poll_until("the commit is answered", |driven| driven.committed.pop()).1
    }

    pub(crate) fn release(&mut self, partitions: &[Partition]) {
        self.source.release(partitions);
        partitions.iter().for_each(|partition| drop(self.assigned.remove(partition)));
    }

    /// Releases all revoked partitions.
    pub(crate) fn release_all(&mut self) {
        for partitions in std::mem::take(&mut self.revoked) {
            self.release(&partitions);
        }
    }

    /// Returns the payloads of a partition's records, as numbers.
    pub(crate) fn payloads(&self, partition: &Partition) -> Vec<u64> {
        let records = self.records.get(partition).into_iter().flatten();
        records
            .map(|delivered| {
                let text = std::str::from_utf8(delivered.record.payload()).expect("it is text");
                text.parse().expect("it is a number")
            })
            .collect()
    }

    pub(crate) fn say(&self) -> String {
        let counts: Vec<_> = self.records.iter().map(|(name, some)| (name, some.len())).collect();
        format!(
            "assigned {:?}, records {counts:?}, revoked {:?}, lost {:?}, notices {:?}",
            self.assigned.keys(),
            self.revoked,
            self.lost,
            self.notices
        )
    }
}

/// Returns the settings of a member that soon notices failures, and whose session does not end on a
/// busy machine.
pub(crate) fn settings(brokers: &str, topic: &str, group: &str) -> KafkaSettings {
    let client = ClientSettings::new(brokers)
        .set("session.timeout.ms", "45000")
        .set("heartbeat.interval.ms", "300")
        .set("reconnect.backoff.max.ms", "300")
        .set("topic.metadata.refresh.interval.ms", "500");
    KafkaSettings::new(client, [topic], group)
}

/// Returns the settings of a member that the group removes soon after its last heartbeat.
pub(crate) fn fleeting(brokers: &str, topic: &str, group: &str) -> KafkaSettings {
    let settings = settings(brokers, topic, group);
    let client = settings.client.set("session.timeout.ms", "3000");
    KafkaSettings { client, ..settings }
}

/// Returns the settings of a member in a mock cluster. The mock makes a rejoining member wait for
/// most of a session, so the session is as short as a busy machine permits.
pub(crate) fn mocked(brokers: &str, topic: &str, group: &str) -> KafkaSettings {
    let settings = settings(brokers, topic, group);
    let client = settings.client.set("session.timeout.ms", "10000");
    KafkaSettings { client, ..settings }
}

pub(crate) fn at(number: u64) -> Position {
    Position::new(number)
}

/// Run lengths that version 0.5.3.2 of the parallel consumer writes beside the offset 3: one
/// incomplete, one complete, one incomplete, two complete.
pub(crate) const TAKEN_OVER: &str = "bgABAAEAAQAC";

/// Incomplete positions of [`TAKEN_OVER`] among the first ten.
pub(crate) const TAKEN_OVER_OPEN: [u64; 4] = [3, 5, 8, 9];

/// Commits for a group without members, and returns the broker's answer.
pub(crate) fn try_commit_by_hand(
    brokers: &str,
    group: &str,
    topic: &str,
    partition: i32,
    offset: i64,
    metadata: &str,
) -> Result<(), RDKafkaErrorCode> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("group.id", group)
        .create()
        .expect("a consumer starts");
    let mut list = TopicPartitionList::new();
    let mut element = list.add_partition(topic, partition);
    element.set_offset(Offset::Offset(offset)).expect("it is an offset");
    element.set_metadata(metadata);
    let committed = consumer.commit(&list, CommitMode::Sync);
    committed.map_err(|error| error.rdkafka_error_code().expect("brokers answer with codes"))
}

/// Commits for a group without members, which must succeed.
pub(crate) fn commit_by_hand(
    brokers: &str,
    group: &str,
    topic: &str,
    partition: i32,
    offset: i64,
    metadata: &str,
) {
    try_commit_by_hand(brokers, group, topic, partition, offset, metadata)
        .expect("the broker takes it");
}

/// Returns the end of a partition, past the records of open transactions.
pub(crate) fn end_of(brokers: &str, topic: &str, partition: i32) -> i64 {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("isolation.level", "read_uncommitted")
        .create()
        .expect("a consumer starts");
    let bounds = consumer.fetch_watermarks(topic, partition, PATIENCE);
    bounds.expect("the broker answers").1
}
