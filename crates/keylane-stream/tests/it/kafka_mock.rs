//! The Kafka source on the client's own mock cluster: quick, and with failures on demand.

use std::time::Duration;

use crate::consuming::{PATIENCE, Watched, partition_status};
use crate::kafka_support::{Driven, at, committed, fleeting, mocked, write_numbers};
use keylane_stream::consumer::{Attempt, AttemptFailure, Consumer, PauseReason, Target};
use keylane_stream::kafka::{ClientSettings, KafkaSettings, KafkaSource};
use keylane_stream::source::{CommitError, Partition, ProgressCommit, Source as _, SourceEvent};
use keylane_stream::tracker::Progress;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

/// Starts a cluster with a topic.
fn cluster(partitions: i32) -> MockCluster<'static, DefaultProducerContext> {
    let cluster = MockCluster::new(1).expect("a mock cluster starts");
    cluster.create_topic("orders", partitions, 1).expect("it takes a topic");
    cluster
}

fn join(brokers: &str) -> Driven {
    Driven::with(mocked(brokers, "orders", "billing"))
}

/// Returns a member with a short session, as the mock makes a rejoining member wait for most of a
/// session.
fn rejoining(brokers: &str) -> Driven {
    Driven::with(fleeting(brokers, "orders", "billing"))
}

fn orders(number: u32) -> Partition {
    Partition::new("orders", number)
}

#[test]
fn records_come_in_order_with_all_their_parts() {
    let cluster = cluster(1);
    let brokers = cluster.bootstrap_servers();
    write_numbers(&brokers, "orders", 0, 0..500);
    let mut driven = join(&brokers);
    driven.poll_records(&orders(0), 500);
    assert_eq!(driven.payloads(&orders(0)), Vec::from_iter(0..500));
    let last = &driven.records[&orders(0)][499];
    assert_eq!(last.position, at(499));
    assert_eq!(last.record.key.as_deref(), Some(&b"499"[..]));
    driven.poll_until("the end is reached", |driven| {
        (driven.reached.get(&orders(0)) == Some(&at(500))).then_some(())
    });
    driven.source.close(Duration::from_secs(10)).expect("it leaves");
}

#[test]
fn records_completed_out_of_order_stay_completed_after_a_restart() {
    let cluster = cluster(1);
    let brokers = cluster.bootstrap_servers();
    write_numbers(&brokers, "orders", 0, 0..20);
    let done = Progress::with_map(at(3), at(15), vec![at(7), at(9)]);

    let mut first = rejoining(&brokers);
    first.poll_records(&orders(0), 20);
    first.commit(&orders(0), done.clone()).expect("it is stored");
    first.source.close(Duration::from_secs(10)).expect("it leaves");
    let (offset, _) = committed(&brokers, "billing", "orders", 0).expect("something is stored");
    assert_eq!(offset, 3);

    let mut second = rejoining(&brokers);
    second.poll_records(&orders(0), 17);
    assert_eq!(second.assigned[&orders(0)].progress, done);
    assert_eq!(second.payloads(&orders(0)), Vec::from_iter(3..20));
}

#[test]
fn a_partition_that_is_held_back_goes_on_where_it_was_and_others_never_stop() {
    let cluster = cluster(2);
    let brokers = cluster.bootstrap_servers();
    write_numbers(&brokers, "orders", 0, 0..10);
    let mut driven = join(&brokers);
    driven.poll_records(&orders(0), 10);
    driven.source.pause(&orders(0));
    // More than the client reads ahead: it stops fetching, and later continues.
    write_numbers(&brokers, "orders", 0, 10..25_000);
    write_numbers(&brokers, "orders", 1, 0..3_000);
    driven.poll_records(&orders(1), 3_000);
    assert_eq!(driven.payloads(&orders(0)).len(), 10, "a held partition delivered something");
    driven.source.resume(&orders(0));
    driven.poll_records(&orders(0), 25_000);
    assert_eq!(driven.payloads(&orders(0)), Vec::from_iter(0..25_000));
}

#[test]
fn a_poll_never_adds_more_records_than_asked_for() {
    let cluster = cluster(1);
    let brokers = cluster.bootstrap_servers();
    write_numbers(&brokers, "orders", 0, 0..100);
    let mut source = KafkaSource::join(mocked(&brokers, "orders", "billing")).unwrap();
    let mut seen = 0;
    while seen < 100 {
        let mut events = Vec::new();
        source.poll(Duration::from_millis(100), 7, &mut events).unwrap();
        let records = events.iter().map(|event| match event {
            SourceEvent::Records { records, .. } => records.len(),
            _ => 0,
        });
        let count: usize = records.sum();
        assert!(count <= 7, "{count} records where 7 were asked for");
        seen += count;
    }
}

