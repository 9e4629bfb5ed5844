//! `keylane consume` and what is around it: records of journals, files and pipes, by commands and services.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Outcome, feed, finish, named_pipe, subcommand};
use tempfile::TempDir;

fn in_folder(folder: &TempDir, name: &str, words: &[&str]) -> Command {
    let mut command = subcommand(name, words);
    command.current_dir(folder.path());
    command
}

fn run(folder: &TempDir, name: &str, words: &[&str], input: &str) -> Outcome {
    feed(in_folder(folder, name, words), input.as_bytes())
}

/// A folder with a journal of 20 records with 4 keys.
fn with_journal() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let lines: String =
        (0..20).map(|n| format!("{{\"client\":\"c{}\",\"n\":{n}}}\n", n % 4)).collect();
    let produced = run(&folder, "produce", &["journal:j", "--ndjson", "--key", ".client"], &lines);
    produced.expect(0, &["20 records are in j"]);
    folder
}

const ECHO: &str = "echo $KEYLANE_KEY $KEYLANE_POSITION $KEYLANE_ATTEMPT {n}";

#[test]
fn a_journal_is_consumed_in_order_per_key_and_once() {
    let folder = with_journal();
    let words = ["journal:j", "--group", "g", "--to-the-end", "--ndjson", "-j", "4", "--"];
    let words = [&words[..], &["sh", "-c", ECHO]].concat();
    let outcome = run(&folder, "consume", &words, "");
    outcome.expect(0, &["20 handled"]);
    for key in 0..4 {
        let own = outcome.stdout.lines().filter(|line| line.starts_with(&format!("c{key} ")));
        let expected: Vec<_> =
            (0..5).map(|i| i * 4 + key).map(|n| format!("c{key} {n} 1 {n}")).collect();
        assert_eq!(own.collect::<Vec<_>>(), expected);
    }
    run(&folder, "consume", &words, "").expect(0, &["0 handled"]);
    run(&folder, "consume", &["journal:no", "--group", "g", "--", "true"], "")
        .expect(255, &["there is no journal no"]);
}

#[test]
fn a_value_of_a_record_is_no_option_of_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let consume = |command: &[&str]| {
        let words = [&["-", "--key", "1", "--on-fail", "skip", "--"], command].concat();
        run(&folder, "consume", &words, "-5 a\nb 6\n")
    };
    let refused = consume(&["printf", "%s;", "{1}"]);
    refused.expect(1, &["`-5` begins with `-`", "write -- before the placeholder", "1 skipped"]);
    assert_eq!(refused.stdout, "b;");
    // The record at the end of a command without placeholders is one of its words, too.
    consume(&["echo"]).expect(1, &["`-5 a` begins with `-`"]);
    let passed = consume(&["printf", "%s;", "--", "{1}"]);
    passed.expect(0, &["2 handled"]);
    assert_eq!(passed.stdout.split(';').count(), 5);
    assert!(passed.stdout.contains("-5;"), "{}", passed.stdout);
}

#[test]
fn a_handler_gets_no_more_of_the_environment_than_it_needs() {
    let folder = tempfile::tempdir().unwrap();
    let consume = |options: &[&str], command: &[&str]| {
        let words = [&["-", "--key", "1"], options, &["--"], command].concat();
        let mut command = in_folder(&folder, "consume", &words);
        command.env("SECRET", "s").env("TZ", "UTC").env("OTHER", "o");
        let outcome = feed(command, b"a\n");
        outcome.expect(0, &["1 handled"]);
        outcome.stdout
    };
    let script = "echo ${{SECRET-none}} ${{TZ-none}} ${{OTHER-none}} ${{KEYLANE_KEY-none}}";
    let command = ["sh", "-c", script];
    assert_eq!(consume(&[], &command), "none UTC none a\n");
    assert_eq!(consume(&["--env", "OTHER", "--env", "PATH"], &command), "none none o a\n");
    assert_eq!(consume(&["--env", "*"], &command), "s UTC o a\n");
    let worker = ["sh", "-c", "read line; echo ${SECRET-none} ${TZ-none}"];
    assert_eq!(consume(&["--worker"], &worker), "none UTC\n");
    assert_eq!(consume(&["--worker", "--env", "SECRET"], &worker), "s none\n");
}

