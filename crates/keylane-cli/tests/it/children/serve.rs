//! `keylane serve`.

use std::fs;
use std::io::BufReader;

use rustix::process::{Pid, Signal, kill_process};

use super::family::{Family, guard_of, kill_with_guard};
use crate::common::served::Served;
use crate::common::{hears, subcommand};

/// A server with a kind whose command, or worker, does not listen to SIGTERM.
fn start(family: &Family) -> Served {
    let config = family.path("config.toml");
    let script = family.deaf_script("$KEYLANE_ATTEMPT").replace('"', "\\\"");
    let worker =
        family.deaf_script("worker").replace("; wait", "; echo '{\\\"op\\\":\\\"ready\\\"}'; wait");
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nstore = \"{}\"\n\
         [kinds.command]\ncommand = [\"sh\", \"-c\", \"{script}\"]\nattempts = 5\n\
         [kinds.worker]\nworker = [\"sh\", \"-c\", \"{worker}\"]\nattempts = 5\n",
        family.path("tasks.db").display()
    );
    fs::write(&config, text).unwrap();
    Served::with_config(&config, &[])
}

/// Submits a subtask of the command and waits until its first attempt has begun and is on the disk.
#[track_caller]
fn begin_attempt(server: &Served, family: &Family) {
    server.submit(&["command", "--key", "ann"]);
    assert_eq!(family.next(), "1");
    // Starts of attempts are written behind; this is answered when all before it is on the disk.
    server.run(&["keys", "resume", "ann"]).expect(0, &[]);
}

#[test]
fn the_next_attempt_waits_until_the_commands_of_a_killed_server_have_ended() {
    let mut family = Family::new();
    let server = start(&family);
    begin_attempt(&server, &family);
    server.kill();
    let server = start(&family);
    assert_eq!(family.next(), "2");
    family.assert_no_overlap();
    server.kill();
    family.wait_until_gone();
}

#[test]
fn the_next_start_ends_the_commands_itself_if_the_guard_was_killed_too() {
    let mut family = Family::new();
    let server = start(&family);
    begin_attempt(&server, &family);
    kill_with_guard(server.pid());
    server.kill();
    let server = start(&family);
    assert_eq!(family.next(), "2");
    family.assert_no_overlap();
    server.kill();
    family.wait_until_gone();
}

#[test]
fn a_server_that_waits_for_the_commands_of_an_earlier_one_ends_when_it_is_asked_to() {
    let mut family = Family::new();
    let server = start(&family);
    server.submit(&["command", "--key", "ann"]);
    assert_eq!(family.next(), "1");
    // It has the lock until it goes on.
    let guard = guard_of(server.pid());
    kill_process(guard, Signal::STOP).unwrap();
    server.kill();
    for (signal, code) in [(Signal::TERM, 0), (Signal::INT, 130)] {
        let config = family.path("config.toml");
        let mut next = subcommand("serve", ["--config", config.to_str().unwrap()]).spawn().unwrap();
        let mut said = BufReader::new(next.stderr.take().unwrap());
        hears(&mut said, "waiting until the child processes");
        kill_process(Pid::from_child(&next), signal).unwrap();
        hears(&mut said, "stopped before the start was complete");
        assert_eq!(next.wait().unwrap().code(), Some(code));
    }
    kill_process(guard, Signal::CONT).unwrap();
    family.wait_until_gone();
}

#[test]
fn workers_end_with_a_server_that_is_killed() {
    let mut family = Family::new();
    let server = start(&family);
    server.submit(&["worker", "--key", "ann"]);
    assert_eq!(family.next(), "worker");
    server.kill();
    let server = start(&family);
    assert_eq!(family.next(), "worker");
    family.assert_no_overlap();
    server.kill();
    family.wait_until_gone();
}
