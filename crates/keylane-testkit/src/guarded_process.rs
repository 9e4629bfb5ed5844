//! Process of a server, which ends with the test process even if that is killed.
//!
//! A shell, the guard, starts the server and reads from a pipe. When the pipe is closed, the guard
//! kills the server and removes its directory.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Script of the guard. The first argument is the directory; the others are the command.
///
/// The first line of its output is the process id of the command. A line `keep` on its input leaves
/// the directory for a restart.
const GUARD: &str = r#"
folder=$1
shift
# Printed before the exec, so that no output of the command precedes the process id.
sh -c 'echo "$$"; exec "$@"' sh "$@" < /dev/null 2>&1 &
read -r word
kill -9 "$!" 2> /dev/null
wait "$!" 2> /dev/null
[ "$word" = keep ] || rm -rf "$folder"
"#;

/// Maximum number of log lines in the report of a failed start.
const MAX_LOG_LINES: usize = 40;

/// Texts of a server's log that tell the outcome of its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartTexts {
    /// It serves requests.
    pub(crate) ready: &'static str,
    /// Another process uses one of its ports, or something else that it needs.
    pub(crate) taken: &'static [&'static str],
}

/// Outcome of a start.
pub(crate) enum StartOutcome {
    Ready,
    /// Another process uses one of the ports, or something else that it needs.
    Taken,
    /// The server ended, or was not ready in time. Contains the last lines of its log.
    Failed(String),
}

/// Process of a server, and its guard.
#[derive(Debug)]
pub(crate) struct GuardedProcess {
    guard: Child,
    server: Pid,
}

impl GuardedProcess {
    /// Starts the server and waits at most `timeout` until it is ready.
    pub(crate) fn start(
        command: &Command,
        directory: &Path,
        texts: StartTexts,
        timeout: Duration,
    ) -> (GuardedProcess, StartOutcome) {
        let mut guard = Command::new("sh")
            .args(["-c", GUARD, "sh"])
            .arg(directory)
            .arg(command.get_program())
            .args(command.get_args())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the shell starts");
        let mut log = BufReader::new(guard.stdout.take().expect("stdout is a pipe"));
        let mut first = String::new();
        log.read_line(&mut first).expect("the guard prints the process id");
        let pid = first.trim().parse().ok().and_then(Pid::from_raw);
        let server = pid.expect("the guard's first line is the process id");
        let outcome = wait_until_ready(log, texts, timeout);
        (GuardedProcess { guard, server }, outcome)
    }

    /// Sends `signal` to the server.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.server, signal).expect("the guard keeps the process from being reaped");
    }

    /// Kills the server and waits until it has ended. Its directory stays.
    pub(crate) fn kill(mut self) {
        if let Some(mut input) = self.guard.stdin.take() {
            // The write fails only if the guard has ended, and then the server was killed.
            let _ = std::io::Write::write_all(&mut input, b"keep\n");
        }
        let _ = self.guard.wait();
    }
}

/// Waits at most `timeout` for the log line that tells the outcome of the start.
///
/// A thread reads and drops the lines after it, as the server would block on a full pipe.
fn wait_until_ready(
    log: BufReader<ChildStdout>,
    texts: StartTexts,
    timeout: Duration,
) -> StartOutcome {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || read_lines(log, sender));
    let deadline = Instant::now() + timeout;
    let mut last = VecDeque::new();
    loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) if line.contains(texts.ready) => return StartOutcome::Ready,
            Ok(line) if texts.taken.iter().any(|text| line.contains(text)) => {
                return StartOutcome::Taken;
            }
            Ok(line) => {
                if last.len() == MAX_LOG_LINES {
                    last.pop_front();
                }
                last.push_back(line);
            }
            Err(RecvTimeoutError::Timeout) => {
                last.push_back(format!("(not ready within {timeout:?})"))
            }
            Err(RecvTimeoutError::Disconnected) => last.push_back("(it ended)".to_owned()),
        }
        if Instant::now() >= deadline || last.back().is_some_and(|line| line == "(it ended)") {
            return StartOutcome::Failed(Vec::from(last).join("\n"));
        }
    }
}

/// Sends each line of the log, until the server ends.
fn read_lines(log: BufReader<ChildStdout>, sender: Sender<String>) {
    for line in log.lines().map_while(Result::ok) {
        // Continues without a receiver, so that the pipe never fills.
        let _ = sender.send(line);
    }
}
