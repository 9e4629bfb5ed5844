//! Results of the records that a run gives to workers: counts, log, further attempts, and the action
//! after the last one.

use std::fmt::Display;
use std::io::Write;
use std::iter;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use crate::process::{AttemptFailure, AttemptTimes, ChildProcesses, RecordEnd};
use crate::record_output::{AnswerPath, OutputError, RecordSink, RunOutput};
use crate::run_stats::{RecordGroup, RecordLocation, RunStats};
use crate::worker::{PendingRecord, RecordObserver};

use super::coordinator_event::{CoordinatorEvent, StopCause};
use super::dispatched_record::{DispatchedRecord, RecordDetails};
use super::failed_records::{FailedRecord, FailedRecords};
use super::failures::FailureRules;
use super::log::{LoggedAttempt, LoggedResult};
use super::logs::RunLogs;
use super::worker_retries::WorkerRetries;

/// A run as an observer: it keeps count, and ends when its workers are no good.
#[derive(Debug)]
pub(super) struct RunObserver {
    pub(super) stats: Arc<RunStats>,
    pub(super) events: Sender<CoordinatorEvent>,
    pub(super) logs: Arc<RunLogs>,
    pub(super) output: Arc<RunOutput>,
    pub(super) answer_path: AnswerPath,
    pub(super) failures: FailureRules,
    pub(super) retries: WorkerRetries,
    pub(super) children: Arc<ChildProcesses>,
}

impl RunObserver {
    /// Returns the ticket of a record that is dispatched now.
    pub(super) fn ticket(
        &self,
        place: RecordLocation,
        sink: RecordSink,
        mut details: Option<Box<RecordDetails>>,
    ) -> DispatchedRecord {
        if let Some(details) = &mut details {
            details.attempts += 1;
        }
        let needs_times = self.logs.has_log() || self.output.needs_head();
        let start_us = if needs_times { self.logs.clock.now_us() } else { 0 };
        DispatchedRecord { place, start_us, sink, details }
    }

    /// Writes each answer in the form of the run. Output that cannot wait for its turn ends the run.
    fn write_each(
        &self,
        lines: &[u8],
        records: &[PendingRecord<DispatchedRecord>],
    ) -> Result<(), OutputError> {
        let end_us = if self.output.needs_head() { self.output.now_us() } else { 0 };
        let mut text = Vec::new();
        for (line, PendingRecord { ticket, .. }) in split_lines(lines).zip(records) {
            let report = ticket.report(end_us, None);
            ticket.sink.answer(line, &report, &mut text)?;
        }
        if text.is_empty() { Ok(()) } else { self.write(&text) }
    }

    fn write(&self, text: &[u8]) -> Result<(), OutputError> {
        self.stats.output.write(text).map_err(|_| OutputError::NotWritten)
    }

    /// Ends the run, which reports the error unless it knows it. No later record of the keys may
    /// begin, for those whose output was lost have to run again.
    fn stop_output(&self, error: OutputError) {
        self.stats.stop();
        if !matches!(error, OutputError::NotWritten) {
            self.on_fatal(error.into());
        }
    }

    /// Logs the ends of attempts, before their keys go on. An error ends the run.
    fn log(
        &self,
        records: &[PendingRecord<DispatchedRecord>],
        end: &RecordEnd,
        results: impl IntoIterator<Item = LoggedResult>,
    ) {
        if !self.logs.has_log() {
            return;
        }
        let end_us = self.logs.clock.now_us();
        let lines = records.iter().zip(results).map(|(record, result)| LoggedAttempt {
            place: &record.ticket.place,
            keys: record.ticket.logged_keys(&record.key),
            batch: None,
            attempt: record.ticket.attempts(),
            times: Some(AttemptTimes { start_us: record.ticket.start_us, end_us }),
            end,
            result,
        });
        if let Err(error) = self.logs.lines(lines) {
            self.on_fatal(error);
        }
    }

