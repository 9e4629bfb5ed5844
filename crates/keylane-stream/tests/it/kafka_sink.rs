//! Records of a sink are acknowledged when the brokers have them, and not before.

use std::sync::mpsc;
use std::time::{Duration, SystemTime};

use crate::kafka_support::{
    Driven, PATIENCE, committed, create_topic, mocked, settings, until, write_numbers,
};
use keylane_stream::consumer::{Attempt, AttemptFailure, Consumer};
use keylane_stream::dead_letters::{DeadLetter, DeadLetters as _};
use keylane_stream::kafka::{ClientSettings, KafkaDeadLetters, KafkaSink, KafkaSource, SendError};
use keylane_stream::retry::{Backoff, OnExhausted, RetryLimit, RetryPolicy, RetryRule};
use keylane_stream::{Partition, Position, Record};
use keylane_testkit::{Broker, or_skip};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

fn cluster() -> MockCluster<'static, DefaultProducerContext> {
    let cluster = MockCluster::new(1).expect("a mock cluster starts");
    cluster.create_topic("bills", 1, 1).expect("it takes a topic");
    cluster
}

fn sink(cluster: &MockCluster<'static, DefaultProducerContext>) -> KafkaSink {
    KafkaSink::new(&ClientSettings::new(cluster.bootstrap_servers()))
        .expect("the settings are right")
}

/// Returns a sink with a short timeout for unacknowledged records.
fn hasty_sink(cluster: &MockCluster<'static, DefaultProducerContext>) -> KafkaSink {
    let client =
        ClientSettings::new(cluster.bootstrap_servers()).set("delivery.timeout.ms", "2000");
    KafkaSink::new(&client).expect("the settings are right")
}

fn numbers(count: u64) -> Vec<Record> {
    (0..count).map(|number| Record::new("one key", number.to_string())).collect()
}

#[test]
fn records_of_a_key_are_written_in_the_order_in_which_they_came() {
    let cluster = cluster();
    let written = sink(&cluster).send_all("bills", &numbers(2_000)).expect("all are written");
    let places = written.iter().map(|(_, at)| at.get());
    assert!(places.eq(0..2_000), "{written:?}");
    let mut driven = Driven::with(mocked(&cluster.bootstrap_servers(), "bills", "readers"));
    let bills = Partition::new("bills", 0);
    driven.poll_records(&bills, 2_000);
    assert!(driven.payloads(&bills).into_iter().eq(0..2_000));
}

#[test]
fn a_record_that_had_to_be_sent_again_is_written_once() {
    let cluster = cluster();
    cluster.request_errors(
        RDKafkaApiKey::Produce,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS; 3],
    );
    let written = sink(&cluster).send_all("bills", &numbers(1)).expect("it is written in the end");
    assert_eq!(written, [(Partition::new("bills", 0), Position::ZERO)]);
}

#[test]
fn lost_writes_are_reported() {
    let cluster = cluster();
    let sink = hasty_sink(&cluster);
    cluster.broker_down(1).unwrap();
    let error = sink.send_all("bills", &numbers(3)).unwrap_err();
    assert!(matches!(error, SendError::NotWritten(_)), "{error:?}");
    let huge = [Record::new("key", vec![b'x'; 2_000_000])];
    assert_eq!(sink.send_all("bills", &huge), Err(SendError::TooLarge));
}

#[test]
fn a_sink_that_is_dropped_answers_for_what_is_on_its_way() {
    let cluster = cluster();
    let sink = hasty_sink(&cluster);
    cluster.broker_down(1).unwrap();
    let (sender, answers) = mpsc::channel();
    sink.send("bills", &numbers(1)[0], move |result| sender.send(result).unwrap());
    drop(sink);
    let answer = answers.recv_timeout(PATIENCE).expect("it is called");
    assert!(matches!(answer, Err(SendError::NotWritten(_))), "{answer:?}");
}

#[test]
fn a_callback_that_panics_keeps_no_other_from_being_called() {
    let cluster = cluster();
    let sink = sink(&cluster);
    sink.send("bills", &numbers(1)[0], |_| panic!("a mistake of the user's"));
    sink.send_all("bills", &numbers(1)).expect("it is told of");
}

fn letter(record: Record) -> DeadLetter {
    DeadLetter {
        partition: Partition::new("orders", 3),
        position: Position::new(17),
        written: SystemTime::now(),
        record,
        failure: "no such client".to_owned(),
        attempts: 5,
        failed_at: SystemTime::now(),
    }
}

#[test]
fn a_dead_letter_says_where_it_comes_from_and_keeps_what_it_was() {
    let cluster = cluster();
    let mut letters = KafkaDeadLetters::new(sink(&cluster), "bills");
    let record = Record {
        key: None,
        payload: Some(b"\xff\x00"[..].into()),
        headers: vec![("own".to_owned(), Some(b"header".to_vec()))],
    };
    letters.write(&[letter(record.clone())]).expect("it is written");
    let mut driven = Driven::with(mocked(&cluster.bootstrap_servers(), "bills", "readers"));
    let bills = Partition::new("bills", 0);
    driven.poll_until("it comes", |driven| driven.records.get(&bills).map(|_| ()));
    let found = &driven.records[&bills][0].record;
    assert_eq!((&found.key, &found.payload), (&record.key, &record.payload));
    assert_eq!(found.headers[0], record.headers[0]);
    let says = |name: &str, value: &str| {
        found.headers.contains(&(name.to_owned(), Some(value.as_bytes().to_vec())))
    };
    assert!(says("keylane-stream", "orders") && says("keylane-position", "17"), "{found:?}");
    assert!(
        says("keylane-failure", "no such client") && says("keylane-attempts", "5"),
        "{found:?}"
    );
}

