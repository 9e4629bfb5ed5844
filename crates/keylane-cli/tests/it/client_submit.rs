//! `keylane submit`: a job goes in whole or not at all, and its id comes out.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use crate::common::{Outcome, feed, finish, subcommand};
use crate::mock::{Answer, ID, Mock, event, job};
use serde_json::json;

/// A server that takes every job.
fn taking() -> Mock {
    Mock::start(|_| Answer::new(202, &job("queued", 0, 1)))
}

fn submit(mock: &Mock, words: &[&str], input: &str) -> Outcome {
    feed(mock.command(&[&["submit"], words].concat()), input.as_bytes())
}

#[test]
fn a_job_names_its_priority_and_the_jobs_before_it() {
    let mock = taking();
    let words = ["resize", "--payload", "1", "--priority", "low", "--after", "a", "--after", "b"];
    submit(&mock, &[&words[..], &["--after-end"]].concat(), "").expect(0, &[]);
    let sent = String::from_utf8_lossy(&mock.asked()[0].body).into_owned();
    let expected =
        r#"{"kind":"resize","priority":"low","payload":1,"after":["a","b"],"after_on":"end"}"#;
    assert_eq!(sent, expected);
    submit(&mock, &["resize", "--payload", "1", "--after-end"], "").expect(255, &["--after"]);
    submit(&mock, &["resize", "--payload", "1", "--priority", "urgent"], "").expect(255, &["high"]);
}

#[test]
fn one_payload_is_one_subtask_and_the_id_is_all_that_is_printed() {
    let mock = taking();
    let words = [
        "resize",
        "--payload",
        "{\"n\": 1.50}",
        "--key",
        "u7",
        "--delay",
        "5m",
        "--label",
        "team=a",
    ];
    let outcome = submit(&mock, &[&words[..], &["--idempotency-key", "once"]].concat(), "");
    outcome.expect(0, &[]);
    assert_eq!((outcome.stdout, outcome.stderr), (format!("{ID}\n"), String::new()));
    let asked = mock.asked();
    assert_eq!((asked.len(), asked[0].line()), (1, "POST /v1/jobs".into()));
    assert_eq!(asked[0].header("idempotency-key"), Some("once"));
    assert_eq!(asked[0].header("content-type"), Some("application/json"));
    let expected = r#"{"kind":"resize","labels":{"team":"a"},"payload":{"n": 1.50},"key":"u7","delay_ms":300000}"#;
    assert_eq!(String::from_utf8_lossy(&asked[0].body), expected);
}

#[test]
fn an_input_without_any_key_is_noted() {
    let mock = taking();
    let words = ["resize", "--ndjson", "-", "--key", ".user"];
    let note = "keylane: note: no record had a key; check --key\n";
    let noted = |input: &str| submit(&mock, &words, input).expect(0, &[]).stderr.clone();
    assert_eq!(noted("{\"usr\":1}\n{\"user\":null}\n"), note);
    // With some keys there is no doubt about the option.
    assert_eq!(noted("{\"usr\":1}\n{\"user\":2}\n"), "");
}

#[test]
fn with_json_the_whole_answer_is_printed_in_a_line() {
    let mock = taking();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("payload.json");
    fs::write(&file, "[1,\n2]").unwrap();
    let outcome =
        submit(&mock, &["resize", "--payload-file", file.to_str().unwrap(), "--json"], "");
    assert_eq!(outcome.expect(0, &[]).stdout, format!("{}\n", job("queued", 0, 1)));
    assert_eq!(mock.asked()[0].json()["payload"], json!([1, 2]));
    submit(&mock, &["resize", "--payload-file", "-"], "\"from the pipe\"").expect(0, &[]);
    assert_eq!(mock.asked()[1].json()["payload"], "from the pipe");
}

#[test]
fn lines_are_sent_as_a_stream_of_subtasks() {
    let mock = taking();
    let input: String =
        (0..50_000).map(|n| format!("{{\"user\":\"u{}\",\"n\":{n}}}\n", n % 7)).collect();
    let words = ["resize", "--ndjson", "-", "--key", ".user", "--name", "big"];
    assert_eq!(submit(&mock, &words, &input).expect(0, &[]).stdout, format!("{ID}\n"));
    let asked = &mock.asked()[0];
    assert_eq!(asked.header("content-type"), Some("application/x-ndjson"));
    assert_eq!(asked.header("transfer-encoding"), Some("chunked"));
    let lines = asked.lines();
    assert_eq!(lines[0], json!({"kind": "resize", "name": "big"}));
    assert_eq!(lines.len(), 50_001);
    for (n, line) in lines[1..].iter().enumerate() {
        let user = format!("u{}", n % 7);
        assert_eq!(*line, json!({"key": user, "payload": {"user": user, "n": n}}));
    }
}

