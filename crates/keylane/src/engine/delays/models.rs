//! Checks delayed tasks against a stop and a withdrawal, in every order of events.
//!
//! Each model names the defects that it was seen to catch.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering as StdOrdering};

use super::super::models::{BoxedWork, ModelEngine};
use super::*;
use crate::sync::model::{check, spawn};

/// Adds a delayed task without a timer, and returns its number.
fn delay(model: &ModelEngine, work: impl FnOnce() + Send + 'static) -> u64 {
    let claims = Claims::exclusive(0);
    let Ok(ticket) = model.engine.admit(&claims, 0, WaitLimit::None) else {
        unreachable!("there is capacity")
    };
    let work: BoxedWork = Box::new(work);
    let role = DelayedRole::Ordinary;
    let task = DelayedTask { claims, work, ticket, role, at: 0, series: 0 };
    let Ok(number) = model.engine.delays.insert(task) else { unreachable!("it has not stopped") };
    number
}

/// A stop returns a task whose delay is over at that moment, or finds it in its inbox; never both,
/// and never neither.
///
/// Caught: a stop that does not wait for `entering`; a timer that enqueues a task before it sets
/// `entering`.
#[test]
fn a_stop_returns_the_task_that_the_timer_enters() {
    check(|| {
        let model = ModelEngine::new(1, 1);
        let number = delay(&model, || unreachable!("no worker runs"));
        let timer = spawn({
            let model = model.clone();
            move || assert!(model.engine.enter_delayed(number).is_none())
        });
        let unrun = model.engine.stop();
        timer.join().unwrap();
        assert_eq!(unrun.len(), 1);
        assert_eq!(model.engine.admission.in_use(), 0);
    });
}

/// A task is entered or withdrawn, once, and its permit is released once.
///
/// Caught: a timer that enters a task without removing it.
#[test]
fn a_task_is_entered_or_withdrawn() {
    check(|| {
        let model = ModelEngine::new(1, 1);
        let dropped = Arc::new(AtomicUsize::new(0));
        let capture = Dropped(dropped.clone());
        let number = delay(&model, move || drop(capture));
        let timer = spawn({
            let model = model.clone();
            move || assert!(model.engine.enter_delayed(number).is_none())
        });
        model.engine.withdraw_delayed(number);
        timer.join().unwrap();
        let withdrawn = dropped.load(StdOrdering::Relaxed);
        let unrun = model.engine.stop();
        assert_eq!(unrun.len() + withdrawn, 1);
        assert_eq!(model.engine.admission.in_use(), 0);
    });
}

/// Counts its drop.
struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, StdOrdering::Relaxed);
    }
}
