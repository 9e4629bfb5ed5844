//! A job's futures, from the worker that hands them to the runtime to their end.

use tokio::task::AbortHandle;

use super::*;
use crate::job::future::{FutureEvents, RunningFuture};
use crate::run::SavedContext;

/// The futures of a job.
#[derive(Default)]
pub(super) struct JobFutures {
    slots: Slab<FutureSlot>,
    /// How many have not ended their turn.
    live: usize,
    /// The rules know of no more of the job's subtasks: whoever ends the last future tells the handle.
    finished: bool,
}

/// A future, as its job knows it.
enum FutureSlot {
    /// It is being handed over. Exits: `Running`; `Ended`, if it is faster than who hands it over.
    New,
    /// It can be aborted. Exit: it is removed.
    Running(AbortHandle),
    /// It has ended. Exit: it is removed, by who has handed it over.
    Ended,
}

impl JobFutures {
    /// The job is over for the rules; true if it has no future either.
    pub(super) fn finish(&mut self) -> bool {
        self.finished = true;
        self.live == 0
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
    /// Hands a future over to the runtime, with its turn. For the rules it waits from then on.
    pub(super) fn launch(
        &self,
        (number, work): Numbered<F>,
        turn: Turn,
        standing: SavedPosition,
        ctx: &mut dyn WorkerCtx<K, TaskBody>,
    ) {
        ctx.subtask_detached();
        let mut futures = self.futures.lock();
        if self.is_cancelled() {
            drop(futures);
            drop_catch_unwind(work);
            return drop(turn);
        }
        let at = futures.slots.insert(FutureSlot::New);
        futures.live += 1;
        drop(futures);
        let job = self.me.upgrade().expect("a job with a worker is alive");
        let cancelled = self.cancelled.clone();
        standing.visit(|| {
            let place = SavedContext::here();
            work.run(|| RunningFuture { job, at, number, cancelled, place, turn: Some(turn) })
        });
    }

    pub(super) fn abort_futures(&self) {
        let futures = self.futures.lock();
        let running = futures.slots.iter().filter_map(|(_, future)| match future {
            FutureSlot::Running(abort) => Some(abort.clone()),
            _ => None,
        });
        let running: Vec<_> = running.collect();
        drop(futures);
        running.iter().for_each(AbortHandle::abort);
    }
}

impl<K, I, F, T, E> FutureEvents<T, E> for JobCore<K, I, F, T, E>
where
    K: Key,
    I: SubtaskSource<K, F>,
    F: SubtaskBody<T, E>,
    T: Send + 'static,
    E: Send + 'static,
{
    fn began(&self, at: usize, abort: AbortHandle) {
        let mut futures = self.futures.lock();
        match futures.slots[at] {
            FutureSlot::New => futures.slots[at] = FutureSlot::Running(abort.clone()),
            _ => drop(futures.slots.remove(at)),
        }
        drop(futures);
        if self.is_cancelled() {
            // Who cancelled may have come before the handle was there.
            abort.abort();
        }
    }

    fn ended(&self, at: usize, number: u64, outcome: Outcome<T, E>, place: &SavedContext) {
        let mut futures = self.futures.lock();
        match futures.slots[at] {
            FutureSlot::New => futures.slots[at] = FutureSlot::Ended,
            _ => drop(futures.slots.remove(at)),
        }
        drop(futures);
        let failed = !outcome.is_completed();
        let mut one = std::iter::once((number, outcome));
        // A fold stands where the future stood: its turn ends behind it.
        let cancels =
            place.visit(|| self.deliver(&mut one, failed, &|payload| place.panicked(payload)));
        if cancels {
            self.ask(&mut |control, id| {
                control.cancel_job(id);
                true
            });
        }
    }

    fn left(&self, failed: bool) {
        let mut futures = self.futures.lock();
        futures.live -= 1;
        let tells = futures.finished && futures.live == 0;
        drop(futures);
        if tells {
            return self.tell();
        }
        self.ask(&mut |control, id| {
            control.settled(id, failed);
            true
        });
    }
}
