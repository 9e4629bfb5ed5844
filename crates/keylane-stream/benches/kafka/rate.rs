//! Workload `rate`: handlers that cost nothing, beside bare loops of the client.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use keylane_stream::consumer::{Attempt, AttemptFailure, Consumer};
use rdkafka::bindings as c;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::{ClientConfig, Message as _};

use crate::stage::{Stage, Took, median};

const TOPIC: &str = "rate";

/// A topic with one partition, and one with seven in which is nothing.
const ONE_BEHIND: [&str; 2] = ["behind", "idle"];

pub(crate) fn run(stage: &Stage) {
    let records = stage.or_quick(1_000_000, 100_000);
    let (runs, warm_up) = (stage.or_quick(12, 3), stage.or_quick(4, 0));
    stage.fill(TOPIC, 8, (0..records).map(|number| number % 1_000));
    stage.fill(ONE_BEHIND[0], 1, (0..records).map(|number| number % 1_000));
    stage.create(ONE_BEHIND[1], 7);
    let (mut batches, mut bare) = (Vec::new(), Vec::new());
    let (mut consumer, mut behind) = (Vec::new(), Vec::new());
    // The runs alternate, and the first ones do not count, as the broker gets faster over time.
    for run in 0..warm_up + runs {
        let (of_batches, of_bare) = (batch_loop(stage, records), bare_loop(stage, TOPIC, records));
        let of_consumer = consume(stage, &[TOPIC], records);
        let of_behind = consume(stage, &ONE_BEHIND, records);
        if run >= warm_up {
            batches.push(of_batches);
            bare.push(of_bare);
            consumer.push(of_consumer);
            behind.push(of_behind);
        }
    }
    println!(
        "{records} records over 8 partitions and 1,000 keys, medians and ranges of {runs} runs"
    );
    println!("after {warm_up} that do not count\n");
    println!("| what | records/s | range | of the loop with batches | with the join, records/s |");
    println!("|---|---:|---:|---:|---:|");
    let best = median(batches.clone());
    row("a bare loop with batches, without a group", records, batches, best);
    row("a bare loop", records, bare, best);
    row("the consumer, 2 threads", records, consumer, best);
    row("the consumer, one partition of 8 has all", records, behind, best);
}

fn row(what: &str, records: u64, mut runs: Vec<Took>, best: Took) {
    runs.sort();
    let rate = |time: Duration| records as f64 / time.as_secs_f64();
    let (fastest, slowest) = (rate(runs[0].work), rate(runs[runs.len() - 1].work));
    let median = median(runs);
    let share = 100.0 * best.work.as_secs_f64() / median.work.as_secs_f64();
    let (work, all) = (rate(median.work), rate(median.all));
    println!("| {what} | {work:.0} | {slowest:.0}–{fastest:.0} | {share:.0} % | {all:.0} |");
}

/// Measures a handler that only counts: a check of the order would cost more than the rest.
fn consume(stage: &Stage, topics: &[&str], records: u64) -> Took {
    let begin = Instant::now();
    let (seen, first) = (Arc::new(AtomicU64::new(0)), Arc::new(std::sync::OnceLock::new()));
    let (counts, begins) = (Arc::clone(&seen), Arc::clone(&first));
    let (sender, over) = std::sync::mpsc::channel();
    let consumer = Consumer::builder(stage.source(topics)).threads(2);
    let consumer = consumer.start(move |attempt: &Attempt| {
        begins.get_or_init(Instant::now);
        assert!(!attempt.payload().is_empty());
        if counts.fetch_add(1, Ordering::Relaxed) + 1 == records {
            sender.send(Instant::now()).unwrap();
        }
        Ok::<_, AttemptFailure>(())
    });
    let consumer = consumer.unwrap();
    let end = over.recv().unwrap();
    assert_eq!(consumer.stop(Duration::from_secs(10)).counts.handled, records);
    assert_eq!(seen.load(Ordering::Relaxed), records);
    let work = end - *first.get().expect("some were handled");
    Took { work, all: end - begin, least: Duration::ZERO }
}

/// Measures a loop on one thread that joins a group and reads the key and payload of each record.
pub(crate) fn bare_loop(stage: &Stage, topic: &str, records: u64) -> Took {
    let mut bytes = 0;
    let (work, all) = each_record(stage, topic, records, |key, payload| {
        bytes += (key.len() + payload.len()) as u64;
    });
    assert!(bytes >= 2 * records);
    Took { work, all, least: Duration::ZERO }
}

/// Measures the client's fastest interface: a loop on one thread over batches of messages in the client's memory, which are not
/// copied. It has its partitions without a group, because the binding's rebalances cannot be combined with it.
fn batch_loop(stage: &Stage, records: u64) -> Took {
    let begin = Instant::now();
    let consumer = client(stage);
    let mut partitions = TopicPartitionList::new();
    for partition in 0..8 {
        partitions.add_partition_offset(TOPIC, partition, Offset::Beginning).unwrap();
    }
    consumer.assign(&partitions).unwrap();
    let (mut first, mut seen, mut bytes) = (None, 0, 0);
    let mut messages = [std::ptr::null_mut(); 1_000];
    // SAFETY: the client outlives the queue. Each call writes the pointers of as many messages as it returns; each is
    // read, and destroyed once.
    unsafe {
        let queue = c::rd_kafka_queue_get_consumer(consumer.client().native_ptr());
        while seen < records {
            let taken =
                c::rd_kafka_consume_batch_queue(queue, 100, messages.as_mut_ptr(), messages.len());
            for message in &messages[..usize::try_from(taken).unwrap()] {
                assert_eq!((**message).err, c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR);
                bytes += (**message).key_len + (**message).len;
                c::rd_kafka_message_destroy(*message);
                seen += 1;
            }
            first = first.or_else(|| (seen > 0).then(Instant::now));
        }
        c::rd_kafka_queue_destroy(queue);
    }
    assert!(bytes as u64 >= 2 * records);
    let work = first.expect("some came").elapsed();
    Took { work, all: begin.elapsed(), least: Duration::ZERO }
}

/// Joins a group and passes on the key and payload of each record. Returns the time from the first
/// record to the last, and from the start of the client.
pub(crate) fn each_record(
    stage: &Stage,
    topic: &str,
    records: u64,
    mut pass_on: impl FnMut(Vec<u8>, Vec<u8>),
) -> (Duration, Duration) {
    let begin = Instant::now();
    let consumer = client(stage);
    consumer.subscribe(&[topic]).unwrap();
    let (mut first, mut seen) = (None, 0);
    while seen < records {
        let Some(message) = consumer.poll(Duration::from_secs(30)) else { continue };
        let message = message.unwrap();
        first.get_or_insert_with(Instant::now);
        let [key, payload] = [message.key(), message.payload()];
        pass_on(key.unwrap_or_default().to_vec(), payload.unwrap_or_default().to_vec());
        seen += 1;
    }
    (first.expect("some came").elapsed(), begin.elapsed())
}

fn client(stage: &Stage) -> BaseConsumer {
    ClientConfig::new()
        .set("bootstrap.servers", &stage.brokers)
        .set("group.id", stage.new_group())
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "earliest")
        // The defaults pause for 1 s after enough records, and wait for 0.5 s beside a full buffer, which would make
        // the comparison unfair.
        .set("fetch.queue.backoff.ms", "5")
        .set("fetch.wait.max.ms", "50")
        .create()
        .unwrap()
}
