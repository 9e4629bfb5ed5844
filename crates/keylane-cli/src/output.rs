//! Output of commands, written in whole pieces that never mix; detects a closed reader.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;

use indicatif::ProgressBar;
use thiserror::Error;

use crate::run::{CoordinatorEvent, StopCause};

/// Error of output that was not written. Its cause is reported once, to the coordinator, and ends
/// the run.
#[derive(Debug, Error)]
#[error("what it printed was not written to standard output")]
pub(crate) struct NotWritten;

/// Standard output and standard error of the run.
#[derive(Debug)]
pub(crate) struct StandardOutput {
    /// Held while one piece is written to either of them. A file, not
    /// `Stdout`, because that would look for line ends in every piece.
    stdout: Mutex<File>,
    /// Hidden unless a bar was asked for; it must step aside for each piece.
    bar: ProgressBar,
    /// Set by the writer that found the reader closed or the disk full; later output is refused.
    closed: AtomicBool,
    events: Sender<CoordinatorEvent>,
}

impl StandardOutput {
    pub(crate) fn new(bar: ProgressBar, events: Sender<CoordinatorEvent>) -> io::Result<Self> {
        let stdout = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        Ok(Self { stdout: Mutex::new(stdout), bar, closed: AtomicBool::new(false), events })
    }

    /// Writes one piece to standard output.
    ///
    /// # Errors
    /// If it was not written, or not to its end.
    pub(crate) fn write(&self, piece: &[u8]) -> Result<(), NotWritten> {
        self.write_both(|out| out.write_all(piece), |_| Ok(()))
    }

    /// Writes one piece to standard output and one to standard error, with no other output between
    /// them.
    ///
    /// # Errors
    ///
    /// Returns an error if the first piece was not written completely.
    pub(crate) fn write_both(
        &self,
        to_stdout: impl FnOnce(&mut File) -> io::Result<()>,
        to_stderr: impl FnOnce(&mut io::StderrLock<'_>) -> io::Result<()>,
    ) -> Result<(), NotWritten> {
        let mut stdout = self.stdout.lock().expect("no writer panics while it holds the lock");
        let written = self.bar.suspend(|| {
            // A lost standard error cannot be reported.
            let _ = to_stderr(&mut io::stderr().lock());
            let open = !self.closed.load(Ordering::Relaxed);
            open.then(|| to_stdout(&mut stdout))
        });
        match written {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => {
                self.close(error);
                Err(NotWritten)
            }
            None => Err(NotWritten),
        }
    }

    /// Writes one piece to standard error, unmixed with others.
    pub(crate) fn write_error(
        &self,
        to_stderr: impl FnOnce(&mut io::StderrLock<'_>) -> io::Result<()>,
    ) {
        let _alone = self.stdout.lock().expect("no writer panics while it holds the lock");
        // A lost standard error cannot be reported.
        let _ = self.bar.suspend(|| to_stderr(&mut io::stderr().lock()));
    }

    /// Writes one line to standard error.
    pub(crate) fn say(&self, message: impl Display) {
        self.write_error(|err| err.write_all(format!("keylane: {message}\n").as_bytes()));
    }

    /// Reports the error to the coordinator, before the writer's record can end.
    fn close(&self, error: io::Error) {
        self.closed.store(true, Ordering::Relaxed);
        let cause = match error.kind() {
            ErrorKind::BrokenPipe => StopCause::OutputClosed,
            _ => StopCause::Error(
                anyhow::Error::new(error).context("cannot write to standard output"),
            ),
        };
        // The run may be over already; then there is no run to stop.
        let _ = self.events.send(CoordinatorEvent::Stop(cause));
    }
}
