//! `keylane status`, `results`, `cancel`, `pause`, `resume`, `retry` and `keys`: what they ask, and what they print.

mod common;
mod mock;

use std::io::{BufRead, BufReader};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use common::{Outcome, feed, finish};
use mock::{Answer, ID, Mock, job};
use serde_json::{Value, json};

fn run(mock: &Mock, words: &[&str]) -> Outcome {
    feed(mock.command(words), b"")
}

#[test]
fn status_says_in_words_why_a_job_waits() {
    let mock = Mock::start(|_| {
        let mut waits = job("queued", 0, 1);
        waits["waiting_because"] = json!([
            {"reason": "key_order", "text": "behind subtask 3 of another job, for the key `u7`", "count": 9},
            {"reason": "of_the_future", "text": "for a reason that is new", "count": 1},
        ]);
        Answer::ok(&waits)
    });
    let outcome = run(&mock, &["status", ID]);
    let said = &outcome.expect(0, &[]).stdout;
    for part in [
        "queued: 0 of 10 done; 10 waiting",
        "name        nightly",
        "waits       9 × behind subtask 3 of another job, for the key `u7`",
        "            1 × for a reason that is new",
    ] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
    assert_eq!(mock.lines(), [format!("GET /v1/jobs/{ID}")]);
}

#[test]
fn status_with_json_keeps_what_the_server_said() {
    let mock = Mock::start(|_| Answer::ok(&job("queued", 0, 1)));
    let outcome = run(&mock, &["status", ID, "--json"]);
    // Also what this version knows nothing of.
    assert_eq!(outcome.expect(0, &[]).stdout, format!("{}\n", job("queued", 0, 1)));
}

#[test]
fn jobs_are_listed_page_by_page_up_to_the_limit() {
    let mock = Mock::start(|request| {
        let next = if request.path.contains("cursor=c1") { "c2" } else { "c1" };
        Answer::ok(
            &json!({"items": [job("running", 4, 2), job("failed", 10, 2)], "next_cursor": next}),
        )
    });
    let words = [
        "status",
        "--state",
        "running,failed",
        "--label",
        "team=a=b",
        "--search",
        "x&y",
        "--limit",
        "3",
    ];
    let outcome = run(&mock, &words);
    outcome.expect(0, &["there are more; --limit shows more than 3"]);
    let lines: Vec<_> = outcome.stdout.lines().collect();
    assert!(
        lines[0].starts_with("ID ")
            && lines[1].contains(" running   40%     10       0  resize  nightly")
    );
    let query = "state=running%2Cfailed&label=team%3Aa%3Db&q=x%26y";
    let expected = [
        format!("GET /v1/jobs?limit=3&{query}"),
        format!("GET /v1/jobs?limit=1&{query}&cursor=c1"),
    ];
    assert_eq!(mock.lines(), expected);
}

/// A result as the server says it.
fn result(number: u32, outcome: &str) -> Value {
    json!({"number": number, "outcome": outcome, "attempt": 1, "ended_at": "2026-01-31T12:00:00.000Z"})
}

fn numbers(outcome: &Outcome) -> Vec<u64> {
    let lines = outcome.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.map(|line| line["number"].as_u64().unwrap()).collect()
}

#[test]
fn results_are_printed_page_by_page() {
    let mock = Mock::start(|request| match request.path.contains("cursor=2") {
        false => Answer::ok(
            &json!({"items": [result(0, "succeeded"), result(1, "failed")], "next_cursor": "2"}),
        ),
        true => Answer::ok(&json!({"items": [result(2, "skipped"), result(3, "failed")]})),
    });
    assert_eq!(numbers(run(&mock, &["results", ID]).expect(0, &[])), [0, 1, 2, 3]);
    assert_eq!(
        numbers(run(&mock, &["results", ID, "--failed", "--order", "key"]).expect(0, &[])),
        [1, 3]
    );
    let path = format!("GET /v1/jobs/{ID}/results");
    assert_eq!(
        mock.lines(),
        [
            format!("{path}?order=submit&limit=1000"),
            format!("{path}?order=submit&limit=1000&cursor=2"),
            format!("{path}?order=key&limit=1000"),
            format!("{path}?order=key&limit=1000&cursor=2"),
        ]
    );
}

