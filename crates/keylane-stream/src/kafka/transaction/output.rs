use std::fmt;
use std::sync::{Arc, MutexGuard, mpsc};
use std::time::Duration;

use rdkafka::error::KafkaError;
use rdkafka::producer::BaseRecord;
use rdkafka::types::RDKafkaErrorCode as Code;

use super::super::settings::ClientSettings;
use super::super::sink::{SendError, headers};
use super::{
    ProducerCommand, TransactionPhase, TransactionShared, TransactionState, TransactionalProducer,
};
use crate::Record;
use crate::sink::{HandlerOutput, Sink, SinkError};

/// How long is waited between looks for room in the client's queue.
const QUEUE_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The client's default for `message.max.bytes`.
const DEFAULT_MAX_MESSAGE_BYTES: usize = 1_000_000;

/// What a record takes beside its bytes at most, and each of its headers.
const HEADER_OVERHEAD_BYTES: usize = 64;

/// A topic as the place for what handlers make of records, exactly once: see
/// [`KafkaSource::join_exactly_once`](super::super::KafkaSource::join_exactly_once), which makes it.
///
/// A record is done when what was made of it is in the open transaction; it is seen by those who read what is committed
/// (`isolation.level=read_committed`) when that is committed, with the progress. While one is committed, output
/// waits here.
pub struct TransactionalOutput {
    shared: Arc<TransactionShared>,
    topic: String,
    /// How large a record may be, in bytes.
    max_record_bytes: usize,
}

/// How large a record may be that goes to these brokers, as far as the client says it.
pub(super) fn max_record_bytes(client: &ClientSettings) -> usize {
    let told = client.get("message.max.bytes").and_then(|bytes| bytes.parse().ok());
    told.unwrap_or(DEFAULT_MAX_MESSAGE_BYTES)
}

impl TransactionalOutput {
    pub(super) fn new(
        shared: Arc<TransactionShared>,
        topic: String,
        max_record_bytes: usize,
    ) -> Self {
        TransactionalOutput { shared, topic, max_record_bytes }
    }

    /// Waits for an open transaction; none if there will be no other.
    fn open(&self) -> Option<MutexGuard<'_, TransactionState>> {
        let mut state = self.shared.state();
        while !matches!(state.phase, TransactionPhase::Open) {
            if state.closed {
                return None;
            }
            state = self.shared.wait(state);
        }
        Some(state)
    }

    fn put_one(&self, mut output: HandlerOutput) {
        let records = output.take_records();
        // Known before anything is sent, for a part of an output can't be taken back.
        if records.iter().any(|record| size(record) > self.max_record_bytes) {
            return output.answer(Err(SinkError::new(SendError::TooLarge)));
        }
        while let Some(mut state) = self.open() {
            if !output.is_wanted() {
                break;
            }
            let sent;
            (state, sent) = self.send_all(&records, state);
            match sent {
                // With the lock held: the answer comes before a cut can.
                Ok(()) => return output.answer(Ok(())),
                // It is the record's own fault, and nothing of the output was sent before.
                Err((0, error)) if is_refusal(&error) => {
                    drop(state);
                    return output.answer(Err(SinkError::new(SendError::of(&error))));
                }
                // Then it is aborted, and nobody wants this any more; or there will be no other.
                Err((_, error)) => {
                    state.phase = TransactionPhase::Ending(Some(ProducerCommand::Broken(error)));
                    drop(state);
                    self.shared.changed.notify_all();
                }
            }
        }
        output.withdraw();
    }

    /// Hands all records of an output to the client; or says how many it has, and why it takes no other.
    fn send_all<'s>(
        &'s self,
        records: &[Record],
        mut state: MutexGuard<'s, TransactionState>,
    ) -> (MutexGuard<'s, TransactionState>, Result<(), (usize, KafkaError)>) {
        let Some(producer) = state.producer.clone() else {
            return (state, Err((0, KafkaError::Canceled)));
        };
        for (index, record) in records.iter().enumerate() {
            let sent;
            (state, sent) = self.send(&producer, record, state);
            if let Err(error) = sent {
                return (state, Err((index, error)));
            }
        }
        (state, Ok(()))
    }

    /// Hands a record to the client, waiting for room, during which nothing is cut.
    fn send<'s>(
        &'s self,
        producer: &TransactionalProducer,
        record: &Record,
        mut state: MutexGuard<'s, TransactionState>,
    ) -> (MutexGuard<'s, TransactionState>, Result<(), KafkaError>) {
        let mut message = BaseRecord::<[u8], [u8]>::to(&self.topic);
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
            message = match producer.send(message) {
                Ok(()) => return (state, Ok(())),
                Err((KafkaError::MessageProduction(Code::QueueFull), back)) if !state.closed => {
                    back
                }
                Err((error, _)) => return (state, Err(error)),
            };
            state.sending = true;
            drop(state);
            producer.poll(QUEUE_POLL_INTERVAL);
            state = self.shared.state();
            state.sending = false;
        }
    }
}

/// Whether the client takes no such record, wherever it is.
fn is_refusal(error: &KafkaError) -> bool {
    let code = error.rdkafka_error_code();
    matches!(code, Some(Code::MessageSizeTooLarge | Code::UnknownTopic | Code::InvalidArgument))
}

fn size(record: &Record) -> usize {
    record.weight() + (1 + record.headers.len()) * HEADER_OVERHEAD_BYTES
}

impl Sink for TransactionalOutput {
    fn put(&mut self, records: &[Record]) -> Result<(), SinkError> {
        let (sender, answer) = mpsc::channel();
        self.put_one(HandlerOutput::new(records.to_vec(), move |result| {
            // Who waits for it is there until it comes.
            let _ = sender.send(result);
        }));
        answer.recv().unwrap_or_else(|_| Err(SinkError::new("there is no transaction any more")))
    }

    fn put_each(&mut self, outputs: Vec<HandlerOutput>) {
        outputs.into_iter().for_each(|output| self.put_one(output));
    }
}

impl fmt::Debug for TransactionalOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransactionalOutput").field("topic", &self.topic).finish_non_exhaustive()
    }
}
