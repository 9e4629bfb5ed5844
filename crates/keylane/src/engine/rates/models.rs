//! Checks rates in every order of events, with a worker and the real timer thread.
//!
//! The bodies of tasks advance the time.

use std::sync::Arc;
use std::time::Duration;

use super::super::models::{ModelEngine, settings};
use crate::order::{Claims, Rate};
use crate::run::{MockClock, TimeSource, Timer};
use crate::sync::model::{Plain, check, spawn};
use crate::sync::{AtomicUsize, Ordering};

const TICK: Duration = Duration::from_nanos(1);

/// Runs `tasks` tasks, each of which advances the time so that the next may begin, and wakes the
/// waiting timer when its time has come.
fn run(model: &Arc<ModelEngine>, clock: &MockClock, tasks: usize) {
    let seen = Arc::new(Plain::<usize>::default());
    for turn in 0..tasks {
        let (seen, clock) = (seen.clone(), clock.clone());
        let body = move || {
            assert_eq!(seen.get(), turn);
            seen.change(|value| *value += 1);
            clock.advance(TICK);
        };
        assert!(model.submit(Claims::exclusive(0), body));
    }
    let timer = spawn({
        let model = model.clone();
        move || {
            let engine = &model.engine;
            engine.rates.timer.run(&engine.rates.time, |wakeup| engine.fire(wakeup));
        }
    });
    work(model);
    model.engine.rates.end();
    timer.join().unwrap();
    model.assert_over();
}

/// Runs a worker's loop that checks whether the pool is shut.
fn work(model: &ModelEngine) {
    let engine = &model.engine;
    engine.idle.start_searching();
    let mut searching = true;
    while !engine.stopping() {
        if !engine.rates.is_shut()
            && let Some(shard) = engine.ready_shards.next_from(0)
        {
            model.serve(shard, &mut searching);
            continue;
        }
        if !std::mem::replace(&mut searching, true) {
            engine.idle.start_searching();
        }
        engine.idle.sleep(0, || engine.offers_synced() || engine.stopping());
    }
    if searching {
        engine.idle.stop_searching();
    }
}

/// A key that is paused for its rate continues when its time has come.
#[test]
fn a_limited_key_goes_on() {
    check(|| {
        let clock = MockClock::new();
        let mut settings = settings(1);
        settings.rate_per_key = Some(Rate::every(TICK));
        settings.clock = Some(clock.clone());
        let model = ModelEngine::of(settings, 2);
        model.engine.shards[0].lanes.lock().is_checked = true;
        run(&model, &clock, 2);
    });
}

/// A pool that is shut for its rate is opened again, and a worker that has fallen asleep is
/// notified.
#[test]
fn a_shut_pool_opens() {
    check(|| {
        let clock = MockClock::new();
        let mut settings = settings(1);
        settings.rate = Some(Rate::every(TICK));
        settings.clock = Some(clock.clone());
        let model = ModelEngine::of(settings, 2);
        model.engine.shards[0].lanes.lock().is_checked = true;
        run(&model, &clock, 2);
    });
}

/// A wake-up fires whether it is set before the thread looks or after, first or not, and before the
/// time comes or after.
#[test]
fn no_wakeup_is_overlooked() {
    check(|| {
        let clock = MockClock::new();
        let timer = Arc::new(Timer::new());
        let fired = Arc::new(AtomicUsize::new(0));
        let thread = spawn({
            let (timer, time) = (timer.clone(), TimeSource::new(Some(clock.clone())));
            let fired = fired.clone();
            move || {
                timer.run(&time, |wakeup: usize| {
                    if fired.fetch_add(wakeup, Ordering::Relaxed) + wakeup == 11 {
                        timer.end();
                    }
                });
            }
        });
        timer.set(None, Some(2), 10);
        clock.advance(TICK);
        timer.set(None, Some(1), 1);
        clock.advance(TICK);
        thread.join().unwrap();
        assert_eq!(fired.load(Ordering::Relaxed), 11);
    });
}

/// A thread that cancels a wake-up, with some delay, leaves one that another thread has set
/// meanwhile for the same time.
#[test]
fn no_wakeup_is_cancelled_for_another() {
    check(|| {
        let clock = MockClock::new();
        let timer = Arc::new(Timer::new());
        timer.set(None, Some(1), 1);
        let takes_back = spawn({
            let timer = timer.clone();
            move || timer.set(Some(1), None, 1)
        });
        timer.set(None, Some(1), 1);
        clock.advance(TICK);
        let ends = timer.clone();
        // The thread parks forever if there is nothing to do.
        timer.run(&TimeSource::new(Some(clock)), |_: usize| ends.end());
        takes_back.join().unwrap();
    });
}
