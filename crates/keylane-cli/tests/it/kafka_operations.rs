//! `keylane consume kafka://` as its operators meet it, with a real broker: it ends in time while the broker is away,
//! says how it is, checks where it writes, and hands a record's parts on as they are.
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Outcome, feed, finish, hears, subcommand};
use keylane_stream::Record;
use keylane_stream::kafka::{ClientSettings, KafkaSettings, KafkaSink, KafkaSource};
use keylane_stream::source::{ProgressCommit, Source, SourceEvent};
use keylane_stream::tracker::Progress;
use keylane_stream::{Partition, Position};
use keylane_testkit::{Broker, or_skip};
use rustix::process::{Pid, Signal, kill_process};

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(60);

fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "it never came about that {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A broker that makes topics on demand.
fn broker() -> Option<Broker> {
    or_skip(Broker::start_with(&[("auto.create.topics.enable", "true")]))
}

fn produce(topic: &str, lines: &str) {
    feed(subcommand("produce", [topic]), lines.as_bytes()).expect(0, &["records are in kafka://"]);
}

fn consume(words: &[&str]) -> Child {
    subcommand("consume", words).stdin(Stdio::null()).spawn().unwrap()
}

fn terminate(child: &Child) {
    kill_process(Pid::from_child(child), Signal::TERM).unwrap();
}

/// Waits for the end of a process; whether it came.
fn ends(child: &mut Child) {
    until("it ends", || child.try_wait().unwrap());
}

#[test]
fn a_consumer_ends_in_its_time_while_the_broker_is_away() {
    let Some(mut broker) = broker() else { return };
    for protocol in ["cooperative", "broker"] {
        let topic = format!("kafka://{}/away-{protocol}", broker.address());
        produce(&topic, "1\n2\n3\n");
        let words =
            [&topic, "--group", protocol, "--protocol", protocol, "--shutdown-timeout", "3s"];
        // What is done after the broker went cannot be stored.
        let words = [&words[..], &["--commit-interval", "1h", "--", "echo"]].concat();
        let mut child = consume(&words);
        let mut printed = BufReader::new(child.stdout.take().unwrap());
        hears(&mut printed, "3");
        broker.kill();
        terminate(&child);
        ends(&mut child);
        let outcome = finish(child);
        assert_eq!(outcome.code, 143);
        // By its own clock. Nothing ran, so the stop has no more time than that.
        let time = time_of(&outcome, "ended because") - time_of(&outcome, "stopping;");
        assert!(time <= 4_000, "it took {time} ms: {}", outcome.stderr);
        broker.restart();
    }
}

/// The time of the first line with this text, in milliseconds of its day.
fn time_of(outcome: &Outcome, text: &str) -> i64 {
    let line = outcome.stderr.lines().find(|line| line.contains(text)).expect(text);
    // As in 2026-11-24T03:50:25.487Z.
    let number = |from: usize, to: usize| line[from..to].parse::<i64>().unwrap();
    ((number(11, 13) * 60 + number(14, 16)) * 60 + number(17, 19)) * 1000 + number(20, 23)
}

/// The status and the text of an answer.
fn get(address: &str, path: &str, host: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    (status.unwrap(), body.to_owned())
}

#[test]
fn health_readiness_and_metrics_say_that_the_broker_is_away() {
    let Some(mut broker) = broker() else { return };
    let topic = format!("kafka://{}/health", broker.address());
    produce(&topic, "1\n2\n3\n");
    let words = [&topic, "--group", "g", "--listen", "127.0.0.1:0", "--stall-timeout", "1s"];
    let mut child = consume(&[&words[..], &["--shutdown-timeout", "1s", "--", "true"]].concat());
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("listening at") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "it does not say where");
    }
    assert!(line.contains(" INFO ") && line.contains('T'), "no time, no level: {line}");
    let address = line.trim().rsplit_once("http://").unwrap().1.to_owned();
    // It goes on to write, so its output is read.
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || said.lines().map_while(Result::ok).for_each(|l| drop(sender.send(l))));
    let ask = |path: &str| get(&address, path, "localhost");

    until("it is ready", || (ask("/readyz").0 == 200).then_some(()));
    until("all is handled", || {
        ask("/metrics").1.contains("keylane_handler_seconds_count 3").then_some(())
    });
    assert_eq!(ask("/healthz").0, 200);
    let metrics = ask("/metrics").1;
    for name in [
        "rebalances_total",
        "records_missed_total",
        "partition_uncommitted_seconds",
        "partition_running",
        "handler_seconds_bucket",
        "ready 1",
    ] {
        assert!(metrics.contains(&format!("\nkeylane_{name}")), "{name}: {metrics}");
    }
    assert_eq!(get(&address, "/lag", "evil.example:80").0, 403);
    assert_eq!(get(&address, "/lag", "127.0.0.1:9100").0, 200);

    broker.kill();
    until("it is not ready", || {
        let (status, why) = ask("/readyz");
        (status == 503 && why.contains("no broker")).then_some(())
    });
    until("it is not well", || {
        let (status, why) = ask("/healthz");
        (status == 503 && why.contains("no broker has been connected")).then_some(())
    });
    terminate(&child);
    ends(&mut child);
    // It retried all the time, and said so now and then.
    let lines: Vec<String> = lines.iter().collect();
    assert!(lines.iter().any(|line| line.contains(" WARN ")), "{lines:#?}");
    assert!(lines.len() < 60, "{lines:#?}");
}