#[test]
fn a_file_is_gone_on_with_and_a_pipe_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in");
    fs::write(&path, "a 1\nb 2\na 3\n").unwrap();
    let words = ["file:in", "--key", "1", "-j", "2", "--", "echo"];
    assert_eq!(run(&folder, "consume", &words, "").expect(0, &[]).sorted(), ["a 1", "a 3", "b 2"]);
    File::options().append(true).open(&path).unwrap().write_all(b"c 4\n").unwrap();
    assert_eq!(run(&folder, "consume", &words, "").expect(0, &[]).sorted(), ["c 4"]);
    fs::write(&path, "other\n").unwrap();
    run(&folder, "consume", &words, "").expect(255, &["to begin anew, remove in.keylane"]);

    let words = ["-", "--order", "none", "--", "echo"];
    let outcome = run(&folder, "consume", &words, "x\ny\n");
    assert_eq!(outcome.expect(0, &["2 handled"]).sorted(), ["x", "y"]);
}

#[test]
fn failures_are_tried_again_and_then_go_where_they_should() {
    let folder = with_journal();
    let base = ["journal:j", "--group", "g", "--to-the-end", "--backoff", "1ms"];
    let fails = ["--attempts", "3", "--", "sh", "-c", "test $KEYLANE_POSITION != 5"];
    // Everything stops, and nothing is lost.
    let outcome = run(&folder, "consume", &[&base[..], &fails].concat(), "");
    outcome.expect(255, &["attempt 3: exit status 1; the consumer stops"]);
    // The other keys need not have come as far when it stops.
    let lag = run(&folder, "lag", &["journal:j", "--group", "g"], "");
    let said = &lag.expect(0, &[]).stdout;
    assert!((0..=5).any(|at| said.contains(&format!("committed {at},"))), "{lag:?}");
    // The key stops, and the others go on.
    let stops = ["--on-fail", "stop-key"];
    let outcome = run(&folder, "consume", &[&base[..], &stops, &fails].concat(), "");
    outcome.expect(1, &["j[0] at 5 was not handled, and the later records of its key wait"]);
    let lag = run(&folder, "lag", &["journal:j", "--json"], "");
    let stored = r#""committed":5,"highest_done":20,"end":20,"incomplete":4}"#;
    assert!(lag.expect(0, &[]).stdout.contains(stored), "{lag:?}");
    // What is refused for good is not tried again.
    let letters = ["--on-refused", "dead-letter", "--dead-letters", "file:dead"];
    let said = "seq 100000 >&2; echo no such client >&2";
    let script = format!("if test $KEYLANE_POSITION = 5; then {said}; exit 65; fi");
    let refuses = ["--", "sh", "-c", &script];
    let outcome = run(&folder, "consume", &[&base[..], &letters, &refuses].concat(), "");
    outcome.expect(1, &["attempt 1: exit status 65; sent to dead letters", "3 handled"]);
    let dead = fs::read_to_string(folder.path().join("dead")).unwrap();
    let letter: serde_json::Value = serde_json::from_str(&dead).unwrap();
    assert_eq!((&letter["key"], &letter["position"]), (&"c1".into(), &5.into()));
    // With the end of what the command complained of.
    let failure = letter["failure"].as_str().unwrap();
    assert!(failure.starts_with("exit status 65: ") && failure.len() < 2100, "{failure}");
    assert!(failure.ends_with("\n100000\nno such client"), "{failure}");
}

#[test]
fn a_file_is_followed_while_others_append_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let append = |line: &str| {
        let path = folder.path().join("orders.ndjson");
        let mut file = File::options().append(true).create(true).open(path).unwrap();
        file.write_all(line.as_bytes()).unwrap();
    };
    append("{\"client\":\"ann\",\"order\":1}\n");
    let words = ["file:orders.ndjson", "--to-the-end=false", "--ndjson", "--key", ".client"];
    let words = [&words[..], &["--", "echo", "{order}"]].concat();
    let mut child = in_folder(&folder, "consume", &words).stdin(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "1");
    append("{\"client\":\"ann\",\"order\":2}\n");
    assert_eq!(lines.next().unwrap().unwrap(), "2");
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let outcome = finish(child);
    assert_eq!(outcome.code, 143, "{outcome:?}");
}

/// A service that answers each request with what `status` says, and keeps the requests.
struct Service {
    address: String,
    requests: Arc<Mutex<Vec<(String, String)>>>,
}

