//! Exactly-once delivery between topics: the committed output has one result for each record, in
//! order per key, whatever process is killed or stopped.

use std::collections::HashMap;
use std::env;
use std::io::{self, Read as _};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use crate::consuming::Dice;
use crate::kafka_support::{
    Driven, admin, committed, create_copied_topic, create_topic, end_of, fleeting, settings, until,
    wait, write,
};
use keylane_stream::consumer::{Attempt, AttemptFailure, Consumer, ConsumerBuilder, StopReason};
use keylane_stream::kafka::{ClientSettings, KafkaSettings, KafkaSource, RebalanceProtocol};
use keylane_stream::retry::{Backoff, Jitter, OnExhausted, RetryLimit, RetryPolicy, RetryRule};
use keylane_stream::{Partition, Record};
use keylane_testkit::{Broker, or_skip};
use rdkafka::admin::{AdminOptions, NewTopic, TopicReplication};
use rustix::process::{Pid, Signal, kill_process};

const ORDERS: &str = "orders";
const BILLS: &str = "bills";
const PARTITIONS: u32 = 4;
const KEYS: u64 = 24;

/// Variables with the brokers of a child, and with its group protocol. Set only for children.
const BROKERS: &str = "KEYLANE_TEST_BROKERS";
const PROTOCOL: &str = "KEYLANE_TEST_PROTOCOL";

/// Settings with which a broker soon notices the end of a producer.
const SOON: [(&str, &str); 1] =
    [("transaction.abort.timed.out.transaction.cleanup.interval.ms", "200")];

fn broker() -> Option<Broker> {
    let broker = or_skip(Broker::start_with(&SOON))?;
    create_topic(&broker.address(), ORDERS, PARTITIONS as i32);
    create_topic(&broker.address(), BILLS, 3);
    Some(broker)
}

/// Starts two brokers, which both have a replica of every partition.
fn brokers() -> Option<[Broker; 2]> {
    let brokers = or_skip(Broker::start_pair(&SOON))?;
    create_copied_topic(&brokers[0].address(), ORDERS, PARTITIONS as i32, 2);
    create_copied_topic(&brokers[0].address(), BILLS, 3, 2);
    Some(brokers)
}

fn member(brokers: &str) -> KafkaSettings {
    member_of("copiers", brokers)
}

/// Returns the settings of a member whose transactions do not time out on a busy machine. Records
/// of a transaction that times out are handled again.
fn member_of(group: &str, brokers: &str) -> KafkaSettings {
    let settings = settings(brokers, ORDERS, group);
    let client = settings.client.set("transaction.timeout.ms", "30000");
    KafkaSettings { client, ..settings }
}

/// Returns the settings of a member whose death is noticed soon.
fn fleeting_member(brokers: &str) -> KafkaSettings {
    let settings = fleeting(brokers, ORDERS, "copiers");
    let client = settings.client.set("transaction.timeout.ms", "3000");
    KafkaSettings { client, ..settings }
}

/// As above, with the protocol in which the broker assigns partitions and sets the timeouts.
fn member_by_broker(brokers: &str) -> KafkaSettings {
    let client = ClientSettings::new(brokers).set("transaction.timeout.ms", "3000");
    KafkaSettings {
        client,
        protocol: RebalanceProtocol::Broker,
        ..settings(brokers, ORDERS, "copiers")
    }
}

/// Writes numbers from `from` on to each partition; each key belongs to one partition.
fn write_orders(brokers: &str, from: u64, count: u64) {
    for partition in 0..u64::from(PARTITIONS) {
        let numbered = (from..from + count).map(|number| {
            let key = partition + u64::from(PARTITIONS) * (number % (KEYS / u64::from(PARTITIONS)));
            (key.to_string(), number.to_string())
        });
        let numbered: Vec<_> = numbered.collect();
        let records: Vec<_> = numbered.iter().map(|(key, text)| (&key[..], &text[..])).collect();
        write(brokers, ORDERS, partition as i32, &records);
    }
}

