//! Jobs and the workers that sleep, in every order of events; and subtasks beside a barrier.
//!
//! The books are the real ones, and so is the engine; the job is a number of subtasks, and the worker
//! is bare. Each model names the mistakes that it was seen to catch.

use std::sync::Arc;
use std::sync::atomic::Ordering as StdOrdering;

use super::super::models::{Meeting, Shift, Work};
use super::*;
use crate::allocate::{Progress, Supply};
use crate::sync::model::{Plain, check, spawn};

/// A job of so many subtasks, which are alike.
struct Few {
    left: Mutex<usize>,
    run: Box<dyn Fn() + Send + Sync>,
    name: Arc<str>,
}

impl Few {
    fn new(subtasks: usize, run: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Few { left: Mutex::new(subtasks), run: Box::new(run), name: "few".into() })
    }
}

impl Crowd<u64, Work> for Few {
    fn sit(&self, _: Take, _: usize, site: &mut dyn Site<u64, Work>) -> Option<Sat> {
        let mut left = self.left.lock();
        *left -= 1;
        let exhausted = *left == 0;
        drop(left);
        site.split(exhausted);
        (self.run)();
        Some(Sat::ended(End::Done))
    }

    fn is_full(&self) -> bool {
        false
    }

    fn most_waiting(&self) -> u64 {
        1
    }

    fn finish(&self, _: Progress) {}

    fn stop(&self) {}

    fn name(&self) -> &Arc<str> {
        &self.name
    }
}

/// The worker of a model.
struct Bare<'a>(&'a Shift, JobId);

impl Site<u64, Work> for Bare<'_> {
    fn split(&mut self, exhausted: bool) {
        self.0.engine.split(self.1, exhausted);
    }

    fn waits(&mut self, _: bool) {}
    fn enter(&mut self, _: Claims<u64>, _: Work) {}
    fn leave(&mut self, _: u64) {}

    fn begin_free(&mut self) -> bool {
        true
    }

    fn end_free(&mut self) {}

    fn is_disturbed(&self) -> bool {
        false
    }

    fn begins_one(&mut self) {}
    fn ran_one(&mut self) {}
    fn failed(&self) {}
    fn panicked(&self, _: &(dyn Any + Send)) {}
}

impl Shift {
    /// Submits a job as a pool does.
    fn submit_few(&self, subtasks: usize, run: impl Fn() + Send + Sync + 'static) {
        self.engine.admission.force_for_accepted();
        let supply = Supply::Split { expected: Some(subtasks as u64) };
        self.engine.submit_job(Few::new(subtasks, run), supply, 1, |_| ());
    }

    /// Counts a subtask; the last one ends the shift.
    fn count(&self) {
        if self.left.fetch_sub(1, StdOrdering::Relaxed) == 1 {
            self.engine.stopping.store(true, Ordering::Release);
            self.engine.idle.wake_all();
        }
    }

    /// Does what a worker does while there are jobs. It is counted as searching.
    fn share(&self) {
        let engine = &self.engine;
        let (mut searching, mut back, mut desk) = (true, None, Desk::default());
        while !engine.stopping() {
            match engine.share(back.take(), true, &mut desk) {
                Given::Job { take, .. } => {
                    if std::mem::take(&mut searching) {
                        engine.idle.found(|| engine.sharing.offers_for_certain());
                    }
                    let &(id, ref crowd) = desk.job().expect("a job was given");
                    let sat = crowd.sit(take, 1, &mut Bare(self, id));
                    back = sat.map(|sat| Back { who: Claimant::Job(id), take, sat });
                }
                Given::Loose => unreachable!("there is nothing outside of jobs"),
                Given::Nothing => {
                    if !std::mem::replace(&mut searching, true) {
                        engine.idle.start_searching();
                    }
                    engine.idle.sleep(|| engine.sharing.offers_for_certain() || engine.stopping());
                }
            }
        }
        engine.share(back, false, &mut desk);
        if searching {
            engine.idle.stop_searching();
        }
    }
}

/// Two subtasks that only end together: the second worker must not sleep while there is one.
///
/// Fails if a section wakes nobody; if it writes `offers` after the lock was released; if a worker sleeps
/// without a look at `offers`.
#[test]
fn no_subtask_is_left_while_a_worker_sleeps() {
    check(|| {
        let shift = Shift::new(2, 2);
        let meeting = Meeting::of(2);
        shift.engine.idle.start_searching();
        shift.engine.idle.start_searching();
        let other = shift.clone();
        let worker = spawn(move || other.share());
        let submitter = shift.clone();
        let submitter = spawn(move || {
            let counter = Arc::downgrade(&submitter);
            submitter.submit_few(2, move || {
                meeting.attend();
                counter.upgrade().expect("the shift goes on").count();
            });
        });
        shift.share();
        worker.join().unwrap();
        submitter.join().unwrap();
        assert_eq!(shift.left.load(StdOrdering::Relaxed), 0);
    });
}

/// A subtask that has no keys, and a barrier: they write the same memory.
///
/// Fails if the barriers are counted before the mark is made, or not at all; if the end of a subtask does
/// not offer the shard again.
#[test]
fn a_subtask_and_a_barrier_are_never_at_the_same_time() {
    check(|| {
        let shift = Shift::new(1, 1);
        let place = Arc::new(Plain::default());
        shift.engine.idle.start_searching();
        let (other, theirs) = (shift.clone(), place.clone());
        let subtask = spawn(move || {
            if other.engine.begin_free(0) {
                theirs.change(|value: &mut u32| *value += 1);
                other.engine.end_free(0);
            }
        });
        let mine = place.clone();
        assert!(shift.submit(Claims::barrier(), move || mine.change(|value| *value += 10)));
        shift.work(0);
        subtask.join().unwrap();
        assert!([10, 11].contains(&place.get()));
    });
}
