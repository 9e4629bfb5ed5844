use std::sync::Arc;
use std::time::{Instant, SystemTime};

use super::assignment::RunningAttempt;
use super::attempt::{InFlight, RecordContext};
use super::dead_letter_writer::{DeadLetterQueue, DeadLetterRequest};
use super::failure::Failure;
use super::failure_policy::FailurePolicy;
use super::handler_times::TimeHistogram;
use super::mailbox::Mailbox;
use super::timer::RetryTimer;
use super::worker_event::{Completion, FailedAttempt, FailureAction, WorkerEvent};
use crate::retry::{OnExhausted, RetryDecision};

/// What the coordinator, the workers and the other threads of a consumer share.
#[derive(Debug)]
pub(super) struct ConsumerShared {
    pub(super) mailbox: Mailbox,
    pub(super) policy: FailurePolicy,
    pub(super) timer: RetryTimer,
    pub(super) dead_letters: DeadLetterQueue,
    pub(super) times: TimeHistogram,
}

/// What follows a failed attempt.
#[derive(Debug)]
pub(super) struct FailureDecision {
    /// The number of the attempt; 0 if there was none.
    attempt: u32,
    failure: Arc<Failure>,
    next: RetryDecision,
}

impl FailureDecision {
    /// When there is another attempt, if there is.
    pub(super) fn retries_at(&self) -> Option<Instant> {
        match self.next {
            RetryDecision::Retry { at, .. } => Some(at),
            RetryDecision::Exhausted(_) => None,
        }
    }
}

impl ConsumerShared {
    /// Takes the answer of an attempt, on whatever thread. The report comes before the end of the
    /// attempt, and that before the end of the turn.
    pub(super) fn answer(
        &self,
        in_flight: InFlight,
        running: RunningAttempt,
        result: Result<(), Failure>,
    ) {
        match result {
            Ok(()) => self.ended(in_flight, running, Completion::Handled),
            Err(failure) => self.failed(in_flight, running, failure),
        }
    }

    pub(super) fn ended(
        &self,
        in_flight: InFlight,
        running: RunningAttempt,
        completion: Completion,
    ) {
        self.times.add(running.time());
        self.tell_ended(&in_flight, completion);
        running.end(&self.mailbox);
        drop(in_flight);
    }

    fn tell_ended(&self, in_flight: &InFlight, completion: Completion) {
        let RecordContext { assignment, delivered, index } = &*in_flight.context;
        let (slot, epoch, position) = (assignment.slot, assignment.epoch, delivered.position);
        self.mailbox.push(WorkerEvent::Ended { slot, epoch, position, index: *index, completion });
    }

    fn failed(&self, mut in_flight: InFlight, running: RunningAttempt, failure: Failure) {
        self.times.add(running.time());
        let decide = self.decide(&mut in_flight, &failure);
        self.then(in_flight, running, decide);
    }

    /// Notes that an attempt has failed, and decides what follows.
    pub(super) fn decide(&self, in_flight: &mut InFlight, failure: &Failure) -> FailureDecision {
        let attempt = in_flight.attempts.current();
        let next = self.policy.failed(&mut in_flight.attempts, failure, Instant::now());
        FailureDecision { attempt, failure: Arc::new(failure.clone()), next }
    }

    /// What cannot be tried at all: there is no attempt, and what is done after the last one follows.
    pub(super) fn reject(&self, in_flight: InFlight, failure: Failure) {
        let Some(running) = in_flight.begin() else { return };
        let next = RetryDecision::Exhausted(self.policy.on_exhausted(&failure));
        self.then(
            in_flight,
            running,
            FailureDecision { attempt: 0, failure: Arc::new(failure), next },
        );
    }

    /// Tells that a record whose attempt has failed is tried again with the one before it.
    pub(super) fn tell_retry(&self, in_flight: &InFlight, decide: &FailureDecision, at: Instant) {
        self.tell_failed(in_flight, decide, FailureAction::Retry(at));
    }

    fn tell_failed(&self, in_flight: &InFlight, decide: &FailureDecision, then: FailureAction) {
        self.mailbox.push(WorkerEvent::Failed(Box::new(FailedAttempt {
            context: in_flight.context.clone(),
            attempt: decide.attempt,
            failure: decide.failure.clone(),
            then,
        })));
    }

    /// Does what follows a failure.
    pub(super) fn then(
        &self,
        mut in_flight: InFlight,
        running: RunningAttempt,
        decide: FailureDecision,
    ) {
        let tell = |in_flight: &InFlight, then| self.tell_failed(in_flight, &decide, then);
        match decide.next {
            RetryDecision::Retry { at, .. } => {
                tell(&in_flight, FailureAction::Retry(at));
                self.timer.schedule(at, in_flight);
            }
            RetryDecision::Exhausted(OnExhausted::Skip) => {
                tell(&in_flight, FailureAction::Skip);
                self.tell_ended(&in_flight, Completion::Skipped);
            }
            RetryDecision::Exhausted(OnExhausted::DeadLetter) => {
                tell(&in_flight, FailureAction::DeadLetter);
                let failed_at = SystemTime::now();
                let FailureDecision { attempt, failure, .. } = decide;
                let request = DeadLetterRequest { in_flight, running, attempt, failure, failed_at };
                return self.dead_letters.push(request);
            }
            RetryDecision::Exhausted(OnExhausted::StopKey) => {
                let turn = in_flight.turn.take();
                tell(&in_flight, FailureAction::StopKey(turn));
            }
            RetryDecision::Exhausted(OnExhausted::Stop) => {
                let turn = in_flight.turn.take();
                tell(&in_flight, FailureAction::StopAll(turn));
            }
        }
        running.end(&self.mailbox);
    }
}
