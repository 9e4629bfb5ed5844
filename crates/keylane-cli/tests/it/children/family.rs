//! Commands with children of their own, and what a test sees of them.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::named_pipe;

/// Time for what must come, on the slowest of machines.
const PATIENCE: Duration = Duration::from_secs(120);

/// A folder in which commands say that they run.
pub(crate) struct Family {
    folder: tempfile::TempDir,
    /// A line of each command that has begun.
    begun: Receiver<String>,
    /// Every process of the commands holds the other end of this pipe.
    alive: File,
    /// Keeps that pipe from ending before a command has opened it.
    kept: Option<File>,
}

impl Family {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["begun", "alive", "gate"] {
            named_pipe(&path(name));
        }
        let both = |name: &str| OpenOptions::new().read(true).write(true).open(path(name)).unwrap();
        let begun = both("begun");
        let kept = both("alive");
        let alive = File::open(path("alive")).unwrap();
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            let lines = BufReader::new(begun).lines().map_while(Result::ok);
            // The pipe has no end; the thread goes with the process.
            lines.take_while(|line| tell.send(line.clone()).is_ok()).for_each(drop);
        });
        Family { folder, begun: told, alive, kept: Some(kept) }
    }

    /// The folder, which is a place for temporary files, too.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A shell script that takes a lock, has a child that would go on for long, and says `word`. All of its processes
    /// have the lock. If another process has it there is a file `overlap` afterwards.
    pub(crate) fn script(&self, first: &str, word: &str) -> String {
        let script = format!(
            "{first} exec 8>DIR/alive 9>>DIR/lock; flock -n 9 || echo {word} >> DIR/overlap; \
             sleep infinity & echo {word} > DIR/begun; wait"
        );
        script.replace("DIR", self.folder.path().to_str().unwrap())
    }

    /// One that takes no notice of SIGTERM, nor does its child.
    pub(crate) fn deaf_script(&self, word: &str) -> String {
        self.script("trap '' TERM;", word)
    }

    /// The line of the next command that has begun.
    #[track_caller]
    pub(crate) fn next(&self) -> String {
        self.begun.recv_timeout(PATIENCE).expect("no command has begun")
    }

    /// The next line within this time, if there is one.
    pub(crate) fn next_within(&self, time: Duration) -> Option<String> {
        self.begun.recv_timeout(time).ok()
    }

    /// Waits until no process of any command is left.
    #[track_caller]
    pub(crate) fn wait_until_gone(&mut self) {
        self.kept = None;
        let mut alive = self.alive.try_clone().unwrap();
        let (tell, told) = mpsc::channel();
        thread::spawn(move || tell.send(alive.read(&mut [0]).unwrap()));
        let read = told.recv_timeout(PATIENCE).expect("a process of a command is left");
        assert_eq!(read, 0);
    }

    /// Fails if a command has begun beside another.
    #[track_caller]
    pub(crate) fn assert_no_overlap(&self) {
        let overlap = fs::read_to_string(self.path("overlap"));
        assert!(overlap.is_err(), "began beside another: {overlap:?}");
    }
}

/// What a process was started as.
fn words_of(process: &Path) -> String {
    let words = fs::read(process.join("cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&words).replace('\0', " ")
}

/// The guard of a `keylane`.
#[track_caller]
pub(crate) fn guard_of(keylane: u32) -> Pid {
    let wanted = format!("keylane --guard-children {keylane} ");
    let find = || {
        let processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
        processes
            .filter(|path| words_of(path).starts_with(&wanted))
            .find_map(|path| Pid::from_raw(path.file_name()?.to_str()?.parse().ok()?))
    };
    // A process that is being started shows no words for a moment, and nothing signals the end of that.
    let start = Instant::now();
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "it has no guard");
        thread::yield_now();
    }
}

/// Kills the guard and its `keylane`, which cannot start another guard in between.
#[track_caller]
pub(crate) fn kill_with_guard(keylane: u32) {
    let process = Pid::from_raw(keylane.cast_signed()).unwrap();
    let guard = guard_of(keylane);
    kill_process(process, Signal::STOP).unwrap();
    kill_process(guard, Signal::KILL).unwrap();
    kill_process(process, Signal::KILL).unwrap();
}

/// Sends a signal, and waits until the process has ended.
pub(crate) fn end_by(child: &mut Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
    child.wait().unwrap();
}
