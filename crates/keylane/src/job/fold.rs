//! Folds outcomes into one value as they arrive: one worker at a time folds the outcomes of all.
//!
//! The fold is user code, so it runs without a lock. Workers queue their outcomes; if no worker
//! folds, one takes the accumulator, folds until the queue is empty, and puts it back. A worker
//! that finds it taken continues with its own work. While the queue is long the splitter is paused,
//! which bounds the queue.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Weak;

use super::options::ResultOrder;
use super::sink::{
    JobEnding, NumberedOutcome, OnPanic, OutcomeSink, SharedResult, publish, value_or_failure,
};
use crate::complete::{Outcome, PanicPayload};
use crate::sync::{AtomicUsize, Mutex, MutexGuard, Ordering};
use crate::unwind::drop_catch_unwind;

/// Maximum of outcomes that wait for the fold, or for those of earlier subtasks, before the
/// splitter is paused. Each worker can then still add one batch.
const MAX_UNFOLDED: usize = 256;

pub(super) struct FoldSink<T, E, A, G> {
    state: Mutex<FoldState<T, E, A, G>>,
    /// Length of the queue. Written under the lock of `state`, read without it.
    unfolded: AtomicUsize,
    order: ResultOrder,
    /// Whether failures are folded like values. Otherwise the first one is the job's outcome.
    takes_failures: bool,
    result: Weak<SharedResult<A, E>>,
}

struct FoldState<T, E, A, G> {
    accumulator: Accumulator<A, G>,
    /// Outcomes that are not folded yet. For results in the order of submission the index is the
    /// subtask's number minus `folded`, and there may be gaps.
    queue: VecDeque<QueueSlot<T, E>>,
    /// Number of slots removed from the queue.
    folded: u64,
    /// First failure, if failures are not folded.
    failure: Option<Outcome<A, E>>,
    /// Set when no more outcomes follow.
    ending: Option<JobEnding>,
}

/// State of the accumulator.
enum Accumulator<A, G> {
    /// Not in use. Exits: `Taken`; `Lost`, at the end.
    Free(A, G),
    /// A worker folds. Exits: `Free`, `Lost`.
    Taken,
    /// The fold has panicked, or the job has ended. No exit.
    Lost,
}

enum QueueSlot<T, E> {
    /// The outcome has not arrived.
    Gap,
    /// The subtask failed, and failures are not folded.
    Skipped,
    Arrived(Outcome<T, E>),
}

impl<T, E, A, G> FoldSink<T, E, A, G>
where
    G: FnMut(A, Outcome<T, E>) -> A,
{
    pub(super) fn new(
        init: A,
        step: G,
        order: ResultOrder,
        takes_failures: bool,
        result: Weak<SharedResult<A, E>>,
    ) -> Self {
        let state = FoldState {
            accumulator: Accumulator::Free(init, step),
            queue: VecDeque::new(),
            folded: 0,
            failure: None,
            ending: None,
        };
        let unfolded = AtomicUsize::new(0);
        FoldSink { state: Mutex::new(state), unfolded, order, takes_failures, result }
    }

    /// Folds the available outcomes, unless another worker does. Returns false if the fold has
    /// panicked.
    fn fold<'a>(
        &'a self,
        mut state: MutexGuard<'a, FoldState<T, E, A, G>>,
        on_panic: OnPanic<'_>,
    ) -> bool {
        let (mut acc, mut step) =
            match std::mem::replace(&mut state.accumulator, Accumulator::Taken) {
                Accumulator::Free(acc, step) => (acc, step),
                other => {
                    let is_intact = matches!(other, Accumulator::Taken);
                    state.accumulator = other;
                    return is_intact;
                }
            };
        let mut some = Vec::new();
        loop {
            state.take_next(&mut some);
            self.unfolded.store(state.queue.len(), Ordering::Release);
            if some.is_empty() {
                break;
            }
            drop(state);
            let folded = catch_unwind(AssertUnwindSafe(|| {
                let acc = some.drain(..).fold(acc, &mut step);
                (acc, step)
            }));
            if let Err(payload) = &folded {
                on_panic(&**payload);
            }
            state = self.state.lock();
            (acc, step) = match folded {
                Ok(both) => both,
                Err(payload) => {
                    let queue = std::mem::take(&mut state.queue);
                    let panicked = Outcome::Panicked(PanicPayload::new(payload));
                    let earlier = state.failure.replace(panicked);
                    self.put_back(state, Accumulator::Lost);
                    some.into_iter().for_each(drop_catch_unwind);
                    queue.into_iter().for_each(drop_catch_unwind);
                    drop_catch_unwind(earlier);
                    return false;
                }
            };
        }
        self.put_back(state, Accumulator::Free(acc, step));
        true
    }

    /// Puts the accumulator back, and publishes the result if the job has ended meanwhile.
    fn put_back(
        &self,
        mut state: MutexGuard<'_, FoldState<T, E, A, G>>,
        accumulator: Accumulator<A, G>,
    ) {
        state.accumulator = accumulator;
        let Some(ending) = state.ending.take() else { return };
        let failure = state.failure.take();
        let accumulator = std::mem::replace(&mut state.accumulator, Accumulator::Lost);
        drop(state);
        let outcome = match (ending, failure, accumulator) {
            (JobEnding::Ended, None, Accumulator::Free(acc, step)) => {
                drop_catch_unwind(step);
                Outcome::Completed(acc)
            }
            (JobEnding::Ended, Some(failure), accumulator) => {
                drop_catch_unwind(accumulator);
                failure
            }
            // A fold that has panicked cancels the job, so its panic takes precedence over the
            // cancellation.
            (_, Some(failure @ Outcome::Panicked(_)), Accumulator::Lost) => failure,
            (ending, failure, accumulator) => {
                drop_catch_unwind((failure, accumulator));
                ending.into()
            }
        };
        publish(&self.result, outcome);
    }
}

