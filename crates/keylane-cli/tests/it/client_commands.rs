//! `keylane status`, `results`, `logs`, `cancel`, `pause`, `resume`, `retry`, `keys`, `schedules` and `audit`: what they ask, and what they print.

use std::io::{BufRead, BufReader};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::common::served::{Place, Served};
use crate::common::{Outcome, feed, finish};
use crate::mock::{Answer, ID, Mock, job};
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
fn jobs_that_cannot_be_shown_are_named() {
    let problem = "the row of job 7 is damaged; `DELETE /v1/jobs/job_7` removes it\u{1b}[2J";
    let mock = Mock::start(move |_| {
        let damaged = json!([{"id": "job_7", "number": 7, "problem": problem}]);
        Answer::ok(&json!({"items": [job("failed", 10, 2)], "damaged": damaged}))
    });
    for words in [&["status"][..], &["status", "--json"]] {
        let outcome = run(&mock, words);
        outcome.expect(0, &["not shown: the row of job 7 is damaged", "DELETE"]);
        assert!(!outcome.stderr.contains('\u{1b}'), "{}", outcome.stderr);
    }
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
            format!("GET /v1/jobs/{ID}"),
            format!("{path}?order=submit&limit=1000"),
            format!("{path}?order=submit&limit=1000&cursor=2"),
            format!("GET /v1/jobs/{ID}"),
            format!("{path}?order=key&limit=1000"),
            format!("{path}?order=key&limit=1000&cursor=2"),
        ]
    );
}

/// What an attempt said as the server says it.
fn log(attempt: u32, state: &str, left_out: u64, text: &str) -> Value {
    json!({"attempt": attempt, "fence": attempt, "state": state, "started_at": "2026-01-31T12:00:00.000Z",
           "left_out_bytes": left_out, "text": text, "of_the_future": 1})
}

#[test]
fn logs_are_printed_by_attempt_as_text_and_no_more() {
    let mock = Mock::start(|request| match request.path.contains("/3/") {
        // With a colour, a bell, a tab, and no line end.
        true => Answer::ok(&json!({"items": [
            log(1, "failed", 12, "a \u{1b}[31mred\u{7} line\r\n\tan indented one\n"), log(2, "running", 0, "so far"),
        ]})),
        false => Answer::ok(&json!({"items": []})),
    });
    let outcome = run(&mock, &["logs", ID, "3"]);
    let said = "==> attempt 1, failed, 2026-01-31T12:00:00.000Z <==\n[12 bytes left out]\n\
                a \\u{1b}[31mred\\u{7} line\n\tan indented one\n\
                ==> attempt 2, running, 2026-01-31T12:00:00.000Z <==\nso far\n";
    assert_eq!(outcome.expect(0, &[]).stdout, said);
    let outcome = run(&mock, &["logs", ID, "3", "--json"]);
    let lines: Vec<_> = outcome.expect(0, &[]).stdout.lines().collect();
    assert_eq!(lines[1], log(2, "running", 0, "so far").to_string());
    // Of a job of one subtask its number goes without saying.
    let outcome = run(&mock, &["logs", ID]);
    assert_eq!(outcome.expect(0, &["no attempt at the subtask has a log"]).stdout, "");
    let path = |number: u32| format!("GET /v1/jobs/{ID}/subtasks/{number}/logs");
    assert_eq!(mock.lines(), [path(3), path(3), path(0)]);
}

#[test]
fn results_of_a_job_that_goes_on_end_where_it_is() {
    // As the server does it in the order of the ends: there is always a next page.
    let mock = Mock::start(|request| match request.path.contains("/results") {
        false => Answer::ok(&job("running", 4, 2)),
        true if request.path.contains("cursor=9") => {
            Answer::ok(&json!({"items": [], "next_cursor": "9"}))
        }
        true => Answer::ok(&json!({"items": [result(0, "succeeded")], "next_cursor": "9"})),
    });
    let outcome = run(&mock, &["results", ID, "--order", "completion"]);
    let said = format!(
        "keylane: {ID} is not over: 4 of 10 subtasks have ended; add --follow to wait for the others\n"
    );
    assert_eq!((numbers(outcome.expect(0, &[])), outcome.stderr), (vec![0], said));
}

