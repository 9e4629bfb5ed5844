//! Ordered parallel consumers of durable streams, and what they are built from.
//!
//! - [`tracker`]: what may be committed while records end out of order, and a compact note of what is
//!   done beyond that, so that a restart repeats nothing that is finished.
//! - [`retry`]: what happens after a failed attempt, by the class of the error.
//! - [`consumer`]: joins a source to a pool of workers: in parallel across keys, in order within one,
//!   none lost.
//! - [`dead_letters`]: where records go whose last attempt has failed.
//! - [`sink`]: where records go that handlers make of others.
//! - [`lines`]: lines of files, where a later process goes on, and of pipes.
//! - [`memory`]: a source in memory, for tests of handlers.
//! - [`source`]: what a consumer needs of the place where records come from.
//! - [`journal`]: a durable log in one SQLite file, for many producers and consumers in one process.
//! - [`sqlite`]: what the journal is written with, for other stores of that kind.
//! - `kafka`: a member of a Kafka group as a source (feature `kafka`).
//!
//! Each is usable alone. What they promise, and how a source and a consumer fit around them, is in this
//! crate's README.

pub mod consumer;
pub mod dead_letters;
pub mod journal;
#[cfg(feature = "kafka")]
pub mod kafka;
pub mod leb128;
pub mod lines;
pub mod memory;
mod position;
mod record;
pub mod retry;
pub mod sink;
pub mod source;
pub mod sqlite;
mod thread_notify;
pub mod tracker;

pub use position::Position;
pub use record::{Delivered, Header, Record};
pub use source::Partition;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
