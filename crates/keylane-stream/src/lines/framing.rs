//! Framing: decides where a record of a file or a pipe ends, and which of its bytes are its content.

use std::fmt;

/// Cuts the bytes of a file or a pipe into records. Records of sources without another framing are lines.
///
/// A source calls [`find_end`](Self::find_end) with the bytes of its input, in order and each once, from the
/// beginning of a record on.
pub trait RecordFraming: fmt::Debug + Send {
    /// Returns the name of the format. A state file has it, so that no process continues a file in another format.
    fn format(&self) -> &str;

    /// Returns the number of bytes up to the end of the current record, if it is among `bytes`. The next
    /// call begins a new record then, with the byte behind the end.
    fn find_end(&mut self, bytes: &[u8]) -> Option<usize>;

    /// Returns the content of a record, from its bytes with the line end, or `None` if they hold no record,
    /// such as blank lines at the end of a table.
    fn content(&self, record: Vec<u8>) -> Option<Vec<u8>>;

    /// Returns whether a record with this last byte is complete, so that the file may grow behind it.
    fn is_end(&self, last: u8) -> bool {
        last == b'\n'
    }

    /// Returns whether the first record of the input is a header, which is not delivered and has no position.
    fn has_header(&self) -> bool {
        false
    }
}

/// Framing of lines: each is a record, also a blank one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LineFraming;

impl RecordFraming for LineFraming {
    fn format(&self) -> &str {
        "lines"
    }

    fn find_end(&mut self, bytes: &[u8]) -> Option<usize> {
        bytes.iter().position(|byte| *byte == b'\n').map(|end| end + 1)
    }

    fn content(&self, mut record: Vec<u8>) -> Option<Vec<u8>> {
        record.pop_if(|last| *last == b'\n');
        record.pop_if(|last| *last == b'\r');
        Some(record)
    }
}

/// The byte order mark that some programs put before UTF-8.
const BOM: &[u8] = b"\xEF\xBB\xBF";

/// Removes a byte order mark, which can stand at the beginning of an input.
pub(super) fn without_mark(mut record: Vec<u8>) -> Vec<u8> {
    if record.starts_with(BOM) {
        record.drain(..BOM.len());
    }
    record
}