/// Returns the number of output records for a record.
fn copies(number: u64) -> usize {
    [1, 1, 0, 2, 1][number as usize % 5]
}

fn expected(count: u64) -> HashMap<String, Vec<u64>> {
    let mut keys: HashMap<String, Vec<u64>> = HashMap::new();
    for partition in 0..u64::from(PARTITIONS) {
        for number in 0..count {
            let key = partition + u64::from(PARTITIONS) * (number % (KEYS / u64::from(PARTITIONS)));
            keys.entry(key.to_string()).or_default().extend(vec![number; copies(number)]);
        }
    }
    keys
}

/// Returns the committed numbers of each key in the output.
fn bills(brokers: &str) -> HashMap<String, Vec<u64>> {
    let mut keys: HashMap<String, Vec<u64>> = HashMap::new();
    let text = |bytes: bytes::Bytes| String::from_utf8(bytes.into()).expect("it is text");
    for record in written(brokers) {
        let key = text(record.key.expect("it has one"));
        keys.entry(key).or_default().push(text(record.payload.unwrap()).parse().unwrap());
    }
    keys
}

/// Returns all committed records of the output.
fn written(brokers: &str) -> Vec<Record> {
    let mut driven = Driven::join(brokers, BILLS, "readers");
    let all: Vec<_> = (0..3).map(|number| Partition::new(BILLS, number)).collect();
    let end = |partition: &Partition| end_of(brokers, BILLS, partition.number() as i32) as u64;
    let ends: Vec<_> = all.iter().map(end).collect();
    driven.poll_until("the output is read to its end", |driven| {
        let is_read = |(partition, end): (&Partition, &u64)| {
            let reached = driven.reached.get(partition);
            *end == 0 || reached.is_some_and(|reached| reached.get() >= *end)
        };
        all.iter().zip(&ends).all(is_read).then_some(())
    });
    let delivered = all.iter().flat_map(|it| driven.records.remove(it).unwrap_or_default());
    delivered.map(|delivered| delivered.record).collect()
}

fn create_topic_with(brokers: &str, topic: &str, settings: &[(&str, &str)]) {
    let new = NewTopic::new(topic, 1, TopicReplication::Fixed(1));
    let new = settings.iter().fold(new, |new, (name, value)| new.set(name, value));
    let made = wait(admin(brokers).create_topics(&[new], &AdminOptions::new()));
    made.expect("the broker answers")[0].as_ref().expect("the topic is made");
}

fn wait_until_all_is_done(brokers: &str, count: u64) {
    for partition in 0..PARTITIONS as i32 {
        until("all is done, and stored", || {
            let (offset, _) = committed(brokers, "copiers", ORDERS, partition)?;
            (offset as u64 == count).then_some(())
        });
    }
}

fn builder(source: KafkaSource) -> ConsumerBuilder {
    let wait = Duration::from_millis(1);
    let backoff = Backoff { first: wait, factor: 1, max: wait, jitter: Jitter::Full };
    let rule =
        RetryRule { limit: RetryLimit::attempts(50), backoff, on_exhausted: OnExhausted::Stop };
    Consumer::builder(source)
        .threads(8)
        .commit(Duration::from_millis(50), 1_000)
        .retry(RetryPolicy::new(rule).expect("it makes sense"), |_| ())
}

/// Returns a handler that copies records; some attempts take longer, and some fail.
fn copier(seed: u64) -> impl Fn(&Attempt) -> Result<Vec<Record>, AttemptFailure> + Send + Sync {
    let dice = Mutex::new(Dice(seed));
    move |attempt| {
        let roll = dice.lock().expect("no holder panics").roll(1_000);
        thread::sleep(Duration::from_micros(roll));
        match roll % 20 {
            0 => Err(AttemptFailure::from("not this time")),
            _ => Ok(vec![attempt.record().clone(); copies(crate::consuming::number(attempt))]),
        }
    }
}

