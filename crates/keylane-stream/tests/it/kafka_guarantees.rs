//! Guarantees of a consumer on a real broker: order through failures and changes of concurrency
//! (G1), keys and partitions that delay no other, within bounds (G6, G12), many keys that wait for
//! their next attempts (G8), and the same results as from memory and from a mock cluster (G14).
//!
//! docs/guarantees.md names the tests of the other guarantees.

use std::collections::BTreeMap;
use std::env;
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use crate::consuming::{
    Book, Dice, Door, PATIENCE, Watched, eventually, keyed, number, partition_status, quick, status,
};
use crate::kafka_support::{committed, create_topic};
use keylane_stream::consumer::{Attempt, AttemptFailure, Consumer, ConsumerBuilder, PauseReason};
use keylane_stream::kafka::{ClientSettings, KafkaSettings, KafkaSource};
use keylane_stream::memory::MemoryStream;
use keylane_stream::retry::{Backoff, Jitter, OnExhausted, RetryLimit, RetryPolicy, RetryRule};
use keylane_stream::{Position, Record};
use keylane_testkit::{Broker, or_skip};
use rdkafka::ClientConfig;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer as _, ThreadedProducer};
use rustix::time::{ClockId, clock_gettime};

/// Returns the address of the broker that all tests of this file share. It ends with the process.
fn broker() -> Option<String> {
    static BROKER: OnceLock<Option<Broker>> = OnceLock::new();
    let broker = BROKER.get_or_init(|| or_skip(Broker::start()));
    broker.as_ref().map(Broker::address)
}

/// Returns the settings of a member whose session does not end on a busy machine.
fn patient(brokers: &str, topic: &str, group: &str) -> KafkaSettings {
    KafkaSettings::new(ClientSettings::new(brokers), [topic], group)
}

/// Returns the builder of a consumer of a topic, in a group of the same name.
fn builder(brokers: &str, name: &str) -> ConsumerBuilder {
    Consumer::builder(KafkaSource::join(patient(brokers, name, name)).expect("they are right"))
}

/// Writes records to partitions, and waits until they are acknowledged.
fn write(brokers: &str, topic: &str, records: impl IntoIterator<Item = (u32, Record)>) {
    let producer: ThreadedProducer<_> = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("queue.buffering.max.messages", "1000000")
        .create()
        .expect("a producer starts");
    for (partition, record) in records {
        let number = i32::try_from(partition).expect("it is a partition's");
        let to = BaseRecord::<[u8], [u8]>::to(topic).partition(number).payload(record.payload());
        let to = match &record.key {
            Some(key) => to.key(key),
            None => to,
        };
        producer.send(to).map_err(|(error, _)| error).expect("there is room");
    }
    producer.flush(PATIENCE).expect("the broker takes them");
}

/// Returns the number of handled records.
fn handled(consumer: &Consumer) -> u64 {
    status(consumer).counts.handled
}

/// Returns the committed watermark of a partition, for a group of the topic's name.
fn watermark(brokers: &str, name: &str, partition: u32) -> i64 {
    committed(brokers, name, name, partition as i32).map_or(0, |(offset, _)| offset)
}

/// Returns random keys by Zipf's law.
fn zipf(count: u32) -> impl FnMut(&mut Dice) -> u64 {
    let weights: Vec<f64> = (1..=count).map(|rank| f64::from(rank).powf(-1.1)).collect();
    let sum: f64 = weights.iter().sum();
    move |dice| {
        let mut share = dice.roll(1 << 32) as f64 / (1_u64 << 32) as f64 * sum;
        let rank = weights.iter().position(|weight| {
            share -= weight;
            share < 0.0
        });
        rank.unwrap_or(0) as u64
    }
}

