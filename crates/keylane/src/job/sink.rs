//! Where the outcomes of a job's subtasks go.

use std::any::Any;
use std::sync::Weak;

use super::ResultOrder;
use crate::complete::{Outcome, PanicPayload, TaskCell};
use crate::sync::Mutex;
use crate::unwind::drop_catch_unwind;

/// What a job and its handle share: the result, once it is there. The handle alone owns it, so that the
/// result is dropped with the handle, and the job can be dropped anywhere.
pub(super) type Result<R, E> = TaskCell<R, E, ()>;

/// Called with the payload of a panic.
pub(super) type OnPanic<'a> = &'a dyn Fn(&(dyn Any + Send));

/// The outcome of the subtask with this number.
pub(super) type Numbered<T, E> = (u64, Outcome<T, E>);

/// How a job has ended.
#[derive(Debug)]
pub(super) enum Ending {
    /// All subtasks have ended, or one has failed and the others were not to go on.
    Ended,
    /// It was cancelled, or its pool was stopped.
    Cancelled,
    /// The splitter has panicked.
    Panicked(PanicPayload),
}

/// Takes outcomes, and makes the result.
pub(super) trait Sink<T, E>: Send + Sync {
    /// Takes some outcomes. False if the job cannot go on: a fold has panicked.
    fn put(
        &self,
        outcomes: &mut dyn Iterator<Item = Numbered<T, E>>,
        on_panic: OnPanic<'_>,
    ) -> bool;

    /// Whether so many wait to be folded that no more should come.
    fn is_full(&self) -> bool {
        false
    }

    /// No more will come: tells the handle.
    fn finish(&self, ending: Ending);
}

/// Keeps the values in a vector.
pub(super) struct Collect<T, E> {
    state: Mutex<Collected<T, E>>,
    order: ResultOrder,
    result: Weak<Result<Vec<T>, E>>,
}

struct Collected<T, E> {
    /// At the number of each subtask, if that is the order.
    values: Vec<Option<T>>,
    failure: Option<Outcome<Vec<T>, E>>,
}

impl<T, E> Collect<T, E> {
    pub(super) fn new(order: ResultOrder, result: Weak<Result<Vec<T>, E>>) -> Self {
        let state = Mutex::new(Collected { values: Vec::new(), failure: None });
        Collect { state, order, result }
    }
}

impl<T, E> Collected<T, E> {
    fn put(&mut self, order: ResultOrder, number: u64, value: T) {
        if order == ResultOrder::Completion {
            return self.values.push(Some(value));
        }
        let place = usize::try_from(number).expect("the values fit into memory");
        if self.values.len() <= place {
            self.values.resize_with(place + 1, || None);
        }
        self.values[place] = Some(value);
    }
}

impl<T: Send, E: Send> Sink<T, E> for Collect<T, E> {
    fn put(&self, outcomes: &mut dyn Iterator<Item = Numbered<T, E>>, _: OnPanic<'_>) -> bool {
        let mut late = Vec::new();
        let mut state = self.state.lock();
        for (number, outcome) in outcomes {
            match failed(outcome) {
                Ok(value) => state.put(self.order, number, value),
                Err(failure) if state.failure.is_none() => state.failure = Some(failure),
                // Dropped outside the lock.
                Err(failure) => late.push(failure),
            }
        }
        drop(state);
        late.into_iter().for_each(drop_catch_unwind);
        true
    }

    fn finish(&self, ending: Ending) {
        let mut state = self.state.lock();
        let values = std::mem::take(&mut state.values);
        let failure = state.failure.take();
        drop(state);
        let outcome = match (ending, failure) {
            (Ending::Ended, None) => Outcome::Completed(values.into_iter().flatten().collect()),
            (Ending::Ended, Some(failure)) => {
                values.into_iter().for_each(drop_catch_unwind);
                failure
            }
            (other, failure) => {
                values.into_iter().for_each(drop_catch_unwind);
                drop_catch_unwind(failure);
                other.into()
            }
        };
        tell(&self.result, outcome);
    }
}

/// Gives the outcome to the handle. If that was dropped, the outcome is; whatever its drop does.
pub(super) fn tell<R, E>(result: &Weak<Result<R, E>>, outcome: Outcome<R, E>) {
    match result.upgrade() {
        Some(result) => {
            result.complete(outcome);
            drop_catch_unwind(result);
        }
        None => drop_catch_unwind(outcome),
    }
}

/// The value of an outcome, or the same outcome as that of the job.
pub(super) fn failed<T, R, E>(outcome: Outcome<T, E>) -> std::result::Result<T, Outcome<R, E>> {
    Err(match outcome {
        Outcome::Completed(value) => return Ok(value),
        Outcome::Failed(error) => Outcome::Failed(error),
        Outcome::Panicked(payload) => Outcome::Panicked(payload),
        Outcome::Cancelled => Outcome::Cancelled,
        Outcome::Superseded => Outcome::Superseded,
    })
}

impl<R, E> From<Ending> for Outcome<R, E> {
    fn from(ending: Ending) -> Self {
        match ending {
            Ending::Panicked(payload) => Outcome::Panicked(payload),
            Ending::Ended | Ending::Cancelled => Outcome::Cancelled,
        }
    }
}
