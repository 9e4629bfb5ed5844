//! `keylane run`.

use std::io::{BufReader, Write};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::family::{Family, end_by, guard_of, kill_with_guard};
use crate::common::{feed, finish, hears, ignores, keylane, subcommand};

/// A run of two records whose commands have begun. Its input stays open.
fn start(family: &Family, mut command: Command, script: &str) -> Child {
    let mut run = command.args(["sh", "-c", script]).spawn().unwrap();
    run.stdin.as_mut().unwrap().write_all(b"a\nb\n").unwrap();
    assert_eq!([family.next(), family.next()], ["on", "on"]);
    run
}

fn command() -> Command {
    let mut command = keylane(["-j2", "--key", "1", "--"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

#[test]
fn commands_and_what_they_start_end_with_a_run_that_is_killed() {
    for signal in [Signal::KILL, Signal::QUIT, Signal::ABORT] {
        if ignores(signal.as_raw()) {
            continue;
        }
        let mut family = Family::new();
        let mut command = command();
        command.stderr(Stdio::piped());
        let mut run = start(&family, command, &family.script("", "on"));
        // Nothing reads what is said about it.
        drop(run.stderr.take());
        end_by(&mut run, signal);
        family.wait_until_gone();
    }
}

#[test]
fn commands_that_do_not_listen_are_killed() {
    let mut family = Family::new();
    let mut run = start(&family, command(), &family.deaf_script("on"));
    end_by(&mut run, Signal::KILL);
    family.wait_until_gone();
}

#[test]
fn commands_that_were_stopped_end_as_well() {
    let mut family = Family::new();
    let script = family.script("", "on").replace("; wait", "; kill -STOP $$; wait");
    let mut run = start(&family, command(), &script);
    end_by(&mut run, Signal::KILL);
    family.wait_until_gone();
}

#[test]
fn workers_end_with_a_run_that_is_killed() {
    let mut family = Family::new();
    let mut command = keylane(["-j2", "--key", "1", "--worker", "--"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let script = family.script("", "on");
    let mut run = start(&family, command, &script);
    end_by(&mut run, Signal::KILL);
    family.wait_until_gone();
}

#[test]
fn a_run_that_ignores_a_hangup_takes_its_commands_along_when_it_is_killed() {
    let mut family = Family::new();
    let mut nohup = Command::new("sh");
    nohup.args(["-c", "trap '' HUP; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_keylane")]);
    nohup.args(["run", "-j2", "--key", "1", "--"]);
    nohup.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut run = start(&family, nohup, &family.script("", "on"));
    kill_process(Pid::from_child(&run), Signal::HUP).unwrap();
    let guard = guard_of(run.id());
    kill_process(guard, Signal::HUP).unwrap();
    kill_process(guard, Signal::TERM).unwrap();
    end_by(&mut run, Signal::KILL);
    family.wait_until_gone();
}

#[test]
fn a_guard_that_is_killed_gets_a_successor() {
    let mut family = Family::new();
    let mut command = command();
    command.stderr(Stdio::piped());
    let mut run = start(&family, command, &family.script("", "on"));
    let mut said = BufReader::new(run.stderr.take().unwrap());
    let first = guard_of(run.id());
    kill_process(first, Signal::KILL).unwrap();
    hears(&mut said, "another one was started");
    assert_ne!(guard_of(run.id()), first);
    end_by(&mut run, Signal::KILL);
    family.wait_until_gone();
}

#[test]
fn the_next_run_ends_the_commands_if_the_guard_was_killed_too() {
    for worker in [false, true] {
        let mut family = Family::new();
        let words = ["-j1", "--key", "1", if worker { "--worker" } else { "--" }];
        let start = |family: &Family| {
            let mut command = keylane(words);
            command.args(worker.then_some("--")).args(["sh", "-c", &family.deaf_script("on")]);
            let mut run = command.env("TMPDIR", family.folder()).spawn().unwrap();
            run.stdin.as_mut().unwrap().write_all(b"a\n").unwrap();
            run
        };
        let mut first = start(&family);
        assert_eq!(family.next(), "on");
        kill_with_guard(first.id());
        first.wait().unwrap();
        let mut second = start(&family);
        let mut said = BufReader::new(second.stderr.take().unwrap());
        hears(&mut said, "child processes that process");
        assert_eq!(family.next(), "on");
        family.assert_no_overlap();
        end_by(&mut second, Signal::KILL);
        family.wait_until_gone();
    }
}

#[test]
fn a_worker_gets_all_of_a_line_or_nothing_if_the_run_is_killed() {
    let family = Family::new();
    let line = "x".repeat(900_000);
    // It has seen that the line began when the run is killed with its guard, which would end it.
    let script =
        "head -c 1 >/dev/null; echo on > DIR/begun; read word < DIR/gate; wc -c > DIR/begun";
    let script = script.replace("DIR", family.folder().to_str().unwrap());
    let mut command = keylane(["-j1", "--key", "1", "--worker", "--"]);
    command.env("TMPDIR", family.folder()).args(["sh", "-c", &script]);
    let mut run = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    run.stdin.as_mut().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
    assert_eq!(family.next(), "on");
    kill_with_guard(run.id());
    run.wait().unwrap();
    std::fs::write(family.path("gate"), "go\n").unwrap();
    assert_eq!(family.next().trim(), "900000");
}

#[test]
fn a_run_beside_another_leaves_its_commands_alone() {
    let mut family = Family::new();
    let mut command = command();
    command.env("TMPDIR", family.folder());
    let mut first = start(&family, command, &family.script("", "on"));
    let mut other = keylane(["--key", "1", "--", "echo"]);
    other.env("TMPDIR", family.folder());
    feed(other, b"a\n").expect(0, &[]);
    assert!(first.try_wait().unwrap().is_none());
    end_by(&mut first, Signal::KILL);
    family.wait_until_gone();
}

#[test]
fn commands_of_a_calibration_end_with_it() {
    let mut family = Family::new();
    let words = ["--max-workers", "1", "--", "sh", "-c", &family.script("", "on")];
    let mut calibration = subcommand("calibrate", words);
    let mut calibration = calibration.stderr(Stdio::null()).spawn().unwrap();
    assert_eq!(family.next(), "on");
    end_by(&mut calibration, Signal::KILL);
    family.wait_until_gone();
}

#[test]
fn the_rest_of_a_process_group_ends_with_its_command() {
    let mut family = Family::new();
    let script = family.script("", "on").replace("; wait", "");
    let script = script.replace("sleep infinity", "sleep infinity > /dev/null 2>&1");
    let mut command = keylane(["-j1", "--key", "1", "--"]);
    command.args(["sh", "-c", &script]);
    let outcome = feed(command, b"a\na\na\n");
    outcome.expect(0, &[]);
    family.wait_until_gone();
    family.assert_no_overlap();
}

#[test]
fn a_run_that_ends_leaves_no_guard() {
    let mut command = keylane(["--key", "1", "--", "sh", "-c", "ps -o args= --ppid $PPID"]);
    command.stderr(Stdio::piped());
    let run = command.spawn().unwrap();
    let number = run.id();
    let mut run = run;
    run.stdin.take().unwrap().write_all(b"a\n").unwrap();
    let outcome = finish(run);
    let guard = format!("keylane --guard-children {number}");
    assert!(outcome.stdout.contains(&guard), "{outcome:?}");
    let left = Command::new("ps").args(["-eo", "args="]).output().unwrap();
    assert!(!String::from_utf8_lossy(&left.stdout).contains(&format!("{guard}\n")));
}

#[test]
fn a_worker_that_never_answers_ends_the_run() {
    let words = ["-j1", "--key", "1", "--worker", "--worker-timeout", "10ms", "--"];
    let mut run = keylane(words).args(["sh", "-c", "cat > /dev/null"]).spawn().unwrap();
    let mut input = run.stdin.take().unwrap();
    input.write_all(b"a\nb\nc\nd\n").unwrap();
    // The input stays open: its end would end the worker.
    let outcome = finish(run);
    outcome.expect(255, &["has not answered record", "3 times in a row"]);
    drop(input);
}
