//! One command, from its start to its end, for whoever wants to know how that was.

use std::cell::RefCell;
use std::io;
use std::process::{Command, ExitStatus};

use crate::output::{NotWritten, Output};

use super::children::Children;
use super::collect::{Printed, collect};

thread_local! {
    /// Each thread's buffer for reading from pipes, used again and again.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Bytes of what a command complained of that are kept: the end, where the reason mostly is.
const MAX_SAID: usize = 2048;

/// How a command has ended.
pub(crate) struct Ended<W> {
    pub(crate) status: ExitStatus,
    /// The end of what it printed on its standard error.
    pub(crate) said: Vec<u8>,
    /// What it printed, or whether that was written.
    pub(crate) written: W,
}

/// Runs a command to its end, writes what it printed in one piece, and returns how it ended and whether that
/// was written.
pub(crate) fn run_once(
    children: &Children,
    command: &mut Command,
    output: &Output,
) -> io::Result<Ended<Result<(), NotWritten>>> {
    let (status, Printed { mut stdout, mut stderr }) = run(children, command)?;
    // Nothing can always be written.
    let written = match (stdout.is_empty(), stderr.is_empty()) {
        (true, true) => Ok(()),
        (true, false) => {
            output.write_error(|err| stderr.write_to(err));
            Ok(())
        }
        (false, _) => output.write_both(|out| stdout.write_to(out), |err| stderr.write_to(err)),
    };
    Ok(Ended { status, said: stderr.end(MAX_SAID)?, written })
}

/// Runs a command to its end, and returns how it ended and what it printed; what it complained of is written.
pub(crate) fn ask_once(
    children: &Children,
    command: &mut Command,
    output: &Output,
) -> io::Result<Ended<Vec<u8>>> {
    let (status, Printed { mut stdout, mut stderr }) = run(children, command)?;
    if !stderr.is_empty() {
        output.write_error(|err| stderr.write_to(err));
    }
    let mut answer = Vec::new();
    stdout.write_to(&mut answer)?;
    Ok(Ended { status, said: stderr.end(MAX_SAID)?, written: answer })
}

fn run(children: &Children, command: &mut Command) -> io::Result<(ExitStatus, Printed)> {
    let mut child = children.spawn(command)?;
    let printed =
        BUFFER.with_borrow_mut(|buffer| collect(&mut child, children.abandoned(), buffer));
    let status = children.reap(&mut child)?;
    Ok((status, printed?))
}
