//! Sinks of a job's outcomes: collect or drop the subtasks' outcomes and publish the job's result
//! once.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Weak;

use super::options::ResultOrder;
use crate::complete::{Outcome, PanicPayload, TaskCell};
use crate::sync::Mutex;
use crate::unwind::drop_catch_unwind;

/// Result shared by a job and its handle. Only the handle owns it, so the result is dropped with
/// the handle, and the job can be dropped on any thread.
pub(super) type SharedResult<R, E> = TaskCell<R, E, ()>;

/// Callback for the payload of a panic.
pub(super) type OnPanic<'a> = &'a dyn Fn(&(dyn Any + Send));

/// Outcome of the subtask with this number.
pub(super) type NumberedOutcome<T, E> = (u64, Outcome<T, E>);

/// Reason for the end of a job.
#[derive(Debug)]
pub(super) enum JobEnding {
    /// All subtasks have ended, or one has failed and the others must not continue.
    Ended,
    /// The job was cancelled, or its pool was stopped.
    Cancelled,
    /// The splitter has panicked.
    Panicked(PanicPayload),
}

/// Receiver of outcomes, which computes the result.
pub(super) trait OutcomeSink<T, E>: Send + Sync {
    /// Receives outcomes. Returns false if the job cannot continue, because a fold has panicked.
    fn put(
        &self,
        outcomes: &mut dyn Iterator<Item = NumberedOutcome<T, E>>,
        on_panic: OnPanic<'_>,
    ) -> bool;

    /// Returns whether the queue of outcomes is full, so that the splitter must pause.
    fn is_full(&self) -> bool {
        false
    }

    /// Publishes the result to the handle. No outcomes follow.
    fn finish(&self, ending: JobEnding);
}

/// Drops the values, and keeps the first failure.
pub(super) struct DiscardSink<E> {
    failure: Mutex<Option<FirstFailure<E>>>,
    result: Weak<SharedResult<(), E>>,
}

struct FirstFailure<E> {
    outcome: Outcome<(), E>,
    /// Whether it is the panic of a value's drop, which ends the job.
    is_drop: bool,
}

impl<E> DiscardSink<E> {
    pub(super) fn new(result: Weak<SharedResult<(), E>>) -> Self {
        DiscardSink { failure: Mutex::new(None), result }
    }
}

impl<T: Send, E: Send> OutcomeSink<T, E> for DiscardSink<E> {
    fn put(
        &self,
        outcomes: &mut dyn Iterator<Item = NumberedOutcome<T, E>>,
        on_panic: OnPanic<'_>,
    ) -> bool {
        let mut is_intact = true;
        for (_, outcome) in outcomes {
            let failure = match value_or_failure(outcome) {
                Ok(value) => match catch_unwind(AssertUnwindSafe(|| drop(value))) {
                    Ok(()) => continue,
                    Err(payload) => {
                        on_panic(&*payload);
                        is_intact = false;
                        let outcome = Outcome::Panicked(PanicPayload::new(payload));
                        FirstFailure { outcome, is_drop: true }
                    }
                },
                Err(outcome) => FirstFailure { outcome, is_drop: false },
            };
            let mut first = self.failure.lock();
            let replaces = first.as_ref().is_none_or(|first| failure.is_drop && !first.is_drop);
            let late = if replaces { first.replace(failure) } else { Some(failure) };
            drop(first);
            drop_catch_unwind(late);
        }
        is_intact
    }

    fn finish(&self, ending: JobEnding) {
        let failure = self.failure.lock().take();
        let outcome = match (ending, failure) {
            (JobEnding::Ended, None) => Outcome::Completed(()),
            (JobEnding::Ended, Some(failure)) => failure.outcome,
            // It has cancelled the job, so it takes precedence over the cancellation.
            (_, Some(failure)) if failure.is_drop => failure.outcome,
            (other, failure) => {
                drop_catch_unwind(failure);
                other.into()
            }
        };
        publish(&self.result, outcome);
    }
}

/// Collects the values in a vector.
pub(super) struct CollectSink<T, E> {
    state: Mutex<CollectedValues<T, E>>,
    order: ResultOrder,
    result: Weak<SharedResult<Vec<T>, E>>,
}

struct CollectedValues<T, E> {
    /// Values by subtask number, or in the order of completion.
    values: Vec<Option<T>>,
    failure: Option<Outcome<Vec<T>, E>>,
}

