//! One command from its start to its end, for callers that need its result.

use std::cell::RefCell;
use std::io;
use std::process::{Command, ExitStatus};
use std::sync::Arc;

use crate::output::{NotWritten, StandardOutput};

use super::children::{ChildProcesses, wait_for_end};
use super::collect::{CapturedOutput, collect};
use super::command_ender::{CommandEnder, with_ender};

thread_local! {
    /// Each thread's buffer for reading from pipes, used again and again.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Maximum number of bytes of standard error that are kept: the last ones, which mostly have the
/// reason.
const MAX_SAID: usize = 2048;

/// How a command has ended.
pub(crate) struct CommandResult<W> {
    pub(crate) status: ExitStatus,
    /// End of its standard error.
    pub(crate) said: Vec<u8>,
    /// Its output, or the result of writing it.
    pub(crate) written: W,
}

/// Runs a command to its end and writes its output in one piece. Returns its exit status and the
/// result of the write. What `watch` returns is kept until the command has ended.
pub(crate) fn run_once<H>(
    children: &Arc<ChildProcesses>,
    command: &mut Command,
    output: &StandardOutput,
    watch: impl FnOnce(Arc<CommandEnder>) -> H,
) -> io::Result<CommandResult<Result<(), NotWritten>>> {
    let (status, CapturedOutput { mut stdout, mut stderr }) = run(children, command, watch)?;
    // An empty output is never an error.
    let written = match (stdout.is_empty(), stderr.is_empty()) {
        (true, true) => Ok(()),
        (true, false) => {
            output.write_error(|err| stderr.write_to(err));
            Ok(())
        }
        (false, _) => output.write_both(|out| stdout.write_to(out), |err| stderr.write_to(err)),
    };
    Ok(CommandResult { status, said: stderr.end(MAX_SAID)?, written })
}

/// Runs a command to its end and returns its exit status and output; its standard error is written.
/// What `watch` returns is kept until the command has ended.
pub(crate) fn ask_once<H>(
    children: &Arc<ChildProcesses>,
    command: &mut Command,
    output: &StandardOutput,
    watch: impl FnOnce(Arc<CommandEnder>) -> H,
) -> io::Result<CommandResult<Vec<u8>>> {
    let (status, CapturedOutput { mut stdout, mut stderr }) = run(children, command, watch)?;
    if !stderr.is_empty() {
        output.write_error(|err| stderr.write_to(err));
    }
    let mut answer = Vec::new();
    stdout.write_to(&mut answer)?;
    Ok(CommandResult { status, said: stderr.end(MAX_SAID)?, written: answer })
}

fn run<H>(
    children: &Arc<ChildProcesses>,
    command: &mut Command,
    watch: impl FnOnce(Arc<CommandEnder>) -> H,
) -> io::Result<(ExitStatus, CapturedOutput)> {
    with_ender(children, |ender, abandoned| {
        let watched = watch(Arc::clone(ender));
        let mut child = ender.start(command)?;
        let abandoned = [children.abandoned(), abandoned];
        let mut printed = CapturedOutput::default();
        let received = BUFFER.with_borrow_mut(|buffer| {
            collect(&mut child, &mut printed, abandoned, buffer, None, |_| None)
        });
        wait_for_end(&child)?;
        ender.ended();
        let status = children.reap(&mut child)?;
        drop(watched);
        received.map(|()| (status, printed))
    })
}
