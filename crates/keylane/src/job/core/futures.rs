//! Futures of a job, from their launch on the runtime to the end of their turns.

use tokio::task::AbortHandle;

use super::*;
use crate::job::future::{FutureEvents, RunningFuture};
use crate::job::future_slots::FutureSlot;
use crate::run::SavedContext;

impl<K, I, F, T, E> JobCore<K, I, F, T, E>
where
    K: Key,
    I: SubtaskSource<K, F>,
    F: SubtaskBody<T, E>,
    T: Send + 'static,
    E: Send + 'static,
{
    /// Launches a future on the runtime, with its turn. The scheduler counts it as waiting from
    /// then on.
    pub(super) fn launch(
        &self,
        (number, work): NumberedSubtask<F>,
        turn: Turn,
        position: SavedPosition,
        ctx: &mut dyn WorkerCtx<K, TaskBody>,
    ) {
        ctx.subtask_detached();
        let mut futures = self.futures.lock();
        if self.is_cancelled() {
            drop(futures);
            drop_catch_unwind(work);
            return drop(turn);
        }
        let index = futures.slots.insert(FutureSlot::New);
        futures.live += 1;
        drop(futures);
        let job = self.me.upgrade().expect("a job with a worker is alive");
        let cancelled = self.cancelled.clone();
        position.scope(|| {
            let context = SavedContext::here();
            work.run(|| RunningFuture { job, index, number, cancelled, context, turn: Some(turn) })
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
    fn began(&self, index: usize, abort: AbortHandle) {
        let mut futures = self.futures.lock();
        match futures.slots[index] {
            FutureSlot::New => futures.slots[index] = FutureSlot::Running(abort.clone()),
            _ => drop(futures.slots.remove(index)),
        }
        drop(futures);
        if self.is_cancelled() {
            // The job may have been cancelled before the abort handle was stored.
            abort.abort();
        }
    }

    fn ended(&self, index: usize, number: u64, outcome: Outcome<T, E>, context: &SavedContext) {
        let mut futures = self.futures.lock();
        match futures.slots[index] {
            FutureSlot::New => futures.slots[index] = FutureSlot::Ended,
            _ => drop(futures.slots.remove(index)),
        }
        drop(futures);
        let failed = !outcome.is_completed();
        let mut one = std::iter::once((number, outcome));
        // The fold runs before the turn of the future ends, at its position.
        let cancels =
            context.scope(|| self.deliver(&mut one, failed, &|payload| context.panicked(payload)));
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
        let publishes = futures.finished && futures.live == 0;
        drop(futures);
        if publishes {
            return self.publish();
        }
        self.ask(&mut |control, id| {
            control.settled(id, failed);
            true
        });
    }
}
