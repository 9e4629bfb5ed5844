//! The one thread that writes dead letters. A record is done when its letter is acknowledged, and not
//! before: while nobody takes the letter, the record keeps its key, and the letter is tried again. Others
//! do not wait for that.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::assignment::Running;
use super::attempt::Flight;
use super::failure::Failure;
use super::report::{Failed, How, Report, Then};
use super::shared::Shared;
use crate::dead_letters::{BuryError, DeadLetters, Letter};
use crate::retry::Backoff;

/// How many letters are written at a time at most.
const MOST_AT_ONCE: usize = 256;

/// The waits between attempts to write: there is no last one.
const PATIENCE: Backoff = Backoff {
    first: Duration::from_millis(200),
    factor: 2,
    longest: Duration::from_secs(10),
    jitter: crate::retry::Jitter::Equal,
};

/// A record whose last attempt has failed.
#[derive(Debug)]
pub(super) struct Burial {
    pub(super) flight: Flight,
    pub(super) running: Running,
    pub(super) attempt: u32,
    pub(super) failure: Arc<Failure>,
    pub(super) failed_at: SystemTime,
}

/// Records whose letters are to be written.
#[derive(Debug, Default)]
pub(super) struct Burials {
    waiting: Mutex<Waiting>,
    /// Notified when one has come, or it is stopped.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    line: VecDeque<Burial>,
    /// Some of those that were taken out may have been given up since.
    given_up: bool,
    stopped: bool,
}

/// Those whose letters were not taken.
#[derive(Debug, Default)]
struct Refused {
    burials: Vec<Burial>,
    /// How often in a row some were not.
    attempts: u32,
    /// When they are tried again, if there are any.
    due: Option<Instant>,
}

impl Burials {
    /// No section unwinds.
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a record into the line. One that comes after the stop is dropped: it is not done.
    pub(super) fn push(&self, burial: Burial) {
        let mut waiting = self.waiting();
        if waiting.stopped {
            drop(waiting);
            return drop(burial);
        }
        waiting.line.push_back(burial);
        drop(waiting);
        self.changed.notify_one();
    }

    /// Ends [`run`](Self::run) after the letter that is being written.
    pub(super) fn stop(&self) {
        let mut waiting = self.waiting();
        waiting.stopped = true;
        let line = std::mem::take(&mut waiting.line);
        drop(waiting);
        self.changed.notify_one();
        drop(line);
    }

    /// Partitions have been fenced: whatever is kept of them is let go.
    pub(super) fn look_again(&self) {
        self.waiting().given_up = true;
        self.changed.notify_one();
    }

    /// Writes letters until it is stopped.
    pub(super) fn run(shared: &Shared, letters: &mut dyn DeadLetters) {
        let mut refused = Refused::default();
        while let Some(came) = shared.burials.next(refused.due) {
            shared.bury(came, &mut refused, letters);
        }
    }

    /// Waits until some have come, some were given up, or others are due; none once it is stopped.
    fn next(&self, due: Option<Instant>) -> Option<Vec<Burial>> {
        let mut waiting = self.waiting();
        loop {
            if waiting.stopped {
                return None;
            }
            let left = due.map(|due| due.saturating_duration_since(Instant::now()));
            let given_up = std::mem::take(&mut waiting.given_up);
            if given_up || !waiting.line.is_empty() || left.is_some_and(|left| left.is_zero()) {
                let count = waiting.line.len().min(MOST_AT_ONCE);
                return Some(waiting.line.drain(..count).collect());
            }
            waiting = match left {
                None => self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner),
                Some(left) => {
                    let waited = self.changed.wait_timeout(waiting, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

impl Refused {
    fn add(&mut self, burials: Vec<Burial>) {
        if burials.is_empty() {
            return;
        }
        self.burials.extend(burials);
        if self.due.is_none() {
            self.attempts += 1;
            let random = (self.burials.len() as u64 ^ u64::from(self.attempts))
                .wrapping_mul(0x9E37_79B9_7F4A_7C15);
            self.due = Some(Instant::now() + PATIENCE.wait(self.attempts, random));
        }
    }

    /// Takes out all, if it is time for them.
    fn take_due(&mut self) -> Vec<Burial> {
        if self.due.is_none_or(|due| due > Instant::now()) {
            return Vec::new();
        }
        self.due = None;
        std::mem::take(&mut self.burials)
    }
}

impl Shared {
    /// Writes the letters of those who came, and of those who are due.
    fn bury(&self, came: Vec<Burial>, refused: &mut Refused, letters: &mut dyn DeadLetters) {
        refused.burials = self.not_given_up(std::mem::take(&mut refused.burials));
        for burials in [came, refused.take_due()] {
            refused.add(self.bury_these(self.not_given_up(burials), letters));
        }
        if refused.burials.is_empty() {
            *refused = Refused::default();
        }
    }

    /// Together, or, if they are not taken, one by one, so that one that nobody takes keeps no other back. Returns
    /// those that were not.
    fn bury_these(&self, burials: Vec<Burial>, letters: &mut dyn DeadLetters) -> Vec<Burial> {
        if burials.is_empty() {
            return burials;
        }
        match write(&burials, letters) {
            Ok(()) => burials.into_iter().for_each(|burial| self.buried(burial)),
            Err(error) if burials.len() == 1 => return self.not_buried(burials, &error),
            Err(_) => return self.bury_singly(burials, letters),
        }
        Vec::new()
    }

    fn bury_singly(&self, burials: Vec<Burial>, letters: &mut dyn DeadLetters) -> Vec<Burial> {
        let mut left = Vec::new();
        for burial in burials {
            let one = vec![burial];
            match write(&one, letters) {
                Ok(()) => one.into_iter().for_each(|burial| self.buried(burial)),
                Err(error) => left.extend(self.not_buried(one, &error)),
            }
        }
        left
    }

    /// Those whose partition is still ours, or may be.
    fn not_given_up(&self, burials: Vec<Burial>) -> Vec<Burial> {
        let (gone, left): (Vec<_>, _) =
            burials.into_iter().partition(|burial| burial.flight.cargo.assignment.is_fenced());
        for Burial { flight, running, .. } in gone {
            running.end(&self.mailbox);
            drop(flight);
        }
        left
    }

    fn buried(&self, burial: Burial) {
        self.ended(burial.flight, burial.running, How::DeadLettered);
    }

    fn not_buried(&self, burials: Vec<Burial>, error: &BuryError) -> Vec<Burial> {
        for burial in &burials {
            self.mailbox.push(Report::Failed(Box::new(Failed {
                cargo: burial.flight.cargo.clone(),
                attempt: burial.attempt,
                failure: burial.failure.clone(),
                then: Then::NotBuried(error.to_string()),
            })));
        }
        burials
    }
}

fn write(burials: &[Burial], letters: &mut dyn DeadLetters) -> Result<(), BuryError> {
    let letter = |burial: &Burial| {
        let cargo = &burial.flight.cargo;
        Letter {
            partition: cargo.assignment.partition.clone(),
            position: cargo.delivered.position,
            written: cargo.delivered.written,
            record: cargo.delivered.record.clone(),
            failure: burial.failure.to_string(),
            attempts: burial.attempt,
            failed_at: burial.failed_at,
        }
    };
    let written: Vec<_> = burials.iter().map(letter).collect();
    catch_unwind(AssertUnwindSafe(|| letters.bury(&written)))
        .unwrap_or_else(|_| Err(BuryError::new("the dead letters have panicked")))
}
