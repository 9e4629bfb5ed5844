//! One command from its start to its end, for callers that need its result.

use std::cell::RefCell;
use std::io;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::time::Duration;

use crate::output::{NotWritten, StandardOutput};

use super::children::{ChildProcesses, wait_for_end};
use super::collect::{CapturedOutput, collect};
use super::command_ender::{CommandEnder, with_ender};
use super::overdue::CommandDeadline;

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
    /// The timeout, if the command has exceeded it.
    pub(crate) exceeded: Option<Duration>,
    /// End of its standard error.
    pub(crate) said: Vec<u8>,
    /// Its output, or the result of writing it.
    pub(crate) written: W,
}

/// Runs a command to its end and writes its output in one piece. Returns its exit status and the
/// result of the write. What `watch` returns is kept until the command has ended. After the timeout the
/// command gets SIGTERM, and SIGKILL a grace time later.
pub(crate) fn run_once<H>(
    children: &Arc<ChildProcesses>,
    command: &mut Command,
    output: &StandardOutput,
    timeout: Option<Duration>,
    watch: impl FnOnce(Arc<CommandEnder>) -> H,
) -> io::Result<CommandResult<Result<(), NotWritten>>> {
    let EndedCommand { status, exceeded, printed } = run(children, command, timeout, watch)?;
    let CapturedOutput { mut stdout, mut stderr } = printed;
    // An empty output is never an error.
    let written = match (stdout.is_empty(), stderr.is_empty()) {
        (true, true) => Ok(()),
        (true, false) => {
            output.write_error(|err| stderr.write_to(err));
            Ok(())
        }
        (false, _) => output.write_both(|out| stdout.write_to(out), |err| stderr.write_to(err)),
    };
    Ok(CommandResult { status, exceeded, said: stderr.end(MAX_SAID)?, written })
}

/// Runs a command to its end and returns its exit status and output; its standard error is written.
/// What `watch` returns is kept until the command has ended.
pub(crate) fn ask_once<H>(
    children: &Arc<ChildProcesses>,
    command: &mut Command,
    output: &StandardOutput,
    timeout: Option<Duration>,
    watch: impl FnOnce(Arc<CommandEnder>) -> H,
) -> io::Result<CommandResult<Vec<u8>>> {
    let EndedCommand { status, exceeded, printed } = run(children, command, timeout, watch)?;
    let CapturedOutput { mut stdout, mut stderr } = printed;
    if !stderr.is_empty() {
        output.write_error(|err| stderr.write_to(err));
    }
    let mut answer = Vec::new();
    stdout.write_to(&mut answer)?;
    Ok(CommandResult { status, exceeded, said: stderr.end(MAX_SAID)?, written: answer })
}

/// A command that was run to its end.
struct EndedCommand {
    status: ExitStatus,
    exceeded: Option<Duration>,
    printed: CapturedOutput,
}

fn run<H>(
    children: &Arc<ChildProcesses>,
    command: &mut Command,
    timeout: Option<Duration>,
    watch: impl FnOnce(Arc<CommandEnder>) -> H,
) -> io::Result<EndedCommand> {
    with_ender(children, |ender, abandoned| {
        let watched = watch(Arc::clone(ender));
        let mut child = ender.start(command)?;
        let mut deadline = CommandDeadline::new(timeout);
        let send = |signal| ender.end_with(signal);
        let abandoned = [children.abandoned(), abandoned];
        let mut printed = CapturedOutput::default();
        let received = BUFFER.with_borrow_mut(|buffer| {
            let first = deadline.next();
            collect(&mut child, &mut printed, abandoned, buffer, first, || deadline.pass(send))
        });
        match deadline.next() {
            Some(next) => children.wait_until(&child, next, || deadline.pass(send))?,
            None => wait_for_end(&child)?,
        }
        ender.ended();
        let status = children.reap(&mut child)?;
        drop(watched);
        let exceeded = deadline.exceeded();
        received.map(|()| EndedCommand { status, exceeded, printed })
    })
}
