//! Task of the pool for a record that is run by a command: its attempts, and its end in the counts.

use std::borrow::Cow;
use std::sync::Arc;

use crate::key::RecordKey;
use crate::process::RecordProcessRunner;
use crate::record_output::{RecordSink, RunOutput};
use crate::run_stats::RecordLocation;

use super::failures::{FailedRecord, FailureRules};
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
        let ended = processes.run(place, keys, &argv, *attempts, slot.number, sink);
        drop(slot);
        let Err(failure) = ended else {
            self.has_ended = true;
            stats.succeeded(1);
            return Ok(());
        };
        if failures.goes_on(self.attempts, &failure) && !stats.is_stopping() {
            let name = failures.name(self.attempts);
            stats.will_retry(&self.place, &self.keys.first, name, &failure.why);
            return Err(FollowedByAttempt);
        }
        self.has_ended = true;
        let CommandTask { place, keys, raw, attempts, .. } = &*self;
        let record = FailedRecord { place, keys, raw, attempts: *attempts };
        failures.settle(&record, stats, &failure.why);
        Ok(())
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
            false => stats.replaced(),
        }
    }
}
