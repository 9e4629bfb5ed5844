//! Storage below the journal and the service's store: data that is acknowledged is on the disk.
//!
//! - [`sqlite`]: stores in one SQLite file, written by one thread with many requests per
//!   transaction.
//! - [`files`]: files that are created or replaced as a whole, and survive a power failure.
//! - [`checksum`]: content that verifies only at its place.
//! - [`leb128`]: compact numbers.
//! - [`ThreadNotify`]: wake-up of the one thread that owns a store or a source.

pub mod checksum;
pub mod files;
pub mod leb128;
pub mod sqlite;
mod thread_notify;

pub use thread_notify::ThreadNotify;
