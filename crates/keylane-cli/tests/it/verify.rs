//! `keylane verify` accepts a history that kept the order of its keys, and names each run that broke
//! it; `keylane run --log` writes such a history.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;

use crate::common::{Outcome, feed, run, subcommand};

fn verify(words: &[&str], history: &str) -> Outcome {
    feed(subcommand("verify", words), history.as_bytes())
}

/// A history of tasks with one attempt: key, place, start and end.
fn history(runs: &[(&str, u64, i64, i64)]) -> String {
    let line = |(key, place, start, end): &(&str, u64, i64, i64)| {
        format!("{{\"key\":\"{key}\",\"place\":{place},\"start\":{start},\"end\":{end}}}\n")
    };
    runs.iter().map(line).collect()
}

/// Runs the records with `--log`, and returns the log.
fn log(words: &[&str], input: impl AsRef<[u8]>, code: i32) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.ndjson");
    let mut all = vec!["--log", path.to_str().unwrap()];
    all.extend(words);
    run(&all, input).expect(code, &[]);
    fs::read_to_string(path).unwrap()
}

/// Lines of a log without its header.
fn lines(log: &str) -> Vec<Value> {
    log.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_log_of_a_run_has_a_line_per_record_and_keeps_the_order() {
    let input: String = (1..=60).map(|number| format!("{} {number}\n", number % 7)).collect();
    let words = ["-j4", "--key", "1", "--", "sh", "-c", "test {2} != 9"];
    let log = log(&words, input, 1);
    let lines = lines(&log);
    let places: std::collections::BTreeSet<_> =
        lines.iter().map(|line| line["place"].as_u64().unwrap()).collect();
    assert!(places.into_iter().eq(1..=60));
    for line in &lines {
        let place = line["place"].as_u64().unwrap();
        assert_eq!(line["key"], (place % 7).to_string());
        assert_eq!(line["exit"], i32::from(place == 9), "{line}");
    }
    let outcome = verify(&[], &log);
    outcome.expect(0, &[]);
    assert_eq!(outcome.stdout, "60 lines, 7 keys, 60 tasks: the order was kept\n");
}

#[test]
fn the_log_of_workers_keeps_the_order_too() {
    let input: String = (1..=500).map(|number| format!("{} {number}\n", number % 3)).collect();
    let log = log(&["-j2", "--key", "1", "--worker", "--", "cat"], input, 0);
    assert_eq!(lines(&log).len(), 500);
    verify(&[], &log).expect(0, &[]);
}

#[test]
fn records_whose_worker_ended_are_in_the_log_with_the_reason() {
    // A worker that leaves a line unanswered and succeeds would break the protocol if its input had
    // ended by then, which is not certain. This one fails.
    let script = "read x; echo $x; read y; exit 3";
    let log = log(&["-j1", "--key", "1", "--worker", "--", "sh", "-c", script], "a\nb\n", 1);
    let errors: Vec<_> = lines(&log).iter().map(|line| line["error"].clone()).collect();
    assert_eq!(errors[0], Value::Null);
    assert!(errors[1].as_str().unwrap().contains("ended without answering"), "{errors:?}");
}

#[test]
fn keys_of_other_bytes_than_utf_8_and_records_without_a_key_are_told_apart() {
    let words = ["-j2", "--key", "1", "--null-value", "-", "--", "true"];
    let log = log(&words, b"\xff 1\n\xfe 2\n- 3\n- 4\n\xff 5\n", 0);
    let mut keys: BTreeMap<String, u32> = BTreeMap::new();
    for line in lines(&log) {
        assert!(line.get("key").is_none());
        *keys.entry(line["key_hex"].to_string()).or_default() += 1;
    }
    let expected = [("\"fe\"", 1), ("\"ff\"", 2), ("null", 2)];
    assert_eq!(keys, expected.map(|(key, count)| (key.to_owned(), count)).into());
    let outcome = verify(&[], &log);
    outcome.expect(0, &[]);
    assert!(
        outcome.stdout.starts_with("5 lines, 2 keys, 3 tasks: 2 lines without a key"),
        "{outcome:?}"
    );
}

#[test]
fn records_without_a_key_that_are_serial_are_one_lane() {
    let words = ["-j2", "--key", "1", "--null-value", "-", "--no-key", "serial", "--", "true"];
    let log = log(&words, "- 1\n- 2\n", 0);
    assert!(verify(&[], &log).stdout.starts_with("2 lines, 1 keys, 2 tasks: the order"));
}

#[test]
fn a_log_that_cannot_be_written_ends_the_run() {
    run(&["--log", "/no/such/folder/log", "--key", "1", "--", "true"], "a\n")
        .expect(255, &["cannot write the log to /no/such/folder/log"]);
    let full = ["--log", "/dev/full", "--key", "1"];
    for mode in [&["--", "cat", "/dev/null"][..], &["--worker", "--", "cat"]] {
        let words: Vec<_> = full.iter().chain(mode).copied().collect();
        run(&words, "a\n").expect(255, &["cannot write the log /dev/full; make room on its disk"]);
    }
}

#[test]
fn each_violation_is_named_with_both_lines_and_counted_in_the_exit_code() {
    let runs =
        [("a", 1, 0, 10), ("a", 2, 9, 12), ("b", 1, 0, 3), ("a", 4, 20, 21), ("a", 3, 30, 31)];
    let outcome = verify(&[], &history(&runs));
    outcome.expect(2, &[]);
    let expected = "line 2: key \"a\": place 2 started at 9 before place 1 (line 1) ended at 10\n\
        line 4: key \"a\": place 4 started at 20 before place 3 (line 5) ended at 31\n\
        5 lines, 2 keys, 5 tasks: 2 violations\n";
    assert_eq!(outcome.stdout, expected);
    let outcome = verify(&["--max-shown", "1"], &history(&runs));
    assert!(outcome.stdout.contains("\nand 1 more; --max-shown sets"), "{}", outcome.stdout);
}

#[test]
fn tasks_over_several_keys_are_checked_at_each_of_them() {
    let text = "{\"keys\":[\"a\",\"b\"],\"place\":1,\"start\":0,\"end\":5}\n\
        {\"keys\":[\"b\",\"b\"],\"place\":2,\"start\":4,\"end\":6}\n";
    verify(&[], text).expect(1, &[]);
    let shared = text.replace("\"keys\"", "\"shared_keys\"");
    verify(&[], &shared).expect(0, &[]);
    let sources = text.replacen("\"place\"", "\"source\":\"topic[1]\",\"place\"", 1);
    verify(&[], &sources).expect(0, &[]);
}

#[test]
fn results_of_the_service_and_fences_in_strings_are_read() {
    let text = r#"{"number":0,"keys":["a"],"outcome":"succeeded","attempt":2,"started_at":"2026-01-31T12:00:00.100Z","ended_at":"2026-01-31T12:00:00.200Z","fence":"9"}
{"number":1,"keys":["a"],"outcome":"cancelled","attempt":0,"ended_at":"2026-01-31T12:00:00.150Z"}
{"number":2,"keys":["a"],"outcome":"failed","attempt":1,"started_at":"2026-01-31T12:00:00.200Z","ended_at":"2026-01-31T12:00:00.300Z","fence":"10"}
"#;
    let outcome = verify(&[], text);
    assert_eq!(
        (outcome.code, &*outcome.stdout),
        (0, "3 lines, 1 keys, 2 tasks: the order was kept\n")
    );
    verify(&[], &text.replace(":\"10\"", ":\"9\"")).expect(1, &[]);
}

#[test]
fn several_files_are_one_history() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["1", "2"].map(|name| folder.path().join(name));
    fs::write(&paths[0], history(&[("a", 1, 0, 10)])).unwrap();
    fs::write(&paths[1], history(&[("a", 2, 5, 12)])).unwrap();
    let words = paths.each_ref().map(|path| path.to_str().unwrap());
    let outcome = verify(&words, "");
    outcome.expect(1, &[]);
    let other = format!("place 1 ({}, line 1)", words[0]);
    assert!(outcome.stdout.contains(&other), "{}", outcome.stdout);
}

