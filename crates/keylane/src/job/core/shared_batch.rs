//! A batch of subtasks at the hands of one worker, from which others can take what has not begun.
//!
//! A worker takes several tiny subtasks at once. If one of them turns out to be long, those behind it
//! in the batch would wait for it while other workers are idle. So the batch is kept here, and a worker
//! that finds nothing else to do, or comes for somebody else, puts what is left among the subtasks that
//! are granted, for anybody.
//!
//! # Protocol
//! 1. A lot that is *open* is counted in `JobSharing::offers`, so that no worker falls asleep beside it.
//!    Whoever takes out its last subtask closes it, and counts it out: its worker, one that relieves
//!    it, or its worker at the end of the sitting.
//! 2. The rules know nothing of a batch but that its worker is busy; so who relieves it tells them that
//!    so many have been split off and are ready. Under the lock of the lot it first grants them and then
//!    raises `stolen`; it takes that to nothing in the section of the books that tells them.
//! 3. Before its worker says that its sitting has ended, it looks whether the lot was relieved, under
//!    the same lock, and then tells what is stolen itself.
//!
//! # Why the rules hear of each subtask, once, while the job is there
//! `stolen` is taken by an exchange in a section, so nothing is told twice. What was relieved is either
//! told by who did it, or was still stolen when the lot's worker looked, which comes before that worker
//! ends; in both cases the worker counts as running in that section, so the job is not over.
//!
//! # Why each is there when the rules give a worker for it
//! Whoever takes `stolen` has seen it raised, after the subtasks were granted. Were they granted when the
//! lock is released, the lot's worker could tell the rules in between, a worker could be given and find
//! nothing, and say that what it was to run waits: it would never run.

use super::*;

pub(super) struct SharedBatch<F> {
    state: Mutex<BatchState<F>>,
}

struct BatchState<F> {
    /// What has not begun, the next first.
    subtasks: VecDeque<Numbered<F>>,
    /// It is counted in `JobSharing::offers`. Then it has something, unless the job was cancelled.
    is_open: bool,
    /// Others have taken something out.
    was_stolen: bool,
}

impl<F> SharedBatch<F> {
    /// The next subtask, for the lot's own worker.
    pub(super) fn take_next<K>(&self, ctx: &mut dyn WorkerCtx<K, TaskBody>) -> Option<Numbered<F>> {
        let mut state = self.state.lock();
        let next = state.subtasks.pop_front();
        let closes = state.subtasks.is_empty() && std::mem::take(&mut state.is_open);
        drop(state);
        if closes {
            ctx.close_batch();
        }
        next
    }

    /// Drops what has not begun: the job is cancelled.
    pub(super) fn drop_all(&self) {
        let subtasks = std::mem::take(&mut self.state.lock().subtasks);
        subtasks.into_iter().for_each(drop_catch_unwind);
    }
}

impl<K, I, F, T, E> JobCore<K, I, F, T, E>
where
    K: Key,
    I: SubtaskSource<K, F>,
    F: SubtaskBody<T, E>,
    T: Send + 'static,
    E: Send + 'static,
{
    /// Makes what its worker has not begun visible to others.
    pub(super) fn open_batch(
        &self,
        subtasks: VecDeque<Numbered<F>>,
        ctx: &mut dyn WorkerCtx<K, TaskBody>,
    ) -> Arc<SharedBatch<F>> {
        let state = BatchState { subtasks, is_open: true, was_stolen: false };
        let batch = Arc::new(SharedBatch { state: Mutex::new(state) });
        self.batches.lock().push(batch.clone());
        ctx.open_batch();
        batch
    }

    /// The lot's worker is about to say that its sitting has ended.
    pub(super) fn close_batch(
        &self,
        batch: &Arc<SharedBatch<F>>,
        ctx: &mut dyn WorkerCtx<K, TaskBody>,
    ) {
        let mut batches = self.batches.lock();
        batches.retain(|other| !Arc::ptr_eq(other, batch));
        drop(batches);
        let mut state = batch.state.lock();
        let rest = std::mem::take(&mut state.subtasks);
        let was_open = std::mem::take(&mut state.is_open);
        let was_stolen = state.was_stolen;
        drop(state);
        if was_open {
            ctx.close_batch();
        }
        if was_stolen {
            ctx.report_stolen(&self.stolen);
        }
        self.leave(rest, ctx);
    }

    /// Grants everything that waits behind another subtask in a batch. How many lots it has closed.
    pub(super) fn empty_batches(&self) -> usize {
        let batches = self.batches.lock().clone();
        let mut closed = 0;
        for batch in batches {
            let mut state = batch.state.lock();
            let subtasks = std::mem::take(&mut state.subtasks);
            closed += usize::from(std::mem::take(&mut state.is_open));
            let count = subtasks.len() as u64;
            if count == 0 {
                continue;
            }
            let granted = self.try_grant(subtasks);
            if granted.is_ok() {
                state.was_stolen = true;
                self.stolen.fetch_add(count, Ordering::AcqRel);
            }
            drop(state);
            granted.err().into_iter().flatten().for_each(drop_catch_unwind);
        }
        closed
    }
}