#[test]
fn a_poll_that_wants_no_records_hears_of_commits_and_loses_no_record() {
    let cluster = cluster(1);
    let brokers = cluster.bootstrap_servers();
    write_numbers(&brokers, "orders", 0, 0..10);
    let mut driven = join(&brokers);
    driven.poll_records(&orders(0), 10);
    write_numbers(&brokers, "orders", 0, 10..3_000);
    // Commits as a stopping consumer does, which needs only the acknowledgement.
    driven
        .source
        .commit(vec![ProgressCommit { partition: orders(0), progress: Progress::up_to(at(5)) }]);
    let mut events = Vec::new();
    let is_committed =
        |event: &SourceEvent| matches!(event, SourceEvent::Committed { result: Ok(()), .. });
    crate::kafka_support::until("the commit is answered", || {
        driven.source.poll(Duration::from_millis(50), 0, &mut events).unwrap();
        events.iter().any(is_committed).then_some(())
    });
    for _ in 0..20 {
        driven.source.poll(Duration::from_millis(50), 0, &mut events).unwrap();
    }
    let records = events.iter().any(|event| matches!(event, SourceEvent::Records { .. }));
    assert!(!records, "records came where none were wanted");
    driven.poll_records(&orders(0), 3_000);
    assert_eq!(driven.payloads(&orders(0)), Vec::from_iter(0..3_000));
}

#[test]
fn members_that_insist_on_handing_over_all_at_once_can() {
    let cluster = cluster(2);
    let brokers = cluster.bootstrap_servers();
    write_numbers(&brokers, "orders", 0, 0..20);
    write_numbers(&brokers, "orders", 1, 0..20);
    let eager = || {
        // A short session, as in `rejoining`.
        let settings = fleeting(&brokers, "orders", "billing");
        let client = settings.client.clone().set("partition.assignment.strategy", "range");
        Driven::with(KafkaSettings { client, ..settings })
    };
    let mut first = eager();
    (0..2).for_each(|number| first.poll_records(&orders(number), 20));
    let mut second = eager();
    let wanted = first.poll_until("both are wanted back", |first| {
        second.poll();
        first.revoked.pop()
    });
    assert_eq!(wanted.len(), 2);
    first.release(&wanted);
    first.poll_until("each has one", |first| {
        second.poll();
        // The group may revoke and assign again meanwhile.
        first.release_all();
        second.release_all();
        (first.assigned.len() == 1 && second.assigned.len() == 1).then_some(())
    });
}

#[test]
fn failing_commits_are_answered_by_what_to_do_about_them() {
    use RDKafkaRespErr as Code;
    let cluster = cluster(1);
    let brokers = cluster.bootstrap_servers();
    write_numbers(&brokers, "orders", 0, 0..5);
    let mut driven = join(&brokers);
    driven.poll_records(&orders(0), 5);
    let fails = |driven: &mut Driven, code| {
        cluster.request_errors(RDKafkaApiKey::OffsetCommit, &[code]);
        driven.commit(&orders(0), Progress::up_to(at(2)))
    };
    let too_long = fails(&mut driven, Code::RD_KAFKA_RESP_ERR_OFFSET_METADATA_TOO_LARGE);
    assert_eq!(too_long, Err(CommitError::TooLong));
    let later = fails(&mut driven, Code::RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS);
    assert!(matches!(later, Err(CommitError::Later(_))), "{later:?}");
    driven.commit(&orders(0), Progress::up_to(at(2))).expect("nothing is wrong any more");
    assert_eq!(committed(&brokers, "billing", "orders", 0).map(|(offset, _)| offset), Some(2));
}

#[test]
fn a_member_that_the_group_has_forgotten_is_fenced() {
    let cluster = cluster(1);
    let brokers = cluster.bootstrap_servers();
    write_numbers(&brokers, "orders", 0, 0..5);
    let mut driven = rejoining(&brokers);
    driven.poll_records(&orders(0), 5);
    cluster.request_errors(
        RDKafkaApiKey::OffsetCommit,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID],
    );
    let progress = Progress::up_to(at(5));
    driven.source.commit(vec![ProgressCommit { partition: orders(0), progress }]);
    driven.poll_until("it is told", |driven| (!driven.lost.is_empty()).then_some(()));
    assert!(driven.committed.iter().all(|(_, result)| *result == Err(CommitError::NotOurs)));
    driven.poll_until("it joins again", |driven| driven.assigned.get(&orders(0)).map(|_| ()));
    driven.poll_records(&orders(0), 5);
    assert_eq!(driven.payloads(&orders(0)), Vec::from_iter(0..5), "nothing was committed");
}

