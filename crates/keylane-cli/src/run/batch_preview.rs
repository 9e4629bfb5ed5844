//! Commands of batches for `--dry-run`: the batches of a run whose commands start when all of the
//! input is there, or as much of it as is read ahead.

use std::time::Instant;

use crate::key::RecordKey;
use crate::shell_words;

use super::record_template::{RecordTemplate, with_slot};
use super::waiting_batches::{ReadyBatch, WaitingBatches};

/// Batches of a dry run.
#[derive(Debug)]
pub(super) struct BatchPreview {
    batches: WaitingBatches<Vec<u8>>,
    /// Number of records that wait, and its maximum.
    records: usize,
    max_records: usize,
    now: Instant,
}

impl BatchPreview {
    /// `max_records` is the maximum number of records that wait.
    pub(super) fn new(batches: WaitingBatches<Vec<u8>>, max_records: usize) -> Self {
        // No time passes.
        BatchPreview { batches, records: 0, max_records, now: Instant::now() }
    }

    /// Adds the line of a record. Appends the commands of the batches that start with it.
    pub(super) fn add(
        &mut self,
        key: &RecordKey,
        line: Vec<u8>,
        template: &RecordTemplate,
        text: &mut Vec<u8>,
    ) {
        self.records += 1;
        let full = self.batches.add(key, line, self.now);
        full.into_iter().for_each(|full| self.append(full, template, text));
        if self.records >= self.max_records {
            self.append_all(template, text);
        }
    }

    /// Appends the commands of all batches.
    pub(super) fn append_all(&mut self, template: &RecordTemplate, text: &mut Vec<u8>) {
        let all = self.batches.all_lingering();
        all.into_iter().for_each(|batch| self.append(batch, template, text));
    }

    fn append(&mut self, batch: ReadyBatch, template: &RecordTemplate, text: &mut Vec<u8>) {
        let mut records = self.batches.take(batch.number);
        self.records -= records.len();
        records.iter_mut().for_each(|line| line.truncate(line.len() - 1));
        text.extend_from_slice(b"printf '%s\\n' ");
        shell_words::append(&records, text);
        text.extend_from_slice(b" | ");
        // The slot of a command is known only when it starts.
        shell_words::append(&with_slot(&template.batch_argv(batch.key.bytes()), 1), text);
        text.push(b'\n');
    }
}
