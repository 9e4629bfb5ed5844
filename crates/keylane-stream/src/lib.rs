//! What ordered consumers of durable streams are built from.
//!
//! - [`tracker`]: what may be committed while records end out of order, and a compact note of what is
//!   done beyond that, so that a restart repeats nothing that is finished.
//! - [`retry`]: what happens after a failed attempt, by the class of the error.
//! - [`source`]: what a consumer needs of the place where records come from.
//! - [`journal`]: a durable log in one SQLite file, for many producers and consumers in one process.
//! - `kafka`: a member of a Kafka group as a source (feature `kafka`).
//!
//! Each is usable alone. What they promise, and how a source and a consumer fit around them, is in this
//! crate's README.

pub mod journal;
#[cfg(feature = "kafka")]
pub mod kafka;
mod leb128;
mod position;
mod record;
pub mod retry;
pub mod source;
pub mod tracker;

pub use position::Position;
pub use record::{Delivered, Record};
