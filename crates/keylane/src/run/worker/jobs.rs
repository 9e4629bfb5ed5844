//! A worker while there are jobs: asks before each sitting where it goes.

use std::any::Any;

use super::*;
use crate::allocate::JobId;
use crate::engine::{Assignment, TraceInfo, WorkerCtx};
use crate::order::Claims;
use crate::run::{KeptValue, Turn};
use crate::sync::AtomicU64;

/// The most subtasks in a batch.
const MAX_BATCH: usize = 64;

/// About how long a batch is to take: long against the section of the books before it and the two
/// looks at the clock, short against what anybody would notice if one subtask in it takes long.
const BATCH_NANOS: u64 = 50_000;

/// How many subtasks of the job at its desk a worker takes at once, if nobody else wants a worker.
pub(super) struct BatchSize {
    job: Option<JobId>,
    subtasks: usize,
}

impl BatchSize {
    pub(super) fn new() -> Self {
        BatchSize { job: None, subtasks: 1 }
    }

    /// The next batch of this job. Nothing is known of another's subtasks.
    fn of(&mut self, job: JobId) -> usize {
        if self.job != Some(job) {
            *self = BatchSize { job: Some(job), subtasks: 1 };
        }
        self.subtasks
    }

    /// So many have taken so long. Twice as many are taken next at the most.
    fn record(&mut self, ran: u64, took: u64) {
        let fits = BATCH_NANOS * ran / took.max(1);
        let most = MAX_BATCH.min(self.subtasks * 2);
        self.subtasks = fits.clamp(1, most as u64) as usize;
    }
}

impl<K: Key, X: Execute<K>, S: BuildHasher + Send + Sync + 'static> Worker<K, X, S> {
    /// Goes where the rules send it, until they have nothing for it. True if that was anywhere.
    pub(super) fn run_jobs(&mut self) -> bool {
        let mut back = None;
        let mut went = false;
        loop {
            let asks = !self.must_end() && self.engine.take_token();
            // Before the worker is told that nobody else wants one.
            let changes = self.engine.sharing.changes();
            let given = self.engine.next_assignment(back.take(), asks, &mut self.current_job);
            // Who is alone with its job takes a batch of its own.
            if !matches!(given, Assignment::Job { alone: true, .. })
                && self.engine.sharing.has_open_batches()
                && self.engine.steal_batches()
                && given == Assignment::Nothing
                && asks
            {
                self.engine.return_token();
                continue;
            }
            if asks && !matches!(given, Assignment::Job { .. }) {
                // Work outside of jobs has its own.
                self.engine.return_token();
            }
            back = match given {
                Assignment::Nothing => break,
                Assignment::Loose => Some(self.run_pool_slice()),
                Assignment::Job { take, alone } => self.run_job_batch(take, alone, changes),
            };
            went = true;
        }
        self.current_job.clear();
        // While the number of workers changes, more may be about than the rules know of.
        if !went
            && !self.must_end()
            && let Some(shard) = self.pick_shard()
        {
            self.run_shard(shard);
            went = true;
        }
        went
    }

    /// Serves work outside of jobs, for a slice.
    fn run_pool_slice(&mut self) -> WorkerReport {
        let before = self.counters.ran();
        match self.pick_shard() {
            Some(shard) => self.run_shard(shard),
            // What it leaves to a worker that is at home there, and asleep, it takes if it comes again for it: nobody
            // else may be woken for that.
            None => self.eager = true,
        }
        let end = if self.counters.ran() == before { End::Nothing } else { End::Done };
        WorkerReport { who: Claimant::Loose, take: Take::Ready, report: BatchReport::ended(end) }
    }

    fn run_job_batch(&mut self, take: Take, alone: bool, changes: usize) -> Option<WorkerReport> {
        self.found_job();
        // The splitter may be asked, which stands nowhere.
        current::leave_rollup();
        self.counters.stand_free();
        self.join_trace();
        let &(id, ref runner) = self.current_job.job().expect("the worker was given a job");
        let alone = alone && !self.engine.rates.limits_pool();
        let most = if alone { self.batch_size.of(id) } else { 1 };
        let since = if alone { self.counters.now() } else { 0 };
        let mut ctx = JobCtx {
            engine: &self.engine,
            counters: &self.counters,
            sampler: &mut self.sampler,
            trace_buffer: self.trace_buffer.as_deref_mut(),
            job: runner.name(),
            shard: self.round,
            id,
            take,
            splits: take == Take::Split,
            changes,
            waited: false,
            ran: 0,
        };
        self.assignment = Some((Claimant::Job(id), take));
        let report = runner.run_batch(take, most, &mut ctx);
        let (ran, waited) = (ctx.ran, ctx.waited);
        self.assignment = None;
        let began = match &report {
            Some(report) => matches!(report.end, End::Done | End::Failed),
            // A future was begun, if it was not put in line: that takes a token when its turn comes.
            None => take == Take::Ready && !waited,
        };
        if !began {
            self.engine.return_token();
        }
        // What was not begun here may be measured elsewhere.
        self.alert |= self.sampler.is_timing();
        if alone && ran != 0 {
            let now = self.counters.now();
            self.batch_size.record(ran, now - since);
            self.counters.looked(now);
        }
        report.map(|report| WorkerReport { who: Claimant::Job(id), take, report })
    }

    fn found_job(&mut self) {
        if self.searching {
            self.searching = false;
            self.set_idle(false);
            let engine = &self.engine;
            engine.idle.stop_searching_and_pass_on(|| {
                engine.sharing.offers_synced() || engine.ready_shards.any_synced()
            });
            self.counters.fell_busy(self.counters.now());
        }
    }
}