#[test]
fn tables_and_plain_lines_become_payloads() {
    let mock = taking();
    let words = ["resize", "--csv", "-", "--header", "--key", "user", "--null-value", "NA"];
    submit(&mock, &words, "user,n\na,1\nNA,2\n").expect(0, &[]);
    submit(&mock, &["resize", "--lines", "-"], "x y\n").expect(0, &[]);
    let asked = mock.asked();
    let rows = [
        json!({"kind": "resize"}),
        json!({"key": "a", "payload": {"user": "a", "n": "1"}}),
        json!({"payload": {"user": "NA", "n": "2"}}),
    ];
    assert_eq!(asked[0].lines(), rows);
    assert_eq!(asked[1].lines(), [json!({"kind": "resize"}), json!({"payload": "x y"})]);
}

#[test]
fn an_input_that_breaks_off_submits_nothing() {
    let mock = taking();
    // Enough before the flaw that much of it is on its way.
    let input = format!("{}{{\"n\":\n", "{\"n\":1}\n".repeat(100_000));
    let outcome = submit(&mock, &["resize", "--ndjson", "-"], &input);
    outcome.expect(255, &["the job was not submitted", "standard input:100001: not valid JSON"]);
    assert_eq!(outcome.stdout, "");
    assert!(mock.asked().iter().all(|request| !request.is_whole), "{:?}", mock.lines());
}

/// A job without subtasks was accepted, and succeeded at once: a script whose list was empty by a mistake did not notice.
#[test]
fn an_empty_input_submits_nothing_unless_it_may_be_empty() {
    let mock = taking();
    for format in ["--lines", "--ndjson", "--subtasks"] {
        let outcome = submit(&mock, &["resize", format, "-"], "");
        outcome.expect(255, &["the job was not submitted: standard input has no records"]);
        assert_eq!(outcome.stdout, "");
    }
    assert!(mock.asked().iter().all(|request| !request.is_whole), "{:?}", mock.lines());
    let outcome = submit(&mock, &["resize", "--lines", "-", "--allow-empty"], "");
    assert_eq!(outcome.expect(0, &[]).stdout, format!("{ID}\n"));
    assert_eq!(mock.asked().last().unwrap().lines(), [json!({"kind": "resize"})]);
    submit(&mock, &["resize", "--payload", "1", "--allow-empty"], "")
        .expect(255, &["--allow-empty is about the records of an input"]);
}

#[test]
fn a_record_without_a_key_submits_nothing_if_it_must_have_one() {
    let mock = taking();
    let words = ["resize", "--ndjson", "-", "--key", ".u", "--no-key", "error"];
    submit(&mock, &words, "{\"u\":1}\n{}\n")
        .expect(255, &["the job was not submitted", "has no key"]);
    assert!(mock.asked().iter().all(|request| !request.is_whole));
}

#[test]
fn killed_while_it_sends_it_has_submitted_nothing() {
    let mock = taking();
    let mut child = mock.command(&["submit", "resize", "--lines", "-"]).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // More than it keeps to itself, so that the request is under way; it waits for more of it.
    stdin.write_all("line\n".repeat(300_000).as_bytes()).unwrap();
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().code(), None);
    drop(stdin);
    assert!(mock.asked().iter().all(|request| !request.is_whole));
}

#[test]
fn an_id_of_ones_own_is_put() {
    let mock = taking();
    submit(&mock, &["resize", "--payload", "1", "--id", "order-4711"], "").expect(0, &[]);
    submit(&mock, &["resize", "--lines", "-", "--id", "a:b"], "x\ny\n").expect(0, &[]);
    assert_eq!(mock.lines(), ["PUT /v1/jobs/order-4711", "PUT /v1/jobs/a:b"]);
    assert_eq!(mock.asked()[0].json(), json!({"kind": "resize", "payload": 1}));
    assert_eq!(mock.asked()[1].lines().len(), 3);
    submit(&mock, &["resize", "--payload", "1", "--id", ".."], "")
        .expect(255, &["must not be empty"]);
}

#[test]
fn a_refusal_is_said_in_the_servers_words_with_its_places() {
    let mock = Mock::start(|_| {
        let mut answer = json!({"type": "/problems/invalid", "title": "no", "status": 422, "code": "invalid",
                                "detail": "there is no kind `x`", "instance": "1-1"});
        answer["errors"] = json!([{"pointer": "/kind", "detail": "there is: resize"}]);
        Answer::new(422, &answer)
    });
    let outcome = submit(&mock, &["x", "--payload", "1"], "");
    outcome.expect(4, &["keylane: there is no kind `x` (422 invalid)", "/kind: there is: resize"]);
    assert_eq!(outcome.stdout, "");
    submit(&mock, &["x", "--lines", "-"], "a\n").expect(4, &["there is no kind `x`"]);
}