#[test]
fn a_partition_that_an_operator_has_paused_goes_on_where_it_was() {
    let cluster = cluster(2);
    let brokers = cluster.bootstrap_servers();
    let source = KafkaSource::join(mocked(&brokers, "orders", "billing")).unwrap();
    let handled = Watched::new(Vec::new());
    let notes = handled.clone();
    let consumer = Consumer::builder(source).threads(2).start(move |attempt: &Attempt| {
        let place = (attempt.partition().number(), attempt.position().get());
        notes.change(|handled| handled.push(place));
        Ok::<_, AttemptFailure>(())
    });
    let consumer = consumer.unwrap();
    // It may not be assigned yet.
    let target = Target::Partition(orders(0));
    assert_eq!(consumer.handle().pause(&target, PATIENCE), Ok(true));
    write_numbers(&brokers, "orders", 0, 0..50);
    write_numbers(&brokers, "orders", 1, 50..60);
    handled.until(|handled| handled.len() == 10);
    assert_eq!(partition_status(&consumer, 0).paused_by, Some(PauseReason::Operator));
    assert!(handled.get().iter().all(|(partition, _)| *partition == 1));
    assert_eq!(consumer.handle().resume(&target, PATIENCE), Ok(true));
    handled.until(|handled| handled.len() == 60);
    let mut positions: Vec<_> = handled.get().split_off(10);
    positions.sort_unstable();
    assert_eq!(positions, Vec::from_iter((0..50).map(|position| (0, position))));
    consumer.stop(PATIENCE);
    let (offset, _) = committed(&brokers, "billing", "orders", 0).expect("something is stored");
    assert_eq!(offset, 50);
}

#[test]
fn a_broker_that_is_away_for_a_while_costs_nothing() {
    let cluster = cluster(1);
    let brokers = cluster.bootstrap_servers();
    write_numbers(&brokers, "orders", 0, 0..5);
    let mut driven = join(&brokers);
    driven.poll_records(&orders(0), 5);
    cluster.broker_down(1).unwrap();
    driven.poll_until("a person is told", |driven| (!driven.notices.is_empty()).then_some(()));
    cluster.broker_up(1).unwrap();
    write_numbers(&brokers, "orders", 0, 5..9);
    driven.poll_records(&orders(0), 9);
    assert_eq!(driven.payloads(&orders(0)), Vec::from_iter(0..9));
}

#[test]
fn foreign_metadata_is_refused_with_its_partition_named() {
    let cluster = cluster(1);
    let brokers = cluster.bootstrap_servers();
    crate::kafka_support::commit_by_hand(
        &brokers,
        "billing",
        "orders",
        0,
        3,
        "somebody's own words",
    );
    let mut source = KafkaSource::join(mocked(&brokers, "orders", "billing")).unwrap();
    let error = crate::kafka_support::until("it is refused", || {
        source.poll(Duration::from_millis(50), 1, &mut Vec::new()).err()
    });
    assert!(error.to_string().contains("orders[0]"), "{error}");
}

#[test]
fn a_group_moves_over_from_the_parallel_consumer_without_repeating_what_it_has_done() {
    let cluster = cluster(1);
    let brokers = cluster.bootstrap_servers();
    write_numbers(&brokers, "orders", 0, 0..10);
    // From there on, 4, 6 and 7 are complete.
    crate::kafka_support::commit_by_hand(
        &brokers,
        "billing",
        "orders",
        0,
        3,
        crate::kafka_support::TAKEN_OVER,
    );
    let mut driven = join(&brokers);
    driven.poll_until("it is assigned", |driven| driven.assigned.get(&orders(0)).map(|_| ()));
    let progress = &driven.assigned[&orders(0)].progress;
    let open: Vec<u64> = (0..10).filter(|number| !progress.is_done(at(*number))).collect();
    assert_eq!(open, crate::kafka_support::TAKEN_OVER_OPEN);
}

#[test]
fn wrong_settings_are_named() {
    let unknown = ClientSettings::new("localhost:1").set("no.such.setting", "1");
    let error = KafkaSource::join(KafkaSettings::new(unknown, ["orders"], "billing")).unwrap_err();
    let error = std::error::Error::source(&error).expect("it has a cause").to_string();
    assert!(error.contains("no.such.setting"), "{error}");
    let none: [&str; 0] = [];
    KafkaSource::join(KafkaSettings::new(ClientSettings::new("localhost:1"), none, "billing"))
        .unwrap_err();
}
