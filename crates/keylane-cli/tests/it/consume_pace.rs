//! The pace of `keylane consume`: rates, records of a key at a time, and records that count only as the latest.

use std::fs;
use std::io::{BufRead, BufReader, Write};

use crate::common::{Outcome, feed, finish, named_pipe, subcommand};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

fn consume(folder: &TempDir, words: &[&str], input: &str) -> Outcome {
    let mut command = subcommand("consume", words);
    command.current_dir(folder.path());
    feed(command, input.as_bytes())
}

/// One start in an hour: the second attempt at the first record is no start, and the second record waits
/// until the consumer ends. The next one handles it.
#[test]
fn rates_hold_records_back_and_not_their_attempts() {
    for rate in ["--rate", "--rate-per-key"] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("in"), "a 1\na 2\n").unwrap();
        let tail = ["--", "sh", "-c", "echo {2} $KEYLANE_ATTEMPT; test {2}$KEYLANE_ATTEMPT != 11"];
        let words = ["file:in", "--key", "1", "-j", "2", rate, "1/h", "--backoff", "1ms"];
        let mut command = subcommand("consume", [&words[..], &tail].concat());
        let mut child = command.current_dir(folder.path()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut lines = String::new();
        stdout.read_line(&mut lines).unwrap();
        stdout.read_line(&mut lines).unwrap();
        assert_eq!(lines, "1 1\n1 2\n");
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        let mut rest = String::new();
        stdout.read_line(&mut rest).unwrap();
        assert_eq!(rest, "");
        finish(child).expect(143, &["1 handled, 1 failed attempts"]);
        let words = ["file:in", "--key", "1", "--", "echo", "{2}"];
        assert_eq!(consume(&folder, &words, "").expect(0, &["1 handled"]).stdout, "2\n");
    }
}

#[test]
fn a_limit_lets_that_many_records_of_a_key_run_at_once_and_no_more() {
    let folder = tempfile::tempdir().unwrap();
    named_pipe(&folder.path().join("pipe"));
    // The first two records of the key meet; a third one beside them would find both seats taken.
    let seats = r#"
        if mkdir seat1 2> /dev/null; then seat=seat1
        elif mkdir seat2 2> /dev/null; then seat=seat2
        else exit 1
        fi
        case $1 in
            1) echo met > pipe ;;
            2) read -r word < pipe ;;
        esac
        rmdir $seat"#;
    let input: String = (1..=40).map(|n| format!("k {n}\n")).collect();
    let words = ["-", "--key", "1", "-j", "6", "--limit-per-key", "2", "--attempts", "1", "--"];
    let words = [&words[..], &["sh", "-c", seats, "sh", "{2}"]].concat();
    consume(&folder, &words, &input).expect(0, &["40 handled"]);
}

#[test]
fn a_record_that_stops_its_key_holds_the_others_of_a_limited_key() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("in"), "a 1\na 2\na 3\na 4\nb 5\n").unwrap();
    let base = ["file:in", "--key", "1", "-j", "1", "--limit-per-key", "3"];
    let script = "echo {2}; test {2} != 1";
    let stops = ["--attempts", "1", "--on-fail", "stop-key", "--", "sh", "-c", script];
    let outcome = consume(&folder, &[&base[..], &stops].concat(), "");
    outcome.expect(1, &["at 0 was not handled, and the later records of its key wait"]);
    let begun = outcome.sorted();
    assert_eq!((begun[0], begun.last()), ("1", Some(&"5")));
    // What was not handled comes again, and no more.
    let again = consume(&folder, &[&base[..], &["--", "echo", "{2}"]].concat(), "");
    let again = again.expect(0, &[]).sorted();
    assert_eq!(again[0], "1");
    assert_eq!(again.len(), 5 - (begun.len() - 1), "{begun:?} {again:?}");
}

#[test]
fn the_latest_record_of_a_key_replaces_the_one_that_waits() {
    let folder = tempfile::tempdir().unwrap();
    named_pipe(&folder.path().join("begun"));
    named_pipe(&folder.path().join("pipe"));
    // `b` is read after all records of `a`, of which the first runs until then.
    let meet = r#"
        case $1 in
            a1) echo yes > begun; read -r word < pipe ;;
            b) echo met > pipe ;;
        esac
        echo "$1""#;
    let words = ["-", "-j", "2", "--key", "/^./", "--latest", "--", "sh", "-c", meet, "sh", "{}"];
    let mut command = subcommand("consume", words);
    let mut child = command.current_dir(folder.path()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"a1\n").unwrap();
    assert_eq!(fs::read_to_string(folder.path().join("begun")).unwrap(), "yes\n");
    stdin.write_all(b"a2\na3\na4\nb\n").unwrap();
    drop(stdin);
    let outcome = finish(child);
    outcome.expect(0, &["3 handled", "2 replaced by later ones"]);
    assert_eq!(outcome.sorted(), ["a1", "a4", "b"]);
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |options: &[&str], why: &str| {
        let words = [&["-"], options, &["--", "true"]].concat();
        consume(&folder, &words, "").expect(255, &[why]);
    };
    refused(&["--key", "1", "--latest", "--limit-per-key", "2"], "leave out one of them");
    refused(&["--key", "1", "--latest", "--batch", "2"], "leave out --latest or --batch");
    refused(&["--key", "1", "--limit-per-key", "2", "--batch", "2"], "--limit-per-key or --batch");
    refused(&["--order", "none", "--latest"], "latest is for order by key");
    refused(&["--order", "none", "--rate-per-key", "1/s"], "rate-per-key is for order by key");
}
