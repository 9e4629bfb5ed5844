//! Checks jobs with sleeping workers, and subtasks beside a barrier, in every order of events.
//!
//! Job table and engine are the real ones; the job is a number of subtasks, and the worker is
//! minimal. Each model names the defects that it was seen to catch.

use std::sync::Arc;
use std::sync::atomic::Ordering as StdOrdering;

use keylane_allocate::{Claimant, End, JobProgress, Supply};

use super::super::models::{BoxedWork, Meeting, ModelEngine};
use super::test_job::TestJob;
use super::*;
use crate::sync::model::{Plain, check, spawn};
use crate::sync::yield_now;

/// Job with two subtasks that one worker takes together.
struct Pair {
    batch: Mutex<Batch>,
    granted: Mutex<usize>,
    stolen: AtomicU64,
    run: Box<dyn Fn() + Send + Sync>,
    name: Arc<str>,
}

/// Batch with the second subtask, as in `job/core/batches.rs`.
#[derive(Default)]
struct Batch {
    left: usize,
    is_open: bool,
    was_released: bool,
}

impl Pair {
    fn new(run: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Pair {
            batch: Mutex::default(),
            granted: Mutex::new(0),
            stolen: AtomicU64::new(0),
            run: Box::new(run),
            name: "pair".into(),
        })
    }

    /// Takes out the subtasks that are left, and returns whether that closed the batch.
    fn empty(&self, releases: bool) -> (usize, bool) {
        let mut batch = self.batch.lock();
        let left = std::mem::take(&mut batch.left);
        if releases && left != 0 {
            batch.was_released = true;
            *self.granted.lock() += left;
            self.stolen.fetch_add(left as u64, Ordering::AcqRel);
        }
        (left, std::mem::take(&mut batch.is_open))
    }
}

impl JobRunner<u64, BoxedWork> for Pair {
    fn run_batch(
        &self,
        take: Take,
        _: BatchLimits,
        ctx: &mut dyn WorkerCtx<u64, BoxedWork>,
    ) -> Option<BatchReport> {
        if take == Take::Ready {
            let mut granted = self.granted.lock();
            *granted = granted.checked_sub(1).expect("a ready subtask was granted");
            drop(granted);
            (self.run)();
            return Some(BatchReport::ended(End::Done));
        }
        ctx.split(true);
        *self.batch.lock() = Batch { left: 1, is_open: true, was_released: false };
        ctx.open_batch();
        (self.run)();
        let (left, closes) = self.empty(false);
        if closes {
            ctx.close_batch();
        }
        (0..left).for_each(|_| (self.run)());
        if self.batch.lock().was_released {
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

    fn finish(&self, _: JobProgress) {}

    fn stop(&self) {}

    fn name(&self) -> &Arc<str> {
        &self.name
    }
}

/// Worker of a model.
struct ModelWorker<'a>(&'a ModelEngine, JobId);

impl WorkerCtx<u64, BoxedWork> for ModelWorker<'_> {
    fn split(&mut self, exhausted: bool) {
        self.0.engine.split(self.1, exhausted);
    }

    fn subtasks_announced(&mut self, _: u64) {}

    fn announced_are_missing(&mut self, _: u64) {}

    fn subtask_blocked(&mut self) {}

    #[cfg(feature = "tokio")]
    fn subtask_detached(&mut self) {}

    fn enqueue(&mut self, _: Claims<u64>, _: BoxedWork) -> Result<(), KeyPanic> {
        Ok(())
    }

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

impl ModelEngine {
    /// Submits a job as a pool does.
    fn submit_job(&self, subtasks: u64, job: Arc<dyn JobRunner<u64, BoxedWork>>) {
        self.engine.admission.force_accepted();
        self.engine.submit_job(job, Supply::Split { expected: Some(subtasks) }, 1, |_| ());
    }

    /// Counts a subtask; the last one ends the workers.
    fn count(&self) {
        if self.left.fetch_sub(1, StdOrdering::Relaxed) == 1 {
            self.engine.stopping.store(true, Ordering::Release);
            self.engine.idle.wake_all();
        }
    }

