//! Settings of Kafka clients and group members.

use std::collections::BTreeMap;
use std::fmt;

use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;

use crate::source::SourceError;
use crate::tracker::{OffsetMapLimit, OffsetMapPolicy};

/// Settings of a Kafka client: bootstrap brokers, and any settings of librdkafka.
///
/// Settings have [librdkafka's names][names] and are passed on unchanged, so TLS and SASL work as
/// elsewhere. Other settings have defaults that suit slow handlers.
///
/// [names]: https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md
///
/// # Examples
/// ```
/// use keylane_stream::kafka::ClientSettings;
///
/// let client = ClientSettings::new("broker-1:9093,broker-2:9093")
///     .set("security.protocol", "SASL_SSL")
///     .set("sasl.mechanisms", "SCRAM-SHA-512")
///     .set("sasl.username", "orders")
///     .set("sasl.password", "secret");
/// assert!(!format!("{client:?}").contains("\"secret\""));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct ClientSettings {
    settings: BTreeMap<String, String>,
}

/// Settings of a group member, a [`KafkaSource`](super::KafkaSource).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaSettings {
    /// Client settings.
    pub client: ClientSettings,
    /// Topics to consume. A name that begins with `^` is a regular expression: a POSIX extended one,
    /// or RE2 for [`RebalanceProtocol::Broker`]. Topics that appear later and match are consumed
    /// too, once the client has looked for topics again: every 30 s, unless the client setting
    /// `topic.metadata.refresh.interval.ms` has another time.
    pub topics: Vec<String>,
    /// Consumer group.
    pub group: String,
    /// Rebalance protocol. Default: [`RebalanceProtocol::Cooperative`].
    pub protocol: RebalanceProtocol,
    /// Static member name, `group.instance.id`: a member that returns within the session timeout
    /// gets its partitions back without a rebalance. Default: none.
    pub member: Option<String>,
    /// Start of a group without commits. Default: [`StartFrom::First`].
    pub start: StartFrom,
    /// Continuation of a partition whose next record does not exist: removed by retention, lost by
    /// brokers, or an offset that was set beyond the end. Default: [`StartFrom::Refuse`], an error
    /// with the remedy.
    ///
    /// - [`StartFrom::First`] continues at the first record that was not read: at the beginning of
    ///   the log, or where it was truncated.
    /// - [`StartFrom::Last`] continues after the last record.
    ///
    /// [`SourceEvent::Missed`](crate::source::SourceEvent::Missed) counts the skipped positions.
    pub out_of_range: StartFrom,
    /// Policy for progress that is damaged, or another product's. Default: takes over maps of the
    /// parallel consumer and refuses others.
    pub policy: OffsetMapPolicy,
    /// Policy for topics that were deleted and recreated. Default: [`RecreatedTopic::FromFirst`].
    pub recreated_topic: RecreatedTopic,
    /// Maximum length of the metadata beside an offset, in characters. Default: 4,096, the broker's
    /// default of `offset.metadata.max.bytes`.
    pub map_limit: OffsetMapLimit,
    /// Version in which maps are written. All versions are read. Default: [`OffsetMapVersion::Two`].
    pub map_version: OffsetMapVersion,
    /// Whether a partition is exhausted where it ended when this member first got it, instead of
    /// waiting for more records. A member without partitions waits until it gets some. Default:
    /// `false`.
    pub to_the_end: bool,
}

/// Version of the map beside a committed offset.
///
/// A member that knows only an older version stops at a newer map. For a rolling upgrade, start the
/// new members with the older version, and change it when all members are upgraded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OffsetMapVersion {
    /// `KL1`: completed positions.
    One,
    /// `KL2`: completed positions, and the leader epoch up to which they hold, if the brokers have
    /// epochs.
    #[default]
    Two,
}

/// Rebalance protocol of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RebalanceProtocol {
    /// The members assign the partitions, with incremental rebalances: `cooperative-sticky`. The
    /// client setting `partition.assignment.strategy` takes precedence.
    #[default]
    Cooperative,
    /// The broker assigns the partitions, from Kafka 4.0 on (KIP-848): `group.protocol=consumer`.
    Broker,
}

/// Start of reading, for a group without commits ([`KafkaSettings::start`]) or a partition whose
/// next record does not exist ([`KafkaSettings::out_of_range`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartFrom {
    /// At the first record.
    #[default]
    First,
    /// After the last record.
    Last,
    /// An error.
    Refuse,
}

/// Policy for topics that were deleted and recreated with their name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecreatedTopic {
    /// Reads the new topic from its first record. Progress of the old one is discarded.
    #[default]
    FromFirst,
    /// An error, so that an operator decides.
    Refuse,
}

impl ClientSettings {
    /// Creates settings with these bootstrap brokers, as `host:port`, separated by commas.
    pub fn new(brokers: impl Into<String>) -> Self {
        ClientSettings { settings: BTreeMap::new() }.set("bootstrap.servers", brokers)
    }

