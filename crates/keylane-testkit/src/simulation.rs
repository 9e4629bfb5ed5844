//! What deterministic simulations share: their seeds, histories that are kept, and a shorter run that
//! fails too.

use std::collections::BTreeSet;
use std::env;
use std::fmt::Debug;
use std::ops::Range;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, available_parallelism};

/// Returns the seeds to run: those of `KEYLANE_SEEDS`, a number or a range, or the default.
///
/// # Panics
/// If `KEYLANE_SEEDS` is neither.
#[must_use]
pub fn seeds(default: Range<u64>) -> Range<u64> {
    let Ok(text) = env::var("KEYLANE_SEEDS") else { return default };
    let number = |text: &str| text.trim().parse().expect("KEYLANE_SEEDS is a number or a range");
    match text.split_once("..") {
        Some((from, until)) => number(from)..number(until),
        None => 0..number(&text),
    }
}

/// Runs seeds on all processors, each on one thread, until one fails. Returns the lowest of the seeds that have failed by then, and its
/// failure.
///
/// # Panics
/// If a run panics. The seed is printed.
pub fn first_failure<F: Send>(
    seeds: Range<u64>,
    run: impl Fn(u64) -> Option<F> + Sync,
) -> Option<(u64, F)> {
    let next = AtomicU64::new(seeds.start);
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if !seeds.contains(&seed) {
                return None;
            }
            let _context = SeedOfPanic(seed);
            if let Some(failure) = run(seed) {
                next.store(seeds.end, Ordering::Relaxed);
                return Some((seed, failure));
            }
        }
    };
    let threads = available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let failures =
            threads.into_iter().filter_map(|thread| thread.join().expect("a run panics"));
        failures.min_by_key(|(seed, _)| *seed)
    })
}

/// Names its seed if the thread panics.
struct SeedOfPanic(u64);

impl Drop for SeedOfPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("the simulation of seed {} panics", self.0);
        }
    }
}

/// Returns the parts to leave out: those of `KEYLANE_CUTS`, or none.
///
/// # Panics
/// If `KEYLANE_CUTS` names no parts of the simulation.
#[must_use]
pub fn cuts<C: FromStr<Err: Debug>>() -> C {
    let text = env::var("KEYLANE_CUTS").unwrap_or_default();
    text.parse().expect("KEYLANE_CUTS names parts of the simulation")
}

/// Returns the histories of a text: lines with a seed and the parts that are left out. Lines that begin
/// with `#` are comments.
///
/// # Panics
/// If a line is none.
pub fn kept<C: FromStr<Err: Debug>>(text: &str) -> impl Iterator<Item = (u64, C)> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(|line| {
        let (seed, cuts) = line.split_once(' ').unwrap_or((line, ""));
        let seed = seed.parse().expect("a line begins with a seed");
        (seed, cuts.trim().parse().expect("the parts that are left out"))
    })
}

/// Fails unless two histories of a seed are the same. Names the lines around the first difference.
///
/// # Panics
/// If they differ.
pub fn assert_same(seed: u64, one: &str, other: &str) {
    let differs = one.lines().zip(other.lines()).position(|(one, other)| one != other);
    let differs = differs.map(|at| {
        let from = at.saturating_sub(5);
        let part = |text: &str| text.lines().skip(from).take(10).collect::<Vec<_>>().join("\n");
        format!("{}\n--- and\n{}", part(one), part(other))
    });
    assert_eq!(differs, None, "seed {seed}");
    assert_eq!(one.len(), other.len(), "seed {seed}");
}

/// Leaves out as many parts of a failing run as possible, some at a time and then fewer, with at most
/// `max_runs` runs. `fails` says whether the run fails without these parts. Returns the parts that it
/// fails without.
///
/// The parts that stay have to do the same as before; otherwise fewer can be left out.
///
/// After Zeller and Hildebrandt: Simplifying and Isolating Failure-Inducing Input (2002).
pub fn shrink<P: Copy + Ord>(
    parts: &[P],
    max_runs: usize,
    mut fails: impl FnMut(&BTreeSet<P>) -> bool,
) -> BTreeSet<P> {
    let (mut parts, mut cut) = (parts.to_vec(), BTreeSet::new());
    let (mut size, mut left) = (parts.len().div_ceil(2), max_runs);
    while size > 0 {
        let mut kept = Vec::new();
        for some in parts.chunks(size) {
            let more = cut.iter().chain(some).copied().collect();
            if left > 0 && fails(&more) {
                cut = more;
            } else {
                kept.extend(some);
            }
            left = left.saturating_sub(1);
        }
        // Without a part, others may have become needless.
        size = if kept.len() < parts.len() { size.min(kept.len()) } else { size / 2 };
        parts = kept;
    }
    cut
}

#[test]
fn a_run_that_needs_three_of_its_parts_keeps_these() {
    let parts: Vec<u32> = (0..100).collect();
    let cut = shrink(&parts, 400, |cut| [3, 40, 41].iter().all(|part| !cut.contains(part)));
    assert_eq!(cut.len(), 97);
    assert_eq!(shrink(&parts, 0, |_| true).len(), 0);
}
