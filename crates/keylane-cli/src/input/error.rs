//! Errors of the input: each names the file, the line, the problem and the remedy.

use std::io;

/// An input that cannot be read on from `line`.
#[derive(Debug, thiserror::Error)]
#[error("{file}:{line}: {what}")]
pub(crate) struct InputError {
    /// The file as the user wrote it, or `standard input`.
    pub(crate) file: String,
    /// The line on which the record begins, counted from one.
    pub(crate) line: u64,
    pub(crate) what: RecordFlaw,
}

/// Problem in the input, with the remedy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordFlaw {
    #[error("reading failed: {0}")]
    Read(#[source] io::Error),
    #[error(
        "the record is longer than {} MiB; check for a missing line end or a quote that is never \
         closed",
        super::MAX_RECORD >> 20
    )]
    TooLong,
    #[error(
        "a quoted field begins in this record and never ends; close the quote, or double the \
         quotes inside it"
    )]
    OpenQuote,
    #[error(
        "the record has {found} fields where the first line has {expected}; quote fields that \
         contain the separator"
    )]
    Ragged { expected: u64, found: u64 },
    #[error("not valid JSON: {0}; each line must hold one JSON value")]
    Json(String),
    #[error(
        "not valid UTF-8 from byte {0} of the line on, as JSON must be; convert the input, for \
         example with iconv"
    )]
    Utf8(usize),
    #[error("it is empty; every record must hold a row")]
    NoRow,
    #[error("it has more than one row; give each row a record of its own")]
    SeveralRows,
    #[error(
        "the header line is missing, because the input has no rows; leave out --header for an input without a header"
    )]
    NoHeader,
    #[error(
        "its header `{found}` differs from that of {first}, `{expected}`; give all files the same \
         columns in the same order, or start a run for each"
    )]
    OtherHeader { first: String, expected: String, found: String },
    #[error(
        "its rows have {found} fields where those of {first} have {expected}; give all files the \
         same columns, or start a run for each"
    )]
    OtherWidth { first: String, expected: usize, found: usize },
}
