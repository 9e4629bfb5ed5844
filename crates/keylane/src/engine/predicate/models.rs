//! Tasks with descriptors beside workers, other submitters and a stop, in every order of events.
//!
//! The engine is the real one with a bare worker, as in `../models.rs`. Where mistakes are named, the model
//! was seen to catch them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering as StdOrdering};

use super::super::models::Shift;
use super::*;
use crate::order::Compatibility;
use crate::sync::model::{Plain, check, spawn};

/// Conflicts with all of its kind; in the class, if it has one.
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

/// A worker ends a task at any moment while the next one, which conflicts with it, is seated and asks:
/// the next one runs, after it, and sees what it wrote.
fn one_after_the_other(class: Option<u64>) {
    check(move || {
        let state = Arc::new(Plain::<u32>::default());
        Shift::new(1, 3).run_beside(move |shift| {
            for turn in 0..3 {
                let state = state.clone();
                let add = move || {
                    assert_eq!(state.get(), turn);
                    state.change(|value| *value += 1);
                };
                assert!(shift.submit(alone(class), add));
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
/// other has opened and not asked about. None overlaps another, and none is lost.
#[test]
fn who_joins_a_class_that_still_asks_asks_as_well() {
    check(|| {
        let state = Arc::new(Plain::<u32>::default());
        let add = |state: &Arc<Plain<u32>>| {
            let state = state.clone();
            move || state.change(|value| *value += 1)
        };
        let shift = Shift::new(1, 3);
        assert!(shift.submit(alone(None), add(&state)));
        let other = spawn({
            let (shift, work) = (shift.clone(), add(&state));
            move || assert!(shift.submit(alone(Some(1)), work))
        });
        shift.run_beside(move |shift| {
            assert!(shift.submit(alone(Some(1)), add(&state)));
            other.join().unwrap();
        });
    });
}

/// Keys and descriptors have one order: two tasks that meet in both, from two submitters, do not wait
/// for each other.
///
/// Caught: `seat` that does not have a task wait for its own inquiry.
#[test]
fn two_tasks_that_meet_twice_meet_in_one_order() {
    check(|| {
        let state = Arc::new(Plain::<u32>::default());
        let add = |state: &Arc<Plain<u32>>| {
            let state = state.clone();
            move || state.change(|value| *value += 1)
        };
        let shift = Shift::new(1, 2);
        let other = spawn({
            let (shift, work) = (shift.clone(), add(&state));
            move || assert!(shift.submit(alone(None).and_exclusive(0), work))
        });
        shift.run_beside(move |shift| {
            assert!(shift.submit(alone(None).and_exclusive(0), add(&state)));
            other.join().unwrap();
        });
    });
}

/// A stop while a described task waits for nothing but another one that ends: it ran, came back, or was
/// refused, and just one of these.
///
/// Caught: `stop` that does not look at the circles.
#[test]
fn a_stopped_task_that_waits_in_no_lane_is_found() {
    check(|| {
        let shift = Shift::new(1, usize::MAX);
        let ran = Arc::new(AtomicUsize::new(0));
        let submit = {
            let ran = ran.clone();
            move |shift: &Arc<Shift>| {
                let ran = ran.clone();
                let count = move || _ = ran.fetch_add(1, StdOrdering::Relaxed);
                usize::from(shift.submit(alone(Some(1)), count))
            }
        };
        let accepted = submit(&shift) + submit(&shift);
        shift.engine.idle.start_searching();
        let worker = spawn({
            let shift = shift.clone();
            move || shift.work(0)
        });
        let unrun = shift.engine.stop().len();
        let late = submit(&shift);
        worker.join().unwrap();
        assert_eq!((accepted, late), (2, 0));
        assert_eq!(accepted, unrun + ran.load(StdOrdering::Relaxed));
        shift.assert_over();
    });
}

/// A stop while a task is submitted that has to ask.
///
/// Caught: `stop` that does not look at the circles.
#[test]
fn a_stop_meets_a_task_that_asks() {
    check(|| {
        let shift = Shift::new(1, usize::MAX);
        let ran = Arc::new(AtomicUsize::new(0));
        let submit = {
            let ran = ran.clone();
            move |shift: &Arc<Shift>| {
                let ran = ran.clone();
                let count = move || _ = ran.fetch_add(1, StdOrdering::Relaxed);
                usize::from(shift.submit(alone(None), count))
            }
        };
        let before = submit(&shift);
        shift.engine.idle.start_searching();
        let worker = spawn({
            let shift = shift.clone();
            move || shift.work(0)
        });
        let producer = spawn({
            let shift = shift.clone();
            move || submit(&shift)
        });
        let unrun = shift.engine.stop().len();
        let accepted = before + producer.join().unwrap();
        worker.join().unwrap();
        assert_eq!(accepted, unrun + ran.load(StdOrdering::Relaxed));
        shift.assert_over();
    });
}
