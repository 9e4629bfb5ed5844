//! `keylane consume kafka://HOST:PORT/TOPIC,TOPIC` and patterns of topics, with a real broker.
use std::fs;

use crate::common::{Outcome, feed, subcommand};
use keylane_testkit::{Broker, or_skip};

fn broker() -> Option<Broker> {
    or_skip(Broker::start_with(&[("auto.create.topics.enable", "true")]))
}

fn produce(broker: &Broker, topic: &str, lines: &str) {
    let topic = format!("kafka://{}/{topic}", broker.address());
    feed(subcommand("produce", [&topic]), lines.as_bytes()).expect(0, &["records are in kafka://"]);
}

fn consume(broker: &Broker, topics: &str, more: &[&str]) -> Outcome {
    let source = format!("kafka://{}/{topics}", broker.address());
    let begin = [&*source, "--group", "g", "--to-the-end"];
    let print = ["--", "sh", "-c", "echo $KEYLANE_STREAM $0"];
    feed(subcommand("consume", [&begin[..], more, &print].concat()), b"")
}

fn lag(broker: &Broker, topics: &str) -> Outcome {
    let source = format!("kafka://{}/{topics}", broker.address());
    feed(subcommand("lag", [&*source, "--group", "g"]), b"")
}

#[test]
fn several_topics_are_consumed_together_and_name_themselves() {
    let Some(broker) = broker() else { return };
    produce(&broker, "orders", "1\n2\n3\n");
    produce(&broker, "returns", "4\n5\n");
    produce(&broker, "bills", "6\n");
    let outcome = consume(&broker, "orders,returns", &[]);
    outcome.expect(0, &["all records are processed: 5 handled"]);
    assert_eq!(outcome.sorted(), ["orders 1", "orders 2", "orders 3", "returns 4", "returns 5"]);
    // A pattern has the progress of the topics by their names.
    produce(&broker, "returns", "7\n");
    let outcome = consume(&broker, "^(orders|bills|returns)$", &[]);
    outcome.expect(0, &["all records are processed: 2 handled"]);
    assert_eq!(outcome.sorted(), ["bills 6", "returns 7"]);
    for topics in ["orders,returns", "returns,^or"] {
        let lags = lag(&broker, topics);
        lags.expect(0, &[]);
        assert!(lags.stdout.contains("orders[0], group g\n  committed 3, "), "{}", lags.stdout);
        assert!(lags.stdout.contains("returns[0], group g\n  committed 3, "), "{}", lags.stdout);
        assert!(!lags.stdout.contains("bills"), "{}", lags.stdout);
    }
    lag(&broker, "^no-such").expect(255, &["no topic matches `^no-such`"]);
}

#[test]
fn a_dead_letter_names_its_topic_and_does_not_go_to_a_topic_of_the_source() {
    let Some(broker) = broker() else { return };
    produce(&broker, "orders", "1\n");
    produce(&broker, "returns", "2\n");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dead.ndjson");
    let place = format!("file:{}", file.display());
    let source = format!("kafka://{}/^(orders|returns)", broker.address());
    let words = ["--group", "dead", "--to-the-end", "--attempts", "1", "--on-fail", "dead-letter"];
    let consume = |place: &str| {
        let words = [&[&*source], &words[..], &["--dead-letters", place, "--", "false"]].concat();
        feed(subcommand("consume", words), b"")
    };
    consume(&place).expect(2, &["2 dead-lettered"]);
    let letters = fs::read_to_string(&file).unwrap();
    for topic in ["orders", "returns"] {
        assert!(letters.contains(&format!("\"stream\":\"{topic}\"")), "{letters}");
    }
    let own = format!("kafka://{}/orders.dead", broker.address());
    consume(&own).expect(255, &["orders.dead is read by the source", "name another topic"]);
}