impl Service {
    fn start(status: impl Fn(&str, usize) -> u16 + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/orders", listener.local_addr().unwrap());
        let requests = Arc::<Mutex<Vec<_>>>::default();
        let all = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let (head, body) = request(&stream);
                let mut all = all.lock().unwrap();
                let before = all.iter().filter(|(_, other)| *other == body).count();
                let status = status(&body, before);
                all.push((head, body));
                let answer = format!(
                    "HTTP/1.1 {status} So\r\ncontent-length: 4\r\nconnection: close\r\n\r\nnope"
                );
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        Service { address, requests }
    }
}

fn request(stream: &TcpStream) -> (String, String) {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    loop {
        let begin = head.len();
        reader.read_line(&mut head).unwrap();
        if head[begin..].trim().is_empty() {
            break;
        }
    }
    let lower = head.to_lowercase();
    let length = lower.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.trim().parse().unwrap())];
    reader.read_exact(&mut body).unwrap();
    (lower, String::from_utf8(body).unwrap())
}

#[test]
fn a_service_gets_each_record_and_its_answer_counts() {
    let folder = with_journal();
    let service = Service::start(|body, before| match body {
        _ if body.contains("\"n\":3}") && before == 0 => 503,
        _ if body.contains("\"n\":6}") => 422,
        _ => 204,
    });
    let words = ["journal:j", "--group", "g", "--to-the-end", "--ndjson", "--backoff", "1ms"];
    let more = ["--http", &service.address, "--on-refused", "skip"];
    let outcome = run(&folder, "consume", &[&words[..], &more].concat(), "");
    let refused = "at 6, attempt 1: the answer was 422 Unprocessable Entity: nope; skipped";
    outcome.expect(1, &["at 3, attempt 1: the answer was 503", refused, "19 handled"]);
    let requests = service.requests.lock().unwrap();
    assert_eq!(requests.len(), 21);
    let (head, _) = requests.iter().find(|(_, body)| body.contains("\"n\":7}")).unwrap();
    for header in ["post /orders ", "keylane-key: c3", "keylane-position: 7", "keylane-attempt: 1"]
    {
        assert!(head.contains(header), "{header} is not in {head}");
    }
    assert!(head.contains("content-type: application/json") && head.contains("idempotency-key: "));
    // Per key in order.
    let of_key: Vec<_> = requests.iter().filter(|(_, body)| body.contains("\"c3\"")).collect();
    assert_eq!(of_key.len(), 6);
    let numbers: Vec<&str> =
        of_key.iter().map(|(_, body)| body.rsplit(':').next().unwrap()).collect();
    assert_eq!(numbers, ["3}", "3}", "7}", "11}", "15}", "19}"]);
}

#[test]
fn an_end_without_stored_progress_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("lines"), "a\nb\n").unwrap();
    // The next version of the progress would be written there.
    std::fs::create_dir(folder.path().join("lines.keylane-new")).unwrap();
    let words = ["file:lines", "--key", "1", "--shutdown-timeout", "1s", "--", "true"];
    let outcome = run(&folder, "consume", &words, "");
    let said = "the last progress of lines[0] was not stored";
    outcome.expect(255, &["all records are processed: 2 handled", said]);
    std::fs::remove_dir(folder.path().join("lines.keylane-new")).unwrap();
    run(&folder, "consume", &words, "").expect(0, &["2 handled"]);
    run(&folder, "consume", &words, "").expect(0, &["0 handled"]);
}

