//! Results of the records that a run gives to workers.

use std::fmt::Display;
use std::io::Write;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use crate::run_stats::{RecordLocation, RunStats};
use crate::worker::{PendingRecord, RecordObserver};

use super::coordinator_event::{CoordinatorEvent, StopCause};

/// A run as an observer: it keeps count, and ends when its workers are no good.
#[derive(Debug)]
pub(super) struct RunObserver {
    pub(super) stats: Arc<RunStats>,
    pub(super) events: Sender<CoordinatorEvent>,
}

impl RecordObserver for RunObserver {
    type Ticket = RecordLocation;

    fn is_stopping(&self) -> bool {
        self.stats.is_stopping()
    }

    fn not_run(&self, _place: RecordLocation) {
        self.stats.not_run(1);
    }

    fn started(&self) {
        self.stats.started();
    }

    fn answered(&self, lines: &[u8], records: &mut Vec<PendingRecord<RecordLocation>>) {
        // A write error ends the run, which reports it.
        let _ = self.stats.output.write(lines);
        self.stats.succeeded(records.len() as u64);
    }

    fn lost(
        &self,
        records: &mut Vec<PendingRecord<RecordLocation>>,
        end: &dyn Display,
        _said: &[u8],
    ) {
        for PendingRecord { ticket, key, .. } in records {
            let why = format_args!("its worker ended without answering it ({end})");
            self.stats.failed(ticket, key, why);
        }
    }

    fn print_stderr(&self, text: &[u8]) {
        self.stats.output.write_error(|err| err.write_all(text));
    }

    fn withdrawn(&self, records: &mut Vec<PendingRecord<RecordLocation>>) {
        self.stats.withdrawn(records.len() as u64);
    }

    fn on_fatal(&self, error: anyhow::Error) -> bool {
        self.stats.stop();
        // The coordinator may have ended the run already.
        let _ = self.events.send(CoordinatorEvent::Stop(StopCause::Error(error)));
        true
    }

    fn name(&self, RecordLocation { number, line }: &RecordLocation) -> String {
        format!("record {number} (line {line})")
    }

    fn print(&self, message: &dyn Display) {
        self.stats.output.say(message);
    }
}
