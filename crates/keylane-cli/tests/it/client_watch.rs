//! `keylane watch`: follows jobs to their end, whatever happens to the connection, and leaves them alone.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::common::{Outcome, feed, finish};
use crate::mock::{Answer, ID, Mock, Request, event, job};
use serde_json::json;

fn watch(mock: &Mock, words: &[&str]) -> Outcome {
    feed(mock.command(&[&["watch"], words].concat()), b"")
}

fn is_stream(request: &Request) -> bool {
    request.path.ends_with("/events")
}

/// A stream that stays open and silent until the other side goes.
fn silence() -> Answer {
    Answer::stream(|stream| stream.read(&mut [0]).map(drop))
}

#[test]
fn a_job_is_followed_by_its_events() {
    let mock = Mock::start(|request| match is_stream(request) {
        true => Answer::events(format!(
            "retry: 1\n: ping\n\n{}{}{}",
            event("1-1", "job_changed", &job("running", 4, 2)),
            // Later than the job that was asked for, and older.
            event("1-2", "job_changed", &job("running", 2, 1)),
            event("1-3", "job_ended", &job("succeeded", 10, 3)),
        )),
        false => Answer::ok(&job("queued", 0, 1)),
    });
    let outcome = watch(&mock, &[ID]);
    outcome.expect(
        0,
        &["queued: 0 of 10 done; 10 waiting", "running: 4 of 10", "succeeded: 10 of 10"],
    );
    assert_eq!(outcome.stderr.lines().count(), 3, "{outcome:?}");
    assert_eq!(outcome.stdout, "");
    assert_eq!(mock.asked()[0].header("accept"), Some("text/event-stream"));
}

/// `keylane watch NAME` waited for ever: it passed over the events of the job, which has an id of its own.
#[test]
fn a_job_is_followed_by_the_name_that_its_client_gave_it() {
    let looks = AtomicUsize::new(0);
    let mock = Mock::start(move |request| match is_stream(request) {
        true => Answer::events(event("1-3", "job_ended", &job("succeeded", 10, 3))),
        // A second look means that the event was passed over.
        false if looks.fetch_add(1, SeqCst) == 0 => Answer::ok(&job("queued", 0, 1)),
        false => Answer::ok(&job("failed", 10, 4)),
    });
    watch(&mock, &["order-4711"]).expect(0, &["succeeded: 10 of 10"]);
    let asked: Vec<_> = mock.asked().iter().map(|request| request.path.clone()).collect();
    assert_eq!(asked, ["/v1/jobs/order-4711/events", "/v1/jobs/order-4711"]);
}

#[test]
fn the_exit_code_says_how_the_jobs_ended() {
    let other = ID.replace('a', "b");
    let ended = |mine: &'static str, others: &'static str| {
        let other = other.clone();
        let mock = Mock::start(move |request| {
            let is_other = request.path.contains(&other);
            let mut ended = job(if is_other { others } else { mine }, 10, 2);
            ended["error"] = json!("no room");
            if is_other {
                ended["id"] = json!(other);
            }
            if is_stream(request) { silence() } else { Answer::ok(&ended) }
        });
        watch(&mock, &[ID, &ID.replace('a', "b")])
    };
    ended("succeeded", "succeeded").expect(0, &[]);
    ended("succeeded", "failed").expect(1, &["failed: 10 of 10 done; first error: no room"]);
    ended("cancelled", "succeeded").expect(3, &[]);
    ended("cancelled", "failed").expect(1, &[]);
}

#[test]
fn a_broken_stream_goes_on_where_it_was() {
    let streams = AtomicUsize::new(0);
    let mock = Mock::start(move |request| match is_stream(request) {
        true => match streams.fetch_add(1, SeqCst) {
            0 => Answer::events(format!(
                "retry: 1\n{}",
                event("7-1", "job_changed", &job("running", 4, 2))
            )),
            // Nothing new this time, and the connection breaks within an event.
            1 => Answer::events("data: {\"ev".into()),
            _ => Answer::events(event("7-2", "job_ended", &job("succeeded", 10, 5))),
        },
        false => Answer::ok(&job("running", 4, 2)),
    });
    watch(&mock, &[ID]).expect(0, &["succeeded"]);
    let after: Vec<_> = mock.asked().into_iter().filter(is_stream).collect();
    let after: Vec<_> = after.iter().map(|request| request.header("last-event-id")).collect();
    assert_eq!(after, [None, Some("7-1"), Some("7-1")]);
}

