//! The first signal lets what runs finish and starts nothing new; the second
//! ends the children with all that they have started.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStderr};

use crate::common::{finish, hears, ignores, keylane, named_pipe, numbers};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use tempfile::TempDir;

/// A run of which two commands have started and wait at a gate; what they do
/// there is up to the test.
struct Waiting {
    run: Child,
    said: BufReader<ChildStderr>,
    folder: TempDir,
    /// What the commands said when they started.
    started: Vec<String>,
}

impl Waiting {
    /// Runs ten records, two at a time. Each command gets the folder, the
    /// record and the pipe to report to, which has to come first.
    fn new(command: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        named_pipe(Path::new(&path("started")));
        let words = ["-j2", "--key", "1", "--", "sh", "-c", command, "sh", &path(""), "{}"];
        for record in 1..=10 {
            named_pipe(Path::new(&path(&format!("gate{record}"))));
        }
        let mut run = keylane(words).spawn().unwrap();
        // Opened for writing, too, so that it has no end between two reports.
        let started = OpenOptions::new().read(true).write(true).open(path("started")).unwrap();
        run.stdin.take().unwrap().write_all(numbers(10).as_bytes()).unwrap();
        let started = BufReader::new(started).lines().take(2).map(Result::unwrap).collect();
        let said = BufReader::new(run.stderr.take().unwrap());
        Self { run, said, folder, started }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.run), signal).unwrap();
    }

    /// Waits until the run says a line with `part` in it.
    fn hears(&mut self, part: &str) {
        hears(&mut self.said, part);
    }

    /// The word stays in a gate for as long as it is open.
    fn open_gates(&self) -> Vec<File> {
        let open = |record| {
            let gate = self.folder.path().join(format!("gate{record}"));
            let mut gate = OpenOptions::new().read(true).write(true).open(gate).unwrap();
            gate.write_all(b"go\n").unwrap();
            gate
        };
        (1..=10).map(open).collect()
    }
}

const WAIT_AT_GATE: &str = r#"echo "$2" > "$1/started"; read -r word < "$1/gate$2"; echo "$2""#;

#[test]
fn the_first_signal_drains() {
    let mut waiting = Waiting::new(WAIT_AT_GATE);
    waiting.signal(Signal::TERM);
    waiting.hears("stopping; 2 running may finish");
    waiting.started.sort();
    let _gates = waiting.open_gates();
    let outcome = finish(waiting.run);
    assert_eq!(
        (outcome.code, outcome.sorted()),
        (143, waiting.started.iter().map(String::as_str).collect())
    );
}

#[test]
fn the_interrupt_of_a_terminal_drains_as_well() {
    if ignores(Signal::INT.as_raw()) {
        eprintln!("skipped: interrupts are ignored here, and so by what this starts");
        return;
    }
    let mut waiting = Waiting::new(WAIT_AT_GATE);
    waiting.signal(Signal::INT);
    waiting.hears("stopping; 2 running may finish");
    let _gates = waiting.open_gates();
    assert_eq!(finish(waiting.run).code, 130);
}

#[test]
fn the_second_signal_ends_children_and_grandchildren() {
    let mut waiting = Waiting::new(
        r#"sh -c 'read -r word < "$1/gate$2"; :' sh "$1" "$2" & echo $$ $! > "$1/started"; wait"#,
    );
    let pids: Vec<i32> = waiting
        .started
        .iter()
        .flat_map(|line| line.split(' '))
        .map(|pid| pid.parse().unwrap())
        .collect();
    assert_eq!(pids.len(), 4);
    waiting.signal(Signal::TERM);
    waiting.hears("stopping");
    waiting.signal(Signal::TERM);
    waiting.hears("ended by signal 15 (SIGTERM)");
    assert_eq!(finish(waiting.run).code, 143);
    assert_gone(&pids);
}

#[test]
fn the_third_signal_kills_commands_that_ignore_the_second() {
    let mut waiting = Waiting::new(
        r#"trap '' TERM; echo $$ > "$1/started"; while :; do read -r word < "$1/gate$2"; done"#,
    );
    let pids: Vec<i32> = waiting.started.iter().map(|pid| pid.parse().unwrap()).collect();
    waiting.signal(Signal::TERM);
    waiting.hears("stopping");
    waiting.signal(Signal::TERM);
    waiting.hears("ending the running commands");
    waiting.signal(Signal::TERM);
    waiting.hears("ended by signal 9 (SIGKILL)");
    assert_eq!(finish(waiting.run).code, 143);
    assert_gone(&pids);
}

/// Waits until these processes have ended, which is a moment if they are no children of the run. They need not be
/// reaped.
fn assert_gone(pids: &[i32]) {
    let long = Timespec { tv_sec: 60, tv_nsec: 0 };
    for pid in pids {
        let process = match pidfd_open(Pid::from_raw(*pid).unwrap(), PidfdFlags::empty()) {
            Err(Errno::SRCH) => continue,
            process => process.unwrap(),
        };
        let ends = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&long)).unwrap();
        assert_eq!(ends, 1, "{pid} lives");
    }
}

#[test]
fn workers_finish_what_they_have_and_leave() {
    let mut run = keylane(["-j2", "--worker", "--key", "1", "--", "cat"]).spawn().unwrap();
    let mut stdin = run.stdin.take().unwrap();
    let mut stdout = BufReader::new(run.stdout.take().unwrap());
    stdin.write_all(b"a\n").unwrap();
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    kill_process(Pid::from_child(&run), Signal::TERM).unwrap();
    // The input stays open: the end must not depend on it.
    let outcome = finish(run);
    // What was answered is shown first, and counted as ended after that.
    let said = |running: u32| format!("stopping; {running} running may finish");
    assert!((0..=1).any(|running| outcome.stderr.contains(&said(running))), "{outcome:?}");
    outcome.expect(143, &[]);
    drop(stdin);
}

#[test]
fn a_signal_before_the_first_line_ends_the_program() {
    let mut run = keylane(["--csv", "--header", "--key", "a", "--", "true"]).spawn().unwrap();
    let stdin = run.stdin.take().unwrap();
    kill_process(Pid::from_child(&run), Signal::TERM).unwrap();
    // By the signal itself, or by the code that stands for it.
    let status = run.wait().unwrap();
    assert!(status.signal() == Some(15) || status.code() == Some(143), "{status}");
    drop(stdin);
}
