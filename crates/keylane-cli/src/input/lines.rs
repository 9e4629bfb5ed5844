//! Line format: every line is a record, empty ones too, byte for byte. Lines may end with NUL instead.

use std::io::Read;

use super::error::RecordFlaw;
use super::line_reader::LineReader;
use super::record::InputRecord;

/// Lines of any bytes.
#[derive(Debug)]
pub(super) struct LineRecords<R>(LineReader<R>);

impl<R: Read> LineRecords<R> {
    /// Reads lines that `end` ends.
    pub(super) fn new(input: R, end: u8) -> Self {
        Self(LineReader::new(input, end))
    }

    pub(super) fn next(&mut self, record: &mut InputRecord) -> Result<bool, RecordFlaw> {
        let more = self.0.next(&mut record.raw);
        record.line = self.0.line();
        more
    }
}