#[test]
fn missed_events_are_requested_again() {
    // The job ends between two streams, and no event says so.
    let asked = AtomicUsize::new(0);
    let mock = Mock::start(move |request| match is_stream(request) {
        true => Answer::events(format!(
            "retry: 1\n{}",
            event("7-1", "job_changed", &job("running", 4, 2))
        )),
        false => match asked.fetch_add(1, SeqCst) {
            0 => Answer::ok(&job("queued", 0, 1)),
            _ => Answer::ok(&job("failed", 10, 3)),
        },
    });
    watch(&mock, &[ID]).expect(1, &["running: 4", "failed"]);
}

/// A server counted the versions of a job that ended by another clock than those before, so that the end seemed to be
/// an old story; the stream stayed open, and the command waited for ever.
#[test]
fn an_end_that_seems_old_is_asked_for() {
    let asked = AtomicUsize::new(0);
    let mock = Mock::start(move |request| match is_stream(request) {
        true => Answer::stream(|stream| {
            let events = [
                event("1-1", "job_changed", &job("running", 4, 9)),
                event("1-2", "job_ended", &job("failed", 10, 3)),
            ];
            std::io::Write::write_all(stream, events.concat().as_bytes())?;
            stream.read(&mut [0]).map(drop)
        }),
        false => match asked.fetch_add(1, SeqCst) {
            0 => Answer::ok(&job("queued", 0, 1)),
            _ => Answer::ok(&job("failed", 10, 3)),
        },
    });
    watch(&mock, &[ID]).expect(1, &["running: 4", "failed"]);
}

#[test]
fn a_reset_is_answered_by_asking_for_the_job() {
    let asked = AtomicUsize::new(0);
    let mock = Mock::start(move |request| match is_stream(request) {
        true => Answer::stream(|stream| {
            let reset = json!({"id": "9-1", "event": "reset", "at": "2026-01-31T12:00:00.000Z"});
            std::io::Write::write_all(
                stream,
                format!("event: reset\nid: 9-1\ndata: {reset}\n\n").as_bytes(),
            )?;
            stream.read(&mut [0]).map(drop)
        }),
        false => match asked.fetch_add(1, SeqCst) {
            0 => Answer::ok(&job("running", 4, 9)),
            // After a crash the disk may know of less than was told.
            1 => Answer::ok(&job("cancelled", 3, 5)),
            _ => unreachable!("it is over"),
        },
    });
    watch(&mock, &[ID]).expect(3, &["cancelled"]);
}

/// A job that waits, with the reason.
fn waits() -> serde_json::Value {
    let mut job = job("queued", 0, 1);
    let text = "its key `u7` is stopped; `keylane keys retry u7` goes on";
    job["waiting_because"] = json!([{"reason": "key_stopped", "text": text, "count": 10}]);
    job
}

/// A key that had stopped was not named: the command waited without a word.
#[test]
fn the_reason_is_shown_when_nothing_happens() {
    let looks = Arc::new(AtomicUsize::new(0));
    let seen = looks.clone();
    let mock = Mock::start(move |request| match is_stream(request) {
        true => {
            let looks = looks.clone();
            Answer::stream(move |stream| {
                while looks.load(SeqCst) < 3 {
                    stream.write_all(b": ping\n\n")?;
                    std::thread::sleep(Duration::from_millis(20));
                }
                stream.write_all(event("1-3", "job_ended", &job("failed", 10, 4)).as_bytes())
            })
        }
        false => match looks.fetch_add(1, SeqCst) {
            0 => Answer::ok(&job("queued", 0, 1)),
            _ => Answer::ok(&waits()),
        },
    });
    let outcome = watch(&mock, &[ID]);
    outcome.expect(1, &["waits: 10 × its key `u7` is stopped"]);
    assert_eq!(outcome.stderr.matches("waits:").count(), 1, "{outcome:?}");
    assert!(seen.load(SeqCst) >= 3);
}

