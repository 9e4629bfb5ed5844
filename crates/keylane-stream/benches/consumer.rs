//! Workloads by which ordered consumers are compared, with the bound beside each figure.
//!
//! ```text
//! cargo bench -p keylane-stream --features tokio --bench consumer -- table | hot | capture | rate
//! ```
//!
//! - `table`: of Confluent's parallel consumer: 1 partition, 10,000 records, each sleeps 0 to 5 ms,
//!   16 at a time. `hot`: the same with one key, and as one queue.
//! - `capture`: of KPipe: 8 partitions, 25,000 records, key = i mod 1,000, each waits for a fixed
//!   time.
//! - `rate`: records per second with handlers that cost nothing; from memory and from a journal,
//!   beside a loop that only polls the same source.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use keylane_stream::Record;
use keylane_stream::consumer::{Attempt, AttemptFailure, Consumer, ConsumerBuilder, StopReason};
use keylane_stream::journal::{Journal, JournalSource};
use keylane_stream::memory::MemoryStream;
use keylane_stream::source::{Source, SourceEvent};

fn main() {
    let which: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    for which in which {
        match which.as_str() {
            "table" => table(&[2, 5, 10, 20, 50, 100, 1_000, 10_000]),
            "hot" => table(&[1]),
            "capture" => capture(),
            "rate" => rate(),
            other => panic!("there is no workload {other}"),
        }
    }
}

/// Returns the sleeps of the records: the same in each run.
fn sleeps() -> Vec<Duration> {
    let micros = (0..10_000_u64).map(|number| number.wrapping_mul(2_654_435_761) % 5_001);
    micros.map(Duration::from_micros).collect()
}

fn table(key_counts: &[u64]) {
    println!("| keys | seconds | bound | of the bound |\n|---:|---:|---:|---:|");
    let sleeps = Arc::new(sleeps());
    for &keys in key_counts {
        let stream = MemoryStream::new("t", 1);
        stream.push_all(0, (0..10_000).map(|i| Record::new((i % keys).to_string(), i.to_string())));
        stream.exhaust();
        // Neither sixteen at a time nor the longest key can be faster than this.
        let of_key = |key| sleeps.iter().skip(key as usize).step_by(keys as usize).sum();
        let longest: Duration = (0..keys).map(of_key).max().expect("there is a key");
        let bound = longest.max(sleeps.iter().sum::<Duration>() / 16);
        let naps = sleeps.clone();
        let begin = Instant::now();
        let consumer = Consumer::builder(stream.source()).threads(16);
        let consumer = consumer.start(move |attempt: &Attempt| {
            thread::sleep(naps[attempt.position().get() as usize]);
            Ok::<_, AttemptFailure>(())
        });
        finish(consumer.expect("it starts"), 10_000);
        row(&keys.to_string(), begin.elapsed(), bound);
    }
}

fn row(name: &str, took: Duration, bound: Duration) {
    let (took, bound) = (took.as_secs_f64(), bound.as_secs_f64());
    println!("| {name} | {took:.3} | {bound:.3} | {:.0} % |", 100.0 * bound / took);
}

fn finish(consumer: Consumer, records: u64) {
    let ended = consumer.wait();
    assert!(matches!(ended.reason, StopReason::Exhausted), "{:?}", ended.reason);
    assert_eq!(ended.counts.handled, records);
}

const CAPTURED: u64 = 25_000;

fn captured() -> MemoryStream {
    let stream = MemoryStream::new("t", 8);
    for partition in 0..8 {
        let own = (0..CAPTURED).filter(|i| i % 8 == u64::from(partition));
        stream.push_all(partition, own.map(|i| Record::new((i % 1_000).to_string(), "x")));
    }
    stream.exhaust();
    stream
}

fn capture() {
    println!("| park | threads, records/s | futures, records/s | bound | best of it |");
    println!("|---:|---:|---:|---:|---:|");
    for park in [0, 100, 1_000, 10_000, 100_000].map(Duration::from_micros) {
        let threads = best(3, || with_threads(park));
        let futures = best(3, || with_futures(park));
        // A key has 25 records, and all keys can run at the same time.
        let bound = park * 25;
        let rate = |took: Duration| CAPTURED as f64 / took.as_secs_f64();
        let (limit, share) = match bound.is_zero() {
            true => ("none".to_owned(), String::new()),
            false => {
                let share = 100.0 * bound.as_secs_f64() / threads.min(futures).as_secs_f64();
                (format!("{:.0}", rate(bound)), format!("{share:.0} %"))
            }
        };
        println!("| {park:?} | {:.0} | {:.0} | {limit} | {share} |", rate(threads), rate(futures));
    }
}

