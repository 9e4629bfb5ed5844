//! Lines as a source: of a file, where a later process goes on, and of a pipe.
//!
//! A line is a record without a key; what stands in it is for [`Builder::by`](crate::consumer::Builder::by)
//! to find. Its position is its number, from 0 on. The line end is no part of it.

mod file;
mod line_reader;
mod pipe;
mod state_file;

pub use self::file::FileSource;
pub use self::pipe::PipeSource;

/// The longest line, in bytes: what one record may take.
pub const MAX_LINE_BYTES: usize = 64 * 1024 * 1024;