#[test]
fn results_of_a_job_that_goes_on_end_where_it_is() {
    // As the server does it in the order of the ends: there is always a next page.
    let mock = Mock::start(|request| match request.path.contains("cursor=9") {
        false => Answer::ok(&json!({"items": [result(0, "succeeded")], "next_cursor": "9"})),
        true => Answer::ok(&json!({"items": [], "next_cursor": "9"})),
    });
    assert_eq!(numbers(run(&mock, &["results", ID, "--order", "completion"]).expect(0, &[])), [0]);
}

#[test]
fn results_that_are_followed_come_as_they_are_there() {
    let pages = AtomicUsize::new(0);
    let mock = Mock::start(move |request| {
        if !request.path.contains("/results") {
            return Answer::ok(&job("running", 4, 2));
        }
        let page = match pages.fetch_add(1, SeqCst) {
            0 => json!({"items": [result(4, "succeeded")], "next_cursor": "1"}),
            1 | 2 => json!({"items": [], "next_cursor": "1"}),
            3 => json!({"items": [result(2, "failed")], "next_cursor": "2"}),
            _ => json!({"items": [result(7, "succeeded")]}),
        };
        Answer::ok(&page)
    });
    assert_eq!(numbers(run(&mock, &["results", ID, "--follow"]).expect(0, &[])), [4, 2, 7]);
    let lines = mock.lines();
    assert!(lines[0].contains("order=completion"), "{lines:?}");
    let waits =
        mock.asked().iter().filter(|asked| asked.header("prefer") == Some("wait=5")).count();
    assert_eq!(waits, 2);
}

#[test]
fn followed_in_another_order_they_come_when_the_job_is_over() {
    let mock = Mock::start(|request| match &*request.path {
        path if path.ends_with("/events") => {
            Answer::problem(404, "unknown", "there is no such path")
        }
        path if path.contains("/results") => {
            Answer::ok(&json!({"items": [result(0, "succeeded")]}))
        }
        _ => Answer::ok(&job("succeeded", 10, 3)),
    });
    let outcome = run(&mock, &["results", ID, "--follow", "--order", "submit"]);
    assert_eq!(numbers(outcome.expect(0, &[])), [0]);
    assert!(mock.lines().last().unwrap().contains("order=submit"));
}

#[test]
fn a_reader_that_has_had_enough_ends_the_results_quietly() {
    // Pages without an end.
    let mock = Mock::start(|request| {
        let cursor =
            request.path.split("cursor=").nth(1).map_or(0, |text| text.parse::<u64>().unwrap());
        let items = vec![result(1, "succeeded"); 500];
        Answer::ok(&json!({"items": items, "next_cursor": (cursor + 1).to_string()}))
    });
    let mut child = mock.command(&["results", ID]).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut String::new()).unwrap();
    drop(stdout);
    let outcome = finish(child);
    assert_eq!((outcome.code, &*outcome.stderr), (141, ""));
}

