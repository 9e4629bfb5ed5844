//! `keylane produce`, `consume` and `lag` against a real broker; skipped where there is none.

use crate::common::{feed, subcommand};

#[cfg(not(feature = "kafka"))]
#[test]
fn a_build_without_kafka_says_so() {
    let topic = "kafka://localhost:9092/orders";
    let without = "built without Kafka; build it with it: `cargo build --release -p keylane-cli --features kafka`";
    let consume = ["--group", "g", "--", "true"];
    feed(subcommand("consume", [&[topic], &consume[..]].concat()), b"").expect(255, &[without]);
    feed(subcommand("produce", [topic]), b"").expect(255, &[without]);
    feed(subcommand("lag", [topic, "--group", "g"]), b"").expect(255, &[without]);
    let letters = ["-", "--order", "none", "--on-fail", "dead-letter", "--dead-letters", topic];
    let letters = [&letters[..], &["--", "true"]].concat();
    feed(subcommand("consume", letters), b"").expect(255, &[without]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("c.toml");
    std::fs::write(&file, format!("group = \"g\"\nsource = \"{topic}\"\n")).unwrap();
    feed(subcommand("config", ["check".as_ref(), file.as_os_str()]), b"")
        .expect(255, &["c.toml:2: ", without]);
    let help = feed(subcommand("consume", ["--help"]), b"");
    help.expect(0, &[]);
    assert!(help.stdout.contains("This build has no Kafka"), "{}", help.stdout);
    assert!(help.stdout.contains("cargo build --release -p keylane-cli --features kafka"));
}

#[cfg(feature = "kafka")]
#[test]
fn records_go_to_a_topic_and_come_from_it_in_order_per_key() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    use keylane_testkit::{Broker, or_skip};
    use rustix::process::{Pid, Signal, kill_process};

    let Some(broker) = or_skip(Broker::start_with(&[("auto.create.topics.enable", "true")])) else {
        return;
    };
    let topic = format!("kafka://{}/orders", broker.address());
    let lines: String =
        (0..20).map(|n| format!("{{\"client\":\"c{}\",\"n\":{n}}}\n", n % 4)).collect();
    let produce = subcommand("produce", [&topic, "--ndjson", "--key", ".client"]);
    feed(produce, lines.as_bytes()).expect(0, &["20 records are in kafka://"]);
    // One that the broker would not take ends it, with what came before it written.
    let too_large = format!("small\n{}\nbehind it\n", "x".repeat(2 << 20));
    let other = subcommand("produce", [format!("kafka://{}/large", broker.address())]);
    feed(other, too_large.as_bytes()).expect(255, &["1 records are in", "cannot write to large"]);

    // What the client is told reaches it, and what it does not know is named.
    let echo = ["--", "sh", "-c", "echo $KEYLANE_KEY $KEYLANE_POSITION {n}"];
    let group = ["--group", "billing", "--ndjson", "-j", "4", "-X", "session.timeout.ms=60000"];
    let unknown = [&[&*topic, "-X", "no.such=1"], &group[..], &echo].concat();
    feed(subcommand("consume", &unknown), b"").expect(255, &["no.such"]);
    // Read to the end, a topic ends its consumer, which has stored all of it.
    let ends = ["--to-the-end", "--group", "nightly", "--ndjson", "-j", "4"];
    let to_the_end = [&[&*topic], &ends[..], &echo].concat();
    let outcome = feed(subcommand("consume", &to_the_end), b"");
    outcome.expect(0, &["all records are processed: 20 handled"]);
    assert_eq!(outcome.stdout.lines().count(), 20);
    feed(subcommand("consume", &to_the_end), b"")
        .expect(0, &["all records are processed: 0 handled"]);

    let words = [&[&*topic], &group[..], &echo].concat();
    let mut child = subcommand("consume", &words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let handled: Vec<String> =
        BufReader::new(child.stdout.take().unwrap()).lines().take(20).map(Result::unwrap).collect();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    child.wait().unwrap();
    for key in 0..4 {
        let own = handled.iter().filter(|line| line.starts_with(&format!("c{key} ")));
        let expected: Vec<_> =
            (0..5).map(|i| i * 4 + key).map(|n| format!("c{key} {n} {n}")).collect();
        assert_eq!(own.collect::<Vec<_>>(), expected.iter().collect::<Vec<_>>());
    }

    let lag = ["--group", "billing", "--json"];
    let outcome = feed(subcommand("lag", [&[&*topic], &lag[..]].concat()), b"");
    outcome.expect(0, &[]);
    assert!(outcome.stdout.contains("\"committed\":20"), "{}", outcome.stdout);
    assert!(outcome.stdout.contains("\"end\":20"), "{}", outcome.stdout);
    feed(subcommand("lag", [&topic]), b"").expect(255, &["--group"]);
}
