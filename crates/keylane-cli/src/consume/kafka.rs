//! Kafka as source, sink, and origin of a group's lag; in builds with the feature `kafka`.

use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use keylane_stream::Record;
use keylane_stream::dead_letters::DeadLetters;
use keylane_stream::kafka::{
    ClientSettings, KafkaDeadLetters, KafkaOutput, KafkaSettings, KafkaSink, KafkaSource,
    OffsetMapVersion, RebalanceProtocol, SendError, StartFrom, SubscriptionAddress, TargetState,
    TopicAddress, WrittenPosition, lag, target_state, topic_names,
};
use keylane_stream::sink::Sink;
use keylane_stream::source::Source;
use keylane_stream::tracker::{OffsetMapPolicy, UnreadableMapPolicy};

use super::settings::{ForeignProgressPolicy, KafkaProtocol, KafkaStart, OffsetMap};
use super::status::PartitionLag;
use super::topics;
use super::validated::KafkaMember;
use crate::features::command_with;

/// Note for the help.
pub(super) fn note() -> String {
    let has = "This build has Kafka: places can be kafka://HOST:PORT/TOPIC.";
    if cfg!(feature = "kafka-tls") {
        return has.to_owned();
    }
    let command = command_with("kafka-tls");
    format!("{has} It has neither TLS nor SCRAM. For a build with them: `{command}`")
}

pub(super) fn source(kafka: &KafkaMember) -> anyhow::Result<Box<dyn Source>> {
    Ok(Box::new(KafkaSource::join(settings(kafka)?)?))
}

/// Source, and sink for the results of its records, in common transactions.
pub(super) fn exactly_once(
    kafka: &KafkaMember,
    output: &str,
) -> anyhow::Result<(Box<dyn Source>, Box<dyn Sink>)> {
    let settings = settings(kafka)?;
    check_topic(&settings.client, output)?;
    let (source, output) = KafkaSource::join_exactly_once(settings, output)?;
    Ok((Box::new(source), Box::new(output)))
}

fn settings(kafka: &KafkaMember) -> anyhow::Result<KafkaSettings> {
    let (client, topics) = subscription(&kafka.address, &kafka.client)?;
    let settings = KafkaSettings::new(client, topics, kafka.group.as_str());
    Ok(KafkaSettings {
        protocol: match kafka.protocol {
            KafkaProtocol::Cooperative => RebalanceProtocol::Cooperative,
            KafkaProtocol::Broker => RebalanceProtocol::Broker,
        },
        member: kafka.member.clone(),
        start: start(kafka.start),
        out_of_range: start(kafka.out_of_range),
        policy: OffsetMapPolicy {
            unreadable: match kafka.foreign_progress {
                ForeignProgressPolicy::Refuse => UnreadableMapPolicy::Refuse,
                ForeignProgressPolicy::Repeat => UnreadableMapPolicy::Repeat,
            },
            ..OffsetMapPolicy::default()
        },
        map_version: match kafka.offset_map {
            OffsetMap::Kl1 => OffsetMapVersion::One,
            OffsetMap::Kl2 => OffsetMapVersion::Two,
        },
        to_the_end: kafka.to_the_end,
        ..settings
    })
}

fn start(start: KafkaStart) -> StartFrom {
    match start {
        KafkaStart::First => StartFrom::First,
        KafkaStart::Last => StartFrom::Last,
        KafkaStart::Refuse => StartFrom::Refuse,
    }
}

/// Timeout for the brokers' answer whether a topic exists.
const TOPIC_WITHIN: Duration = Duration::from_secs(5);

/// Checks that a topic for output exists and that the client may write to it. An unreachable broker
/// is no error: the source waits for it as well.
fn check_topic(client: &ClientSettings, topic: &str) -> anyhow::Result<()> {
    let brokers = client.brokers();
    match target_state(client, topic, TOPIC_WITHIN)? {
        TargetState::Missing => bail!(
            "there is no topic {topic} at {brokers}; make it first, or grant DESCRIBE on it to \
             the client"
        ),
        TargetState::NotAuthorized => bail!(
            "the client may not write to the topic {topic} at {brokers}; grant it WRITE on the topic"
        ),
        _ => Ok(()),
    }
}

/// Checks the client's settings and the source, without a connection.
pub(super) fn check(kafka: &KafkaMember) -> anyhow::Result<()> {
    Ok(settings(kafka)?.check()?)
}

/// Checks the client's settings for a topic to write to, without a connection.
pub(super) fn check_output(address: &str, settings: &[String]) -> anyhow::Result<()> {
    let (client, _) = client(address, settings)?;
    Ok(KafkaSink::check(&client)?)
}

pub(super) fn dead_letters(
    address: &str,
    settings: &[String],
) -> anyhow::Result<Box<dyn DeadLetters>> {
    let (client, address) = client(address, settings)?;
    check_topic(&client, &address.topic)?;
    Ok(Box::new(KafkaDeadLetters::new(KafkaSink::new(&client)?, address.topic)))
}

pub(super) fn output(address: &str, settings: &[String]) -> anyhow::Result<Box<dyn Sink>> {
    let (client, address) = client(address, settings)?;
    check_topic(&client, &address.topic)?;
    Ok(Box::new(KafkaOutput::new(&client, address.topic)?))
}

