//! One process for one record: collects and writes its output before the key is unblocked, so that
//! a key's output is in order too.

use std::cell::RefCell;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::Sender;

use anyhow::anyhow;

use crate::key::RecordKey;
use crate::run::{CoordinatorEvent, RecordEnd, RecordLog, StopCause};
use crate::run_stats::{RecordLocation, RunStats};

use super::children::ChildProcesses;
use super::collect::{CapturedOutput, collect};
use super::start_errors::why_not_started;

thread_local! {
    /// Each worker's buffer for reading from pipes, used again and again.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Runs a process per record.
#[derive(Debug)]
pub(crate) struct RecordProcessRunner {
    pub(crate) children: ChildProcesses,
    pub(crate) stats: Arc<RunStats>,
    pub(crate) events: Sender<CoordinatorEvent>,
    /// Path of the program, if it is equal for all records.
    pub(crate) program: Option<PathBuf>,
    pub(crate) log: Option<Arc<RecordLog>>,
}

impl RecordProcessRunner {
    /// Runs the command of one record to its end.
    pub(crate) fn run(&self, place: &RecordLocation, key: &RecordKey, argv: Vec<Vec<u8>>) {
        if self.stats.is_stopping() {
            return self.stats.not_run(1);
        }
        self.stats.started();
        let start_us = self.log.as_ref().map_or(0, |log| log.now_us());
        let end = match self.children.spawn(&mut self.command(place, key, argv)) {
            Ok(child) => self.finish(place, key, child),
            Err(error) => self.not_started(place, key, error),
        };
        if let Some(log) = &self.log
            && let Err(error) = log.write(place, key, start_us, &end)
        {
            self.stop(error);
        }
    }

    fn finish(&self, place: &RecordLocation, key: &RecordKey, mut child: Child) -> RecordEnd {
        let abandoned = [self.children.abandoned(); 2];
        let printed = BUFFER.with_borrow_mut(|buffer| collect(&mut child, abandoned, buffer));
        let status = self.children.reap(&mut child);
        match (printed, status) {
            (Ok(printed), Ok(status)) => {
                self.emit(printed);
                match status.success() {
                    true => self.stats.succeeded(1),
                    false => self.stats.failed(place, key, describe(status)),
                }
                RecordEnd::Exited(status)
            }
            (Err(error), _) | (_, Err(error)) => {
                let why = "its output is lost";
                self.stats.failed(place, key, why);
                self.stop(anyhow!(
                    "cannot keep what a command prints: {error}; make room in the folder for \
                     temporary files, or set TMPDIR to another"
                ));
                RecordEnd::Failed(why.to_owned())
            }
        }
    }

    fn command(&self, place: &RecordLocation, key: &RecordKey, argv: Vec<Vec<u8>>) -> Command {
        let mut words = argv.into_iter().map(OsString::from_vec);
        let name = words.next().expect("a command has at least one word");
        let mut command =
            Command::new(self.program.as_deref().map_or(name.as_os_str(), |path| path.as_os_str()));
        command
            .arg0(name)
            .args(words)
            .env("KEYLANE_KEY", std::ffi::OsStr::from_bytes(key.bytes()))
            .env("KEYLANE_SEQ", place.number.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        command
    }

    fn emit(&self, mut printed: CapturedOutput) {
        if !(printed.stdout.is_empty() && printed.stderr.is_empty()) {
            let CapturedOutput { stdout, stderr } = &mut printed;
            let output = &self.stats.output;
            // A write error ends the run, which reports it.
            let _ = output.write_both(|out| stdout.write_to(out), |err| stderr.write_to(err));
        }
    }

    /// Fails a record whose bytes are not a valid command line; a program that cannot be run would
    /// fail for every record, and ends the run.
    fn not_started(&self, place: &RecordLocation, key: &RecordKey, error: io::Error) -> RecordEnd {
        let why = match error.kind() {
            io::ErrorKind::InvalidInput => {
                "it has a NUL byte, which no argument can contain; use --worker".to_owned()
            }
            io::ErrorKind::ArgumentListTooLong => {
                "it is too long for a command line; use --worker".to_owned()
            }
            _ if self.program.is_none() => {
                format!("the command cannot be run: {}", why_not_started(&error))
            }
            _ => {
                self.stop(self.cannot_run(&error));
                format!("the command was not run: {error}")
            }
        };
        self.stats.failed(place, key, &why);
        RecordEnd::Failed(why)
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
