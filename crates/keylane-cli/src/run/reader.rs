//! Reading thread: submits the records to the pool in the order of the input, and waits while the
//! buffer is full.

use std::sync::Arc;

use anyhow::Context;

use crate::input::{Record, Source};
use crate::key::{Key, KeyRule};
use crate::ledger::{Ledger, Place};

use super::plan::Plan;
use super::work::{Pool, Work};

/// Reads all of an input.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) source: Source,
    pub(super) key_rule: KeyRule,
    pub(super) plan: Plan,
    pub(super) ledger: Arc<Ledger>,
    /// Whether each record waits for the one before it, whatever their keys are.
    pub(super) is_sequential: bool,
}

impl Reader {
    /// Gives every record to the pool, until the input or the pool ends.
    pub(super) fn read_all(mut self, pool: &Pool) -> anyhow::Result<()> {
        let mut record = Record::default();
        while self.source.next(&mut record)? {
            let at = || format!("{}:{}", self.source.name(), record.line);
            let key = self.key_rule.key_of(&record).with_context(at)?;
            self.ledger.read(&key);
            if !self.accept(&record, key, pool) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Hands one record over; false if the pool takes no more.
    fn accept(&self, record: &Record, key: Key, pool: &Pool) -> bool {
        let place = Place { number: record.number, line: record.line };
        match self.plan.body(record, key.bytes()) {
            Err(unfit) => self.ledger.refused(&place, &key, unfit),
            Ok(body) => {
                let (key, own_key) = match self.is_sequential {
                    true => (Key::Serial, Some(key)),
                    false => (key, None),
                };
                if pool.send(key, Work { place, own_key, body }).is_err() {
                    self.ledger.not_run(1);
                    return false;
                }
            }
        }
        !self.ledger.is_stopping()
    }
}
