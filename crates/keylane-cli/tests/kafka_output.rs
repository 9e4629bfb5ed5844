//! `keylane consume --output kafka://…`, to a real broker; skipped where there is none.

mod common;

use common::{feed, subcommand};

#[test]
fn a_topic_that_would_be_its_own_source_is_refused() {
    let topic = "kafka://localhost:9092/orders";
    let words = [topic, "--group", "g", "--output", topic, "--", "cat"];
    feed(subcommand("consume", words), b"").expect(255, &["name another topic"]);
}

#[cfg(not(feature = "kafka"))]
#[test]
fn a_build_without_kafka_says_so() {
    let words = ["-", "--order", "none", "--output", "kafka://localhost:9092/bills", "--", "echo"];
    feed(subcommand("consume", words), b"").expect(255, &["built without Kafka"]);
}

#[cfg(feature = "kafka")]
#[test]
fn what_a_command_prints_goes_to_a_topic_in_order_per_key() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    use keylane_testkit::{Broker, or_skip};

    let Some(broker) = or_skip(Broker::start_with(&[("auto.create.topics.enable", "true")])) else {
        return;
    };
    let topic = format!("kafka://{}/bills", broker.address());
    let lines: String =
        (0..20).map(|n| format!("{{\"client\":\"c{}\",\"n\":{n}}}\n", n % 4)).collect();
    let words = ["-", "--ndjson", "--key", ".client", "-j", "4", "--output", &topic];
    let bill = ["--", "sh", "-c", "test {n} = 7 || echo bill {n}"];
    let consume = subcommand("consume", [&words[..], &bill].concat());
    let outcome = feed(consume, lines.as_bytes());
    outcome.expect(0, &["20 handled"]);
    assert_eq!(outcome.stdout, "", "it goes to the topic, and nowhere else");

    let words = [&topic, "--group", "mail", "-j", "4", "-X", "session.timeout.ms=6000"];
    let echo = ["--", "sh", "-c", "echo $KEYLANE_KEY $0", "{}"];
    let mut child = subcommand("consume", [&words[..], &echo].concat())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let bills: Vec<String> = lines.take(19).map(Result::unwrap).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    for key in 0..4 {
        let own: Vec<_> =
            bills.iter().filter(|bill| bill.starts_with(&format!("c{key} "))).cloned().collect();
        let numbers = (0..5).map(|i| i * 4 + key).filter(|n| *n != 7);
        assert_eq!(own, numbers.map(|n| format!("c{key} bill {n}")).collect::<Vec<_>>());
    }
}
