//! Batches of a job on a worker: pulls from the splitter, runs subtasks, delivers outcomes.

use std::any::Any;

use super::*;

impl<K, I, F, T, E> JobCore<K, I, F, T, E>
where
    K: Key,
    I: SubtaskSource<K, F>,
    F: SubtaskBody<T, E>,
    T: Send + 'static,
    E: Send + 'static,
{
    /// Pulls from the splitter, and runs the subtasks.
    pub(super) fn split(
        &self,
        limits: BatchLimits,
        ctx: &mut dyn WorkerCtx<K, TaskBody>,
    ) -> Option<BatchReport> {
        let limits = BatchLimits { keyed: limits.keyed.min(self.room()), ..limits };
        let SourceSlot::Here(mut source) =
            std::mem::replace(&mut *self.source.lock(), SourceSlot::Out)
        else {
            // Cancelled meanwhile; the scheduler ignores the report.
            *self.source.lock() = SourceSlot::Gone;
            return Some(BatchReport::ended(End::Waits));
        };
        let mut free = VecDeque::new();
        let asked = catch_unwind(AssertUnwindSafe(|| {
            let pulled = source.pull(limits.free, F::IS_FUTURE, &mut free);
            let left = source.expected();
            (pulled, left)
        }));
        match asked {
            Err(payload) => {
                free.into_iter().for_each(drop_catch_unwind);
                Some(self.splitter_panicked(source, payload, ctx))
            }
            Ok((PullResult::End, _)) => Some(self.splitter_ended(source)),
            Ok((PullResult::Keyed(first), left)) => {
                let left = left.map_or(0, |left| usize::try_from(left).unwrap_or(usize::MAX));
                self.enqueue_batch(source, first, left.min(limits.keyed - 1), ctx)
            }
            Ok((PullResult::Free, left)) => {
                self.put_back(source);
                ctx.split(left == Some(0));
                self.run_free(free, ctx)
            }
        }
    }

    /// Ends the job, because its splitter has panicked.
    fn splitter_panicked(
        &self,
        source: JobSource<K, I, F>,
        payload: Box<dyn Any + Send>,
        ctx: &mut dyn WorkerCtx<K, TaskBody>,
    ) -> BatchReport {
        ctx.panicked(&*payload);
        *self.source.lock() = SourceSlot::Gone;
        drop_catch_unwind(source);
        self.end(JobEnding::Panicked(PanicPayload::new(payload)));
        BatchReport { cancels: true, ..BatchReport::ended(End::Waits) }
    }

    fn splitter_ended(&self, source: JobSource<K, I, F>) -> BatchReport {
        *self.source.lock() = SourceSlot::Gone;
        drop_catch_unwind(source);
        BatchReport::ended(End::Nothing)
    }

    /// Returns the splitter before it is reported as free.
    fn put_back(&self, source: JobSource<K, I, F>) {
        let mut slot = self.source.lock();
        if self.is_cancelled() {
            *slot = SourceSlot::Gone;
            drop(slot);
            drop_catch_unwind(source);
        } else {
            *slot = SourceSlot::Here(source);
        }
    }

    /// Number of subtasks with keys that may be pulled at once.
    fn room(&self) -> usize {
        if F::IS_FUTURE {
            // Running futures count as waiting too, but only the scheduler knows their number.
            return 1;
        }
        let waiting = self.blocked.len();
        usize::try_from(self.max_waiting).unwrap_or(usize::MAX).saturating_sub(waiting).max(1)
    }

    /// Enqueues a subtask and `more` others of a splitter that has as many, in the order of the pool: each before the
    /// splitter is called for the next one, which may submit work with the same keys, or wait for the one before. Returns
    /// `None` unless the job has ended: the worker is then reported as free.
    fn enqueue_batch(
        &self,
        mut source: JobSource<K, I, F>,
        first: ClaimedSubtask<K, F>,
        more: usize,
        ctx: &mut dyn WorkerCtx<K, TaskBody>,
    ) -> Option<BatchReport> {
        if more != 0 {
            ctx.subtasks_announced(more as u64);
        }
        let owner = SharedJob::for_entries(self.me(), more + 1);
        // The last one is that of the assignment. So the worker counts as running while it calls the splitter.
        let mut next = first;
        for left in (0..more).rev() {
            let Some((claims, index)) = self.block(next) else {
                self.put_back(source);
                return Some(BatchReport::ended(End::Waits));
            };
            self.enqueue_blocked(claims, (owner.clone(), index), ctx);
            next = match catch_unwind(AssertUnwindSafe(|| source.pull_one())) {
                Ok(Some(subtask)) => subtask,
                Ok(None) => {
                    // Its `size_hint` was wrong.
                    ctx.announced_are_missing(left as u64);
                    return Some(self.splitter_ended(source));
                }
                Err(payload) => return Some(self.splitter_panicked(source, payload, ctx)),
            };
        }
        let exhausted = match catch_unwind(AssertUnwindSafe(|| source.expected() == Some(0))) {
            Ok(exhausted) => exhausted,
            Err(payload) => {
                drop_catch_unwind(next);
                return Some(self.splitter_panicked(source, payload, ctx));
            }
        };
        self.put_back(source);
        let report = self.enqueue(next, owner, ctx);
        // Only now may another worker call the splitter, so that the next subtask comes after these.
        ctx.split(exhausted);
        report
    }

    /// Enqueues the subtask of the assignment in the order of the pool. Returns `None` unless the job was cancelled: the
    /// worker is then reported as free.
    fn enqueue(
        &self,
        subtask: ClaimedSubtask<K, F>,
        owner: Arc<dyn OnGranted>,
        ctx: &mut dyn WorkerCtx<K, TaskBody>,
    ) -> Option<BatchReport> {
        let Some((claims, index)) = self.block(subtask) else {
            return Some(BatchReport::ended(End::Waits));
        };
        // From here on the job can end, if it is cancelled.
        ctx.subtask_blocked();
        self.enqueue_blocked(claims, (owner, index), ctx);
        None
    }

    /// Puts a subtask with those that wait. Drops it and returns `None` if the job was cancelled.
    fn block(&self, (claims, subtask): ClaimedSubtask<K, F>) -> Option<(Claims<K>, usize)> {
        match self.blocked.add(subtask, &self.cancelled) {
            Ok(index) => Some((claims, index)),
            Err(subtask) => {
                drop_catch_unwind((claims, subtask));
                None
            }
        }
    }

    /// Enqueues the entry of a subtask that waits.
    fn enqueue_blocked(
        &self,
        claims: Claims<K>,
        (job, index): (Arc<dyn OnGranted>, usize),
        ctx: &mut dyn WorkerCtx<K, TaskBody>,
    ) {
        let entry = TaskBody::new(KeyedSubtask { job, index, kept: None });
        if let Err(payload) = ctx.enqueue(claims, entry) {
            ctx.panicked(&*payload);
            self.failed(index, payload);
        }
    }

    fn me(&self) -> Arc<Self> {
        self.me.upgrade().expect("a job with a worker is alive")
    }

    /// Delivers the outcome of a subtask that did not run, because one of its keys panicked.
    fn deliver_failed(
        &self,
        number: u64,
        payload: KeyPanic,
        ctx: &mut dyn WorkerCtx<K, TaskBody>,
    ) -> BatchReport {
        let outcome = Outcome::Panicked(PanicPayload::new(payload));
        let mut count = OutcomeCount::default();
        count.add(&outcome);
        let mut one = std::iter::once((number, outcome));
        let cancels = self.deliver(&mut one, true, &|payload| ctx.panicked(payload));
        count.report(cancels)
    }

    /// Runs subtasks without keys.
    fn run_free(
        &self,
        mut batch: VecDeque<NumberedSubtask<F>>,
        ctx: &mut dyn WorkerCtx<K, TaskBody>,
    ) -> Option<BatchReport> {
        if !ctx.start_unkeyed() {
            // A barrier is active, so each subtask must be queued like a task.
            let first = batch.pop_front().expect("a batch has at least one");
            self.grant_to_others(batch, ctx);
            return self.enqueue((Claims::none(), first), self.me(), ctx);
        }
        let mut outcomes = Vec::with_capacity(batch.len());
        let mut count = OutcomeCount::default();
        let mut next = batch.pop_front();
        let batch = (!batch.is_empty()).then(|| self.open_batch(batch, ctx));
        with_cancel_flag(self.cancelled.clone(), || {
            while let Some((number, work)) = next.take() {
                ctx.subtask_starts();
                let outcome = self.run_subtask(work, &JobWorker(&*ctx));
                ctx.subtask_ran();
                count.add(&outcome);
                outcomes.push((number, outcome));
                let ends = count.failed != 0 && matches!(self.on_error, OnError::FailFast);
                if !ends && !ctx.is_interrupted() && !self.is_cancelled() {
                    next = batch.as_ref().and_then(|batch| batch.take_next(ctx));
                }
            }
        });
        let cancels = self
            .deliver(&mut outcomes.drain(..), count.failed != 0, &|payload| ctx.panicked(payload));
        ctx.end_unkeyed_run();
        if let Some(batch) = batch {
            self.close_batch(&batch, ctx);
        }
        Some(count.report(cancels))
    }

    /// Grants subtasks to other workers, unless the job was cancelled.
    pub(super) fn grant_to_others(
        &self,
        batch: VecDeque<NumberedSubtask<F>>,
        ctx: &mut dyn WorkerCtx<K, TaskBody>,
    ) {
        let count = batch.len() as u64;
        if count != 0 && self.grant(batch) {
            ctx.publish_ready(count);
        }
    }

    /// Adds subtasks without keys to the granted ones, for any worker. Returns false if they were
    /// dropped instead, because the job was cancelled.
    pub(super) fn grant(&self, batch: VecDeque<NumberedSubtask<F>>) -> bool {
        match self.try_grant(batch) {
            Ok(()) => true,
            Err(refused) => {
                refused.into_iter().for_each(drop_catch_unwind);
                false
            }
        }
    }

    /// Adds subtasks without keys to the granted ones. Returns them if the job was cancelled, to be
    /// dropped without the caller's lock.
    pub(super) fn try_grant(
        &self,
        batch: VecDeque<NumberedSubtask<F>>,
    ) -> Result<(), VecDeque<NumberedSubtask<F>>> {
        let mut granted = self.granted.lock();
        if self.is_cancelled() {
            return Err(batch);
        }
        granted.extend(
            batch.into_iter().map(|subtask| GrantedSubtask::Ready { subtask, held_turn: None }),
        );
        Ok(())
    }

    /// Runs a subtask that waited for a worker only.
    pub(super) fn run_granted(&self, ctx: &mut dyn WorkerCtx<K, TaskBody>) -> Option<BatchReport> {
        let first = self.granted.lock().pop_front();
        let (subtask, held_turn) = match first {
            Some(GrantedSubtask::Ready { subtask, held_turn }) => (subtask, held_turn),
            Some(GrantedSubtask::Failed { number, payload }) => {
                return Some(self.deliver_failed(number, payload, ctx));
            }
            None => {
                debug_assert!(
                    self.is_cancelled(),
                    "a subtask that the scheduler counts as ready is granted"
                );
                return Some(BatchReport::ended(End::Waits));
            }
        };
        let Some((turn, position)) = held_turn else {
            return self.run_free(VecDeque::from([subtask]), ctx);
        };
        let (turn, subtask, panic) = self.requeue_if_paused(turn, subtask, ctx)?;
        if let Some(payload) = panic {
            ctx.panicked(&*payload);
            let (number, work) = subtask;
            drop_catch_unwind(work);
            drop(turn);
            return Some(self.deliver_failed(number, payload, ctx));
        }
        #[cfg(feature = "tokio")]
        if F::IS_FUTURE {
            self.launch(subtask, turn, position, ctx);
            return None;
        }
        let (number, work) = subtask;
        let mut count = OutcomeCount::default();
        // The fold runs before the turn of the subtask ends, at its position.
        let cancels = position.scope(|| {
            let outcome = with_cancel_flag(self.cancelled.clone(), || {
                self.run_subtask(work, &JobWorker(&*ctx))
            });
            count.add(&outcome);
            let mut one = std::iter::once((number, outcome));
            self.deliver(&mut one, count.failed != 0, &|payload| ctx.panicked(payload))
        });
        drop(turn);
        Some(count.report(cancels))
    }

    /// Requeues a subtask that is about to start if its key was paused or stopped after it was
    /// granted, which can be long ago: the job may have been paused in between, or no worker was
    /// free. Otherwise returns it, with a payload if its key panicked, so that it must not start.
    fn requeue_if_paused(
        &self,
        turn: Turn,
        subtask: NumberedSubtask<F>,
        ctx: &mut dyn WorkerCtx<K, TaskBody>,
    ) -> Option<(Turn, NumberedSubtask<F>, Option<KeyPanic>)> {
        let (mut subtask, mut late) = (Some(subtask), None);
        let requeued = ctx.requeue_if_paused(turn, &mut |kept| {
            let subtask = subtask.take().expect("a subtask is requeued once");
            let (index, dropped) = self.blocked.add_again(subtask, &self.cancelled);
            late = dropped;
            let job = self.me();
            TaskBody::new(KeyedSubtask { job, index, kept: kept.map(Box::new) })
        });
        let Err((turn, panic)) = requeued else {
            late.into_iter().for_each(|late| self.blocked.drop_late(late));
            return None;
        };
        Some((turn, subtask?, panic))
    }

    /// Runs a subtask on the worker that has found it in its lane and is assigned to the job. Its
    /// turn ends with the body of its entry.
    pub(super) fn run_in_lane(
        &self,
        (number, work): NumberedSubtask<F>,
        ctx: &mut dyn ExecContext,
    ) {
        if self.is_cancelled() {
            drop_catch_unwind(work);
            return ctx.end_subtask(SubtaskEnd::Dropped, false);
        }
        // A splitter that waits for the sink may go on after this one.
        let was_full = self.sink.is_full();
        let outcome = self.run_subtask(work, &LaneWorker(&*ctx));
        let failed = !outcome.is_completed();
        let mut one = std::iter::once((number, outcome));
        // The fold runs before the turn of the subtask ends, at its position.
        let cancels = self.deliver(&mut one, failed, &|payload| ctx.panicked(payload));
        let end = match (failed, cancels) {
            (_, true) => SubtaskEnd::Cancels { failed },
            (true, false) => SubtaskEnd::Failed,
            (false, false) => SubtaskEnd::Done,
        };
        ctx.end_subtask(end, was_full);
    }

    fn run_subtask(&self, work: F, worker: &dyn CountFailures) -> Outcome<T, E> {
        let run = || work.run(|| unreachable!("a future is launched, not run here"));
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(Some(Ok(value))) => Outcome::Completed(value),
            Ok(Some(Err(error))) => {
                worker.failed();
                Outcome::Failed(error)
            }
            Ok(None) => unreachable!("a future is launched, not run here"),
            Err(payload) => {
                worker.panicked(&*payload);
                Outcome::Panicked(PanicPayload::new(payload))
            }
        }
    }

    /// Delivers outcomes to the sink. Returns whether the job must be cancelled.
    pub(super) fn deliver(
        &self,
        outcomes: &mut dyn Iterator<Item = (u64, Outcome<T, E>)>,
        any_failed: bool,
        on_panic: OnPanic<'_>,
    ) -> bool {
        let folds = self.sink.put(outcomes, on_panic);
        let ends = !folds || any_failed && matches!(self.on_error, OnError::FailFast);
        if ends {
            self.end(JobEnding::Ended);
        }
        ends
    }
}

