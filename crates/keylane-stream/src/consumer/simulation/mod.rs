//! Deterministic simulation of the consumer: source, rebalances, commits, retries, dead letters and
//! faults, from one seed, on one thread.
//!
//! | part | file |
//! |---|---|
//! | seeded choices | `random` |
//! | settings of the consumer, and behaviour of its handler | `settings` |
//! | time, and the history | `world`, `history` |
//! | logs, stored progress, and the group | `broker`, `source` |
//! | transactions of output and progress | `transaction`, `transaction_state` |
//! | lanes in which records run | `lanes` |
//! | dead letters | `letters` |
//! | one process from its start to its end | `process` |
//! | commands of an operator to it | `operator` |
//! | order of all steps, and faults | `run` |
//! | judgement of a history, without the product's code | `check` |
//!
//! The coordinator, the tracker, the timer, the dead-letter writer, the retry policy and the adapters
//! of handlers are the product's. Their clocks, random numbers and lanes are passed in
//! (`consumer/outside.rs`), and one thread advances each of them step by step. So two runs of a seed
//! have the same history, which a test checks.
//!
//! `KEYLANE_SEEDS=1000` runs as many seeds, `KEYLANE_SEEDS=17..18` the seed 17.

mod broker;
mod check;
mod history;
mod lanes;
mod letters;
mod operator;
mod process;
mod random;
mod run;
mod settings;
mod source;
mod stage;
mod transaction;
mod transaction_state;
mod world;

use std::ops::Range;
use std::panic::catch_unwind;

use self::run::MAX_FAULTY;

/// Seeds of a test run without `KEYLANE_SEEDS`.
const SEEDS: Range<u64> = 0..40;

/// Returns the seeds to run.
fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("KEYLANE_SEEDS") else { return SEEDS };
    let number = |text: &str| text.trim().parse().expect("KEYLANE_SEEDS is a number or a range");
    match text.split_once("..") {
        Some((from, until)) => number(from)..number(until),
        None => 0..number(&text),
    }
}

/// Runs a seed with faults for at most `max_faulty` microseconds. Returns its history and the broken
/// promises.
fn run(seed: u64, max_faulty: u64) -> (String, Vec<String>) {
    let (settings, entries) = run::simulate(seed, max_faulty);
    let broken = check::judge(&settings, &entries);
    let lines = entries.iter().map(ToString::to_string);
    let lines: Vec<_> = [format!("{settings:?}")].into_iter().chain(lines).collect();
    (lines.join("\n"), broken)
}

/// Returns a short time with faults in which the seed breaks a promise, in microseconds.
fn shortest(seed: u64) -> u64 {
    let (mut holds, mut breaks) = (0, MAX_FAULTY);
    while breaks - holds > 10_000 {
        let middle = (holds + breaks) / 2;
        let is_broken = !run(seed, middle).1.is_empty();
        *if is_broken { &mut breaks } else { &mut holds } = middle;
    }
    breaks
}

#[test]
fn promises_hold_in_every_simulated_history() {
    for seed in seeds() {
        let alone = format!(
            "run it alone: KEYLANE_SEEDS={seed}..{} cargo test -p keylane-stream --lib \
             simulation::promises",
            seed + 1
        );
        let result = catch_unwind(|| run(seed, MAX_FAULTY));
        let (_, broken) = result.unwrap_or_else(|_| panic!("seed {seed} panics; {alone}"));
        if !broken.is_empty() {
            let (history, broken) = run(seed, shortest(seed));
            let broken = broken.join("\n");
            panic!("seed {seed} breaks promises:\n{history}\n\n{broken}\n\n{alone}");
        }
    }
}

#[test]
fn two_runs_of_a_seed_have_the_same_history() {
    for seed in seeds().take(5) {
        let (one, other) = (run(seed, MAX_FAULTY).0, run(seed, MAX_FAULTY).0);
        let differs = one.lines().zip(other.lines()).position(|(one, other)| one != other);
        let differs = differs.map(|at| {
            let from = at.saturating_sub(5);
            let part = |text: &str| text.lines().skip(from).take(10).collect::<Vec<_>>().join("\n");
            format!("{}\n--- and\n{}", part(&one), part(&other))
        });
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!(one.len(), other.len(), "seed {seed}");
    }
}
