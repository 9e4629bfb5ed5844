//! Task of the pool for a record that is run by a command: its attempts, and its end in the counts.

use std::borrow::Cow;
use std::sync::Arc;

use crate::key::RecordKey;
use crate::process::{EndedAttempt, RecordProcessRunner};
use crate::record_output::{RecordSink, RunOutput};
use crate::run_stats::RecordLocation;

use super::failures::{FailedRecord, FailureRules};
use super::log::{LoggedKeys, LoggedResult};
use super::logs::RunLogs;
use super::record_template::with_slot;
use super::slot_numbers::SlotNumbers;
use crate::record_keys::RecordKeys;

/// Runner of commands, with the rules for those that fail.
#[derive(Debug)]
pub(super) struct CommandRunner {
    pub(super) processes: RecordProcessRunner,
    pub(super) failures: FailureRules,
    pub(super) output: Arc<RunOutput>,
    pub(super) slots: SlotNumbers,
    /// Whether the command has the number of its slot as an argument.
    pub(super) names_slot: bool,
    pub(super) logs: Arc<RunLogs>,
}

/// One record, ready to run. Dropped before its end, it counts as replaced, or as not run if the run
/// stops.
#[derive(Debug)]
pub(super) struct CommandTask {
    runner: Arc<CommandRunner>,
    place: RecordLocation,
    keys: RecordKeys,
    argv: Vec<Vec<u8>>,
    sink: RecordSink,
    /// The record itself, if a dead letter would need it.
    raw: Vec<u8>,
    attempts: u32,
    has_ended: bool,
}

/// The attempt has failed, and another one follows.
#[derive(Debug)]
pub(super) struct FollowedByAttempt;

impl CommandTask {
    pub(super) fn new(
        runner: &Arc<CommandRunner>,
        place: RecordLocation,
        keys: RecordKeys,
        argv: Vec<Vec<u8>>,
        sink: RecordSink,
        raw: &[u8],
    ) -> Self {
        let raw = if runner.failures.needs_record() { raw.to_vec() } else { Vec::new() };
        let runner = Arc::clone(runner);
        CommandTask { runner, place, keys, argv, sink, raw, attempts: 0, has_ended: false }
    }

    /// The key by which messages name the record.
    pub(super) fn first_key(&self) -> &RecordKey {
        &self.keys.first
    }

    /// Runs the next attempt.
    ///
    /// # Errors
    /// If it has failed and another one follows.
    pub(super) fn attempt(&mut self) -> Result<(), FollowedByAttempt> {
        let CommandRunner { processes, failures, slots, names_slot, .. } = &*self.runner;
        let stats = &processes.stats;
        if stats.is_stopping() {
            self.has_ended = true;
            stats.not_run(1);
            return Ok(());
        }
        if self.attempts == 0 && failures.holds(&self.keys) {
            self.has_ended = true;
            stats.held();
            return Ok(());
        }
        self.attempts += 1;
        stats.started();
        let slot = slots.take();
        let CommandTask { place, keys, argv, sink, attempts, .. } = &*self;
        let argv = match names_slot {
            true => Cow::Owned(with_slot(argv, slot.number)),
            false => Cow::Borrowed(argv),
        };
        let ended = processes.run(place, &keys.first, &argv, *attempts, slot.number, sink);
        drop(slot);
        // The log of jobs shows the command as it ran.
        let argv = argv.into_owned();
        let result = self.settle(&ended);
        self.log(&argv, &ended, result);
        match result {
            LoggedResult::Retry if !self.has_ended => Err(FollowedByAttempt),
            _ => Ok(()),
        }
    }

    /// Counts an attempt that has ended, and acts on a failure. Returns the result for the log.
    fn settle(&mut self, ended: &EndedAttempt) -> LoggedResult {
        let CommandRunner { processes, failures, .. } = &*self.runner;
        let stats = &processes.stats;
        let Err(failure) = &ended.result else {
            self.has_ended = true;
            stats.succeeded(1);
            return match ended.is_interrupted {
                true => LoggedResult::Interrupted,
                false => LoggedResult::Done,
            };
        };
        let goes_on = failures.goes_on(self.attempts, failure);
        if goes_on && !stats.is_stopping() {
            let name = failures.name(self.attempts);
            stats.will_retry(&self.place, &self.keys.first, name, &failure.why);
            return LoggedResult::Retry;
        }
        self.has_ended = true;
        let CommandTask { place, keys, raw, attempts, .. } = &*self;
        let record = FailedRecord { place, keys, raw, attempts: *attempts };
        let result = failures.settle(&record, stats, &failure.why);
        match (ended.is_interrupted, goes_on) {
            (true, _) => LoggedResult::Interrupted,
            // The run stops before the next attempt, which a later run makes.
            (false, true) => LoggedResult::Retry,
            (false, false) => result,
        }
    }

    /// Logs an attempt, before its keys go on. An error ends the run.
    fn log(&self, argv: &[Vec<u8>], ended: &EndedAttempt, result: LoggedResult) {
        let CommandRunner { processes, logs, .. } = &*self.runner;
        let record = (&self.place, &self.keys, self.attempts);
        if let Err(error) = logs.attempt(record, argv, ended, result) {
            processes.stop(error);
        }
    }

    /// Counts and logs the record as replaced, before the later record of its key starts.
    fn replaced(&self) {
        let CommandRunner { processes, logs, .. } = &*self.runner;
        processes.stats.replaced();
        let why = "a later record of the key replaced it".to_owned();
        let keys = LoggedKeys::All(&self.keys);
        let logged = logs.without_attempt(&self.place, keys, why, LoggedResult::Replaced);
        if let Err(error) = logged {
            processes.stop(error);
        }
    }
}

impl Drop for CommandTask {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let stats = &self.runner.processes.stats;
        match stats.is_stopping() {
            true => stats.not_run(1),
            false => self.replaced(),
        }
    }
}
