//! `keylane consume --output kafka://…`, to a real broker; skipped where there is none.

use crate::common::{feed, subcommand};

#[test]
fn a_topic_that_would_be_its_own_source_is_refused() {
    let topic = "kafka://localhost:9092/orders";
    let words = [topic, "--group", "g", "--output", topic, "--", "cat"];
    feed(subcommand("consume", words), b"").expect(255, &["name another topic"]);
}

#[test]
fn exactly_once_is_from_a_topic_to_a_topic_of_the_same_brokers() {
    let [topic, bills] = ["kafka://one:9092/orders", "kafka://two:9092/bills"];
    let refused = |words: &[&str]| {
        let base = ["--group", "g", "--exactly-once", "--", "cat"];
        let outcome = feed(subcommand("consume", [words, &base].concat()), b"");
        outcome.expect(255, &["exactly once is from a topic to a topic of the same brokers"]);
    };
    refused(&[topic]);
    refused(&[topic, "--output", bills]);
    refused(&[topic, "--output", "journal:bills"]);
    refused(&["journal:orders", "--output", bills]);
}

#[cfg(not(feature = "kafka"))]
#[test]
fn a_build_without_kafka_says_so() {
    let words = ["-", "--order", "none", "--output", "kafka://localhost:9092/bills", "--", "echo"];
    feed(subcommand("consume", words), b"").expect(255, &["built without Kafka"]);
}

#[cfg(feature = "kafka")]
#[test]
fn exactly_once_consumers_that_are_killed_leave_one_answer_for_each_record() {
    use std::process::Stdio;
    use std::thread;
    use std::time::Duration;

    use keylane_testkit::{Broker, or_skip};
    use rustix::process::{Pid, Signal, kill_process};

    let settings = [
        ("auto.create.topics.enable", "true"),
        ("transaction.abort.timed.out.transaction.cleanup.interval.ms", "200"),
    ];
    let Some(broker) = or_skip(Broker::start_with(&settings)) else { return };
    let [orders, bills] =
        ["orders", "bills"].map(|topic| format!("kafka://{}/{topic}", broker.address()));
    let lines: String = (0..400).map(|n| format!("{} {n}\n", n % 7)).collect();
    feed(subcommand("produce", [&*orders, "--key", "1"]), lines.as_bytes()).expect(0, &[]);
    let start = || {
        let words = [&*orders, "--group", "billing", "-j", "3", "--commit-interval", "20ms"];
        let once = ["--output", &bills, "--exactly-once", "-X", "transaction.timeout.ms=2000"];
        let quick = ["-X", "session.timeout.ms=2000", "-X", "heartbeat.interval.ms=300"];
        let worker = ["--worker", "--", "sh", "-c", "while read -r a b; do echo bill $b; done"];
        subcommand("consume", [&words[..], &once, &quick, &worker].concat())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    for _ in 0..2 {
        let mut consumer = start();
        // Wherever it is.
        thread::sleep(Duration::from_millis(1_500));
        consumer.kill().unwrap();
        consumer.wait().unwrap();
    }
    let mut consumer = start();
    wait_until_read(&orders, "billing");
    kill_process(Pid::from_child(&consumer), Signal::TERM).unwrap();
    consumer.wait().unwrap();

    let words = [&*bills, "--group", "mail", "-j", "1", "--order", "partition", "--", "echo", "{}"];
    let mut reader = subcommand("consume", words);
    let reader = reader.stdin(Stdio::null()).spawn().unwrap();
    wait_until_read(&bills, "mail");
    kill_process(Pid::from_child(&reader), Signal::TERM).unwrap();
    let bills = crate::common::finish(reader).stdout;
    for key in 0..7 {
        let own = bills.lines().filter_map(|line| line.strip_prefix("bill ")?.parse().ok());
        let own: Vec<u32> = own.filter(|number| number % 7 == key).collect();
        assert_eq!(own, (0..400).filter(|number| number % 7 == key).collect::<Vec<_>>());
    }
}

/// Waits until a group has committed all that there is of a topic.
#[cfg(feature = "kafka")]
fn wait_until_read(topic: &str, group: &str) {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(90);
    loop {
        let lag = feed(subcommand("lag", [topic, "--group", group, "--json"]), b"").stdout;
        let number = |name: &str| {
            let (_, rest) = lag.split_once(&format!("\"{name}\":"))?;
            rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok()
        };
        if number("end").is_some_and(|end| end > 0) && number("committed") == number("end") {
            return;
        }
        assert!(std::time::Instant::now() < until, "{lag}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[cfg(feature = "kafka")]
#[test]
fn output_of_a_command_goes_to_a_topic_in_order_per_key() {
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

    let words = [&topic, "--group", "mail", "-j", "4"];
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
