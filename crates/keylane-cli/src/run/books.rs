//! Results of the records that a run gives to workers.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use crate::ledger::{Ledger, Place};
use crate::worker::{Employer, Pending};

use super::event::{Cause, Event};

/// A run as an employer: it keeps count, and ends when its workers are no good.
#[derive(Debug)]
pub(super) struct Books {
    pub(super) ledger: Arc<Ledger>,
    pub(super) events: Sender<Event>,
}

impl Employer for Books {
    type Ticket = Place;

    fn is_stopping(&self) -> bool {
        self.ledger.is_stopping()
    }

    fn not_run(&self, _place: Place) {
        self.ledger.not_run(1);
    }

    fn started(&self) {
        self.ledger.started();
    }

    fn answered(&self, lines: &[u8], records: &mut Vec<Pending<Place>>) {
        // A write error ends the run, which reports it.
        let _ = self.ledger.output.write(lines);
        self.ledger.succeeded(records.len() as u64);
    }

    fn lost(&self, records: &mut Vec<Pending<Place>>, end: &dyn Display) {
        for Pending { ticket, key, .. } in records {
            let why = format_args!("its worker ended without answering it ({end})");
            self.ledger.failed(ticket, key, why);
        }
    }

    fn withdrawn(&self, records: &mut Vec<Pending<Place>>) {
        self.ledger.withdrawn(records.len() as u64);
    }

    fn is_over(&self, error: anyhow::Error) -> bool {
        self.ledger.stop();
        // The supervisor may have ended the run already.
        let _ = self.events.send(Event::Stop(Cause::Error(error)));
        true
    }

    fn name(&self, Place { number, line }: &Place) -> String {
        format!("record {number} (line {line})")
    }

    fn say(&self, message: &dyn Display) {
        self.ledger.output.say(message);
    }
}
