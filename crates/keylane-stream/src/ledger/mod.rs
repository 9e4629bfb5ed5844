//! What durable stores in one SQLite file share: a file that one process has open, and the one thread
//! that writes it, many requests in a transaction.
//!
//! [`journal`](crate::journal) is one such store. The protocol, and why nothing acknowledged is lost, is
//! in this crate's README, for the journal; it is the same for each.
//!
//! - [`Lock`] keeps other processes out.
//! - [`Readers`] are the connections that read.
//! - [`Layout`] is what the file is, and how an older one becomes it. [`writer`] and [`reader`] connect.
//! - [`Ledger`] and [`run`] are the loop of the thread that writes.
//! - [`Mark`] says how much was acknowledged, which notices a write-ahead log that was damaged.

mod file;
mod lock;
mod mark;
mod readers;
mod run;

pub use file::{
    Carry, Layout, LayoutError, Trouble, begin, bytes_on_disk, checkpoint, failure, log_bytes,
    reader, resolved, roll_back, sync_folder, writer,
};
pub use lock::{Lock, LockError, beside, create_new, open};
pub use mark::{Mark, MarkError};
pub use readers::{Pause, Readers};
pub use run::{Ledger, Refusal, run};
