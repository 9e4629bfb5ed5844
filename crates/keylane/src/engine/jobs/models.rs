//! Jobs and the workers that sleep, in every order of events; and subtasks beside a barrier.
//!
//! The books are the real ones, and so is the engine; the job is a number of subtasks, and the worker
//! is bare. Each model names the mistakes that it was seen to catch.

use std::sync::Arc;
use std::sync::atomic::Ordering as StdOrdering;

use super::super::models::{Meeting, Shift, Work};
use super::test_job::TestJob;
use super::*;
use crate::allocate::{Progress, Supply};
use crate::sync::model::{Plain, check, spawn};
use crate::sync::yield_now;

/// Two subtasks that one worker takes together.
struct Pair {
    lot: Mutex<Lot>,
    granted: Mutex<usize>,
    stolen: AtomicU64,
    run: Box<dyn Fn() + Send + Sync>,
    name: Arc<str>,
}

/// The second of them, as `job/core/shared_batch.rs` has it.
#[derive(Default)]
struct Lot {
    left: usize,
    is_open: bool,
    was_relieved: bool,
}

impl Pair {
    fn new(run: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Pair {
            lot: Mutex::default(),
            granted: Mutex::new(0),
            stolen: AtomicU64::new(0),
            run: Box::new(run),
            name: "pair".into(),
        })
    }

    /// Takes out what is left, and says whether that closed the lot.
    fn empty(&self, relieves: bool) -> (usize, bool) {
        let mut lot = self.lot.lock();
        let left = std::mem::take(&mut lot.left);
        if relieves && left != 0 {
            lot.was_relieved = true;
            *self.granted.lock() += left;
            self.stolen.fetch_add(left as u64, Ordering::AcqRel);
        }
        (left, std::mem::take(&mut lot.is_open))
    }
}

impl JobRunner<u64, Work> for Pair {
    fn run_batch(
        &self,
        take: Take,
        _: usize,
        ctx: &mut dyn WorkerCtx<u64, Work>,
    ) -> Option<BatchReport> {
        if take == Take::Ready {
            let mut granted = self.granted.lock();
            *granted = granted.checked_sub(1).expect("what the rules say is ready was granted");
            drop(granted);
            (self.run)();
            return Some(BatchReport::ended(End::Done));
        }
        ctx.split(true);
        *self.lot.lock() = Lot { left: 1, is_open: true, was_relieved: false };
        ctx.open_batch();
        (self.run)();
        let (left, closes) = self.empty(false);
        if closes {
            ctx.close_batch();
        }
        (0..left).for_each(|_| (self.run)());
        if self.lot.lock().was_relieved {
            ctx.report_stolen(&self.stolen);
        }
        Some(BatchReport { more_done: left as u64, ..BatchReport::ended(End::Done) })
    }

    fn release_batches(&self) -> usize {
        let (_, closes) = self.empty(true);
        usize::from(closes)
    }

    fn stolen(&self) -> &AtomicU64 {
        &self.stolen
    }

    fn is_full(&self) -> bool {
        false
    }

    fn max_waiting(&self) -> u64 {
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

impl WorkerCtx<u64, Work> for Bare<'_> {
    fn split(&mut self, exhausted: bool) {
        self.0.engine.split(self.1, exhausted);
    }

    fn subtask_blocked(&mut self, _: bool) {}
    fn enqueue(&mut self, _: Claims<u64>, _: Work) {}
    fn publish_ready(&mut self, _: u64) {}

    fn open_batch(&mut self) {
        self.0.engine.open_batch();
    }

    fn close_batch(&mut self) {
        self.0.engine.close_batches(1);
    }

    fn report_stolen(&mut self, stolen: &AtomicU64) {
        self.0.engine.report_stolen(self.1, stolen);
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

impl Shift {
    /// Submits a job as a pool does.
    fn submit_job(&self, subtasks: u64, job: Arc<dyn JobRunner<u64, Work>>) {
        self.engine.admission.force_accepted();
        self.engine.submit_job(job, Supply::Split { expected: Some(subtasks) }, 1, |_| ());
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
        let (mut searching, mut back, mut current_job) = (true, None, CurrentJob::default());
        while !engine.stopping() {
            match engine.next_assignment(back.take(), true, &mut current_job) {
                Assignment::Job { take, .. } => {
                    if std::mem::take(&mut searching) {
                        engine.idle.stop_searching_and_pass_on(|| engine.sharing.offers_synced());
                    }
                    let &(id, ref runner) = current_job.job().expect("a job was assignment");
                    let report = runner.run_batch(take, 1, &mut Bare(self, id));
                    back =
                        report.map(|report| WorkerReport { who: Claimant::Job(id), take, report });
                }
                Assignment::Loose => unreachable!("there is nothing outside of jobs"),
                Assignment::Nothing if engine.sharing.has_open_batches() => {
                    if !engine.steal_batches() {
                        yield_now();
                    }
                }
                Assignment::Nothing => {
                    if !std::mem::replace(&mut searching, true) {
                        engine.idle.start_searching();
                    }
                    engine.idle.sleep(0, || engine.sharing.offers_synced() || engine.stopping());
                }
            }
        }
        engine.next_assignment(back, false, &mut current_job);
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
            let subtask = move || {
                meeting.attend();
                counter.upgrade().expect("the shift goes on").count();
            };
            submitter.submit_job(2, TestJob::new(2, subtask));
        });
        shift.share();
        worker.join().unwrap();
        submitter.join().unwrap();
        assert_eq!(shift.left.load(StdOrdering::Relaxed), 0);
    });
}

/// Two subtasks that only end together, of which one worker has both: the other must come and take one, also
/// if it was about to sleep, and the job is over when both have ended, and no earlier.
///
/// Fails if nobody is woken for a batch.
#[test]
fn no_subtask_is_left_in_a_batch_while_a_worker_sleeps() {
    check(|| {
        let shift = Shift::new(2, 2);
        let meeting = Meeting::of(2);
        shift.engine.idle.start_searching();
        shift.engine.idle.start_searching();
        let other = shift.clone();
        let worker = spawn(move || other.share());
        let counter = Arc::downgrade(&shift);
        let subtask = move || {
            meeting.attend();
            counter.upgrade().expect("the shift goes on").count();
        };
        shift.submit_job(2, Pair::new(subtask));
        shift.share();
        worker.join().unwrap();
        assert_eq!(shift.left.load(StdOrdering::Relaxed), 0);
        assert!(!shift.engine.sharing.has_jobs() && !shift.engine.sharing.has_open_batches());
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
            if other.engine.start_unkeyed(0) {
                theirs.change(|value: &mut u32| *value += 1);
                other.engine.end_unkeyed_run(0);
            }
        });
        let mine = place.clone();
        assert!(shift.submit(Claims::barrier(), move || mine.change(|value| *value += 10)));
        shift.work(0);
        subtask.join().unwrap();
        assert!([10, 11].contains(&place.get()));
    });
}