#[test]
fn wrong_lines_are_named_with_the_rule_and_the_remedy() {
    for (line, said) in [
        ("{", "standard input, line 2: EOF while parsing"),
        ("[1]", "standard input, line 2: invalid type"),
        ("{\"key\":\"a\",\"start\":1,\"end\":2}", "`place` is missing; give each task its number"),
        ("{\"key\":\"a\",\"place\":1}", "the times are missing; give `start` and `end`"),
        ("{\"key\":\"a\",\"place\":1,\"start_us\":1,\"end_us\":2}", "`start` has another unit"),
        (
            "{\"key\":\"a\",\"place\":1,\"start\":3,\"end\":2}",
            "the end is before the start; use times of one clock",
        ),
        ("{\"key\":\"a\",\"place\":1,\"started_at\":\"noon\"}", "\"noon\" is no time"),
        (
            "{\"key_hex\":\"f\",\"place\":1,\"start\":1,\"end\":2}",
            "`key_hex` has to be pairs of hexadecimal digits",
        ),
        (
            "{\"key\":\"a\",\"place\":1,\"start\":1,\"fence\":\"x\"}",
            "`fence` is \"x\"; it has to be a whole number",
        ),
    ] {
        let text = format!("{}{line}\n", history(&[("a", 1, 0, 1)]));
        verify(&[], &text).expect(255, &[said]);
    }
    verify(&[], "\n").expect(255, &["the history is empty"]);
    verify(&["/no/such/file"], "").expect(255, &["cannot read /no/such/file"]);
}