    /// Sets a setting of librdkafka, and replaces an earlier value.
    #[must_use]
    pub fn set(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.insert(name.into(), value.into());
        self
    }

    /// Returns the bootstrap brokers.
    #[must_use]
    pub fn brokers(&self) -> &str {
        self.settings.get("bootstrap.servers").map_or("", String::as_str)
    }

    /// Returns the value of a setting.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }

    /// Creates librdkafka's configuration. `fixed` settings take precedence over the user's, and
    /// these over `defaults`.
    ///
    /// # Errors
    /// If the user has set a fixed setting.
    pub(super) fn config(
        &self,
        defaults: &[(&str, &str)],
        fixed: &[(&str, &str)],
    ) -> Result<ClientConfig, SourceError> {
        let mut config = ClientConfig::new();
        // Lower levels are for debugging the client.
        config.set_log_level(RDKafkaLogLevel::Warning);
        config.set("client.id", "keylane");
        // The OpenSSL of a static binary looks for certificates where no system has them.
        if cfg!(all(feature = "kafka-tls", target_env = "musl")) {
            config.set("ssl.ca.location", "probe");
        }
        for (name, value) in defaults {
            config.set(*name, *value);
        }
        for (name, value) in &self.settings {
            if fixed.iter().any(|(fixed, _)| fixed == name) {
                let what =
                    format!("the client setting {name} is reserved by Keylane; leave it out");
                return Err(SourceError::new(what));
            }
            config.set(name, value);
        }
        for (name, value) in fixed {
            config.set(*name, *value);
        }
        Ok(config)
    }
}

impl fmt::Debug for ClientSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.settings.iter().map(|(name, value)| {
            (name, if is_secret(name) { "(not shown)" } else { value.as_str() })
        });
        f.debug_map().entries(shown).finish()
    }
}

/// Returns whether a setting's value must not be shown, by its name.
fn is_secret(name: &str) -> bool {
    ["password", "secret", ".key", ".pem", "oauthbearer.config", "jaas"]
        .iter()
        .any(|part| name.contains(part))
}

/// Defaults for handlers that are slower than the network: a short read-ahead, because fetched
/// records occupy memory and are fetched again after a rebalance; and frequent checks for room in
/// the buffer.
const DEFAULTS: [(&str, &str); 5] = [
    ("queued.min.messages", "10000"),
    ("queued.max.messages.kbytes", "2048"),
    ("fetch.queue.backoff.ms", "5"),
    // The client sends a broker one request at a time, for the partitions that have room in their
    // buffers. If those have nothing new, the broker waits this long, and the others run dry: one
    // partition that is behind, beside others that are not, reads its read-ahead once in this time.
    // The client's own 500 ms allow 210,000 small records a second of it, and 50 ms 1.4 million. An
    // idle consumer sends each broker 20 requests a second.
    ("fetch.wait.max.ms", "50"),
    // Statistics have the ends of partitions, for the lag.
    ("statistics.interval.ms", "1000"),
];

/// Default for patterns: the client's own interval of five minutes delays the first records of a new
/// topic by as much.
const PATTERN_DEFAULT: (&str, &str) = ("topic.metadata.refresh.interval.ms", "30000");

/// Settings that the source relies on.
const FIXED: [(&str, &str); 4] = [
    // Only the consumer's progress is committed.
    ("enable.auto.commit", "false"),
    ("enable.auto.offset.store", "false"),
    // Lets the watermark pass gaps at the end of a partition.
    ("enable.partition.eof", "true"),
    // Each partition starts at an explicit offset. If that is out of range, the start policy
    // decides.
    ("auto.offset.reset", "error"),
];

impl KafkaSettings {
    /// Creates the settings of a member of `group` that consumes `topics`.
    pub fn new<T: Into<String>>(
        client: ClientSettings,
        topics: impl IntoIterator<Item = T>,
        group: impl Into<String>,
    ) -> Self {
        KafkaSettings {
            client,
            topics: topics.into_iter().map(Into::into).collect(),
            group: group.into(),
            protocol: RebalanceProtocol::default(),
            member: None,
            start: StartFrom::default(),
            out_of_range: StartFrom::Refuse,
            policy: OffsetMapPolicy::default(),
            recreated_topic: RecreatedTopic::default(),
            map_limit: OffsetMapLimit::KAFKA,
            map_version: OffsetMapVersion::default(),
            to_the_end: false,
        }
    }

    /// Checks the client settings without a connection.
    ///
    /// # Errors
    /// If a setting is unknown, invalid, or reserved by Keylane.
    pub fn check(&self) -> Result<(), SourceError> {
        let config = self.config()?;
        let cannot = |error| SourceError::because("cannot start the Kafka client", error);
        config.create_native_config().map(drop).map_err(cannot)
    }

