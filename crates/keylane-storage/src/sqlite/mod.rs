//! Storage shared by stores that keep all data in one SQLite file, opened by one process and
//! written by one thread, with many requests per transaction.
//!
//! The README of `keylane-stream` has the protocol for its journal, and why no acknowledged write is
//! lost; it holds for each store.
//!
//! - [`Lock`] excludes other processes.
//! - [`ReaderPool`] has the reading connections.
//! - [`Layout`] describes a file and migrates older ones; [`writer`] and [`reader`] open
//!   connections.
//! - [`GroupCommit`] and [`run`] are the loop of the writer thread, and [`BackgroundCheckpoint`]
//!   copies its log beside it.
//! - [`HighWaterMark`] detects a damaged write-ahead log.

mod background_checkpoint;
mod connection;
mod group_commit;
mod high_water_mark;
mod lock;
mod reader_pool;

pub use background_checkpoint::{BackgroundCheckpoint, CheckpointState};
pub use connection::{
    Checkpoint, Layout, LayoutError, SqliteError, begin, bytes_on_disk, checkpoint, commit,
    failure, log_bytes, reader, roll_back, settle_log, writer,
};
pub use group_commit::{GroupCommit, GroupCommitSteps, WriteRefused, run};
pub use high_water_mark::{HighWaterMark, HighWaterMarkError};
pub use lock::{Lock, LockError};
pub use reader_pool::{EndRequest, ReaderPool};
