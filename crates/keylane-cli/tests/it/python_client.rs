//! The example client in Python says what it says it does: submits, waits, follows, reads results, and works.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::common::{Outcome, feed};
use crate::mock::{Answer, ID, Mock, Request, event, job};
use keylane_testkit::{Missing, or_skip};
use serde_json::{Value, json};

/// Runs a program that has the client as `keylane`. None where there is no Python.
fn python(mock: &Mock, program: &str) -> Option<Outcome> {
    let version = Command::new("python3").arg("--version").output();
    or_skip(version.map_err(|_| Missing::new("there is no python3; install it")))?;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/python");
    let program = format!(
        "import json\nfrom keylane_client import *\nkeylane = Keylane({:?}, 'a-token-of-ours')\n{program}",
        mock.url
    );
    let mut command = Command::new("python3");
    command.args(["-B", "-c", &program]).current_dir(folder);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Some(feed(command, b""))
}

fn is_stream(request: &Request) -> bool {
    request.path.ends_with("/events")
}

#[test]
fn it_submits_and_waits_and_reads_results() {
    let mock = Mock::start(|request| match &*request.line() {
        "POST /v1/jobs" => Answer::new(202, &job("queued", 0, 1)),
        line if line.contains("cursor=2") => Answer::ok(&json!({"items": [{"number": 2}]})),
        line if line.contains("/results") => {
            Answer::ok(&json!({"items": [{"number": 0}, {"number": 1}], "next_cursor": "2"}))
        }
        _ => match request.header("if-none-match") {
            None => Answer::ok(&job("queued", 0, 1)),
            Some("W/\"1\"") => Answer::ok(&job("running", 3, 2)),
            Some(_) => Answer::ok(&job("succeeded", 10, 3)),
        },
    });
    let program = "
job = keylane.submit('resize', {'n': 1}, key='u7', idempotency_key='once', name='nightly')
job = keylane.wait(job['id'])
print(job['state'], [result['number'] for result in keylane.results(job['id'], order='key')])
keylane.submit_lines('resize', ({'key': str(n % 3), 'payload': n} for n in range(20000)))
";
    let Some(outcome) = python(&mock, program) else { return };
    assert_eq!(outcome.expect(0, &[]).stdout, "succeeded [0, 1, 2]\n");
    let asked = mock.asked();
    assert!(
        asked.iter().all(|asked| asked.header("authorization") == Some("Bearer a-token-of-ours"))
    );
    let expected = json!({"kind": "resize", "payload": {"n": 1}, "key": "u7", "name": "nightly"});
    assert_eq!((asked[0].json(), asked[0].header("idempotency-key")), (expected, Some("once")));
    let lines = asked.last().unwrap().lines();
    assert_eq!((lines.len(), &lines[0]), (20_001, &json!({"kind": "resize"})));
    assert_eq!(lines[20_000], json!({"key": "1", "payload": 19_999}));
}

#[test]
fn it_submits_nothing_when_its_subtasks_break_off() {
    let mock = Mock::start(|_| Answer::new(202, &job("queued", 0, 1)));
    let program = "
def subtasks():
    for n in range(100000):
        yield {'payload': n}
    raise ValueError('no more')

try:
    keylane.submit_lines('resize', subtasks())
except ValueError as error:
    print(error)
";
    let Some(outcome) = python(&mock, program) else { return };
    assert_eq!(outcome.expect(0, &[]).stdout, "no more\n");
    assert!(mock.asked().iter().all(|request| !request.is_whole));
}

#[test]
fn it_follows_events_where_they_broke_off() {
    let streams = AtomicUsize::new(0);
    let mock = Mock::start(move |request| match is_stream(request) {
        true => match streams.fetch_add(1, SeqCst) {
            0 => Answer::events(format!(
                ": ping\n\nretry: 1\n{}",
                event("7-1", "job_changed", &job("running", 4, 2))
            )),
            _ => Answer::events(event("7-2", "job_ended", &job("failed", 10, 3))),
        },
        false => unreachable!("events say it all"),
    });
    let program = "
for event in keylane.events('job_1'):
    print(event['event'], event['job']['state'])
";
    let Some(outcome) = python(&mock, program) else { return };
    assert_eq!(outcome.expect(0, &[]).stdout, "job_changed running\njob_ended failed\n");
    let after: Vec<_> = mock.asked().into_iter().filter(is_stream).collect();
    assert_eq!(after[1].header("last-event-id"), Some("7-1"));
}

#[test]
fn a_refusal_is_an_exception_with_its_code_and_places() {
    let mock = Mock::start(|_| {
        let body = json!({"detail": "no kind `x`", "code": "invalid",
                          "errors": [{"pointer": "/kind", "detail": "there is: resize"}]});
        Answer::new(422, &body)
    });
    let program = "
try:
    keylane.submit('x', 1)
except Refused as refused:
    print(refused.status, refused.code, refused)
";
    let Some(outcome) = python(&mock, program) else { return };
    let expected = "422 invalid no kind `x` (422 invalid); /kind: there is: resize\n";
    assert_eq!(outcome.expect(0, &[]).stdout, expected);
}

