//! Durable log in one SQLite file: acknowledged records are on the disk, and damage is reported by
//! name.
//!
//! Callers encode their records; one writer thread collects them and writes them as a few rows in
//! one transaction. The crate's README has the protocol of its writes, and why it is right.
//! [`Journal`] documents the guarantees and has an example.

mod chunk;
mod error;
mod handle;
mod read;
mod settings;
mod source;
mod store;
mod writer;

#[cfg(any(test, fuzzing))]
pub use chunk::fuzz_chunk;

pub use error::{JournalDamage, JournalOpenError, JournalReadError, WriteError};
pub use handle::{Journal, PendingAppend};
pub use settings::{CheckReport, JournalInfo, JournalSettings, RetentionPolicy};
pub use source::JournalSource;