/// Returns a handler that checks the order of all records, across the consumers of a test.
fn in_order(
    book: &Arc<Watched<Book>>,
) -> impl Fn(&Attempt) -> Result<(), AttemptFailure> + Send + Sync + 'static {
    let book = Arc::clone(book);
    move |attempt| {
        book.change(|book| book.begin(attempt));
        let mut dice = Dice(number(attempt) * 31 + u64::from(attempt.number()));
        if dice.roll(10) == 0 {
            thread::sleep(Duration::from_micros(dice.roll(2_000)));
        }
        let fails = dice.roll(5) == 0;
        book.change(|book| book.end(attempt, !fails));
        match fails {
            // A panic, without its message on stderr.
            true if dice.roll(4) == 0 => std::panic::resume_unwind(Box::new("so it goes")),
            true => Err(AttemptFailure::from(std::io::Error::other("not today"))),
            false => Ok(()),
        }
    }
}

#[test]
fn g1_keys_keep_their_order_through_failures_and_changes_of_concurrency() {
    const PARTITIONS: u32 = 3;
    const RECORDS: u64 = 6_000;
    let Some(brokers) = broker() else { return };
    let name = "g1-order";
    create_topic(&brokers, name, PARTITIONS as i32);
    let (mut dice, mut key) = (Dice(1), zipf(2_000));
    let records: Vec<_> = (0..RECORDS)
        .map(|number| {
            let key = key(&mut dice);
            ((key % u64::from(PARTITIONS)) as u32, keyed(key, number))
        })
        .collect();
    let written: Vec<_> = (0..PARTITIONS)
        .map(|number| records.iter().filter(|(partition, _)| *partition == number).count())
        .collect();
    write(&brokers, name, records);

    let book = Book::shared();
    let done = || book.change(|book| book.done.len() as u64);
    // Each consumer handles a part and is stopped at work; the last one handles the rest.
    for (threads, until) in [(2, 1_500), (32, 3_000), (1, 3_500), (8, RECORDS)] {
        let policy = RetryPolicy::new(quick(50, OnExhausted::Stop)).unwrap();
        let consumer = builder(&brokers, name).threads(threads).retry(policy, |_| ());
        let consumer = consumer.start(in_order(&book)).unwrap();
        eventually(|| done() >= until);
        let ended = consumer.stop(PATIENCE);
        assert_eq!((ended.abandoned, ended.counts.fenced), (0, 0));
    }
    book.change(|book| book.check(RECORDS as usize));
    for (partition, written) in (0..PARTITIONS).zip(written) {
        assert_eq!(watermark(&brokers, name, partition), written as i64);
    }
}

/// Returns a handler that waits at a door for records whose key begins with `slow`.
fn slow_at(door: &Door) -> impl Fn(&Attempt) -> Result<(), AttemptFailure> + Send + Sync + 'static {
    let door = door.clone();
    move |attempt| {
        if attempt.key().is_some_and(|key| key.starts_with(b"slow")) {
            door.pass();
        }
        Ok(())
    }
}

#[test]
fn g6_a_stuck_key_holds_up_no_other_and_too_much_behind_it_only_its_partition() {
    const KEYS: u64 = 10_000;
    let Some(brokers) = broker() else { return };
    let name = "g6-stuck";
    create_topic(&brokers, name, 2);
    let slow = |count| (0..count).map(|number| (0, keyed("slow", number)));
    let others = |partition| (0..KEYS).map(move |number| (partition, keyed(number, number)));
    write(&brokers, name, slow(1).chain(others(0)));
    let door = Door::closed();
    let consumer = builder(&brokers, name).threads(4).commit(Duration::from_millis(50), 1_000);
    let consumer = consumer.max_in_flight(50, usize::MAX).start(slow_at(&door)).unwrap();

    // All other records are completed and committed while the first record is incomplete.
    eventually(|| handled(&consumer) == KEYS);
    eventually(|| partition_status(&consumer, 0).highest_done == Position::new(KEYS + 1));
    assert_eq!(partition_status(&consumer, 0).watermark, Position::ZERO);

    // Far more than may be incomplete: this partition is paused, and the other one is not.
    write(&brokers, name, slow(20_000).chain(others(1)));
    eventually(|| partition_status(&consumer, 0).paused_by == Some(PauseReason::Records));
    eventually(|| handled(&consumer) == 2 * KEYS);
    let full = partition_status(&consumer, 0);
    assert_eq!(full.in_flight, 50);
    assert!(full.buffered <= 2_000, "{} wait in memory", full.buffered);
    assert_eq!(partition_status(&consumer, 1).paused_by, None);
    door.open();
    eventually(|| handled(&consumer) == 2 * KEYS + 20_001);
    consumer.stop(PATIENCE);
    assert_eq!(watermark(&brokers, name, 0), 30_001);
}