#[test]
fn jobs_are_steered_one_by_one() {
    let mock = Mock::start(|request| match request.path.contains("gone") {
        true => Answer::problem(410, "gone", "the job gone was purged"),
        false => Answer::new(202, &job("cancelling", 4, 3)),
    });
    let outcome = run(&mock, &["cancel", ID, "--kill", "--reason", "too old"]);
    assert_eq!(outcome.expect(0, &[]).stdout, format!("{ID} cancelling\n"));
    run(&mock, &["pause", ID]).expect(0, &[]);
    run(&mock, &["resume", ID]).expect(0, &[]);
    run(&mock, &["retry", ID]).expect(0, &[]);
    let outcome = run(&mock, &["retry", "gone", ID, "--only", "unsuccessful", "--json"]);
    outcome.expect(4, &["gone: the job gone was purged (410 gone)"]);
    assert_eq!(outcome.stdout.lines().count(), 1);
    let asked: Vec<_> = mock.asked().iter().map(|asked| (asked.line(), asked.json())).collect();
    let post = |id: &str, what: &str| format!("POST /v1/jobs/{id}/{what}");
    let expected = [
        (post(ID, "cancel"), json!({"mode": "kill", "reason": "too old"})),
        (post(ID, "pause"), json!({})),
        (post(ID, "resume"), json!({})),
        (post(ID, "retry"), json!({"only": "failed"})),
        (post("gone", "retry"), json!({"only": "unsuccessful"})),
        (post(ID, "retry"), json!({"only": "unsuccessful"})),
    ];
    assert_eq!(asked, expected);
}

#[test]
fn keys_are_listed_by_the_age_of_their_heads() {
    let mock = Mock::start(|_| {
        Answer::ok(&json!({"items": [
            {"key": "u7\u{1b}[2J", "state": "open", "length": 12, "head": {"job": ID, "number": 3,
             "state": "backing_off", "since": "2026-01-31T12:00:00.000Z", "age_ms": 61000, "attempts": 2}},
            {"key": "u8", "state": "paused", "length": 0},
        ]}))
    });
    let outcome = run(&mock, &["keys", "--limit", "5"]);
    let lines: Vec<_> = outcome.expect(0, &[]).stdout.lines().collect();
    assert!(lines[1].starts_with("u7\\u{1b}[2J  open "), "{lines:?}");
    assert!(lines[1].ends_with(&format!("1 min 1 s  {ID}/3  backing off, attempt 2")), "{lines:?}");
    assert!(lines[2].starts_with("u8"));
    run(&mock, &["keys", "--sort", "length", "--json"]).expect(0, &[]);
    assert_eq!(
        mock.lines(),
        ["GET /v1/keys?sort=head_age&limit=5", "GET /v1/keys?sort=length&limit=20"]
    );
}

#[test]
fn a_key_is_steered_whatever_is_in_it() {
    let mock =
        Mock::start(|_| Answer::ok(&json!({"key": "a/b ü?", "state": "paused", "length": 3})));
    for what in ["pause", "resume", "retry-head", "skip-head"] {
        let outcome = run(&mock, &["keys", what, "a/b ü?"]);
        assert!(outcome.expect(0, &[]).stdout.contains("a/b ü?  paused"), "{outcome:?}");
    }
    let path = "POST /v1/keys/a%2Fb%20%C3%BC%3F";
    let expected =
        ["pause", "resume", "retry-head", "skip-head"].map(|what| format!("{path}/{what}"));
    assert_eq!(mock.lines(), expected);
    // In a path these would be somewhere else.
    run(&mock, &["keys", "pause", ".."]).expect(255, &["cannot be named"]);
}

#[test]
fn what_is_no_keylane_server_is_said_to_be_none() {
    let mock = Mock::start(|_| Answer::ok(&json!({"hello": "world"})));
    run(&mock, &["status", ID]).expect(255, &["is that a Keylane server"]);
    let mock = Mock::start(|_| Answer::new(502, &json!("bad gateway")));
    run(&mock, &["status", ID]).expect(4, &["the answer was 502 Bad Gateway", "check --server"]);
}

#[test]
fn the_help_says_what_the_exit_codes_mean() {
    for name in [
        "submit", "status", "watch", "results", "cancel", "pause", "resume", "retry", "keys", "top",
    ] {
        let outcome = feed(common::subcommand(name, ["--help"]), b"");
        let said = &outcome.expect(0, &[]).stdout;
        assert!(said.contains("3 if it was cancelled") && said.contains("--token-file"), "{said}");
        let first = said.lines().next().unwrap();
        assert!(!first.contains("each command") && !first.contains("made of"), "{first}");
    }
}