/// The output was empty, as that of a job without results is.
#[test]
fn results_of_a_job_without_any_yet_say_so() {
    let mut place = Place::new("");
    let server = Served::start(&place, &[]);
    let id = server.submit(&["alone", "--key", "ann"]);
    place.next();
    for order in ["submit", "completion", "key"] {
        let outcome = server.run(&["results", &id, "--order", order]);
        outcome.expect(0, &["is not over: 0 of 1 subtasks have ended; add --follow"]);
        assert_eq!(outcome.stdout, "");
    }
    place.let_end("well");
    server.run(&["watch", &id]).expect(0, &[]);
    let outcome = server.run(&["results", &id]);
    assert_eq!((outcome.stdout.lines().count(), &*outcome.stderr), (1, ""));
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
    run(&mock, &["retry", ID, "--subtask", "3", "--subtask", "0"]).expect(0, &[]);
    // A number with more digits than any number of the client.
    let payload = r#"{"n":1234567890123456789012}"#;
    run(&mock, &["retry", ID, "--subtask", "3", "--payload", payload]).expect(0, &[]);
    assert!(mock.asked().last().unwrap().body.ends_with(format!("{payload}}}]}}").as_bytes()));
    run(&mock, &["retry", ID, "--subtask", "3", "--payload", "null"]).expect(0, &[]);
    let several = ["retry", ID, "--subtask", "3", "--subtask", "0", "--payload", "1"];
    run(&mock, &several).expect(255, &["--payload replaces the payload of one subtask"]);
    run(&mock, &["retry", ID, "--payload", "1"]).expect(255, &["--subtask"]);
    run(&mock, &["retry", ID, "--subtask", "3", "--payload", "{"])
        .expect(255, &["the payload is not JSON"]);
    run(&mock, &["retry", ID, "--subtask", "3", "--only", "failed"]).expect(255, &["--only"]);
    let asked: Vec<_> = mock.asked().iter().map(|asked| (asked.line(), asked.json())).collect();
    let post = |id: &str, what: &str| format!("POST /v1/jobs/{id}/{what}");
    let expected = [
        (post(ID, "cancel"), json!({"mode": "kill", "reason": "too old"})),
        (post(ID, "pause"), json!({})),
        (post(ID, "resume"), json!({})),
        (post(ID, "retry"), json!({"only": "failed"})),
        (post("gone", "retry"), json!({"only": "unsuccessful"})),
        (post(ID, "retry"), json!({"only": "unsuccessful"})),
        (post(ID, "retry"), json!({"subtasks": [{"number": 3}, {"number": 0}]})),
        (
            post(ID, "retry"),
            json!({"subtasks": [{"number": 3, "payload": {"n": 1_234_567_890_123_456_789_012.0}}]}),
        ),
        (post(ID, "retry"), json!({"subtasks": [{"number": 3, "payload": null}]})),
    ];
    assert_eq!(asked, expected);
}

/// The line had the state, and nothing said that the command had changed nothing.
#[test]
fn a_job_that_has_ended_is_not_cancelled_and_the_command_says_so() {
    for (state, said) in [
        (
            "succeeded",
            format!("keylane: {ID} had already ended as succeeded; nothing was cancelled\n"),
        ),
        ("failed", format!("keylane: {ID} had already ended as failed; nothing was cancelled\n")),
        // By this command or an earlier one: the job is as it was wanted.
        ("cancelled", String::new()),
        ("cancelling", String::new()),
    ] {
        let mock = Mock::start(move |_| Answer::ok(&job(state, 10, 3)));
        let outcome = run(&mock, &["cancel", ID]);
        assert_eq!(outcome.expect(0, &[]).stdout, format!("{ID} {state}\n"));
        assert_eq!(outcome.stderr, said);
        let outcome = run(&mock, &["cancel", ID, "--json"]);
        assert_eq!(outcome.expect(0, &[]).stderr, said);
    }
}

