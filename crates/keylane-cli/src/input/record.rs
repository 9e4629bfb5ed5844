//! Record of the input, in buffers that are reused for the next one.

use csv::ByteRecord;

/// Last record that was read. Bytes are unchanged, in any encoding.
#[derive(Debug, Default)]
pub(crate) struct InputRecord {
    /// Counts records from one; a header is not a record.
    pub(crate) number: u64,
    /// The line on which the record begins, counted from one.
    pub(crate) line: u64,
    /// The whole record without its line end.
    pub(crate) raw: Vec<u8>,
    /// The fields of a table's row; empty for other formats.
    pub(crate) row: ByteRecord,
}
