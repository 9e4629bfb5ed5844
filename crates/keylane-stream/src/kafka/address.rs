//! Addresses of topics: `kafka://BROKERS/TOPIC`, and for a source `kafka://BROKERS/TOPIC,TOPIC,^PATTERN`.

use std::fmt;
use std::str::FromStr;

/// A topic and its cluster: `kafka://broker-1:9092,broker-2:9092/orders`.
///
/// # Examples
/// ```
/// use keylane_stream::kafka::TopicAddress;
///
/// let address: TopicAddress = "kafka://localhost:9092/orders".parse()?;
/// assert_eq!((&*address.brokers, &*address.topic), ("localhost:9092", "orders"));
/// assert_eq!(address.to_string(), "kafka://localhost:9092/orders");
/// # Ok::<(), keylane_stream::kafka::AddressError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicAddress {
    /// Bootstrap brokers, as `host:port`, separated by commas.
    pub brokers: String,
    /// The topic.
    pub topic: String,
}

/// Topics of a source and their cluster: `kafka://broker-1:9092/orders,returns,^audit-.*`.
///
/// Topics are separated by commas. A topic that begins with `^` is a regular expression. It is the
/// last one, and has the rest of the address, commas included.
///
/// # Examples
/// ```
/// use keylane_stream::kafka::SubscriptionAddress;
///
/// let address: SubscriptionAddress = "kafka://localhost:9092/orders,^audit-[a-z]{1,3}".parse()?;
/// assert_eq!(address.topics, ["orders", "^audit-[a-z]{1,3}"]);
/// # Ok::<(), keylane_stream::kafka::AddressError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriptionAddress {
    /// Bootstrap brokers, as `host:port`, separated by commas.
    pub brokers: String,
    /// Names of topics, and patterns that begin with `^`.
    pub topics: Vec<String>,
}

/// Error of parsing an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// The scheme is not `kafka://`.
    #[error("the address does not begin with kafka://; write kafka://HOST:PORT/TOPIC")]
    Scheme,
    /// No broker, or one without a port.
    #[error("the brokers are not HOST:PORT, separated by commas; write kafka://HOST:PORT/TOPIC")]
    Brokers,
    /// No topic, or an invalid name.
    #[error("the address has no valid topic; write kafka://HOST:PORT/TOPIC")]
    Topic,
    /// A topic of a source is named twice.
    #[error("the address has a topic twice; name each topic once")]
    Repeated,
}

/// Scheme of an address.
const SCHEME: &str = "kafka://";

/// Maximum length of a topic's name.
const MAX_TOPIC_LENGTH: usize = 249;

impl FromStr for TopicAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (brokers, topic) = parts(text)?;
        if !is_topic(topic) {
            return Err(AddressError::Topic);
        }
        Ok(TopicAddress { brokers: brokers.to_owned(), topic: topic.to_owned() })
    }
}

impl FromStr for SubscriptionAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (brokers, mut rest) = parts(text)?;
        let mut topics: Vec<String> = Vec::new();
        loop {
            // Only a pattern can contain a comma.
            let is_pattern = rest.len() > 1 && rest.starts_with('^');
            let (topic, more) = match rest.split_once(',') {
                Some((topic, more)) if !is_pattern => (topic, Some(more)),
                _ => (rest, None),
            };
            if !is_pattern && !is_topic(topic) {
                return Err(AddressError::Topic);
            }
            if topics.iter().any(|known| known == topic) {
                return Err(AddressError::Repeated);
            }
            topics.push(topic.to_owned());
            let Some(more) = more else { break };
            rest = more;
        }
        Ok(SubscriptionAddress { brokers: brokers.to_owned(), topics })
    }
}

/// Splits an address into its brokers and its topics.
fn parts(text: &str) -> Result<(&str, &str), AddressError> {
    let rest = text.strip_prefix(SCHEME).ok_or(AddressError::Scheme)?;
    let (brokers, topics) = rest.split_once('/').ok_or(AddressError::Topic)?;
    if !brokers.split(',').all(is_broker) {
        return Err(AddressError::Brokers);
    }
    Ok((brokers, topics))
}

/// Returns whether this is `host:port`; the host may be an IPv6 address in brackets.
fn is_broker(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let bracketed = host.starts_with('[') && host.ends_with(']');
    let plain = !host.contains([':', '[', ']', '@', ' ']);
    !host.is_empty() && (bracketed || plain) && port.parse::<u16>().is_ok_and(|port| port > 0)
}

/// Returns whether a topic can have this name, by the broker's rules.
fn is_topic(name: &str) -> bool {
    let allowed =
        |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-');
    (1..=MAX_TOPIC_LENGTH).contains(&name.len())
        && name != "."
        && name != ".."
        && name.chars().all(allowed)
}

impl fmt::Display for TopicAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.brokers, self.topic)
    }
}

impl fmt::Display for SubscriptionAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.brokers, self.topics.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_has_topics_and_at_most_one_pattern_which_is_the_last() {
        let topics = |text: &str| text.parse::<SubscriptionAddress>().map(|address| address.topics);
        for (text, expected) in [
            ("kafka://a:1/t", vec!["t"]),
            ("kafka://a:1,b:2/t,u", vec!["t", "u"]),
            ("kafka://a:1/^t", vec!["^t"]),
            ("kafka://a:1/t,^(u|v)-.{1,3}/x", vec!["t", "^(u|v)-.{1,3}/x"]),
        ] {
            assert_eq!(topics(text).unwrap(), expected, "{text}");
            assert_eq!(text.parse::<SubscriptionAddress>().unwrap().to_string(), text);
        }
        for (text, error) in [
            ("kafka://a:1/", AddressError::Topic),
            ("kafka://a:1/^", AddressError::Topic),
            ("kafka://a:1/t,", AddressError::Topic),
            ("kafka://a:1/t,,u", AddressError::Topic),
            ("kafka://a:1/t u", AddressError::Topic),
            ("kafka://a:1/t,u,t", AddressError::Repeated),
            ("kafka://a/t,u", AddressError::Brokers),
        ] {
            assert_eq!(topics(text), Err(error), "{text}");
        }
    }

    #[test]
    fn addresses_have_brokers_and_a_topic() {
        for good in ["kafka://a:1/t", "kafka://a:1,b:2/t.x_y-z", "kafka://[::1]:9092/t"] {
            assert_eq!(good.parse::<TopicAddress>().unwrap().to_string(), good);
        }
        let refused = [
            ("http://a:1/t", AddressError::Scheme),
            ("kafka://a:1", AddressError::Topic),
            ("kafka://a:1/", AddressError::Topic),
            ("kafka://a:1/t/u", AddressError::Topic),
            ("kafka://a:1/t u", AddressError::Topic),
            ("kafka://a:1/..", AddressError::Topic),
            ("kafka:///t", AddressError::Brokers),
            ("kafka://a/t", AddressError::Brokers),
            ("kafka://a:1,/t", AddressError::Brokers),
            ("kafka://a:0/t", AddressError::Brokers),
            ("kafka://::1:9092/t", AddressError::Brokers),
            ("kafka://user@a:1/t", AddressError::Brokers),
        ];
        for (bad, error) in refused {
            assert_eq!(bad.parse::<TopicAddress>(), Err(error), "{bad}");
        }
    }
}
