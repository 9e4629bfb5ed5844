//! The one thread that writes dead letters. A record is done when its letter is acknowledged, and not
//! before: while nobody takes the letter, the record keeps its key, and the letter is tried again.

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
    stopped: bool,
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

    /// Writes letters until it is stopped.
    pub(super) fn run(shared: &Shared, letters: &mut dyn DeadLetters) {
        while let Some(burials) = shared.burials.next() {
            shared.bury(burials, letters);
        }
    }

    fn next(&self) -> Option<Vec<Burial>> {
        let idle = |waiting: &mut Waiting| waiting.line.is_empty() && !waiting.stopped;
        let waiting = self.changed.wait_while(self.waiting(), idle);
        let mut waiting = waiting.unwrap_or_else(PoisonError::into_inner);
        if waiting.stopped {
            return None;
        }
        let count = waiting.line.len().min(MOST_AT_ONCE);
        Some(waiting.line.drain(..count).collect())
    }

    /// Waits before the next attempt. Whether there is to be one.
    fn pause(&self, wait: Duration) -> bool {
        let until = Instant::now() + wait;
        let mut waiting = self.waiting();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if waiting.stopped || left.is_zero() {
                return !waiting.stopped;
            }
            let waited = self.changed.wait_timeout(waiting, left);
            waiting = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Shared {
    /// Writes the letters of these: together, or, if they are not taken, one by one, so that one that
    /// nobody takes keeps no other back.
    fn bury(&self, burials: Vec<Burial>, letters: &mut dyn DeadLetters) {
        let mut left = self.not_given_up(burials);
        for attempt in 1.. {
            if left.is_empty() {
                return;
            }
            left = match write(&left, letters) {
                Ok(()) => return left.into_iter().for_each(|burial| self.buried(burial)),
                Err(error) if left.len() == 1 => self.not_buried(left, &error),
                Err(_) => self.bury_singly(left, letters),
            };
            let random = left.len() as u64 ^ u64::from(attempt);
            let wait = PATIENCE.wait(attempt, random.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            if !left.is_empty() && !self.burials.pause(wait) {
                return;
            }
            left = self.not_given_up(left);
        }
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
