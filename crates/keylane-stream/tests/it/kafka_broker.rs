//! The Kafka source on a real broker: behaviour that a mock cluster lacks or simplifies.
//!
//! Skipped without Java or the broker's jar files; `.ci/kafka-jars` fetches those.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use crate::kafka_support::{
    Driven, PATIENCE, at, commit_by_hand, committed, create_topic, delete_topic, fleeting,
    settings, try_commit_by_hand, until, write_numbers,
};
use keylane_stream::Record;
use keylane_stream::consumer::{Attempt, AttemptFailure, Consumer};
use keylane_stream::kafka::{
    ClientSettings, KafkaSettings, KafkaSink, KafkaSource, OffsetMapVersion, RebalanceProtocol,
    RecreatedTopic, lag,
};
use keylane_stream::source::{CommitError, Partition, ProgressCommit, Source as _};
use keylane_stream::tracker::Progress;
use keylane_testkit::{Broker, or_skip};
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseRecord, Producer as _, ThreadedProducer};
use rdkafka::types::RDKafkaErrorCode;

/// Returns the address of a broker that several tests share without disturbing it. It ends with the
/// process.
fn shared() -> Option<String> {
    static BROKER: OnceLock<Option<Broker>> = OnceLock::new();
    // Under its own protocol the broker sets the session timeout: long enough for a busy machine.
    let patient = [("group.consumer.session.timeout.ms", "45000")];
    let broker = BROKER.get_or_init(|| or_skip(Broker::start_with(&patient)));
    broker.as_ref().map(Broker::address)
}

fn partition(topic: &str) -> Partition {
    Partition::new(topic, 0)
}

/// Joins with a topic and a group of the same name.
fn join(brokers: &str, name: &str) -> Driven {
    Driven::join(brokers, name, name)
}

/// Returns a progress whose map has `length` characters, beside the watermark 0.
fn map_of(length: usize) -> Progress {
    let maps = (1..).map(|count| {
        // Each gap of one completed position takes the same number of bits.
        let open = (1..count).map(|number| at(2 * number)).collect();
        Progress::with_map(at(0), at(2 * count), open)
    });
    let id = [0; 20];
    maps.take_while(|map| map.encode_with_epoch(&id, 0).len() <= length)
        .last()
        .expect("a short one fits")
}

#[test]
fn g5_the_longest_map_that_a_broker_takes_comes_back_as_it_was() {
    let Some(brokers) = shared() else { return };
    let name = "longest-map";
    create_topic(&brokers, name, 1);
    write_numbers(&brokers, name, 0, 0..1);
    let progress = map_of(4096);
    let mut first = join(&brokers, name);
    first.poll_records(&partition(name), 1);
    first.commit(&partition(name), progress.clone()).expect("it fits");
    let lag = lag(&ClientSettings::new(&*brokers), name, name).expect("the broker answers");
    assert_eq!(
        (lag.len(), lag[0].committed, lag[0].highest_done),
        (1, Some(at(0)), Some(progress.end()))
    );
    let (_, text) = committed(&brokers, name, name, 0).expect("it is there");
    assert!(text.len() > 4090 && text.len() <= 4096, "{} characters", text.len());
    first.source.close(PATIENCE).expect("it leaves");

    let mut second = join(&brokers, name);
    second.poll_until("it is assigned", |driven| driven.assigned.get(&partition(name)).map(|_| ()));
    assert_eq!(second.assigned[&partition(name)].progress, progress);

    // Precondition of this test: the broker enforces the limit.
    second.source.close(PATIENCE).expect("it leaves");
    try_commit_by_hand(&brokers, name, name, 0, 0, &"x".repeat(4096)).expect("it fits");
    let refused = try_commit_by_hand(&brokers, name, name, 0, 0, &"x".repeat(4097));
    assert_eq!(refused, Err(RDKafkaErrorCode::OffsetMetadataTooLarge));
}

#[test]
fn g5_a_broker_that_takes_less_says_so_and_a_shorter_map_is_kept() {
    let less = [("offset.metadata.max.bytes", "64")];
    let Some(broker) = or_skip(Broker::start_with(&less)) else { return };
    let (brokers, name) = (broker.address(), "short-map");
    create_topic(&brokers, name, 1);
    write_numbers(&brokers, name, 0, 0..1);
    let mut driven = join(&brokers, name);
    driven.poll_records(&partition(name), 1);
    let long = driven.commit(&partition(name), map_of(200));
    assert_eq!(long, Err(CommitError::TooLong));
    let short = map_of(60);
    driven.commit(&partition(name), short.clone()).expect("it fits");
    let (_, text) = committed(&brokers, name, name, 0).expect("it is there");
    assert!(text.len() <= 64, "{text}");
}