/// Worker that counts failed subtasks.
trait CountFailures {
    fn failed(&self);
    fn panicked(&self, payload: &(dyn Any + Send));
}

/// Worker with an assignment of the scheduler.
struct JobWorker<'a, K>(&'a dyn WorkerCtx<K, TaskBody>);

impl<K> CountFailures for JobWorker<'_, K> {
    fn failed(&self) {
        self.0.failed();
    }

    fn panicked(&self, payload: &(dyn Any + Send)) {
        self.0.panicked(payload);
    }
}

/// Worker that has found the subtask in its lane.
struct LaneWorker<'a>(&'a dyn ExecContext);

impl CountFailures for LaneWorker<'_> {
    fn failed(&self) {
        self.0.failed();
    }

    fn panicked(&self, payload: &(dyn Any + Send)) {
        self.0.panicked(payload);
    }
}

/// Numbers of subtasks that a worker has run.
#[derive(Default)]
struct OutcomeCount {
    done: u64,
    failed: u64,
}

impl OutcomeCount {
    fn add<T, E>(&mut self, outcome: &Outcome<T, E>) {
        match outcome {
            Outcome::Completed(_) => self.done += 1,
            _ => self.failed += 1,
        }
    }

    /// Creates the report. The last subtask counts for the worker's assignment, the others as
    /// further ones.
    fn report(self, cancels: bool) -> BatchReport {
        let OutcomeCount { done, failed } = self;
        let (end, more_done, more_failed) = match done {
            0 => (End::Failed, 0, failed - 1),
            _ => (End::Done, done - 1, failed),
        };
        BatchReport { end, more_done, more_failed, in_lanes: false, cancels }
    }
}
