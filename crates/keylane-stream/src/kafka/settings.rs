use std::collections::BTreeMap;
use std::fmt;

use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;

use crate::source::SourceError;
use crate::tracker::{MapLimit, MapPolicy};

/// How to reach a cluster: its brokers, and whatever else librdkafka is to be told.
///
/// KafkaSettings have [librdkafka's names][names] and go to it untouched, so TLS and SASL work as they do
/// elsewhere. What does not begin with a setting of the user's has a default that suits slow handlers.
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

/// Which groups, topics and rules a [`KafkaSource`](super::KafkaSource) is a member under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaSettings {
    /// How to reach the cluster.
    pub client: ClientSettings,
    /// The topics that the group consumes; a name that begins with `^` is a regular expression.
    pub topics: Vec<String>,
    /// The group.
    pub group: String,
    /// How the group's members share the partitions. Default: [`Protocol::Cooperative`].
    pub protocol: Protocol,
    /// The member's own name, `group.instance.id`: a member that comes back under its name within the
    /// session's timeout gets its partitions back, and nobody else is disturbed. Default: none.
    pub member: Option<String>,
    /// Where a group begins that has not committed anything yet. Default: [`StartFrom::First`].
    pub start: StartFrom,
    /// Where a partition continues whose next record does not exist: retention has removed it, brokers have lost
    /// it, or an administrator has moved the group beyond the end. Default: [`StartFrom::Refuse`], an error that
    /// names the remedy.
    ///
    /// - [`StartFrom::First`] continues at the first record that was not read: where the log begins now, or where a
    ///   log was cut.
    /// - [`StartFrom::Last`] continues behind the last record.
    ///
    /// [`SourceEvent::Missed`](crate::source::SourceEvent::Missed) counts what is passed over.
    pub out_of_range: StartFrom,
    /// What is done with progress that another product wrote, or that is damaged. Default: the parallel
    /// consumer's is taken over, all else refused.
    pub policy: MapPolicy,
    /// What is done about a topic that was deleted and made again. Default: [`RecreatedTopic::FromFirst`].
    pub recreated_topic: RecreatedTopic,
    /// How long the text beside a committed offset may be, in characters. Default: 4,096, which is the
    /// broker's own unless its `offset.metadata.max.bytes` says otherwise.
    pub map_limit: MapLimit,
    /// In which version the map of what is done is written beside a committed offset. All are read. Default:
    /// [`MapVersion::Two`].
    pub map_version: MapVersion,
}

/// Versions of the map beside a committed offset.
///
/// A member that knows only an older version stops when it gets a partition with a newer one. To upgrade the members
/// of a group one by one without that, start the new ones with the older version, and change that when no old one
/// is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MapVersion {
    /// `KL1`: what is done.
    One,
    /// `KL2`: with the leader epoch up to which that is so, wherever brokers have epochs.
    #[default]
    Two,
}

/// How the members of a group share its partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// The members agree on it, and hand over one by one what moves: `cooperative-sticky`. What a
    /// setting `partition.assignment.strategy` says goes before it.
    #[default]
    Cooperative,
    /// The broker decides, as of Kafka 4.0 (KIP-848): `group.protocol=consumer`.
    Broker,
}

/// Where reading begins: of a group that has not committed anything yet ([`KafkaSettings::start`]), or of a partition
/// whose next record does not exist ([`KafkaSettings::out_of_range`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartFrom {
    /// At the first record that there is.
    #[default]
    First,
    /// Behind the last record that there is.
    Last,
    /// Nowhere: it is an error.
    Refuse,
}

/// What is done about a topic that was deleted and made again under its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecreatedTopic {
    /// What was done of the old one says nothing about the new one, which is read from its first record.
    #[default]
    FromFirst,
    /// It is an error, and a person decides.
    Refuse,
}

impl ClientSettings {
    /// The cluster that some of these brokers, `host:port` with commas between, belong to.
    pub fn new(brokers: impl Into<String>) -> Self {
        ClientSettings { settings: BTreeMap::new() }.set("bootstrap.servers", brokers)
    }

    /// With a setting of librdkafka's; the last of a name counts.
    #[must_use]
    pub fn set(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.insert(name.into(), value.into());
        self
    }