/// A lease with this payload that ends in the given number of seconds.
fn lease(number: u32, payload: &Value) -> Value {
    // Its end is past, so that it is kept at once.
    json!({"id": format!("lease_{number}"), "job": ID, "kind": "resize", "number": number, "keys": ["u7"],
           "attempt": 2, "fence": 70 + number, "payload": payload, "expires_at": "2026-01-31T12:00:00.000Z"})
}

#[test]
fn its_worker_completes_fails_and_gives_up_what_is_lost() {
    let (claims, refusals) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let mock = Mock::start(move |request| match &*request.line() {
        "POST /v1/leases" => match claims.fetch_add(1, SeqCst) {
            0 => Answer::problem(503, "unavailable", "the server is starting"),
            1 => {
                let payloads = [json!("well"), json!("passing"), json!("lasting"), json!("lost")];
                let leases: Vec<_> =
                    (1..).zip(&payloads).map(|(n, payload)| lease(n, payload)).collect();
                Answer::ok(&json!({ "leases": leases }))
            }
            _ => Answer::ok(&json!({"leases": [lease(5, &json!("last"))]})),
        },
        "POST /v1/leases/lease_4/complete" => Answer::problem(409, "lease-lost", "it has ended"),
        "POST /v1/leases/lease_2/fail" => Answer::problem(507, "not-yet-written", "it is taken"),
        "POST /v1/leases/lease_5/complete" if refusals.fetch_add(1, SeqCst) == 0 => {
            Answer::problem(507, "disk-full", "the disk is full")
        }
        line if line.ends_with("/heartbeat") => {
            Answer::ok(&json!({"expires_at": "2026-01-31T12:00:00.000Z", "cancel": false}))
        }
        _ => Answer::new(204, &json!(null)),
    });
    let program = "
stop = threading.Event()

def handler(task):
    if task.payload == 'passing':
        raise ValueError('not today')
    if task.payload == 'lasting':
        raise Lasting('never')
    if task.payload == 'last':
        stop.set()
    return [task.payload, task.keys, task.attempt, task.fence]

keylane.work(['resize'], handler, worker='w1', stop=stop)
";
    let Some(outcome) = python(&mock, program) else { return };
    outcome.expect(0, &["the server is starting", "lease lost", "it is taken", "the disk is full"]);
    let asked = mock.asked();
    let claim = json!({"kinds": ["resize"], "max": 1, "wait_ms": 20_000, "worker": "w1"});
    assert_eq!(asked[0].json(), claim);
    let told = asked.iter().filter(|request| !request.path.ends_with("/heartbeat"));
    let told: Vec<_> = told.filter(|request| request.path.contains("lease_")).collect();
    let told: Vec<_> = told.iter().map(|request| (request.path.as_str(), request.json())).collect();
    let expected = [
        ("/v1/leases/lease_1/complete", json!({"result": ["well", ["u7"], 2, 71]})),
        ("/v1/leases/lease_2/fail", json!({"error": "ValueError: not today", "retry": true})),
        ("/v1/leases/lease_3/fail", json!({"error": "never", "retry": false})),
        ("/v1/leases/lease_4/complete", json!({"result": ["lost", ["u7"], 2, 74]})),
        // Until it is taken.
        ("/v1/leases/lease_5/complete", json!({"result": ["last", ["u7"], 2, 75]})),
        ("/v1/leases/lease_5/complete", json!({"result": ["last", ["u7"], 2, 75]})),
    ];
    assert_eq!(told, expected);
}

#[test]
fn a_lease_is_kept_while_its_work_goes_on_and_a_cancelled_one_is_told() {
    let mock = Mock::start(|request| match &*request.line() {
        "POST /v1/leases" => Answer::ok(&json!({"leases": [lease(1, &json!("long"))]})),
        line if line.ends_with("/heartbeat") => {
            Answer::ok(&json!({"expires_at": "2026-01-31T12:00:00.000Z", "cancel": true}))
        }
        _ => Answer::new(204, &json!(null)),
    });
    let program = "
stop = threading.Event()

def handler(task):
    stop.set()
    print(task.cancelled.wait(60))
    raise Lasting('nobody wants it')

keylane.work(['resize'], handler, stop=stop)
";
    let Some(outcome) = python(&mock, program) else { return };
    assert_eq!(outcome.expect(0, &[]).stdout, "True\n");
    let lines = mock.lines();
    // It is kept until the failure is told, and perhaps a moment longer.
    let (kept, told): (Vec<_>, Vec<_>) =
        lines.iter().partition(|line| line.ends_with("/heartbeat"));
    assert!(!kept.is_empty());
    assert_eq!(told, ["POST /v1/leases", "POST /v1/leases/lease_1/fail"]);
}
