//! A batch, its worker, and one that relieves it, in every order of events.
//!
//! The job is the real one. Its rules are a number of ready subtasks, of which each that is given must be there.

use std::any::Any;
use std::sync::atomic::{AtomicUsize as Plain, Ordering::Relaxed};

use super::*;
use crate::job::subtask::Closure;
use crate::order::Repr;
use crate::sync::model::{check, spawn};

/// What the rules of the pool know of a job.
#[derive(Default)]
struct ModelRules {
    /// Subtasks that were said to be ready, and for which no worker was given.
    ready: Mutex<u64>,
    /// Lots that are open.
    batches: Mutex<isize>,
}

impl ModelRules {
    fn tell(&self, stolen: &AtomicU64) {
        let mut ready = self.ready.lock();
        *ready += stolen.swap(0, Ordering::AcqRel);
    }

    /// Gives the caller, if any subtask is ready.
    fn give(&self) -> bool {
        let mut ready = self.ready.lock();
        let given = *ready != 0;
        *ready -= u64::from(given);
        given
    }
}

/// A worker.
struct Bare<'a>(&'a ModelRules);

impl WorkerCtx<u64, TaskBody> for Bare<'_> {
    fn split(&mut self, _: bool) {}

    fn subtask_blocked(&mut self, _: bool) {
        unreachable!("no subtask has keys")
    }

    fn enqueue(&mut self, _: Claims<u64>, _: TaskBody) {
        unreachable!("no subtask has keys")
    }

    fn publish_ready(&mut self, count: u64) {
        *self.0.ready.lock() += count;
    }

    fn open_batch(&mut self) {
        *self.0.batches.lock() += 1;
    }

    fn close_batch(&mut self) {
        *self.0.batches.lock() -= 1;
    }

    fn report_stolen(&mut self, stolen: &AtomicU64) {
        self.0.tell(stolen);
    }

    fn start_unkeyed(&mut self) -> bool {
        true
    }

    fn end_unkeyed_run(&mut self) {}

    fn is_interrupted(&self) -> bool {
        false
    }

    fn subtask_starts(&mut self) {}
    fn subtask_ran(&mut self) {}
    fn failed(&self) {}
    fn panicked(&self, _: &(dyn Any + Send)) {}
}

/// Outcomes go nowhere.
struct Nowhere;

impl Sink<(), ()> for Nowhere {
    fn put(
        &self,
        outcomes: &mut dyn Iterator<Item = super::super::sink::Numbered<(), ()>>,
        _: OnPanic<'_>,
    ) -> bool {
        outcomes.for_each(drop);
        true
    }

    fn finish(&self, _: Ending) {}
}

/// Works for the job as long as something is ready. What it is given for is there.
fn work(job: &dyn JobRunner<u64, TaskBody>, rules: &ModelRules) {
    while rules.give() {
        let report = job.run_batch(Take::Ready, 1, &mut Bare(rules)).expect("it has no keys");
        assert!(report.end == End::Done, "a worker was given for a subtask that is not there");
    }
}

/// A batch of three. Another worker takes out what has not begun, at any moment, and both do what is ready then.
///
/// Fails if what was taken out is granted after the lock of the lot is released, so that the rules may be told of it
/// before it can be found; if its worker does not look whether it was relieved.
#[test]
fn what_is_taken_out_of_a_batch_is_there_when_a_worker_is_given_for_it() {
    check(|| {
        let ran = Arc::new(Plain::new(0));
        let piece = |_| {
            let ran = ran.clone();
            let count = move || {
                ran.fetch_add(1, Relaxed);
                Ok(())
            };
            (Claims(Repr::None), Closure(count))
        };
        let pieces: Vec<_> = (0..3).map(piece).collect();
        let parts =
            CoreParts {
                name: "batch".into(),
                on_error: OnError::FinishAll,
                control: Weak::<
                    crate::engine::Engine<u64, crate::pool::Closures, crate::KeyBuildHasher>,
                >::new(),
                sink: Arc::new(Nowhere),
                max_waiting: 1,
            };
        let job = JobCore::new(JobSource::new(pieces.into_iter(), None), parts);
        let rules = Arc::new(ModelRules::default());
        let (theirs, told) = (job.clone(), rules.clone());
        let reliever = spawn(move || {
            let closed = theirs.release_batches();
            if closed != 0 {
                told.tell(theirs.stolen());
                *told.batches.lock() -= 1;
            }
            work(&*theirs, &told);
        });
        let report = job.run_batch(Take::Split, 3, &mut Bare(&rules)).expect("it has no keys");
        assert!(report.end == End::Done);
        work(&*job, &rules);
        reliever.join().unwrap();
        work(&*job, &rules);
        assert_eq!(ran.load(Relaxed), 3);
        assert_eq!((*rules.ready.lock(), *rules.batches.lock()), (0, 0));
    });
}
