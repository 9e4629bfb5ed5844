//! Lines that do not fit into a pipe, whole for their reader even if their writer is killed.
//!
//! A writer that is killed in the middle of such a line leaves a part of it in the pipe, and then the
//! end of input. So another process writes it: this program again, with [`WORD`] as its first
//! argument. Its standard input is the whole line in memory, its standard output the pipe. It ends
//! with its work, or when the pipe has no reader, and not by a signal that can be ignored.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

use crate::own_executable::{has_entrance, own_program};
use crate::{say, whole_input};

/// First argument of a feeder.
const WORD: &str = "--feed-input";

/// Writes bytes to a pipe through another process, so that its reader gets all of them even if this
/// process is killed. Waits until they are written, or the pipe has no reader.
///
/// # Errors
///
/// Returns an error if the process cannot be started, or was killed: the reader may then have a part
/// of the bytes.
pub fn feed(pipe: impl AsFd, bytes: &[u8]) -> io::Result<()> {
    if !has_entrance() {
        let why = "a feeder is this program started again, so its main must begin with \
                   keylane_process::enter; call it there";
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    let mut command = Command::new(own_program()?);
    command
        .arg0("keylane")
        .arg(WORD)
        .stdin(whole_input(bytes)?)
        .stdout(pipe.as_fd().try_clone_to_owned()?)
        .stderr(Stdio::null())
        .process_group(0);
    let status = command.spawn()?.wait()?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!("the process that writes it has ended ({status})")))
    }
}

/// Runs the feeder, if this process was started to be one.
pub(crate) fn run_if_asked() -> Option<ExitCode> {
    if std::env::args_os().nth(1).is_none_or(|word| word != WORD) {
        return None;
    }
    match run() {
        Ok(()) => Some(ExitCode::SUCCESS),
        Err(error) => {
            say(&format!("cannot write the input of a child process: {error}"));
            Some(ExitCode::FAILURE)
        }
    }
}

fn run() -> io::Result<()> {
    let heard = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM, SIGQUIT, SIGUSR1, SIGUSR2] {
        signal_hook::flag::register(signal, Arc::clone(&heard))?;
    }
    match io::copy(&mut io::stdin().lock(), &mut io::stdout().lock()) {
        // The reader needs nothing more.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map(drop),
    }
}
