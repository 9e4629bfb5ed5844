//! Kafka producer with a callback per record.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;
use rdkafka::message::{Header, Message as _, OwnedHeaders};
use rdkafka::producer::{
    BaseRecord, DeliveryResult, Producer as _, ProducerContext, ThreadedProducer,
};
use rdkafka::types::RDKafkaErrorCode as Code;

use super::settings::ClientSettings;
use super::topic_partition::TopicPartition;
use crate::source::SourceError;
use crate::{Partition, Position, Record};

/// Writes records to topics, and reports when the brokers have each one.
///
/// - A record is reported as written only when all in-sync replicas have it (`acks=all`), and it is
///   written once, however often the client sends it (`enable.idempotence`).
/// - Records of one key go to one partition, the one that Java clients choose, in the order of the
///   calls.
/// - The callback of every record is called.
///
/// To produce after processing, answer a consumer's [`Ack`](crate::consumer::Ack) from the
/// callback: then the record is complete when its output is written, at least once.
///
/// Cheap to clone. Dropping the last clone abandons records that are not written yet.
///
/// # Examples
/// ```no_run
/// use keylane_stream::consumer::{Consumer, AttemptFailure};
/// use keylane_stream::kafka::{ClientSettings, KafkaSink, KafkaSource, KafkaSettings};
/// use keylane_stream::Record;
///
/// let client = ClientSettings::new("localhost:9092");
/// let sink = KafkaSink::new(&client)?;
/// let source = KafkaSource::join(KafkaSettings::new(client, ["orders"], "billing"))?;
/// let consumer = Consumer::builder(source).start_with_acks(move |order, ack| {
///     let bill = Record { payload: Some("a bill".into()), ..order.record().clone() };
///     sink.send("bills", &bill, |written| ack.answer(written.map(drop).map_err(AttemptFailure::from)));
/// })?;
/// # drop(consumer);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct KafkaSink {
    producer: Arc<ThreadedProducer<DeliveryContext>>,
    /// Configuration of the producer, for a replacement.
    config: Arc<ClientConfig>,
}

/// Error of a record that was not written, or perhaps not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The record exceeds the limit of the brokers or the client.
    #[error(
        "the record is too large; raise `max.message.bytes` of the topic and `message.max.bytes` \
         of the client, or shorten the record"
    )]
    TooLarge,
    /// The client may not write to the topic.
    #[error("the client may not write to the topic; grant it WRITE on the topic")]
    NotAuthorized,
    /// The record was not written, for a reason that may be temporary.
    #[error("the record was not written: {0}")]
    NotWritten(String),
    /// This sink cannot write any record any more.
    #[error("the Kafka client has failed for good; create a new sink: {0}")]
    Fatal(String),
}

/// Partition and position of a written record.
pub type WrittenPosition = (Partition, Position);

type DeliveryCallback = Box<dyn FnOnce(Result<WrittenPosition, SendError>) + Send>;

/// Producer context that calls the callbacks of records, on the producer's polling thread.
struct DeliveryContext;

impl ClientContext for DeliveryContext {
    // Errors of records are passed to their callbacks; other messages are not needed.
    fn log(&self, _level: RDKafkaLogLevel, _facility: &str, _message: &str) {}
    fn error(&self, _error: KafkaError, _reason: &str) {}
    fn stats_raw(&self, _statistics: &[u8]) {}
}

impl ProducerContext for DeliveryContext {
    /// The mutex makes the callback `Sync`, which the client requires.
    type DeliveryOpaque = Box<Mutex<DeliveryCallback>>;

    fn delivery(&self, result: &DeliveryResult<'_>, callback: Self::DeliveryOpaque) {
        let result = match result {
            Ok(message) => {
                let name = TopicPartition {
                    topic: message.topic().to_owned(),
                    number: message.partition(),
                };
                let at = Position::checked(message.offset());
                at.map(|at| (name.partition(), at))
                    .ok_or_else(|| SendError::NotWritten("the brokers did not say where".into()))
            }
            Err((error, _)) => Err(SendError::of(error)),
        };
        // A panic in a callback would end the polling thread, and with it all reports.
        let _ = catch_unwind(AssertUnwindSafe(|| call(callback, result)));
    }
}

#[expect(clippy::boxed_local, reason = "it is how the client hands it back")]
fn call(callback: Box<Mutex<DeliveryCallback>>, result: Result<WrittenPosition, SendError>) {
    callback.into_inner().unwrap_or_else(PoisonError::into_inner)(result);
}

impl SendError {
    pub(super) fn of(error: &KafkaError) -> Self {
        match error.rdkafka_error_code() {
            Some(Code::MessageSizeTooLarge | Code::InvalidMessageSize) => SendError::TooLarge,
            Some(Code::TopicAuthorizationFailed) => SendError::NotAuthorized,
            Some(code @ Code::Fatal) => SendError::Fatal(code.to_string()),
            Some(code) => SendError::NotWritten(code.to_string()),
            None => SendError::NotWritten(error.to_string()),
        }
    }
}

/// Defaults: the partitioner of Java clients; undelivered records fail after half a minute.
pub(super) const SINK_DEFAULTS: [(&str, &str); 3] = [
    ("partitioner", "murmur2_random"),
    ("compression.type", "lz4"),
    ("delivery.timeout.ms", "30000"),
];

