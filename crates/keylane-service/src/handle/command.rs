//! Command handler: runs a process per attempt.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use keylane_process::{whole_input, within_limits};
use rustix::process::{Resource, Rlimit, Signal};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::arg_placeholders::filled;
use super::environment::EnvironmentSelection;
use super::group::ProcessGroup;
use super::progress::ProgressLines;
use super::{Attempt, AttemptFailure, AttemptResult, BoxFuture, Handler, as_json};

/// Exit status of a command that rejects a subtask for good: `EX_DATAERR` of BSD's sysexits.
const REFUSED: i32 = 65;

/// Maximum size of a result on standard output, in bytes.
const MAX_RESULT_BYTES: usize = 16 * 1024 * 1024;

/// Number of bytes of standard error that an error message keeps: the last ones, which mostly have
/// the reason.
const MAX_SAID_BYTES: usize = 2048;

/// Grace period between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(5);

/// Timeout for reading the output of a killed process that is still in the pipe.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Runs a command for each subtask, without a shell.
///
/// - Standard input has the payload as JSON; `{}` in an argument is replaced by it, and `{key}` by
///   the first key. The input is an unnamed file that is complete before the command starts;
///   `KEYLANE_PAYLOAD_BYTES` is its length. An argument that begins with a placeholder and whose
///   value begins with `-` is refused, unless an argument `--` precedes it: the program would take it
///   for an option.
/// - `KEYLANE_JOB`, `KEYLANE_KIND`, `KEYLANE_SUBTASK`, `KEYLANE_KEY`, `KEYLANE_ATTEMPT` and
///   `KEYLANE_FENCE` identify the attempt. Of the server's environment the command gets
///   [`DEFAULT_ENVIRONMENT`](super::DEFAULT_ENVIRONMENT) or the configured variables. `TRACEPARENT`
///   and `TRACESTATE` are set only if the job has a trace context.
/// - Standard output is the result: JSON, or else text.
/// - Exit status 0 is success, 65 a lasting failure; every other status is a failure that a retry
///   may fix. The end of standard error is the reason.
/// - Standard error also goes to the attempt's [log](Attempt::log). A line `keylane-progress: 0.5` reports its
///   [progress](Attempt::progress), from 0 to 1.
/// - The command leads its own process group. On a timeout or a cancelled attempt, the group gets
///   SIGTERM, and SIGKILL five seconds later; once the command has exited, the rest of the group gets
///   SIGKILL. The attempt ends when no process of the group runs. If this process is killed, the
///   group ends as [`children`](Attempt::children) describes.
#[derive(Clone, Debug)]
pub struct CommandHandler {
    words: Vec<OsString>,
    limits: ProcessLimits,
    environment: EnvironmentSelection,
}

/// Resource limits of every process of a command, as in `setrlimit`. All are unset by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessLimits {
    /// Address space, in bytes.
    pub memory_bytes: Option<u64>,
    /// Processor time, in seconds.
    pub cpu_seconds: Option<u64>,
    /// Number of open files.
    pub open_files: Option<u64>,
    /// Size of any file that the process writes, in bytes.
    pub file_bytes: Option<u64>,
}

impl CommandHandler {
    /// Returns a handler for a program and its arguments.
    ///
    /// # Panics
    ///
    /// Panics if `words` is empty.
    pub fn new(words: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        let words: Vec<OsString> = words.into_iter().map(Into::into).collect();
        assert!(!words.is_empty(), "a command has a program");
        CommandHandler {
            words,
            limits: ProcessLimits::default(),
            environment: EnvironmentSelection::default(),
        }
    }

