//! Commands of an operator to `keylane consume --listen`: a token lets them pause, resume and retry, and
//! nothing else does.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::common::{Outcome, feed, finish, hears, subcommand};

const TOKEN: &str = "correct-horse-battery-staple";

/// A consumer of lines that the test writes; its handler prints the key and the second field.
struct Stage {
    folder: TempDir,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    log: BufReader<ChildStderr>,
    address: String,
}

/// Status, head and body of a response.
struct Answer(u16, String, String);

fn write_token(folder: &Path) {
    let path = folder.join("token");
    fs::write(&path, format!("{TOKEN}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

impl Stage {
    fn new(options: &[&str], script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        write_token(folder.path());
        let begin = ["-", "--key", "1", "-j", "2", "--listen", "127.0.0.1:0"];
        let words = [&begin[..], options, &["--", "sh", "-c", script, "sh", "{2}"]].concat();
        let mut command = subcommand("consume", words);
        let mut child = command.current_dir(folder.path()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        log.read_line(&mut line).unwrap();
        let address = line.trim().rsplit("http://").next().unwrap().to_owned();
        let output = BufReader::new(child.stdout.take().unwrap());
        Stage { folder, input: child.stdin.take(), child, output, log, address }
    }

    fn write(&mut self, lines: &str) {
        self.input.as_mut().unwrap().write_all(lines.as_bytes()).unwrap();
    }

    /// Returns the next line that a handler has printed.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn ask(&self, line: &str, headers: &str, body: &str) -> Answer {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        let request = format!(
            "{line} HTTP/1.1\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer(status, head.to_lowercase(), body.to_owned())
    }

    /// Sends a command with the token, and returns the body of the answer.
    fn command(&self, path: &str, body: &str) -> String {
        let headers = format!("host: localhost\r\nauthorization: Bearer {TOKEN}\r\n");
        let Answer(status, _, body) = self.ask(&format!("POST {path}"), &headers, body);
        assert_eq!(status, 200, "{body}");
        body
    }

    fn get(&self, path: &str) -> Answer {
        let headers = format!("host: localhost\r\nauthorization: Bearer {TOKEN}\r\n");
        self.ask(&format!("GET {path}"), &headers, "")
    }

    /// Asks until the body of an answer has this part.
    fn until(&self, path: &str, part: &str) -> String {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let body = self.get(path).2;
            if body.contains(part) {
                return body;
            }
            assert!(Instant::now() < deadline, "{path} never has {part}: {body}");
        }
    }

    /// Ends the input, and waits for the consumer.
    fn end(mut self) -> Outcome {
        drop(self.input.take());
        self.child.stdout = Some(self.output.into_inner());
        self.child.stderr = Some(self.log.into_inner());
        finish(self.child)
    }
}

const WITH_TOKEN: [&str; 2] = ["--listen-token-file", "token"];
const PRINT: &str = "echo $KEYLANE_KEY $1";

#[test]
fn a_paused_key_waits_and_is_seen_until_it_is_resumed() {
    let mut stage = Stage::new(&WITH_TOKEN, PRINT);
    let key = r#"{"key": "a"}"#;
    let changed = r#"{"changed":true,"target":"key a"}"#;
    assert_eq!(stage.command("/pause", key), changed);
    assert_eq!(stage.command("/pause", key), r#"{"changed":false,"target":"key a"}"#);
    stage.write("a 1\nb 1\na 2\nb 2\n");
    assert_eq!([stage.line(), stage.line()], ["b 1", "b 2"]);
    let lag = stage.until("/lag", "paused by the operator");
    assert!(lag.contains(r#""paused":["key a"],"paused_count":1,"paused_records":2"#), "{lag}");
    let metrics = stage.get("/metrics").2;
    assert!(metrics.contains("keylane_paused{kind=\"key\"} 1\n"), "{metrics}");
    assert!(metrics.contains("keylane_paused{kind=\"topic\"} 0\n"), "{metrics}");
    assert!(stage.get("/paused").2.starts_with(r#"[{"key":"a","paused_seconds":"#));
    let table = subcommand("lag", [format!("http://{}", stage.address)]);
    let table = feed(table, b"").stdout;
    assert!(table.contains("paused by the operator: key a; 2 of their records"), "{table}");
    assert_eq!(stage.command("/resume", key), changed);
    assert_eq!([stage.line(), stage.line()], ["a 1", "a 2"]);
    assert_eq!(stage.get("/paused").2, "[]");
    stage.end().expect(0, &["key a is paused", "key a is resumed", "4 handled"]);
}

#[test]
fn a_paused_partition_is_healthy_and_the_consumer_does_not_end_before_it_is_resumed() {
    let mut stage = Stage::new(&[&WITH_TOKEN[..], &["--stall-timeout", "1ms"]].concat(), PRINT);
    let lag = stage.until("/lag", "\"partition\":");
    let lag: serde_json::Value = serde_json::from_str(&lag).unwrap();
    let name = |field: &str| lag[0][field].as_str().unwrap();
    let partition = serde_json::json!({ "partition": name("partition") }).to_string();
    let topic = serde_json::json!({ "topic": name("topic") }).to_string();
    stage.command("/pause", &partition);
    stage.command("/pause", &topic);
    stage.write("a 1\nb 1\n");
    drop(stage.input.take());
    stage.until("/lag", r#""held_by":"operator""#);
    let Answer(status, _, body) = stage.get("/healthz");
    assert_eq!((status, body.as_str()), (200, "ok\n"));
    stage.command("/resume", &topic);
    stage.until("/lag", r#""held_by":"operator""#);
    stage.command("/resume", &partition);
    let mut lines = [stage.line(), stage.line()];
    lines.sort_unstable();
    assert_eq!(lines, ["a 1", "b 1"]);
    stage.end().expect(0, &["2 handled"]);
}

#[test]
fn a_record_is_tried_again_at_once_on_demand() {
    let options = [&WITH_TOKEN[..], &["--backoff", "1h", "--max-backoff", "1h"]].concat();
    let mut stage = Stage::new(&options, "test $1 != 1 -o -e healed && echo $KEYLANE_KEY $1");
    stage.write("a 1\na 2\n");
    stage.until("/lag", "next attempt in ");
    fs::write(stage.folder.path().join("healed"), "").unwrap();
    assert_eq!(stage.command("/retry", r#"{"key": "b"}"#), r#"{"records":0,"target":"key b"}"#);
    assert_eq!(stage.command("/retry", r#"{"key": "a"}"#), r#"{"records":1,"target":"key a"}"#);
    assert_eq!([stage.line(), stage.line()], ["a 1", "a 2"]);
    stage.end().expect(0, &["2 handled", "1 failed attempts"]);
}

#[test]
fn a_stopped_key_goes_on_after_a_retry_that_succeeds() {
    let options = [&WITH_TOKEN[..], &["--attempts", "1", "--on-fail", "stop-key"]].concat();
    let mut stage = Stage::new(&options, "test $1 != 1 -o -e healed && echo $KEYLANE_KEY $1");
    stage.write("a 1\na 2\n");
    stage.until("/lag", "key stopped: ");
    stage.write("a 3\nb 3\n");
    assert_eq!(stage.line(), "b 3");
    fs::write(stage.folder.path().join("healed"), "").unwrap();
    stage.command("/retry", r#"{"key": "a"}"#);
    assert_eq!([stage.line(), stage.line(), stage.line()], ["a 1", "a 2", "a 3"]);
    stage.end().expect(0, &["4 handled", "1 failed attempts"]);
}

#[test]
fn commands_without_the_token_are_refused_and_logged() {
    let mut stage = Stage::new(&WITH_TOKEN, PRINT);
    let ask = |line: &str, headers: &str| stage.ask(line, headers, r#"{"key": "a"}"#);
    let refused = |Answer(status, head, body): Answer| {
        assert_eq!(status, 401, "{body}");
        assert!(head.contains("\r\nwww-authenticate: bearer"), "{head}");
        assert!(!body.contains(TOKEN) && !body.contains("wrong-token"), "{body}");
    };
    for path in ["POST /pause", "POST /resume", "POST /retry", "GET /paused"] {
        refused(ask(path, "host: localhost\r\n"));
        refused(ask(path, "host: localhost\r\nauthorization: Bearer wrong-token-wrong\r\n"));
        refused(ask(path, &format!("host: localhost\r\nauthorization: Basic {TOKEN}\r\n")));
    }
    // A page in a browser of this machine has no access, even with a token.
    let headers = format!("host: evil.example\r\nauthorization: Bearer {TOKEN}\r\n");
    assert_eq!(ask("POST /pause", &headers).0, 403);
    assert_eq!(stage.get("/paused").2, "[]");
    hears(&mut stage.log, "refused a request for /pause from 127.0.0.1: it has no bearer token");
    hears(&mut stage.log, "refused a request for /pause from 127.0.0.1: it has a wrong token");
    stage.end().expect(0, &["0 handled"]);
}

#[test]
fn a_command_that_makes_no_sense_is_refused_with_the_remedy() {
    let stage = Stage::new(&WITH_TOKEN, PRINT);
    let headers = format!("host: localhost\r\nauthorization: Bearer {TOKEN}\r\n");
    let refused = |line: &str, body: &str, wanted: u16, part: &str| {
        let Answer(status, _, answer) = stage.ask(line, &headers, body);
        assert_eq!(status, wanted, "{answer}");
        assert!(answer.contains(part), "{answer}");
    };
    refused("POST /pause", "{}", 400, r#"write {"topic": "orders"}"#);
    refused("POST /pause", r#"{"partition": "t"}"#, 400, "`t` is no partition");
    refused("GET /pause", "", 405, "/pause is for POST");
    refused("POST /paused", "", 405, "/paused is for GET");
    refused("POST /lag", "", 405, "only GET");
    // One byte too long, so that nothing of it is left unread.
    let long = format!(r#"{{"key": "{}"}}"#, "k".repeat((64 << 10) - 10));
    refused("POST /pause", &long, 413, "more than 65536 bytes");
    assert_eq!(stage.get("/paused").2, "[]");
    stage.end().expect(0, &[]);
}

#[test]
fn without_a_token_file_commands_are_refused_with_the_option() {
    let stage = Stage::new(&[], PRINT);
    for path in ["POST /pause", "POST /resume", "POST /retry", "GET /paused"] {
        let headers = format!("host: localhost\r\nauthorization: Bearer {TOKEN}\r\n");
        let Answer(status, _, body) = stage.ask(path, &headers, r#"{"key": "a"}"#);
        assert_eq!(status, 403, "{body}");
        assert!(body.contains("--listen-token-file FILE"), "{body}");
    }
    stage.end().expect(0, &[]);
}

#[test]
fn a_token_file_that_protects_nothing_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    write_token(folder.path());
    let refused = |options: &[&str], part: &str| {
        let words = [&["-", "--key", "1"][..], options, &["--", "true"]].concat();
        let mut command = subcommand("consume", words);
        command.current_dir(folder.path());
        feed(command, b"").expect(255, &[part]);
    };
    let listens = ["--listen", "127.0.0.1:0", "--listen-token-file", "token"];
    refused(&WITH_TOKEN, "add --listen");
    refused(&["--listen", "127.0.0.1:0", "--listen-token-file", "no"], "cannot read no");
    let path = folder.path().join("token");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    refused(&listens, "chmod 600");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&path, "short\n").unwrap();
    refused(&listens, "fewer than 16 characters");
}