#[test]
fn a_service_and_an_output_get_null_as_null() {
    use keylane_stream::Record;
    use keylane_stream::journal::Journal;

    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(folder.path().join("j")).unwrap();
    let header = |value: Option<&[u8]>| vec![("h".to_owned(), value.map(Vec::from))];
    for record in [
        Record { key: Some("k".into()), payload: None, headers: header(None) },
        Record { key: Some("k".into()), payload: Some("".into()), headers: header(Some(b"v")) },
        Record { key: None, payload: Some("x".into()), headers: Vec::new() },
    ] {
        journal.append(&record).unwrap();
    }
    drop(journal);
    let service = Service::start(|_, _| 200);
    let words = ["journal:j", "--to-the-end", "--order", "partition", "--output", "journal:out"];
    let posted = [&words[..], &["--group", "http", "--http", &service.address]].concat();
    run(&folder, "consume", &posted, "").expect(0, &["3 handled"]);
    let requests = service.requests.lock().unwrap();
    let heads: Vec<_> = requests.iter().map(|(head, _)| head).collect();
    let has = |index: usize, line: &str| heads[index].lines().any(|other| other == line);
    assert!(has(0, "keylane-tombstone: 1"), "{heads:?}");
    assert!(has(0, "keylane-headers: [{\"name\":\"h\",\"value\":null}]"), "{heads:?}");
    assert!(!heads[1].contains("keylane-tombstone"), "{heads:?}");
    assert!(has(1, "keylane-headers: [{\"name\":\"h\",\"value\":\"v\"}]"), "{heads:?}");
    assert!(!heads[2].contains("keylane-tombstone") && !heads[2].contains("keylane-headers"));

    // A tombstone has output like any record; none appends nothing.
    let print = "test -z \"$KEYLANE_TOMBSTONE\" || echo null";
    let printed = ["--group", "command", "--payload", "stdin", "--", "sh", "-c", print];
    run(&folder, "consume", &[&words[..], &printed].concat(), "").expect(0, &["3 handled"]);
    let out = Journal::open(folder.path().join("out")).unwrap();
    let out = out.read(Default::default(), 10).unwrap();
    let payloads: Vec<_> = out.iter().map(|it| it.record.payload.as_deref().unwrap()).collect();
    assert_eq!(payloads, [&b"nope"[..], b"nope", b"nope", b"null"]);
    let origin = |name: &str| out[3].record.headers.iter().find(|(other, _)| other == name);
    assert_eq!(origin("keylane-position").unwrap().1.as_deref(), Some(&b"0"[..]));
}

#[test]
fn a_service_gets_the_records_of_a_key_as_lines_of_one_request() {
    let folder = with_journal();
    let service = Service::start(|body, _| match body.contains("\"n\":6}") {
        true => 422,
        false => 204,
    });
    let words = ["journal:j", "--group", "g", "--to-the-end", "--ndjson", "--batch", "5"];
    let more = ["--linger", "1h", "--http", &service.address, "--on-refused", "skip"];
    let outcome = run(&folder, "consume", &[&words[..], &more].concat(), "");
    outcome.expect(1, &["at 6, attempt 1: the answer was 422", "19 handled"]);
    let requests = service.requests.lock().unwrap();
    let (head, body) = requests.iter().find(|(_, body)| body.contains("\"n\":3}")).unwrap();
    let lines: Vec<_> = body.lines().filter_map(|line| line.rsplit(':').next()).collect();
    assert_eq!(lines, ["3}", "7}", "11}", "15}", "19}"]);
    for header in [
        "keylane-key: c3",
        "keylane-position: 3",
        "keylane-last-position: 19",
        "keylane-count: 5",
        "keylane-attempt: 1",
        "/j[0]@3-19",
        "content-type: application/x-ndjson",
    ] {
        assert!(head.contains(header), "{header} is not in {head}");
    }
    // The batch with the bad one, then each alone up to that, then those behind it.
    let of_key: Vec<_> = requests.iter().filter(|(_, body)| body.contains("\"c2\"")).collect();
    let counts: Vec<_> = of_key.iter().map(|(_, body)| body.lines().count()).collect();
    assert_eq!(counts, [5, 1, 1, 3]);
}

/// What a journal has, one record after another, as key and payload.
fn contents(folder: &TempDir, journal: &str) -> Vec<String> {
    let words = [&format!("journal:{journal}"), "--group", "look", "--to-the-end", "-j", "1"];
    let words = [&words[..], &["--order", "partition", "--", "sh", "-c"]].concat();
    let echo = ["printf '%s %s\\n' \"$KEYLANE_KEY\" \"$1\"", "x"];
    let outcome = run(folder, "consume", &[&words[..], &echo].concat(), "");
    outcome.expect(0, &[]).stdout.lines().map(str::to_owned).collect()
}

/// Those of a key, of records that are numbered.
fn of_key(contents: &[String], key: &str) -> Vec<String> {
    let own = contents.iter().filter_map(|line| line.strip_prefix(key));
    own.map(|text| text.trim().to_owned()).collect()
}

