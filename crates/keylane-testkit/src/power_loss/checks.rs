//! Checks over many runs and power failures.

use std::ops::Range;

use super::trace::{Crashed, SyncPoint, Trace};

/// Number of power failures in each recorded run.
const CRASHES: u64 = 12;

/// Returns the seeds of a randomized test: as many as `KEYLANE_SEEDS` says, or the default.
///
/// # Panics
/// If `KEYLANE_SEEDS` is not a number.
#[must_use]
pub fn seeds(default: u64) -> Range<u64> {
    match std::env::var("KEYLANE_SEEDS") {
        Ok(text) => 0..text.parse().expect("KEYLANE_SEEDS is a number of seeds"),
        Err(_) => 0..default,
    }
}

/// Checks the files after power failures at random moments of the run of each seed. `record`
/// returns the run and its facts, which `check` compares with the files.
///
/// # Panics
/// If a check fails.
pub fn check_all<F>(
    runs: u64,
    record: impl Fn(u64) -> (Trace, F),
    check: impl Fn(&Crashed, &F) -> Result<(), String>,
) {
    for run in seeds(runs) {
        let (trace, facts) = record(run);
        for crash in 0..CRASHES {
            let crashed = trace.crash_anywhere(run * CRASHES + crash);
            if let Err(why) = check(&crashed, &facts) {
                let (at, seed) = crashed.moment;
                let operations = trace.operations(at);
                panic!(
                    "run {run}, power failure {seed} after these operations: {why}\n{operations}"
                );
            }
        }
    }
}

/// Checks that a power failure loses something if these syncs are missing.
///
/// # Panics
/// If all checks succeed without the syncs.
pub fn check_needed<F>(
    what: &str,
    is_missing: impl Fn(SyncPoint<'_>) -> bool,
    record: impl Fn(u64) -> (Trace, F),
    check: impl Fn(&Crashed, &F) -> Result<(), String>,
) {
    /// Number of runs, and of power failures in each.
    const RUNS: u64 = 20;
    const CRASHES_OF_RUN: u64 = 50;
    let found = (0..RUNS).any(|run| {
        let (trace, facts) = record(run);
        let trace = trace.ignore(&is_missing);
        let mut seeds = (0..CRASHES_OF_RUN).map(|crash| run * CRASHES_OF_RUN + crash);
        seeds.any(|seed| check(&trace.crash_anywhere(seed), &facts).is_err())
    });
    assert!(found, "no power failure shows that {what} is missing");
}
