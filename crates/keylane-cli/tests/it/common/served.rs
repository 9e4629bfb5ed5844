//! `keylane serve` as a process of a test's own.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::{Outcome, feed, finish, hears, named_pipe, subcommand};

/// How long a test waits for what must come, on the slowest of machines.
const PATIENCE: Duration = Duration::from_secs(60);

/// A folder with a configuration, a store, and the pipes by which commands and the test wait for each other.
pub(crate) struct Place {
    folder: tempfile::TempDir,
    /// What commands have said when they began, in order. Read on a thread of its own, so that a test waits no
    /// longer than it wants.
    begun: Receiver<String>,
    /// Whence each takes a line before it ends.
    gate: File,
    /// Commands hold this open as long as they or what they have started are there.
    alive: Option<File>,
}

/// For reading and writing, so that opening does not wait, and reading finds no end.
fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

impl Place {
    /// With these tables in the configuration, beside where it listens and keeps its jobs.
    ///
    /// There is a kind `wait`. Its command says in a line which subtask and attempt it is, has a child that
    /// would go on for long, and ends when it is let through the gate. That of `alone` has no child.
    pub(crate) fn new(tables: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        let pipes = ["begun", "gate", "alive"].map(place);
        pipes.iter().for_each(|pipe| named_pipe(pipe));
        let [begun, gate, alive] = pipes.each_ref().map(|pipe| open(pipe));
        let kind = |name: &str, begin: &str| {
            let command = format!(
                "exec 3> DIR/alive; {begin} echo $KEYLANE_SUBTASK $KEYLANE_ATTEMPT > DIR/begun; \
                 read word < DIR/gate; echo $word"
            );
            format!("[kinds.{name}]\ncommand = [\"sh\", \"-c\", \"{command}\"]\n")
        };
        let (wait, alone) = (kind("wait", "sleep infinity &"), kind("alone", ""));
        let config = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\nstore = \"DIR/tasks.db\"\n{wait}{alone}{tables}\n"
        );
        let config = config.replace("DIR", folder.path().to_str().unwrap());
        fs::write(folder.path().join("config.toml"), config).unwrap();
        let (tell, said) = mpsc::channel();
        thread::spawn(move || {
            let lines = BufReader::new(begun).lines().map_while(Result::ok);
            // It has no end; the thread goes with the process.
            lines.take_while(|line| tell.send(line.trim_end().to_owned()).is_ok()).for_each(drop);
        });
        Place { folder, begun: said, gate, alive: Some(alive) }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The next command that has begun: its subtask and attempt.
    #[track_caller]
    pub(crate) fn next(&mut self) -> String {
        self.begun.recv_timeout(PATIENCE).expect("no command has begun")
    }

    /// Lets one command end, with this as its result.
    pub(crate) fn let_end(&self, word: &str) {
        writeln!(&self.gate, "{word}").unwrap();
    }

    /// Waits until no command is left, nor anything that one has started.
    #[track_caller]
    pub(crate) fn wait_until_nobody_is_left(&mut self) {
        let path = self.path("alive");
        let mut pipe = File::open(&path).unwrap();
        // From here on only commands could write to it.
        self.alive = None;
        let (tell, told) = mpsc::channel();
        thread::spawn(move || tell.send(pipe.read(&mut [0]).unwrap()));
        let read = told.recv_timeout(PATIENCE).expect("something that a command started is left");
        assert_eq!(read, 0);
        self.alive = Some(open(&path));
    }
}

/// A server.
pub(crate) struct Served {
    child: Child,
    pub(crate) address: String,
    stdout: BufReader<ChildStdout>,
    said: BufReader<ChildStderr>,
}

impl Served {
    pub(crate) fn start(place: &Place, words: &[&str]) -> Self {
        Served::with_config(&place.path("config.toml"), words)
    }

    pub(crate) fn with_config(config: &Path, words: &[&str]) -> Self {
        let config = ["--config", config.to_str().unwrap()];
        Served::spawn(&mut subcommand("serve", [&config, words].concat()))
    }

    /// Starts a `keylane serve` with these settings.
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let address = line.trim_end().rsplit("//").next().unwrap().to_owned();
        assert!(line.starts_with("keylane: listening on http"), "{line}");
        Served { child, address, stdout, said }
    }

    /// The next line on its standard output.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Sends a signal again and again, until the server ends.
    pub(crate) fn signal_until_it_ends(&mut self, signal: Signal) {
        while self.child.try_wait().unwrap().is_none() {
            self.signal(signal);
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until the server says a line with `part` in it.
    pub(crate) fn hears(&mut self, part: &str) {
        hears(&mut self.said, part);
    }

    /// Runs a client command.
    pub(crate) fn run(&self, words: &[&str]) -> Outcome {
        run_at(&self.address, words)
    }

    /// Submits with these words, and returns the id.
    #[track_caller]
    pub(crate) fn submit(&self, words: &[&str]) -> String {
        let outcome = self.run(&[&["submit"], words].concat());
        outcome.expect(0, &[]).stdout.trim_end().to_owned()
    }

    /// Asks for a path, and leaves the answer to the caller.
    pub(crate) fn ask(&self, path: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        BufReader::new(stream)
    }

    /// Waits until it ends by itself.
    #[track_caller]
    pub(crate) fn end(mut self) -> Outcome {
        let status = self.child.wait().unwrap();
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.stdout.read_to_string(&mut stdout).unwrap();
        self.said.read_to_string(&mut stderr).unwrap();
        let code = status.code().unwrap_or_else(|| panic!("{status}: {stderr}"));
        Outcome { code, stdout, stderr }
    }

    /// Ends it as a crash does.
    pub(crate) fn kill(self) {
        drop(self);
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // If it has not ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a client command with the server at this address.
pub(crate) fn run_at(address: &str, words: &[&str]) -> Outcome {
    let mut command = subcommand(words[0], &words[1..]);
    command.env("KEYLANE_SERVER", format!("http://{address}"));
    command.env_remove("KEYLANE_TOKEN");
    feed(command, b"")
}

/// A `keylane serve` that is expected to end at once, with what it says.
pub(crate) fn refused(config: &Path, words: &[&str]) -> Outcome {
    let config = ["--config", config.to_str().unwrap()];
    finish(subcommand("serve", [&config, words].concat()).spawn().unwrap())
}
