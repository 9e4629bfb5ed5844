//! `--worker` with attempts and rules for failed records: a worker fails its records by its end.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufReader, Write};

use crate::common::{finish, hears, keylane, run};
use rustix::process::{Pid, Signal, kill_process};

/// Answers each record; at a record `KEY bad` it ends once, before it answers.
const FRAGILE: &str = r#"while read -r key n; do
    if [ "$n" = bad ] && [ ! -e "$1/$key" ]; then : > "$1/$key"; exit 9; fi
    echo "$key $n"
done"#;

/// Answers each record, but always ends at a record `KEY bad`.
const POISONED: &str =
    r#"while read -r key n; do test "$n" != bad || exit 9; echo "$key $n"; done"#;

/// Checks that each key has all its records, in order.
fn check(input: &str, stdout: &str) {
    let by_key = |text: &str| {
        let mut keys: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for line in text.lines() {
            let (key, n) = line.split_once(' ').unwrap();
            keys.entry(key.to_owned()).or_default().push(n.to_owned());
        }
        keys
    };
    assert_eq!(by_key(input), by_key(stdout));
}

#[test]
fn further_attempts_come_before_the_next_record_of_the_key() {
    let folder = tempfile::tempdir().unwrap();
    let line = |n: u32| match n % 40 {
        17 => format!("k{} bad\n", n % 9),
        _ => format!("k{} {n}\n", n % 9),
    };
    let input: String = (0..400).map(line).collect();
    for (keys, more) in [("sticky", "1"), ("any", "/x/")] {
        let seen = folder.path().join(keys);
        fs::create_dir(&seen).unwrap();
        let words = ["--worker", "--worker-keys", keys, "-j3", "--key", "1", "--key", more];
        let rules = ["--attempts", "20", "--backoff", "1ms"];
        let command = ["--", "sh", "-c", FRAGILE, "sh", seen.to_str().unwrap()];
        let outcome = run(&[&words[..], &rules, &command].concat(), &input);
        outcome.expect(0, &["attempt 1 of 20 failed: its worker ended without answering it"]);
        check(&input, &outcome.stdout);
    }
}

#[test]
fn a_record_that_ends_its_worker_in_each_attempt_goes_to_the_dead_letters() {
    let folder = tempfile::tempdir().unwrap();
    let letters = folder.path().join("letters");
    let place = format!("file:{}", letters.display());
    let input = "a 1\na bad\na 2\nb 1\nb bad\nb 2\n";
    let words = ["--worker", "-j2", "--key", "1", "--attempts", "4", "--backoff", "1ms"];
    let rules = ["--on-fail", "dead-letter", "--dead-letters", &place];
    let outcome = run(&[&words[..], &rules, &["--", "sh", "-c", POISONED]].concat(), input);
    outcome.expect(0, &["in attempt 4; in the dead letters"]);
    check("a 1\na 2\nb 1\nb 2\n", &outcome.stdout);
    let text = fs::read_to_string(&letters).unwrap();
    let positions: Vec<u64> = text
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .map(|letter| letter["position"].as_u64().unwrap())
        .collect();
    assert!(positions.contains(&2) && positions.contains(&5) && positions.len() == 2, "{text}");
}

#[test]
fn a_failed_record_can_stop_its_keys_or_the_run_or_be_skipped() {
    let words = |rule: &'static str, jobs: &'static str| {
        ["--worker", jobs, "--key", "1", "--on-fail", rule, "--", "sh", "-c", POISONED]
    };
    let mut child = keylane(words("stop-key", "-j2")).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    stdin.write_all(b"a bad\na 1\n").unwrap();
    hears(&mut said, "its key stops");
    stdin.write_all(b"b 1\na 2\nb 2\na 3\n").unwrap();
    drop(stdin);
    hears(&mut said, "not run: 3 records behind a failed one");
    let outcome = finish(child);
    assert_eq!(outcome.code, 1);
    check("b 1\nb 2\n", &outcome.stdout);
    let outcome = run(&words("skip", "-j1"), "a bad\n");
    outcome.expect(0, &["skipped"]);
    let outcome = run(&words("stop", "-j1"), "a bad\na 1\n");
    outcome.expect(1, &["record 1 (line 1, key a): its worker ended without answering it"]);
}

#[test]
fn a_worker_that_is_too_late_fails_an_attempt() {
    let folder = tempfile::tempdir().unwrap();
    let seen = folder.path().join("seen");
    // The first worker never answers.
    let late = r#"test -e "$1" || { : > "$1"; read -r x; while :; do sleep 1; done; }; cat"#;
    let words = ["--worker", "-j1", "--key", "1", "--worker-timeout", "200ms", "--attempts", "2"];
    let command = ["--backoff", "1ms", "--", "sh", "-c", late, "sh", seen.to_str().unwrap()];
    let outcome = run(&[&words[..], &command].concat(), "a\n");
    outcome.expect(0, &["has not answered record 1 (line 1) in time", "attempt 1 of 2 failed"]);
    assert_eq!(outcome.stdout, "a\n");
}

#[test]
fn a_signal_ends_a_run_between_two_attempts_by_workers() {
    let words = ["--worker", "-j2", "--key", "1", "--attempts", "0", "--backoff", "1h"];
    let mut child = keylane([&words[..], &["--", "sh", "-c", POISONED]].concat()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"a bad\na 1\n").unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    hears(&mut said, "attempt 1 failed");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    hears(&mut said, "not run: 2 records that had been read ahead");
    assert_eq!(finish(child).code, 143);
}