    /// Runs a worker's loop while there are jobs. It is counted as searching.
    fn share(&self) {
        let engine = &self.engine;
        let (mut searching, mut back, mut current_job) = (true, None, CurrentJob::default());
        while !engine.stopping() {
            match engine.next_assignment(back.take(), true, &mut current_job) {
                WorkerAssignment::Job { take, .. } => {
                    if std::mem::take(&mut searching) {
                        engine.idle.stop_searching_and_pass_on(|| engine.sharing.offers_synced());
                    }
                    let &(id, ref runner) = current_job.job().expect("a job was assigned");
                    let report = runner.run_batch(
                        take,
                        BatchLimits { free: 1, keyed: 1 },
                        &mut ModelWorker(self, id),
                    );
                    back =
                        report.map(|report| WorkerReport { who: Claimant::Job(id), take, report });
                }
                WorkerAssignment::Loose => unreachable!("there is nothing outside of jobs"),
                WorkerAssignment::Nothing if engine.sharing.has_open_batches() => {
                    if !engine.steal_batches() {
                        yield_now();
                    }
                }
                WorkerAssignment::Nothing => {
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
/// Caught: a section that wakes no worker; a section that writes `offers` after the lock was
/// released; a worker that sleeps without a look at `offers`.
#[test]
fn no_subtask_is_left_while_a_worker_sleeps() {
    check(|| {
        let model = ModelEngine::new(2, 2);
        let meeting = Meeting::of(2);
        model.engine.idle.start_searching();
        model.engine.idle.start_searching();
        let other = model.clone();
        let worker = spawn(move || other.share());
        let submitter = model.clone();
        let submitter = spawn(move || {
            let counter = Arc::downgrade(&submitter);
            let subtask = move || {
                meeting.attend();
                counter.upgrade().expect("the model is alive").count();
            };
            submitter.submit_job(2, TestJob::new(2, subtask));
        });
        model.share();
        worker.join().unwrap();
        submitter.join().unwrap();
        assert_eq!(model.left.load(StdOrdering::Relaxed), 0);
    });
}

/// Two subtasks that only end together, both taken by one worker: the other worker must take one of
/// them, also if it was about to sleep, and the job is over when both have ended, and no earlier.
///
/// Caught: an opened batch that wakes no worker.
#[test]
fn no_subtask_is_left_in_a_batch_while_a_worker_sleeps() {
    check(|| {
        let model = ModelEngine::new(2, 2);
        let meeting = Meeting::of(2);
        model.engine.idle.start_searching();
        model.engine.idle.start_searching();
        let other = model.clone();
        let worker = spawn(move || other.share());
        let counter = Arc::downgrade(&model);
        let subtask = move || {
            meeting.attend();
            counter.upgrade().expect("the model is alive").count();
        };
        model.submit_job(2, Pair::new(subtask));
        model.share();
        worker.join().unwrap();
        assert_eq!(model.left.load(StdOrdering::Relaxed), 0);
        assert!(!model.engine.sharing.has_jobs() && !model.engine.sharing.has_open_batches());
    });
}

/// A subtask without keys, and a barrier: they write the same memory.
///
/// Caught: barriers that are read before the subtask is counted, or not at all; the end of a
/// subtask that does not offer the shard again.
#[test]
fn a_subtask_and_a_barrier_are_never_at_the_same_time() {
    check(|| {
        let model = ModelEngine::new(1, 1);
        let place = Arc::new(Plain::default());
        model.engine.idle.start_searching();
        let (other, theirs) = (model.clone(), place.clone());
        let subtask = spawn(move || {
            if other.engine.start_unkeyed(0) {
                theirs.change(|value: &mut u32| *value += 1);
                other.engine.end_unkeyed_run(0);
            }
        });
        let mine = place.clone();
        assert!(model.submit(Claims::barrier(), move || mine.change(|value| *value += 10)));
        model.work(0);
        subtask.join().unwrap();
        assert!([10, 11].contains(&place.get()));
    });
}
