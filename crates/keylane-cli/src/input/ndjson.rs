//! NDJSON format: every line that is not blank is one JSON value, validated before its use.

use std::io::Read;

use super::error::Flaw;
use super::frame::Frames;
use super::json;
use super::record::Record;

/// The byte order mark that some programs put before UTF-8.
const BOM: &[u8] = b"\xEF\xBB\xBF";

/// Newline-delimited JSON.
#[derive(Debug)]
pub(super) struct Ndjson<R>(Frames<R>);

impl<R: Read> Ndjson<R> {
    pub(super) fn new(input: R) -> Self {
        Self(Frames::new(input))
    }

    pub(super) fn next(&mut self, record: &mut Record) -> Result<bool, Flaw> {
        loop {
            let more = self.0.next(&mut record.raw);
            record.line = self.0.line();
            if !more? {
                return Ok(false);
            }
            if record.line == 1 && record.raw.starts_with(BOM) {
                record.raw.drain(..BOM.len());
            }
            if record.raw.last() == Some(&b'\r') {
                record.raw.pop();
            }
            if !record.raw.trim_ascii().is_empty() {
                json::check(&record.raw)?;
                return Ok(true);
            }
        }
    }
}
