//! Thread that writes dead letters. A record is complete when its dead letter is acknowledged. If
//! the write is refused, the record keeps its key and the write is retried; other records do not
//! wait.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::dead_letter_queue::DeadLetterRequest;
use super::shared::ConsumerShared;
use super::worker_event::{CompletionKind, FailedAttempt, FailureAction, WorkerEvent};
use crate::dead_letters::{DeadLetter, DeadLetterError, DeadLetters};
use crate::retry::Backoff;

/// Backoff between writes after a refusal. Retries are unlimited.
const RETRY_BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(200),
    factor: 2,
    max: Duration::from_secs(10),
    jitter: crate::retry::Jitter::Equal,
};

/// Requests whose dead letters were refused.
#[derive(Debug, Default)]
pub(super) struct RefusedLetters {
    requests: Vec<DeadLetterRequest>,
    /// Number of consecutive refusals.
    attempts: u32,
    /// Time of the next retry, if there are requests.
    pub(super) due: Option<Instant>,
}

/// Writes dead letters until the queue is stopped.
pub(super) fn run(shared: &ConsumerShared, letters: &mut dyn DeadLetters) {
    let mut refused = RefusedLetters::default();
    while let Some(came) = shared.dead_letters.next(&shared.outside, refused.due) {
        shared.write_due(came, &mut refused, letters);
    }
}

impl RefusedLetters {
    fn add(&mut self, requests: Vec<DeadLetterRequest>, now: Instant) {
        if requests.is_empty() {
            return;
        }
        self.requests.extend(requests);
        if self.due.is_none() {
            self.attempts += 1;
            let random = (self.requests.len() as u64 ^ u64::from(self.attempts))
                .wrapping_mul(0x9E37_79B9_7F4A_7C15);
            self.due = Some(now + RETRY_BACKOFF.wait(self.attempts, random));
        }
    }

    /// Takes all requests if their retry is due.
    fn take_due(&mut self, now: Instant) -> Vec<DeadLetterRequest> {
        if self.due.is_none_or(|due| due > now) {
            return Vec::new();
        }
        self.due = None;
        std::mem::take(&mut self.requests)
    }
}

impl ConsumerShared {
    /// Writes new requests and those whose retry is due.
    pub(super) fn write_due(
        &self,
        came: Vec<DeadLetterRequest>,
        refused: &mut RefusedLetters,
        letters: &mut dyn DeadLetters,
    ) {
        refused.requests = self.without_fenced(std::mem::take(&mut refused.requests));
        for requests in [came, refused.take_due(self.outside.now())] {
            let left = self.write_all(self.without_fenced(requests), letters);
            refused.add(left, self.outside.now());
        }
        if refused.requests.is_empty() {
            *refused = RefusedLetters::default();
        }
    }

    /// Writes all requests together. If that is refused, writes them one by one, so that one bad
    /// letter does not hold up the others. Returns the refused requests.
    fn write_all(
        &self,
        requests: Vec<DeadLetterRequest>,
        letters: &mut dyn DeadLetters,
    ) -> Vec<DeadLetterRequest> {
        if requests.is_empty() {
            return requests;
        }
        match write(&requests, letters) {
            Ok(()) => requests.into_iter().for_each(|request| self.written(request)),
            Err(error) if requests.len() == 1 => return self.refused(requests, &error),
            Err(_) => return self.write_singly(requests, letters),
        }
        Vec::new()
    }

    fn write_singly(
        &self,
        requests: Vec<DeadLetterRequest>,
        letters: &mut dyn DeadLetters,
    ) -> Vec<DeadLetterRequest> {
        let mut left = Vec::new();
        for request in requests {
            let one = vec![request];
            match write(&one, letters) {
                Ok(()) => one.into_iter().for_each(|request| self.written(request)),
                Err(error) => left.extend(self.refused(one, &error)),
            }
        }
        left
    }

    /// Drops the requests of fenced assignments and returns the others.
    fn without_fenced(&self, requests: Vec<DeadLetterRequest>) -> Vec<DeadLetterRequest> {
        let (gone, left): (Vec<_>, _) = requests
            .into_iter()
            .partition(|request| request.in_flight.context.assignment.is_fenced());
        for DeadLetterRequest { in_flight, running, .. } in gone {
            running.end(&self.mailbox);
            drop(in_flight);
        }
        left
    }

    fn written(&self, request: DeadLetterRequest) {
        self.complete(request.in_flight, request.running, CompletionKind::DeadLettered);
    }

    fn refused(
        &self,
        requests: Vec<DeadLetterRequest>,
        error: &DeadLetterError,
    ) -> Vec<DeadLetterRequest> {
        for request in &requests {
            self.mailbox.push(WorkerEvent::Failed(Box::new(FailedAttempt {
                context: request.in_flight.context.clone(),
                attempt: request.attempt,
                failure: request.failure.clone(),
                then: FailureAction::DeadLetterRefused(error.to_string()),
            })));
        }
        requests
    }
}

fn write(
    requests: &[DeadLetterRequest],
    letters: &mut dyn DeadLetters,
) -> Result<(), DeadLetterError> {
    let letter = |request: &DeadLetterRequest| {
        let context = &request.in_flight.context;
        DeadLetter {
            partition: context.assignment.partition.clone(),
            position: context.delivered.position,
            written: context.delivered.written,
            record: context.delivered.record.clone(),
            failure: format!("{:#}", request.failure),
            attempts: request.attempt,
            failed_at: request.failed_at,
        }
    };
    let written: Vec<_> = requests.iter().map(letter).collect();
    catch_unwind(AssertUnwindSafe(|| letters.write(&written)))
        .unwrap_or_else(|_| Err(DeadLetterError::new("the dead-letter sink has panicked")))
}
