//! All features of a pool at once, under random programs, against a slow obvious reference: several
//! keys, shared, limited, barriers, descriptors, rates, pauses, taken keys, replaced and debounced
//! tasks, ends of keys, keys that stop after failures, jobs, futures, retries, delays, batches,
//! cancellation, a changing number of workers, stops.
//!
//! There are few workers, and every body stops at a gate that the test opens. After each step the
//! pool comes to rest: each worker is in a body, or asleep, and no timer is due. The reference then
//! knows which bodies may begin, and which must have begun. Debug builds check the invariants of the
//! lanes in each step of the pool.
//!
//! `KEYLANE_SEEDS=100000` runs the seeds 0 to 99,999, `KEYLANE_SEEDS=17..18` the seed 17. A failing
//! program is made smaller before it is printed. `README.md` lists the defects that the model finds.

mod program;
mod reference;
mod steps;
mod world;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{AnyHasher, Collide, soon};
use keylane::KeyBuildHasher;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

use self::program::{Program, programs};
use self::world::World;

/// Seeds of a test run without `KEYLANE_SEEDS`.
const SEEDS: Range<u64> = 0..200;
/// Bound of the time in which a failing program is made smaller, in milliseconds.
const MAX_SHRINK_TIME: u32 = 60_000;

/// Whether a program has failed: the smaller ones need not wait as long for what never happens.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);

fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("KEYLANE_SEEDS") else { return SEEDS };
    let number = |text: &str| text.trim().parse().expect("KEYLANE_SEEDS is a number or a range");
    match text.split_once("..") {
        Some((from, to)) => number(from)..number(to),
        None => 0..number(&text),
    }
}

fn run<S: AnyHasher>(program: &Program) {
    let mut world = World::<S>::new(program);
    world.settle();
    for step in &program.steps {
        world.step(step.clone());
        world.settle();
    }
    world.end(program.end);
}

fn check_seed<S: AnyHasher>(seed: u64) -> Result<(), String> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config {
        cases: 1,
        failure_persistence: None,
        max_shrink_time: MAX_SHRINK_TIME,
        max_shrink_iters: 100_000,
        ..Config::default()
    };
    let mut runner =
        TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let result = runner.run(&programs(), |program| {
        let failed = FailedOnPanic;
        soon(move || run::<S>(&program));
        std::mem::forget(failed);
        Ok(())
    });
    result.map_err(|error| {
        let failure = match error {
            TestError::Fail(reason, program) => format!("{reason}\nsmallest program: {program:?}"),
            TestError::Abort(reason) => reason.to_string(),
        };
        let next = seed + 1;
        format!("{failure}\nseed {seed}; KEYLANE_SEEDS={seed}..{next} runs it alone")
    })
}

/// Notes a failure when it is dropped.
struct FailedOnPanic;

impl Drop for FailedOnPanic {
    fn drop(&mut self) {
        HAS_FAILED.store(true, Ordering::Relaxed);
    }
}

fn check<S: AnyHasher>() {
    for seed in seeds() {
        check_seed::<S>(seed).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn random_programs_with_keys_spread() {
    check::<KeyBuildHasher>();
}

#[test]
fn random_programs_with_all_keys_colliding() {
    check::<Collide>();
}