fn best(times: usize, mut run: impl FnMut() -> Duration) -> Duration {
    (0..times).map(|_| run()).min().expect("it runs")
}

fn with_threads(park: Duration) -> Duration {
    let stream = captured();
    let threads = if park.is_zero() { 2 } else { 1_000 };
    let begin = Instant::now();
    let consumer = Consumer::builder(stream.source()).threads(threads);
    let consumer = consumer.start(move |_: &Attempt| {
        if !park.is_zero() {
            thread::sleep(park);
        }
        Ok::<_, AttemptFailure>(())
    });
    finish(consumer.expect("it starts"), CAPTURED);
    begin.elapsed()
}

#[cfg(feature = "tokio")]
fn with_futures(park: Duration) -> Duration {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build();
    let runtime = runtime.expect("a runtime can be had");
    let stream = captured();
    let begin = Instant::now();
    let consumer = Consumer::builder(stream.source());
    let consumer = consumer.start_async(runtime.handle().clone(), 1_000, move |_| async move {
        if !park.is_zero() {
            tokio::time::sleep(park).await;
        }
        Ok::<_, AttemptFailure>(())
    });
    finish(consumer.expect("it starts"), CAPTURED);
    begin.elapsed()
}

#[cfg(not(feature = "tokio"))]
fn with_futures(_: Duration) -> Duration {
    Duration::MAX
}

const MANY: u64 = 1_000_000;

fn rate() {
    println!(
        "| source | bare loop, records/s | consumer, records/s | of it |\n|---|---:|---:|---:|"
    );
    let stream = || {
        let stream = MemoryStream::new("t", 8);
        for partition in 0..8 {
            let numbers = 0..MANY / 8;
            stream.push_all(partition, numbers.map(|i| Record::new((i % 1_000).to_string(), "x")));
        }
        stream.exhaust();
        stream
    };
    let bare = bare_loop(stream().source());
    rates("memory, 8 partitions", bare, consumed(Consumer::builder(stream().source())));
    let folder = tempfile::tempdir().expect("a folder can be had");
    let journal = Journal::open(folder.path().join("j")).expect("a journal can be had");
    for _ in 0..MANY / 10_000 {
        let records: Vec<_> =
            (0..10_000).map(|i| Record::new((i % 1_000).to_string(), "x")).collect();
        journal.append_all(&records).expect("there is room");
    }
    let source = |group: &'static str| JournalSource::new(journal.clone(), group).to_the_end();
    let bare = bare_loop(source("bare"));
    rates("journal", bare, consumed(Consumer::builder(source("consumer"))));
}

fn rates(name: &str, bare: Duration, consumed: Duration) {
    let rate = |took: Duration| MANY as f64 / took.as_secs_f64();
    let share = 100.0 * bare.as_secs_f64() / consumed.as_secs_f64();
    println!("| {name} | {:.0} | {:.0} | {share:.0} % |", rate(bare), rate(consumed));
}

fn consumed(builder: ConsumerBuilder) -> Duration {
    let sum = Arc::new(AtomicU64::new(0));
    let adds = sum.clone();
    let begin = Instant::now();
    let consumer = builder.threads(2).start(move |attempt: &Attempt| {
        adds.fetch_add(attempt.payload().len() as u64, Ordering::Relaxed);
        Ok::<_, AttemptFailure>(())
    });
    finish(consumer.expect("it starts"), MANY);
    assert_eq!(sum.load(Ordering::Relaxed), MANY);
    begin.elapsed()
}

/// Measures an unordered loop on one thread with the same source, as the lower bound.
fn bare_loop(mut source: impl Source) -> Duration {
    let begin = Instant::now();
    let (mut events, mut seen, mut bytes) = (Vec::new(), 0, 0);
    while seen < MANY {
        source.poll(Duration::from_millis(100), 1_024, &mut events).expect("it can be read");
        for event in events.drain(..) {
            if let SourceEvent::Records { records, .. } = event {
                seen += records.len() as u64;
                bytes += records.iter().map(|record| record.record.payload().len()).sum::<usize>();
            }
        }
    }
    assert_eq!(bytes as u64, MANY);
    begin.elapsed()
}
