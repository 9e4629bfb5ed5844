//! Checks tasks with descriptors beside workers, other submitters and a stop, in every order of
//! events.
//!
//! The engine is the real one with a minimal worker, as in `../models.rs`. Defects that a model
//! names, it was seen to catch.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering as StdOrdering};

use super::super::models::ModelEngine;
use super::*;
use crate::order::Compatibility;
use crate::sync::model::{Plain, check, spawn};

/// Conflicts with all of its type; in the class, if it has one.
struct Alone(Option<u64>);

impl Compatibility for Alone {
    fn is_compatible(&self, _: &Self) -> bool {
        false
    }

    fn class(&self) -> Option<u64> {
        self.0
    }
}

fn alone(class: Option<u64>) -> Claims<u64> {
    Claims::described(Alone(class))
}

/// A worker ends a task at any moment while the next one, which conflicts with it, is inserted and
/// scans: the next one runs, after it, and sees its writes.
fn one_after_the_other(class: Option<u64>) {
    check(move || {
        let state = Arc::new(Plain::<u32>::default());
        ModelEngine::new(1, 3).run_beside(move |model| {
            for turn in 0..3 {
                let state = state.clone();
                let add = move || {
                    assert_eq!(state.get(), turn);
                    state.change(|value| *value += 1);
                };
                assert!(model.submit(alone(class), add));
            }
        });
    });
}

#[test]
fn a_single_task_follows_the_one_before_it() {
    one_after_the_other(None);
}

#[test]
fn a_task_follows_the_one_before_it_in_its_class() {
    one_after_the_other(Some(1));
}

/// Two submitters at once, while a third task may run or end: one of them joins the class that the
/// other has opened and not compared yet. None overlaps another, and none is lost.
#[test]
fn a_task_that_joins_a_scanning_class_scans_too() {
    check(|| {
        let state = Arc::new(Plain::<u32>::default());
        let add = |state: &Arc<Plain<u32>>| {
            let state = state.clone();
            move || state.change(|value| *value += 1)
        };
        let model = ModelEngine::new(1, 3);
        assert!(model.submit(alone(None), add(&state)));
        let other = spawn({
            let (model, work) = (model.clone(), add(&state));
            move || assert!(model.submit(alone(Some(1)), work))
        });
        model.run_beside(move |model| {
            assert!(model.submit(alone(Some(1)), add(&state)));
            other.join().unwrap();
        });
    });
}

/// Keys and descriptors have one order: two tasks that meet in both, from two submitters, do not
/// wait for each other.
///
/// Caught: `insert` that does not make a task wait for its own scan.
#[test]
fn two_tasks_that_meet_twice_meet_in_one_order() {
    check(|| {
        let state = Arc::new(Plain::<u32>::default());
        let add = |state: &Arc<Plain<u32>>| {
            let state = state.clone();
            move || state.change(|value| *value += 1)
        };
        let model = ModelEngine::new(1, 2);
        let other = spawn({
            let (model, work) = (model.clone(), add(&state));
            move || assert!(model.submit(alone(None).and_exclusive(0), work))
        });
        model.run_beside(move |model| {
            assert!(model.submit(alone(None).and_exclusive(0), add(&state)));
            other.join().unwrap();
        });
    });
}

/// A stop while a task with a descriptor waits only for another one that ends: it ran, was
/// returned, or was refused, and exactly one of these.
///
/// Caught: `stop` that does not look at the conflict indexes.
#[test]
fn a_stopped_task_that_waits_in_no_lane_is_found() {
    check(|| {
        let model = ModelEngine::new(1, usize::MAX);
        let ran = Arc::new(AtomicUsize::new(0));
        let submit = {
            let ran = ran.clone();
            move |model: &Arc<ModelEngine>| {
                let ran = ran.clone();
                let count = move || _ = ran.fetch_add(1, StdOrdering::Relaxed);
                usize::from(model.submit(alone(Some(1)), count))
            }
        };
        let accepted = submit(&model) + submit(&model);
        model.engine.idle.start_searching();
        let worker = spawn({
            let model = model.clone();
            move || model.work(0)
        });
        let unrun = model.engine.stop().len();
        let late = submit(&model);
        worker.join().unwrap();
        assert_eq!((accepted, late), (2, 0));
        assert_eq!(accepted, unrun + ran.load(StdOrdering::Relaxed));
        model.assert_over();
    });
}

/// A stop while a task that must scan is submitted.
///
/// Caught: `stop` that does not look at the conflict indexes.
#[test]
fn a_stop_meets_a_scanning_task() {
    check(|| {
        let model = ModelEngine::new(1, usize::MAX);
        let ran = Arc::new(AtomicUsize::new(0));
        let submit = {
            let ran = ran.clone();
            move |model: &Arc<ModelEngine>| {
                let ran = ran.clone();
                let count = move || _ = ran.fetch_add(1, StdOrdering::Relaxed);
                usize::from(model.submit(alone(None), count))
            }
        };
        let before = submit(&model);
        model.engine.idle.start_searching();
        let worker = spawn({
            let model = model.clone();
            move || model.work(0)
        });
        let producer = spawn({
            let model = model.clone();
            move || submit(&model)
        });
        let unrun = model.engine.stop().len();
        let accepted = before + producer.join().unwrap();
        worker.join().unwrap();
        assert_eq!(accepted, unrun + ran.load(StdOrdering::Relaxed));
        model.assert_over();
    });
}
