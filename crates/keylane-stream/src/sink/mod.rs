//! Where records go that handlers make of others.
//!
//! A consumer's record is done when the sink has acknowledged what was made of it, and not before (see
//! [`Outbox`](crate::consumer::Outbox)). So nothing is lost between the two; what was written and not yet
//! committed when a process died is made and written again.

mod journal;
mod output;

use std::error::Error;
use std::fmt;

pub use self::journal::JournalSink;
pub use self::output::{HandlerOutput, OutputCallback};
use crate::Record;

/// A place for records. It belongs to one thread.
pub trait Sink: Send {
    /// Writes records. When it returns well, all of them are safe, as safe as that place is, and those of
    /// a key stand there in this order.
    ///
    /// It gets many at a time, so that they can share a sync or a round trip.
    ///
    /// # Errors
    /// If some were not written, or perhaps not. What follows is up to the caller.
    fn put(&mut self, records: &[Record]) -> Result<(), SinkError>;

    /// Writes what was made of several records, and answers for each when that is safe.
    ///
    /// It may return before that, so that more is on its way at a time; it waits when that is too much. Outputs
    /// that have a key in common are written in this order.
    ///
    /// Unless a sink says otherwise, all are [put](Self::put) together; if that is refused, each by itself, so
    /// that one that is bad holds no other up.
    fn put_each(&mut self, outputs: Vec<HandlerOutput>) {
        output::put_together_or_singly(self, outputs);
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

/// Why records were not written.
#[derive(Debug)]
pub struct SinkError(Box<dyn Error + Send + Sync>);

impl SinkError {
    /// For this reason.
    pub fn new(why: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        SinkError(why.into())
    }
}

impl fmt::Display for SinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "what came of the record was not written: {}", self.0)
    }
}

impl Error for SinkError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}