#[test]
fn outputs_are_appended_with_the_keys_of_their_records() {
    let folder = with_journal();
    // The first attempt at 5 fails after it has printed; 6 prints nothing.
    let prints = "test $KEYLANE_POSITION = 6 || echo \"bill $KEYLANE_POSITION\"; echo said >&2; \
                  test $KEYLANE_POSITION$KEYLANE_ATTEMPT != 51";
    let words = ["journal:j", "--group", "g", "--to-the-end", "-j", "4", "--backoff", "1ms"];
    let words = [&words[..], &["--output", "journal:bills", "--", "sh", "-c", prints]].concat();
    let outcome = run(&folder, "consume", &words, "");
    outcome.expect(0, &["20 handled, 1 failed attempts", "said"]);
    assert_eq!(outcome.stdout, "");
    let bills = contents(&folder, "bills");
    assert_eq!(bills.len(), 19);
    for key in 0..4 {
        let wanted = (0..5).map(|i| i * 4 + key).filter(|n| *n != 6).map(|n| format!("bill {n}"));
        assert_eq!(of_key(&bills, &format!("c{key}")), wanted.collect::<Vec<_>>());
    }
    // The next time nothing is left to do.
    run(&folder, "consume", &words, "").expect(0, &["0 handled"]);

    let refused = |words: &[&str], why: &str| {
        run(&folder, "consume", words, "").expect(255, &[why]);
    };
    refused(
        &["journal:j", "--group", "g", "--output", "j", "--", "true"],
        "`j` is no place for output",
    );
    let same = ["journal:j", "--group", "g", "--output", "journal:./j", "--", "true"];
    refused(&same, "./j is the source");
}

#[test]
fn a_key_of_the_payload_is_the_one_that_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["-", "--key", "1", "--output", "journal:out", "--on-fail", "dead-letter"];
    let more = ["--dead-letters", "journal:out", "--attempts", "1", "--", "sh", "-c"];
    let words = [&words[..], &more, &["echo \"$1\"; test \"$1\" != 'b 2'", "x"]].concat();
    run(&folder, "consume", &words, "a 1\nb 2\na 3\n").expect(1, &["2 handled"]);
    let mut all = contents(&folder, "out");
    all.sort_unstable();
    // Letters keep the record's own key, which a line has none of.
    assert_eq!(all, [" b 2", "a a 1", "a a 3"]);
}

#[test]
fn responses_of_a_service_are_appended() {
    let folder = with_journal();
    let service = Service::start(|body, _| if body.contains("\"n\":6}") { 422 } else { 200 });
    let words = ["journal:j", "--group", "g", "--to-the-end", "--on-fail", "skip"];
    let more = ["--http", &service.address, "--output", "journal:out"];
    run(&folder, "consume", &[&words[..], &more].concat(), "").expect(1, &["19 handled"]);
    let out = contents(&folder, "out");
    assert_eq!((out.len(), of_key(&out, "c2")), (19, vec!["nope".to_owned(); 4]));
}

#[test]
fn a_service_that_does_not_answer_is_asked_again() {
    let folder = with_journal();
    // The system gives this port to no other program by chance.
    let address = "http://127.0.0.1:1";
    let words =
        ["journal:j", "--group", "g", "--backoff", "1ms", "--attempts", "2", "--http", address];
    let outcome = run(&folder, "consume", &words, "");
    outcome.expect(255, &["attempt 1: no answer", "attempt 2: no answer", "0 handled"]);
}

/// Asks for a page, and returns its status and body.
fn get(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let status = text.split(' ').nth(1).unwrap().parse().unwrap();
    let body = text.split_once("\r\n\r\n").unwrap().1.to_owned();
    (status, body)
}

fn eventually(mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < until, "it did not come");
        thread::sleep(Duration::from_millis(5));
    }
}

fn open_when_wanted(path: &Path) -> File {
    File::options().write(true).open(path).unwrap()
}

