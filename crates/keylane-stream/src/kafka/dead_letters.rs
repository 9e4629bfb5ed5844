//! Dead letters in a Kafka topic.

use super::sink::KafkaSink;
use crate::Record;
use crate::dead_letters::{DeadLetter, DeadLetterError, DeadLetters};

/// Dead letters as records of a topic, acknowledged when the brokers have them.
///
/// Each keeps its key, payload and headers, followed by the headers of
/// [`JournalDeadLetters`](crate::dead_letters::JournalDeadLetters). A letter that is too large is
/// not dropped: its record stays incomplete, and its key waits. A client with a fatal error is
/// replaced before the next letters, which include those that it did not write.
#[derive(Clone, Debug)]
pub struct KafkaDeadLetters {
    sink: KafkaSink,
    topic: String,
}

impl KafkaDeadLetters {
    /// Writes to this topic.
    pub fn new(sink: KafkaSink, topic: impl Into<String>) -> Self {
        KafkaDeadLetters { sink, topic: topic.into() }
    }
}

impl DeadLetters for KafkaDeadLetters {
    fn write(&mut self, letters: &[DeadLetter]) -> Result<(), DeadLetterError> {
        self.sink.replace_if_fatal();
        let records: Vec<_> = letters.iter().map(as_record).collect();
        self.sink.send_all(&self.topic, &records).map(drop).map_err(DeadLetterError::new)
    }
}

fn as_record(letter: &DeadLetter) -> Record {
    let mut record = letter.record.clone();
    let headers = letter.headers().map(|(name, value)| (name.to_owned(), Some(value.into_bytes())));
    record.headers.extend(headers);
    record
}
