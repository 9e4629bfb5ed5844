//! A topic for the output of handlers: written before the records are complete, in order per key,
//! and delayed while the brokers are unavailable.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use crate::consuming::{Dice, Watched, eventually, keyed, number, partition_status, quick, status};
use crate::kafka_support::{
    Driven, PATIENCE, committed, create_topic, end_of, mocked, settings, until,
};
use keylane_stream::consumer::{Attempt, AttemptFailure, Consumer, ConsumerBuilder};
use keylane_stream::kafka::{ClientSettings, KafkaOutput, KafkaSource};
use keylane_stream::memory::MemoryStream;
use keylane_stream::retry::{OnExhausted, RetryPolicy};
use keylane_stream::{Partition, Record};
use keylane_testkit::{Broker, or_skip};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr as Refusal};

const KEYS: u64 = 13;

fn stream(count: u64) -> MemoryStream {
    let mut dice = Dice(count);
    let stream = MemoryStream::new("orders", 1);
    stream.push_all(0, (0..count).map(|number| keyed(dice.roll_skewed(KEYS), number)));
    stream.exhaust();
    stream
}

fn builder(stream: &MemoryStream, attempts: u32) -> ConsumerBuilder {
    let policy = RetryPolicy::new(quick(attempts, OnExhausted::Skip)).unwrap();
    Consumer::builder(stream.source()).threads(4).retry(policy, |_| ())
}

/// Returns a copy of the record.
fn copy(attempt: &Attempt) -> Record {
    Record { headers: attempt.origin(), ..attempt.record().clone() }
}

fn cluster() -> MockCluster<'static, DefaultProducerContext> {
    let cluster = MockCluster::new(1).expect("a mock cluster starts");
    cluster.create_topic("bills", 3, 1).expect("it takes a topic");
    cluster
}

fn client(brokers: &str) -> ClientSettings {
    // Reconnects soon after the brokers were unavailable.
    ClientSettings::new(brokers)
        .set("reconnect.backoff.max.ms", "200")
        .set("retry.backoff.max.ms", "200")
}

/// Returns the records of a topic by key, in order; and checks that each key is in one partition.
fn written(brokers: &str, topic: &str, partitions: u32, count: usize) -> HashMap<String, Vec<u64>> {
    // Works with a real broker as well.
    let mut driven = Driven::with(mocked(brokers, topic, "readers"));
    let all: Vec<_> = (0..partitions).map(|number| Partition::new(topic, number)).collect();
    driven.poll_until("all is read", |driven| {
        let read = all.iter().map(|partition| driven.payloads(partition).len());
        (read.sum::<usize>() >= count).then_some(())
    });
    let mut keys: HashMap<String, Vec<u64>> = HashMap::new();
    let mut homes: BTreeMap<String, u32> = BTreeMap::new();
    for partition in all {
        for delivered in driven.records.remove(&partition).unwrap_or_default() {
            let text = |bytes: bytes::Bytes| String::from_utf8(bytes.into()).expect("it is text");
            let key = text(delivered.record.key.expect("it has one"));
            let home = *homes.entry(key.clone()).or_insert(partition.number());
            assert_eq!(home, partition.number(), "{key} is in two partitions");
            let number = text(delivered.record.payload.unwrap()).parse().expect("it is a number");
            keys.entry(key).or_default().push(number);
        }
    }
    keys
}

fn expected(count: u64, copies: impl Fn(u64) -> usize) -> HashMap<String, Vec<u64>> {
    let mut dice = Dice(count);
    let mut keys: HashMap<String, Vec<u64>> = HashMap::new();
    for number in 0..count {
        let key = dice.roll_skewed(KEYS).to_string();
        keys.entry(key).or_default().extend(vec![number; copies(number)]);
    }
    keys.retain(|_, numbers| !numbers.is_empty());
    keys
}

#[test]
fn the_output_of_a_key_is_in_the_order_of_its_records_through_failures_of_handlers_and_brokers() {
    let cluster = cluster();
    // Retriable errors, which say nothing about a record: the client sends again.
    cluster.request_errors(
        RDKafkaApiKey::Produce,
        &[
            Refusal::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
            Refusal::RD_KAFKA_RESP_ERR_NO_ERROR,
            Refusal::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
            Refusal::RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT,
        ],
    );
    let stream = stream(1_500);
    let output = KafkaOutput::new(&client(&cluster.bootstrap_servers()), "bills").unwrap();
    let copies = |number: u64| number as usize % 4;
    let consumer = builder(&stream, 5).start_producing(output, move |attempt: &Attempt| {
        match (number(attempt), attempt.number()) {
            (number, 1) if number % 7 == 0 => Err(AttemptFailure::from("not the first time")),
            (number, _) => Ok(vec![copy(attempt); copies(number)]),
        }
    });
    let counts = consumer.unwrap().wait().counts;
    // Only the handler's own failures count.
    assert_eq!((counts.handled, counts.failed_attempts), (1_500, 1_500_u64.div_ceil(7)));
    let expected = expected(1_500, copies);
    let count = expected.values().map(Vec::len).sum();
    assert_eq!(written(&cluster.bootstrap_servers(), "bills", 3, count), expected);
}

