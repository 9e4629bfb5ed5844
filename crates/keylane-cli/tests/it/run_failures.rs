//! Failed records of `keylane run`: attempts in order, timeouts, and the action after the last one.

use std::fs;
use std::io::{BufReader, Write};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::{feed, finish, hears, keylane, kill_detached, run};

#[test]
fn attempts_of_a_record_come_before_the_next_record_of_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    // Every third record fails twice.
    let flaky = r#"
        echo "$2 $KEYLANE_ATTEMPT" >> "$1/$KEYLANE_KEY"
        [ $(($2 % 3)) -ne 0 ] || [ "$KEYLANE_ATTEMPT" -eq 3 ]"#;
    let input: String = (1..=60).map(|n| format!("k{} {n}\n", n % 4)).collect();
    let words = [
        "-j4",
        "--key",
        "1",
        "--attempts",
        "3",
        "--backoff",
        "1ms",
        "--",
        "sh",
        "-c",
        flaky,
        "sh",
        path,
        "{2}",
    ];
    run(&words, input).expect(0, &["record 3 (line 3, key k3): attempt 2 of 3 failed: exit"]);
    for key in 0..4 {
        let of_key = (1..=60).filter(|n| n % 4 == key);
        let expected: String = of_key
            .flat_map(|n| (1..=if n % 3 == 0 { 3 } else { 1 }).map(move |a| format!("{n} {a}\n")))
            .collect();
        assert_eq!(fs::read_to_string(folder.path().join(format!("k{key}"))).unwrap(), expected);
    }
}

#[test]
fn the_last_attempt_decides_and_65_needs_no_other() {
    let words = |code: &'static str| {
        let fail = ["--key", "1", "--attempts", "3", "--backoff", "1ms", "--", "sh", "-c", code];
        run(&fail, "a\n")
    };
    words("exit 4").expect(1, &["attempt 1 of 3 failed", "exit status 4, in attempt 3"]);
    let refused = words("exit 65");
    refused.expect(1, &["record 1 (line 1, key a): exit status 65\n"]);
    assert!(!refused.stderr.contains("attempt"), "{refused:#?}");
}

/// Fails for the records with an x, and prints the others.
const FAIL_X: &str = r#"case $1 in *x*) exit 1 ;; esac; echo "$1""#;

#[test]
fn a_failed_record_can_stop_its_keys_and_those_that_depend_on_them() {
    // 2 fails: 4 has its key, and 5 comes after 4 by the key c.
    let input = "1 a\n2 b x\n3 a\n4 b,c\n5 c\n6 d\n";
    let json: String = input
        .lines()
        .map(|line| {
            let words: Vec<_> = line.split(' ').collect();
            let keys: Vec<_> = words[1].split(',').collect();
            serde_json::json!({"n": line, "keys": keys}).to_string() + "\n"
        })
        .collect();
    let words = [
        "-j1",
        "--ndjson",
        "--key",
        ".keys[]",
        "--on-fail",
        "stop-key",
        "--",
        "sh",
        "-c",
        FAIL_X,
        "sh",
        "{n}",
    ];
    for jobs in ["-j1", "-j4"] {
        let words: Vec<_> = std::iter::once(jobs).chain(words[1..].iter().copied()).collect();
        let outcome = run(&words, &json);
        outcome.expect(
            1,
            &["its key stops", "not run: 2 records behind a failed one of a key", "1 of 6 records"],
        );
        assert_eq!(outcome.sorted(), ["1 a", "3 a", "6 d"]);
    }
}

#[test]
fn a_barrier_and_all_behind_it_do_not_run_after_a_stopped_key() {
    let words = [
        "-j4",
        "--key",
        "1",
        "--barrier",
        "1=all",
        "--on-fail",
        "stop-key",
        "--",
        "sh",
        "-c",
        FAIL_X,
        "sh",
        "{}",
    ];
    let outcome = run(&words, "a\nx\nall\nb\n");
    outcome.expect(1, &["not run: 2 records behind a failed one of a key"]);
    assert_eq!(outcome.stdout, "a\n");
    // A record that only shares the key stops no other that shares it.
    let shared = ["-j1", "--shared-key", "1", "--on-fail", "stop-key", "--"];
    let shared = shared.into_iter().chain(["sh", "-c", FAIL_X, "sh", "{2}"]).collect::<Vec<_>>();
    let outcome = run(&shared, "d x\nd b\n");
    outcome.expect(1, &["1 of 2 records failed, 1 succeeded"]);
    assert_eq!(outcome.stdout, "b\n");
}

