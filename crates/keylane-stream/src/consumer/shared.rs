//! State shared by the coordinator, the workers and the background threads; applies the decision
//! after each answer.

use std::sync::Arc;
use std::time::Instant;

use super::assignment::RunningAttempt;
use super::dead_letter_queue::{DeadLetterQueue, DeadLetterRequest};
use super::failure::AttemptFailure;
use super::failure_policy::FailurePolicy;
use super::handler_times::TimeHistogram;
use super::in_flight::{InFlight, RecordContext};
use super::key_guard::LaneTurn;
use super::mailbox::Mailbox;
use super::outside::Outside;
use super::timer::RetryTimer;
use super::worker_event::{CompletionKind, FailedAttempt, FailureAction, WorkerEvent};
use crate::retry::{OnExhausted, RetryDecision};

/// State shared by the threads of a consumer.
#[derive(Debug)]
pub(super) struct ConsumerShared {
    pub(super) mailbox: Mailbox<WorkerEvent>,
    pub(super) policy: FailurePolicy,
    pub(super) timer: RetryTimer,
    pub(super) dead_letters: DeadLetterQueue,
    pub(super) times: TimeHistogram,
    pub(super) outside: Outside,
}

/// Decision after a failed attempt.
#[derive(Debug)]
pub(super) struct FailureDecision {
    /// Number of the attempt; 0 if there was none.
    attempt: u32,
    failure: Arc<AttemptFailure>,
    next: RetryDecision,
}

impl FailureDecision {
    /// Returns the time of the next attempt, if there is one.
    pub(super) fn retries_at(&self) -> Option<Instant> {
        match self.next {
            RetryDecision::Retry { at, .. } => Some(at),
            RetryDecision::Exhausted(_) => None,
        }
    }
}

impl ConsumerShared {
    /// Processes the answer of an attempt, on any thread. The order matters: first the event, then
    /// the end of the attempt, then the end of the key's guard.
    pub(super) fn answer(
        &self,
        in_flight: InFlight,
        running: RunningAttempt,
        result: Result<(), AttemptFailure>,
    ) {
        match result {
            Ok(()) => self.complete(in_flight, running, CompletionKind::Handled),
            Err(_) if in_flight.context.is_cancelled() => self.cancelled(in_flight, running),
            Err(failure) => self.failed(in_flight, running, failure),
        }
    }

    pub(super) fn complete(
        &self,
        in_flight: InFlight,
        running: RunningAttempt,
        completion: CompletionKind,
    ) {
        self.times.add(running.time(self.outside.now()));
        self.report_completion(&in_flight, completion);
        running.end(&self.mailbox);
        drop(in_flight);
    }

    /// Ends a cancelled attempt. Its record is left to the next owner of the partition.
    pub(super) fn cancelled(&self, in_flight: InFlight, running: RunningAttempt) {
        self.times.add(running.time(self.outside.now()));
        self.mailbox.push(WorkerEvent::Cancelled);
        running.end(&self.mailbox);
        drop(in_flight);
    }

    /// Starts an attempt at a record that has its turn. Returns `None` if there is to be none: the
    /// assignment is closed, or the record [must wait](InFlight::must_wait), which it does with its
    /// turn.
    pub(super) fn begin(
        &self,
        in_flight: InFlight,
        turn: &mut dyn LaneTurn,
    ) -> Option<(InFlight, RunningAttempt)> {
        self.begin_or_park(in_flight, |in_flight| in_flight.keep(turn))
    }

    /// Starts an attempt at a record that keeps its turn already, as [`begin`](Self::begin) does.
    #[cfg(feature = "tokio")]
    pub(super) fn begin_kept(&self, in_flight: InFlight) -> Option<(InFlight, RunningAttempt)> {
        self.begin_or_park(in_flight, |_| {})
    }

