//! Deterministic simulation of the service: scheduler, engine, store, HTTP routes, clients, remote
//! workers and faults, from one seed, on one thread.
//!
//! | part | file |
//! |---|---|
//! | time: steady, wall, steps, sleep of the machine | `clock` |
//! | parts that are left out of a failing seed | `cuts` |
//! | what happened, as clients, handlers and workers saw it | `history` |
//! | jobs, kinds and the behaviour of attempts | `work` |
//! | requests through the service's routes | `api` |
//! | clients and operators; operator of schedules | `clients`, `schedules` |
//! | receiver of webhooks | `receiver` |
//! | the service's own runner of leased kinds | `runner` |
//! | remote workers; kinds and handlers; followers of events | `workers`, `kinds`, `followers` |
//! | disk latency, full disk, crashes, clock steps | `faults` |
//! | files, and what a kill or a power failure leaves of them | `storage` |
//! | one process from its start to its crash or stop | `process` |
//! | judgement of a history, without the product's code | `check` |
//!
//! One thread runs everything on a runtime with simulated time: the dispatcher is a task, blocking
//! work runs in place, and the store's writer makes a step when the simulated disk says so. So two
//! runs of a seed have the same history, which a test checks. The store is SQLite in a temporary
//! folder; the next process opens the files that a crash could have left.
//!
//! `KEYLANE_SEEDS=1000` runs the seeds 0 to 999, `KEYLANE_SEEDS=17..18` the seed 17. A failing seed is
//! run again without some of its parts (`cuts`), as long as it fails.

mod api;
mod check;
mod clients;
mod clock;
mod cuts;
mod faults;
mod followers;
mod history;
mod kinds;
mod process;
mod receiver;
mod runner;
mod schedules;
mod storage;
mod work;
mod workers;
mod world;

use std::collections::BTreeSet;
use std::ops::Range;

use keylane_testkit::simulation::{assert_same, cuts, first_failure, kept, seeds};

use self::cuts::{Cuts, Part};
use self::history::Entry;

// The file operations of the simulated service are recorded.
keylane_testkit::intercept_file_calls!();

/// Seeds of a test run without `KEYLANE_SEEDS`.
const SEEDS: Range<u64> = 0..12;

/// Histories that have shown a defect: they run first.
const KEPT: &str = include_str!("kept.txt");

/// Maximum number of runs that look for a shorter history.
const MAX_SHRINKS: usize = 400;

/// Result of a run.
struct Judged {
    history: Vec<Entry>,
    broken: Vec<String>,
    /// Parts that it had.
    parts: Vec<Part>,
}

/// Runs a seed without some parts, and judges its history.
fn run(seed: u64, cuts: Cuts) -> Judged {
    let outcome = process::simulate(seed, cuts);
    let broken = check::judge(&outcome.history);
    Judged { history: outcome.history, broken, parts: outcome.parts }
}

impl Judged {
    /// The history, an event in each line.
    fn text(&self) -> String {
        let lines: Vec<String> = self.history.iter().map(ToString::to_string).collect();
        lines.join("\n")
    }
}

/// Leaves out as much of a failing simulation as possible. Returns what is left out.
fn shrink(seed: u64, cuts: &Cuts, parts: &[Part]) -> Cuts {
    let parts: Vec<Part> = parts.iter().copied().filter(|part| !cuts.has(*part)).collect();
    let without = |more: &BTreeSet<Part>| Cuts(cuts.0.union(more).copied().collect());
    let fails = |more: &BTreeSet<Part>| !run(seed, without(more)).broken.is_empty();
    without(&keylane_testkit::simulation::shrink(&parts, MAX_SHRINKS, fails))
}

/// Fails with the shortest history that still breaks a promise, and the command that repeats it.
fn fail(seed: u64, cuts: Cuts, judged: &Judged) -> ! {
    let whole = judged.history.len();
    let cuts = shrink(seed, &cuts, &judged.parts);
    let judged = run(seed, cuts.clone());
    panic!(
        "seed {seed} breaks promises ({whole} events before parts were left out):\n{}\n\n{}\n\n\
         run it alone: KEYLANE_SEEDS={seed}..{} KEYLANE_CUTS={cuts} \
         cargo test -p keylane-service --lib simulation::promises",
        judged.text(),
        judged.broken.join("\n"),
        seed + 1,
    );
}

#[test]
fn promises_hold_in_every_simulated_history() {
    let cuts: Cuts = cuts();
    let broken = first_failure(seeds(SEEDS), |seed| {
        let judged = run(seed, cuts.clone());
        (!judged.broken.is_empty()).then_some(judged)
    });
    if let Some((seed, judged)) = broken {
        fail(seed, cuts, &judged);
    }
}

#[test]
fn kept_histories_hold() {
    for (seed, cuts) in kept::<Cuts>(KEPT) {
        let judged = run(seed, cuts.clone());
        if !judged.broken.is_empty() {
            fail(seed, cuts, &judged);
        }
    }
}

#[test]
fn two_runs_of_a_seed_have_the_same_history() {
    for seed in seeds(SEEDS).take(2) {
        let (one, other) = (run(seed, cuts()).text(), run(seed, cuts()).text());
        assert_same(seed, &one, &other);
    }
}
