//! `keylane top`: a live view on a terminal, which is left as it was; a text elsewhere.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;

use crate::common::feed;
use crate::mock::{Answer, ID, Mock, Request, job};
use serde_json::json;

/// A server with a job that runs, and one that is paused.
fn answer(request: &Request) -> Answer {
    let at = "2026-01-31T13:00:00.000Z";
    match request.path.split('?').next().unwrap() {
        "/v1/summary" => Answer::ok(&json!({
            "at": at, "slots": 64, "busy": 1, "jobs": {"running": 1}, "waiting": 6, "ready": 0, "backing_off": 0,
            "succeeded_total": 4, "failed_total": 0, "cancelled_total": 0, "retried_total": 0, "keys": 1,
            "oldest_head_ms": 5000, "store_bytes": 2048, "store": "ok", "websockets": 0,
            "started_at": "2026-01-31T12:00:00.000Z", "draining": false})),
        "/v1/jobs" => {
            let mut paused = job("paused", 2, 5);
            paused["id"] = json!(ID.replace('a', "b"));
            paused["name"] = json!("weekly");
            Answer::ok(&json!({"items": [paused, job("running", 4, 2)]}))
        }
        "/v1/scheduler" => Answer::ok(&json!({
            "slots": 64, "busy": 1, "jobs": 2, "active": 1, "draining": false, "decisions": [],
            "running": [{"slot": 3, "job": ID, "number": 5, "keys": ["u7"], "attempt": 1, "since": at}]})),
        "/v1/keys" => Answer::ok(&json!({"items": [{"key": "u7", "state": "open", "length": 6}]})),
        _ => Answer::new(202, &job("cancelling", 4, 3)),
    }
}

#[test]
fn on_no_terminal_it_says_once_how_the_server_is() {
    let mock = Mock::start(answer);
    let outcome = feed(mock.command(&["top"]), b"");
    let said = &outcome.expect(0, &[]).stdout;
    for part in [
        "up 1 h 0 min | store ok, 2.0 KiB",
        "1 of 64 slots busy | 6 waiting",
        &format!("{ID}  running   40%     10       0  resize  nightly"),
        &format!("   3  {ID}/5  u7"),
        "u7   open            6",
    ] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
    // What runs is above what is paused.
    assert!(said.find("nightly") < said.find("weekly"));
    let mut lines = mock.lines();
    lines.sort();
    let expected = [
        "GET /v1/jobs?state=scheduled%2Cqueued%2Crunning%2Cpaused%2Ccancelling&limit=200",
        "GET /v1/keys?sort=head_age&limit=50",
        "GET /v1/scheduler",
        "GET /v1/summary",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn a_server_that_refuses_is_said_before_the_screen_is_taken() {
    let mock = Mock::start(|_| Answer::problem(401, "unauthorized", "this server wants a token"));
    let mut terminal = Terminal::start(&mock);
    let said = terminal.read_until("wants a token");
    assert!(!said.contains("\x1b[?1049h"), "{said:?}");
    assert_eq!(terminal.end(), 4);
}

/// `keylane top` on a terminal of its own.
struct Terminal {
    child: Child,
    said: Vec<u8>,
}

impl Terminal {
    fn start(mock: &Mock) -> Self {
        let mut command = Command::new("script");
        let words = format!(
            "stty cols 160 rows 40; exec {} top --interval 100ms",
            env!("CARGO_BIN_EXE_keylane")
        );
        command.args(["-q", "-e", "-f", "-c", &words, "/dev/null"]);
        command.env("KEYLANE_SERVER", &mock.url).env("TERM", "xterm").env_remove("KEYLANE_TOKEN");
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        Terminal { child: child.expect("script is part of every Linux"), said: Vec::new() }
    }

    /// All that was said until this is part of it.
    fn read_until(&mut self, part: &str) -> String {
        loop {
            let said = String::from_utf8_lossy(&self.said).into_owned();
            if said.contains(part) {
                return said;
            }
            let mut piece = [0; 4096];
            let count = self.child.stdout.as_mut().unwrap().read(&mut piece).unwrap();
            assert!(count > 0, "{part:?} is not in {said:?}");
            self.said.extend_from_slice(&piece[..count]);
        }
    }

    fn press(&mut self, keys: &str) {
        let stdin = self.child.stdin.as_mut().unwrap();
        stdin.write_all(keys.as_bytes()).unwrap();
        stdin.flush().unwrap();
    }

    fn end(mut self) -> i32 {
        self.child.stdout.as_mut().unwrap().read_to_end(&mut self.said).unwrap();
        self.child.wait().unwrap().code().unwrap()
    }
}

#[test]
fn on_a_terminal_jobs_are_steered_by_keys() {
    let (tell, told) = channel();
    let mock = Mock::start(move |request| {
        if request.method == "POST" {
            tell.send(request.clone()).unwrap();
        }
        answer(request)
    });
    let mut terminal = Terminal::start(&mock);
    let said = terminal.read_until("q quit");
    // The other screen, which has been left as it was when this is over.
    assert!(said.contains("\x1b[?1049h") && said.contains("nightly"), "{said:?}");
    // Asked whether it should be, and the answer is no; then it is yes.
    terminal.press("cncy");
    let asked = told.recv().unwrap();
    assert_eq!(asked.path, format!("/v1/jobs/{ID}/cancel"));
    assert_eq!(asked.json()["mode"], "graceful");
    // The other job, found by its name, goes on.
    terminal.press("/week\rp");
    let asked = told.recv().unwrap();
    assert_eq!(asked.path, format!("/v1/jobs/{}/resume", ID.replace('a', "b")));
    terminal.press("q");
    terminal.read_until("\x1b[?1049l");
    assert_eq!(terminal.end(), 0);
    assert!(told.try_recv().is_err());
}
