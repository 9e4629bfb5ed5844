//! A source with several topics: by their names or a pattern, on the client's own mock cluster, and
//! on a real broker for transactions and members that come and go.

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::time::Duration;

use crate::kafka_support::{
    Driven, PATIENCE, at, committed, create_topic, delete_topic, mocked, settings, write_numbers,
};
use keylane_stream::kafka::{ClientSettings, KafkaSettings, RebalanceProtocol, topic_names};
use keylane_stream::source::{Partition, Source as _};
use keylane_stream::tracker::Progress;
use keylane_testkit::{Broker, or_skip};
use rdkafka::ClientConfig;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer as _, ThreadedProducer};

fn cluster(topics: &[&str]) -> MockCluster<'static, DefaultProducerContext> {
    let cluster = MockCluster::new(1).expect("a mock cluster starts");
    for topic in topics {
        cluster.create_topic(topic, 2, 1).expect("it takes a topic");
    }
    cluster
}

fn with_topics(settings: KafkaSettings, topics: &[&str]) -> KafkaSettings {
    KafkaSettings { topics: topics.iter().map(ToString::to_string).collect(), ..settings }
}

fn partitions(topics: &[&str]) -> Vec<Partition> {
    topics.iter().flat_map(|topic| [0, 1].map(|number| Partition::new(*topic, number))).collect()
}

/// Returns a broker that the tests share.
fn shared() -> Option<String> {
    static BROKER: OnceLock<Option<Broker>> = OnceLock::new();
    let broker = BROKER.get_or_init(|| or_skip(Broker::start()));
    broker.as_ref().map(Broker::address)
}

#[test]
fn each_partition_of_each_topic_has_its_records_its_progress_and_its_end() {
    let topics = ["orders", "returns"];
    let cluster = cluster(&topics);
    let brokers = cluster.bootstrap_servers();
    // Partitions with one number end at different offsets, also at the beginning.
    let counts = [40, 0, 70, 30];
    for (partition, count) in partitions(&topics).iter().zip(counts) {
        write_numbers(&brokers, partition.stream(), partition.number() as i32, 0..count);
    }
    let joined = with_topics(mocked(&brokers, "", "billing"), &topics);
    let mut driven = Driven::with(KafkaSettings { to_the_end: true, ..joined });
    driven.poll_until("all have ended", |driven| (driven.exhausted.len() == 4).then_some(()));
    for (partition, count) in partitions(&topics).iter().zip(counts) {
        assert_eq!(driven.payloads(partition), Vec::from_iter(0..count), "{partition}");
        driven.commit(partition, Progress::up_to(at(count))).expect("it is stored");
        let number = partition.number() as i32;
        let stored = committed(&brokers, "billing", partition.stream(), number);
        assert_eq!(stored.map(|(offset, _)| offset), Some(count as i64), "{partition}");
    }
    driven.source.close(Duration::from_secs(10)).expect("it leaves");
}

#[test]
fn a_paused_partition_holds_back_no_partition_with_its_number_in_another_topic() {
    let topics = ["orders", "returns"];
    let cluster = cluster(&topics);
    let brokers = cluster.bootstrap_servers();
    let mut driven = Driven::with(with_topics(mocked(&brokers, "", "billing"), &topics));
    driven.poll_until("all are assigned", |driven| (driven.assigned.len() == 4).then_some(()));
    let (held, other) = (Partition::new("orders", 0), Partition::new("returns", 0));
    driven.source.pause(&held);
    // More than is buffered.
    write_numbers(&brokers, "orders", 0, 0..3_000);
    write_numbers(&brokers, "returns", 0, 0..3_000);
    driven.poll_records(&other, 3_000);
    assert!(driven.payloads(&held).is_empty());
    driven.source.resume(&held);
    driven.poll_records(&held, 3_000);
    for partition in [held, other] {
        assert_eq!(driven.payloads(&partition), Vec::from_iter(0..3_000), "{partition}");
        driven.poll_until("the end is reached", |driven| {
            (driven.reached.get(&partition) == Some(&at(3_000))).then_some(())
        });
    }
}

#[test]
fn a_pattern_gets_the_topics_that_match_and_those_that_appear_later() {
    let cluster = cluster(&["orders-a", "bills"]);
    let brokers = cluster.bootstrap_servers();
    for topic in ["orders-a", "bills"] {
        write_numbers(&brokers, topic, 0, 0..10);
    }
    let mut driven = Driven::with(with_topics(mocked(&brokers, "", "billing"), &["^orders-.*"]));
    driven.poll_records(&Partition::new("orders-a", 0), 10);
    cluster.create_topic("orders-b", 2, 1).expect("it takes a topic");
    write_numbers(&brokers, "orders-b", 1, 0..20);
    driven.poll_until("the topic is found", |driven| {
        driven.release_all();
        driven.records.get(&Partition::new("orders-b", 1)).filter(|it| it.len() == 20).map(drop)
    });
    driven.poll_until("all are assigned", |driven| {
        driven.release_all();
        let assigned: BTreeSet<_> = driven.assigned.keys().cloned().collect();
        (assigned == partitions(&["orders-a", "orders-b"]).into_iter().collect()).then_some(())
    });
    assert_eq!(driven.payloads(&Partition::new("orders-b", 1)), Vec::from_iter(0..20));
    let names = topic_names(&ClientSettings::new(&*brokers), "billing").expect("it answers");
    assert_eq!(names, ["bills", "orders-a", "orders-b"]);
}

