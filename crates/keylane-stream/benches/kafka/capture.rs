//! Workload `capture`: waits of a fixed time over many keys, beside a hand-written loop.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use keylane_stream::consumer::{Attempt, AttemptFailure, Consumer, ConsumerBuilder, StartError};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::peers::Peer;
use crate::rate::{bare_loop, each_record};
use crate::stage::{Stage, Took, bound, median};
use crate::watch::Watch;

const KEYS: u64 = 1_000;
/// Most handlers at a time: one for each key.
const MAX_THREADS: u32 = KEYS as u32;
const TOPIC: &str = "capture";

pub(crate) fn run(stage: &Stage) {
    let records = stage.or_quick(25_000, 5_000);
    let runs = stage.or_quick(5, 3);
    stage.fill(TOPIC, 8, (0..records).map(|number| number % KEYS));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build().unwrap();
    let mut peers = Peer::start_all(stage, TOPIC, records, KEYS);
    // A peer's virtual machine compiles its code meanwhile.
    for peer in &mut peers {
        (0..3).for_each(|_| _ = peer.run(stage, Duration::ZERO, MAX_THREADS));
    }
    println!("{records} records, medians of {runs} runs; all handlers check the order\n");
    println!(
        "| park | how | records/s | bound | of the bound | bound by the parks as they were | with the join, records/s |"
    );
    println!("|---:|---|---:|---:|---:|---:|---:|");
    for park in [0, 100, 1_000, 10_000, 100_000].map(Duration::from_micros) {
        let least = bound((0..records).map(|number| (number % KEYS, park)), MAX_THREADS);
        let (mut bare, mut by_hand) = (Vec::new(), Vec::new());
        let (mut by_threads, mut by_futures) = (Vec::new(), Vec::new());
        let mut by_peers = vec![Vec::new(); peers.len()];
        // The runs alternate, as the broker gets faster over time.
        for _ in 0..runs {
            bare.push(bare_loop(stage, TOPIC, records));
            by_hand.push(by_hand_of(stage, records, park, &runtime));
            by_threads.push(with_threads(stage, records, park));
            by_futures.push(with_futures(stage, records, park, &runtime));
            for (peer, runs) in peers.iter_mut().zip(&mut by_peers) {
                runs.push(peer.run(stage, park, MAX_THREADS));
            }
        }
        let bare = median(bare);
        let least = least.max(bare.work);
        row(park, "a bare loop, which does not park", records, bare, least);
        row(park, "a task for each key, by hand", records, median(by_hand), least);
        row(park, &format!("{} threads", threads(park)), records, median(by_threads), least);
        row(park, &format!("{KEYS} futures"), records, median(by_futures), least);
        for (peer, runs) in peers.iter().zip(by_peers) {
            row(park, &peer.name, records, median(runs), least);
        }
    }
}

fn row(park: Duration, how: &str, records: u64, took: Took, bound: Duration) {
    let rate = |time: Duration| records as f64 / time.as_secs_f64();
    let share = 100.0 * rate(took.work) / rate(bound);
    // Only handlers that are watched report their durations.
    let really = match took.least {
        Duration::ZERO => String::new(),
        least => format!("{:.1} %", 100.0 * least.as_secs_f64() / took.work.as_secs_f64()),
    };
    let [work, all, bound] = [took.work, took.all, bound].map(rate);
    println!("| {park:?} | {how} | {work:.0} | {bound:.0} | {share:.1} % | {really} | {all:.0} |");
}

/// Number of threads. Without a wait, more threads than processors only compete.
fn threads(park: Duration) -> u32 {
    if park.is_zero() { 2 } else { MAX_THREADS }
}

fn with_threads(stage: &Stage, records: u64, park: Duration) -> Took {
    let threads = threads(park);
    stage.consume(TOPIC, records, threads, |builder, watch| {
        builder.threads(threads as usize).start(move |attempt: &Attempt| {
            let begun = watch.begins();
            if !park.is_zero() {
                thread::sleep(park);
            }
            watch.ends(attempt, begun);
            Ok::<_, AttemptFailure>(())
        })
    })
}

fn with_futures(stage: &Stage, records: u64, park: Duration, runtime: &Runtime) -> Took {
    stage.consume(TOPIC, records, MAX_THREADS, |builder, watch| {
        start_futures(builder, watch, park, runtime)
    })
}

fn start_futures(
    builder: ConsumerBuilder,
    watch: Arc<Watch>,
    park: Duration,
    runtime: &Runtime,
) -> Result<Consumer, StartError> {
    builder.start_async(runtime.handle().clone(), KEYS as usize, move |attempt: Attempt| {
        let watch = Arc::clone(&watch);
        async move {
            let begun = watch.begins();
            if !park.is_zero() {
                tokio::time::sleep(park).await;
            }
            watch.ends(&attempt, begun);
            Ok::<_, AttemptFailure>(())
        }
    })
}

/// Measures the simplest program that keeps order: a loop that hands each record to the task of its
/// key. It has no commits, bounds, retries or status; the difference is their cost.
fn by_hand_of(stage: &Stage, records: u64, park: Duration, runtime: &Runtime) -> Took {
    let ended = Arc::new(AtomicU64::new(0));
    let (sender, over) = std::sync::mpsc::channel();
    let mut keys = HashMap::<Vec<u8>, UnboundedSender<Vec<u8>>>::new();
    let start = Instant::now();
    let mut first = None;
    let _ = each_record(stage, TOPIC, records, |key, payload| {
        first.get_or_insert_with(Instant::now);
        let key = keys.entry(key).or_insert_with(|| {
            let (queue, mut records_of_key) = unbounded_channel();
            let (ended, sender) = (Arc::clone(&ended), sender.clone());
            runtime.spawn(async move {
                while records_of_key.recv().await.is_some() {
                    if !park.is_zero() {
                        tokio::time::sleep(park).await;
                    }
                    if ended.fetch_add(1, Ordering::Relaxed) + 1 == records {
                        sender.send(Instant::now()).unwrap();
                    }
                }
            });
            queue
        });
        key.send(payload).unwrap();
    });
    let end = over.recv().unwrap();
    Took { work: end - first.unwrap(), all: end - start, least: Duration::ZERO }
}