#[test]
fn handlers_get_all_parts_of_a_record_and_tombstones_stay_null() {
    let Some(broker) = broker() else { return };
    let topic = format!("kafka://{}/parts", broker.address());
    produce(&topic, "");
    let client = ClientSettings::new(broker.address());
    let sink = KafkaSink::new(&client).unwrap();
    let header = |value: Option<&[u8]>| vec![("h".to_owned(), value.map(Vec::from))];
    let records = [
        Record { headers: header(Some(b"v")), ..Record::new("k", "a\0b\n") },
        Record { headers: header(None), ..Record::tombstone("k") },
        Record::new("k", ""),
    ];
    until("they are written", || sink.send_all("parts", &records).ok());

    let script = "test -n \"$KEYLANE_WRITTEN\" && w=w
        echo \"$KEYLANE_STREAM $KEYLANE_PARTITION_NUMBER $KEYLANE_POSITION $w t=$KEYLANE_TOMBSTONE \
        h=$KEYLANE_HEADERS $(od -An -tx1 | tr -d ' \\n')\"";
    let begin = [&*topic, "--group"];
    let end = ["--", "sh", "-c", script];
    let first = |group: &str, how: &str, count: usize| {
        let mut child = consume(&[&begin[..], &[group, "--payload", how], &end].concat());
        let printed = BufReader::new(child.stdout.take().unwrap());
        let lines: Vec<_> = printed.lines().take(count).map(Result::unwrap).collect();
        terminate(&child);
        ends(&mut child);
        lines
    };
    let lines = first("stdin", "stdin", 3);
    let at = |line: &str| line.split(' ').nth(2).and_then(|at| at.parse::<u64>().ok());
    let from = at(&lines[0]).unwrap();
    let expected = [
        format!("parts 0 {from} w t= h=[{{\"name\":\"h\",\"value\":\"v\"}}] 6100620a"),
        format!("parts 0 {} w t=1 h=[{{\"name\":\"h\",\"value\":null}}] ", from + 1),
        format!("parts 0 {} w t= h= ", from + 2),
    ];
    assert_eq!(lines, expected);
    // With NUL bytes it cannot be an argument.
    let refused = subcommand("consume", [&begin[..], &["arg", "--", "true"]].concat());
    feed(refused, b"").expect(255, &["nul byte", "`--payload stdin`"]);

    // As dead letters, and in a topic, they are what they were.
    let folder = tempfile::tempdir().unwrap();
    let file = format!("file:{}", folder.path().join("dead").display());
    let bury = |place: &str, group: &str| {
        let words = ["--attempts", "1", "--on-fail", "dead-letter", "--dead-letters", place];
        let words =
            [&begin[..], &[group], &words, &["--listen", "127.0.0.1:0", "--", "false", "x"]];
        let mut child = consume(&words.concat());
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("listening at") {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0, "it does not say where");
        }
        let address = line.trim().rsplit_once("http://").unwrap().1.to_owned();
        thread::spawn(move || said.lines().for_each(drop));
        until("they are buried", || {
            let metrics = get(&address, "/metrics", "localhost").1;
            metrics.contains("keylane_records_dead_lettered_total 3").then_some(())
        });
        terminate(&child);
        ends(&mut child);
    };
    bury(&file, "dead-file");
    let letters = std::fs::read_to_string(folder.path().join("dead")).unwrap();
    let letters: Vec<&str> = letters.lines().collect();
    assert!(
        letters[1].contains("\"payload\":null") && letters[1].contains("\"value\":null"),
        "{letters:?}"
    );
    assert!(letters[2].contains("\"payload\":\"\""), "{letters:?}");
    let dead = format!("kafka://{}/dead", broker.address());
    bury(&dead, "dead-topic");
    let buried = read(&client, "dead", 3);
    assert_eq!((&buried[1].payload, &buried[1].headers[0].1), (&None, &None));
    assert_eq!(buried[2].payload.as_deref(), Some(&b""[..]));
}

