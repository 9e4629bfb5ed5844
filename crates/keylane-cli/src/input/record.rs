//! One record of the input, in buffers that are used again for the next.

use csv::ByteRecord;

/// The record that was read last. Bytes are kept as they came; nothing is
/// assumed about their encoding.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// Counts records from one; a header is not a record.
    pub(crate) number: u64,
    /// The line on which the record begins, counted from one.
    pub(crate) line: u64,
    /// The whole record without its line end.
    pub(crate) raw: Vec<u8>,
    /// The fields of a table's row; empty for other formats.
    pub(crate) row: ByteRecord,
}
