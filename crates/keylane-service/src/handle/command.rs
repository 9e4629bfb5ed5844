//! Attempts as processes: a command for each.

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

use super::environment::Environment;
use super::group::Group;
use super::words::filled;
use super::{Answer, Attempt, BoxFuture, Failure, Handler, Log, as_json};

/// The exit status of a command that refuses a subtask for good: `EX_DATAERR` of BSD's sysexits.
const REFUSED: i32 = 65;

/// How many bytes a command may print as its result.
const MOST_RESULT_BYTES: usize = 16 * 1024 * 1024;

/// How much of what a failed command said is kept: the end of it, where the reason mostly is.
const MOST_SAID_BYTES: usize = 2048;

/// How long a process that was told to end has for it.
const GRACE: Duration = Duration::from_secs(5);

/// How long what a process that was killed has said before may take to be read: it lies in the pipe.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Runs a command for each subtask. No shell is involved.
///
/// - The payload comes on the standard input, as JSON; `{}` in an argument stands for it as well, and
///   `{key}` for the first key. The input is a file without a name that is complete before the command is started;
///   `KEYLANE_PAYLOAD_BYTES` is its length. An argument that begins with a placeholder and whose value begins with `-` is
///   refused, unless an argument `--` precedes it: the program would take it for an option.
/// - `KEYLANE_JOB`, `KEYLANE_KIND`, `KEYLANE_SUBTASK`, `KEYLANE_KEY`, `KEYLANE_ATTEMPT` and `KEYLANE_FENCE` say what it is
///   about; of the server's own environment it gets [`DEFAULT_ENVIRONMENT`](super::DEFAULT_ENVIRONMENT), or what was
///   chosen. `TRACEPARENT` and `TRACESTATE` are there if the job
///   came with a trace, and only then.
/// - What it prints is the result: JSON, or else a text.
/// - Exit status 0 is success, 65 a failure that lasts, all else one that passes; the end of what it
///   said on its standard error is the reason.
/// - What it says on its standard error goes into the attempt's [log](Attempt::log) as well.
/// - It leads a process group of its own. When time is up, or the job is killed, the group gets SIGTERM,
///   and SIGKILL five seconds later; when it has ended, what is left of the group gets SIGKILL. The attempt ends when
///   nothing of the group runs. If this process is killed, the group ends as [`children`](Attempt::children) says.
#[derive(Clone, Debug)]
pub struct Command {
    words: Vec<OsString>,
    limits: Limits,
    environment: Environment,
}

/// What a command's processes may use. Each holds for a process, as `setrlimit` says; none is set unless
/// said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of address space.
    pub memory_bytes: Option<u64>,
    /// Seconds of processor time.
    pub cpu_seconds: Option<u64>,
    /// Open files.
    pub open_files: Option<u64>,
    /// Bytes of any file that it writes.
    pub file_bytes: Option<u64>,
}

impl Command {
    /// A program and its arguments.
    ///
    /// # Panics
    /// If there is no program.
    pub fn new(words: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        let words: Vec<OsString> = words.into_iter().map(Into::into).collect();
        assert!(!words.is_empty(), "a command has a program");
        Command { words, limits: Limits::default(), environment: Environment::default() }
    }

    /// Within these limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Passes only these variables of the server's environment on, and those that say what it is about.
    #[must_use]
    pub fn environment(mut self, names: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.environment = Environment::Named(names.into_iter().map(Into::into).collect());
        self
    }

    /// Passes the server's whole environment on, credentials included.
    #[must_use]
    pub fn inherit_environment(mut self) -> Self {
        self.environment = Environment::Whole;
        self
    }

    /// Prepares a process, for an attempt if it has its own.
    ///
    /// # Errors
    /// If the attempt's words would change the meaning of the command.
    pub(super) fn prepare(
        &self,
        attempt: Option<&Attempt>,
    ) -> Result<tokio::process::Command, Failure> {
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

    /// The path of a program that is named without one. Looked for while it starts, Rust's `Command` would fork, which takes
    /// long in a large process.
    fn path_of(&self, program: &OsStr) -> PathBuf {
        let is_name = !program.as_bytes().contains(&b'/');
        let is_there = |path: &PathBuf| {
            let file = path.metadata();
            file.is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
        };
        let folders = self.environment.path();
        let mut found = std::env::split_paths(&folders).map(|folder| folder.join(program));
        // One that is not found is so when it is started.
        found.find(is_there).filter(|_| is_name).unwrap_or_else(|| program.into())
    }
}

impl Limits {
    /// Those that are set.
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

/// For programs that embed the service without an entrance for [`within_limits`].
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
    // SAFETY: between fork and exec only what is safe in a signal handler may be called. `set` makes system
    // calls and nothing else: it neither allocates nor locks, and its errors are plain numbers.
    unsafe { command.pre_exec(set) };
}

impl Handler for Command {
    fn sort(&self) -> &'static str {
        "command"
    }