#[test]
fn output_becomes_visible_with_the_progress() {
    let Some(broker) = broker() else { return };
    let brokers = broker.address();
    write_orders(&brokers, 0, 500);
    let (source, output) = KafkaSource::join_exactly_once(member(&brokers), BILLS).unwrap();
    let consumer = builder(source).start_producing(output, copier(1)).unwrap();
    wait_until_all_is_done(&brokers, 500);
    let ended = consumer.stop(Duration::from_secs(20));
    assert_eq!(ended.counts.handled, 500 * u64::from(PARTITIONS));
    assert_eq!(bills(&brokers), expected(500));
}

#[test]
fn a_broker_that_is_killed_in_the_middle_leaves_one_result_for_each_record() {
    // Two brokers, as Kafka itself breaks this guarantee if a partition has no leader while a
    // transaction ends: it takes the partition for deleted and omits the marker (4.3,
    // TransactionMarkerChannelManager), so the next marker decides.
    let Some([first, mut second]) = self::brokers() else { return };
    let brokers = first.address();
    write_orders(&brokers, 0, 1_500);
    let member = fleeting_member(&brokers);
    let (source, output) = KafkaSource::join_exactly_once(member, BILLS).unwrap();
    let consumer = builder(source).start_producing(output, copier(2)).unwrap();
    let handled = |least: u64| {
        until("some are handled", || (consumer.status()?.counts.handled > least).then_some(()));
    };
    handled(500);
    second.kill();
    // The first broker leads the partitions of the second as soon as it has noticed the failure.
    handled(1_000);
    second.restart();
    wait_until_all_is_done(&brokers, 1_500);
    consumer.stop(Duration::from_secs(20));
    assert_eq!(bills(&brokers), expected(1_500));
}

#[test]
fn output_that_is_too_large_is_a_failed_attempt_if_the_client_knows_and_else_the_end() {
    let Some(broker) = broker() else { return };
    let brokers = broker.address();
    write_orders(&brokers, 0, 20);
    let large = |attempt: &Attempt| {
        let number = crate::consuming::number(attempt);
        let mut dice = Dice(number);
        // Random bytes, which do not compress.
        let payload = (0..if number == 7 { 5_000 } else { 1 }).map(|_| dice.roll(256) as u8);
        let payload = Some(payload.collect());
        let large = Record { payload, ..attempt.record().clone() };
        Ok::<_, AttemptFailure>(vec![attempt.record().clone(), large])
    };
    let start = |settings, output| {
        let (source, output) = KafkaSource::join_exactly_once(settings, output).unwrap();
        let once = RetryRule {
            limit: RetryLimit::attempts(1),
            on_exhausted: OnExhausted::Skip,
            ..RetryRule::default()
        };
        let policy = RetryPolicy::new(once).unwrap();
        builder(source).retry(policy, |_| ()).start_producing(output, large).unwrap()
    };
    // The limit of the topic is below that of the client.
    create_topic_with(&brokers, "small", &[("max.message.bytes", "2000")]);
    // In another group, as the records that were written before are complete in the first.
    let ended = start(member_of("others", &brokers), "small").wait();
    assert!(matches!(ended.reason, StopReason::Source(_)), "{}", ended.reason);

    let settings = member(&brokers);
    let client = settings.client.set("message.max.bytes", "3000");
    let consumer = start(KafkaSettings { client, ..settings }, BILLS);
    wait_until_all_is_done(&brokers, 20);
    let counts = consumer.stop(Duration::from_secs(20)).counts;
    let partitions = u64::from(PARTITIONS);
    assert_eq!((counts.handled, counts.skipped), (19 * partitions, partitions));
    // No part of the output that was too large, and none of the aborted transactions.
    let written = written(&brokers);
    assert_eq!(written.len() as u64, 2 * 19 * partitions);
    assert!(!written.iter().any(|record| record.payload() == b"7"));
}