#[test]
fn output_that_is_refused_fails_its_own_record_only() {
    let cluster = cluster();
    let stream = stream(200);
    let output = KafkaOutput::new(&client(&cluster.bootstrap_servers()), "bills").unwrap();
    let consumer = builder(&stream, 2).start_producing(output, |attempt: &Attempt| {
        let huge = vec![b'x'; if number(attempt) == 20 { 2_000_000 } else { 0 }];
        let huge = Record { payload: Some(huge.into()), ..copy(attempt) };
        let records = if number(attempt) == 20 { vec![huge] } else { vec![copy(attempt)] };
        Ok::<_, AttemptFailure>(records)
    });
    let counts = consumer.unwrap().wait().counts;
    assert_eq!((counts.handled, counts.skipped, counts.failed_attempts), (199, 1, 2));
    let copies = |number| usize::from(number != 20);
    let expected = expected(200, copies);
    assert_eq!(written(&cluster.bootstrap_servers(), "bills", 3, 199), expected);
}

#[test]
fn a_client_that_gives_up_is_replaced() {
    let cluster = cluster();
    let stream = stream(300);
    let output = KafkaOutput::new(&client(&cluster.bootstrap_servers()), "bills").unwrap();
    cluster.request_errors(
        RDKafkaApiKey::Produce,
        &[Refusal::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER],
    );
    let consumer = builder(&stream, 50)
        .start_producing(output, |attempt: &Attempt| Ok::<_, AttemptFailure>(vec![copy(attempt)]));
    let counts = consumer.unwrap().wait().counts;
    assert_eq!((counts.handled, counts.skipped), (300, 0));
    assert!(counts.failed_attempts > 0, "it has not given up");
    assert_eq!(written(&cluster.bootstrap_servers(), "bills", 3, 300), expected(300, |_| 1));
}

#[test]
fn brokers_that_are_away_hold_records_back_and_nothing_fails_or_is_lost() {
    let Some(mut broker) = or_skip(Broker::start()) else { return };
    let brokers = broker.address();
    create_topic(&brokers, "bills", 3);
    let stream = stream(2_000);
    let output = KafkaOutput::new(&client(&brokers), "bills").unwrap();
    let made = Watched::new(0_u64);
    let counts = made.clone();
    let consumer = builder(&stream, 1)
        .max_in_flight(100, 1 << 20)
        .start_producing(output, move |attempt: &Attempt| {
            counts.change(|made| *made += 1);
            Ok::<_, AttemptFailure>(vec![copy(attempt)])
        })
        .unwrap();
    eventually(|| consumer.status().is_some_and(|status| status.counts.handled > 200));
    broker.kill();
    // As many records wait as may be in flight, and no more.
    eventually(|| partition_status(&consumer, 0).in_flight == 100);
    let so_far = made.get();
    assert!(so_far <= status(&consumer).counts.handled + 100);
    broker.restart();
    let ended = consumer.wait().counts;
    assert_eq!((ended.handled, ended.failed_attempts, ended.skipped), (2_000, 0, 0));
    assert_eq!(made.get(), 2_000, "nothing was made twice");
    let keys = written(&brokers, "bills", 3, 2_000);
    assert_eq!(keys, expected(2_000, |_| 1));
}

#[test]
fn a_record_of_a_topic_is_done_when_its_output_is_in_the_other() {
    let Some(broker) = or_skip(Broker::start()) else { return };
    let (brokers, name) = (broker.address(), "orders");
    create_topic(&brokers, name, 1);
    create_topic(&brokers, "bills", 1);
    crate::kafka_support::write_numbers(&brokers, name, 0, 0..500);
    let output = KafkaOutput::new(&ClientSettings::new(&*brokers), "bills").unwrap();
    let source = KafkaSource::join(settings(&brokers, name, name)).unwrap();
    let consumer = Consumer::builder(source)
        .commit(Duration::from_millis(20), 1)
        .start_producing(output, |order: &Attempt| Ok::<_, AttemptFailure>(vec![copy(order)]))
        .unwrap();
    until("all is done", || {
        let (offset, _) = committed(&brokers, name, name, 0)?;
        // The output of all completed records has been written by then.
        let bills = end_of(&brokers, "bills", 0);
        assert!(bills >= offset, "{offset} are done, and {bills} are written");
        (offset == 500).then_some(())
    });
    assert_eq!(consumer.stop(PATIENCE).counts.handled, 500);
    assert_eq!(end_of(&brokers, "bills", 0), 500);
}
