//! `--log`: a line of JSON for each attempt of a record, for programs, `keylane verify` and
//! `--resume`.
//!
//! A record's line is in the file before its key starts the next record, so a crash loses no line of
//! a record that another record of its key has followed. The first line of each run is a *header*
//! with the options that decide the records and their keys.
//!
//! A run that continues from a log relies on these rules:
//!
//! 1. A record without a line, or whose last line has an unfinished result, is unfinished.
//! 2. Of the records of a key, no unfinished one comes before a finished one, unless records of the
//!    key may run together, or one failed finally and runs again.
//! 3. Only the last line can be torn: after an error no further line is written.

mod end_of_lines;
mod file;
mod header;
mod line;
mod prior;
mod prior_pages;
mod record_hash;

pub(super) use end_of_lines::cut_torn_line;
pub(super) use file::{LogFile, open};
pub(super) use header::RecordOptions;
pub(super) use line::{KeyFields, LoggedAttempt, LoggedKeys, LoggedResult};
pub(super) use prior::PriorRecords;
pub(super) use prior_pages::PriorState;
pub(super) use record_hash::record_hash;
