//! `keylane consume`.

use std::fs;
use std::io::BufReader;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use super::family::{Family, end_by, kill_with_guard};
use crate::common::{finish, hears, subcommand};

/// A consumer of a file of one record, with a command that says the attempt and does not listen to SIGTERM.
fn consume(family: &Family, worker: bool) -> Command {
    let input = family.path("records");
    if !input.exists() {
        fs::write(&input, "a\n").unwrap();
    }
    let source = format!("file:{}", input.display());
    let mut command = subcommand("consume", [source.as_str(), "--key", "1", "-j1"]);
    if worker {
        command.arg("--worker");
    }
    command.args(["--", "sh", "-c", &family.deaf_script("on")]);
    command.stdin(Stdio::null());
    command
}

fn start(family: &Family, worker: bool) -> Child {
    let child = consume(family, worker).stderr(Stdio::null()).spawn().unwrap();
    assert_eq!(family.next(), "on");
    child
}

#[test]
fn the_next_consumer_waits_until_the_commands_of_a_killed_one_have_ended() {
    for worker in [false, true] {
        let mut family = Family::new();
        let mut first = start(&family, worker);
        end_by(&mut first, Signal::KILL);
        let mut second = consume(&family, worker).spawn().unwrap();
        let mut said = BufReader::new(second.stderr.take().unwrap());
        hears(&mut said, "waiting until the child processes");
        assert_eq!(family.next(), "on");
        family.assert_no_overlap();
        end_by(&mut second, Signal::KILL);
        family.wait_until_gone();
    }
}

#[test]
fn the_next_consumer_ends_the_commands_itself_if_the_guard_was_killed_too() {
    let mut family = Family::new();
    let mut first = start(&family, false);
    kill_with_guard(first.id());
    first.wait().unwrap();
    let mut second = consume(&family, false).spawn().unwrap();
    let mut said = BufReader::new(second.stderr.take().unwrap());
    hears(&mut said, "child processes that process");
    assert_eq!(family.next(), "on");
    family.assert_no_overlap();
    end_by(&mut second, Signal::KILL);
    family.wait_until_gone();
}

#[test]
fn a_list_of_children_that_cannot_be_read_is_not_overlooked() {
    let family = Family::new();
    let child = consume(&family, false);
    fs::write(family.path("records.keylane-children"), "?").unwrap();
    let outcome = finish({ child }.spawn().unwrap());
    outcome.expect(255, &["records.keylane-children", "delete the file"]);
}
