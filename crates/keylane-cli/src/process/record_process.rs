//! One process for one attempt of a record: collects and writes its output before the key is unblocked, so that
//! a key's output is in order too.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use anyhow::anyhow;

use crate::key::RecordKey;
use crate::record_keys::RecordKeys;
use crate::record_output::{AttemptReceiver, AttemptReport, OutputError, RecordSink};
use crate::run::{CoordinatorEvent, LoggedKeys, RecordEnd, RecordLog, StopCause};
use crate::run_stats::{RecordLocation, RunStats};

use super::children::ChildProcesses;
use super::collect::collect;
use super::overdue::CommandDeadline;
use super::start_errors::why_not_started;

thread_local! {
    /// Each worker's buffer for reading from pipes, used again and again.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Runs a process per attempt of a record.
#[derive(Debug)]
pub(crate) struct RecordProcessRunner {
    pub(crate) children: ChildProcesses,
    pub(crate) stats: Arc<RunStats>,
    pub(crate) events: Sender<CoordinatorEvent>,
    /// Path of the program, if it is equal for all records.
    pub(crate) program: Option<PathBuf>,
    /// Timeout of a command.
    pub(crate) timeout: Option<Duration>,
    pub(crate) log: Option<Arc<RecordLog>>,
}

/// Why an attempt has failed.
#[derive(Debug, PartialEq)]
pub(crate) struct AttemptFailure {
    pub(crate) why: String,
    /// A further attempt would fail as well.
    pub(crate) is_final: bool,
}

/// Exit status of a command for which a further attempt is useless: `EX_DATAERR` of BSD's sysexits.
const REFUSED: i32 = 65;

impl RecordProcessRunner {
    /// Runs the command of an attempt to its end. An error that would hit every record ends the run.
    ///
    /// # Errors
    /// If the attempt has failed.
    pub(crate) fn run(
        &self,
        place: &RecordLocation,
        keys: &RecordKeys,
        argv: &[Vec<u8>],
        attempt: u32,
        slot: usize,
        sink: &RecordSink,
    ) -> Result<(), AttemptFailure> {
        let start_us = sink.now_us();
        let mut command = self.command(place, &keys.first, argv);
        command.env("KEYLANE_ATTEMPT", attempt.to_string()).env("KEYLANE_SLOT", slot.to_string());
        let mut receiver = sink.receiver();
        let (end, result) = match self.children.spawn(&mut command) {
            Ok(child) => self.finish(child, &mut receiver),
            Err(error) => {
                let failure = self.not_started(error);
                (RecordEnd::Failed(failure.why.clone()), Err(failure))
            }
        };
        let report = report(attempt, (start_us, sink.now_us()), &end);
        match sink.end_attempt(receiver, &report) {
            // The run knows it.
            Ok(()) | Err(OutputError::NotWritten) => {}
            Err(error) => self.stop(error.into()),
        }
        if let Some(log) = &self.log
            && let Err(error) = log.write(place, &LoggedKeys::All(keys), attempt, start_us, &end)
        {
            self.stop(error);
        }
        result
    }

    fn finish(
        &self,
        mut child: Child,
        receiver: &mut AttemptReceiver<'_>,
    ) -> (RecordEnd, Result<(), AttemptFailure>) {
        let mut deadline = CommandDeadline::new(&self.children, self.timeout);
        let received = BUFFER.with_borrow_mut(|buffer| {
            let abandoned = [self.children.abandoned(); 2];
            let first = deadline.next();
            collect(&mut child, receiver, abandoned, buffer, first, |child| deadline.pass(child))
        });
        let waited = deadline.next().map_or(Ok(()), |next| {
            self.children.wait_until(&child, next, |child| deadline.pass(child))
        });
        let status = waited.and_then(|()| self.children.reap(&mut child));
        match (received, status) {
            (Ok(()), Ok(status)) => {
                let result = match status.success() {
                    true => Ok(()),
                    false => Err(self.failed(status, deadline.has_passed)),
                };
                (RecordEnd::Exited(status), result)
            }
            (Err(error), _) | (_, Err(error)) => {
                let why = "its output is lost";
                self.stop(OutputError::Lost(error).into());
                let failure = AttemptFailure { why: why.to_owned(), is_final: true };
                (RecordEnd::Failed(why.to_owned()), Err(failure))
            }
        }
    }

    fn failed(&self, status: ExitStatus, is_late: bool) -> AttemptFailure {
        let why = match self.timeout.filter(|_| is_late) {
            Some(timeout) => format!("it took longer than {timeout:?} ({})", describe(status)),
            None => describe(status),
        };
        AttemptFailure { why, is_final: status.code() == Some(REFUSED) }
    }

    fn command(&self, place: &RecordLocation, key: &RecordKey, argv: &[Vec<u8>]) -> Command {
        let mut words = argv.iter().map(|word| OsStr::from_bytes(word));
        let name = words.next().expect("a command has at least one word");
        let mut command =
            Command::new(self.program.as_deref().map_or(name, |path| path.as_os_str()));
        command
            .arg0(name)
            .args(words)
            .env("KEYLANE_KEY", OsStr::from_bytes(key.bytes()))
            .env("KEYLANE_SEQ", place.number.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        command
    }

    /// Fails a record whose bytes are not a valid command line; a program that cannot be run would
    /// fail for every record, and ends the run.
    fn not_started(&self, error: io::Error) -> AttemptFailure {
        let (why, is_final) = match error.kind() {
            io::ErrorKind::InvalidInput => {
                ("it has a NUL byte, which no argument can contain; use --worker".to_owned(), true)
            }
            io::ErrorKind::ArgumentListTooLong => {
                ("it is too long for a command line; use --worker".to_owned(), true)
            }
            _ if self.program.is_none() => {
                (format!("the command cannot be run: {}", why_not_started(&error)), false)
            }
            _ => {
                self.stop(self.cannot_run(&error));
                (format!("the command was not run: {error}"), true)
            }
        };
        AttemptFailure { why, is_final }
    }

    fn cannot_run(&self, error: &io::Error) -> anyhow::Error {
        let program = self.program.as_deref().unwrap_or_else(|| "the command".as_ref()).display();
        anyhow!("cannot run {program}: {}", why_not_started(error))
    }

    /// Ends the run.
    fn stop(&self, error: anyhow::Error) {
        self.stats.stop();
        // The coordinator may have ended the run already.
        let _ = self.events.send(CoordinatorEvent::Stop(StopCause::Error(error)));
    }
}

fn report(attempt: u32, (start_us, end_us): (i64, i64), end: &RecordEnd) -> AttemptReport<'_> {
    let (exit, signal, error) = match end {
        RecordEnd::Exited(status) => (status.code(), status.signal(), None),
        RecordEnd::Answered => (None, None, None),
        RecordEnd::Failed(why) => (None, None, Some(&**why)),
    };
    let (start_us, end_us) = (Some(start_us), Some(end_us));
    AttemptReport { attempt: Some(attempt), start_us, end_us, exit, signal, error }
}

/// Exit status of a child for humans.
pub(crate) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => match signal_hook::low_level::signal_name(signal) {
            Some(name) => format!("ended by signal {signal} ({name})"),
            None => format!("ended by signal {signal}"),
        },
        (None, None) => status.to_string(),
    }
}
