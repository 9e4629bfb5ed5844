//! Input: records of files and pipes, one at a time and in bounded memory; an unreadable record is
//! an error that names the file and the line.

mod compressed;
mod decompressed;
mod error;
mod field;
mod files;
#[cfg(test)]
mod fuzz;
mod json_values;
mod line_reader;
mod lines;
mod ndjson;
mod record;
mod recording_reader;
mod row_scanner;
mod source;
mod table;
mod table_dialect;
mod value;
mod zstd_frames;

pub(crate) use compressed::UncompressedReader;
pub(crate) use error::{InputError, RecordFlaw};
pub(crate) use field::FieldSelector;
pub(crate) use files::InputFiles;
pub(crate) use json_values::{JsonPath, check as check_json};
pub(crate) use record::InputRecord;
pub(crate) use row_scanner::RowScanner;
pub(crate) use source::{FieldLayout, InputFile, InputFormat, InputSource, TableHead};
pub(crate) use table::parse_row;
pub(crate) use table_dialect::TableDialect;
pub(crate) use value::FieldValue;

/// Longest record that is read. A longer one is nearly always a quote that is
/// never closed or a file without line ends, and would fill the memory.
const MAX_RECORD: usize = 16 << 20;