#[test]
fn without_a_stream_it_asks_again_and_is_answered_when_there_is_news() {
    let asked = AtomicUsize::new(0);
    let mock = Mock::start(move |request| match (is_stream(request), asked.load(SeqCst)) {
        // A proxy that knows better what is good for its users.
        (true, _) => Answer::ok(&json!("no")),
        (false, count) => {
            asked.store(count + 1, SeqCst);
            match count {
                0 => Answer::ok(&job("queued", 0, 1)).with("etag", "W/\"1\""),
                1 => Answer::new(304, &json!(null)).with("etag", "W/\"1\""),
                2 => Answer::ok(&waits()).with("etag", "W/\"1\""),
                3 => Answer::ok(&job("running", 5, 2)).with("etag", "W/\"2\""),
                _ => Answer::ok(&job("succeeded", 10, 3)).with("etag", "W/\"3\""),
            }
        }
    });
    watch(&mock, &[ID]).expect(0, &["queued", "waits: 10 ×", "running: 5", "succeeded"]);
    let asked = mock.asked();
    let tags: Vec<_> = asked.iter().filter_map(|asked| asked.header("if-none-match")).collect();
    assert_eq!(tags, ["W/\"1\"", "W/\"1\"", "W/\"2\""]);
    assert!(asked.iter().filter(|asked| asked.header("prefer") == Some("wait=30")).count() == 3);
}

#[test]
fn a_server_that_is_started_again_is_waited_for() {
    let asked = AtomicUsize::new(0);
    let mock = Mock::start(move |request| match asked.fetch_add(1, SeqCst) {
        0 => Answer::events("retry: 1\n\n".into()),
        1 => Answer::ok(&job("running", 4, 2)),
        2 | 3 => {
            Answer::problem(503, "unavailable", "the server is starting").with("retry-after", "1")
        }
        _ if is_stream(request) => silence(),
        _ => Answer::ok(&job("succeeded", 10, 3)),
    });
    watch(&mock, &[ID]).expect(0, &["the server is starting", "trying again", "succeeded"]);
}

#[test]
fn a_server_that_stays_away_is_given_up() {
    let asked = AtomicUsize::new(0);
    let mock = Mock::start(move |_| match asked.fetch_add(1, SeqCst) {
        0 => Answer::events("retry: 1\n\n".into()),
        1 => Answer::ok(&job("running", 4, 2)),
        _ => Answer::stream(|_| Ok(())).with("content-type", "none"),
    });
    // It answers without an answer, for ever.
    let words = [ID, "--reconnect-timeout", "1ms"];
    watch(&mock, &words).expect(255, &["the response is not valid"]);
    // The system gives this port to no other program by chance.
    let words = [ID, "--server", "http://127.0.0.1:1"];
    watch(&mock, &words).expect(5, &["was not reached"]);
}

#[test]
fn a_job_that_is_not_there_is_refused_and_others_are_followed() {
    let mock = Mock::start(|request| match request.path.contains(ID) {
        true if is_stream(request) => silence(),
        true => Answer::ok(&job("succeeded", 10, 3)),
        false => Answer::problem(404, "unknown", "there is no job x"),
    });
    let outcome = watch(&mock, &["x", ID, "--json"]);
    outcome.expect(
        4,
        &["there is no job x (404 unknown)", "succeeded", "`keylane status` lists the jobs"],
    );
    assert_eq!(outcome.stdout.lines().count(), 1);
}

#[test]
fn an_interrupted_watch_leaves_the_job_running() {
    let mock = Mock::start(|request| match is_stream(request) {
        true => silence(),
        false => Answer::ok(&job("running", 4, 2)),
    });
    let mut child = mock.command(&["watch", ID]).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    stderr.read_line(&mut said).unwrap();
    assert!(said.contains("running: 4"), "{said}");
    // As Ctrl-C, which may be ignored in this process and its children.
    assert!(
        Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success()
    );
    stderr.read_to_string(&mut said).unwrap();
    assert_eq!(finish(child).code, 143);
    assert!(
        said.contains(&format!("the job goes on; `keylane watch {ID}` follows again")),
        "{said}"
    );
    assert!(mock.asked().iter().all(|request| request.method == "GET"));
}
