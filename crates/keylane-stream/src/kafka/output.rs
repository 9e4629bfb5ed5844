use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use super::settings::ClientSettings;
use super::sink::{KafkaSink, SendError};
use crate::Record;
use crate::sink::{HandlerOutput, Sink, SinkError};
use crate::source::SourceError;

/// A topic as the place for what handlers make of records: each of these is done when the brokers have what came
/// of it.
///
/// - Many are on their way at a time; who is first written is first done. What waits here for the brokers is bounded
///   by the client's queue (`queue.buffering.max.messages`, `queue.buffering.max.kbytes`): when that is full, all
///   wait.
/// - Brokers that are away are waited for, without end: the records that wait for them keep their keys and have not
///   failed, so the consumer takes on no more than it may have under way, and goes on when they are back. With
///   the client's setting `delivery.timeout.ms` what takes longer has failed.
/// - A client that has given up, for it no longer knows what the brokers have, is replaced by another one. What it had
///   on its way has failed.
/// - A record of a key is made only when what came of the one before is written, so the output of a key is in
///   the order of its records, in the partition that Java's clients choose for it.
/// - At least once: what is on its way when the process dies, or this is dropped, or the record's partition is given
///   up, may be written or not, and is made again by whoever goes on. [`Attempt::origin`](crate::consumer::Attempt::origin) tells.
///
/// # Examples
/// ```no_run
/// use keylane_stream::Record;
/// use keylane_stream::consumer::{Attempt, Consumer, Failure};
/// use keylane_stream::kafka::{ClientSettings, KafkaOutput, KafkaSource, KafkaSettings};
///
/// let client = ClientSettings::new("localhost:9092");
/// let bills = KafkaOutput::new(&client, "bills")?;
/// let source = KafkaSource::join(KafkaSettings::new(client, ["orders"], "billing"))?;
/// let consumer = Consumer::builder(source).start_producing(bills, |order: &Attempt| {
///     let key = order.key().map(Vec::from);
///     Ok::<_, Failure>(vec![Record { key, payload: Some(b"a bill".to_vec()), headers: order.origin() }])
/// })?;
/// # drop(consumer);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct KafkaOutput {
    sink: KafkaSink,
    topic: String,
}

/// What was made of one record, on its way.
struct InFlightOutput {
    /// How many of its records have not been reported.
    left: usize,
    /// Why the first one that was refused was not written.
    refused: Option<SendError>,
    output: HandlerOutput,
}

/// SharedOutput by the reports of the records; the last of them takes it out, and answers.
type SharedOutput = Arc<Mutex<Option<InFlightOutput>>>;

impl KafkaOutput {
    /// Writes to this topic. That the brokers can be reached turns out with the first record.
    ///
    /// # Errors
    /// If a setting is unknown, wrong, or one that Keylane relies on.
    pub fn new(client: &ClientSettings, topic: impl Into<String>) -> Result<Self, SourceError> {
        Ok(KafkaOutput { sink: KafkaSink::patient(client)?, topic: topic.into() })
    }
}

impl Sink for KafkaOutput {
    fn put(&mut self, records: &[Record]) -> Result<(), SinkError> {
        let (sender, answer) = mpsc::channel();
        let output = HandlerOutput::new(records.to_vec(), move |result| {
            // Who waits for it is there until it comes.
            let _ = sender.send(result);
        });
        self.put_each(vec![output]);
        answer.recv().unwrap_or_else(|_| Err(SinkError::new("nobody said what became of it")))
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
    // It holds a plain value that is whole after any statement.
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
