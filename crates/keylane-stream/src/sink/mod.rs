//! Destinations of the output of handlers.
//!
//! A consumer's record is complete when the sink has acknowledged its output (see
//! [`Outbox`](crate::consumer::Outbox)), so no output is lost. After a crash, records that were not
//! committed are handled again, and their output is written again.

mod error;
mod journal;
mod output;

pub use self::error::SinkError;
pub use self::journal::JournalSink;
pub use self::output::{HandlerOutput, OutputCallback};
use crate::Record;

/// Destination of records. Used by one thread.
pub trait Sink: Send {
    /// Writes records. On success all of them are durable, as far as the destination is, and
    /// records of a key are in this order.
    ///
    /// One call has many records, which can share a sync or a round trip.
    ///
    /// # Errors
    /// If some were not written, or perhaps not. The caller decides what follows.
    fn put(&mut self, records: &[Record]) -> Result<(), SinkError>;

    /// Writes the output of several records, and answers each when it is durable.
    ///
    /// It may return earlier, with several writes in flight, and blocks when there are too many.
    /// Outputs with a common key are written in this order.
    ///
    /// By default all outputs are [written](Self::put) together; if that fails, one by one, so that
    /// one bad output does not fail the others.
    fn put_each(&mut self, outputs: Vec<HandlerOutput>) {
        output::put_together_or_singly(outputs, |records| self.put(records));
    }
}

impl<S: Sink + ?Sized> Sink for Box<S> {
    fn put(&mut self, records: &[Record]) -> Result<(), SinkError> {
        (**self).put(records)
    }

    fn put_each(&mut self, outputs: Vec<HandlerOutput>) {
        (**self).put_each(outputs);
    }
}