    fn begin_or_park(
        &self,
        mut in_flight: InFlight,
        keep: impl FnOnce(&mut InFlight),
    ) -> Option<(InFlight, RunningAttempt)> {
        let running = in_flight.begin(self.outside.now())?;
        if !in_flight.must_wait() {
            return Some((in_flight, running));
        }
        keep(&mut in_flight);
        self.timer.park(self.outside.now(), in_flight);
        running.end(&self.mailbox);
        None
    }

    fn report_completion(&self, in_flight: &InFlight, completion: CompletionKind) {
        let RecordContext { assignment, delivered, index, .. } = &*in_flight.context;
        let (slot, epoch, position) = (assignment.slot, assignment.epoch, delivered.position);
        self.mailbox.push(WorkerEvent::Ended { slot, epoch, position, index: *index, completion });
    }

    fn failed(&self, mut in_flight: InFlight, running: RunningAttempt, failure: AttemptFailure) {
        self.times.add(running.time(self.outside.now()));
        let decision = self.decide(&mut in_flight, &failure);
        self.apply(in_flight, running, decision);
    }

    /// Records a failed attempt and decides on the next step.
    pub(super) fn decide(
        &self,
        in_flight: &mut InFlight,
        failure: &AttemptFailure,
    ) -> FailureDecision {
        let attempt = in_flight.attempts.current();
        let random = || self.outside.random();
        let now = self.outside.now();
        let next = self.policy.failed(&mut in_flight.attempts, failure, now, &random);
        FailureDecision { attempt, failure: Arc::new(failure.clone()), next }
    }

    /// Rejects a record without an attempt; the action for exhausted records follows.
    pub(super) fn reject(&self, in_flight: InFlight, failure: AttemptFailure) {
        let Some(running) = in_flight.begin(self.outside.now()) else { return };
        let next = RetryDecision::Exhausted(self.policy.on_exhausted(&failure));
        self.apply(
            in_flight,
            running,
            FailureDecision { attempt: 0, failure: Arc::new(failure), next },
        );
    }

    /// Reports that a record with a failed attempt is retried together with the one before it.
    pub(super) fn report_retry(
        &self,
        in_flight: &InFlight,
        decision: &FailureDecision,
        at: Instant,
    ) {
        self.report_failure(&in_flight.context, decision, FailureAction::Retry(at));
    }

    fn report_failure(
        &self,
        context: &Arc<RecordContext>,
        decision: &FailureDecision,
        then: FailureAction,
    ) {
        self.mailbox.push(WorkerEvent::Failed(Box::new(FailedAttempt {
            context: context.clone(),
            attempt: decision.attempt,
            failure: decision.failure.clone(),
            then,
        })));
    }

    /// Applies the decision.
    pub(super) fn apply(
        &self,
        in_flight: InFlight,
        running: RunningAttempt,
        decision: FailureDecision,
    ) {
        let context = in_flight.context.clone();
        let report = |then| self.report_failure(&context, &decision, then);
        match decision.next {
            RetryDecision::Retry { at, .. } => {
                report(FailureAction::Retry(at));
                self.timer.schedule(at, in_flight);
            }
            RetryDecision::Exhausted(OnExhausted::Skip) => {
                report(FailureAction::Skip);
                self.report_completion(&in_flight, CompletionKind::Skipped);
            }
            RetryDecision::Exhausted(OnExhausted::DeadLetter) => {
                report(FailureAction::DeadLetter);
                let failed_at = self.outside.wall();
                let FailureDecision { attempt, failure, .. } = decision;
                let request = DeadLetterRequest { in_flight, running, attempt, failure, failed_at };
                return self.dead_letters.push(request);
            }
            RetryDecision::Exhausted(OnExhausted::StopKey) => {
                report(FailureAction::StopKey(Some(Box::new(in_flight))));
            }
            RetryDecision::Exhausted(OnExhausted::Stop) => {
                report(FailureAction::StopAll(Some(Box::new(in_flight))));
            }
        }
        running.end(&self.mailbox);
    }
}
