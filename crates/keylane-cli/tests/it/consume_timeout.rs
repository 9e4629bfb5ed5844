//! `keylane consume --timeout`: a command that takes too long is asked to end, then killed, and its attempt has failed.

use std::path::Path;

use crate::common::{Outcome, feed, kill_detached, subcommand};

fn consume(folder: &Path, words: &[&str], input: &str) -> Outcome {
    let base = ["-", "--order", "none", "-j", "2", "--backoff", "1ms", "--on-fail", "skip"];
    let mut command = subcommand("consume", [&base[..], words].concat());
    command.current_dir(folder);
    feed(command, input.as_bytes())
}

#[test]
fn a_command_that_takes_too_long_is_asked_to_end_and_then_killed() {
    let folder = tempfile::tempdir().unwrap();
    let deaf = "trap '' TERM; while :; do sleep 1; done";
    let silent = "exec > /dev/null 2> /dev/null; sleep 1000";
    let polite = "sleep 1000";
    for (command, end) in [(deaf, "SIGKILL"), (silent, "SIGTERM"), (polite, "SIGTERM")] {
        let words = ["--attempts", "1", "--timeout", "200ms", "--", "sh", "-c", command];
        let outcome = consume(folder.path(), &words, "a\n");
        outcome.expect(1, &["it took longer than 200ms", end, "1 skipped"]);
    }
}

#[test]
fn it_is_a_failed_attempt_and_the_next_one_may_succeed() {
    let folder = tempfile::tempdir().unwrap();
    let first_hangs = "mkdir \"hung-$1\" 2> /dev/null && sleep 1000; echo \"$1\"";
    let words = ["--attempts", "5", "--timeout", "1s", "--", "sh", "-c", first_hangs, "sh", "{}"];
    let outcome = consume(folder.path(), &words, "a\nb\n");
    outcome.expect(0, &["attempt 1: it took longer than 1s", "2 handled"]);
    assert_eq!(outcome.sorted(), ["a", "b"]);
}

#[test]
fn output_that_a_process_of_another_session_keeps_open_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let detached = "setsid sleep 1000 & echo $! > pid; echo begun";
    let words = ["--timeout", "200ms", "--", "sh", "-c", detached];
    let outcome = consume(folder.path(), &words, "a\n");
    outcome.expect(0, &["1 handled"]);
    assert_eq!(outcome.stdout, "begun\n");
    kill_detached(folder.path());
}

#[test]
fn workers_and_services_have_timeouts_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let worker = ["--worker", "--timeout", "1s", "--", "cat"];
    consume(folder.path(), &worker, "").expect(255, &["--timeout: ", "write --worker-timeout"]);
    let service = ["--http", "http://127.0.0.1:9/", "--timeout", "1s"];
    consume(folder.path(), &service, "").expect(255, &["--timeout: ", "write --http-timeout"]);
}

#[test]
fn a_command_has_the_number_of_its_slot() {
    let folder = tempfile::tempdir().unwrap();
    // Each ends when the other one has begun.
    let meet = "mkdir \"$KEYLANE_SLOT\"; while ! test -d 1 || ! test -d 2; do sleep 0.01; done; echo \"$KEYLANE_SLOT\"";
    let outcome = consume(folder.path(), &["--", "sh", "-c", meet, "sh"], "a\nb\n");
    outcome.expect(0, &["2 handled"]);
    assert_eq!(outcome.sorted(), ["1", "2"]);
}
