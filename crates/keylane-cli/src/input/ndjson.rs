//! NDJSON format: every line that is not blank is one JSON value, validated before its use.

use std::io::Read;

use super::error::RecordFlaw;
use super::json_values;
use super::line_reader::LineReader;
use super::record::InputRecord;

/// Newline-delimited JSON.
#[derive(Debug)]
pub(super) struct NdjsonRecords<R>(LineReader<R>);

impl<R: Read> NdjsonRecords<R> {
    pub(super) fn new(input: R) -> Self {
        Self(LineReader::new(input, b'\n'))
    }

    pub(super) fn next(&mut self, record: &mut InputRecord) -> Result<bool, RecordFlaw> {
        loop {
            let more = self.0.next(&mut record.raw);
            record.line = self.0.line();
            if !more? {
                return Ok(false);
            }
            if record.raw.last() == Some(&b'\r') {
                record.raw.pop();
            }
            if !record.raw.trim_ascii().is_empty() {
                json_values::check(&record.raw)?;
                return Ok(true);
            }
        }
    }
}
