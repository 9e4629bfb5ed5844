//! Checks further attempts in every order of events, with a worker that may fall asleep.
//!
//! Each model names the defects that it was seen to catch.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering as StdOrdering};

use super::super::models::ModelEngine;
use super::*;
use crate::observe::StartRange;
use crate::run::TurnResult;
use crate::sync::model::{check, spawn};

/// Work that counts its attempts, and then stops the engine.
struct Counted {
    model: Arc<ModelEngine>,
    ran: AtomicUsize,
    given_up: AtomicUsize,
}

impl Counted {
    fn new(model: &Arc<ModelEngine>) -> Arc<Self> {
        let (ran, given_up) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Counted { model: model.clone(), ran, given_up })
    }

    /// Counts runs and the ends without one.
    fn counts(&self) -> (usize, usize) {
        (self.ran.load(StdOrdering::Relaxed), self.given_up.load(StdOrdering::Relaxed))
    }
}

impl RetryAttempt for Counted {
    fn run(self: Arc<Self>, _: &Arc<dyn AttemptEngine>) {
        self.ran.fetch_add(1, StdOrdering::Relaxed);
        self.model.engine.stopping.store(true, Ordering::Release);
        self.model.engine.idle.wake_all();
    }

    fn give_up(&self) {
        self.given_up.fetch_add(1, StdOrdering::Relaxed);
    }
}

/// Engine that attempts report to; the models' own engine is none, since its executor keeps no
/// turn.
struct NoEngine;

impl AttemptEngine for NoEngine {
    fn now(&self) -> u64 {
        0
    }

    fn is_stopping(&self) -> bool {
        false
    }

    fn number_attempt(&self) -> u64 {
        unreachable!("no attempt of these models fails")
    }

    fn schedule_attempt(
        &self,
        _: u64,
        _: Duration,
        _: Arc<dyn RetryAttempt>,
        _: Option<(usize, usize)>,
    ) -> bool {
        unreachable!("no attempt of these models fails")
    }

    fn run_soon(&self, _: Arc<dyn RetryAttempt>, _: Option<(usize, usize)>) {
        unreachable!("no turn of these models is resumed")
    }

    fn withdraw_attempt(&self, _: u64) {}
    fn cancelled(&self) {}
    fn failed(&self) {}
    fn panicked(&self, _: &(dyn Any + Send)) {}
}

/// Runs a worker's loop that looks for attempts only. It is counted as searching.
fn work(model: &ModelEngine) {
    let engine = &model.engine;
    let mut searching = true;
    while !engine.stopping() {
        if let Some(attempt) = engine.take_attempt() {
            if std::mem::replace(&mut searching, false) {
                engine.idle.stop_searching_and_pass_on(|| engine.attempts.is_ready_synced());
            }
            let reports: Arc<dyn AttemptEngine> = Arc::new(NoEngine);
            attempt.run(&reports);
            continue;
        }
        if !std::mem::replace(&mut searching, true) {
            engine.idle.start_searching();
        }
        engine.idle.sleep(0, || engine.attempts.is_ready_synced() || engine.stopping());
    }
    if searching {
        engine.idle.stop_searching();
    }
}

/// Schedules an attempt of a task with this kept turn, without a timer.
fn schedule(model: &ModelEngine, work: &Arc<Counted>, turn: Option<(usize, usize)>) {
    assert!(model.engine.attempts.schedule(1, 0, NextAttempt::here(work.clone(), turn)));
}

/// An attempt whose time comes finds its worker, whether that searches, falls asleep or sleeps.
///
/// Caught: an attempt that is counted and wakes no worker.
#[test]
fn an_attempt_that_is_due_wakes_a_worker() {
    check(|| {
        let model = ModelEngine::new(1, 1);
        let attempt = Counted::new(&model);
        schedule(&model, &attempt, None);
        let timer = spawn({
            let model = model.clone();
            move || model.engine.attempt_is_due(1)
        });
        model.engine.idle.start_searching();
        work(&model);
        timer.join().unwrap();
        assert_eq!(attempt.counts(), (1, 0));
    });
}

/// An attempt of a paused key runs when the key is resumed, once, in every order of the resuming
/// and the worker's looks.
///
/// Caught: a worker without the second look of step 4.
#[test]
fn a_resumed_key_finds_its_attempt() {
    check(|| {
        let model = ModelEngine::new(1, 2);
        let attempt = Counted::new(&model);
        assert!(model.submit(Claims::exclusive(0), || {}));
        let held = model.step(0, None, true).expect("the first may run").held;
        let began = StartRange { earliest: 0, latest: 0 };
        let turn = model.engine.keep_turn(0, held, began);
        assert!(model.engine.leave_body(0, turn, TurnResult::Done).is_none());
        assert!(model.engine.pause_key(&0));
        schedule(&model, &attempt, Some((0, turn)));
        model.engine.attempt_is_due(1);
        let user = spawn({
            let model = model.clone();
            move || assert!(model.engine.resume_key(&0))
        });
        model.engine.idle.start_searching();
        work(&model);
        user.join().unwrap();
        assert_eq!(attempt.counts(), (1, 0));
    });
}

/// An attempt either runs or is given up, once, if the engine stops while a worker takes it.
///
/// Caught: an end that leaves ready attempts.
#[test]
fn a_stop_leaves_no_attempt() {
    check(|| {
        let model = ModelEngine::new(1, 1);
        let attempt = Counted::new(&model);
        schedule(&model, &attempt, None);
        let timer = spawn({
            let model = model.clone();
            move || model.engine.attempt_is_due(1)
        });
        let stops = spawn({
            let model = model.clone();
            move || {
                model.engine.stopping.store(true, Ordering::Release);
                model.engine.end_attempts();
                model.engine.idle.wake_all();
            }
        });
        model.engine.idle.start_searching();
        work(&model);
        timer.join().unwrap();
        stops.join().unwrap();
        let (ran, given_up) = attempt.counts();
        assert_eq!(ran + given_up, 1);
    });
}
