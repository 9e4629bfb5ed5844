//! What the brokers say about a topic for output, before anything is written.

use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::types::RDKafkaErrorCode as Code;

use super::context::ClientCallbacks;
use super::ffi;
use super::settings::ClientSettings;
use super::source::RETRY_INTERVAL;
use crate::source::SourceError;

/// State of a topic for output, as far as the brokers tell it before a record is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TargetState {
    /// It exists, and the client may write to it, as far as the brokers tell.
    Ready,
    /// It does not exist, or the client may not know that it does.
    Missing,
    /// The client may not write to it.
    NotAuthorized,
    /// The brokers have not answered in time.
    Unknown,
}

/// Asks the brokers for the state of a topic for output. Brokers with automatic topic creation
/// create it. Whether they accept records of a size shows only with a record.
///
/// # Errors
/// If a setting is invalid.
pub fn target_state(
    client: &ClientSettings,
    topic: &str,
    timeout: Duration,
) -> Result<TargetState, SourceError> {
    let config = client.config(&[("allow.auto.create.topics", "true")], &[])?;
    let consumer: BaseConsumer<ClientCallbacks> = config
        .create_with_context(ClientCallbacks::default())
        .map_err(|error| SourceError::because("cannot start the Kafka client", error))?;
    let until = Instant::now() + timeout;
    let mut state = TargetState::Unknown;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let Ok(metadata) = consumer.fetch_metadata(Some(topic), left) else { return Ok(state) };
        let found = metadata.topics().first();
        state = match found.map(|topic| topic.error().map(Code::from)) {
            Some(None) => {
                let left = until.saturating_duration_since(Instant::now());
                return Ok(authorized(&consumer, metadata.orig_broker_id(), topic, left));
            }
            Some(Some(Code::TopicAuthorizationFailed)) => return Ok(TargetState::NotAuthorized),
            _ => TargetState::Missing,
        };
        if left <= RETRY_INTERVAL {
            return Ok(state);
        }
        // Creation of the topic takes a moment.
        std::thread::sleep(RETRY_INTERVAL);
    }
}

/// Returns whether the client may write to an existing topic. Without an answer the first record
/// tells.
fn authorized(
    consumer: &BaseConsumer<ClientCallbacks>,
    broker: i32,
    topic: &str,
    timeout: Duration,
) -> TargetState {
    let described =
        ffi::describe(consumer.client(), broker, &[topic], ffi::Operations::Asked, timeout);
    let operations = described.ok().and_then(|mut topics| topics.pop()?.may_write);
    match operations {
        Some(false) => TargetState::NotAuthorized,
        Some(true) | None => TargetState::Ready,
    }
}