/// The first records of a topic with one partition.
fn read(client: &ClientSettings, topic: &str, count: usize) -> Vec<Record> {
    let settings = KafkaSettings::new(client.clone(), [topic], format!("reads-{topic}"));
    let mut source = KafkaSource::join(settings).unwrap();
    let mut found = Vec::new();
    until("they are read", || {
        let mut events = Vec::new();
        source.poll(Duration::from_millis(50), 100, &mut events).unwrap();
        for event in events {
            if let SourceEvent::Records { records, .. } = event {
                found.extend(records.into_iter().map(|delivered| delivered.record));
            }
        }
        (found.len() >= count).then_some(())
    });
    source.close(PATIENCE).unwrap();
    found
}

#[test]
fn places_that_cannot_be_written_to_are_named_at_the_start() {
    let Some(broker) = or_skip(Broker::start()) else { return };
    let at = broker.address();
    let source = format!("kafka://{at}/orders");
    let missing = format!("kafka://{at}/missing");
    let said = format!("there is no topic missing at {at}; make it first");
    let begin = [&*source, "--group", "g"];
    for words in [
        &["--on-fail", "dead-letter", "--dead-letters", &missing][..],
        &["--output", &missing],
        &["--output", &missing, "--exactly-once"],
    ] {
        let words = [&begin[..], words, &["--", "true"]].concat();
        feed(subcommand("consume", words), b"").expect(255, &[&said]);
    }
}

#[test]
fn topics_that_the_client_may_not_write_to_are_named_at_the_start() {
    let overrides = [&[("auto.create.topics.enable", "true")][..], &Broker::WITH_ACLS].concat();
    let Some(broker) = or_skip(Broker::start_with(&overrides)) else { return };
    let at = broker.address();
    let (source, closed) = (format!("kafka://{at}/orders"), format!("kafka://{at}/closed"));
    produce(&source, "1\n");
    produce(&closed, "1\n");
    broker.allow_only_reads("closed");
    let said = format!("the client may not write to the topic closed at {at}; grant it WRITE");
    let begin = [&*source, "--group", "g"];
    for words in [
        &["--on-fail", "dead-letter", "--dead-letters", &closed][..],
        &["--output", &closed],
        &["--output", &closed, "--exactly-once"],
    ] {
        let words = [&begin[..], words, &["--", "true"]].concat();
        feed(subcommand("consume", words), b"").expect(255, &[&said]);
    }
    // `produce` does not ask first, and names the remedy with the refused record.
    feed(subcommand("produce", [&closed]), b"2\n").expect(255, &["grant it WRITE on the topic"]);
    // Reading stays allowed.
    let words = [&closed, "--group", "g", "--to-the-end", "--", "true"];
    feed(subcommand("consume", words), b"").expect(0, &[]);
}

#[test]
fn a_record_that_is_too_large_for_the_topic_names_the_settings() {
    let overrides = [("auto.create.topics.enable", "true"), ("message.max.bytes", "2000")];
    let Some(broker) = or_skip(Broker::start_with(&overrides)) else { return };
    let topic = format!("kafka://{}/small", broker.address());
    let line: String = (0..4000).map(|n: u32| char::from(b'a' + (n * n % 23) as u8)).collect();
    let words = [&*topic, "--client", "compression.type=none"];
    let remedy = "raise `max.message.bytes` of the topic and `message.max.bytes` of the client";
    feed(subcommand("produce", words), format!("{line}\n").as_bytes()).expect(255, &[remedy]);
}

