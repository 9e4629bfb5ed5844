//! An input without end is run as it comes, in bounded memory.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::thread;

use crate::common::{finish, keylane};
use rustix::process::{Pid, Signal, kill_process};

/// Records that go through; at 200 bytes each, more than the memory may
/// grow to.
const RECORDS: usize = 500_000;
const MAX_KIB: u64 = 64 << 10;

#[test]
fn records_flow_while_the_input_is_open_and_memory_stays() {
    let mut child = keylane(["-j2", "--worker", "--key", "1", "--", "cat"]).spawn().unwrap();
    let pid = Pid::from_child(&child);
    let mut stdin = child.stdin.take().unwrap();
    let source = thread::spawn(move || {
        let mut number = 0u32;
        loop {
            let lines: String =
                (0..500).map(|n| format!("{} {:>190}\n", (number + n) % 1000, n)).collect();
            number += 500;
            if stdin.write_all(lines.as_bytes()).is_err() {
                return;
            }
        }
    });
    let mut stdout = BufReader::with_capacity(1 << 16, child.stdout.take().unwrap());
    let mut line = Vec::new();
    for _ in 0..RECORDS {
        line.clear();
        assert!(stdout.read_until(b'\n', &mut line).unwrap() > 0);
    }
    if let Some(peak) = peak_kib(pid) {
        assert!(peak < MAX_KIB, "{peak} KiB");
    }
    kill_process(pid, Signal::TERM).unwrap();
    // What was in the pipes still comes.
    while stdout.read_until(b'\n', &mut line).unwrap() > 0 {
        line.clear();
    }
    assert_eq!(finish(child).code, 143);
    source.join().unwrap();
}

#[test]
fn a_record_runs_before_the_next_one_has_come() {
    for words in [&["--key", "1", "--", "echo"][..], &["--worker", "--key", "1", "--", "cat"]] {
        let mut child = keylane(words).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        for number in 0..20 {
            let mut line = String::new();
            writeln!(stdin, "{number}").unwrap();
            stdout.read_line(&mut line).unwrap();
            assert_eq!(line, format!("{number}\n"));
        }
        drop(stdin);
        assert_eq!(finish(child).code, 0);
    }
}

/// The most memory a process has had, where the system tells.
fn peak_kib(pid: Pid) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    peak.trim().trim_end_matches(" kB").parse().ok()
}