#[test]
fn g5_foreign_metadata_is_refused_or_taken_over() {
    let Some(brokers) = shared() else { return };
    let name = "foreign";
    create_topic(&brokers, name, 1);
    write_numbers(&brokers, name, 0, 0..10);
    commit_by_hand(&brokers, name, name, 0, 3, "not a map of anybody's");
    let mut source = KafkaSource::join(settings(&brokers, name, name)).unwrap();
    let error =
        until("it is refused", || source.poll(Duration::from_millis(50), 1, &mut Vec::new()).err());
    assert!(error.to_string().contains("foreign[0]"), "{error}");
    source.close(PATIENCE).expect("it leaves");

    commit_by_hand(&brokers, name, name, 0, 3, crate::kafka_support::TAKEN_OVER);
    let mut driven = join(&brokers, name);
    driven.poll_records(&partition(name), 7);
    let progress = driven.assigned[&partition(name)].progress.clone();
    let open: Vec<u64> = driven.payloads(&partition(name));
    let open: Vec<u64> = open.into_iter().filter(|number| !progress.is_done(at(*number))).collect();
    assert_eq!(open, crate::kafka_support::TAKEN_OVER_OPEN);
    // The next commit replaces the text with a map.
    driven.commit(&partition(name), progress).expect("it is stored");
    let (offset, text) = committed(&brokers, name, name, 0).expect("it is there");
    assert!(offset == 3 && text.starts_with("KL2:"), "{text}");
}

/// Returns the leader epoch and the map of a group's committed offset, for the first partition of a
/// topic.
fn beside(brokers: &str, name: &str) -> (i64, String) {
    committed(brokers, name, name, 0).expect("it is there")
}

#[test]
fn members_are_upgraded_one_by_one_from_the_first_version_of_the_map() {
    let Some(brokers) = shared() else { return };
    let name = "upgrade";
    create_topic(&brokers, name, 2);
    write_numbers(&brokers, name, 0, 0..40);
    let version = |map_version| KafkaSettings { map_version, ..settings(&brokers, name, name) };
    let done = |end| Progress::with_map(at(10), at(end), vec![at(12)]);

    // Committed by a version that knows only KL1.
    let mut old = Driven::with(version(OffsetMapVersion::One));
    old.poll_records(&partition(name), 40);
    old.commit(&partition(name), done(20)).expect("it is stored");
    assert!(beside(&brokers, name).1.starts_with("KL1:"));

    // One of two members is upgraded and gets the partition: it reads KL1, and writes it for the
    // other one.
    let mut new = Driven::with(version(OffsetMapVersion::One));
    let moves = |from: &mut Driven, to: &mut Driven| {
        from.source.close(PATIENCE).expect("it leaves");
        to.poll_until("it has the partition", |to| to.assigned.get(&partition(name)).map(drop));
        to.assigned[&partition(name)].progress.clone()
    };
    assert_eq!(moves(&mut old, &mut new), done(20));
    new.poll_records(&partition(name), 30);
    new.commit(&partition(name), done(30)).expect("it is stored");
    assert!(beside(&brokers, name).1.starts_with("KL1:"));
    let mut old = Driven::with(version(OffsetMapVersion::One));
    assert_eq!(moves(&mut new, &mut old), done(30));

    // When no member is left that knows only KL1, the others are restarted with KL2, one by one.
    let mut newest = Driven::with(version(OffsetMapVersion::Two));
    assert_eq!(moves(&mut old, &mut newest), done(30));
    newest.poll_records(&partition(name), 30);
    newest.commit(&partition(name), done(40)).expect("it is stored");
    assert!(beside(&brokers, name).1.starts_with("KL2:"));
    let mut back = Driven::with(version(OffsetMapVersion::One));
    assert_eq!(moves(&mut newest, &mut back), done(40));
}

