//! Output topic of a transactional source.

use std::fmt;
use std::sync::{Arc, MutexGuard, mpsc};
use std::time::Duration;

use rdkafka::error::KafkaError;
use rdkafka::producer::BaseRecord;
use rdkafka::types::RDKafkaErrorCode as Code;

use super::super::settings::ClientSettings;
use super::super::sink::{SendError, headers};
use super::shared::{
    ProducerCommand, TransactionPhase, TransactionShared, TransactionState, TransactionalProducer,
};
use crate::Record;
use crate::sink::{HandlerOutput, Sink, SinkError};

/// Interval between attempts while the client's queue is full.
const QUEUE_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The client's default of `message.max.bytes`.
const DEFAULT_MAX_MESSAGE_BYTES: usize = 1_000_000;

/// Maximum overhead of a record, and of each of its headers, in bytes.
const HEADER_OVERHEAD_BYTES: usize = 64;

/// A topic for the output of handlers, exactly once; created by
/// [`KafkaSource::join_exactly_once`](super::super::KafkaSource::join_exactly_once).
///
/// A record is complete when its output is in the open transaction. Readers of committed data
/// (`isolation.level=read_committed`) see the output when that transaction is committed, with the
/// progress. During a commit, output waits here.
pub struct TransactionalOutput {
    shared: Arc<TransactionShared>,
    topic: String,
    /// Maximum size of a record, in bytes.
    max_record_bytes: usize,
}

/// Returns the maximum size of a record, by the client's settings.
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

    /// Waits for an open transaction. Returns `None` if none will follow.
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
        // Checked before anything is sent, because part of an output cannot be taken back.
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
                // Answer under the lock: the answer must come before a seal.
                Ok(()) => return output.answer(Ok(())),
                // The record itself is refused, and nothing of the output was sent before.
                Err((0, error)) if is_refusal(&error) => {
                    drop(state);
                    return output.answer(Err(SinkError::new(SendError::of(&error))));
                }
                // The transaction is aborted, so this output is no longer needed; or no transaction
                // will follow.
                Err((_, error)) => {
                    state.phase = TransactionPhase::Ending(Some(ProducerCommand::Broken(error)));
                    drop(state);
                    self.shared.changed.notify_all();
                }
            }
        }
        output.withdraw();
    }

    /// Sends all records of an output to the client. On failure returns the number sent, and the
    /// error.
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

    /// Sends a record, and waits for room in the client's queue, which delays a seal.
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

/// Returns whether the client refuses this record in any transaction.
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
            // The receiver waits below until the answer is sent.
            let _ = sender.send(result);
        }));
        answer.recv().unwrap_or_else(|_| {
            Err(SinkError::new("no transaction follows, because the source was closed"))
        })
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
