//! `--trace` writes what ran where as JSON in the Trace Event Format.

mod common;

use std::collections::BTreeMap;
use std::fs;

use common::run;
use serde_json::Value;

/// Every event of the trace that a run with these words writes.
fn trace(words: &[&str], input: &str, code: i32) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.json");
    let mut all = vec!["--trace", path.to_str().unwrap()];
    all.extend(words);
    run(&all, input).expect(code, &[]);
    let root: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    assert_eq!(root["otherData"]["dropped"], 0);
    root["traceEvents"].as_array().unwrap().clone()
}

fn names(events: &[Value], phase: &str) -> BTreeMap<String, usize> {
    let mut names = BTreeMap::new();
    for event in events.iter().filter(|event| event["ph"] == phase) {
        *names.entry(event["name"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    names
}

fn expected(names: [(&str, usize); 3]) -> BTreeMap<String, usize> {
    names.map(|(name, count)| (name.to_owned(), count)).into()
}

#[test]
fn each_record_is_a_slice_named_for_its_key_and_arrows_join_those_of_a_key() {
    let words = ["-j2", "--key", "1", "--null", "-", "--", "sh", "-c", "test {2} != bad"];
    let events = trace(&words, "a 1\nb 2\na bad\n- 4\na 5\n", 1);
    assert_eq!(names(&events, "X"), expected([("a", 3), ("b", 1), ("no key", 1)]));
    let arrows = |phase: &str| events.iter().filter(|event| event["ph"] == phase).count();
    assert_eq!((arrows("s"), arrows("f")), (2, 2));
    for event in events.iter().filter(|event| event["ph"] == "X") {
        assert!(event["dur"].as_f64().unwrap() > 100.0, "a process takes a while: {event}");
    }
}

#[test]
fn with_workers_a_record_lasts_until_it_is_answered() {
    let words = ["-j2", "--key", "1", "--worker", "--", "sed", "-u", "s/^/seen /"];
    let events = trace(&words, "a 1\nb 2\na 3\nc 4\n", 0);
    let turns = expected([("a", 2), ("b", 1), ("c", 1)]);
    assert_eq!((names(&events, "b"), names(&events, "e")), (turns.clone(), turns));
}

#[test]
fn a_file_that_cannot_be_written_is_said_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let (path, ran) = (folder.path().join("no/out.json"), folder.path().join("ran"));
    let words = ["--trace", path.to_str().unwrap(), "--key", "1", "--", "touch"];
    let mut words = words.to_vec();
    words.push(ran.to_str().unwrap());
    run(&words, "a\n").expect(255, &["cannot write the trace to"]);
    assert!(!ran.exists());
}
