//! One process for one attempt of a record: collects and writes its output before the key is unblocked, so that
//! a key's output is in order too.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fmt::Display;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use anyhow::anyhow;
use rustix::process::Pid;

use crate::key::RecordKey;
use crate::record_output::{AttemptReceiver, AttemptReport, OutputError, RecordSink};
use crate::run::{CoordinatorEvent, StopCause};
use crate::run_stats::{RecordLocation, RunStats};

use super::attempt::{AttemptClock, AttemptFailure, AttemptTimes, EndedAttempt, RecordEnd};
use super::child_end::describe_end;
use super::children::ChildProcesses;
use super::collect::{OutputReceiver, OutputStream, collect};
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
    pub(crate) clock: AttemptClock,
}

/// Command of an attempt.
#[derive(Debug)]
pub(crate) struct RecordCommand<'c> {
    /// Place of its record, or of the first one of its batch.
    pub(crate) place: &'c RecordLocation,
    pub(crate) key: &'c RecordKey,
    pub(crate) argv: &'c [Vec<u8>],
    /// Number of the attempt.
    pub(crate) attempt: u32,
    /// Number of the slot.
    pub(crate) slot: usize,
    /// Standard input; empty if absent.
    pub(crate) input: Option<CommandInput<'c>>,
}

/// Standard input of the command of a batch.
#[derive(Debug)]
pub(crate) struct CommandInput<'c> {
    /// The records, a line each.
    pub(crate) lines: &'c [u8],
    /// Number of records.
    pub(crate) records: u64,
    /// Number of the last record.
    pub(crate) last: u64,
}

/// Receiver that counts the bytes of standard output.
struct CountingReceiver<'s> {
    receiver: AttemptReceiver<'s>,
    stdout: u64,
}

/// What an ended command leaves.
struct Remains {
    end: RecordEnd,
    result: Result<(), AttemptFailure>,
    /// The run could not start the command, or lost its output.
    is_lost: bool,
}

/// Exit status of a command for which a further attempt is useless: `EX_DATAERR` of BSD's sysexits.
const REFUSED: i32 = 65;

impl RecordProcessRunner {
    /// Runs the command of an attempt to its end. An error that would hit every record ends the run.
    pub(crate) fn run(&self, attempt: &RecordCommand<'_>, sink: &RecordSink) -> EndedAttempt {
        let start_us = self.clock.now_us();
        let mut receiver = CountingReceiver { receiver: sink.receiver(), stdout: 0 };
        let remains = match self.start(attempt) {
            Ok(child) => self.finish(child, &mut receiver),
            Err(remains) => remains,
        };
        let Remains { end, result, mut is_lost } = remains;
        let times = AttemptTimes { start_us, end_us: self.clock.now_us() };
        let CountingReceiver { receiver, stdout: received } = receiver;
        if let Err(error) = sink.end_attempt(receiver, &report(attempt.attempt, times, &end)) {
            // No later record of the key may begin, for this one has to run again.
            self.stats.stop();
            is_lost = true;
            // The run knows of standard output.
            if !matches!(error, OutputError::NotWritten) {
                self.stop(error.into());
            }
        }
        // A command that ends by the run's signal does not count as failed for a later run.
        let is_interrupted = is_lost || (result.is_err() && self.children.is_ending());
        EndedAttempt { end, times, received, result, is_interrupted }
    }

    fn start(&self, attempt: &RecordCommand<'_>) -> Result<Child, Remains> {
        let mut command = self.command(attempt).map_err(|error| self.no_input(&error))?;
        self.children.spawn(&mut command).map_err(|error| self.not_started(error))
    }

    fn finish(&self, mut child: Child, receiver: &mut CountingReceiver<'_>) -> Remains {
        let mut deadline = CommandDeadline::new(self.timeout);
        let group = Pid::from_child(&child);
        let send = |signal| self.children.signal(group, signal);
        let received = BUFFER.with_borrow_mut(|buffer| {
            let abandoned = [self.children.abandoned(); 2];
            let first = deadline.next();
            collect(&mut child, receiver, abandoned, buffer, first, || deadline.pass(send))
        });
        let waited = deadline
            .next()
            .map_or(Ok(()), |next| self.children.wait_until(&child, next, || deadline.pass(send)));
        let status = waited.and_then(|()| self.children.reap(&mut child));
        match (received, status) {
            (Ok(()), Ok(status)) => {
                let result = match status.success() {
                    true => Ok(()),
                    false => Err(failed(status, deadline.exceeded())),
                };
                Remains { end: RecordEnd::Exited(status), result, is_lost: false }
            }
            (Err(error), _) | (_, Err(error)) => {
                self.stop(OutputError::Lost(error).into());
                Remains::lost("its output is lost".to_owned())
            }
        }
    }