#[test]
fn a_stalled_partition_is_seen_from_outside_and_a_signal_lets_what_runs_finish() {
    let folder = with_journal();
    let pipe = folder.path().join("pipe");
    named_pipe(&pipe);
    // The record at 2 waits until the test writes into the pipe.
    let waits = "test $KEYLANE_POSITION != 2 || read word < pipe";
    let words =
        ["journal:j", "--group", "g", "--listen", "127.0.0.1:0", "--stall-timeout", "300ms"];
    let words = [&words[..], &["-j", "4", "--", "sh", "-c", waits]].concat();
    let mut child = in_folder(&folder, "consume", &words).stdin(Stdio::null()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    let address = line.trim().rsplit("http://").next().unwrap().to_owned();

    // In one answer: where handlers are slow, a record may be done between two.
    eventually(|| {
        let (status, why) = get(&address, "/healthz");
        status == 503
            && why.contains("has made no progress for")
            && why.contains("; the oldest is at ")
            && why.contains(", key c")
    });
    let topic = fs::canonicalize(folder.path().join("j")).unwrap();
    let topic = topic.display();
    let says = |metrics: &str, name: &str, value: u32| {
        let begin =
            format!("keylane_partition_{name}{{topic=\"{topic}\",partition=\"{topic}[0]\"}}");
        let mut lines = metrics.lines().filter(|line| line.starts_with(&begin));
        let end = format!(" {value}");
        lines.next().is_some_and(|line| line.ends_with(&end)) && lines.next().is_none()
    };
    // It may be stalled before all others are done, where handlers are slow.
    eventually(|| {
        let (status, metrics) = get(&address, "/metrics");
        assert!(metrics.contains(",features=\"consume"), "{metrics}");
        let values = [("end", 20), ("incomplete", 5), ("stalled", 1)];
        status == 200 && values.into_iter().all(|(name, value)| says(&metrics, name, value))
    });
    assert_eq!(get(&address, "/nowhere").0, 404);
    eventually(|| {
        let lag = run(&folder, "lag", &[&format!("http://{address}")], "").stdout;
        lag.contains("stalled for") && lag.contains("end 20")
    });

    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    line.clear();
    stderr.read_line(&mut line).unwrap();
    assert!(line.contains("what runs may finish"), "{line}");
    // What is asked twice from now on is answered by a consumer that lets nothing begin any more.
    let _ = (get(&address, "/lag"), get(&address, "/lag"));
    open_when_wanted(&pipe).write_all(b"go\n").unwrap();
    let outcome = finish(child);
    assert_eq!(outcome.code, 143, "{outcome:?}");
    let lag = run(&folder, "lag", &["journal:j", "--json"], "");
    let stored = r#""committed":6,"highest_done":20"#;
    assert!(lag.stdout.contains(stored), "{lag:?}");
}

#[test]
fn a_configuration_is_checked_with_line_and_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let check = |text: &str| {
        fs::write(folder.path().join("c.toml"), text).unwrap();
        run(&folder, "config", &["check", "c.toml"], "")
    };
    let example = run(&folder, "config", &["example"], "");
    check(&example.expect(0, &[]).stdout).expect(0, &[]);
    check("group = \"g\"\njobbs = 3\n").expect(255, &["c.toml:2: unknown field `jobbs`", "`jobs`"]);
    check("\nattempts = \"many\"\n").expect(255, &["c.toml:2: invalid type"]);
    check("backoff = \"3 days\"").expect(255, &["c.toml:1: `3 days` is no time; write 500ms"]);
    check("jobs = 2\non-fail = \"dead-letter\"")
        .expect(255, &["c.toml:2: --on-fail: dead letters need a place; add --dead-letters"]);
    check("x = [").expect(255, &["c.toml:1"]);
    run(&folder, "config", &["check", "no.toml"], "").expect(255, &["cannot read no.toml"]);
}

#[test]
fn a_configuration_holds_what_the_command_line_does_not_say() {
    let folder = with_journal();
    let text =
        "source = 'journal:j'\ngroup = 'g'\nto-the-end = true\ncommand = ['false']\njobs = 1\n";
    fs::write(folder.path().join("c.toml"), text).unwrap();
    run(&folder, "consume", &["--config", "c.toml", "--", "true"], "").expect(0, &["20 handled"]);
    run(&folder, "consume", &["--config", "c.toml", "--group", "h", "--attempts", "1"], "")
        .expect(255, &["0 handled"]);
}

/// What is typed for another kind of source is a mistake, and what is in a file need not be.
#[test]
fn a_configuration_can_have_settings_for_several_sources() {
    let folder = with_journal();
    let text = "group = 'g'\nstart = 'last'\nprotocol = 'broker'\nstate = 's'\n\
                to-the-end = true\ncommand = ['true']\n";
    fs::write(folder.path().join("c.toml"), text).unwrap();
    let words = ["journal:j", "--config", "c.toml"];
    run(&folder, "consume", &words, "").expect(0, &["20 handled"]);
    let typed = [&words[..], &["--start", "last"]].concat();
    run(&folder, "consume", &typed, "").expect(255, &["--start is for a source kafka://"]);
    fs::write(folder.path().join("c.toml"), format!("source = 'journal:j'\n{text}")).unwrap();
    run(&folder, "config", &["check", "c.toml"], "").expect(255, &["c.toml:", "--protocol is for"]);
}

