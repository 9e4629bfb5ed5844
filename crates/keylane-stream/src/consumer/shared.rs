use std::sync::Arc;
use std::time::{Instant, SystemTime};

use super::assignment::Running;
use super::attempt::Flight;
use super::burial::{Burial, Burials};
use super::failure::Failure;
use super::mailbox::Mailbox;
use super::report::{Failed, How, Report, Then};
use super::rules::Rules;
use super::timer::Timer;
use crate::retry::{Last, Next};

/// What the owner, the workers and the other threads of a consumer share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) mailbox: Mailbox,
    pub(super) rules: Rules,
    pub(super) timer: Timer,
    pub(super) burials: Burials,
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
        self.tell_ended(&flight, how);
        running.end(&self.mailbox);
        drop(flight);
    }

    fn tell_ended(&self, flight: &Flight, how: How) {
        let assignment = &flight.cargo.assignment;
        let (slot, epoch) = (assignment.slot, assignment.epoch);
        self.mailbox.push(Report::Ended { slot, epoch, position: flight.position(), how });
    }

    fn failed(&self, mut flight: Flight, running: Running, failure: Failure) {
        let attempt = flight.attempts.current();
        let next = self.rules.failed(&mut flight.attempts, &failure, Instant::now());
        self.then(flight, running, attempt, failure, next);
    }

    /// What cannot be tried at all: there is no attempt, and what is done after the last one follows.
    pub(super) fn unfit(&self, flight: Flight, failure: Failure) {
        let Some(running) = flight.begin() else { return };
        let last = Next::Last(self.rules.last(&failure));
        self.then(flight, running, 0, failure, last);
    }

    fn then(
        &self,
        mut flight: Flight,
        running: Running,
        attempt: u32,
        failure: Failure,
        next: Next,
    ) {
        let failure = Arc::new(failure);
        let tell = |flight: &Flight, then| {
            self.mailbox.push(Report::Failed(Box::new(Failed {
                assignment: flight.cargo.assignment.clone(),
                position: flight.position(),
                attempt,
                failure: failure.clone(),
                then,
            })));
        };
        match next {
            Next::Retry { at, .. } => {
                tell(&flight, Then::Retry(at));
                // The owner purges what was scheduled before the attempt ends, and nothing after it.
                if !flight.cargo.assignment.is_closed() {
                    self.timer.schedule(at, flight);
                }
            }
            Next::Last(Last::Skip) => {
                tell(&flight, Then::Skip);
                self.tell_ended(&flight, How::Skipped);
            }
            Next::Last(Last::DeadLetter) => {
                tell(&flight, Then::DeadLetter);
                let failed_at = SystemTime::now();
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