#[test]
fn g3_what_was_aborted_is_no_record_and_the_end_is_reached_all_the_same() {
    let Some(brokers) = shared() else { return };
    let name = "transactions";
    create_topic(&brokers, name, 1);
    let producer: ThreadedProducer<_> = ClientConfig::new()
        .set("bootstrap.servers", &brokers)
        .set("transactional.id", name)
        .create()
        .expect("a producer starts");
    producer.init_transactions(PATIENCE).expect("the broker takes transactions");
    let transaction = |payload: &str| {
        producer.begin_transaction().expect("none is open");
        producer.send(BaseRecord::to(name).key("k").payload(payload)).expect("there is room");
    };
    transaction("1");
    producer.commit_transaction(PATIENCE).expect("it commits");
    transaction("2");
    // Records that the broker has not received would leave no gap.
    producer.flush(PATIENCE).expect("the broker takes it");
    producer.abort_transaction(PATIENCE).expect("it aborts");
    transaction("3");
    producer.commit_transaction(PATIENCE).expect("it commits");

    let mut driven = join(&brokers, name);
    // Three records, and a marker after each.
    driven.poll_until("the end is reached", |driven| {
        (driven.reached.get(&partition(name)) == Some(&at(6))).then_some(())
    });
    assert_eq!(driven.payloads(&partition(name)), [1, 3]);
}

/// Records of an open transaction are behind the last stable offset, and nothing says how long it
/// stays open.
#[test]
fn a_topic_is_read_to_the_end_before_an_open_transaction() {
    let Some(brokers) = shared() else { return };
    let name = "open-transaction";
    create_topic(&brokers, name, 1);
    write_numbers(&brokers, name, 0, 0..2);
    let producer: ThreadedProducer<_> = ClientConfig::new()
        .set("bootstrap.servers", &brokers)
        .set("transactional.id", name)
        .create()
        .expect("a producer starts");
    producer.init_transactions(PATIENCE).expect("the broker takes transactions");
    producer.begin_transaction().expect("none is open");
    producer.send(BaseRecord::to(name).key("k").payload("2")).expect("there is room");
    producer.flush(PATIENCE).expect("the broker takes it");
    write_numbers(&brokers, name, 0, 3..4);
    let read = || {
        let to_the_end = KafkaSettings { to_the_end: true, ..settings(&brokers, name, name) };
        let mut driven = Driven::with(to_the_end);
        driven.poll_until("it ends", |driven| driven.exhausted.first().map(drop));
        let end = driven.payloads(&partition(name)).len() as u64;
        driven.commit(&partition(name), Progress::up_to(at(end))).expect("it is stored");
        driven.source.close(PATIENCE).expect("it leaves");
        driven.payloads(&partition(name))
    };
    assert_eq!(read(), [0, 1]);
    producer.commit_transaction(PATIENCE).expect("it commits");
    assert_eq!(read(), [2, 3]);
}

#[test]
fn g9_a_broker_that_dies_and_comes_back_costs_neither_records_nor_progress() {
    let Some(mut broker) = or_skip(Broker::start()) else { return };
    let (brokers, name) = (broker.address(), "comes-back");
    create_topic(&brokers, name, 1);
    write_numbers(&brokers, name, 0, 0..100);
    let mut driven = Driven::with(fleeting(&brokers, name, name));
    driven.poll_records(&partition(name), 100);
    let done = Progress::with_map(at(10), at(90), vec![at(40)]);
    driven.commit(&partition(name), done.clone()).expect("it is stored");

    broker.kill();
    // A commit is refused at some time, or the group's session ends before.
    driven.committed.clear();
    let progress = Progress::up_to(at(50));
    driven.source.commit(vec![ProgressCommit { partition: partition(name), progress }]);
    driven.poll_until("it is given up", |driven| {
        (!driven.committed.is_empty() || !driven.lost.is_empty()).then_some(())
    });
    let stored = driven.committed.iter().any(|(_, result)| result.is_ok());
    assert!(!stored, "no member was there to commit");
    broker.restart();
    assert_eq!(committed(&brokers, name, name, 0).map(|(offset, _)| offset), Some(10));
    write_numbers(&brokers, name, 0, 100..110);
    driven.poll_until("the records come, from it or from a new life", |driven| {
        (driven.payloads(&partition(name)).last() == Some(&109)).then_some(())
    });
    driven.poll_until("a commit is stored", |driven| {
        driven.assigned.get(&partition(name))?;
        driven.commit(&partition(name), Progress::up_to(at(110))).ok()
    });
    let from = driven.payloads(&partition(name));
    assert!(
        from.is_sorted_by(|a, b| a + 1 == *b),
        "records are missing, or out of order: {from:?}"
    );
    assert_eq!(committed(&brokers, name, name, 0).map(|(offset, _)| offset), Some(110));
}

