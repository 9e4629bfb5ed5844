//! `keylane consume`.

use std::fs;
use std::io::{BufReader, Write};
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

/// A consumer of a source whose progress is in no file, and the next one, after the first was killed with its guard.
fn restart_without_a_file(mut consume: impl FnMut(&Family) -> Command) {
    let mut family = Family::new();
    let mut start = |family: &Family| {
        let mut child = consume(family);
        let mut child = child.env("TMPDIR", family.folder()).spawn().unwrap();
        if let Some(stdin) = child.stdin.as_mut() {
            stdin.write_all(b"a\n").unwrap();
        }
        child
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

#[test]
fn commands_for_standard_input_are_ended_by_the_next_consumer_if_the_guard_was_killed_too() {
    restart_without_a_file(|family| {
        subcommand("consume", ["-", "--key", "1", "--", "sh", "-c", &family.deaf_script("on")])
    });
}

#[cfg(feature = "kafka")]
#[test]
fn kafka_commands_are_ended_by_the_next_consumer_if_the_guard_was_killed_too() {
    let auto_create = [("auto.create.topics.enable", "true")];
    let broker = keylane_testkit::or_skip(keylane_testkit::Broker::start_with(&auto_create));
    let Some(broker) = broker else { return };
    let topic = format!("kafka://{}/orders", broker.address());
    crate::common::feed(subcommand("produce", [&topic, "--key", "1"]), b"a\n").expect(0, &[]);
    restart_without_a_file(|family| {
        let words = [&*topic, "--group", "g", "--group-instance-id", "one", "--", "sh", "-c"];
        let mut consume = subcommand("consume", words);
        consume.arg(family.deaf_script("on")).stdin(Stdio::null());
        consume
    });
}

#[test]
fn a_list_of_children_that_cannot_be_read_is_not_overlooked() {
    let family = Family::new();
    let child = consume(&family, false);
    fs::write(family.path("records.keylane-children"), "?").unwrap();
    let outcome = finish({ child }.spawn().unwrap());
    outcome.expect(255, &["records.keylane-children", "delete the file"]);
}