#[test]
fn a_full_server_says_when_to_try_again() {
    let mock =
        Mock::start(|_| Answer::problem(429, "backlog-full", "5 wait").with("retry-after", "7"));
    submit(&mock, &["x", "--payload", "1"], "").expect(4, &["5 wait", "try again in 7 s"]);
}

#[test]
fn a_server_that_is_not_there_is_said_to_be() {
    // The system gives this port to no other program by chance.
    let words = ["resize", "--payload", "1", "--server", "http://127.0.0.1:1"];
    let outcome = feed(subcommand("submit", words), b"");
    outcome.expect(5, &["was not reached", "is `keylane serve` running there?"]);
    assert_eq!(outcome.stdout, "");
}

#[test]
fn invalid_arguments_are_refused_before_any_request() {
    let mock = taking();
    submit(&mock, &["resize"], "").expect(255, &["there is nothing to do: give --payload"]);
    submit(&mock, &["resize", "--payload", "text"], "").expect(255, &["the payload is not JSON"]);
    submit(&mock, &["resize", "--lines", "/no/such/file"], "")
        .expect(255, &["cannot open /no/such/file"]);
    submit(&mock, &["resize", "--server", "localhost:1", "--payload", "1"], "")
        .expect(255, &["http://"]);
    assert_eq!(mock.lines(), [""; 0]);
}

#[test]
fn the_token_comes_from_a_file_or_the_environment_and_is_never_shown() {
    let secret = "very-secret-token-1234";
    let mock = Mock::start(|_| {
        Answer::problem(401, "unauthorized", "this server does not know the token")
    });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, format!("{secret}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let words = ["resize", "--payload", "1", "--token-file", file.to_str().unwrap()];
    let from_file = submit(&mock, &words, "");
    let mut command = mock.command(&["submit", "resize", "--payload", "1"]);
    let from_environment = feed(take(command.env("KEYLANE_TOKEN", secret)), b"");
    for outcome in [from_file, from_environment] {
        outcome.expect(4, &["does not know the token", "--token-file"]);
        assert!(!format!("{outcome:?}").contains(secret));
    }
    let expected = format!("Bearer {secret}");
    assert!(mock.asked().iter().all(|asked| asked.header("authorization") == Some(&expected)));
    assert_eq!(mock.asked().len(), 2);
    fs::write(&file, "\n").unwrap();
    submit(&mock, &words, "").expect(255, &["there is no token in the first line"]);
}

fn take(command: &mut Command) -> Command {
    std::mem::replace(command, Command::new("true"))
}

#[test]
fn with_wait_it_exits_by_how_the_job_ended() {
    for (state, code) in [("succeeded", 0), ("failed", 1), ("cancelled", 3)] {
        let mock = Mock::start(move |request| match &*request.line() {
            "POST /v1/jobs" => Answer::new(202, &job("queued", 0, 1)),
            path if path.ends_with("/events") => {
                Answer::events(event("1-1", "job_ended", &job(state, 10, 2)))
            }
            _ => Answer::ok(&job("queued", 0, 1)).with("etag", "W/\"1\""),
        });
        let outcome = submit(&mock, &["resize", "--payload", "1", "--wait"], "");
        assert_eq!(outcome.expect(code, &[state]).stdout, format!("{ID}\n"));
        let outcome = submit(&mock, &["resize", "--payload", "1", "--wait", "--json"], "");
        let printed: serde_json::Value =
            serde_json::from_str(&outcome.expect(code, &[]).stdout).unwrap();
        assert_eq!(printed["state"], state);
    }
}

#[test]
fn when_the_time_to_wait_is_over_the_job_is_left_alone() {
    let mock = Mock::start(|request| match &*request.line() {
        "POST /v1/jobs" => Answer::new(202, &job("queued", 0, 1)),
        path if path.ends_with("/events") => Answer::stream(|stream| {
            // Nothing comes; the other side goes.
            drop(std::io::Read::read(stream, &mut [0]));
            Ok(())
        }),
        _ => Answer::ok(&job("queued", 0, 1)),
    });
    let outcome = submit(&mock, &["resize", "--payload", "1", "--wait=50ms"], "");
    outcome.expect(6, &["is not over; `keylane watch` follows it"]);
    assert!(!mock.lines().iter().any(|line| line.ends_with("/cancel")));
}

#[test]
fn a_reader_of_the_id_that_is_gone_is_no_error() {
    let mock = taking();
    let mut command = mock.command(&["submit", "resize", "--payload", "1"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let child = command.stdin(Stdio::null()).stdout(writer).spawn().unwrap();
    let outcome = finish(child);
    assert_eq!((outcome.code, &*outcome.stderr), (141, ""));
}