#[test]
fn g12_a_partition_with_a_backlog_and_slow_keys_holds_up_none_of_ninety_nine_others() {
    const PARTITIONS: u32 = 100;
    const EACH: u64 = 100;
    let Some(brokers) = broker() else { return };
    let name = "g12-fair";
    create_topic(&brokers, name, PARTITIONS as i32);
    let backlog = (0..10 * EACH).map(|number| (0, keyed(format!("slow {}", number % 3), number)));
    write(&brokers, name, backlog);
    let door = Door::closed();
    let consumer = builder(&brokers, name).threads(4).max_in_flight(100, usize::MAX);
    let consumer = consumer.start(slow_at(&door)).unwrap();
    eventually(|| partition_status(&consumer, 0).paused_by == Some(PauseReason::Records));
    // While this partition is at its limit, the records of the others pass.
    let others = (1..PARTITIONS)
        .flat_map(|partition| (0..EACH).map(move |number| (partition, keyed(number % 10, number))));
    write(&brokers, name, others);
    eventually(|| handled(&consumer) == u64::from(PARTITIONS - 1) * EACH);
    assert_eq!(partition_status(&consumer, 0).watermark, Position::ZERO);
    for partition in status(&consumer).partitions {
        let expected = (partition.partition.number() == 0).then_some(PauseReason::Records);
        assert_eq!(partition.paused_by, expected, "{}", partition.partition);
    }
    door.open();
    eventually(|| handled(&consumer) == u64::from(PARTITIONS - 1) * EACH + 10 * EACH);
    consumer.stop(PATIENCE);
}

