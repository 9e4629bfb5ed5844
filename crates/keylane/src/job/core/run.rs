//! What a worker does at a job's desk: asks the splitter, runs subtasks, hands on their outcomes.

use super::*;

impl<K, I, F, T, E> JobCore<K, I, F, T, E>
where
    K: Key,
    I: SubtaskSource<K, F>,
    F: SubtaskBody<T, E>,
    T: Send + 'static,
    E: Send + 'static,
{
    /// Asks the splitter, and runs what it yields.
    pub(super) fn split(
        &self,
        most: usize,
        ctx: &mut dyn WorkerCtx<K, TaskBody>,
    ) -> Option<BatchReport> {
        let SourceSlot::Here(mut source) =
            std::mem::replace(&mut *self.source.lock(), SourceSlot::Out)
        else {
            // Cancelled; what is said of a subtask then is forgotten.
            *self.source.lock() = SourceSlot::Gone;
            return Some(BatchReport::ended(End::Waits));
        };
        let asked = catch_unwind(AssertUnwindSafe(|| {
            let pulled = source.pull(most, F::IS_FUTURE);
            let exhausted = source.expected() == Some(0);
            (pulled, exhausted)
        }));
        match asked {
            Err(payload) => {
                ctx.panicked(&*payload);
                *self.source.lock() = SourceSlot::Gone;
                drop_catch_unwind(source);
                self.end(Ending::Panicked(PanicPayload::new(payload)));
                Some(BatchReport { cancels: true, ..BatchReport::ended(End::Waits) })
            }
            Ok((Pull::End, _)) => {
                *self.source.lock() = SourceSlot::Gone;
                drop_catch_unwind(source);
                Some(BatchReport::ended(End::Nothing))
            }
            Ok((Pull::Keyed(claims, subtask), exhausted)) => {
                self.put_back(source);
                self.line_up(claims, subtask, exhausted, ctx)
            }
            Ok((Pull::Free(batch), exhausted)) => {
                self.put_back(source);
                ctx.split(exhausted);
                self.run_free(batch, ctx)
            }
        }
    }

    /// Before the splitter is said to be free.
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

    /// Puts a subtask into the order of the pool. Only then may another worker ask the splitter, whose
    /// next subtask is to come after this one.
    fn line_up(
        &self,
        claims: Claims<K>,
        subtask: Numbered<F>,
        exhausted: bool,
        ctx: &mut dyn WorkerCtx<K, TaskBody>,
    ) -> Option<BatchReport> {
        let mut blocked = self.blocked.lock();
        if self.is_cancelled() {
            drop(blocked);
            drop_catch_unwind((claims, subtask));
            return Some(BatchReport::ended(End::Waits));
        }
        let place = blocked.insert(BlockedSubtask::Waiting(subtask));
        drop(blocked);
        let job = self.me.upgrade().expect("a job with a worker is alive");
        ctx.enqueue(claims, TaskBody::new(KeyedSubtask { job, place, kept: None }));
        ctx.subtask_blocked(exhausted);
        None
    }

    /// Runs subtasks without keys.
    fn run_free(
        &self,
        mut batch: VecDeque<Numbered<F>>,
        ctx: &mut dyn WorkerCtx<K, TaskBody>,
    ) -> Option<BatchReport> {
        if !ctx.start_unkeyed() {
            // Behind a barrier: each has to stand in line like any task.
            let first = batch.pop_front().expect("a batch has at least one");
            self.leave(batch, ctx);
            return self.line_up(Claims::none(), first, false, ctx);
        }
        let mut outcomes = Vec::with_capacity(batch.len());
        let mut count = OutcomeCount::default();
        let mut next = batch.pop_front();
        let batch = (!batch.is_empty()).then(|| self.open_batch(batch, ctx));
        with_cancel_flag(self.cancelled.clone(), || {
            while let Some((number, work)) = next.take() {
                ctx.subtask_starts();
                let outcome = self.attempt(work, ctx);
                ctx.subtask_ran();
                count.add(&outcome);
                outcomes.push((number, outcome));
                let ends = count.failed != 0 && self.on_error == OnError::FailFast;
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

    /// Leaves subtasks to whoever comes, unless nobody shall.
    pub(super) fn leave(&self, batch: VecDeque<Numbered<F>>, ctx: &mut dyn WorkerCtx<K, TaskBody>) {
        let count = batch.len() as u64;
        if count != 0 && self.grant(batch) {
            ctx.publish_ready(count);
        }
    }

    /// Puts subtasks without keys where any worker finds them. False if they were dropped instead,
    /// for the job is cancelled.
    pub(super) fn grant(&self, batch: VecDeque<Numbered<F>>) -> bool {
        match self.try_grant(batch) {
            Ok(()) => true,
            Err(refused) => {
                refused.into_iter().for_each(drop_catch_unwind);
                false
            }
        }
    }

    /// The same without dropping any, for who has a lock.
    pub(super) fn try_grant(
        &self,
        batch: VecDeque<Numbered<F>>,
    ) -> Result<(), VecDeque<Numbered<F>>> {
        let mut granted = self.granted.lock();
        if self.is_cancelled() {
            return Err(batch);
        }
        granted.extend(batch.into_iter().map(|subtask| Granted { subtask, place: None }));
        Ok(())
    }

    /// Runs a subtask that waited for a worker only.
    pub(super) fn run_granted(&self, ctx: &mut dyn WorkerCtx<K, TaskBody>) -> Option<BatchReport> {
        let first = self.granted.lock().pop_front();
        let Some(Granted { subtask, place }) = first else {
            debug_assert!(self.is_cancelled(), "what the rules say is ready was granted");
            return Some(BatchReport::ended(End::Waits));
        };
        let Some((turn, standing)) = place else {
            return self.run_free(VecDeque::from([subtask]), ctx);
        };
        let (turn, subtask) = self.requeue_if_paused(turn, subtask, ctx)?;
        #[cfg(feature = "tokio")]
        if F::IS_FUTURE {
            self.launch(subtask, turn, standing, ctx);
            return None;
        }
        let (number, work) = subtask;
        let mut count = OutcomeCount::default();
        // A fold stands where the subtask stood: its turn ends behind it.
        let cancels = standing.visit(|| {
            let outcome = with_cancel_flag(self.cancelled.clone(), || self.attempt(work, ctx));
            count.add(&outcome);
            let mut one = std::iter::once((number, outcome));
            self.deliver(&mut one, count.failed != 0, &|payload| ctx.panicked(payload))
        });
        drop(turn);
        Some(count.report(cancels))
    }

    /// A subtask that is about to begin waits in its line again, if its key was paused or stopped since it was
    /// granted that: its job may have been paused in between, or no worker have had time for it.
    fn requeue_if_paused(
        &self,
        turn: Turn,
        subtask: Numbered<F>,
        ctx: &mut dyn WorkerCtx<K, TaskBody>,
    ) -> Option<(Turn, Numbered<F>)> {
        let (mut subtask, mut late) = (Some(subtask), None);
        let stood_back = ctx.requeue_if_paused(turn, &mut |kept| {
            let mut blocked = self.blocked.lock();
            let subtask = subtask.take().expect("it stands back once");
            let place = match self.is_cancelled() {
                true => {
                    let place = blocked.insert(BlockedSubtask::Dropping(Vec::new()));
                    late = Some((place, subtask));
                    place
                }
                false => blocked.insert(BlockedSubtask::Waiting(subtask)),
            };
            drop(blocked);
            let job = self.me.upgrade().expect("a job with a worker is alive");
            TaskBody::new(KeyedSubtask { job, place, kept: kept.map(Box::new) })
        });
        let turn = stood_back.err();
        if turn.is_none() {
            if let Some((place, subtask)) = late {
                self.drop_subtask(place, subtask);
            }
            ctx.subtask_blocked(false);
        }
        turn.zip(subtask)
    }

    fn attempt(&self, work: F, ctx: &mut dyn WorkerCtx<K, TaskBody>) -> Outcome<T, E> {
        let run = || work.run(|| unreachable!("what goes on is not attempted"));
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(Some(Ok(value))) => Outcome::Completed(value),
            Ok(Some(Err(error))) => {
                ctx.failed();
                Outcome::Failed(error)
            }
            Ok(None) => unreachable!("what goes on is not attempted"),
            Err(payload) => {
                ctx.panicked(&*payload);
                Outcome::Panicked(PanicPayload::new(payload))
            }
        }
    }

    /// Hands outcomes on, and says whether the job is to be cancelled.
    pub(super) fn deliver(
        &self,
        outcomes: &mut dyn Iterator<Item = (u64, Outcome<T, E>)>,
        any_failed: bool,
        on_panic: OnPanic<'_>,
    ) -> bool {
        let folds = self.sink.put(outcomes, on_panic);
        let ends = !folds || any_failed && self.on_error == OnError::FailFast;
        if ends {
            self.end(Ending::Ended);
        }
        ends
    }
}

/// What a worker has run.
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

    /// The last one is what the worker was given for.
    fn report(self, cancels: bool) -> BatchReport {
        let OutcomeCount { done, failed } = self;
        let (end, more_done, more_failed) = match done {
            0 => (End::Failed, 0, failed - 1),
            _ => (End::Done, done - 1, failed),
        };
        BatchReport { end, more_done, more_failed, cancels }
    }
}