    fn keeps_log(&self) -> bool {
        true
    }

    fn handle(&self, attempt: Attempt) -> BoxFuture<Answer> {
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
        // Those of the server itself are of another trace.
        for (name, value) in
            [("TRACEPARENT", attempt.traceparent()), ("TRACESTATE", attempt.tracestate())]
        {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        Box::pin(run(command, attempt))
    }
}

async fn run(mut command: tokio::process::Command, attempt: Attempt) -> Answer {
    // Before the start: the command gets all of it, whatever happens to this process.
    let input = whole_input(&attempt.payload).map_err(|error| not_run(&error))?;
    command.stdin(input).env("KEYLANE_PAYLOAD_BYTES", attempt.payload.len().to_string());
    let mut group =
        Group::start(&mut command, &attempt.children).map_err(|error| not_run(&error))?;
    // With it goes the descriptor of the payload.
    drop(command);
    let stdout = group.child().stdout.take().expect("it was asked for");
    let stderr = group.child().stderr.take().expect("it was asked for");
    let (mut result, mut said) = (Some(Vec::new()), Vec::new());
    let mut prints = Box::pin(async {
        tokio::join!(read_result(stdout, &mut result), read_end(stderr, &mut said, &attempt.log));
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
        // What it prints is read all the while, for it may wait for that.
        loop {
            tokio::select! {
                by_itself = &mut ending => break by_itself,
                () = &mut prints, if !is_read => is_read = true,
            }
        }
    };
    // What it left running goes with it, and with that what kept its output open.
    let status = group.end().await;
    if !is_read {
        // What has left the group may still have it open. It was not printed by the command.
        let time = if ended_by_itself { GRACE } else { LAST_WORDS };
        let _ = tokio::time::timeout(time, &mut prints).await;
    }
    drop(prints);
    if !ended_by_itself {
        return Err(Failure::passing("it was killed, as it did not end when it was told to"));
    }
    let status =
        status.map_err(|error| Failure::passing(format!("its end is unknown: {error}")))?;
    answer(status, result, &said)
}

/// Once it is cancelled: tells it to end, and returns when it has had its time for that.
async fn told_to_end(attempt: &Attempt, group: &Group) {
    attempt.cancelled.cancelled().await;
    group.signal(Signal::TERM);
    tokio::time::sleep(GRACE).await;
}

fn answer(status: ExitStatus, printed: Option<Vec<u8>>, said: &[u8]) -> Answer {
    let said = String::from_utf8_lossy(said);
    let with_reason = |what: String| match said.trim() {
        "" => what,
        said => format!("{what}: {said}"),
    };
    match (status.code(), printed) {
        (Some(0), Some(printed)) => Ok(as_json(&printed)),
        (Some(0), None) => {
            Err(Failure::lasting(format!("it printed over {MOST_RESULT_BYTES} bytes")))
        }
        (Some(REFUSED), _) => Err(Failure::lasting(with_reason("it refused".into()))),
        (Some(code), _) => Err(Failure::passing(with_reason(format!("exit status {code}")))),
        (None, _) => {
            let signal = std::os::unix::process::ExitStatusExt::signal(&status).unwrap_or(0);
            Err(Failure::passing(with_reason(format!("ended by signal {signal}"))))
        }
    }
}

/// A program that is not there, or that may not be run, won't be next time.
pub(super) fn not_run(error: &io::Error) -> Failure {
    let text = format!("the command was not run: {error}");
    match error.kind() {
        io::ErrorKind::NotFound
        | io::ErrorKind::PermissionDenied
        | io::ErrorKind::InvalidInput
        | io::ErrorKind::ArgumentListTooLong => Failure::lasting(text),
        _ => Failure::passing(text),
    }
}

/// All that is printed; nothing if that is too much. It is read to the end in any case, so that nobody
/// waits for a reader.
async fn read_result(mut from: impl AsyncRead + Unpin, all: &mut Option<Vec<u8>>) {
    let mut part = [0; 8192];
    while let Ok(count @ 1..) = from.read(&mut part).await {
        if let Some(read) = all {
            read.extend(&part[..count]);
        }
        all.take_if(|read| read.len() > MOST_RESULT_BYTES);
    }
}

/// The end of what is said, for the reason of a failure; and what the log has room for.
async fn read_end(mut from: impl AsyncRead + Unpin, end: &mut Vec<u8>, log: &Log) {
    let mut part = [0; 8192];
    while let Ok(count @ 1..) = from.read(&mut part).await {
        end.extend(&part[..count]);
        log.say(&part[..count]);
        let surplus = end.len().saturating_sub(MOST_SAID_BYTES);
        end.drain(..surplus);
    }
}