    /// Acts on a failed attempt. Returns the result for the log; another attempt follows
    /// [`LoggedResult::Retry`].
    fn attempt_failed(&self, record: &PendingRecord<DispatchedRecord>, why: &str) -> LoggedResult {
        // A worker that ends by the run's signal leaves its records for a later run.
        let is_interrupted = self.children.is_ending();
        let or_interrupted = |result| match is_interrupted {
            true => LoggedResult::Interrupted,
            false => result,
        };
        let DispatchedRecord { place, details, .. } = &record.ticket;
        let Some(details) = details else {
            self.stats.failed(&RecordGroup::one(place, &record.key), why);
            return or_interrupted(LoggedResult::Failed);
        };
        let RecordDetails { keys, raw, attempts, .. } = &**details;
        let failure = AttemptFailure { why: why.to_owned(), is_final: false };
        let goes_on = self.failures.goes_on(*attempts, &failure);
        if goes_on && !self.stats.is_stopping() {
            let record = RecordGroup::one(place, &keys.first);
            self.stats.will_retry(&record, self.failures.name(*attempts), why);
            return LoggedResult::Retry;
        }
        let records = &[FailedRecord { place, raw }];
        let failed = FailedRecords { records, keys, attempts: *attempts };
        let result = self.failures.settle(&failed, &self.stats, why);
        // A run that stops before the next attempt leaves the record for a later run, too.
        or_interrupted(if goes_on { LoggedResult::Interrupted } else { result })
    }
}

/// Splits text into lines, each with its end.
fn split_lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split_inclusive(|byte| *byte == b'\n')
}

impl RecordObserver for RunObserver {
    type Ticket = DispatchedRecord;

    fn is_stopping(&self) -> bool {
        self.stats.is_stopping()
    }

    fn not_run(&self, _ticket: DispatchedRecord) {
        self.stats.not_run(1);
    }

    fn started(&self) {
        self.stats.started(1);
    }

    fn answered(&self, lines: &[u8], records: &mut Vec<PendingRecord<DispatchedRecord>>) {
        let written = match self.answer_path {
            AnswerPath::AtOnce => self.write(lines),
            AnswerPath::InTurn => {
                let sinks = records.iter_mut().map(|record| &mut record.ticket.sink);
                self.output.answer_in_turn(sinks.zip(split_lines(lines)))
            }
            AnswerPath::Formed => self.write_each(lines, records),
        };
        let result = match written {
            Ok(()) => LoggedResult::Done,
            Err(error) => {
                self.stop_output(error);
                LoggedResult::Interrupted
            }
        };
        self.log(records, &RecordEnd::Answered, iter::repeat(result));
        self.stats.succeeded(records.len() as u64);
    }

    /// A run cancels no record.
    fn ended(&self, records: &mut Vec<PendingRecord<DispatchedRecord>>) {
        self.lost(records, &"it was ended", &[]);
    }

    fn lost(
        &self,
        records: &mut Vec<PendingRecord<DispatchedRecord>>,
        end: &dyn Display,
        _said: &[u8],
    ) {
        let why = format!("its worker ended without answering it ({end})");
        if self.output.needs_head() {
            for PendingRecord { ticket, .. } in &*records {
                let report = ticket.report(self.output.now_us(), Some(&why));
                if let Err(error) = ticket.sink.end_attempt(ticket.sink.receiver(), &report) {
                    self.stop_output(error);
                }
            }
        }
        let results: Vec<_> = records.iter().map(|it| self.attempt_failed(it, &why)).collect();
        self.log(records, &RecordEnd::Failed(why), results.iter().copied());
        let mut results = results.into_iter();
        for record in records.extract_if(.., |_| results.next() == Some(LoggedResult::Retry)) {
            let attempts = record.ticket.attempts();
            self.retries.retry(record, self.failures.wait_after(attempts));
        }
    }

    fn print_stderr(&self, text: &[u8]) {
        self.stats.output.write_error(|err| err.write_all(text));
    }

    fn withdrawn(&self, records: &mut Vec<PendingRecord<DispatchedRecord>>) {
        self.stats.withdrawn(records.len() as u64);
    }

    fn on_fatal(&self, error: anyhow::Error) -> bool {
        self.stats.stop();
        // The coordinator may have ended the run already.
        let _ = self.events.send(CoordinatorEvent::Stop(StopCause::Error(error)));
        true
    }

    fn name(&self, ticket: &DispatchedRecord) -> String {
        let place = &ticket.place;
        format!("record {} ({place})", place.number)
    }

    fn print(&self, message: &dyn Display) {
        self.stats.output.say(message);
    }
}
