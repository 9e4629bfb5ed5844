use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Starts what follows its first word in the background, which says its process id, and waits for the end of its
/// own input: then the test has no more use for it, or is no more. `keep` on the input keeps the folder,
/// its first word, for another start.
const GUARD: &str = r#"
folder=$1
shift
# It says its number itself, before it becomes the program, which may say something at once.
sh -c 'echo "$$"; exec "$@"' sh "$@" < /dev/null 2>&1 &
read -r word
kill -9 "$!" 2> /dev/null
wait "$!" 2> /dev/null
[ "$word" = keep ] || rm -rf "$folder"
"#;

/// What the broker says when it serves requests.
const READY: &str = "Kafka Server started";

/// What it says when a port is taken.
const PORT_TAKEN: &str = "Address already in use";

/// How many of its last lines are kept, to be shown if it fails.
const LAST_LINES: usize = 40;

/// How a start went.
pub(super) enum Started {
    Ready,
    PortTaken,
    /// It ended, or was not ready in time; with the last that it said.
    Ended(String),
}

/// A broker's process, and the shell that guards it.
#[derive(Debug)]
pub(super) struct Process {
    guard: Child,
    broker: Pid,
}

impl Process {
    /// Starts `java` and waits until it is ready, or has failed.
    pub(super) fn start(java: &Command, folder: &Path, within: Duration) -> (Process, Started) {
        let mut guard = Command::new("sh")
            .args(["-c", GUARD, "sh"])
            .arg(folder)
            .arg(java.get_program())
            .args(java.get_args())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("there is a shell");
        let mut said = BufReader::new(guard.stdout.take().expect("it is a pipe"));
        let mut first = String::new();
        said.read_line(&mut first).expect("the guard says the process id");
        let pid = first.trim().parse().ok().and_then(Pid::from_raw);
        let broker = pid.expect("the guard's first line is the process id");
        let started = wait_until_ready(said, within);
        (Process { guard, broker }, started)
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill_process(self.broker, signal).expect("the guard keeps the process from being reaped");
    }

    /// Kills it, and waits until it is gone. Its folder stays.
    pub(super) fn kill(mut self) {
        if let Some(mut input) = self.guard.stdin.take() {
            // A guard that is gone has nothing to be told.
            let _ = std::io::Write::write_all(&mut input, b"keep\n");
        }
        let _ = self.guard.wait();
    }
}

/// Waits for a line that says how the start went. The lines after it are read and dropped, so that the
/// broker never waits for somebody to read them.
fn wait_until_ready(said: BufReader<ChildStdout>, within: Duration) -> Started {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || read_lines(said, sender));
    let deadline = Instant::now() + within;
    let mut last = VecDeque::new();
    loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) if line.contains(READY) => return Started::Ready,
            Ok(line) if line.contains(PORT_TAKEN) => return Started::PortTaken,
            Ok(line) => {
                if last.len() == LAST_LINES {
                    last.pop_front();
                }
                last.push_back(line);
            }
            Err(RecvTimeoutError::Timeout) => last.push_back(format!("(not ready in {within:?})")),
            Err(RecvTimeoutError::Disconnected) => last.push_back("(it ended)".to_owned()),
        }
        if Instant::now() >= deadline || last.back().is_some_and(|line| line == "(it ended)") {
            return Started::Ended(Vec::from(last).join("\n"));
        }
    }
}

fn read_lines(said: BufReader<ChildStdout>, sender: Sender<String>) {
    // Ends with the broker; goes on when nobody listens any more.
    for line in said.lines().map_while(Result::ok) {
        let _ = sender.send(line);
    }
}
