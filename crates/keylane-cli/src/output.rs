//! Writes what commands print, a whole piece at a time, so that pieces never
//! mix; notices when nobody reads it any more.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;

use indicatif::ProgressBar;
use thiserror::Error;

use crate::run::{Cause, Event};

/// Why what was printed did not get out. The cause is told once, to whoever follows the run, which it ends.
#[derive(Debug, Error)]
#[error("what it printed was not written to standard output")]
pub(crate) struct NotWritten;

/// Standard output and standard error of the run.
#[derive(Debug)]
pub(crate) struct Output {
    /// Held while one piece is written to either of them. A file, not
    /// `Stdout`, because that would look for line ends in every piece.
    stdout: Mutex<File>,
    /// Hidden unless a bar was asked for; it must step aside for each piece.
    bar: ProgressBar,
    /// Set once by the writer that found the reader gone or the disk full;
    /// what comes after is refused.
    closed: AtomicBool,
    events: Sender<Event>,
}

impl Output {
    pub(crate) fn new(bar: ProgressBar, events: Sender<Event>) -> io::Result<Self> {
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

    /// Writes one piece to standard output and one to standard error, with
    /// nothing else between them.
    ///
    /// # Errors
    /// If the first one was not written, or not to its end.
    pub(crate) fn write_both(
        &self,
        to_stdout: impl FnOnce(&mut File) -> io::Result<()>,
        to_stderr: impl FnOnce(&mut io::StderrLock<'_>) -> io::Result<()>,
    ) -> Result<(), NotWritten> {
        let mut stdout = self.stdout.lock().expect("no writer panics while it holds the lock");
        let written = self.bar.suspend(|| {
            // Nobody can be told that standard error is gone.
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

    /// Writes one piece to standard error, with nothing else in it.
    pub(crate) fn write_error(
        &self,
        to_stderr: impl FnOnce(&mut io::StderrLock<'_>) -> io::Result<()>,
    ) {
        let _alone = self.stdout.lock().expect("no writer panics while it holds the lock");
        // Nobody can be told that standard error is gone.
        let _ = self.bar.suspend(|| to_stderr(&mut io::stderr().lock()));
    }

    /// Says one line on standard error.
    pub(crate) fn say(&self, message: impl Display) {
        self.write_error(|err| err.write_all(format!("keylane: {message}\n").as_bytes()));
    }

    /// Tells whoever follows the run, before the writer's record can end.
    fn close(&self, error: io::Error) {
        self.closed.store(true, Ordering::Relaxed);
        let cause = match error.kind() {
            ErrorKind::BrokenPipe => Cause::OutputClosed,
            _ => Cause::Error(anyhow::Error::new(error).context("cannot write to standard output")),
        };
        // The run may be over already; then there is nothing left to stop.
        let _ = self.events.send(Event::Stop(cause));
    }
}
