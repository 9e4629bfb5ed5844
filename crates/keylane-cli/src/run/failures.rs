//! Failures of records: attempts, and the action after the last one.

use std::collections::HashSet;
use std::hash::BuildHasher;
use std::sync::mpsc::Sender;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;
use keylane::{Backoff, Retry};

use crate::key::RecordKey;
use crate::process::AttemptFailure;
use crate::run_stats::RunStats;

use super::args::{FailureArgs, OnFail};
use super::coordinator_event::{CoordinatorEvent, StopCause};
use super::dead_letters::RunDeadLetters;
use super::failed_records::FailedRecords;
use super::log::LoggedResult;
use crate::record_keys::RecordKeys;

/// Rules for failed records.
#[derive(Debug)]
pub(super) struct FailureRules {
    /// Maximum number of attempts; unlimited if 0.
    attempts: u32,
    backoff: Backoff,
    on_fail: OnFail,
    letters: Option<RunDeadLetters>,
    stopped: StoppedKeys,
    events: Sender<CoordinatorEvent>,
}

/// Keys of which no later record runs, because one has failed.
#[derive(Debug, Default)]
struct StoppedKeys(Mutex<StoppedKeySet>);

#[derive(Debug, Default)]
struct StoppedKeySet {
    keys: HashSet<RecordKey, RandomState>,
    /// A barrier is held, and so are all records behind it.
    all: bool,
}

impl FailureRules {
    pub(super) fn new(
        args: &FailureArgs,
        letters: Option<RunDeadLetters>,
        events: Sender<CoordinatorEvent>,
    ) -> Self {
        let (first, max) = (args.backoff.0, args.max_backoff.0);
        FailureRules {
            attempts: args.attempts,
            backoff: Backoff::exponential(first, max.max(first)),
            on_fail: args.on_fail,
            letters,
            stopped: StoppedKeys::default(),
            events,
        }
    }

    /// Returns the rules for the pool, if there is more than one attempt.
    pub(super) fn retry(&self) -> Option<Retry> {
        let retry = match self.attempts {
            1 => return None,
            0 => Retry::forever(),
            attempts => Retry::attempts(attempts),
        };
        Some(retry.backoff(self.backoff))
    }

    /// Whether another attempt follows the one with this number.
    pub(super) fn goes_on(&self, attempt: u32, failure: &AttemptFailure) -> bool {
        !failure.is_final && (self.attempts == 0 || attempt < self.attempts)
    }

    /// Wait between the attempt with this number and the next one, for a pool without attempts.
    pub(super) fn wait_after(&self, attempt: u32) -> Duration {
        self.backoff.wait(attempt, RandomState::default().hash_one(attempt))
    }

    /// Whether failed records need more than to be counted.
    pub(super) fn is_simple(&self) -> bool {
        self.attempts == 1 && self.on_fail == OnFail::Continue
    }

    /// Whether later records of a key must not be on their way before a record has succeeded.
    pub(super) fn hold_keys(&self) -> bool {
        self.attempts != 1 || self.on_fail == OnFail::StopKey
    }

    /// "attempt 2 of 5".
    pub(super) fn name(&self, attempt: u32) -> String {
        match self.attempts {
            0 => format!("attempt {attempt}"),
            attempts => format!("attempt {attempt} of {attempts}"),
        }
    }

    /// Whether a record is needed after its last attempt.
    pub(super) fn needs_record(&self) -> bool {
        self.letters.is_some()
    }

    /// Whether a record may not run, because an earlier one of a key has failed. Its other keys stop
    /// as well: their later records come after it. So do all keys behind a barrier, which comes
    /// after every record before it.
    pub(super) fn holds(&self, keys: &RecordKeys) -> bool {
        if self.on_fail != OnFail::StopKey {
            return false;
        }
        let mut stopped = self.stopped.lock();
        let is_held = match keys.is_barrier {
            true => !stopped.keys.is_empty(),
            false => keys.all().any(|key| stopped.keys.contains(key)),
        };
        if is_held {
            stopped.stop(keys);
        }
        is_held || stopped.all
    }

    /// Acts on the failure of the last attempt. Returns the result for the log, which is equal for all
    /// records.
    pub(super) fn settle(
        &self,
        failed: &FailedRecords<'_>,
        stats: &RunStats,
        why: &str,
    ) -> LoggedResult {
        let group = &failed.group();
        let why = match failed.attempts {
            1 => why.to_owned(),
            attempts => format!("{why}, in attempt {attempts}"),
        };
        match self.on_fail {
            OnFail::Continue => {
                stats.failed(group, why);
                LoggedResult::Failed
            }
            OnFail::Skip => {
                stats.skipped(group, why);
                LoggedResult::Skipped
            }
            OnFail::StopKey => {
                self.stopped.lock().stop(failed.keys);
                stats.failed(group, format_args!("{why}; its key stops"));
                LoggedResult::Stopped
            }
            OnFail::Stop => {
                stats.failed(group, why);
                stats.stop();
                // The coordinator may have ended the run already.
                let _ = self.events.send(CoordinatorEvent::Stop(StopCause::RecordFailed));
                LoggedResult::Stopped
            }
            OnFail::DeadLetter => self.bury(failed, stats, &why),
        }
    }

    /// Writes the dead letters. Without them the records are left for a later run.
    fn bury(&self, failed: &FailedRecords<'_>, stats: &RunStats, why: &str) -> LoggedResult {
        let letters = self.letters.as_ref().expect("the options were checked");
        match letters.write(failed, why) {
            Ok(()) => {
                stats.buried(&failed.group(), why);
                LoggedResult::DeadLetter
            }
            Err(error) => {
                stats.failed(&failed.group(), why);
                stats.stop();
                let _ = self.events.send(CoordinatorEvent::Stop(StopCause::Error(error)));
                LoggedResult::Interrupted
            }
        }
    }
}

impl StoppedKeys {
    fn lock(&self) -> MutexGuard<'_, StoppedKeySet> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StoppedKeySet {
    /// Stops what comes after a record with these keys. Records that share a key with it do not.
    fn stop(&mut self, keys: &RecordKeys) {
        self.all |= keys.is_barrier;
        self.keys.extend(keys.exclusive().iter().cloned());
    }
}