/// Runs one test of this program in its own process, so that processor time and memory are its own,
/// and returns its output.
fn alone(test: &str, brokers: &str) -> String {
    let child = Command::new(env::current_exe().expect("a test has a path"))
        .args(["--exact", test, "--nocapture"])
        .env(BROKERS, brokers)
        .output()
        .expect("a test can start itself");
    let said = String::from_utf8_lossy(&child.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{test} failed:\n{said}{complaint}");
    said
}

/// Variable with the address of a child's broker. Set only for a child.
const BROKERS: &str = "KEYLANE_TEST_BROKERS";

#[test]
fn g8_a_hundred_thousand_keys_wait_for_their_next_attempts_and_burn_nothing() {
    let Some(brokers) = broker() else { return };
    create_topic(&brokers, "g8-waits", 8);
    write(
        &brokers,
        "g8-waits",
        (0..MANY).map(|number| ((number % 8) as u32, keyed(number, number))),
    );
    print!("{}", alone("kafka_guarantees::waits_for_next_attempts", &brokers));
}

const MANY: u64 = 100_000;

/// Body of the child of the test above, not a test of its own.
#[test]
fn waits_for_next_attempts() {
    let Ok(brokers) = env::var(BROKERS) else { return };
    // On a machine so slow that the first waits end before the last ones begin, longer waits are
    // needed.
    let longer = [4, 20, 100].map(Duration::from_secs);
    let found = longer.into_iter().find_map(|wait| idle_time(&brokers, wait));
    let (waited, processor) = found.expect("some wait is long enough");
    println!("{MANY} keys waited for {waited:?}, which took {processor:?} of a processor");
    assert!(processor < waited / 50, "{processor:?} of a processor in {waited:?}");
}

/// Fails each record once, with `wait` as its backoff. Returns the idle time meanwhile and the
/// processor time in it; or `None`, if the idle time was too short to measure.
fn idle_time(brokers: &str, wait: Duration) -> Option<(Duration, Duration)> {
    let backoff = Backoff { first: wait, factor: 1, max: wait, jitter: Jitter::None };
    let rule =
        RetryRule { limit: RetryLimit::attempts(2), backoff, on_exhausted: OnExhausted::Stop };
    let group = format!("waits-for-{wait:?}");
    let source = KafkaSource::join(patient(brokers, "g8-waits", &group)).unwrap();
    let consumer = Consumer::builder(source).threads(2).max_in_flight(20_000, usize::MAX);
    let consumer = consumer.retry(RetryPolicy::new(rule).unwrap(), |_| ());
    let book = Watched::new(Waits::default());
    let notes = Arc::clone(&book);
    let consumer = consumer.start(move |attempt: &Attempt| {
        notes.change(|waits| match attempt.number() {
            1 => {
                waits.begun += 1;
                waits.all_begun = (waits.begun == MANY).then(spent);
                Err(std::io::Error::other("the first one fails"))
            }
            _ => {
                waits.first_again.get_or_insert_with(spent);
                waits.done += 1;
                Ok(())
            }
        })
    });
    let consumer = consumer.unwrap();
    // The wait itself, and the time that a slow machine takes for all records.
    book.until_within(wait + 5 * PATIENCE, |waits| waits.done == MANY);
    assert_eq!(consumer.stop(PATIENCE).counts.failed_attempts, MANY);
    book.change(|waits| {
        let ((from, before), (to, after)) = (waits.all_begun?, waits.first_again?);
        // The remaining first attempts take little compared with half of the wait.
        (from + wait / 2 < to).then(|| (to - from, after - before))
    })
}

/// Numbers of begun and completed records, with the time and processor time at both ends of the
/// wait.
#[derive(Default)]
struct Waits {
    begun: u64,
    all_begun: Option<(Instant, Duration)>,
    first_again: Option<(Instant, Duration)>,
    done: u64,
}

/// Returns the time, and the processor time of this process.
fn spent() -> (Instant, Duration) {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    (Instant::now(), Duration::try_from(time).expect("it is not negative"))
}

#[test]
fn g12_what_is_held_back_stays_in_the_broker_and_not_in_memory() {
    const RECORDS: u64 = 60_000;
    let Some(brokers) = broker() else { return };
    create_topic(&brokers, "g12-memory", 2);
    let large = (0..RECORDS).map(|number| {
        let payload = vec![b'x'; 2_000];
        (
            0,
            Record {
                payload: Some(payload.into()),
                ..keyed(format!("slow {}", number % 3), number)
            },
        )
    });
    write(&brokers, "g12-memory", large);
    print!("{}", alone("kafka_guarantees::holds_back_a_large_backlog", &brokers));
}

/// Body of the child of the test above, not a test of its own.
#[test]
fn holds_back_a_large_backlog() {
    const MIB: usize = 1024 * 1024;
    let Ok(brokers) = env::var(BROKERS) else { return };
    let name = "g12-memory";
    let before = resident();
    let client = ClientSettings::new(&*brokers).set("queued.max.messages.kbytes", "4096");
    let source = KafkaSource::join(KafkaSettings::new(client, [name], name)).unwrap();
    let consumer = Consumer::builder(source).threads(4);
    let door = Door::closed();
    let consumer = consumer.max_in_flight(100_000, 4 * MIB).start(slow_at(&door)).unwrap();
    eventually(|| partition_status(&consumer, 0).paused_by == Some(PauseReason::Bytes));
    // While the other partition continues, nothing more of this one is fetched.
    write(&brokers, name, (0..20_000).map(|number| (1, keyed(number % 100, number))));
    eventually(|| handled(&consumer) == 20_000);
    let grown = resident().saturating_sub(before);
    let full = partition_status(&consumer, 0);
    println!(
        "of 115 MiB in the topic {:.1} MiB are in memory, {} records taken on and {} held",
        grown as f64 / MIB as f64,
        full.in_flight,
        full.buffered
    );
    assert!(grown < 40 * MIB, "{} MiB", grown / MIB);
    assert!(
        full.bytes <= 4 * MIB && full.buffered <= 2_000,
        "{} bytes, {} held",
        full.bytes,
        full.buffered
    );
    door.open();
    consumer.stop(Duration::ZERO);
}

/// Returns the resident memory of this process, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("this is Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it is there");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("it is a number") * 1024
}