impl<T, E> CollectSink<T, E> {
    pub(super) fn new(order: ResultOrder, result: Weak<SharedResult<Vec<T>, E>>) -> Self {
        let state = Mutex::new(CollectedValues { values: Vec::new(), failure: None });
        CollectSink { state, order, result }
    }
}

impl<T, E> CollectedValues<T, E> {
    fn put(&mut self, order: ResultOrder, number: u64, value: T) {
        if matches!(order, ResultOrder::Completion) {
            return self.values.push(Some(value));
        }
        let index = usize::try_from(number).expect("the values fit into memory");
        if self.values.len() <= index {
            self.values.resize_with(index + 1, || None);
        }
        self.values[index] = Some(value);
    }
}

impl<T: Send, E: Send> OutcomeSink<T, E> for CollectSink<T, E> {
    fn put(
        &self,
        outcomes: &mut dyn Iterator<Item = NumberedOutcome<T, E>>,
        _: OnPanic<'_>,
    ) -> bool {
        let mut late = Vec::new();
        let mut state = self.state.lock();
        for (number, outcome) in outcomes {
            match value_or_failure(outcome) {
                Ok(value) => state.put(self.order, number, value),
                Err(failure) if state.failure.is_none() => state.failure = Some(failure),
                // Dropped after the lock is released, because the drop runs user code.
                Err(failure) => late.push(failure),
            }
        }
        drop(state);
        late.into_iter().for_each(drop_catch_unwind);
        true
    }

    fn finish(&self, ending: JobEnding) {
        let mut state = self.state.lock();
        let values = std::mem::take(&mut state.values);
        let failure = state.failure.take();
        drop(state);
        let outcome = match (ending, failure) {
            (JobEnding::Ended, None) => Outcome::Completed(values.into_iter().flatten().collect()),
            (JobEnding::Ended, Some(failure)) => {
                values.into_iter().for_each(drop_catch_unwind);
                failure
            }
            (other, failure) => {
                values.into_iter().for_each(drop_catch_unwind);
                drop_catch_unwind(failure);
                other.into()
            }
        };
        publish(&self.result, outcome);
    }
}

/// Publishes the outcome to the handle, or drops it if the handle was dropped.
pub(super) fn publish<R, E>(result: &Weak<SharedResult<R, E>>, outcome: Outcome<R, E>) {
    match result.upgrade() {
        Some(result) => {
            result.complete(outcome);
            drop_catch_unwind(result);
        }
        None => drop_catch_unwind(outcome),
    }
}

/// Returns the value of an outcome, or the failure as an outcome of the job.
pub(super) fn value_or_failure<T, R, E>(
    outcome: Outcome<T, E>,
) -> std::result::Result<T, Outcome<R, E>> {
    Err(match outcome {
        Outcome::Completed(value) => return Ok(value),
        Outcome::Failed(error) => Outcome::Failed(error),
        Outcome::Panicked(payload) => Outcome::Panicked(payload),
        Outcome::Cancelled => Outcome::Cancelled,
        Outcome::Superseded => Outcome::Superseded,
    })
}

impl<R, E> From<JobEnding> for Outcome<R, E> {
    fn from(ending: JobEnding) -> Self {
        match ending {
            JobEnding::Panicked(payload) => Outcome::Panicked(payload),
            JobEnding::Ended | JobEnding::Cancelled => Outcome::Cancelled,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::complete::JoinState;

    struct PanicsOnDrop;

    impl Drop for PanicsOnDrop {
        fn drop(&mut self) {
            panic!("as expected");
        }
    }

    /// The panic of a drop has ended the job, so it is the outcome and not the earlier failure.
    #[test]
    fn a_drop_that_panics_after_a_failure_is_the_outcome_of_the_job() {
        let result = Arc::new(TaskCell::new(()));
        let sink = DiscardSink::<u32>::new(Arc::downgrade(&result));
        let outcomes = [Outcome::Failed(1), Outcome::Completed(PanicsOnDrop), Outcome::Failed(2)];
        assert!(!sink.put(&mut (0..).zip(outcomes), &|_| ()));
        OutcomeSink::<PanicsOnDrop, u32>::finish(&sink, JobEnding::Cancelled);
        let outcome: Option<Outcome<(), u32>> = result.poll(None);
        assert!(matches!(outcome, Some(Outcome::Panicked(_))), "{outcome:?}");
    }
}
