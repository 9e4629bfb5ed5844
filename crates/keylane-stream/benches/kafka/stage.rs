//! Broker and topics of the workloads, and the times of a run.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keylane_stream::Record;
use keylane_stream::consumer::{Consumer, ConsumerBuilder, StartError};
use keylane_stream::kafka::{ClientSettings, KafkaSettings, KafkaSink, KafkaSource};
use keylane_testkit::Broker;
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;

use crate::watch::Watch;

/// A broker with the topics of the workloads.
pub(crate) struct Stage {
    pub(crate) brokers: String,
    /// Runs less of everything.
    pub(crate) quick: bool,
    /// Number of groups so far: each run has a new one.
    groups: Cell<u64>,
}

/// Times of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Took {
    /// From the start of the first handler, or the first record of a bare loop, to the end of the
    /// last.
    pub(crate) work: Duration,
    /// From the start of the client, including the join of the group.
    pub(crate) all: Duration,
    /// Lower bound from the measured durations of the handlers, as sleeps are longer than
    /// requested.
    pub(crate) least: Duration,
}

impl Stage {
    pub(crate) fn new(broker: &Broker, quick: bool) -> Self {
        Stage { brokers: broker.address(), quick, groups: Cell::new(0) }
    }

    /// Returns `quick` if less is wanted, and `usual` otherwise.
    pub(crate) fn or_quick<T>(&self, usual: T, quick: T) -> T {
        if self.quick { quick } else { usual }
    }

    pub(crate) fn new_group(&self) -> String {
        self.groups.set(self.groups.get() + 1);
        format!("group-{}", self.groups.get())
    }

    pub(crate) fn create(&self, topic: &str, partitions: i32) {
        let admin: AdminClient<DefaultClientContext> =
            ClientConfig::new().set("bootstrap.servers", &self.brokers).create().unwrap();
        let new = [NewTopic::new(topic, partitions, TopicReplication::Fixed(1))];
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let made = runtime.block_on(admin.create_topics(&new, &AdminOptions::new())).unwrap();
        assert!(made.iter().all(Result::is_ok), "{made:?}");
    }

    /// Creates a topic and fills it with records of these keys, with their numbers as payload.
    pub(crate) fn fill(&self, topic: &str, partitions: i32, keys: impl Iterator<Item = u64>) {
        self.create(topic, partitions);
        let sink = KafkaSink::new(&ClientSettings::new(&*self.brokers)).unwrap();
        let records: Vec<_> = (0..)
            .zip(keys)
            .map(|(number, key): (u64, _)| Record::new(key.to_string(), number.to_string()))
            .collect();
        for some in records.chunks(10_000) {
            sink.send_all(topic, some).unwrap();
        }
    }

    pub(crate) fn source(&self, topics: &[&str]) -> KafkaSource {
        let client = ClientSettings::new(&*self.brokers);
        let topics = topics.iter().copied();
        KafkaSource::join(KafkaSettings::new(client, topics, self.new_group())).unwrap()
    }

    /// Measures a consumer of all records of a topic, with this concurrency.
    pub(crate) fn consume(
        &self,
        topic: &str,
        records: u64,
        at_a_time: u32,
        start: impl FnOnce(ConsumerBuilder, Arc<Watch>) -> Result<Consumer, StartError>,
    ) -> Took {
        let watch = Arc::new(Watch::new(records));
        let begin = Instant::now();
        // All records may be incomplete, so that the longest keys are known early.
        let builder = Consumer::builder(self.source(&[topic])).max_in_flight(20_000, usize::MAX);
        let consumer = start(builder, Arc::clone(&watch)).unwrap();
        let over = watch.wait();
        let ended = consumer.stop(Duration::from_secs(10));
        assert_eq!(ended.counts.handled, records);
        let least = over.slowest_key.max(over.handlers / at_a_time);
        Took { work: over.work, all: over.at - begin, least }
    }
}

/// Returns the median of the runs, by the time of the work.
pub(crate) fn median(mut runs: Vec<Took>) -> Took {
    runs.sort();
    runs[runs.len() / 2]
}

/// Returns the minimum time of all waits with `at_a_time` running, and those of a key one after
/// another.
pub(crate) fn bound(waits: impl Iterator<Item = (u64, Duration)>, at_a_time: u32) -> Duration {
    let (mut all, mut of_key) = (Duration::ZERO, HashMap::<u64, Duration>::new());
    for (key, wait) in waits {
        all += wait;
        *of_key.entry(key).or_default() += wait;
    }
    of_key.into_values().max().unwrap_or_default().max(all / at_a_time)
}

/// Returns a pseudo-random number, the same in each run. Source: S. Vigna's splitmix64.
pub(crate) fn random(number: u64) -> u64 {
    let mut z = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
