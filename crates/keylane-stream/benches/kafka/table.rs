//! Workloads `table`, `hot` and `skew`: sleeps of 0 to 5 ms with various keys.

use std::thread;
use std::time::Duration;

use keylane_stream::consumer::{Attempt, AttemptFailure};

use crate::stage::{Stage, bound, random};

const AT_A_TIME: u32 = 16;

pub(crate) fn many_keys(stage: &Stage) {
    heading();
    for keys in [2, 5, 10, 20, 50, 100, 1_000, 10_000] {
        row(stage, &keys.to_string(), |number| number % keys);
    }
}

pub(crate) fn one_key(stage: &Stage) {
    heading();
    row(stage, "1", |_| 0);
}

pub(crate) fn skewed_keys(stage: &Stage) {
    heading();
    let zipf = Zipf::new(10_000, 1.1);
    row(stage, "Zipf, s = 1.1, of 10,000", |number| zipf.roll(number));
    row(stage, "one with a fifth, of 10,000", |number| match number % 5 {
        0 => 0,
        _ => 1 + random(number) % 10_000,
    });
}

fn heading() {
    println!(
        "| keys | s | bound, s | of the bound | bound by the sleeps as they were | with the join, s |"
    );
    println!("|---|---:|---:|---:|---:|---:|");
}

fn row(stage: &Stage, name: &str, key: impl Fn(u64) -> u64) {
    let records = stage.or_quick(10_000, 2_000);
    let wait = |number: u64| Duration::from_micros(random(number) % 5_001);
    let topic = format!("table-{}", stage.new_group());
    stage.fill(&topic, 1, (0..records).map(&key));
    let bound = bound((0..records).map(|number| (key(number), wait(number))), AT_A_TIME);
    let took = stage.consume(&topic, records, AT_A_TIME, |builder, watch| {
        builder.threads(AT_A_TIME as usize).start(move |attempt: &Attempt| {
            let begun = watch.begins();
            thread::sleep(wait(attempt.position().get()));
            watch.ends(attempt, begun);
            Ok::<_, AttemptFailure>(())
        })
    });
    let [work, all, bound, least] =
        [took.work, took.all, bound, took.least].map(|time| time.as_secs_f64());
    let (share, really) = (100.0 * bound / work, 100.0 * least / work);
    println!("| {name} | {work:.3} | {bound:.3} | {share:.1} % | {really:.1} % | {all:.3} |");
}

/// Distribution in which the n-th most frequent number occurs 1/n^s times as often as the first.
struct Zipf {
    /// Cumulative share of each number.
    shares: Vec<f64>,
}

impl Zipf {
    fn new(count: u32, s: f64) -> Self {
        let weights = (1..=count).map(|rank| f64::from(rank).powf(-s));
        let sum: f64 = weights.clone().sum();
        let shares = weights.scan(0.0, |all, weight| {
            *all += weight / sum;
            Some(*all)
        });
        Zipf { shares: shares.collect() }
    }

    fn roll(&self, number: u64) -> u64 {
        let share = random(!number) as f64 / u64::MAX as f64;
        self.shares.partition_point(|until| *until < share) as u64
    }
}
