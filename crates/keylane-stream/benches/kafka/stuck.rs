//! Workload `stuck`: latency of the other keys while one key is stuck.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use keylane_stream::Record;
use keylane_stream::consumer::{Attempt, AttemptFailure, Consumer};
use keylane_stream::kafka::{ClientSettings, KafkaSink};

use crate::stage::{Stage, random};

const KEYS: u64 = 10_000;
const AT_A_TIME: usize = 16;
/// Maximum duration of a handler in microseconds; the average is half of it.
const MAX_MICROS: u64 = 5_000;
const RECORDS_PER_SECOND: u64 = 3_200;
/// Number of portions per second in which the records are sent.
const PORTIONS_PER_SECOND: u64 = 100;
const STUCK: &[u8] = b"0";

pub(crate) fn run(stage: &Stage) {
    let seconds = stage.or_quick(60, 3);
    println!(
        "{KEYS} keys, {RECORDS_PER_SECOND} records a second for {seconds} s, {AT_A_TIME} at a time\n"
    );
    println!(
        "| one key is | p50, ms | p99 of a second, median | p99 | longest | records | CPU of this process, s |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|");
    // The first run warms up the broker.
    latencies(stage, seconds.min(10), false);
    for is_stuck in [false, true] {
        row(is_stuck, latencies(stage, seconds, is_stuck));
    }
}

fn row(is_stuck: bool, (records, processor): (Vec<Waited>, Duration)) {
    let sorted = |mut latencies: Vec<Duration>| {
        latencies.sort_unstable();
        latencies
    };
    let at = |latencies: &[Duration], share: f64| {
        latencies[((latencies.len() - 1) as f64 * share) as usize]
    };
    // By second, as a pause of the machine affects only one or two.
    let mut seconds: BTreeMap<u64, Vec<Duration>> = BTreeMap::new();
    for record in &records {
        seconds.entry(record.due.as_secs()).or_default().push(record.latency);
    }
    let of_seconds = seconds.into_values().map(|latencies| at(&sorted(latencies), 0.99));
    let of_seconds = sorted(of_seconds.collect());
    let all = sorted(records.iter().map(|record| record.latency).collect());
    let figures = [at(&all, 0.5), at(&of_seconds, 0.5), at(&all, 0.99), at(&all, 1.0)];
    let [half, second, most, longest] = figures.map(|figure| figure.as_secs_f64() * 1e3);
    let what = if is_stuck { "stuck" } else { "like the others" };
    let (count, processor) = (all.len(), processor.as_secs_f64());
    println!(
        "| {what} | {half:.2} | {second:.2} | {most:.2} | {longest:.2} | {count} | {processor:.1} |"
    );
}

/// A record of a key that is not stuck.
struct Waited {
    /// Time at which it was due to be sent.
    due: Duration,
    /// Time from then to the end of its handler.
    latency: Duration,
}

/// Returns the latencies of the other keys' records, and the processor time.
fn latencies(stage: &Stage, seconds: u64, is_stuck: bool) -> (Vec<Waited>, Duration) {
    let topic = format!("stuck-{}", stage.new_group());
    stage.create(&topic, 1);
    let others: Arc<Mutex<Vec<Waited>>> = Arc::default();
    let (notes, free) = (Arc::clone(&others), Arc::new(AtomicBool::new(!is_stuck)));
    let (may_go, ended) = (Arc::clone(&free), Arc::new(AtomicU64::new(0)));
    let counts = Arc::clone(&ended);
    let begin = Instant::now();
    let consumer = Consumer::builder(stage.source(&[&topic])).threads(AT_A_TIME);
    let consumer = consumer.start(move |attempt: &Attempt| {
        while attempt.key() == Some(STUCK) && !may_go.load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(20));
        }
        thread::sleep(Duration::from_micros(random(attempt.position().get()) % (MAX_MICROS + 1)));
        let due = Duration::from_micros(std::str::from_utf8(attempt.payload())?.parse()?);
        if attempt.key() != Some(STUCK) {
            let latency = begin.elapsed().saturating_sub(due);
            notes.lock().unwrap().push(Waited { due, latency });
        }
        counts.fetch_add(1, Ordering::Release);
        Ok::<_, AttemptFailure>(())
    });
    let consumer = consumer.unwrap();
    while consumer.status().is_none_or(|status| status.partitions.is_empty()) {
        thread::sleep(Duration::from_millis(5));
    }
    let before = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let sink = KafkaSink::new(&ClientSettings::new(&*stage.brokers).set("linger.ms", "1")).unwrap();
    let sent = send(&sink, &topic, seconds, begin);
    let after = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    free.store(true, Ordering::Release);
    while ended.load(Ordering::Acquire) < sent {
        thread::sleep(Duration::from_millis(5));
    }
    consumer.stop(Duration::from_secs(10));
    let latencies = std::mem::take(&mut *others.lock().unwrap());
    // The first second is the warm-up.
    let warm = latencies.into_iter().skip(RECORDS_PER_SECOND as usize).collect();
    (warm, Duration::try_from(after).unwrap() - Duration::try_from(before).unwrap())
}

/// Sends at a fixed rate, regardless of the consumer; a payload is the time at which it was due.
fn send(sink: &KafkaSink, topic: &str, seconds: u64, begin: Instant) -> u64 {
    let from = begin.elapsed();
    let mut number = 0;
    for portion in 0..seconds * PORTIONS_PER_SECOND {
        let due = from + Duration::from_secs(portion) / PORTIONS_PER_SECOND as u32;
        thread::sleep(due.saturating_sub(begin.elapsed()));
        for _ in 0..RECORDS_PER_SECOND / PORTIONS_PER_SECOND {
            let key = random(number ^ 0xFACE) % KEYS;
            let record = Record::new(key.to_string(), due.as_micros().to_string());
            sink.send(topic, &record, |written| drop(written.unwrap()));
            number += 1;
        }
    }
    number
}