    /// Sets the resource limits.
    #[must_use]
    pub fn limits(mut self, limits: ProcessLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Passes only these variables of the server's environment, and those that identify the
    /// attempt.
    #[must_use]
    pub fn environment(mut self, names: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.environment = EnvironmentSelection::Named(names.into_iter().map(Into::into).collect());
        self
    }

    /// Passes the server's whole environment, credentials included.
    #[must_use]
    pub fn inherit_environment(mut self) -> Self {
        self.environment = EnvironmentSelection::Whole;
        self
    }

    /// Returns the name of the program in messages.
    pub(super) fn program(&self) -> String {
        self.words[0].display().to_string()
    }

    /// Prepares the process, with the arguments of `attempt` if there is one.
    ///
    /// # Errors
    ///
    /// Returns an error if a submitted value would become an option of the program.
    pub(super) fn prepare(
        &self,
        attempt: Option<&Attempt>,
    ) -> Result<tokio::process::Command, AttemptFailure> {
        let words = match attempt {
            Some(attempt) => filled(&self.words, attempt)?,
            None => self.words.clone(),
        };
        let (program, arguments) = words.split_first().expect("a command has a program");
        let limits = self.limits.set();
        let mut command = match within_limits(&limits) {
            Some((own, words)) => {
                let mut command = tokio::process::Command::new(own);
                command.arg0("keylane").args(words).arg(program);
                command
            }
            None => {
                let mut command = tokio::process::Command::new(self.path_of(program));
                command.arg0(program);
                limit(&mut command, limits);
                command
            }
        };
        command.args(arguments);
        self.environment.give(&mut command);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        Ok(command)
    }

    /// Resolves the path of a program given by its name alone. If the search were left to the
    /// start, Rust's `CommandHandler` would fork, which is slow in a large process.
    fn path_of(&self, program: &OsStr) -> PathBuf {
        let is_name = !program.as_bytes().contains(&b'/');
        let is_there = |path: &PathBuf| {
            let file = path.metadata();
            file.is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
        };
        let folders = self.environment.path();
        let mut found = std::env::split_paths(&folders).map(|folder| folder.join(program));
        // A program that is not found causes its error on start.
        found.find(is_there).filter(|_| is_name).unwrap_or_else(|| program.into())
    }
}

impl ProcessLimits {
    /// Limits that are set.
    fn set(self) -> Vec<(Resource, u64)> {
        let all = [
            (Resource::As, self.memory_bytes),
            (Resource::Cpu, self.cpu_seconds),
            (Resource::Nofile, self.open_files),
            (Resource::Fsize, self.file_bytes),
        ];
        all.into_iter().filter_map(|(resource, most)| Some((resource, most?))).collect()
    }
}

/// Sets limits between fork and exec, for programs that embed the service without an entry point
/// for [`within_limits`].
fn limit(command: &mut tokio::process::Command, limits: Vec<(Resource, u64)>) {
    if limits.is_empty() {
        return;
    }
    let set = move || {
        for (resource, most) in &limits {
            let limit = Rlimit { current: Some(*most), maximum: Some(*most) };
            rustix::process::setrlimit(*resource, limit)?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec only async-signal-safe functions may be called. `set` makes
    // only system calls: it neither allocates nor locks, and its errors are plain numbers.
    unsafe { command.pre_exec(set) };
}

impl Handler for CommandHandler {
    fn sort(&self) -> &'static str {
        "command"
    }

    fn keeps_log(&self) -> bool {
        true
    }

    fn handle(&self, attempt: Attempt) -> BoxFuture<AttemptResult> {
        let mut command = match self.prepare(Some(&attempt)) {
            Ok(command) => command,
            Err(refused) => return Box::pin(std::future::ready(Err(refused))),
        };
        command
            .env("KEYLANE_JOB", attempt.job.to_string())
            .env("KEYLANE_KIND", &*attempt.kind)
            .env("KEYLANE_SUBTASK", attempt.subtask_name())
            .env("KEYLANE_KEY", attempt.key().unwrap_or_default().into_owned())
            .env("KEYLANE_ATTEMPT", attempt.number.to_string())
            .env("KEYLANE_FENCE", attempt.fence.to_string());
        // The server's own trace variables belong to another trace.
        for (name, value) in
            [("TRACEPARENT", attempt.traceparent()), ("TRACESTATE", attempt.tracestate())]
        {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        Box::pin(run(command, self.program(), attempt))
    }
}

async fn run(
    mut command: tokio::process::Command,
    program: String,
    attempt: Attempt,
) -> AttemptResult {
    // Written before the start: the command gets the whole input even if this process dies.
    let input = whole_input(&attempt.payload).map_err(|error| not_run(&program, &error))?;
    command.stdin(input).env("KEYLANE_PAYLOAD_BYTES", attempt.payload.len().to_string());
    let mut group = ProcessGroup::start(&mut command, &attempt.children)
        .map_err(|error| not_run(&program, &error))?;
    // Closes the descriptor of the payload.
    drop(command);
    let stdout = group.child().stdout.take().expect("stdout is piped");
    let stderr = group.child().stderr.take().expect("stderr is piped");
    let (mut result, mut said) = (Some(Vec::new()), Vec::new());
    let mut prints = Box::pin(async {
        tokio::join!(read_result(stdout, &mut result), read_end(stderr, &mut said, &attempt));
    });
    let mut is_read = false;
    let ended_by_itself = {
        let ending = async {
            tokio::select! {
                () = group.ended() => true,
                () = told_to_end(&attempt, &group) => false,
            }
        };
        let mut ending = pin!(ending);
        // Output is read throughout, because the command blocks on a full pipe.
        loop {
            tokio::select! {
                by_itself = &mut ending => break by_itself,
                () = &mut prints, if !is_read => is_read = true,
            }
        }
    };
    // Ends processes that the command has left running, and which keep its output open.
    let status = group.end().await;
    if !is_read {
        // A process that has left the group may still have the output open. The command did not
        // print that.
        let time = if ended_by_itself { GRACE } else { LAST_WORDS };
        let _ = tokio::time::timeout(time, &mut prints).await;
    }
    drop(prints);
    if !ended_by_itself {
        return Err(AttemptFailure::passing(
            "the command was killed because it did not exit after SIGTERM",
        ));
    }
    let status = status
        .map_err(|error| AttemptFailure::passing(format!("the exit status is unknown: {error}")))?;
    answer(status, result, &said)
}

/// Waits for cancellation, sends SIGTERM to the group, and returns after the grace period.
async fn told_to_end(attempt: &Attempt, group: &ProcessGroup) {
    attempt.cancelled.cancelled().await;
    group.signal(Signal::TERM);
    tokio::time::sleep(GRACE).await;
}

fn answer(status: ExitStatus, printed: Option<Vec<u8>>, said: &[u8]) -> AttemptResult {
    let said = String::from_utf8_lossy(said);
    let with_reason = |what: String| match said.trim() {
        "" => what,
        said => format!("{what}: {said}"),
    };
    match (status.code(), printed) {
        (Some(0), Some(printed)) => Ok(as_json(&printed)),
        (Some(0), None) => Err(AttemptFailure::lasting(format!(
            "the command printed more than {MAX_RESULT_BYTES} bytes"
        ))),
        (Some(REFUSED), _) => Err(AttemptFailure::lasting(with_reason("it refused".into()))),
        (Some(code), _) => Err(AttemptFailure::passing(with_reason(format!("exit status {code}")))),
        (None, _) => {
            let signal = std::os::unix::process::ExitStatusExt::signal(&status).unwrap_or(0);
            Err(AttemptFailure::passing(with_reason(format!("ended by signal {signal}"))))
        }
    }
}

/// Classifies a start error: a program that is missing or not executable is a lasting failure.
pub(super) fn not_run(program: &str, error: &io::Error) -> AttemptFailure {
    let text = format!("the command `{program}` was not run: {error}");
    match error.kind() {
        io::ErrorKind::NotFound
        | io::ErrorKind::PermissionDenied
        | io::ErrorKind::InvalidInput
        | io::ErrorKind::ArgumentListTooLong => AttemptFailure::lasting(text),
        _ => AttemptFailure::passing(text),
    }
}

/// Reads standard output to its end; `all` becomes none if it exceeds the maximum. The rest is read
/// too, so that the writer never blocks.
async fn read_result(mut from: impl AsyncRead + Unpin, all: &mut Option<Vec<u8>>) {
    let mut part = [0; 8192];
    while let Ok(count @ 1..) = from.read(&mut part).await {
        if let Some(read) = all {
            read.extend(&part[..count]);
        }
        all.take_if(|read| read.len() > MAX_RESULT_BYTES);
    }
}

/// Reads standard error: its end is the reason of a failure, the log keeps what its limit allows, and some lines report
/// progress.
async fn read_end(mut from: impl AsyncRead + Unpin, end: &mut Vec<u8>, attempt: &Attempt) {
    let (mut part, mut lines) = ([0; 8192], ProgressLines::default());
    while let Ok(count @ 1..) = from.read(&mut part).await {
        end.extend(&part[..count]);
        attempt.log.say(&part[..count]);
        lines.read(&part[..count], &attempt.progress);
        let surplus = end.len().saturating_sub(MAX_SAID_BYTES);
        end.drain(..surplus);
    }
}
