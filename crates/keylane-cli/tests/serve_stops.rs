//! `keylane serve` stops when it is told to, as well as it can, and loses nothing however it ends.

mod common;

use std::io::BufRead;

use common::served::{Place, Served};
use rustix::process::Signal;
use serde_json::Value;

/// Submits two subtasks of one key, and waits until the first has begun.
fn submit_two(kind: &str, place: &mut Place, server: &Served) -> String {
    let lines = place.path("lines");
    std::fs::write(&lines, "{\"key\":\"k\",\"payload\":1}\n{\"key\":\"k\",\"payload\":2}\n")
        .unwrap();
    let id = server.submit(&[kind, "--subtasks", lines.to_str().unwrap()]);
    assert_eq!(place.next(), "0 1");
    id
}

/// Lets what waits end, and returns the results of the job with the attempts that they took.
#[track_caller]
fn results(server: &Served, id: &str) -> Vec<(Value, u64)> {
    server.run(&["watch", id]).expect(0, &["succeeded"]);
    let results = server.run(&["results", id]);
    let lines = results.expect(0, &[]).stdout.lines().map(serde_json::from_str::<Value>);
    lines
        .map(Result::unwrap)
        .map(|line| (line["result"].clone(), line["attempt"].as_u64().unwrap()))
        .collect()
}

#[test]
fn the_first_sigterm_lets_what_runs_end_and_begins_nothing() {
    let mut place = Place::new("");
    let mut server = Served::start(&place, &[]);
    let id = submit_two("wait", &mut place, &server);
    server.signal(Signal::TERM);
    server.hears("stopping");
    place.let_end("slowly");
    let ended = server.end();
    ended.expect(0, &[]);
    assert!(!ended.stderr.contains("at once"), "{}", ended.stderr);
    place.wait_until_nobody_is_left();

    // What ended is done, and what had not begun begins now.
    let server = Served::start(&place, &[]);
    assert_eq!(place.next(), "1 1");
    place.let_end("later");
    assert_eq!(results(&server, &id), [("slowly".into(), 1), ("later".into(), 1)]);
}

#[test]
fn whoever_follows_a_job_is_let_go_when_it_stops() {
    let mut place = Place::new("");
    let server = Served::start(&place, &[]);
    let id = submit_two("wait", &mut place, &server);
    let mut events = server.ask(&format!("/v1/jobs/{id}/events"));
    let mut line = String::new();
    while !line.contains("job_changed") {
        line.clear();
        assert!(events.read_line(&mut line).unwrap() > 0, "nothing was said of the job");
    }
    server.signal(Signal::TERM);
    // The stream ends while the command still runs.
    std::io::read_to_string(events).unwrap();
    place.let_end("slowly");
    server.end().expect(0, &[]);
}

/// A server that starts again does what was broken off a second time, and then what is behind it.
fn both_are_done_from_the_first_on(place: &mut Place, id: &str) {
    let server = Served::start(place, &[]);
    assert_eq!(place.next(), "0 2");
    place.let_end("again");
    assert_eq!(place.next(), "1 1");
    place.let_end("then");
    assert_eq!(results(&server, id), [("again".into(), 2), ("then".into(), 1)]);
}

#[test]
fn the_second_signal_ends_it_at_once_with_all_that_runs() {
    // By whichever signal it is asked, the shell learns of that one.
    for (signal, code) in [(Signal::TERM, 0), (Signal::INT, 130)] {
        let mut place = Place::new("");
        let mut server = Served::start(&place, &[]);
        let id = submit_two("wait", &mut place, &server);
        server.signal(signal);
        server.hears("again to stop at once");
        server.signal(signal);
        server.end().expect(code, &["stopped at once"]);
        // No command goes on behind its back, for it will be tried again.
        place.wait_until_nobody_is_left();
        both_are_done_from_the_first_on(&mut place, &id);
    }
}

#[test]
fn what_does_not_end_in_time_is_ended_and_tried_again() {
    let mut place = Place::new("");
    let server = Served::start(&place, &["--stop-within", "10ms"]);
    let id = submit_two("wait", &mut place, &server);
    server.signal(Signal::TERM);
    server.end().expect(0, &["stopping"]);
    place.wait_until_nobody_is_left();
    both_are_done_from_the_first_on(&mut place, &id);
}

#[test]
fn after_kill_nine_it_goes_on_and_has_every_job_once() {
    let mut place = Place::new("");
    let server = Served::start(&place, &[]);
    let id = submit_two("alone", &mut place, &server);
    place.let_end("before");
    assert_eq!(place.next(), "1 1");
    let once = ["alone", "--payload", "3", "--key", "k", "--idempotency-key", "once"];
    let third = server.submit(&once);
    // Marks of attempts are written behind; this is answered when all before it is on the disk.
    server.run(&["keys", "resume", "k"]).expect(0, &[]);
    server.kill();
    // Its guard ends the command.
    place.wait_until_nobody_is_left();

    let server = Served::start(&place, &[]);
    assert_eq!(place.next(), "1 2");
    // Who doesn't know whether it was heard asks again, and gets the same job.
    assert_eq!(server.submit(&once), third);
    place.let_end("after");
    assert_eq!(place.next(), "0 1");
    place.let_end("third");
    assert_eq!(results(&server, &id), [("before".into(), 1), ("after".into(), 2)]);
    assert_eq!(results(&server, &third), [("third".into(), 1)]);
}
