//! After a kill of `keylane` a worker has a line whole or not at all, also one that is longer than a pipe.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{keylane, named_pipe, subcommand};

/// What a worker reads of a line of this length if `keylane` is killed while the worker reads the first byte.
fn received(length: usize) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let [begun, go, ended] = ["begun", "go", "ended"].map(|name| folder.path().join(name));
    for pipe in [&begun, &go, &ended] {
        named_pipe(pipe);
    }
    // SIGTERM of the guard is ignored, and SIGKILL comes seconds later.
    let worker = "trap '' TERM; dd bs=1 count=1 of=got 2> /dev/null; echo > begun; read -r it < go
        cat >> got; echo > ended";
    let words = ["-j1", "--key", "/^./", "--worker", "--", "sh", "-c", worker];
    let mut run = keylane(words)
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let line = [&vec![b'x'; length - 1][..], b"\n"].concat();
    run.stdin.as_mut().unwrap().write_all(&line).unwrap();
    fs::read(begun).unwrap();
    kill_process(Pid::from_child(&run), Signal::KILL).unwrap();
    run.wait().unwrap();
    fs::write(go, "\n").unwrap();
    fs::read(ended).unwrap();
    fs::read(folder.path().join("got")).unwrap()
}

#[test]
fn a_line_is_whole_after_a_kill() {
    for length in [100, 100_000, 900_000, 8 << 20] {
        let got = received(length);
        assert_eq!((got.len(), got.last()), (length, Some(&b'\n')));
    }
}

/// What a command of a consumer reads if `keylane` is killed before the command reads anything.
fn received_by_command(payload: &str, length: usize) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let [begun, go, ended] = ["begun", "go", "ended"].map(|name| folder.path().join(name));
    for pipe in [&begun, &go, &ended] {
        named_pipe(pipe);
    }
    fs::write(folder.path().join("records"), [vec![b'x'; length], vec![b'\n']].concat()).unwrap();
    let command = "trap '' TERM; echo > begun; read -r it < go; cat > got; echo > ended";
    let words =
        ["file:records", "--order", "none", "--payload", payload, "--", "sh", "-c", command];
    let mut consumer = subcommand("consume", words)
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    fs::read(begun).unwrap();
    kill_process(Pid::from_child(&consumer), Signal::KILL).unwrap();
    consumer.wait().unwrap();
    fs::write(go, "\n").unwrap();
    fs::read(ended).unwrap();
    fs::read(folder.path().join("got")).unwrap()
}

#[test]
fn a_command_has_its_whole_payload_before_it_starts() {
    let length = 3 << 20;
    assert_eq!(received_by_command("stdin", length), vec![b'x'; length]);
    let json = received_by_command("json", length);
    let record: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(record["payload"].as_str().unwrap().len(), length);
}
