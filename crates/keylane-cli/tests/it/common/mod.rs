//! Starts the real `keylane` and gathers all that it says.
#![allow(dead_code, reason = "every test file uses a part of this")]

pub(crate) mod served;

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

thread_local! {
    /// Place for the temporary files of a test, which has a thread.
    static TEMPORARY: tempfile::TempDir = tempfile::tempdir().unwrap();
}

/// What a run left behind.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Outcome {
    /// The lines of standard output, sorted where their order is free.
    pub(crate) fn sorted(&self) -> Vec<&str> {
        let mut lines: Vec<_> = self.stdout.lines().collect();
        lines.sort_unstable();
        lines
    }

    #[track_caller]
    pub(crate) fn expect(&self, code: i32, said: &[&str]) -> &Self {
        assert_eq!(self.code, code, "{self:#?}");
        for part in said {
            assert!(self.stderr.contains(part), "{part:?} is not in {self:#?}");
        }
        self
    }
}

/// The tested command: the one of this build, or another one in KEYLANE_PROGRAM, such as that of a package.
fn program() -> OsString {
    std::env::var_os("KEYLANE_PROGRAM").unwrap_or_else(|| env!("CARGO_BIN_EXE_keylane").into())
}

/// `keylane run` with these words, its three streams being pipes.
pub(crate) fn keylane<A: AsRef<OsStr>>(words: impl IntoIterator<Item = A>) -> Command {
    subcommand("run", words)
}

/// The same for another subcommand.
pub(crate) fn subcommand<A: AsRef<OsStr>>(
    name: &str,
    words: impl IntoIterator<Item = A>,
) -> Command {
    let mut command = Command::new(program());
    command.arg(name).args(words);
    // What one test kills is not to be waited for by what another starts.
    TEMPORARY.with(|folder| command.env("TMPDIR", folder.path()));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Builds a library that is to be loaded before a program (`LD_PRELOAD`). The source is relative to this package.
pub(crate) fn build_library(source: &str, library: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let mut compiler = Command::new("cc");
    let output = compiler.args(["-shared", "-fPIC", "-o"]).arg(library).arg(source).output();
    let output = output.expect("the linker of Rust programs is a C compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Runs it to its end with `input` on standard input.
pub(crate) fn run(words: &[&str], input: impl AsRef<[u8]>) -> Outcome {
    feed(keylane(words), input.as_ref())
}

pub(crate) fn feed(mut command: Command, input: &[u8]) -> Outcome {
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    thread::scope(|scope| {
        // A run that has ended early need not have read all of it.
        scope.spawn(move || drop(stdin.write_all(input)));
        finish(child)
    })
}

/// Reads what is left to read, and waits.
pub(crate) fn finish(mut child: Child) -> Outcome {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let stderr = thread::spawn(move || read_all(stderr));
    let stdout = read_all(stdout);
    let stderr = stderr.join().unwrap();
    let status = child.wait().unwrap();
    let code = status.code().unwrap_or_else(|| panic!("{status}: {stderr}"));
    Outcome { code, stdout, stderr }
}

fn read_all(from: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut from) = from {
        from.read_to_end(&mut bytes).unwrap();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Numbers from 1 on, a line each.
pub(crate) fn numbers(last: u32) -> String {
    (1..=last).map(|number| format!("{number}\n")).collect()
}

/// Makes a named pipe: opening it waits for the other side, so tests and
/// commands can wait for each other without sleeping.
/// Waits until a line with `part` in it is said.
pub(crate) fn hears(said: &mut impl BufRead, part: &str) {
    let mut line = String::new();
    while !line.contains(part) {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "{part:?} was never said");
    }
}

pub(crate) fn named_pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Kills the process whose number a command has written to the file `pid`.
pub(crate) fn kill_detached(folder: &Path) {
    let number = std::fs::read_to_string(folder.join("pid")).unwrap();
    let pid = rustix::process::Pid::from_raw(number.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

/// Returns whether this process ignores the signal, as does everything that it starts: a shell starts programs in the
/// background so.
pub(crate) fn ignores(signal: i32) -> bool {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return false };
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}