    fn command(&self, attempt: &RecordCommand<'_>) -> io::Result<Command> {
        let RecordCommand { place, key, argv, attempt, slot, input } = attempt;
        let mut words = argv.iter().map(|word| OsStr::from_bytes(word));
        let name = words.next().expect("a command has at least one word");
        let mut command =
            Command::new(self.program.as_deref().map_or(name, |path| path.as_os_str()));
        command
            .arg0(name)
            .args(words)
            .env("KEYLANE_KEY", OsStr::from_bytes(key.bytes()))
            .env("KEYLANE_SEQ", place.number.to_string())
            .env("KEYLANE_ATTEMPT", attempt.to_string())
            .env("KEYLANE_SLOT", slot.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        match input {
            None => command.stdin(Stdio::null()),
            Some(CommandInput { lines, records, last }) => command
                .env("KEYLANE_LAST_SEQ", last.to_string())
                .env("KEYLANE_COUNT", records.to_string())
                .stdin(keylane_process::whole_input(lines)?),
        };
        Ok(command)
    }

    /// Ends the run: no other batch would get an input either.
    fn no_input(&self, error: &io::Error) -> Remains {
        self.stop(anyhow!("cannot give a batch to its command: {}", why_not_started(error)));
        Remains::lost(format!("{} was not run: {error}", self.program()))
    }

    /// Fails a record whose bytes are not a valid command line; a program that cannot be run would
    /// fail for every record, and ends the run.
    fn not_started(&self, error: io::Error) -> Remains {
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
                return Remains::lost(format!("{} was not run: {error}", self.program()));
            }
        };
        let failure = AttemptFailure { why: why.clone(), is_final };
        Remains { end: RecordEnd::Failed(why), result: Err(failure), is_lost: false }
    }

    fn cannot_run(&self, error: &io::Error) -> anyhow::Error {
        anyhow!("cannot run {}: {}", self.program(), why_not_started(error))
    }

    /// Path of the program in messages; one of the record may have any.
    fn program(&self) -> impl Display {
        self.program.as_deref().unwrap_or_else(|| "the command".as_ref()).display()
    }

    /// Ends the run.
    pub(crate) fn stop(&self, error: anyhow::Error) {
        self.stats.stop();
        // The coordinator may have ended the run already.
        let _ = self.events.send(CoordinatorEvent::Stop(StopCause::Error(error)));
    }
}

fn failed(status: ExitStatus, exceeded: Option<Duration>) -> AttemptFailure {
    let why = describe_end(status, exceeded);
    AttemptFailure { why, is_final: status.code() == Some(REFUSED) }
}

/// Report of an attempt for its output.
fn report(attempt: u32, times: AttemptTimes, end: &RecordEnd) -> AttemptReport<'_> {
    let (exit, signal, error) = match end {
        RecordEnd::Exited(status) => (status.code(), status.signal(), None),
        RecordEnd::Answered => (None, None, None),
        RecordEnd::Failed(why) => (None, None, Some(&**why)),
    };
    let (start_us, end_us) = (Some(times.start_us), Some(times.end_us));
    AttemptReport { attempt: Some(attempt), start_us, end_us, exit, signal, error }
}

impl OutputReceiver for CountingReceiver<'_> {
    fn receive(&mut self, stream: OutputStream, bytes: &[u8]) -> io::Result<()> {
        if stream == OutputStream::Stdout {
            self.stdout += bytes.len() as u64;
        }
        self.receiver.receive(stream, bytes)
    }
}

impl Remains {
    /// Of a command that was not run, or whose output is lost.
    fn lost(why: String) -> Self {
        let failure = AttemptFailure { why: why.clone(), is_final: true };
        Remains { end: RecordEnd::Failed(why), result: Err(failure), is_lost: true }
    }
}
