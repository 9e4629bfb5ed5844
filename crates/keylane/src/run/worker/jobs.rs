//! Worker while there are jobs: asks the scheduler for an assignment before each batch of subtasks.

use std::any::Any;

use keylane_allocate::JobId;

use super::*;
use crate::engine::{BatchLimits, TraceInfo, WorkerAssignment, WorkerCtx};
use crate::order::Claims;
use crate::run::{KeptValue, Turn};
use crate::sync::AtomicU64;

impl<K: Key, X: Execute<K>, S: BuildHasher + Send + Sync + 'static> Worker<K, X, S> {
    /// Runs assignments until the scheduler has none. Returns whether any work was done.
    pub(super) fn run_jobs(&mut self) -> bool {
        let mut report = None;
        let mut did_work = false;
        loop {
            let wants_job =
                !self.must_end() && !self.engine.attempts.is_ready() && self.engine.take_token();
            // Read before the assignment is made, so that a later request for a worker is noticed.
            let changes = self.engine.sharing.changes();
            let assignment =
                self.engine.next_assignment(report.take(), wants_job, &mut self.current_job);
            // A worker whose job is alone takes a batch of its own instead.
            if !matches!(assignment, WorkerAssignment::Job { alone: true, .. })
                && self.engine.sharing.has_open_batches()
                && self.engine.steal_batches()
                && assignment == WorkerAssignment::Nothing
                && wants_job
            {
                self.engine.return_token();
                continue;
            }
            if wants_job && !matches!(assignment, WorkerAssignment::Job { .. }) {
                // Work outside jobs takes its own tokens.
                self.engine.return_token();
            }
            report = match assignment {
                WorkerAssignment::Nothing => break,
                WorkerAssignment::Loose => self.run_pool_slice(),
                WorkerAssignment::Job { take, alone } => self.run_job_batch(take, alone, changes),
            };
            did_work = true;
        }
        self.current_job.clear();
        // While the number of workers changes, there may be more of them than the scheduler counts.
        if !did_work
            && !self.must_end()
            && let Some(shard) = self.pick_shard()
        {
            self.run_shard(shard);
            self.report_stretch();
            did_work = true;
        }
        did_work
    }

    /// Runs work outside jobs for a slice, and subtasks that it finds in their lanes. Returns the
    /// report of the assignment that the worker has in the end.
    fn run_pool_slice(&mut self) -> Option<WorkerReport> {
        let before = self.counters.ran();
        self.stretch.holds_loose = true;
        match self.pick_shard() {
            Some(shard) => self.run_shard(shard),
            // The remaining tasks are left to a sleeping home worker. Take them at the next
            // attempt, because no other worker may be woken for them.
            None => self.eager = true,
        }
        self.stretch.end_slice(&self.counters, self.counters.ran() != before)
    }

    /// Reports the subtasks that the worker has run in their lanes.
    pub(super) fn report_stretch(&mut self) {
        if self.stretch.is_open() {
            self.engine.report_assignment(self.stretch.close(&self.counters));
        }
    }

    fn run_job_batch(&mut self, take: Take, alone: bool, changes: usize) -> Option<WorkerReport> {
        self.stop_searching();
        // The splitter may run first, which has no position in the order.
        current::clear_rollup();
        self.counters.set_position_free();
        self.join_trace();
        let &(id, ref runner) = self.current_job.job().expect("the worker was assignment a job");
        let alone = alone && !self.engine.rates.limits_pool();
        let free = if alone { self.batch_size.of(id) } else { 1 };
        // Others wait little for subtasks that are only enqueued.
        let limits = BatchLimits { free, keyed: self.keyed_batch_size.of(id) };
        let splits = take == Take::Split;
        let since = if alone || splits { self.counters.now() } else { 0 };
        let mut ctx = JobCtx {
            engine: &self.engine,
            counters: &self.counters,
            sampler: &mut self.sampler,
            trace_buffer: self.trace_buffer.as_deref_mut(),
            job: runner.name(),
            shard: self.round,
            id,
            take,
            changes,
            waited: 0,
            ran: 0,
        };
        self.assignment = Some((Claimant::Job(id), take));
        let report = runner.run_batch(take, limits, &mut ctx);
        let (ran, waited) = (ctx.ran, ctx.waited);
        self.assignment = None;
        let began = match &report {
            Some(report) => matches!(report.end, End::Done | End::Failed),
            // A future was started unless it was queued; a queued one takes a token when it starts.
            None => take == Take::Ready && waited == 0,
        };
        if !began {
            self.engine.return_token();
        }
        // A subtask that did not start here may be measured elsewhere.
        self.needs_before_task |= self.sampler.is_timing();
        if alone && ran != 0 {
            let now = self.counters.now();
            self.batch_size.record(ran, now - since);
            self.counters.looked(now);
        }
        if splits && waited != 0 {
            let now = self.counters.now();
            self.keyed_batch_size.record(waited, now - since);
            self.counters.looked(now);
        }
        report.map(|report| WorkerReport { who: Claimant::Job(id), take, report })
    }
}

