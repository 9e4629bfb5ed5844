//! What durable stores in one SQLite file share: a file that one process has open, and the one thread
//! that writes it, many requests in a transaction.
//!
//! [`journal`](crate::journal) is one such store. The protocol, and why nothing acknowledged is lost, is
//! in this crate's README, for the journal; it is the same for each.
//!
//! - [`Lock`] keeps other processes out.
//! - [`ReaderPool`] are the connections that read.
//! - [`Layout`] is what the file is, and how an older one becomes it. [`writer`] and [`reader`] connect.
//! - [`GroupCommit`] and [`run`] are the loop of the thread that writes.
//! - [`HighWaterMark`] says how much was acknowledged, which notices a write-ahead log that was damaged.

mod connection;
mod group_commit;
mod high_water_mark;
mod lock;
mod reader_pool;

pub use connection::{
    Checkpoint, Layout, LayoutError, SqliteError, begin, bytes_on_disk, checkpoint, failure,
    log_bytes, reader, resolved, roll_back, sync_folder, writer,
};
pub use group_commit::{GroupCommit, WriteRefused, run};
pub use high_water_mark::{HighWaterMark, HighWaterMarkError};
pub use lock::{Lock, LockError, beside, create_new, open};
pub use reader_pool::{ReaderPause, ReaderPool};