impl<T, E, A, G> FoldState<T, E, A, G> {
    fn put(&mut self, order: ResultOrder, number: u64, slot: QueueSlot<T, E>) {
        if matches!(order, ResultOrder::Completion) {
            return self.queue.push_back(slot);
        }
        let at = usize::try_from(number - self.folded).expect("the queue length fits into memory");
        while self.queue.len() <= at {
            self.queue.push_back(QueueSlot::Gap);
        }
        self.queue[at] = slot;
    }

    /// Takes the outcomes that can be folded now; at the end, all of them.
    fn take_next(&mut self, into: &mut Vec<Outcome<T, E>>) {
        let take_all = self.ending.is_some();
        while let Some(front) = self.queue.front()
            && (take_all || !matches!(front, QueueSlot::Gap))
        {
            self.folded += 1;
            if let Some(QueueSlot::Arrived(outcome)) = self.queue.pop_front() {
                into.push(outcome);
            }
        }
    }
}

impl<T, E, A, G> OutcomeSink<T, E> for FoldSink<T, E, A, G>
where
    T: Send,
    E: Send,
    A: Send,
    G: FnMut(A, Outcome<T, E>) -> A + Send,
{
    fn put(
        &self,
        outcomes: &mut dyn Iterator<Item = NumberedOutcome<T, E>>,
        on_panic: OnPanic<'_>,
    ) -> bool {
        let mut late = Vec::new();
        let mut state = self.state.lock();
        for (number, outcome) in outcomes {
            if matches!(state.accumulator, Accumulator::Lost) {
                late.push(outcome);
                continue;
            }
            if self.takes_failures || outcome.is_completed() {
                state.put(self.order, number, QueueSlot::Arrived(outcome));
                continue;
            }
            state.put(self.order, number, QueueSlot::Skipped);
            if state.failure.is_none() {
                state.failure = value_or_failure(outcome).err();
            } else {
                late.push(outcome);
            }
        }
        self.unfolded.store(state.queue.len(), Ordering::Release);
        let is_intact = self.fold(state, on_panic);
        late.into_iter().for_each(drop_catch_unwind);
        is_intact
    }

    fn is_full(&self) -> bool {
        self.unfolded.load(Ordering::Acquire) >= MAX_UNFOLDED
    }

    fn finish(&self, ending: JobEnding) {
        let mut state = self.state.lock();
        let unwanted = match ending {
            JobEnding::Ended => VecDeque::new(),
            _ => std::mem::take(&mut state.queue),
        };
        state.ending = Some(ending);
        drop(state);
        unwanted.into_iter().for_each(drop_catch_unwind);
        // Only results that waited for earlier ones are left, and these will not arrive.
        self.fold(self.state.lock(), &|_| ());
        let state = self.state.lock();
        if matches!(state.accumulator, Accumulator::Lost) && state.ending.is_some() {
            self.put_back(state, Accumulator::Lost);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::complete::{JoinState, TaskCell};

    type Step = Box<dyn FnMut(u32, Outcome<u32, ()>) -> u32 + Send>;

    /// The job of a last subtask can end while a worker still folds its outcome.
    #[test]
    fn a_job_that_ends_during_a_fold_has_the_result_of_the_fold() {
        let result = Arc::new(TaskCell::new(()));
        let sink = Arc::new_cyclic(|sink: &Weak<FoldSink<u32, (), u32, Step>>| {
            let sink = sink.clone();
            let step: Step = Box::new(move |sum, outcome| {
                sink.upgrade().expect("it is in use").finish(JobEnding::Ended);
                sum + outcome.ok().expect("the subtask has completed")
            });
            FoldSink::new(1, step, ResultOrder::Completion, false, Arc::downgrade(&result))
        });
        assert!(sink.put(&mut [(0, Outcome::Completed(2))].into_iter(), &|_| ()));
        let outcome: Option<Outcome<u32, ()>> = result.poll(None);
        assert!(matches!(outcome, Some(Outcome::Completed(3))), "{outcome:?}");
    }
}
