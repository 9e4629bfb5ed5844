//! Gives records as lines to long-lived children, one per slot, and takes one
//! line back for each; a record costs microseconds instead of a process.
//!
//! # Promises
//!
//! - Two records of a key are never in two children at once, nor out of order
//!   in one: the pool hands out a record together with its key's turn. Either
//!   the turn is held until the answer was written, or it is given back at once
//!   and the key's records follow each other into the same child (see `homes`).
//! - The least busy child gets the next record. A child that takes long for a
//!   record has no second one waiting in its pipe (see `window`).
//! - Whose records they are, and what an answer or a lost record means there, is
//!   its employer's business (see `employer`). Where a record keeps its key's turn
//!   with its ticket, no other record of the key follows it.
//! - A child that ends takes only those records with it that were in its pipe;
//!   each of them is named.
//!
//! # Who does what
//!
//! One lock guards the table of all slots. A *dispatcher* (a worker of the
//! pool) enters a record in a slot and leaves; an *attendant* (a thread per
//! slot) starts the child and reads its answers. Either of them may write the
//! slot's outbox to the child, one at a time, outside of the lock.
//!
//! Lines are gathered while the child has enough to do: the outbox is written
//! when the child has nothing left, or when it holds half a window. So a slow
//! trickle is not held back and a flood needs few system calls.
//!
//! Nobody blocks on a child: an attendant would not read the answers that the
//! child waits to be rid of, and a dispatcher would keep other children idle.
//! So only what is sure to fit into the pipe is written; a line larger than
//! that is written by a thread of its own. A dispatcher waits for nothing but
//! room in any slot, so a few of them do for all slots (see [`DISPATCHERS`]).

mod answers;
mod attendant;
mod crew;
mod employer;
mod homes;
mod slot;
mod window;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::process;

pub(crate) use crew::Crew;
pub(crate) use employer::Employer;
pub(crate) use slot::Pending;

/// Workers of the pool in front of a crew, however many slots it has: one to
/// enter records and one to wake up meanwhile. One alone made half as many
/// records a second with two children, and sixteen made a fifth fewer than two
/// with sixteen children, on two CPUs.
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