/// Records and attempts of each partition and key, in the order in which they were seen.
type Seen = BTreeMap<(u32, Option<Vec<u8>>), Vec<(u64, u32)>>;

/// Runs a scenario that is the same for every source: some records fail, some for good, some have
/// no key.
fn scenario(records: u64, builder: ConsumerBuilder) -> Seen {
    let seen = Watched::new(Seen::new());
    let sees = Arc::clone(&seen);
    let policy = RetryPolicy::new(quick(4, OnExhausted::Skip)).unwrap();
    let consumer = builder.threads(4).retry(policy, |_| ()).start(move |attempt: &Attempt| {
        let this = (number(attempt), attempt.number());
        let lane = (attempt.partition().number(), attempt.key().map(<[u8]>::to_vec));
        sees.change(|all| all.entry(lane).or_default().push(this));
        match Dice(this.0 * 7 + u64::from(this.1)).roll(3) {
            0 => Err(std::io::Error::other("not today")),
            _ => Ok(()),
        }
    });
    let consumer = consumer.unwrap();
    eventually(|| {
        let counts = status(&consumer).counts;
        counts.handled + counts.skipped == records
    });
    assert_eq!(consumer.stop(PATIENCE).abandoned, 0);
    seen.get()
}

#[test]
fn g14_the_same_happens_to_the_same_records_from_memory_from_a_mock_cluster_and_from_a_broker() {
    const PARTITIONS: u32 = 3;
    const RECORDS: u64 = 1_500;
    let Some(brokers) = broker() else { return };
    for seed in 0..3 {
        let name = &format!("g14-{seed}");
        let mut dice = Dice(seed);
        let records: Vec<_> = (0..RECORDS)
            .map(|number| {
                let partition = dice.roll(u64::from(PARTITIONS)) as u32;
                let record = match dice.roll(10) {
                    0 => Record::without_key(number.to_string()),
                    _ => keyed(dice.roll_skewed(80), number),
                };
                (partition, record)
            })
            .collect();

        let stream = MemoryStream::new(&**name, PARTITIONS);
        records.iter().for_each(|(partition, record)| {
            stream.push(*partition, record.clone());
        });
        let from_memory = scenario(RECORDS, Consumer::builder(stream.source()));
        let attempts: usize = from_memory.values().map(Vec::len).sum();
        assert!(attempts as u64 > RECORDS + RECORDS / 4, "{attempts}");

        let cluster: MockCluster<'static, DefaultProducerContext> = MockCluster::new(1).unwrap();
        cluster.create_topic(name, PARTITIONS as i32, 1).unwrap();
        write(&cluster.bootstrap_servers(), name, records.clone());
        let from_mock = scenario(RECORDS, builder(&cluster.bootstrap_servers(), name));
        assert_eq!(from_mock, from_memory, "seed {seed}");

        create_topic(&brokers, name, PARTITIONS as i32);
        write(&brokers, name, records);
        let from_broker = scenario(RECORDS, builder(&brokers, name));
        assert_eq!(from_broker, from_memory, "seed {seed}");
    }
}
