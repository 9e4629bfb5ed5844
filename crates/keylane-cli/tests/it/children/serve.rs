//! `keylane serve`.

use std::fs;

use super::family::{Family, kill_with_guard};
use crate::common::served::Served;

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

#[test]
fn the_next_attempt_waits_until_the_commands_of_a_killed_server_have_ended() {
    let mut family = Family::new();
    let server = start(&family);
    server.submit(&["command", "--key", "ann"]);
    assert_eq!(family.next(), "1");
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
    server.submit(&["command", "--key", "ann"]);
    assert_eq!(family.next(), "1");
    kill_with_guard(server.pid());
    server.kill();
    let server = start(&family);
    assert_eq!(family.next(), "2");
    family.assert_no_overlap();
    server.kill();
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