/// Regression: a client that cannot know what the brokers have stops for good. The letters stayed
/// in it, so their records held their keys until the consumer was restarted.
#[test]
fn dead_letters_are_written_by_another_client_when_theirs_has_given_up() {
    let cluster = cluster();
    let sink = sink(&cluster);
    let mut letters = KafkaDeadLetters::new(sink.clone(), "bills");
    cluster.request_errors(
        RDKafkaApiKey::Produce,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER],
    );
    let records = numbers(2);
    letters.write(&[letter(records[0].clone())]).expect_err("its client has given up");
    // The error is permanent.
    let error = sink.send_all("bills", &records).unwrap_err();
    assert!(matches!(error, SendError::Fatal(_)), "{error:?}");
    letters.write(&[letter(records[1].clone())]).expect("there is another client");
    let mut driven = Driven::with(mocked(&cluster.bootstrap_servers(), "bills", "readers"));
    let bills = Partition::new("bills", 0);
    driven.poll_records(&bills, 1);
    assert_eq!(driven.payloads(&bills), [1]);
}

#[test]
fn g7_a_record_is_not_done_before_its_dead_letter_is_written() {
    let Some(broker) = or_skip(Broker::start()) else { return };
    let (brokers, name) = (broker.address(), "poison");
    create_topic(&brokers, name, 1);
    write_numbers(&brokers, name, 0, 0..3);
    // The topic of the dead letters does not exist yet.
    let client = ClientSettings::new(&*brokers)
        .set("delivery.timeout.ms", "1000")
        .set("topic.metadata.propagation.max.ms", "500")
        .set("topic.metadata.refresh.fast.interval.ms", "100")
        .set("topic.metadata.refresh.interval.ms", "500");
    let letters = KafkaDeadLetters::new(KafkaSink::new(&client).unwrap(), "dead");
    let rule = RetryRule {
        backoff: Backoff::default(),
        limit: RetryLimit { attempts: Some(1), ..RetryLimit::default() },
        on_exhausted: OnExhausted::DeadLetter,
    };
    let source = KafkaSource::join(settings(&brokers, name, name)).unwrap();
    let consumer = Consumer::builder(source)
        .commit(Duration::from_millis(50), 1)
        .retry(RetryPolicy::new(rule).unwrap(), |_| ())
        .dead_letters(letters)
        .start(|attempt: &Attempt| match attempt.payload() {
            b"1" => Err(AttemptFailure::from("it is poison")),
            _ => Ok(()),
        })
        .unwrap();
    // All other records are completed and committed; this one is not.
    until("what is done is stored", || {
        let status = consumer.status()?;
        let partition = status.partitions.first()?;
        let waits = partition.oldest.as_ref()?.reason.clone();
        let refused = format!("{waits:?}").contains("refused: Some");
        (status.counts.handled == 2 && partition.committed.get() == 1 && refused).then_some(())
    });
    assert_eq!(committed(&brokers, name, name, 0).map(|(offset, _)| offset), Some(1));

    create_topic(&brokers, "dead", 1);
    let mut dead = Driven::join(&brokers, "dead", "undertakers");
    dead.poll_records(&Partition::new("dead", 0), 1);
    // A letter that was abandoned while in transit is written once more.
    assert!(dead.payloads(&Partition::new("dead", 0)).iter().all(|number| *number == 1));
    until("the record is done", || {
        let (offset, _) = committed(&brokers, name, name, 0)?;
        (offset == 3).then_some(())
    });
    let ended = consumer.stop(PATIENCE);
    assert_eq!((ended.counts.handled, ended.counts.dead_lettered), (2, 1));
}

#[test]
fn output_is_written_before_its_record_is_done() {
    let Some(broker) = or_skip(Broker::start()) else { return };
    let (brokers, name) = (broker.address(), "orders");
    create_topic(&brokers, name, 1);
    create_topic(&brokers, "bills", 1);
    write_numbers(&brokers, name, 0, 0..500);
    let sink = KafkaSink::new(&ClientSettings::new(&*brokers)).unwrap();
    let source = KafkaSource::join(settings(&brokers, name, name)).unwrap();
    let consumer = Consumer::builder(source)
        .commit(Duration::from_millis(20), 1)
        .start_with_acks(move |order, ack| {
            let answer = move |written: Result<_, SendError>| {
                ack.answer(written.map(drop).map_err(AttemptFailure::from));
            };
            sink.send("bills", order.record(), answer);
        })
        .unwrap();
    until("all is done", || {
        let (offset, _) = committed(&brokers, name, name, 0)?;
        // The output of all completed records has been written by then.
        let bills = crate::kafka_support::end_of(&brokers, "bills", 0);
        assert!(bills >= offset, "{offset} are done, and {bills} are written");
        (offset == 500).then_some(())
    });
    assert_eq!(consumer.stop(PATIENCE).counts.handled, 500);
    assert_eq!(crate::kafka_support::end_of(&brokers, "bills", 0), 500);
}