/// Checks, under both protocols, that a member releases a partition only after its consumer has
/// done so, and with all progress that it committed meanwhile.
fn hand_over(brokers: &str, name: &str, settings: impl Fn() -> KafkaSettings) {
    create_topic(brokers, name, 2);
    write_numbers(brokers, name, 0, 0..20);
    write_numbers(brokers, name, 1, 0..20);
    let mut first = Driven::with(settings());
    for number in 0..2 {
        first.poll_records(&Partition::new(name, number), 20);
    }
    let mut second = Driven::with(settings());
    first.poll_until("the group wants one back", |first| {
        second.poll();
        first.revoked.first().map(|_| ())
    });
    let wanted = first.revoked.remove(0);
    assert_eq!(wanted.len(), 1, "what need not move stays: {wanted:?}");
    // However long the release takes, no other member gets the partition, and commits succeed.
    for _ in 0..20 {
        first.poll();
        second.poll();
    }
    assert!(second.assigned.is_empty(), "{:?}", second.assigned);
    let done = Progress::with_map(at(5), at(12), vec![at(7)]);
    first.commit(&wanted[0], done.clone()).expect("it is still ours");
    first.source.release(&wanted);
    second.poll_until("the other one has it", |second| {
        first.poll();
        second.assigned.get(&wanted[0]).map(|_| ())
    });
    assert_eq!(second.assigned[&wanted[0]].progress, done);
    second.poll_until("it goes on there", |second| {
        first.poll();
        (second.payloads(&wanted[0]).first() == Some(&5)).then_some(())
    });
    // A commit after the release is refused.
    let refused = first.commit(&wanted[0], Progress::up_to(at(20)));
    assert_eq!(refused, Err(CommitError::NotOurs));
    first.source.close(PATIENCE).expect("it leaves");
    second.poll_until("the last one has both", |second| (second.assigned.len() == 2).then_some(()));
}

#[test]
fn g2_cooperative_members_hand_over_what_is_released_and_nothing_else() {
    let Some(brokers) = shared() else { return };
    let name = "hand-over-cooperative";
    hand_over(&brokers, name, || settings(&brokers, name, name));
}

#[test]
fn g2_members_under_the_brokers_own_protocol_hand_over_what_is_released_and_nothing_else() {
    let Some(brokers) = shared() else { return };
    let name = "hand-over-broker";
    hand_over(&brokers, name, || {
        let client = ClientSettings::new(&*brokers);
        let settings = KafkaSettings::new(client, [name], name);
        KafkaSettings { protocol: RebalanceProtocol::Broker, ..settings }
    });
}

#[test]
fn g4_commits_of_a_group_that_rebalances_again_and_again_are_stored() {
    let Some(brokers) = shared() else { return };
    let name = "rebalances-again";
    create_topic(&brokers, name, 4);
    let source = KafkaSource::join(settings(&brokers, name, name)).unwrap();
    let seen = Arc::new(Mutex::new(HashMap::<(u32, u64), u32>::new()));
    let sees = seen.clone();
    let builder = Consumer::builder(source).threads(2).commit(Duration::from_millis(10), 1);
    let consumer = builder.start(move |attempt: &Attempt| {
        let place = (attempt.partition().number(), attempt.position().get());
        *sees.lock().unwrap().entry(place).or_default() += 1;
        Ok::<_, AttemptFailure>(())
    });
    let consumer = consumer.unwrap();
    let status = || consumer.handle().status(PATIENCE).unwrap();
    until("it has all", || (status().partitions.len() == 4).then_some(()));
    let mut written = 0;
    for _ in 0..2 {
        // The group cannot end its rebalance while a member keeps what it is to give back.
        let mut slow = Driven::with(settings(&brokers, name, name));
        slow.poll_until("it has some", |slow| (!slow.assigned.is_empty()).then_some(()));
        let mut third = Driven::with(settings(&brokers, name, name));
        let mut hold = |slow: &mut Driven, wanted: &mut dyn FnMut(&mut Driven) -> bool| {
            slow.poll_until("the group goes on", |slow| {
                third.poll();
                third.release_all();
                wanted(slow).then_some(())
            });
        };
        hold(&mut slow, &mut |slow| !slow.revoked.is_empty() || status().partitions.len() <= 2);
        (0..4).for_each(|number| write_numbers(&brokers, name, number, written..written + 10));
        written += 10;
        // It has partitions left, and handles their records meanwhile.
        hold(&mut slow, &mut |_| status().partitions.iter().all(|it| it.watermark == at(written)));
        slow.release_all();
        third.source.close(PATIENCE).expect("it leaves");
        slow.poll_until("the group goes on without it", |slow| {
            slow.release_all();
            status().partitions.iter().all(|it| it.committed == at(written)).then_some(())
        });
        slow.source.close(PATIENCE).expect("it leaves");
        until("all is done and stored", || {
            let partitions = status().partitions;
            let is_stored = partitions.iter().all(|it| it.committed == at(written));
            (partitions.len() == 4 && is_stored).then_some(())
        });
    }
    let counts = consumer.stop(PATIENCE).counts;
    assert_eq!((counts.repeated, counts.fenced), (0, 0));
    // None is lost, and none was handled twice.
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len() as u64, 4 * written);
    assert!(seen.values().all(|times| *times == 1), "{seen:?}");
    for number in 0..4 {
        assert_eq!(committed(&brokers, name, name, number).unwrap().0, written.cast_signed());
    }
}

