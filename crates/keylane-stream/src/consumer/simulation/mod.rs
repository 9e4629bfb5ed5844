//! Deterministic simulation of the consumer: source, rebalances, commits, retries, dead letters and
//! faults, from one seed, on one thread.
//!
//! | part | file |
//! |---|---|
//! | settings of the consumer, and behaviour of its handler | `settings` |
//! | parts that are left out of a failing seed | `cuts` |
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
//! `KEYLANE_SEEDS=1000` runs as many seeds, `KEYLANE_SEEDS=17..18` the seed 17. A failing seed is run
//! again without some of its parts (`cuts`), as long as it fails.

mod broker;
mod check;
mod cuts;
mod history;
mod lanes;
mod letters;
mod operator;
mod process;
mod run;
mod settings;
mod source;
mod stage;
mod transaction;
mod transaction_state;
mod world;

use std::collections::BTreeSet;
use std::ops::Range;
use std::panic::catch_unwind;

use keylane_testkit::simulation::{assert_same, cuts, kept, seeds};

use self::cuts::Cuts;
use self::history::Entry;
use self::run::{MAX_FAULTY, Outcome, simulate};
use self::settings::Settings;

/// Seeds of a test run without `KEYLANE_SEEDS`.
const SEEDS: Range<u64> = 0..40;

/// Histories that have shown a defect.
const KEPT: &str = include_str!("kept.txt");

/// Maximum number of runs without some actions.
const MAX_SHRINKS: usize = 400;

/// Result of a run.
struct Judged {
    settings: Settings,
    history: Vec<Entry>,
    broken: Vec<String>,
    /// Number of its actions.
    actions: u64,
}

/// Runs a seed without some parts, and judges its history.
fn run(seed: u64, cuts: Cuts) -> Judged {
    let Outcome { settings, history, actions } = simulate(seed, cuts);
    let broken = check::judge(&settings, &history);
    Judged { settings, history, broken, actions }
}

impl Judged {
    /// The settings and the history, an event in each line.
    fn text(&self) -> String {
        let lines = self.history.iter().map(ToString::to_string);
        let lines: Vec<_> = [format!("{:?}", self.settings)].into_iter().chain(lines).collect();
        lines.join("\n")
    }
}

/// Returns whether a run breaks a promise or panics.
fn fails(seed: u64, cuts: &Cuts) -> bool {
    catch_unwind(|| run(seed, cuts.clone())).map_or(true, |judged| !judged.broken.is_empty())
}

/// Leaves out as much of a failing simulation as possible: first the end of its faults, and then
/// actions. Returns what is left out.
fn shrink(seed: u64, cuts: Cuts) -> Cuts {
    let with_faults = |ms: u64| Cuts { max_faulty: Some(ms), ..cuts.clone() };
    let (mut holds, mut breaks) = (0, cuts.max_faulty.unwrap_or(MAX_FAULTY));
    while breaks - holds > 10 {
        let middle = (holds + breaks) / 2;
        *if fails(seed, &with_faults(middle)) { &mut breaks } else { &mut holds } = middle;
    }
    let short = with_faults(breaks);
    // A run that panics has no number of actions; each takes 10 ms at least.
    let actions = catch_unwind(|| run(seed, short.clone())).map_or(breaks / 10, |it| it.actions);
    let without = |actions: &BTreeSet<u64>| Cuts {
        actions: actions.union(&short.actions).copied().collect(),
        ..short.clone()
    };
    let parts: Vec<u64> = (0..actions).filter(|it| !short.actions.contains(it)).collect();
    without(&keylane_testkit::simulation::shrink(&parts, MAX_SHRINKS, |cut| {
        fails(seed, &without(cut))
    }))
}

/// Fails with the shortest history that still breaks a promise, and the command that repeats it.
fn fail(seed: u64, cuts: Cuts) -> ! {
    let cuts = shrink(seed, cuts);
    let alone = format!(
        "run it alone: KEYLANE_SEEDS={seed}..{} KEYLANE_CUTS={cuts} cargo test -p keylane-stream \
         --lib simulation::promises",
        seed + 1
    );
    let Ok(judged) = catch_unwind(|| run(seed, cuts)) else {
        panic!("seed {seed} panics; {alone}")
    };
    let broken = judged.broken.join("\n");
    panic!("seed {seed} breaks promises:\n{}\n\n{broken}\n\n{alone}", judged.text());
}

#[test]
fn promises_hold_in_every_simulated_history() {
    if let Some(seed) = seeds(SEEDS).find(|seed| fails(*seed, &cuts())) {
        fail(seed, cuts());
    }
}

#[test]
fn kept_histories_hold() {
    for (seed, cuts) in kept::<Cuts>(KEPT) {
        if fails(seed, &cuts) {
            fail(seed, cuts);
        }
    }
}

#[test]
fn two_runs_of_a_seed_have_the_same_history() {
    for seed in seeds(SEEDS).take(5) {
        let (one, other) = (run(seed, cuts()).text(), run(seed, cuts()).text());
        assert_same(seed, &one, &other);
    }
}