#[test]
fn settings_without_sense_are_refused_before_anything_starts() {
    let folder = with_journal();
    let refused =
        |words: &[&str], why: &str| run(&folder, "consume", words, "").expect(255, &[why]).code;
    refused(&["--", "true"], "there is no source");
    refused(&[], "there is no source");
    // The handler was missed first, although it is written last.
    let example = run(&folder, "config", &["example"], "");
    fs::write(folder.path().join("example.toml"), &example.stdout).unwrap();
    refused(&["--config", "example.toml"], "there is no source");
    refused(&["journal:j", "--", "true"], "add --group NAME");
    refused(&["journal:j", "--group", "g"], "the records have no handler");
    refused(&["file:x", "--", "true"], "lines have no key of their own");
    refused(&["kafka", "--", "true"], "is no source");
    refused(&["journal:j", "--group", "g", "--http", "x"], "does not begin with http");
    refused(&["journal:j", "--group", "g", "-j", "0%", "--", "true"], "give a number like 8");
    let open = ["journal:j", "--group", "g", "--to-the-end", "--listen", "0.0.0.0:0"];
    refused(&[&open[..], &["--", "true"]].concat(), "add --listen-insecure");
    let open = [&open[..], &["--listen-insecure", "--", "true"]].concat();
    run(&folder, "consume", &open, "").expect(0, &["listening at http://0.0.0.0:"]);
    refused(
        &["journal:j", "--group", "g", "--", "no-such-program"],
        "no program `no-such-program`",
    );
}

#[test]
fn files_are_for_their_owner_alone() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("in"), "a 1\n").unwrap();
    let letters = ["--attempts", "1", "--on-fail", "dead-letter", "--dead-letters", "file:dead"];
    let consume = [&["file:in", "--key", "1"][..], &letters, &["--", "false"]].concat();
    run(&folder, "consume", &consume, "").expect(1, &[]);
    run(&folder, "run", &["--key", "1", "--trace", "trace", "--", "true"], "a 1\n").expect(0, &[]);
    run(&folder, "produce", &["journal:j"], "a 1\n").expect(0, &[]);
    let mut names = Vec::new();
    for entry in fs::read_dir(folder.path()).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        assert!(name == "in" || mode == 0o600, "{name}: {mode:o}");
        names.push(name);
    }
    for name in ["in.keylane", "in.keylane-children", "in.keylane-lock", "dead", "trace", "j"] {
        assert!(names.iter().any(|found| found == name), "{name} is not in {names:?}");
    }
}

#[test]
fn an_answer_without_end_is_a_failed_attempt() {
    let folder = with_journal();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            request(&stream);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
            while stream.write_all(&[b'x'; 1 << 16]).is_ok() {}
        }
    });
    let words = ["journal:j", "--group", "g", "--to-the-end", "--attempts", "1", "-j", "1"];
    let outcome = run(&folder, "consume", &[&words[..], &["--http", &address]].concat(), "");
    outcome.expect(255, &["the answer has more than 16 MiB"]);
}

#[cfg(feature = "kafka")]
#[test]
fn kafka_settings_of_the_client_and_programs_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    let check = |text: &str| {
        let text = format!("source = \"kafka://127.0.0.1:1/x\"\ngroup = \"g\"\n{text}\n");
        fs::write(folder.path().join("c.toml"), text).unwrap();
        run(&folder, "config", &["check", "c.toml"], "")
    };
    check("command = [\"true\"]\nclient = [\"no.such=1\"]").expect(255, &["no.such"]);
    check("command = [\"no-such-program\"]").expect(255, &["no program `no-such-program`"]);
    check("command = [\"true\"]\nclient = [\"session.timeout.ms=60000\"]").expect(0, &[]);
}

