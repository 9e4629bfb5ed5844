//! Folds outcomes into one value as they come: one worker at a time folds what all have brought.
//!
//! The fold is the user's, so it is called without a lock. Whoever brings outcomes leaves them in a
//! queue; if nobody folds, that worker takes the accumulator out, folds until the queue is empty, and
//! puts it back. Who finds it taken goes on with its own work. The queue is bounded by holding the
//! splitter back while it is long.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Weak;

use super::ResultOrder;
use super::sink::{Ending, Numbered, OnPanic, Result, Sink, failed, tell};
use crate::complete::{Outcome, PanicPayload};
use crate::sync::{AtomicUsize, Mutex, MutexGuard, Ordering};
use crate::unwind::drop_catch_unwind;

/// So many outcomes may wait for the fold, or for those of earlier subtasks, before the splitter is held
/// back. Each worker can bring one more batch.
const MAX_UNFOLDED: usize = 256;

pub(super) struct Fold<T, E, A, G> {
    state: Mutex<FoldState<T, E, A, G>>,
    /// The length of the queue. Written under `state`, read without it.
    unfolded: AtomicUsize,
    order: ResultOrder,
    /// Failures are folded like values; else the first one is the job's outcome.
    takes_failures: bool,
    result: Weak<Result<A, E>>,
}

struct FoldState<T, E, A, G> {
    accumulator: Accumulator<A, G>,
    /// What came and was not folded. By number, the first being that of `folded`, if results are taken
    /// in the order of submission; there may be gaps then.
    queue: VecDeque<QueueSlot<T, E>>,
    /// How many places were taken out of the queue.
    folded: u64,
    /// The first failure, if failures are not folded.
    failure: Option<Outcome<A, E>>,
    /// Set when no more will come.
    ending: Option<Ending>,
}

/// The accumulator.
enum Accumulator<A, G> {
    /// Nobody folds. Exits: `Taken`; `Lost`, at the end.
    Free(A, G),
    /// A worker folds. Exits: `Free`, `Lost`.
    Taken,
    /// The fold has panicked, or the job has ended.
    Lost,
}

enum QueueSlot<T, E> {
    /// Its outcome has not come.
    Gap,
    /// It has failed, and that is not folded.
    Skipped,
    There(Outcome<T, E>),
}

impl<T, E, A, G> Fold<T, E, A, G>
where
    G: FnMut(A, Outcome<T, E>) -> A,
{
    pub(super) fn new(
        init: A,
        step: G,
        order: ResultOrder,
        takes_failures: bool,
        result: Weak<Result<A, E>>,
    ) -> Self {
        let state = FoldState {
            accumulator: Accumulator::Free(init, step),
            queue: VecDeque::new(),
            folded: 0,
            failure: None,
            ending: None,
        };
        let unfolded = AtomicUsize::new(0);
        Fold { state: Mutex::new(state), unfolded, order, takes_failures, result }
    }

    /// Folds what there is, unless somebody else does. False if the fold has panicked.
    fn fold(&self, on_panic: OnPanic<'_>) -> bool {
        let mut state = self.state.lock();
        let (mut acc, mut step) =
            match std::mem::replace(&mut state.accumulator, Accumulator::Taken) {
                Accumulator::Free(acc, step) => (acc, step),
                other => {
                    let is_well = matches!(other, Accumulator::Taken);
                    state.accumulator = other;
                    return is_well;
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
                    self.leave(state, Accumulator::Lost);
                    some.into_iter().for_each(drop_catch_unwind);
                    queue.into_iter().for_each(drop_catch_unwind);
                    drop_catch_unwind(earlier);
                    return false;
                }
            };
        }
        self.leave(state, Accumulator::Free(acc, step));
        true
    }

    /// Leaves the seat, and tells the handle if the job has ended meanwhile.
    fn leave(
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
            (Ending::Ended, None, Accumulator::Free(acc, step)) => {
                drop_catch_unwind(step);
                Outcome::Completed(acc)
            }
            (Ending::Ended, Some(failure), accumulator) => {
                drop_catch_unwind(accumulator);
                failure
            }
            // A fold that has panicked cancels the job, and is why it has ended.
            (_, Some(failure @ Outcome::Panicked(_)), Accumulator::Lost) => failure,
            (ending, failure, accumulator) => {
                drop_catch_unwind((failure, accumulator));
                ending.into()
            }
        };
        tell(&self.result, outcome);
    }
}

impl<T, E, A, G> FoldState<T, E, A, G> {
    fn put(&mut self, order: ResultOrder, number: u64, slot: QueueSlot<T, E>) {
        if order == ResultOrder::Completion {
            return self.queue.push_back(slot);
        }
        let at = usize::try_from(number - self.folded).expect("the queue is bounded");
        while self.queue.len() <= at {
            self.queue.push_back(QueueSlot::Gap);
        }
        self.queue[at] = slot;
    }

    /// Takes what can be folded now. At the end that is all there is.
    fn take_next(&mut self, into: &mut Vec<Outcome<T, E>>) {
        let to_the_end = self.ending.is_some();
        while let Some(front) = self.queue.front()
            && (to_the_end || !matches!(front, QueueSlot::Gap))
        {
            self.folded += 1;
            if let Some(QueueSlot::There(outcome)) = self.queue.pop_front() {
                into.push(outcome);
            }
        }
    }
}

impl<T, E, A, G> Sink<T, E> for Fold<T, E, A, G>
where
    T: Send,
    E: Send,
    A: Send,
    G: FnMut(A, Outcome<T, E>) -> A + Send,
{
    fn put(
        &self,
        outcomes: &mut dyn Iterator<Item = Numbered<T, E>>,
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
                state.put(self.order, number, QueueSlot::There(outcome));
                continue;
            }
            state.put(self.order, number, QueueSlot::Skipped);
            if state.failure.is_none() {
                state.failure = failed(outcome).err();
            } else {
                late.push(outcome);
            }
        }
        self.unfolded.store(state.queue.len(), Ordering::Release);
        drop(state);
        late.into_iter().for_each(drop_catch_unwind);
        self.fold(on_panic)
    }

    fn is_full(&self) -> bool {
        self.unfolded.load(Ordering::Acquire) >= MAX_UNFOLDED
    }

    fn finish(&self, ending: Ending) {
        let mut state = self.state.lock();
        let unwanted = match ending {
            Ending::Ended => VecDeque::new(),
            _ => std::mem::take(&mut state.queue),
        };
        state.ending = Some(ending);
        drop(state);
        unwanted.into_iter().for_each(drop_catch_unwind);
        // What is left are results that waited for earlier ones that will not come.
        self.fold(&|_| ());
        let state = self.state.lock();
        if matches!(state.accumulator, Accumulator::Lost) && state.ending.is_some() {
            self.leave(state, Accumulator::Lost);
        }
    }
}
