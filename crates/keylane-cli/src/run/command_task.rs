//! Task of the pool for a record, or a batch of records, that is run by a command: its attempts, and
//! its end in the counts.

use std::borrow::Cow;
use std::sync::Arc;

use crate::key::RecordKey;
use crate::process::{CommandInput, EndedAttempt, RecordCommand, RecordProcessRunner, SlotNumbers};
use crate::record_output::{RecordSink, RunOutput};
use crate::run_stats::RecordLocation;

use super::failed_records::{FailedRecord, FailedRecords};
use super::failures::FailureRules;
use super::log::{LoggedKeys, LoggedResult};
use super::logs::RunLogs;
use super::record_template::with_slot;
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

/// A command that is ready to run, for one record or for a batch. Dropped before its end, its record
/// counts as replaced, or as not run if the run stops.
#[derive(Debug)]
pub(super) struct CommandTask {
    runner: Arc<CommandRunner>,
    /// At least one, of one key.
    records: Vec<TaskRecord>,
    keys: RecordKeys,
    argv: Vec<Vec<u8>>,
    /// Standard input of the command of a batch: its records, as lines.
    input: Option<Vec<u8>>,
    sink: RecordSink,
    attempts: u32,
    has_ended: bool,
}

/// A record of a command.
#[derive(Debug)]
pub(super) struct TaskRecord {
    pub(super) place: RecordLocation,
    /// The record itself, if a dead letter would need it.
    pub(super) raw: Vec<u8>,
}

/// The attempt has failed, and another one follows.
#[derive(Debug)]
pub(super) struct FollowedByAttempt;

impl CommandTask {
    /// Creates the task of a record.
    pub(super) fn new(
        runner: &Arc<CommandRunner>,
        record: TaskRecord,
        keys: RecordKeys,
        argv: Vec<Vec<u8>>,
        sink: RecordSink,
    ) -> Self {
        Self::of(runner, vec![record], keys, argv, None, sink)
    }

    /// Creates the task of a batch.
    pub(super) fn batch(
        runner: &Arc<CommandRunner>,
        records: Vec<TaskRecord>,
        keys: RecordKeys,
        argv: Vec<Vec<u8>>,
        input: Vec<u8>,
        sink: RecordSink,
    ) -> Self {
        Self::of(runner, records, keys, argv, Some(input), sink)
    }

    fn of(
        runner: &Arc<CommandRunner>,
        records: Vec<TaskRecord>,
        keys: RecordKeys,
        argv: Vec<Vec<u8>>,
        input: Option<Vec<u8>>,
        sink: RecordSink,
    ) -> Self {
        let runner = Arc::clone(runner);
        CommandTask { runner, records, keys, argv, input, sink, attempts: 0, has_ended: false }
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
            stats.not_run(self.count());
            return Ok(());
        }
        if self.attempts == 0 && failures.holds(&self.keys) {
            self.has_ended = true;
            stats.held(self.count());
            return Ok(());
        }
        self.attempts += 1;
        stats.started(self.count());
        let slot = slots.take();
        let argv = match names_slot {
            true => Cow::Owned(with_slot(&self.argv, slot.number)),
            false => Cow::Borrowed(&self.argv),
        };
        let ended = processes.run(&self.command(&argv, slot.number), &self.sink);
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

    fn command<'c>(&'c self, argv: &'c [Vec<u8>], slot: usize) -> RecordCommand<'c> {
        let input = self.input.as_deref().map(|lines| CommandInput {
            lines,
            records: self.count(),
            last: self.last().number,
        });
        let (place, key, attempt) = (self.place(), &self.keys.first, self.attempts);
        RecordCommand { place, key, argv, attempt, slot, input }
    }

    /// Counts an attempt that has ended, and acts on a failure. Returns the result for the log.
    fn settle(&mut self, ended: &EndedAttempt) -> LoggedResult {
        let CommandRunner { processes, failures, .. } = &*self.runner;
        let stats = &processes.stats;
        let Err(failure) = &ended.result else {
            self.has_ended = true;
            stats.succeeded(self.count());
            return match ended.is_interrupted {
                true => LoggedResult::Interrupted,
                false => LoggedResult::Done,
            };
        };
        let goes_on = failures.goes_on(self.attempts, failure);
        let (keys, attempts) = (&self.keys, self.attempts);
        let records = self.records.iter();
        let records: &Vec<_> =
            &records.map(|it| FailedRecord { place: &it.place, raw: &it.raw }).collect();
        let failed = FailedRecords { records, keys, attempts };
        if goes_on && !stats.is_stopping() {
            stats.will_retry(&failed.group(), failures.name(attempts), &failure.why);
            return LoggedResult::Retry;
        }
        let result = failures.settle(&failed, stats, &failure.why);
        self.has_ended = true;
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
        let places = self.records.iter().map(|record| &record.place);
        let keys = &self.keys;
        if let Err(error) = logs.attempt(places, (keys, self.attempts), argv, ended, result) {
            processes.stop(error);
        }
    }

    /// Counts and logs the record as replaced, before the later record of its key starts.
    fn replaced(&self) {
        let CommandRunner { processes, logs, .. } = &*self.runner;
        processes.stats.replaced();
        let why = "a later record of the key replaced it".to_owned();
        let keys = LoggedKeys::All(&self.keys);
        let logged = logs.without_attempt(self.place(), keys, why, LoggedResult::Replaced);
        if let Err(error) = logged {
            processes.stop(error);
        }
    }

    fn place(&self) -> &RecordLocation {
        &self.records.first().expect("a task has a record").place
    }

    fn last(&self) -> &RecordLocation {
        &self.records.last().expect("a task has a record").place
    }

    fn count(&self) -> u64 {
        self.records.len() as u64
    }
}

impl Drop for CommandTask {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let stats = &self.runner.processes.stats;
        // A batch is not replaced: its pool drops it only when the run stops.
        match stats.is_stopping() || self.input.is_some() {
            true => stats.not_run(self.count()),
            false => self.replaced(),
        }
    }
}