pub(super) fn lags(
    address: &str,
    settings: &[String],
    group: &str,
) -> anyhow::Result<Vec<PartitionLag>> {
    let (client, topics) = subscription(address, settings)?;
    let mut lags = Vec::new();
    for topic in named_topics(&client, group, topics)? {
        lags.extend(lag(&client, group, &topic)?);
    }
    let of = |lag: keylane_stream::kafka::PartitionLag| {
        let committed = lag.committed.unwrap_or(lag.first).get();
        let highest_done = lag.highest_done.map_or(committed, |highest| highest.get());
        let above = lag.end.get().saturating_sub(highest_done);
        PartitionLag {
            partition: lag.partition.to_string(),
            topic: lag.partition.stream().to_owned(),
            group: Some(group.to_owned()),
            committed,
            highest_done,
            end: Some(lag.end.get()),
            incomplete: lag.open.saturating_sub(above),
            live: None,
        }
    };
    Ok(lags.into_iter().map(of).collect())
}

/// Replaces a pattern by the names of the topics that it matches now.
fn named_topics(
    client: &ClientSettings,
    group: &str,
    topics: Vec<String>,
) -> anyhow::Result<Vec<String>> {
    let (patterns, mut names): (Vec<_>, Vec<_>) =
        topics.into_iter().partition(|topic| topic.starts_with('^'));
    if let Some(pattern) = patterns.first() {
        let known = topic_names(client, group)?;
        names.extend(known.into_iter().filter(|name| topics::matches(pattern, name)));
        ensure!(!names.is_empty(), "no topic matches `{pattern}`; check the pattern");
        names.sort_unstable();
        names.dedup();
    }
    Ok(names)
}

/// The client's settings, each as `name=value`, and a topic.
fn client(address: &str, settings: &[String]) -> anyhow::Result<(ClientSettings, TopicAddress)> {
    let address: TopicAddress =
        address.parse().with_context(|| format!("`{address}` is no topic"))?;
    Ok((with_settings(ClientSettings::new(address.brokers.as_str()), settings)?, address))
}

/// The client's settings, and the topics of a source.
fn subscription(
    address: &str,
    settings: &[String],
) -> anyhow::Result<(ClientSettings, Vec<String>)> {
    let address: SubscriptionAddress =
        address.parse().with_context(|| format!("`{address}` names no topics"))?;
    let client = with_settings(ClientSettings::new(address.brokers.as_str()), settings)?;
    Ok((client, address.topics))
}

fn with_settings(
    mut client: ClientSettings,
    settings: &[String],
) -> anyhow::Result<ClientSettings> {
    for setting in settings {
        let (name, value) = setting
            .split_once('=')
            .ok_or_else(|| anyhow!("`{setting}` is no setting of the client; write name=value"))?;
        if !cfg!(feature = "kafka-tls") && needs_tls(name, value) {
            bail!(
                "{name} needs TLS, and this keylane was built without it; build it with it: `{}`",
                command_with("kafka-tls")
            );
        }
        client = client.set(name, value);
    }
    Ok(client)
}

/// Returns whether a setting of the client is in builds with OpenSSL only.
fn needs_tls(name: &str, value: &str) -> bool {
    let value = value.to_ascii_uppercase();
    match name {
        "security.protocol" => value.contains("SSL"),
        "sasl.mechanism" | "sasl.mechanisms" => {
            value.starts_with("SCRAM") || value == "OAUTHBEARER"
        }
        _ => name.starts_with("ssl.") || name == "enable.ssl.certificate.verification",
    }
}

/// Result of a record that was sent.
type SendResult = Result<WrittenPosition, SendError>;

/// Records on their way to a topic.
pub(super) struct PendingSends {
    sink: KafkaSink,
    topic: String,
    answers: (Sender<SendResult>, Receiver<SendResult>),
    /// Number of records without a result.
    pending: u64,
    pub(super) written: u64,
}

impl PendingSends {
    pub(super) fn new(address: &str, settings: &[String]) -> anyhow::Result<Self> {
        let (client, address) = client(address, settings)?;
        let sink = KafkaSink::new(&client)?;
        Ok(PendingSends {
            sink,
            topic: address.topic,
            answers: mpsc::channel(),
            pending: 0,
            written: 0,
        })
    }

    pub(super) fn append(&mut self, record: &Record) -> anyhow::Result<()> {
        let sender = self.answers.0.clone();
        self.sink.send(&self.topic, record, move |result| {
            // The receiver is gone if the command has failed.
            let _ = sender.send(result);
        });
        self.pending += 1;
        while let Ok(answer) = self.answers.1.try_recv() {
            self.take(answer)?;
        }
        Ok(())
    }

    /// Waits for the results of all records and returns the first error.
    pub(super) fn settle(&mut self) -> anyhow::Result<()> {
        let mut settled = Ok(());
        while self.pending > 0 {
            let answer = self.answers.1.recv().expect("one end of it is ours");
            settled = settled.and(self.take(answer));
        }
        settled
    }

    fn take(&mut self, answer: SendResult) -> anyhow::Result<()> {
        self.pending -= 1;
        answer.with_context(|| format!("cannot write to {}", self.topic))?;
        self.written += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::needs_tls;

    #[test]
    fn settings_of_tls_and_of_scram_need_a_build_with_openssl() {
        for (name, value) in [
            ("security.protocol", "ssl"),
            ("security.protocol", "SASL_SSL"),
            ("sasl.mechanism", "SCRAM-SHA-512"),
            ("sasl.mechanisms", "oauthbearer"),
            ("ssl.ca.location", "ca.pem"),
            ("enable.ssl.certificate.verification", "false"),
        ] {
            assert!(needs_tls(name, value), "{name}={value}");
        }
        for (name, value) in [
            ("security.protocol", "SASL_PLAINTEXT"),
            ("sasl.mechanism", "PLAIN"),
            ("client.id", "ssl"),
        ] {
            assert!(!needs_tls(name, value), "{name}={value}");
        }
    }
}