#[test]
fn jobs_that_a_filter_finds_are_listed_first_and_steered_with_yes() {
    let mock = Mock::start(|request| match (&*request.method, request.path.contains("cursor=2")) {
        ("POST", _) => Answer::new(202, &job("cancelling", 4, 3)),
        (_, _) if request.path.contains("kind=none") => Answer::ok(&json!({"items": []})),
        (_, false) => Answer::ok(&json!({"items": [job("running", 4, 3)], "next_cursor": "2"})),
        (_, true) => {
            let mut second = job("queued", 0, 3);
            second["id"] = json!("job_second");
            let damaged = json!([{"id": "job_7", "number": 7, "problem": "job 7 is damaged"}]);
            Answer::ok(&json!({"items": [second], "damaged": damaged}))
        }
    });
    let words = ["cancel", "--kind", "resize", "--tenant", "ann"];
    let outcome = run(&mock, &words);
    let preview = "2 jobs match; nothing was done: add --yes to cancel them";
    outcome.expect(0, &[preview, "left out: job 7 is damaged"]);
    assert!(
        outcome.stdout.lines().nth(2).unwrap().starts_with("job_second "),
        "{}",
        outcome.stdout
    );
    let lists = |query: &str| {
        [
            format!("GET /v1/jobs?limit=1000&{query}"),
            format!("GET /v1/jobs?limit=1000&{query}&cursor=2"),
        ]
    };
    let states = "state=scheduled%2Cqueued%2Crunning%2Cpaused";
    let mut expected = lists(&format!("kind=resize&tenant=ann&{states}")).to_vec();
    assert_eq!(mock.lines(), expected);

    run(&mock, &[&words[..], &["--yes"]].concat()).expect(0, &["left out: job 7 is damaged"]);
    expected.extend(expected.clone());
    expected.extend([ID, "job_second"].map(|id| format!("POST /v1/jobs/{id}/cancel")));
    assert_eq!(mock.lines(), expected);

    run(&mock, &["retry", "--kind", "none", "--yes"]).expect(0, &["no job matches"]);
    run(&mock, &["retry", "--label", "a=b", "--only", "unsuccessful"]).expect(0, &["2 jobs match"]);
    run(&mock, &["resume", "--search", "x"]).expect(0, &["to resume them"]);
    run(&mock, &["pause", "--state", "running"]).expect(0, &["to pause them"]);
    expected.push("GET /v1/jobs?limit=1000&kind=none&state=failed".into());
    expected.extend(lists("label=a%3Ab&state=failed%2Ccancelled"));
    expected.extend(lists("q=x&state=paused"));
    expected.extend(lists("state=running"));
    assert_eq!(mock.lines(), expected);
}

#[test]
fn a_command_on_all_jobs_needs_a_filter() {
    let mock = Mock::start(|_| Answer::ok(&json!({"items": []})));
    run(&mock, &["cancel"])
        .expect(255, &["there are no jobs to cancel: give their ids, or a filter"]);
    run(&mock, &["cancel", "--yes"]).expect(255, &["there are no jobs to cancel"]);
    run(&mock, &["cancel", "--state", "", "--yes"]).expect(255, &["--state"]);
    run(&mock, &["cancel", ID, "--kind", "a"]).expect(255, &["--kind"]);
    run(&mock, &["retry", "--kind", "a", "--subtask", "1"]).expect(255, &["give its id"]);
    assert!(mock.lines().is_empty());
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
    run(&mock, &["keys", "pause", ".."]).expect(255, &["must not be empty"]);
}

