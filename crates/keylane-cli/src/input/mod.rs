//! Input: records of a file or a pipe, one at a time and in bounded memory; an unreadable record is
//! an error that names the file and the line.

mod error;
mod field;
mod frame;
mod json;
mod lines;
mod ndjson;
mod record;
mod source;
mod table;
mod tape;
mod value;

pub(crate) use field::Field;
pub(crate) use json::check as check_json;
pub(crate) use record::Record;
pub(crate) use source::{Format, Layout, Origin, Source};
pub(crate) use value::Value;

/// Longest record that is read. A longer one is nearly always a quote that is
/// never closed or a file without line ends, and would fill the memory.
const MAX_RECORD: usize = 16 << 20;
