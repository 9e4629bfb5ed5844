//! A durable log in one SQLite file: what was acknowledged is on the disk, and what is not exactly what
//! was written is refused by name.
//!
//! Producers' records are encoded where they are and collected by one writer thread, which writes all
//! that have come meanwhile as a few rows in one transaction. The protocol of its writes, and why it is
//! right, are in this crate's README. [`Journal`] has the promises and an example.

mod chunk;
mod error;
mod handle;
mod read;
mod settings;
mod source;
mod store;
mod writer;

pub use error::{Damage, JournalOpenError, ReadError, WriteError};
pub use handle::{Journal, PendingAppend};
pub use settings::{CheckReport, JournalInfo, JournalSettings, Retain};
pub use source::JournalSource;