    pub(super) fn config(&self) -> Result<ClientConfig, SourceError> {
        if self.topics.is_empty() {
            return Err(SourceError::new("`topics` is empty; name at least one topic"));
        }
        let mut defaults = DEFAULTS.to_vec();
        if self.topics.iter().any(|topic| topic.starts_with('^')) {
            defaults.push(PATTERN_DEFAULT);
        }
        let mut fixed = FIXED.to_vec();
        fixed.push(("group.id", &self.group));
        match self.protocol {
            RebalanceProtocol::Cooperative => {
                defaults.push(("partition.assignment.strategy", "cooperative-sticky"));
                fixed.push(("group.protocol", "classic"));
            }
            RebalanceProtocol::Broker => fixed.push(("group.protocol", "consumer")),
        }
        if let Some(member) = &self.member {
            fixed.push(("group.instance.id", member));
        }
        self.client.config(&defaults, &fixed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use rdkafka::ClientContext;
    use rdkafka::consumer::{BaseConsumer, ConsumerContext};
    use rdkafka::producer::{BaseProducer, DeliveryResult, ProducerContext};

    use super::super::sink::{PATIENT_DEFAULTS, SINK_DEFAULTS, SINK_FIXED};
    use super::super::transaction;
    use super::*;

    /// Warnings of a client about its configuration.
    #[derive(Clone, Default)]
    struct ConfigWarnings(Arc<Mutex<Vec<String>>>);

    impl ClientContext for ConfigWarnings {
        fn log(&self, _: RDKafkaLogLevel, facility: &str, message: &str) {
            if facility == "CONFWARN" {
                self.0.lock().unwrap().push(message.to_owned());
            }
        }
    }

    impl ConsumerContext for ConfigWarnings {}

    impl ProducerContext for ConfigWarnings {
        type DeliveryOpaque = ();

        fn delivery(&self, _: &DeliveryResult<'_>, (): ()) {}
    }

    fn warnings_of_consumer(config: &ClientConfig) -> Vec<String> {
        let warnings = ConfigWarnings::default();
        let consumer: BaseConsumer<_> = config.create_with_context(warnings.clone()).unwrap();
        // The client has queued its warnings when it exists.
        (0..20).for_each(|_| drop(consumer.poll(Duration::ZERO)));
        std::mem::take(&mut warnings.0.lock().unwrap())
    }

    fn warnings_of_producer(config: &ClientConfig) -> Vec<String> {
        let warnings = ConfigWarnings::default();
        let producer: BaseProducer<_> = config.create_with_context(warnings.clone()).unwrap();
        (0..20).for_each(|_| producer.poll(Duration::ZERO));
        std::mem::take(&mut warnings.0.lock().unwrap())
    }

    #[test]
    fn our_defaults_cause_no_warning_of_the_client() {
        let client = ClientSettings::new("127.0.0.1:1");
        for protocol in [RebalanceProtocol::Cooperative, RebalanceProtocol::Broker] {
            let member = Some("billing-1".to_owned());
            let settings = KafkaSettings { protocol, member, ..settings(client.clone()) };
            let none: [String; 0] = [];
            assert_eq!(warnings_of_consumer(&settings.config().unwrap()), none, "{protocol:?}");
        }
        for defaults in [&SINK_DEFAULTS[..], &PATIENT_DEFAULTS[..]] {
            let config = client.config(defaults, &SINK_FIXED).unwrap();
            assert!(warnings_of_producer(&config).is_empty(), "{defaults:?}");
        }
        let transactional = transaction::config(&client, "billing").unwrap();
        assert!(warnings_of_producer(&transactional).is_empty());
        // The test sees warnings.
        let odd = client.set("linger.ms", "5");
        assert_eq!(warnings_of_consumer(&settings(odd).config().unwrap()).len(), 1);
    }

    fn settings(client: ClientSettings) -> KafkaSettings {
        KafkaSettings::new(client, ["orders"], "billing")
    }

    #[test]
    fn client_settings_reach_librdkafka_unchanged() {
        let client = ClientSettings::new("here:9092")
            .set("sasl.mechanisms", "SCRAM-SHA-256")
            .set("queued.min.messages", "7");
        let config = settings(client).config().unwrap();
        assert_eq!(config.get("bootstrap.servers"), Some("here:9092"));
        assert_eq!(config.get("sasl.mechanisms"), Some("SCRAM-SHA-256"));
        assert_eq!(config.get("queued.min.messages"), Some("7"));
        assert_eq!(config.get("enable.auto.commit"), Some("false"));
    }

    #[test]
    fn reserved_client_settings_are_refused() {
        for name in ["enable.auto.commit", "auto.offset.reset", "group.id", "group.protocol"] {
            let client = ClientSettings::new("here:9092").set(name, "true");
            let error = settings(client).config().unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let client = ClientSettings::new("here:9092")
            .set("sasl.password", "open sesame")
            .set("ssl.key.pem", "open sesame")
            .set("sasl.username", "ali");
        let shown = format!("{:?}", settings(client));
        assert!(!shown.contains("sesame") && shown.contains("ali"), "{shown}");
    }
}