#[test]
fn a_static_member_that_returns_gets_its_partitions_without_a_rebalance() {
    let Some(brokers) = shared() else { return };
    let name = "static-member";
    create_topic(&brokers, name, 2);
    let named = |member: &str| KafkaSettings {
        member: Some(member.to_owned()),
        ..settings(&brokers, name, name)
    };
    let mut stays = Driven::with(named("one"));
    stays.poll_until("it has both", |driven| (driven.assigned.len() == 2).then_some(()));
    let mut goes = Driven::with(named("two"));
    let wanted = stays.poll_until("one is wanted back", |driven| {
        goes.poll();
        driven.revoked.pop()
    });
    stays.source.release(&wanted);
    goes.poll_until("it has it", |driven| {
        stays.poll();
        driven.assigned.get(&wanted[0]).map(|_| ())
    });

    // Dropped without a close: a static member does not leave its group.
    drop(goes);
    let mut back = Driven::with(named("two"));
    back.poll_until("it has it again", |driven| {
        stays.poll();
        driven.assigned.get(&wanted[0]).map(|_| ())
    });
    assert!(stays.revoked.is_empty() && stays.lost.is_empty(), "{}", stays.say());
}

#[test]
fn of_two_members_under_one_name_the_first_is_fenced_for_good() {
    let Some(brokers) = shared() else { return };
    let name = "namesakes";
    create_topic(&brokers, name, 1);
    let named =
        || KafkaSettings { member: Some("one".to_owned()), ..settings(&brokers, name, name) };
    let mut first = Driven::with(named());
    first.poll_until("it has it", |driven| driven.assigned.get(&partition(name)).map(|_| ()));
    let mut second = Driven::with(named());
    let error = until("it is fenced", || {
        second.poll();
        first.source.poll(Duration::from_millis(50), 1, &mut Vec::new()).err()
    });
    let why = std::error::Error::source(&error).expect("it has a cause").to_string();
    assert!(why.contains("fenced") || why.contains("instance"), "{why}");
    second.poll_until("it has it", |driven| driven.assigned.get(&partition(name)).map(|_| ()));
}

#[test]
fn g5_a_topic_that_is_made_again_while_we_are_away_is_read_from_its_first_record() {
    let Some(brokers) = shared() else { return };
    let name = "made-again-away";
    create_topic(&brokers, name, 1);
    write_numbers(&brokers, name, 0, 0..50);
    let mut driven = join(&brokers, name);
    driven.poll_records(&partition(name), 50);
    let done = Progress::with_map(at(10), at(40), vec![at(20)]);
    driven.commit(&partition(name), done.clone()).expect("it is stored");
    let (offset, text) = committed(&brokers, name, name, 0).expect("it is there");
    driven.source.close(PATIENCE).expect("it leaves");

    delete_topic(&brokers, name);
    create_topic(&brokers, name, 1);
    write_numbers(&brokers, name, 0, 1000..1050);
    // Brokers drop the commits of a deleted topic; this restores them, as the harder case.
    commit_by_hand(&brokers, name, name, 0, offset, &text);
    let refuse =
        KafkaSettings { recreated_topic: RecreatedTopic::Refuse, ..settings(&brokers, name, name) };
    let mut source = KafkaSource::join(refuse).unwrap();
    let error =
        until("it is refused", || source.poll(Duration::from_millis(50), 1, &mut Vec::new()).err());
    assert!(error.to_string().contains("deleted and recreated"), "{error}");
    source.close(PATIENCE).expect("it leaves");

    let mut driven = join(&brokers, name);
    driven.poll_records(&partition(name), 50);
    assert_eq!(driven.payloads(&partition(name)), Vec::from_iter(1000..1050));
}