/// Defaults of a sink that waits for the brokers without limit. Its queue is smaller, because
/// records can wait for long.
pub(super) const PATIENT_DEFAULTS: [(&str, &str); 4] = [
    ("partitioner", "murmur2_random"),
    ("compression.type", "lz4"),
    ("delivery.timeout.ms", "0"),
    ("queue.buffering.max.kbytes", "65536"),
];

/// Settings that the guarantees rely on.
pub(super) const SINK_FIXED: [(&str, &str); 2] = [("enable.idempotence", "true"), ("acks", "all")];

/// Interval between attempts while the client's queue is full.
const QUEUE_POLL_INTERVAL: Duration = Duration::from_millis(10);

impl KafkaSink {
    /// Creates a sink of this cluster. An unreachable broker shows only with the first record.
    ///
    /// # Errors
    /// If a client setting is unknown, invalid, or reserved by Keylane.
    pub fn new(client: &ClientSettings) -> Result<Self, SourceError> {
        Self::with(client, &SINK_DEFAULTS)
    }

    /// Checks the client settings without a connection.
    ///
    /// # Errors
    /// If a setting is unknown, invalid, or reserved by Keylane.
    pub fn check(client: &ClientSettings) -> Result<(), SourceError> {
        let config = client.config(&SINK_DEFAULTS, &SINK_FIXED)?;
        let cannot = |error| SourceError::because("cannot start the Kafka client", error);
        config.create_native_config().map(drop).map_err(cannot)
    }

    /// Creates a sink that waits for unreachable brokers without limit.
    pub(super) fn patient(client: &ClientSettings) -> Result<Self, SourceError> {
        Self::with(client, &PATIENT_DEFAULTS)
    }

    fn with(client: &ClientSettings, defaults: &[(&str, &str)]) -> Result<Self, SourceError> {
        Self::start(Arc::new(client.config(defaults, &SINK_FIXED)?))
    }

    fn start(config: Arc<ClientConfig>) -> Result<Self, SourceError> {
        let producer = config
            .create_with_context(DeliveryContext)
            .map_err(|error| SourceError::because("cannot start the Kafka client", error))?;
        Ok(KafkaSink { producer: Arc::new(producer), config })
    }

    /// Replaces a client with a fatal error, for sinks that are used indefinitely. Its records in
    /// flight fail. If the replacement fails, the next call tries again.
    pub(super) fn replace_if_fatal(&mut self) {
        if self.producer.client().fatal_error().is_some()
            && let Ok(sink) = Self::start(self.config.clone())
        {
            *self = sink;
        }
    }

    /// Sends a record, and calls `callback` with the result on another thread, perhaps before this
    /// returns. The callback must return quickly.
    ///
    /// Blocks while the client's queue is full (`queue.buffering.max.messages`, 100,000).
    pub fn send(
        &self,
        topic: &str,
        record: &Record,
        callback: impl FnOnce(Result<WrittenPosition, SendError>) + Send + 'static,
    ) {
        let callback: Box<Mutex<DeliveryCallback>> = Box::new(Mutex::new(Box::new(callback)));
        let mut message = BaseRecord::<[u8], [u8], _>::with_opaque_to(topic, callback);
        if let Some(payload) = &record.payload {
            message = message.payload(payload);
        }
        if let Some(key) = &record.key {
            message = message.key(key);
        }
        if !record.headers.is_empty() {
            message = message.headers(headers(record));
        }
        loop {
            message = match self.producer.send(message) {
                Ok(()) => return,
                Err((KafkaError::MessageProduction(Code::QueueFull), back)) => back,
                Err((error, back)) => {
                    call(back.delivery_opaque, Err(SendError::of(&error)));
                    return;
                }
            };
            self.producer.poll(QUEUE_POLL_INTERVAL);
        }
    }

    /// Writes records, and waits until all are written.
    ///
    /// # Errors
    /// If some were not written, or perhaps not: the error of the first of them.
    pub fn send_all<'a>(
        &self,
        topic: &str,
        records: impl IntoIterator<Item = &'a Record>,
    ) -> Result<Vec<WrittenPosition>, SendError> {
        let (sender, answers) = mpsc::channel();
        let mut count = 0;
        for (index, record) in records.into_iter().enumerate() {
            let sender = sender.clone();
            count = index + 1;
            self.send(topic, record, move |result| {
                // The receiver waits below for all results.
                let _ = sender.send((index, result));
            });
        }
        let mut results: Vec<_> = answers.into_iter().take(count).collect();
        results.sort_by_key(|(index, _)| *index);
        results.into_iter().map(|(_, result)| result).collect()
    }

    /// Waits until all records sent so far are reported.
    ///
    /// # Errors
    /// If that takes longer than `timeout`.
    pub fn flush(&self, timeout: Duration) -> Result<(), SendError> {
        self.producer.flush(timeout).map_err(|error| SendError::of(&error))
    }
}

pub(super) fn headers(record: &Record) -> OwnedHeaders {
    let headers = OwnedHeaders::new_with_capacity(record.headers.len());
    record.headers.iter().fold(headers, |headers, (name, value)| {
        headers.insert(Header { key: name, value: value.as_deref() })
    })
}

impl fmt::Debug for KafkaSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_flight = self.producer.in_flight_count();
        f.debug_struct("KafkaSink").field("in_flight", &in_flight).finish()
    }
}
