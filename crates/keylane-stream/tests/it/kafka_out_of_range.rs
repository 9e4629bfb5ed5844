//! Positions that a real broker no longer has: removed by retention, set by an administrator, or
//! lost from the end of its log.
//!
//! Skipped without Java or the broker's jar files; `.ci/kafka-jars` fetches those.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::kafka_support::{
    Driven, PATIENCE, at, commit_by_hand, committed, create_topic, delete_records, end_of,
    settings, write_numbers,
};
use keylane_stream::kafka::{ClientSettings, KafkaSettings, RebalanceProtocol, StartFrom};
use keylane_stream::source::{Partition, Source as _};
use keylane_stream::tracker::Progress;
use keylane_testkit::{Broker, or_skip};

/// Returns the address of a broker that several tests share without disturbing it. It ends with the
/// process.
fn shared() -> Option<String> {
    static BROKER: OnceLock<Option<Broker>> = OnceLock::new();
    let patient = [("group.consumer.session.timeout.ms", "45000")];
    let broker = BROKER.get_or_init(|| or_skip(Broker::start_with(&patient)));
    broker.as_ref().map(Broker::address)
}

fn partition(topic: &str) -> Partition {
    Partition::new(topic, 0)
}

fn out_of_range(brokers: &str, name: &str, out_of_range: StartFrom) -> KafkaSettings {
    KafkaSettings { out_of_range, ..settings(brokers, name, name) }
}

/// Creates a topic of 100 records, of which 10 are completed and 30 removed.
fn with_a_gap(brokers: &str, name: &str) {
    create_topic(brokers, name, 1);
    write_numbers(brokers, name, 0, 0..100);
    commit_by_hand(brokers, name, name, 0, 10, "");
    delete_records(brokers, name, 0, 30);
}

#[test]
fn records_that_retention_has_removed_end_the_source_with_the_remedy() {
    let Some(brokers) = shared() else { return };
    let name = "gap-refused";
    with_a_gap(&brokers, name);
    let mut driven = Driven::join(&brokers, name, name);
    let error = driven.poll_to_the_end();
    for part in
        ["gap-refused[0] begins at 30", "10 would have been next", "20 records", "--out-of-range"]
    {
        assert!(error.contains(part), "{error}");
    }
    assert!(driven.payloads(&partition(name)).is_empty());
    driven.source.close(PATIENCE).expect("it leaves");
    assert_eq!(committed(&brokers, name, name, 0).map(|(offset, _)| offset), Some(10));
}

/// Checks that a consumer continues after the gap, and again after the next records.
fn goes_on_behind_a_gap(brokers: &str, settings: KafkaSettings, name: &str) {
    with_a_gap(brokers, name);
    let mut driven = Driven::with(settings);
    driven.poll_records(&partition(name), 70);
    assert_eq!(driven.payloads(&partition(name)), (30..100).collect::<Vec<_>>());
    assert_eq!(driven.missed, 20);
    let told = driven.notices.iter().filter(|notice| notice.contains("20 records"));
    assert_eq!(told.count(), 1, "{:?}", driven.notices);
    driven.commit(&partition(name), Progress::up_to(at(100))).expect("it is stored");
    write_numbers(brokers, name, 0, 100..110);
    driven.poll_records(&partition(name), 80);
    assert_eq!(driven.payloads(&partition(name)), (30..110).collect::<Vec<_>>());
}

#[test]
fn records_that_retention_has_removed_are_passed_over_and_counted_on_demand() {
    let Some(brokers) = shared() else { return };
    let name = "gap-first";
    goes_on_behind_a_gap(&brokers, out_of_range(&brokers, name, StartFrom::First), name);
}

#[test]
fn records_removed_by_retention_with_the_broker_protocol() {
    let Some(brokers) = shared() else { return };
    let name = "gap-first-848";
    let settings = out_of_range(&brokers, name, StartFrom::First);
    let client = ClientSettings::new(&*brokers);
    goes_on_behind_a_gap(
        &brokers,
        KafkaSettings { client, protocol: RebalanceProtocol::Broker, ..settings },
        name,
    );
}