/// A worker, as the job at its desk sees it.
struct JobCtx<'a, K: Key, X: Execute<K>, S> {
    engine: &'a Arc<Engine<K, X, S>>,
    counters: &'a WorkerCounters,
    sampler: &'a mut Sampler,
    /// Where subtasks are recorded, and the name of their job.
    trace_buffer: Option<&'a mut TraceBuffer<K>>,
    job: &'a Arc<str>,
    /// Where subtasks without keys are marked.
    shard: usize,
    id: JobId,
    take: Take,
    /// It has the job's splitter.
    splits: bool,
    /// What `JobSharing::changes` was when the worker came.
    changes: usize,
    /// The subtask for which the worker was given waits in a line.
    waited: bool,
    /// Subtasks that have run here.
    ran: u64,
}

impl<K: Key, X: Execute<K>, S: BuildHasher + Send + Sync + 'static> WorkerCtx<K, X::Work>
    for JobCtx<'_, K, X, S>
{
    fn split(&mut self, exhausted: bool) {
        self.splits = false;
        self.engine.split(self.id, exhausted);
    }

    fn subtask_blocked(&mut self, exhausted: bool) {
        self.waited = true;
        let splits = std::mem::take(&mut self.splits);
        self.engine.subtask_blocked(self.id, self.take, splits.then_some(exhausted));
    }

    #[cfg(feature = "tokio")]
    fn subtask_detached(&mut self) {
        self.engine.subtask_detached(self.id, self.take);
    }

    fn enqueue(&mut self, claims: Claims<K>, work: X::Work) {
        // The job has been accepted, and so have its subtasks.
        let ticket = self.engine.admit_accepted(&claims);
        drop_catch_unwind(self.engine.enqueue(claims, ReadyWork(work), ticket).err());
    }

    fn requeue_if_paused(
        &mut self,
        turn: Turn,
        note: &mut dyn FnMut(Option<KeptValue>) -> X::Work,
    ) -> Result<(), Turn> {
        let Some((shard, number)) = turn.place() else { return Err(turn) };
        let mut turn = Some(turn);
        self.engine.requeue_if_paused(shard, number, || note(turn.take().and_then(Turn::discard)));
        turn.map_or(Ok(()), Err)
    }

    fn publish_ready(&mut self, count: u64) {
        self.engine.split_more(self.id, count);
    }

    fn open_batch(&mut self) {
        self.engine.open_batch();
    }

    fn close_batch(&mut self) {
        self.engine.close_batches(1);
    }

    fn report_stolen(&mut self, stolen: &AtomicU64) {
        self.engine.report_stolen(self.id, stolen);
    }

    fn start_unkeyed(&mut self) -> bool {
        current::stand_free();
        self.counters.stand_free();
        self.engine.start_unkeyed(self.shard)
    }

    fn end_unkeyed_run(&mut self) {
        self.engine.end_unkeyed_run(self.shard);
    }

    fn is_interrupted(&self) -> bool {
        self.engine.sharing.changes() != self.changes || self.engine.ready_shards.any()
    }

    fn subtask_starts(&mut self) {
        if self.sampler.is_timing() {
            let now = self.counters.now();
            self.sampler.begins(now);
            if let Some(trace_buffer) = &mut self.trace_buffer {
                trace_buffer.begins(TraceInfo::subtask(), now);
            }
        }
    }

    fn subtask_ran(&mut self) {
        self.ran += 1;
        self.counters.ran_one();
        if self.sampler.should_check()
            && let Some((took, stands_for)) = self.sampler.check(|| self.counters.now()).measured
        {
            self.counters.took(took, stands_for);
            if let Some(trace_buffer) = &mut self.trace_buffer {
                trace_buffer.ends(self.counters.now(), true, Some(self.job));
            }
        }
    }

    fn failed(&self) {
        self.engine.counters.count_failed();
        self.engine.note(TraceOutcome::Failed);
    }

    fn panicked(&self, payload: &(dyn Any + Send)) {
        self.engine.panicked(payload);
    }
}
