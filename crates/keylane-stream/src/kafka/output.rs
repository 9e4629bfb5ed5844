//! A Kafka topic as the sink of handlers' output, at least once.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use super::settings::ClientSettings;
use super::sink::{KafkaSink, SendError};
use crate::Record;
use crate::sink::{HandlerOutput, Sink, SinkError};
use crate::source::SourceError;

/// A topic for the output of handlers: a record is complete when the brokers have its output.
///
/// - Many outputs are in flight, and complete in the order in which the brokers write them. The
///   client's queue (`queue.buffering.max.messages`, `queue.buffering.max.kbytes`) bounds the
///   waiting output; when it is full, all handlers' output waits.
/// - Unreachable brokers are waited for without limit: waiting records keep their keys and have not
///   failed, so the consumer admits records up to its limits, and continues when the brokers are
///   back. With the client's setting `delivery.timeout.ms`, output that takes longer fails.
/// - A client with a fatal error is replaced. Its output in flight fails.
/// - The next record of a key is handled only when the output of the one before is written, so the
///   output of a key has the order of its records, in the partition that Java clients choose for
///   the key.
/// - Delivery is at least once: output in flight when the process dies, the sink is dropped, or the
///   partition is released, may be written or not, and is made again.
///   [`Attempt::origin`](crate::consumer::Attempt::origin) identifies repetitions.
///
/// # Examples
/// ```no_run
/// use keylane_stream::Record;
/// use keylane_stream::consumer::{Attempt, Consumer, AttemptFailure};
/// use keylane_stream::kafka::{ClientSettings, KafkaOutput, KafkaSource, KafkaSettings};
///
/// let client = ClientSettings::new("localhost:9092");
/// let bills = KafkaOutput::new(&client, "bills")?;
/// let source = KafkaSource::join(KafkaSettings::new(client, ["orders"], "billing"))?;
/// let consumer = Consumer::builder(source).start_producing(bills, |order: &Attempt| {
///     let key = order.record().key.clone();
///     Ok::<_, AttemptFailure>(vec![Record { key, payload: Some("a bill".into()), headers: order.origin() }])
/// })?;
/// # drop(consumer);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct KafkaOutput {
    sink: KafkaSink,
    topic: String,
}

/// Output of one record, in flight.
struct InFlightOutput {
    /// Number of its records that were not reported yet.
    left: usize,
    /// Error of the first record that was refused.
    refused: Option<SendError>,
    output: HandlerOutput,
}

/// Shared by the reports of the records; the last report takes it out and answers.
type SharedOutput = Arc<Mutex<Option<InFlightOutput>>>;

impl KafkaOutput {
    /// Writes to this topic. An unreachable broker shows only with the first record.
    ///
    /// # Errors
    /// If a client setting is unknown, invalid, or reserved by Keylane.
    pub fn new(client: &ClientSettings, topic: impl Into<String>) -> Result<Self, SourceError> {
        Ok(KafkaOutput { sink: KafkaSink::patient(client)?, topic: topic.into() })
    }
}

impl Sink for KafkaOutput {
    fn put(&mut self, records: &[Record]) -> Result<(), SinkError> {
        let (sender, answer) = mpsc::channel();
        let output = HandlerOutput::new(records.to_vec(), move |result| {
            // The receiver waits below until the answer is sent.
            let _ = sender.send(result);
        });
        self.put_each(vec![output]);
        answer.recv().unwrap_or_else(|_| Err(SinkError::new("the client gave no result")))
    }

    fn put_each(&mut self, outputs: Vec<HandlerOutput>) {
        self.sink.replace_if_fatal();
        for mut output in outputs {
            let records = output.take_records();
            if records.is_empty() {
                output.answer(Ok(()));
                continue;
            }
            let in_flight = InFlightOutput { left: records.len(), refused: None, output };
            let shared = Arc::new(Mutex::new(Some(in_flight)));
            for record in &records {
                let shared = shared.clone();
                self.sink.send(&self.topic, record, move |result| {
                    record_reported(&shared, result.err())
                });
            }
        }
    }
}

fn record_reported(shared: &SharedOutput, refused: Option<SendError>) {
    // It holds a plain value that is whole after any statement, so poisoning is ignored.
    let mut in_flight = shared.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(InFlightOutput { left, refused: first, .. }) = &mut *in_flight else { return };
    *left -= 1;
    if let Some(why) = refused {
        first.get_or_insert(why);
    }
    let ended = in_flight.take_if(|in_flight| in_flight.left == 0);
    drop(in_flight);
    if let Some(InFlightOutput { refused, output, .. }) = ended {
        output.answer(refused.map_or(Ok(()), |why| Err(SinkError::new(why))));
    }
}

impl fmt::Debug for KafkaOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaOutput").field("sink", &self.sink).field("topic", &self.topic).finish()
    }
}
