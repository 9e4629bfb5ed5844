//! Addresses of topics: `kafka://BROKERS/TOPIC`.

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
}

/// Scheme of an address.
const SCHEME: &str = "kafka://";

/// Maximum length of a topic's name.
const MAX_TOPIC_LENGTH: usize = 249;

impl FromStr for TopicAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let rest = text.strip_prefix(SCHEME).ok_or(AddressError::Scheme)?;
        let (brokers, topic) = rest.split_once('/').ok_or(AddressError::Topic)?;
        if !brokers.split(',').all(is_broker) {
            return Err(AddressError::Brokers);
        }
        if !is_topic(topic) {
            return Err(AddressError::Topic);
        }
        Ok(TopicAddress { brokers: brokers.to_owned(), topic: topic.to_owned() })
    }
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

#[cfg(test)]
mod tests {
    use super::*;

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