    /// Its brokers.
    #[must_use]
    pub fn brokers(&self) -> &str {
        self.settings.get("bootstrap.servers").map_or("", String::as_str)
    }

    /// librdkafka's form of it: `fixed` goes before what the user says, and that before `defaults`.
    ///
    /// # Errors
    /// If the user says something about what is fixed.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }

    pub(super) fn config(
        &self,
        defaults: &[(&str, &str)],
        fixed: &[(&str, &str)],
    ) -> Result<ClientConfig, SourceError> {
        let mut config = ClientConfig::new();
        // What is said below warnings is for those who debug the client.
        config.set_log_level(RDKafkaLogLevel::Warning);
        config.set("client.id", "keylane");
        for (name, value) in defaults {
            config.set(*name, *value);
        }
        for (name, value) in &self.settings {
            if fixed.iter().any(|(fixed, _)| fixed == name) {
                let what = format!("the setting {name} cannot be changed: Keylane relies on it");
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

/// Whether a setting's value is nobody's business, by its name.
fn is_secret(name: &str) -> bool {
    ["password", "secret", ".key", ".pem", "oauthbearer.config", "jaas"]
        .iter()
        .any(|part| name.contains(part))
}

/// What suits handlers that are slower than the network: little is fetched ahead, for it waits in memory,
/// and is fetched again if the partition moves; and a full buffer is looked at again soon.
const DEFAULTS: [(&str, &str); 4] = [
    ("queued.min.messages", "10000"),
    ("queued.max.messages.kbytes", "16384"),
    ("fetch.queue.backoff.ms", "5"),
    // Where partitions end, for those who ask how far behind we are.
    ("statistics.interval.ms", "1000"),
];

/// What the source relies on.
const FIXED: [(&str, &str); 4] = [
    // What is committed is what the consumer says is done, and nothing else.
    ("enable.auto.commit", "false"),
    ("enable.auto.offset.store", "false"),
    // So that the watermark also passes what ends a stream without being a record.
    ("enable.partition.eof", "true"),
    // Each partition is begun at a place that was decided on; what is then out of range is looked into.
    ("auto.offset.reset", "error"),
];

impl KafkaSettings {
    /// The members of `group` share the partitions of `topics`.
    pub fn new<T: Into<String>>(
        client: ClientSettings,
        topics: impl IntoIterator<Item = T>,
        group: impl Into<String>,
    ) -> Self {
        KafkaSettings {
            client,
            topics: topics.into_iter().map(Into::into).collect(),
            group: group.into(),
            protocol: Protocol::default(),
            member: None,
            start: StartFrom::default(),
            out_of_range: StartFrom::Refuse,
            policy: MapPolicy::default(),
            recreated_topic: RecreatedTopic::default(),
            map_limit: MapLimit::KAFKA,
            map_version: MapVersion::default(),
        }
    }

    /// Checks the client's settings without a connection.
    ///
    /// # Errors
    /// If one is unknown, wrong, or one that Keylane relies on.
    pub fn check(&self) -> Result<(), SourceError> {
        let config = self.config()?;
        let cannot = |error| SourceError::because("cannot start the Kafka client", error);
        config.create_native_config().map(drop).map_err(cannot)
    }

    pub(super) fn config(&self) -> Result<ClientConfig, SourceError> {
        if self.topics.is_empty() {
            return Err(SourceError::new("there is no topic to consume"));
        }
        let mut defaults = DEFAULTS.to_vec();
        let mut fixed = FIXED.to_vec();
        fixed.push(("group.id", &self.group));
        match self.protocol {
            Protocol::Cooperative => {
                defaults.push(("partition.assignment.strategy", "cooperative-sticky"));
                fixed.push(("group.protocol", "classic"));
            }
            Protocol::Broker => fixed.push(("group.protocol", "consumer")),
        }
        if let Some(member) = &self.member {
            fixed.push(("group.instance.id", member));
        }
        self.client.config(&defaults, &fixed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(client: ClientSettings) -> KafkaSettings {
        KafkaSettings::new(client, ["orders"], "billing")
    }

    #[test]
    fn what_the_user_says_goes_to_librdkafka_untouched() {
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
    fn what_keylane_relies_on_cannot_be_changed() {
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