/// The client is also that of topics for output, and a file need not name the source.
#[test]
#[cfg(feature = "kafka")]
fn kafka_settings_of_the_client_are_checked_for_every_topic() {
    let folder = tempfile::tempdir().unwrap();
    let check = |text: &str| {
        let text = format!("client = [\"no.such=1\"]\ncommand = [\"true\"]\n{text}\n");
        fs::write(folder.path().join("c.toml"), text).unwrap();
        run(&folder, "config", &["check", "c.toml"], "").expect(255, &["c.toml:1:", "no.such"]);
    };
    let letters = "dead-letters = \"kafka://127.0.0.1:1/dead\"\non-fail = \"dead-letter\"";
    let journal = "source = \"journal:j\"\ngroup = \"g\"";
    check(&format!("{journal}\n{letters}"));
    check(&format!("{journal}\noutput = \"kafka://127.0.0.1:1/x\""));
    check("");
}

#[test]
fn kafka_settings_without_a_topic_are_refused() {
    let folder = with_journal();
    fs::write(folder.path().join("client"), "sasl.password=secret\n").unwrap();
    for (setting, words) in [
        ("--client is", ["--client", "client.id=x"]),
        ("--client-config is", ["--client-config", "client"]),
        ("--group-instance-id is", ["--group-instance-id", "one"]),
    ] {
        let words = [&["journal:j", "--group", "g"][..], &words, &["--", "true"]].concat();
        let refused = run(&folder, "consume", &words, "");
        refused.expect(255, &[setting, "kafka://HOST:PORT/TOPIC", "leave it out"]);
    }
}

#[test]
fn invalid_json_is_refused_and_payloads_by_stdin_have_any_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let produced = run(&folder, "produce", &["journal:j"], "{\"a\":1}\n{\"a\":\n{\"a\":3}\n");
    produced.expect(0, &["3 records are in j"]);
    let words = ["journal:j", "--to-the-end", "--ndjson", "--on-refused", "skip", "--group"];
    for (group, handler) in [
        ("words", &["--", "echo", "{a}"][..]),
        ("stdin", &["--payload", "stdin", "--", "cat"]),
        ("worker", &["--worker", "--", "cat"]),
        ("batch", &["--batch", "2", "--no-key", "serial", "--", "cat"]),
    ] {
        let outcome = run(&folder, "consume", &[&words[..], &[group], handler].concat(), "");
        outcome.expect(1, &["2 handled", "1 skipped", "not valid JSON"]);
        assert!(!outcome.stdout.contains("{\"a\":\n"), "{outcome:#?}");
    }
    std::fs::write(folder.path().join("in"), b"a\0b\n").unwrap();
    let words = ["file:in", "--order", "none", "--payload", "stdin", "--", "od", "-An", "-tx1"];
    let outcome = run(&folder, "consume", &words, "");
    outcome.expect(0, &["1 handled"]);
    assert_eq!(outcome.stdout.trim(), "61 00 62");
}

#[test]
fn a_handler_gets_the_whole_record_as_json() {
    let folder = tempfile::tempdir().unwrap();
    run(&folder, "produce", &["journal:j", "--key", "1"], "k x\n").expect(0, &[]);
    let words = ["journal:j", "--to-the-end", "--payload", "json", "--group"];
    for handler in [&["one", "--", "cat"][..], &["two", "--worker", "--", "cat"]] {
        let outcome = run(&folder, "consume", &[&words[..], handler].concat(), "");
        outcome.expect(0, &["1 handled"]);
        let record: serde_json::Value = serde_json::from_str(outcome.stdout.trim()).unwrap();
        assert!(record["stream"].as_str().unwrap().ends_with("/j"), "{record}");
        assert_eq!(record["position"], 0);
        assert_eq!((&record["key"], &record["payload"]), (&"k".into(), &"k x".into()));
        assert!(record["written"].as_u64() > Some(0) && record["headers"].is_array(), "{record}");
    }
}

#[test]
fn a_journal_without_groups_says_so_and_a_secret_comes_from_a_file() {
    let folder = with_journal();
    let lag = run(&folder, "lag", &["journal:j"], "");
    lag.expect(0, &[]);
    assert_eq!(lag.stdout, "no group has stored any progress\n");

    std::fs::write(folder.path().join("client"), "# of the client\nsasl.password\n").unwrap();
    let words = ["journal:j", "--group", "g", "--client-config", "client", "--", "true"];
    let refused = run(&folder, "consume", &words, "");
    refused.expect(255, &["client:2 is no setting of the client"]);

    std::fs::write(folder.path().join("c.toml"), "command = [\"./no-such\"]\n").unwrap();
    let checked = run(&folder, "config", &["check", "c.toml"], "");
    checked.expect(255, &["c.toml:1: there is no program ./no-such"]);
}
