//! A topic that is read to the end, on the client's own mock cluster: each partition ends where it ended when the member
//! got it, and the consumer with the last one.

use std::sync::Mutex;
use std::time::Duration;

use crate::kafka_support::{Driven, at, committed, mocked, write_numbers};
use keylane_stream::consumer::{Attempt, AttemptFailure, Consumer, StopReason};
use keylane_stream::kafka::{KafkaSettings, KafkaSource};
use keylane_stream::source::{Partition, Source as _};
use keylane_stream::tracker::Progress;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;

/// Starts a cluster with a topic of two partitions.
fn cluster() -> MockCluster<'static, DefaultProducerContext> {
    let cluster = MockCluster::new(1).expect("a mock cluster starts");
    cluster.create_topic("orders", 2, 1).expect("it takes a topic");
    cluster
}

fn settings(brokers: &str) -> KafkaSettings {
    KafkaSettings { to_the_end: true, ..mocked(brokers, "orders", "billing") }
}

fn orders(number: u32) -> Partition {
    Partition::new("orders", number)
}

/// Joins, and polls until both partitions are assigned.
fn assigned(brokers: &str) -> Driven {
    let mut driven = Driven::with(settings(brokers));
    driven.poll_until("both are assigned", |driven| (driven.assigned.len() == 2).then_some(()));
    driven
}

fn poll_to_both_ends(driven: &mut Driven) {
    driven.poll_until("both have ended", |driven| (driven.exhausted.len() == 2).then_some(()));
}

#[test]
fn records_that_come_later_are_not_delivered() {
    let cluster = cluster();
    let brokers = cluster.bootstrap_servers();
    write_numbers(&brokers, "orders", 0, 0..3_000);
    let mut driven = assigned(&brokers);
    assert!(driven.exhausted.contains(&orders(1)), "an empty partition ends with its assignment");
    write_numbers(&brokers, "orders", 0, 3_000..3_100);
    write_numbers(&brokers, "orders", 1, 0..5);
    poll_to_both_ends(&mut driven);
    // What the client has fetched beyond the ends is dropped.
    (0..10).for_each(|_| driven.poll());
    assert_eq!(driven.payloads(&orders(0)), Vec::from_iter(0..3_000));
    assert!(driven.payloads(&orders(1)).is_empty());
    driven.source.close(Duration::from_secs(10)).expect("it leaves");
}

#[test]
fn a_paused_partition_ends_after_its_records() {
    let cluster = cluster();
    let brokers = cluster.bootstrap_servers();
    write_numbers(&brokers, "orders", 0, 0..10);
    write_numbers(&brokers, "orders", 1, 0..3_000);
    let mut driven = assigned(&brokers);
    driven.source.pause(&orders(0));
    driven.poll_records(&orders(1), 3_000);
    (0..10).for_each(|_| driven.poll());
    assert!(!driven.exhausted.contains(&orders(0)), "its records were not delivered yet");
    driven.source.resume(&orders(0));
    poll_to_both_ends(&mut driven);
    assert_eq!(driven.payloads(&orders(0)), Vec::from_iter(0..10));
}

#[test]
fn a_group_that_has_done_all_ends_at_once() {
    let cluster = cluster();
    let brokers = cluster.bootstrap_servers();
    for number in 0..2 {
        write_numbers(&brokers, "orders", number, 0..10);
    }
    let mut driven = assigned(&brokers);
    poll_to_both_ends(&mut driven);
    for number in 0..2 {
        driven.commit(&orders(number as u32), Progress::up_to(at(10))).expect("it is stored");
    }
    driven.source.close(Duration::from_secs(10)).expect("it leaves");

    let again = assigned(&brokers);
    assert_eq!(again.exhausted.len(), 2);
    assert!(again.records.is_empty());
}

#[test]
fn a_consumer_handles_all_stores_it_and_ends() {
    let cluster = cluster();
    let brokers = cluster.bootstrap_servers();
    for number in 0..2 {
        write_numbers(&brokers, "orders", number, 0..500);
    }
    let source = KafkaSource::join(settings(&brokers)).unwrap();
    let handled = std::sync::Arc::new(Mutex::new(0));
    let counts = handled.clone();
    let handle = move |_: &Attempt| {
        *counts.lock().unwrap() += 1;
        Ok::<_, AttemptFailure>(())
    };
    let ended = Consumer::builder(source).by_key().start(handle).unwrap().wait();
    assert!(matches!(ended.reason, StopReason::Exhausted), "{:?}", ended.reason);
    assert_eq!((*handled.lock().unwrap(), ended.counts.handled), (1_000, 1_000));
    for number in 0..2 {
        let stored = committed(&brokers, "billing", "orders", number).map(|(offset, _)| offset);
        assert_eq!(stored, Some(500));
    }
}