#[test]
fn records_removed_by_retention_with_the_eager_protocol() {
    let Some(brokers) = shared() else { return };
    let name = "gap-first-range";
    let settings = out_of_range(&brokers, name, StartFrom::First);
    let client = settings.client.clone().set("partition.assignment.strategy", "range");
    goes_on_behind_a_gap(&brokers, KafkaSettings { client, ..settings }, name);
}

#[test]
fn a_member_that_wants_the_last_records_goes_on_behind_them() {
    let Some(brokers) = shared() else { return };
    let name = "gap-last";
    with_a_gap(&brokers, name);
    let mut driven = Driven::with(out_of_range(&brokers, name, StartFrom::Last));
    driven.poll_until("it goes on at the end", |driven| {
        (driven.reached.get(&partition(name)) == Some(&at(100))).then_some(())
    });
    write_numbers(&brokers, name, 0, 100..105);
    driven.poll_records(&partition(name), 5);
    assert_eq!(driven.payloads(&partition(name)), (100..105).collect::<Vec<_>>());
    assert_eq!(driven.missed, 90);
}

#[test]
fn a_group_that_was_set_beyond_the_end_ends_or_goes_on_there() {
    let Some(brokers) = shared() else { return };
    let name = "beyond";
    create_topic(&brokers, name, 1);
    write_numbers(&brokers, name, 0, 0..50);
    commit_by_hand(&brokers, name, name, 0, 900, "");
    let mut refused = Driven::join(&brokers, name, name);
    let error = refused.poll_to_the_end();
    assert!(error.contains("truncated to 50") && error.contains("--out-of-range"), "{error}");
    refused.source.close(PATIENCE).expect("it leaves");

    let mut driven = Driven::with(out_of_range(&brokers, name, StartFrom::First));
    driven.poll_until("it begins at the end", |driven| {
        driven.assigned.get(&partition(name)).filter(|a| a.progress.watermark() == at(50)).map(drop)
    });
    write_numbers(&brokers, name, 0, 50..60);
    driven.poll_records(&partition(name), 10);
    driven.commit(&partition(name), Progress::up_to(at(60))).expect("it is stored");
    assert_eq!(committed(&brokers, name, name, 0).map(|(offset, _)| offset), Some(60));
}

/// Broker that lost the records of a partition from `kept` on, in its log file.
struct Forgetful {
    broker: Broker,
    log: PathBuf,
    /// Size of the log file with only the remaining records.
    kept: u64,
}

impl Forgetful {
    /// Starts with a topic of `all` records, of which `kept` will remain.
    fn start(topic: &str, (kept, all): (u64, u64)) -> Option<Self> {
        let broker = or_skip(Broker::start())?;
        let brokers = broker.address();
        create_topic(&brokers, topic, 1);
        write_numbers(&brokers, topic, 0, 0..kept);
        let log = log_of(broker.directory(), &format!("{topic}-0"));
        let length = fs::metadata(&log).expect("it is there").len();
        write_numbers(&brokers, topic, 0, kept..all);
        Some(Forgetful { broker, log, kept: length })
    }

    /// Kills the broker, truncates its log, and restarts it.
    fn forget(&mut self) {
        self.broker.kill();
        let file = fs::OpenOptions::new().write(true).open(&self.log).expect("it is there");
        file.set_len(self.kept).expect("it can be cut");
        // The broker rebuilds the indexes from the log.
        for index in ["index", "timeindex"] {
            fs::remove_file(self.log.with_extension(index)).expect("it is there");
        }
        self.broker.restart();
    }
}

