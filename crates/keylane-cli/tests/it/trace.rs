//! `--trace` writes what ran where as JSON in the Trace Event Format.

use std::collections::{BTreeMap, HashMap};
use std::fs;

use crate::common::run;
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
    let words = ["-j2", "--key", "1", "--null-value", "-", "--", "sh", "-c", "test {2} != bad"];
    let events = trace(&words, "a 1\nb 2\na bad\n- 4\na 5\n", 1);
    assert_eq!(names(&events, "X"), expected([("a", 3), ("b", 1), ("no key", 1)]));
    let arrows = |phase: &str| events.iter().filter(|event| event["ph"] == phase).count();
    assert_eq!((arrows("s"), arrows("f")), (2, 2));
    for event in events.iter().filter(|event| event["ph"] == "X") {
        assert!(event["dur"].as_f64().unwrap() > 100.0, "a process takes a while: {event}");
    }
}

/// How long everything lasted, in microseconds: what was done to send each record, and each record that was not
/// answered by then.
fn durations(events: &[Value]) -> Vec<f64> {
    let micros = |event: &Value, field: &str| event[field].as_f64().unwrap();
    let of = |phase: &'static str| events.iter().filter(move |event| event["ph"] == phase);
    let ends: HashMap<_, _> =
        of("e").map(|end| (end["id"].to_string(), micros(end, "ts"))).collect();
    let kept = of("b").map(|begin| ends[&begin["id"].to_string()] - micros(begin, "ts"));
    of("X").map(|slice| micros(slice, "dur")).chain(kept).collect()
}

#[test]
fn with_workers_a_record_lasts_until_it_is_answered() {
    const QUICK: usize = 300;
    const SLOW: usize = 10;
    // A child that was quick for long may have several records of a key at a time.
    let worker = format!(
        "n=0; while read -r x; do n=$((n+1)); test $n -le {QUICK} || sleep 0.02; echo $x; done"
    );
    let words = ["-j1", "--key", "1", "--worker", "--", "sh", "-c", &worker];
    let durations = durations(&trace(&words, &"a 1\n".repeat(QUICK + SLOW), 0));
    let slow = durations.iter().filter(|micros| **micros >= 20_000.0).count();
    assert!(slow >= SLOW, "{slow} of {SLOW} lasted until they were answered");
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