/// Writes `count` transactions of one record each; each ends with a marker, which is no record.
fn write_transactions(brokers: &str, topic: &str, count: u64) {
    let producer: ThreadedProducer<_> = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("transactional.id", topic)
        .create()
        .expect("a producer starts");
    producer.init_transactions(PATIENCE).expect("the broker takes transactions");
    for number in 0..count {
        let payload = number.to_string();
        producer.begin_transaction().expect("none is open");
        let record = BaseRecord::to(topic).partition(0).key("k").payload(&payload);
        producer.send(record).map_err(|(error, _)| error).expect("there is room");
        producer.commit_transaction(PATIENCE).expect("it commits");
    }
}

/// The last offset of each partition is a marker, so that only the client tells that it has ended.
#[test]
fn partitions_that_end_with_markers_of_transactions_end_in_each_topic() {
    let Some(brokers) = shared() else { return };
    let topics = ["markers-a", "markers-b", "markers-c"];
    for (topic, count) in topics.iter().zip([3, 3, 0]) {
        create_topic(&brokers, topic, 1);
        write_transactions(&brokers, topic, count);
    }
    for protocol in [RebalanceProtocol::Cooperative, RebalanceProtocol::Broker] {
        let group = format!("markers-{protocol:?}");
        let joined = with_topics(settings(&brokers, "", &group), &topics);
        let joined = match protocol {
            RebalanceProtocol::Cooperative => joined,
            // The broker sets these times.
            RebalanceProtocol::Broker => {
                let client = ClientSettings::new(&*brokers);
                KafkaSettings { client, protocol, ..joined }
            }
        };
        let mut driven = Driven::with(KafkaSettings { to_the_end: true, ..joined });
        driven.poll_until("all have ended", |driven| (driven.exhausted.len() == 3).then_some(()));
        for topic in &topics[..2] {
            let partition = Partition::new(*topic, 0);
            assert_eq!(driven.payloads(&partition), [0, 1, 2]);
            assert_eq!(driven.reached.get(&partition), Some(&at(6)), "{topic}");
        }
        driven.source.close(PATIENCE).expect("it leaves");
    }
}

/// Commits all delivered records of revoked partitions, and releases them.
fn hand_over(driven: &mut Driven) {
    for partitions in std::mem::take(&mut driven.revoked) {
        for partition in &partitions {
            let end = driven.records.get(partition).and_then(|some| some.last());
            if let Some(end) = end.map(|last| last.position.next()) {
                driven.commit(partition, Progress::up_to(end)).expect("it is stored");
            }
        }
        driven.release(&partitions);
    }
}

#[test]
fn partitions_of_several_topics_move_between_members_and_back() {
    let Some(brokers) = shared() else { return };
    let topics = ["moves-a", "moves-b"];
    topics.iter().for_each(|topic| create_topic(&brokers, topic, 2));
    let write = |numbers: std::ops::Range<u64>| {
        for partition in partitions(&topics) {
            let number = partition.number() as i32;
            write_numbers(&brokers, partition.stream(), number, numbers.clone());
        }
    };
    let join = || Driven::with(with_topics(settings(&brokers, "", "moves"), &topics));
    let has_read = |driven: &Driven, upto: u64| {
        driven.assigned.keys().all(|partition| driven.reached.get(partition) == Some(&at(upto)))
    };
    write(0..10);
    let mut first = join();
    first.poll_until("it has all", |driven| {
        (driven.assigned.len() == 4 && has_read(driven, 10)).then_some(())
    });
    let mut second = join();
    second.poll_until("each has its part", |second| {
        first.poll();
        hand_over(&mut first);
        (second.assigned.len() == 2 && first.assigned.len() == 2).then_some(())
    });
    write(10..20);
    second.poll_until("both have read their part", |second| {
        first.poll();
        (has_read(second, 20) && has_read(&first, 20)).then_some(())
    });
    assert_eq!(second.records.values().map(Vec::len).sum::<usize>(), 20, "{}", second.say());
    let theirs: Vec<_> = second.assigned.keys().cloned().collect();
    for partition in &theirs {
        second.commit(partition, Progress::up_to(at(20))).expect("it is stored");
    }
    second.source.close(PATIENCE).expect("it leaves");
    write(20..30);
    first.poll_until("they come back", |driven| {
        hand_over(driven);
        (driven.assigned.len() == 4 && has_read(driven, 30)).then_some(())
    });
    for partition in partitions(&topics) {
        let all = first.payloads(&partition);
        let expected = if theirs.contains(&partition) { 20..30 } else { 0..30 };
        assert_eq!(all, Vec::from_iter(expected), "{partition}");
    }
}

#[test]
fn a_topic_that_is_made_again_is_read_from_its_first_record_beside_others() {
    let Some(brokers) = shared() else { return };
    let topics = ["stays", "made-again-beside"];
    topics.iter().for_each(|topic| create_topic(&brokers, topic, 1));
    topics.iter().for_each(|topic| write_numbers(&brokers, topic, 0, 0..50));
    let [stays, again] = topics.map(|topic| Partition::new(topic, 0));
    let mut driven = Driven::with(with_topics(settings(&brokers, "", "made-again"), &topics));
    driven.poll_records(&stays, 50);
    driven.poll_records(&again, 50);
    delete_topic(&brokers, topics[1]);
    create_topic(&brokers, topics[1], 1);
    write_numbers(&brokers, topics[1], 0, 1000..1100);
    write_numbers(&brokers, topics[0], 0, 50..60);
    driven.poll_until("it is read from its first record, to its end", |driven| {
        let payloads = driven.payloads(&again);
        let is_read = payloads.first() == Some(&1000) && payloads.len() == 100;
        (is_read && driven.reached.get(&again) == Some(&at(100))).then_some(())
    });
    driven.poll_until("the other one is read to its end", |driven| {
        (driven.reached.get(&stays) == Some(&at(60))).then_some(())
    });
    assert_eq!(driven.payloads(&stays), Vec::from_iter(0..60));
}