#[test]
fn conflicting_client_settings_are_refused() {
    let settings = settings("localhost:1", ORDERS, "copiers");
    for (name, value) in [("isolation.level", "read_uncommitted"), ("transactional.id", "mine")] {
        let client = settings.client.clone().set(name, value);
        let settings = KafkaSettings { client, ..settings.clone() };
        let refused = KafkaSource::join_exactly_once(settings, BILLS).map(drop);
        assert!(refused.unwrap_err().to_string().contains(name), "{name}");
    }
}

/// A consumer in its own process.
struct Member(Child);

impl Member {
    fn start(brokers: &str, protocol: &str) -> Self {
        let child = Command::new(env::current_exe().expect("a test has a path"))
            .args(["--exact", "kafka_exactly_once::copies_until_its_input_ends", "--nocapture"])
            .env(BROKERS, brokers)
            .env(PROTOCOL, protocol)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn();
        Member(child.expect("a test can start itself"))
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("it has an id"), signal).expect("it is ours, and not reaped");
    }

    /// Kills the process with `kill -9`.
    fn kill(mut self) {
        self.0.kill().expect("it is ours");
        self.0.wait().expect("it is ours");
    }

    /// Stops the process, and waits until it has left the group.
    fn leave(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().expect("it is ours").success());
    }
}

/// Body of a child process, not a test of its own.
#[test]
fn copies_until_its_input_ends() {
    let Ok(brokers) = env::var(BROKERS) else { return };
    let settings = match env::var(PROTOCOL).expect("a child has both").as_str() {
        "broker" => member_by_broker(&brokers),
        _ => fleeting_member(&brokers),
    };
    let (source, output) = KafkaSource::join_exactly_once(settings, BILLS).unwrap();
    let seed = u64::from(std::process::id());
    let consumer = builder(source)
        .on_event(move |notice| eprintln!("{seed}: {notice}"))
        .start_producing(output, copier(seed))
        .unwrap();
    io::stdin().read_to_end(&mut Vec::new()).expect("it is a pipe");
    let ended = consumer.stop(Duration::from_secs(20));
    eprintln!("{seed}: {:?} {}", ended.counts, ended.reason);
}

/// Returns the number of kills.
fn kills() -> u64 {
    env::var("KEYLANE_KILLS").ok().map_or(6, |kills| kills.parse().expect("it is a number"))
}

#[test]
fn g11_members_that_are_killed_and_a_zombie_leave_one_result_for_each_record() {
    storm("cooperative");
}

#[test]
fn g11_so_they_do_under_the_brokers_own_protocol() {
    storm("broker");
}

fn storm(protocol: &str) {
    let Some(broker) = broker() else { return };
    let brokers = broker.address();
    let mut written = 0;
    let mut write_more = |count| {
        write_orders(&brokers, written, count);
        written += count;
        written
    };
    let mut dice = Dice(7);
    write_more(200);
    let mut members: Vec<_> = (0..3).map(|_| Member::start(&brokers, protocol)).collect();
    for round in 0..kills() {
        let seen = end_of(&brokers, BILLS, 0);
        write_more(100 + dice.roll(100));
        // Killed in the middle of its work, wherever that is.
        until("output is written", || (end_of(&brokers, BILLS, 0) > seen).then_some(()));
        thread::sleep(Duration::from_millis(dice.roll(150)));
        let index = dice.roll(3) as usize;
        if round % 3 == 2 {
            // The group removes the suspended member; then the member resumes with its old records.
            let zombie = &members[index];
            zombie.signal(Signal::STOP);
            wait_until_all_is_done(&brokers, write_more(50));
            zombie.signal(Signal::CONT);
        } else {
            members.swap_remove(index).kill();
            members.push(Member::start(&brokers, protocol));
        }
    }
    let written = write_more(100);
    wait_until_all_is_done(&brokers, written);
    members.into_iter().for_each(Member::leave);
    assert_eq!(bills(&brokers), expected(written));
}