#[test]
fn the_audit_log_is_listed_page_by_page_up_to_the_limit() {
    let at = "2026-01-31T12:00:00.000Z";
    let mock = Mock::start(move |request| {
        let entry = match request.path.contains("cursor=2") {
            false => {
                json!({"number": 3, "at": at, "who": "ann", "from": "10.0.0.7", "what": "job.cancel",
                "job": "job_1", "reason": "it\u{1b}[2J hangs", "parameters": {"mode": "kill"}, "outcome": "done"})
            }
            true => {
                json!({"number": 1, "at": at, "who": "bob", "what": "schedule.run", "schedule": "s",
                "outcome": "refused", "problem": "unknown", "unknown_to_us": 12345678901234567890_u64})
            }
        };
        match request.path.contains("cursor=") {
            false => Answer::ok(&json!({"items": [entry], "next_cursor": "4"})),
            // One on which nothing was found.
            true if request.path.contains("cursor=4") => {
                Answer::ok(&json!({"items": [], "next_cursor": "2"}))
            }
            true => Answer::ok(&json!({"items": [entry]})),
        }
    });
    let outcome = run(&mock, &["audit", "--limit", "5"]);
    let expected = "\
AT                        ACTOR  FROM      ACTION        TO     OUTCOME           HOW AND WHY
2026-01-31T12:00:00.000Z  ann    10.0.0.7  job.cancel    job_1  done              {\"mode\":\"kill\"} it\\u{1b}[2J hangs
2026-01-31T12:00:00.000Z  bob              schedule.run  s      refused: unknown
";
    assert_eq!(outcome.expect(0, &[]).stdout, expected);
    let all = [
        "--actor",
        "a&b",
        "--action",
        "job.cancel",
        "--job",
        "j",
        "--since",
        at,
        "--limit",
        "1",
        "--json",
    ];
    let outcome = run(&mock, &[&["audit"][..], &all].concat());
    outcome.expect(0, &["there are more; --limit shows more than 1"]);
    assert!(outcome.stdout.contains("\"number\":3"), "{outcome:?}");
    let asked = "what=job.cancel&job=j&since=2026-01-31T12%3A00%3A00.000Z";
    assert_eq!(
        mock.lines(),
        [
            "GET /v1/audit?limit=5".to_owned(),
            "GET /v1/audit?limit=4&cursor=4".to_owned(),
            "GET /v1/audit?limit=4&cursor=2".to_owned(),
            format!("GET /v1/audit?limit=1&who=a%26b&{asked}"),
        ]
    );
    run(&mock, &["audit", "--limit", "0"]).expect(255, &["--limit is one at least"]);
}

/// A schedule as the server says it.
fn schedule(name: &str) -> Value {
    json!({
        "name": name, "cron": "0 9 * * MON-FRI", "time_zone": "Europe/Berlin",
        "job": {"kind": "report", "payload": {"of": "yesterday"}}, "overlap": "skip", "missed": "once",
        "paused": false, "created_at": "2026-01-30T12:00:00.000Z", "changed_at": "2026-01-30T12:00:00.000Z",
        "next": ["2026-02-02T08:00:00.000Z", "2026-02-03T08:00:00.000Z"], "last_job": ID,
        "last_fired": "2026-01-30T08:00:00.000Z", "fired": 5, "passed": 2, "version": 3,
        "last_passed": {"at": "2026-01-29T08:00:00.000Z", "reason": "overlap", "text": "the job before was not over"},
        "unknown_to_us": 12345678901234567890_u64,
    })
}

#[test]
fn schedules_are_listed_page_by_page_up_to_the_limit() {
    let mock = Mock::start(|request| {
        if request.path.contains("cursor=c%2F1") {
            let mut held_up = schedule("c\u{1b}[2J");
            held_up["held_up"] = json!("the disk is full");
            return Answer::ok(&json!({"items": [held_up], "next_cursor": "c2"}));
        }
        let mut paused = schedule("b");
        (paused["paused"], paused["next"]) = (json!(true), json!([]));
        Answer::ok(&json!({"items": [schedule("a"), paused], "next_cursor": "c/1"}))
    });
    let outcome = run(&mock, &["schedules", "--limit", "3"]);
    outcome.expect(0, &["there are more; --limit shows more than 3"]);
    let lines: Vec<_> = outcome.stdout.lines().collect();
    let first = format!(
        "a           active   0 9 * * MON-FRI  Europe/Berlin  2026-02-02T08:00:00.000Z  {ID}"
    );
    assert_eq!(lines[1], first);
    assert!(lines[2].starts_with("b           paused ") && lines[2].contains(" - "), "{lines:?}");
    assert!(lines[3].starts_with("c\\u{1b}[2J  held up "), "{lines:?}");
    // The same with its word; as JSON, with what this version knows nothing of.
    let outcome = run(&mock, &["schedules", "list", "--limit", "2", "--json"]);
    assert_eq!(outcome.expect(0, &[]).stdout.lines().next(), Some(&*schedule("a").to_string()));
    let path = "GET /v1/schedules?limit";
    assert_eq!(
        mock.lines(),
        [format!("{path}=3"), format!("{path}=1&cursor=c%2F1"), format!("{path}=2")]
    );
}

#[test]
fn a_schedule_says_when_it_fires_and_why_it_did_not() {
    let mock = Mock::start(|request| match request.path.ends_with("gone") {
        true => Answer::problem(404, "unknown", "there is no schedule gone"),
        false => Answer::ok(&schedule("report")),
    });
    let expected = format!(
        "\
report: active
  cron        0 9 * * MON-FRI in Europe/Berlin
  job         {{\"kind\":\"report\",\"payload\":{{\"of\":\"yesterday\"}}}}
  overlap     skip
  missed      once
  fired       5, the last at 2026-01-30T08:00:00.000Z
  passed      2, the last at 2026-01-29T08:00:00.000Z: the job before was not over
  last job    {ID}
  next        2026-02-02T08:00:00.000Z
              2026-02-03T08:00:00.000Z
"
    );
    assert_eq!(run(&mock, &["schedules", "show", "report"]).expect(0, &[]).stdout, expected);
    run(&mock, &["schedules", "show", "gone"])
        .expect(4, &["there is no schedule gone", "`keylane schedules` lists the schedules"]);
    run(&mock, &["schedules", "show", ".."]).expect(255, &["must not be empty"]);
    assert_eq!(mock.lines(), ["GET /v1/schedules/report", "GET /v1/schedules/gone"]);
}

#[test]
fn a_schedule_is_set_as_the_api_has_it() {
    let mock = Mock::start(|_| Answer::new(201, &schedule("report")));
    let one = [
        "schedules",
        "set",
        "report",
        "--cron",
        "*/5 * * * *",
        "--kind",
        "report",
        "--payload",
        "{\"of\":1}",
        "--key",
        "a",
    ];
    let outcome = run(&mock, &one);
    assert!(outcome.expect(0, &[]).stdout.starts_with("report: active\n"), "{outcome:?}");
    let all = [
        "schedules",
        "set",
        "a/b",
        "--cron",
        "@daily",
        "--time-zone",
        "Europe/Berlin",
        "--overlap",
        "skip",
        "--missed",
        "skip",
        "--paused",
        "--job-file",
        "-",
        "--json",
    ];
    let job = json!({"kind": "report", "subtasks": [{"key": "a"}]});
    let outcome = feed(mock.command(&all), job.to_string().as_bytes());
    assert_eq!(outcome.expect(0, &[]).stdout, format!("{}\n", schedule("report")));
    let asked: Vec<_> = mock.asked().iter().map(|asked| (asked.line(), asked.json())).collect();
    let expected = [
        (
            "PUT /v1/schedules/report".to_owned(),
            json!({"cron": "*/5 * * * *", "job": {"kind": "report", "payload": {"of": 1}, "key": "a"},
                   "overlap": "allow", "missed": "once"}),
        ),
        (
            "PUT /v1/schedules/a%2Fb".to_owned(),
            json!({"cron": "@daily", "time_zone": "Europe/Berlin", "job": job, "overlap": "skip",
                   "missed": "skip", "paused": true}),
        ),
    ];
    assert_eq!(asked, expected);
    let types = mock.asked();
    assert!(types.iter().all(|asked| asked.header("content-type") == Some("application/json")));
    run(&mock, &["schedules", "set", "r", "--cron", "@daily", "--kind", "k"])
        .expect(255, &["there is nothing to do"]);
}

#[test]
fn a_schedule_is_steered() {
    let mock = Mock::start(|request| match &*request.method {
        "DELETE" => Answer::new(204, &json!(null)).without_body(),
        _ if request.path.ends_with("/run") => Answer::new(202, &job("queued", 0, 1)),
        _ => Answer::ok(&schedule("report")),
    });
    for what in ["pause", "resume"] {
        let outcome = run(&mock, &["schedules", what, "report"]);
        assert!(outcome.expect(0, &[]).stdout.starts_with("report: "), "{outcome:?}");
    }
    let outcome = run(&mock, &["schedules", "run", "report", "--idempotency-key", "today"]);
    assert_eq!(outcome.expect(0, &[]).stdout, format!("{ID}\n"));
    let outcome = run(&mock, &["schedules", "run", "report", "--json"]);
    assert_eq!(outcome.expect(0, &[]).stdout, format!("{}\n", job("queued", 0, 1)));
    let outcome = run(&mock, &["schedules", "remove", "report"]);
    assert_eq!(outcome.expect(0, &[]).stdout, "report removed\n");
    let path = "/v1/schedules/report";
    let expected = [
        format!("POST {path}/pause"),
        format!("POST {path}/resume"),
        format!("POST {path}/run"),
        format!("POST {path}/run"),
        format!("DELETE {path}"),
    ];
    assert_eq!(mock.lines(), expected);
    let keys: Vec<_> =
        mock.asked().iter().map(|asked| asked.header("idempotency-key").is_some()).collect();
    assert_eq!(keys, [false, false, true, false, false]);
}

#[test]
fn another_server_is_reported_as_none_of_keylane() {
    let mock = Mock::start(|_| Answer::ok(&json!({"hello": "world"})));
    run(&mock, &["status", ID]).expect(255, &["this is a Keylane server"]);
    let mock = Mock::start(|_| Answer::new(502, &json!("bad gateway")));
    run(&mock, &["status", ID]).expect(4, &["the answer was 502 Bad Gateway", "check --server"]);
}

#[test]
fn the_help_says_what_the_exit_codes_mean() {
    for name in [
        "submit",
        "status",
        "watch",
        "results",
        "logs",
        "cancel",
        "pause",
        "resume",
        "retry",
        "keys",
        "schedules",
        "top",
    ] {
        let outcome = feed(crate::common::subcommand(name, ["--help"]), b"");
        let said = &outcome.expect(0, &[]).stdout;
        assert!(said.contains("3 if it was cancelled") && said.contains("--token-file"), "{said}");
        let first = said.lines().next().unwrap();
        assert!(!first.contains("each command") && !first.contains("made of"), "{first}");
    }
}
