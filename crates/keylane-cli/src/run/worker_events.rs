//! Results of the records that a run gives to workers.

use std::fmt::Display;
use std::io::Write;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use crate::record_output::{AttemptReport, OutputError, RecordSink, RunOutput};
use crate::run_stats::{RecordLocation, RunStats};
use crate::worker::{PendingRecord, RecordObserver};

use super::coordinator_event::{CoordinatorEvent, StopCause};
use super::log::{LoggedKeys, RecordEnd, RecordLog};

/// A run as an observer: it keeps count, and ends when its workers are no good.
#[derive(Debug)]
pub(super) struct RunObserver {
    pub(super) stats: Arc<RunStats>,
    pub(super) events: Sender<CoordinatorEvent>,
    pub(super) log: Option<Arc<RecordLog>>,
    pub(super) output: Arc<RunOutput>,
    /// Whether answers are written as they are, and at once.
    pub(super) is_plain: bool,
}

/// Record that goes to a worker.
#[derive(Debug)]
pub(super) struct DispatchedRecord {
    place: RecordLocation,
    /// Time of the dispatch, if there is a log or output has times.
    start_us: i64,
    sink: RecordSink,
}

impl DispatchedRecord {
    fn report<'r>(&self, end_us: i64, error: Option<&'r str>) -> AttemptReport<'r> {
        let (start_us, end_us) = (Some(self.start_us), Some(end_us));
        AttemptReport { attempt: Some(1), start_us, end_us, error, ..AttemptReport::default() }
    }
}

impl RunObserver {
    /// Returns the ticket of a record that is dispatched now.
    pub(super) fn ticket(&self, place: RecordLocation, sink: RecordSink) -> DispatchedRecord {
        let start_us = match &self.log {
            Some(log) => log.now_us(),
            None if self.output.needs_head() => self.output.now_us(),
            None => 0,
        };
        DispatchedRecord { place, start_us, sink }
    }

    /// Writes each answer in the form of the run. Output that cannot wait for its turn ends the run.
    fn write_each(
        &self,
        lines: &[u8],
        records: &[PendingRecord<DispatchedRecord>],
    ) -> Result<(), OutputError> {
        let end_us = if self.output.needs_head() { self.output.now_us() } else { 0 };
        let mut text = Vec::new();
        for (line, PendingRecord { ticket, .. }) in
            lines.split_inclusive(|byte| *byte == b'\n').zip(records)
        {
            let report = ticket.report(end_us, None);
            ticket.sink.answer(line, &report, &mut text)?;
        }
        match text.is_empty() {
            true => Ok(()),
            false => self.stats.output.write(&text).map_err(|_| OutputError::NotWritten),
        }
    }

    /// Ends the run, unless it knows the error.
    fn stop_output(&self, error: OutputError) {
        if !matches!(error, OutputError::NotWritten) {
            self.on_fatal(error.into());
        }
    }

    /// Logs the ends of records. An error ends the run.
    fn log(&self, records: &[PendingRecord<DispatchedRecord>], end: &RecordEnd) {
        let Some(log) = &self.log else { return };
        let mut text = Vec::new();
        for PendingRecord { ticket, key, .. } in records {
            log.line(&mut text, &ticket.place, &LoggedKeys::One(key), 1, ticket.start_us, end);
        }
        if let Err(error) = log.write_text(&text) {
            self.on_fatal(error);
        }
    }
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
        self.stats.started();
    }

    fn answered(&self, lines: &[u8], records: &mut Vec<PendingRecord<DispatchedRecord>>) {
        let written = match self.is_plain {
            true => self.stats.output.write(lines).map_err(|_| OutputError::NotWritten),
            false => self.write_each(lines, records),
        };
        if let Err(error) = written {
            self.stop_output(error);
        }
        self.log(records, &RecordEnd::Answered);
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
        for PendingRecord { ticket, key, .. } in &*records {
            if self.output.needs_head() {
                let report = ticket.report(self.output.now_us(), Some(&why));
                if let Err(error) = ticket.sink.end_attempt(ticket.sink.receiver(), &report) {
                    self.stop_output(error);
                }
            }
            self.stats.failed(&ticket.place, key, &why);
        }
        self.log(records, &RecordEnd::Failed(why));
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
