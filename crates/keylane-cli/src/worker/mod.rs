//! Gives records as lines to long-lived children, one per slot, and takes one
//! line back for each; a record costs microseconds instead of a process.
//!
//! # Promises
//!
//! - Two records of a key are never in two children at once, nor out of order in one: the pool
//!   hands out a record together with its key's turn. Either the turn is held until the answer was
//!   written, or it is given back at once and the key's records follow each other into the same child
//!   (see `affinity`).
//! - By default, all records of a key go to one child, which can keep state of the key: the hash of
//!   the key selects it. The loss of a child is reported, because its state is lost with it. Records
//!   for which it has no room wait in its backlog, so a slow child delays no record of another one
//!   (see `placement` and `backlog`).
//! - Otherwise, and for records without a key, the least busy child gets the next record. While a
//!   child is slow with a record, no second one waits in its pipe (see `flow_window`).
//! - The observer of the pool defines the meaning of an answer and of a lost record (see
//!   `observer`). Where a record keeps its key's turn with its ticket, no other record of the key
//!   follows it.
//! - A child that ends loses only the records in its pipe; each of them is named, and comes with what the child wrote
//!   meanwhile to standard error, if that is a pipe (see `stderr`).
//!
//! # Threads
//!
//! One lock guards the table of all slots. A *dispatcher* (a worker of the
//! pool) enters a record in a slot and leaves; a *slot thread* (a thread per
//! slot) starts the child and reads its answers. Either of them may write the
//! slot's outbox to the child, one at a time, outside of the lock.
//!
//! Lines are gathered while the child is busy: the outbox is written when the child has no record
//! left, or when it holds half a window. So a slow trickle is not delayed and a flood needs few
//! system calls.
//!
//! No thread blocks on a child: a blocked slot thread would not read the answers that the child must
//! write, and a blocked dispatcher would keep other children idle. So only lines that are certain
//! to fit into the pipe are written; a larger line is written by a thread of its own. A dispatcher
//! waits only for capacity in any slot, so a few of them suffice for all slots (see
//! [`DISPATCHERS`]).

mod affinity;
mod backlog;
mod flow_window;
mod observer;
mod placement;
mod pool;
mod response_lines;
mod slot;
mod slot_table;
mod slot_thread;
mod stderr;
mod worker_record;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::process;

pub(crate) use observer::RecordObserver;
pub(crate) use placement::{WorkerKeys, WorkerKeysArg};
pub(crate) use pool::WorkerPool;
pub(crate) use worker_record::{NewRecord, PendingRecord};

/// Number of pool threads in front of the workers, whatever the number of slots: one to enter
/// records and one to wake up meanwhile. In measurements on two CPUs, one alone handled half as
/// many records per second with two children, and sixteen handled a fifth fewer than two with
/// sixteen children.
pub(crate) const DISPATCHERS: usize = 2;

/// The command of a worker: its input and output are pipes, and it has a process group of its own.
pub(crate) fn command(words: &[OsString]) -> anyhow::Result<Command> {
    let mut command = Command::new(process::resolve(&words[0])?);
    command
        .arg0(&words[0])
        .args(&words[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .process_group(0);
    Ok(command)
}