#[test]
fn a_group_beyond_the_end_stops_with_the_remedy_which_works() {
    let Some(broker) = broker() else { return };
    let topic = format!("kafka://{}/beyond", broker.address());
    produce(&topic, "1\n2\n3\n");
    let mut source = KafkaSource::join(KafkaSettings::new(
        ClientSettings::new(broker.address()),
        ["beyond"],
        "g",
    ))
    .unwrap();
    let partition = Partition::new("beyond", 0);
    let mut stored = false;
    let mut is_sent = false;
    until("it is stored", || {
        let mut events = Vec::new();
        source.poll(Duration::from_millis(50), 100, &mut events).unwrap();
        for event in events {
            match event {
                SourceEvent::Assigned(_) if !is_sent => {
                    is_sent = true;
                    let progress = Progress::up_to(Position::new(900));
                    source.commit(vec![ProgressCommit { partition: partition.clone(), progress }]);
                }
                SourceEvent::Committed { result, .. } => stored = result.is_ok(),
                _ => {}
            }
        }
        stored.then_some(())
    });
    source.close(PATIENCE).unwrap();

    let refused = subcommand("consume", [&topic, "--group", "g", "--", "echo"]);
    let outcome = feed(refused, b"");
    outcome.expect(255, &["beyond[0] was truncated to 3", "--out-of-range", " ERROR "]);
    let mut child = consume(&[&topic, "--group", "g", "--out-of-range", "first", "--", "echo"]);
    let mut said = BufReader::new(child.stderr.take().unwrap());
    hears(&mut said, "it continues at 3");
    produce(&topic, "new\n");
    hears(&mut BufReader::new(child.stdout.take().unwrap()), "new");
    terminate(&child);
    ends(&mut child);
}

/// Stores an offset with metadata for a group without members, as another product does: `OffsetCommit`, version 2.
fn commit_by_hand(broker: &str, group: &str, topic: &str, offset: i64, metadata: &str) {
    let text = |text: &str| [&(text.len() as i16).to_be_bytes(), text.as_bytes()].concat();
    let body = [
        // The request's type and version, its number, and the client's name.
        vec![0, 8, 0, 2, 0, 0, 0, 1],
        text("another"),
        text(group),
        // No generation, no member, the broker's retention.
        (-1i32).to_be_bytes().to_vec(),
        text(""),
        (-1i64).to_be_bytes().to_vec(),
        1i32.to_be_bytes().to_vec(),
        text(topic),
        1i32.to_be_bytes().to_vec(),
        0i32.to_be_bytes().to_vec(),
        offset.to_be_bytes().to_vec(),
        text(metadata),
    ]
    .concat();
    let mut stream = TcpStream::connect(broker).unwrap();
    stream.write_all(&[&(body.len() as i32).to_be_bytes()[..], &body].concat()).unwrap();
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut answer = vec![0; i32::from_be_bytes(length) as usize];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[answer.len() - 2..], [0, 0], "the error of the only partition");
}

#[test]
fn progress_of_another_product_is_an_error_until_the_user_decides() {
    let Some(broker) = broker() else { return };
    let topic = format!("kafka://{}/foreign", broker.address());
    produce(&topic, "1\n2\n3\n");
    let consume = |more: &[&str]| {
        let begin = [&*topic, "--group", "g", "--to-the-end"];
        feed(subcommand("consume", [&begin[..], more, &["--", "echo"]].concat()), b"")
    };
    consume(&[]).expect(0, &["3 handled"]);
    commit_by_hand(&broker.address(), "g", "foreign", 1, "another product's own words");
    for how in [&[][..], &["--foreign-progress", "refuse"]] {
        let outcome = consume(how);
        let remedy = ["--foreign-progress repeat", "--reset-offsets"];
        outcome.expect(255, &["metadata of foreign[0] cannot be used"]).expect(255, &remedy);
        assert_eq!(outcome.stdout, "");
    }
    let outcome = consume(&["--foreign-progress", "repeat"]);
    outcome.expect(0, &["foreign[0] is repeated from 1 on", "2 handled"]);
    assert_eq!(outcome.sorted(), ["2", "3"]);
    // The group's progress is its own again.
    consume(&[]).expect(0, &["0 handled"]);
}

/// The last offsets of such a topic are markers of transactions, and no records.
#[test]
fn a_topic_written_by_transactions_is_read_to_its_end() {
    let Some(broker) = broker() else { return };
    let [orders, bills] =
        ["orders", "bills"].map(|name| format!("kafka://{}/{name}", broker.address()));
    produce(&orders, "1\n2\n3\n");
    produce(&bills, "");
    let to_the_end = |topic: &str, more: &[&str]| {
        let begin = [topic, "--group", "g", "--to-the-end"];
        feed(subcommand("consume", [&begin[..], more, &["--", "echo"]].concat()), b"")
    };
    let once = ["--output", &bills, "--exactly-once"];
    to_the_end(&orders, &once).expect(0, &["all records are processed: 3 handled"]);
    to_the_end(&orders, &once).expect(0, &["all records are processed: 0 handled"]);
    let outcome = to_the_end(&bills, &[]);
    outcome.expect(0, &["all records are processed: 3 handled"]);
    assert_eq!(outcome.sorted(), ["1", "2", "3"]);
    to_the_end(&bills, &[]).expect(0, &["all records are processed: 0 handled"]);
}
