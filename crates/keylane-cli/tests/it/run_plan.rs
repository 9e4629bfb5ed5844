//! `keylane run --plan` says how far an input can run in parallel, and runs nothing.

use std::fs;

use crate::common::{feed, keylane, run};

/// Eight records, four of them of key a.
const ORDERS: &str = "a 1\nb 1\na 2\nc 1\na 3\nd 1\na 4\ne 1\n";

#[test]
fn a_plan_has_the_chain_the_useful_slots_the_least_time_and_the_hottest_keys() {
    let outcome = run(&["--plan", "-j", "8", "--key", "1"], ORDERS);
    outcome.expect(0, &[]);
    let expected = "\
records        8
keys           5
longest chain  4 records one after another to the last of key a
useful -j      at most 2: more slots cannot shorten the run
least time     4 times that of a record with -j 8, set by the chain
hottest keys   key a: 4 records, 50.0 %
               key b: 1 record, 12.5 %
               key c: 1 record, 12.5 %
               key d: 1 record, 12.5 %
               key e: 1 record, 12.5 %
";
    assert_eq!(outcome.stdout, expected);
    let timed = run(&["--plan", "-j1", "--plan-duration", "30s", "--key", "1"], ORDERS);
    let line = "least time     4 min 0 s: 8 times that of a record with -j 1, set by the number of slots\n";
    assert!(timed.stdout.contains(line), "{timed:?}");
}

/// The command would create the file, and no log or trace begins.
#[test]
fn a_plan_runs_nothing_and_writes_no_file() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("orders"), ORDERS).unwrap();
    let words = "--plan --key 1 --log log --trace trace orders -- touch ran";
    let mut command = keylane(words.split(' '));
    command.current_dir(folder.path());
    feed(command, b"").expect(0, &[]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn several_keys_and_barriers_make_longer_chains() {
    let transfers = "\
{\"from\":\"a\",\"to\":\"b\"}
{\"from\":\"b\",\"to\":\"c\"}
{\"from\":\"c\",\"to\":\"d\"}
{\"end\":\"day\"}
{\"from\":\"a\",\"to\":\"b\"}
";
    let words = ["--plan", "-j4", "--ndjson", "--key", ".from", "--key", ".to"];
    let plan = run(&words, transfers);
    // The record without a key waits for none, and the last one for the first two.
    plan.expect(0, &[]);
    assert!(plan.stdout.contains("longest chain  3 records one after another"), "{plan:?}");
    assert!(plan.stdout.contains("without a key  1\n"), "{plan:?}");
    let plan = run(&[&words[..], &["--barrier", "end=day"]].concat(), transfers);
    assert!(
        plan.stdout.contains("longest chain  5 records one after another over all barriers"),
        "{plan:?}"
    );
    assert!(plan.stdout.contains("useful -j      1: no two records"), "{plan:?}");
    assert!(plan.stdout.contains("barriers       1\n"), "{plan:?}");
}

#[test]
fn limits_rates_and_samples_count() {
    let plan =
        |words: &[&str]| run(&[&["--plan", "-j8", "--key", "1"], words].concat(), ORDERS).stdout;
    assert!(plan(&["--limit-per-key", "2"]).contains("longest chain  2 records"));
    assert!(plan(&["--rate", "1/m"]).contains("at least 7 min 0 s by the rates"));
    assert!(plan(&["--rate-per-key", "1/h"]).contains("at least 3 h 0 min by the rates"));
    assert!(plan(&["--latest"]).contains("fewer records run"));
    let sample = plan(&["--plan-sample", "3"]);
    assert!(
        sample.contains("records        3, a sample from the beginning of the input"),
        "{sample}"
    );
    assert!(!plan(&["--plan-sample", "8"]).contains("a sample"));
}

/// The plan of the records before is printed, and the error is that of a run.
#[test]
fn an_input_that_cannot_be_read_is_the_error_of_a_run() {
    let outcome = run(&["--plan", "--ndjson", "--key", "a"], "{\"a\":1}\n{\"a\":}\n");
    outcome.expect(255, &["standard input:2: not valid JSON"]);
    assert!(outcome.stdout.starts_with("records        1\n"), "{outcome:?}");
    let outcome = run(&["--plan", "--key", "3", "--no-key", "error"], "a b\n");
    outcome.expect(255, &["standard input:1: the record has no key"]);
    let words = ["--plan", "--csv", "--header", "--key", "a", "--", "echo", "{c}"];
    run(&words, "a,b\n").expect(255, &["the columns are a, b"]);
    run(&["--key", "1"], "").expect(255, &["<COMMAND>"]);
    run(&["--plan", "--key", "1"], "").expect(0, &[]);
}
