//! Results of the records that a run gives to workers.

use std::fmt::Display;
use std::io::Write;
use std::sync::Arc;
use std::sync::mpsc::Sender;

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
}

/// Record that goes to a worker.
#[derive(Debug)]
pub(super) struct DispatchedRecord {
    place: RecordLocation,
    /// Time of the dispatch, if there is a log.
    start_us: i64,
}

impl RunObserver {
    /// Returns the ticket of a record that is dispatched now.
    pub(super) fn ticket(&self, place: RecordLocation) -> DispatchedRecord {
        DispatchedRecord { place, start_us: self.log.as_ref().map_or(0, |log| log.now_us()) }
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
        // A write error ends the run, which reports it.
        let _ = self.stats.output.write(lines);
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
