//! Lines as sources: of a file, with progress across restarts, and of a pipe.
//!
//! A line is a record without a key; [`ConsumerBuilder::by`](crate::consumer::ConsumerBuilder::by) finds a key in
//! it. Its position is its number, counted from 0. The line end is not part of the record, nor
//! is a byte order mark before the first line. A [`RecordFraming`] cuts the input into other records, such as
//! the rows of a table.

mod file;
mod framing;
mod pipe;
mod record_reader;
mod state_file;

#[cfg(any(test, fuzzing))]
pub use state_file::fuzz_state;

pub use self::file::FileSource;
pub use self::framing::RecordFraming;
pub use self::pipe::PipeSource;

/// Maximum length of a line or another record, in bytes.
pub const MAX_LINE_BYTES: usize = 64 * 1024 * 1024;
