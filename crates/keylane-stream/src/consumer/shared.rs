use std::sync::Arc;
use std::time::{Instant, SystemTime};

use super::assignment::Running;
use super::attempt::{Cargo, Flight};
use super::burial::{Burial, Burials};
use super::failure::Failure;
use super::mailbox::Mailbox;
use super::report::{Failed, How, Report, Then};
use super::rules::Rules;
use super::timer::Timer;
use super::times::Times;
use crate::retry::{Last, Next};

/// What the owner, the workers and the other threads of a consumer share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) mailbox: Mailbox,
    pub(super) rules: Rules,
    pub(super) timer: Timer,
    pub(super) burials: Burials,
    pub(super) times: Times,
}

/// What follows a failed attempt.
#[derive(Debug)]
pub(super) struct Verdict {
    /// The number of the attempt; 0 if there was none.
    attempt: u32,
    failure: Arc<Failure>,
    next: Next,
}

impl Verdict {
    /// When there is another attempt, if there is.
    pub(super) fn retries_at(&self) -> Option<Instant> {
        match self.next {
            Next::Retry { at, .. } => Some(at),
            Next::Last(_) => None,
        }
    }
}

impl Shared {
    /// Takes the answer of an attempt, on whatever thread. The report comes before the end of the
    /// attempt, and that before the end of the turn.
    pub(super) fn answer(&self, flight: Flight, running: Running, result: Result<(), Failure>) {
        match result {
            Ok(()) => self.ended(flight, running, How::Handled),
            Err(failure) => self.failed(flight, running, failure),
        }
    }

    pub(super) fn ended(&self, flight: Flight, running: Running, how: How) {
        self.times.add(running.time());
        self.tell_ended(&flight, how);
        running.end(&self.mailbox);
        drop(flight);
    }

    fn tell_ended(&self, flight: &Flight, how: How) {
        let Cargo { assignment, delivered, place } = &*flight.cargo;
        let (slot, epoch, position) = (assignment.slot, assignment.epoch, delivered.position);
        self.mailbox.push(Report::Ended { slot, epoch, position, place: *place, how });
    }

    fn failed(&self, mut flight: Flight, running: Running, failure: Failure) {
        self.times.add(running.time());
        let verdict = self.verdict(&mut flight, &failure);
        self.then(flight, running, verdict);
    }

    /// Notes that an attempt has failed, and decides what follows.
    pub(super) fn verdict(&self, flight: &mut Flight, failure: &Failure) -> Verdict {
        let attempt = flight.attempts.current();
        let next = self.rules.failed(&mut flight.attempts, failure, Instant::now());
        Verdict { attempt, failure: Arc::new(failure.clone()), next }
    }

    /// What cannot be tried at all: there is no attempt, and what is done after the last one follows.
    pub(super) fn unfit(&self, flight: Flight, failure: Failure) {
        let Some(running) = flight.begin() else { return };
        let next = Next::Last(self.rules.last(&failure));
        self.then(flight, running, Verdict { attempt: 0, failure: Arc::new(failure), next });
    }

    /// Tells that a record whose attempt has failed is tried again with the one before it.
    pub(super) fn tell_retry(&self, flight: &Flight, verdict: &Verdict, at: Instant) {
        self.tell_failed(flight, verdict, Then::Retry(at));
    }

    fn tell_failed(&self, flight: &Flight, verdict: &Verdict, then: Then) {
        self.mailbox.push(Report::Failed(Box::new(Failed {
            cargo: flight.cargo.clone(),
            attempt: verdict.attempt,
            failure: verdict.failure.clone(),
            then,
        })));
    }

    /// Does what follows a failure.
    pub(super) fn then(&self, mut flight: Flight, running: Running, verdict: Verdict) {
        let tell = |flight: &Flight, then| self.tell_failed(flight, &verdict, then);
        match verdict.next {
            Next::Retry { at, .. } => {
                tell(&flight, Then::Retry(at));
                self.timer.schedule(at, flight);
            }
            Next::Last(Last::Skip) => {
                tell(&flight, Then::Skip);
                self.tell_ended(&flight, How::Skipped);
            }
            Next::Last(Last::DeadLetter) => {
                tell(&flight, Then::DeadLetter);
                let failed_at = SystemTime::now();
                let Verdict { attempt, failure, .. } = verdict;
                let burial = Burial { flight, running, attempt, failure, failed_at };
                return self.burials.push(burial);
            }
            Next::Last(Last::StopKey) => {
                let turn = flight.turn.take();
                tell(&flight, Then::StopKey(turn));
            }
            Next::Last(Last::Stop) => {
                let turn = flight.turn.take();
                tell(&flight, Then::StopAll(turn));
            }
        }
        running.end(&self.mailbox);
    }
}
