//! Reading thread: submits the records to the pool in the order of the input, and waits while the
//! buffer is full.

use std::sync::Arc;

use anyhow::Context;

use crate::input::{InputRecord, InputSource};
use crate::key::{KeyRule, RecordKey};
use crate::run_stats::{RecordLocation, RunStats};

use super::record_task::{RecordPool, RecordTask};
use super::record_template::RecordTemplate;

/// Reads all of an input.
#[derive(Debug)]
pub(super) struct InputReader {
    pub(super) source: InputSource,
    pub(super) key_rule: KeyRule,
    pub(super) plan: RecordTemplate,
    pub(super) stats: Arc<RunStats>,
    /// Whether each record waits for the one before it, whatever their keys are.
    pub(super) is_sequential: bool,
}

impl InputReader {
    /// Gives every record to the pool, until the input or the pool ends.
    pub(super) fn read_all(mut self, pool: &RecordPool) -> anyhow::Result<()> {
        let mut record = InputRecord::default();
        while self.source.next(&mut record)? {
            let at = || format!("{}:{}", self.source.name(), record.line);
            let key = self.key_rule.key_of(&record).with_context(at)?;
            self.stats.read(&key);
            if !self.accept(&record, key, pool) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Hands one record over; false if the pool takes no more.
    fn accept(&self, record: &InputRecord, key: RecordKey, pool: &RecordPool) -> bool {
        let place = RecordLocation { number: record.number, line: record.line };
        match self.plan.body(record, key.bytes()) {
            Err(unfit) => self.stats.refused(&place, &key, unfit),
            Ok(body) => {
                let (key, own_key) = match self.is_sequential {
                    true => (RecordKey::Serial, Some(key)),
                    false => (key, None),
                };
                if pool.send(key, RecordTask { place, own_key, body }).is_err() {
                    self.stats.not_run(1);
                    return false;
                }
            }
        }
        !self.stats.is_stopping()
    }
}