#[test]
fn a_failed_record_can_stop_the_run_or_be_skipped() {
    let words =
        |what| ["-j1", "--key", "1", "--on-fail", what, "--", "sh", "-c", FAIL_X, "sh", "{}"];
    let input = "a\nx\nb\nx\n";
    let stopped = run(&words("stop"), input);
    stopped.expect(1, &["exit status 1", "stopping after a failure", "not run: "]);
    assert_eq!(stopped.stdout, "a\n");
    let skipped = run(&words("skip"), input);
    skipped.expect(0, &["record 2 (line 2, key x): exit status 1; skipped"]);
    assert_eq!(skipped.stdout, "a\nb\n");
    let failed = run(&words("continue"), input);
    failed.expect(2, &["2 of 4 records failed, 2 succeeded"]);
}

#[test]
fn a_failed_record_can_go_to_the_dead_letters() {
    let folder = tempfile::tempdir().unwrap();
    let letters = folder.path().join("dead.ndjson");
    let place = format!("file:{}", letters.display());
    let words = [
        "--key",
        "1",
        "--attempts",
        "2",
        "--backoff",
        "1ms",
        "--on-fail",
        "dead-letter",
        "--dead-letters",
        &place,
        "--",
        "sh",
        "-c",
        FAIL_X,
        "sh",
        "{}",
    ];
    run(&words, "a 1\nx 2\nx 3\n").expect(0, &["in attempt 2; in the dead letters"]);
    let text = fs::read_to_string(&letters).unwrap();
    let letters: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |name: &str| letters.iter().map(|letter| letter[name].clone()).collect::<Vec<_>>();
    assert_eq!(of("payload"), ["x 2", "x 3"]);
    assert_eq!(of("key"), ["x", "x"]);
    assert_eq!(of("position"), [2, 3]);
    assert_eq!(of("attempts"), [2, 2]);
    let alone = ["--key", "1", "--on-fail", "dead-letter", "--", "true"];
    run(&alone, "").expect(255, &["give --dead-letters file:PATH"]);
    let wrong = ["--key", "1", "--on-fail", "dead-letter", "--dead-letters", "x", "--", "true"];
    run(&wrong, "").expect(255, &["write file:PATH"]);
}

#[test]
fn a_command_that_takes_too_long_is_asked_to_end_and_then_killed() {
    let deaf = "trap '' TERM; while :; do sleep 1; done";
    let silent = "exec > /dev/null 2> /dev/null; sleep 1000";
    let polite = "sleep 1000";
    for (command, end) in [(deaf, "SIGKILL"), (silent, "SIGTERM"), (polite, "SIGTERM")] {
        let words = ["-j2", "--key", "1", "--timeout", "200ms", "--", "sh", "-c", command];
        run(&words, "a\n").expect(1, &["it took longer than 200ms", end]);
    }
    // Output that a process of another session keeps open is given up.
    let detached = "setsid sleep 1000 & echo $! > pid; echo begun";
    let folder = tempfile::tempdir().unwrap();
    let words = ["--key", "1", "--timeout", "200ms", "--", "sh", "-c", detached];
    let mut command = keylane(words);
    command.current_dir(folder.path());
    feed(command, b"a\n").expect(0, &[]);
    kill_detached(folder.path());
    // A quick command has nothing to do with it.
    run(&["--key", "1", "--timeout", "1h", "--", "true"], "a\nb\n").expect(0, &[]);
}

#[test]
fn a_signal_ends_a_run_between_two_attempts() {
    let words = ["--key", "1", "--attempts", "0", "--backoff", "1h", "--", "false"];
    let mut child = keylane(words).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"a\na\n").unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    hears(&mut said, "attempt 1 failed");
    // Not INT, which everything that a shell starts in the background ignores.
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    hears(&mut said, "not run: 2 records that had been read ahead");
    assert_eq!(finish(child).code, 143);
}