/// Returns the path of a partition's first segment.
fn log_of(folder: &Path, partition: &str) -> PathBuf {
    let entries = fs::read_dir(folder).expect("it is a folder").map(|entry| entry.unwrap().path());
    let mut folders: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    while let Some(folder) = folders.pop() {
        if folder.ends_with(partition) {
            return folder.join("00000000000000000000.log");
        }
        let inside =
            fs::read_dir(&folder).expect("it is a folder").map(|entry| entry.unwrap().path());
        folders.extend(inside.filter(|path| path.is_dir()));
    }
    panic!("the broker has no folder {partition}");
}

#[test]
fn a_log_that_was_cut_and_grew_again_is_told_by_its_leader_epochs() {
    let name = "regrown";
    let Some(mut forgetful) = Forgetful::start(name, (20, 50)) else { return };
    let brokers = forgetful.broker.address();
    let mut driven = Driven::join(&brokers, name, name);
    driven.poll_records(&partition(name), 50);
    driven.commit(&partition(name), Progress::up_to(at(40))).expect("it is stored");
    driven.source.close(PATIENCE).expect("it leaves");
    forgetful.forget();
    assert_eq!(end_of(&brokers, name, 0), 20);
    // Beyond the group's position.
    write_numbers(&brokers, name, 0, 1_020..1_080);

    let mut refused = Driven::join(&brokers, name, name);
    let error = refused.poll_to_the_end();
    assert!(error.contains("truncated to 20") && error.contains("--out-of-range"), "{error}");
    assert!(refused.payloads(&partition(name)).is_empty());
    refused.source.close(PATIENCE).expect("it leaves");

    let mut driven = Driven::with(out_of_range(&brokers, name, StartFrom::First));
    driven.poll_records(&partition(name), 60);
    assert_eq!(driven.payloads(&partition(name)), (1_020..1_080).collect::<Vec<_>>());
}

#[test]
fn a_map_of_a_log_that_was_cut_above_the_watermark_is_not_believed() {
    let name = "regrown-map";
    let Some(mut forgetful) = Forgetful::start(name, (20, 50)) else { return };
    let brokers = forgetful.broker.address();
    let mut driven = Driven::join(&brokers, name, name);
    driven.poll_records(&partition(name), 50);
    // All records but 10 and 30 are complete.
    let done = Progress::with_map(at(10), at(50), vec![at(30)]);
    driven.commit(&partition(name), done).expect("it is stored");
    driven.source.close(PATIENCE).expect("it leaves");
    let (_, text) = committed(&brokers, name, name, 0).expect("it is there");
    assert!(text.starts_with("KL2:"), "{text}");
    forgetful.forget();
    write_numbers(&brokers, name, 0, 1_020..1_080);

    let mut driven = Driven::with(out_of_range(&brokers, name, StartFrom::First));
    driven.poll_until("it begins again", |driven| {
        let assigned = driven.assigned.get(&partition(name))?;
        (assigned.progress == Progress::up_to(at(10))).then_some(())
    });
    driven.poll_records(&partition(name), 70);
    let expected: Vec<u64> = (10..20).chain(1_020..1_080).collect();
    assert_eq!(driven.payloads(&partition(name)), expected);
    let told = driven.notices.iter().any(|notice| notice.contains("truncated to 20"));
    assert!(told, "{:?}", driven.notices);
}

#[test]
fn a_log_that_is_cut_and_grows_again_under_a_member_is_told() {
    let name = "regrown-live";
    let Some(mut forgetful) = Forgetful::start(name, (20, 50)) else { return };
    let brokers = forgetful.broker.address();
    let mut driven = Driven::with(out_of_range(&brokers, name, StartFrom::First));
    driven.poll_records(&partition(name), 50);
    driven.commit(&partition(name), Progress::up_to(at(40))).expect("it is stored");
    forgetful.forget();
    write_numbers(&brokers, name, 0, 1_020..1_080);
    driven.poll_until("what is new has come", |driven| {
        driven.payloads(&partition(name)).ends_with(&[1_078, 1_079]).then_some(())
    });
    assert!(driven.payloads(&partition(name)).starts_with(&[1_020, 1_021]), "{}", driven.say());
    assert_eq!(driven.payloads(&partition(name)).len(), 60);
}