/// A topic is deleted and recreated while a member reads it, with this interval of metadata
/// refreshes.
fn made_again_under_our_feet(name: &str, refresh_ms: &str) {
    let Some(brokers) = shared() else { return };
    create_topic(&brokers, name, 1);
    write_numbers(&brokers, name, 0, 0..50);
    let settings = settings(&brokers, name, name);
    let client = settings.client.clone().set("topic.metadata.refresh.interval.ms", refresh_ms);
    let mut driven = Driven::with(KafkaSettings { client, ..settings });
    driven.poll_records(&partition(name), 50);
    driven.commit(&partition(name), Progress::up_to(at(50))).expect("it is stored");

    delete_topic(&brokers, name);
    create_topic(&brokers, name, 1);
    // More records than before: judged by offsets alone, it would look like the same topic,
    // continued.
    write_numbers(&brokers, name, 0, 1000..1100);
    driven.poll_until("it is read from its first record", |driven| {
        let payloads = driven.payloads(&partition(name));
        (payloads.first() == Some(&1000) && payloads.len() == 100).then_some(())
    });
    let told = driven.notices.iter().filter(|notice| notice.contains("deleted and recreated"));
    assert_eq!(told.count(), 1, "{:?}", driven.notices);
    assert!(!driven.lost.is_empty(), "what was done of the old one still counts: {}", driven.say());
}

#[test]
fn g5_a_topic_that_is_made_again_under_our_feet_is_read_from_its_first_record() {
    made_again_under_our_feet("made-again", "500");
}

#[test]
fn g5_a_topic_that_is_made_again_behind_our_back_is_read_from_its_first_record() {
    made_again_under_our_feet("made-again-unseen", "300000");
}

/// Starts a broker that requires a name and a password.
fn guarded_broker() -> Option<Broker> {
    let module = "org.apache.kafka.common.security.plain.PlainLoginModule required";
    let users = "username=\"broker\" password=\"b\" user_broker=\"b\" user_orders=\"right\"";
    let settings = [
        ("listener.security.protocol.map", "CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT"),
        ("sasl.enabled.mechanisms", "PLAIN"),
        ("sasl.mechanism.inter.broker.protocol", "PLAIN"),
        ("listener.name.plaintext.plain.sasl.jaas.config", &format!("{module} {users};")),
        ("auto.create.topics.enable", "true"),
    ];
    or_skip(Broker::start_with(&settings))
}

#[test]
fn a_name_and_a_password_are_passed_on_and_wrong_ones_end_the_consumer_before_it_has_begun() {
    let Some(broker) = guarded_broker() else { return };
    let client = |password: &str| {
        ClientSettings::new(broker.address())
            .set("security.protocol", "SASL_PLAINTEXT")
            .set("sasl.mechanisms", "PLAIN")
            .set("sasl.username", "orders")
            .set("sasl.password", password)
    };
    let wrong = KafkaSettings::new(client("wrong"), ["guarded"], "billing");
    let mut source = KafkaSource::join(wrong).unwrap();
    let error =
        until("it is refused", || source.poll(Duration::from_millis(50), 1, &mut Vec::new()).err());
    assert_eq!(
        error.to_string(),
        "the brokers refuse this client; check its credentials and permissions"
    );
    let why = std::error::Error::source(&error).expect("it has a cause").to_string();
    assert!(why.to_lowercase().contains("authentication"), "{why}");

    let sink = KafkaSink::new(&client("right")).unwrap();
    sink.send_all("guarded", &[Record::new("key", "1")]).expect("the broker takes it");
    let right = KafkaSettings::new(client("right"), ["guarded"], "billing");
    let mut driven = Driven::with(right);
    driven.poll_records(&partition("guarded"), 1);
}
