//! Ordered parallel consumers of durable streams, and their parts.
//!
//! - [`tracker`]: watermark to commit while records complete out of order, and a compact map of
//!   completed positions above it, so that a restart repeats no completed record.
//! - [`retry`]: decision after a failed attempt, by the class of the error.
//! - [`consumer`]: joins a source to a pool of workers: in parallel across keys, in order within a
//!   key, without loss.
//! - [`dead_letters`]: destinations of records whose last attempt has failed.
//! - [`sink`]: destinations of the output of handlers.
//! - [`lines`]: lines of files, with progress across restarts, and of pipes.
//! - [`memory`]: an in-memory source, for tests of handlers.
//! - [`source`]: requirements on a source.
//! - [`journal`]: a durable log in one SQLite file, for many producers and consumers in one
//!   process.
//! - `kafka`: a member of a Kafka group as a source (feature `kafka`).
//!
//! Each part is usable alone. The crate's README has their guarantees, and how they fit together.

pub mod consumer;
pub mod dead_letters;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod journal;
#[cfg(feature = "kafka")]
pub mod kafka;
pub mod lines;
pub mod memory;
mod position;
mod record;
mod record_memory;
pub mod retry;
pub mod sink;
pub mod source;
pub mod tracker;

pub use position::Position;
pub use record::{DeliveredRecord, Header, Record};
pub use source::Partition;

/// Runs the Rust blocks of the README and of a page of the book as tests.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../README.md")]
    struct StreamReadme;
    #[doc = include_str!("../../../docs/how-to-streams.md")]
    struct HowToStreams;
}
