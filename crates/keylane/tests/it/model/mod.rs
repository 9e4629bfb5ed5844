//! The whole contract, against a slow obvious reference, under random programs.
//!
//! `step_by_step`: every body stops at a gate that the test opens, so that after each step the
//! reference knows exactly how many bodies must run: as many as there are workers, or all that are
//! ready. That is "not more than that": an idle worker means that no task is ready. Each beginning
//! is checked against the order, each refusal and each admission against the bound, and the end of
//! the pool against all that is unfinished.
//!
//! `at_full_speed`: bodies run freely under several producers, and the history is checked
//! afterwards.

mod history;
mod keys;
mod program;
mod world;

use crate::common::{AnyHasher, Collide, soon};
use history::{check_history, history};
use keylane::KeyBuildHasher;
use program::{Program, some_program};
use proptest::prelude::*;
use world::World;

fn run<S: AnyHasher>(program: Program) {
    let mut world = World::<S>::new(&program);
    let seed = program.steps.len();
    for step in program.steps {
        world.step(step);
        world.settle();
    }
    world.end(program.end, seed);
}

/// Bodies panic on purpose here, thousands of times.
fn without_panic_messages(test: impl FnOnce() + Send + 'static) {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if info.payload().downcast_ref::<&str>() != Some(&"on purpose") {
            hook(info);
        }
    }));
    test();
}

fn check_step_by_step<S: AnyHasher>(cases: u32) {
    let config = ProptestConfig {
        cases,
        failure_persistence: None,
        max_shrink_time: 120_000,
        ..ProptestConfig::default()
    };
    without_panic_messages(move || {
        proptest!(config, |(program in some_program())| run::<S>(program));
    });
}

#[test]
fn step_by_step_with_keys_spread() {
    check_step_by_step::<KeyBuildHasher>(600);
}

#[test]
fn step_by_step_with_all_keys_colliding() {
    check_step_by_step::<Collide>(600);
}

fn check_at_full_speed<S: AnyHasher>() {
    without_panic_messages(|| {
        for seed in 0..60 {
            let capacity = 1 + (seed as usize * 7) % 40;
            check_history(&history::<S>(seed, capacity), capacity);
        }
    });
}

#[test]
fn at_full_speed_with_keys_spread() {
    soon(check_at_full_speed::<KeyBuildHasher>);
}

#[test]
fn at_full_speed_with_all_keys_colliding() {
    soon(check_at_full_speed::<Collide>);
}