/// Worker of a running batch, as seen by its job.
struct JobCtx<'a, K: Key, X: Execute<K>, S> {
    engine: &'a Arc<Engine<K, X, S>>,
    counters: &'a WorkerCounters,
    sampler: &'a mut Sampler,
    /// Trace buffer, and the name of the job for its records.
    trace_buffer: Option<&'a mut TraceBuffer<K>>,
    job: &'a Arc<str>,
    /// Shard that records the start of subtasks without keys.
    shard: usize,
    id: JobId,
    take: Take,
    /// Value of `SharedJobs::changes` before the assignment.
    changes: usize,
    /// Number of subtasks that were enqueued, or returned to their wait queue.
    waited: u64,
    /// Number of subtasks run in this batch.
    ran: u64,
}

impl<K: Key, X: Execute<K>, S: BuildHasher + Send + Sync + 'static> WorkerCtx<K, X::Work>
    for JobCtx<'_, K, X, S>
{
    fn split(&mut self, exhausted: bool) {
        self.engine.split(self.id, exhausted);
    }

    fn subtasks_announced(&mut self, count: u64) {
        self.waited += count;
        self.engine.subtasks_announced(self.id, count);
    }

    fn announced_are_missing(&mut self, count: u64) {
        self.engine.announced_are_missing(self.id, count);
    }

    fn subtask_blocked(&mut self) {
        self.waited += 1;
        self.engine.subtask_blocked(self.id, self.take);
    }

    #[cfg(feature = "tokio")]
    fn subtask_detached(&mut self) {
        self.engine.subtask_detached(self.id, self.take);
    }

    fn enqueue(&mut self, claims: Claims<K>, work: X::Work) -> Result<(), KeyPanic> {
        // The job was accepted, and with it its subtasks.
        let refused = catch_key_panic(|| {
            let ticket = self.engine.admit_accepted(&claims);
            self.engine.enqueue(claims, ReadyWork(work), ticket).err()
        })?;
        drop_catch_unwind(refused);
        Ok(())
    }

    fn requeue_if_paused(
        &mut self,
        turn: Turn,
        note: &mut dyn FnMut(Option<KeptValue>) -> X::Work,
    ) -> Result<(), (Turn, Option<KeyPanic>)> {
        let Some((shard, number)) = turn.location() else { return Err((turn, None)) };
        let (engine, mut turn) = (self.engine, Some(turn));
        let note = || {
            let work = note(turn.take().and_then(Turn::discard));
            // Before another worker can find it.
            self.subtask_blocked();
            work
        };
        let panic = engine.requeue_if_paused(shard, number, note).err();
        turn.map_or(Ok(()), |turn| Err((turn, panic)))
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
        current::set_position_free();
        self.counters.set_position_free();
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
            self.sampler.task_started(now);
            if let Some(trace_buffer) = &mut self.trace_buffer {
                trace_buffer.task_started(TraceInfo::subtask(), now);
            }
        }
    }

    fn subtask_ran(&mut self) {
        self.ran += 1;
        self.counters.ran_one();
        if self.sampler.should_check()
            && let Some((took, weight)) = self.sampler.check(|| self.counters.now()).measured
        {
            self.counters.took(took, weight);
            if let Some(trace_buffer) = &mut self.trace_buffer {
                trace_buffer.task_ended(self.counters.now(), true, Some(self.job));
            }
        }
    }

    fn failed(&self) {
        self.engine.counters.count_failed();
        self.engine.record_abnormal_end(TraceOutcome::Failed);
    }

    fn panicked(&self, payload: &(dyn Any + Send)) {
        self.engine.panicked(payload);
    }
}
