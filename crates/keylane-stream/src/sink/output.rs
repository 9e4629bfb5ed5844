use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{Sink, SinkError};
use crate::Record;

/// What was made of one record, and whom to tell what became of it.
///
/// Dropped without an answer it counts as not written.
#[must_use = "it is owed an answer"]
pub struct HandlerOutput {
    records: Vec<Record>,
    callback: Box<dyn OutputCallback>,
}

/// Who is told what became of an output.
pub trait OutputCallback: Send {
    /// Whether what is written counts. If not, the record that it was made of is somebody else's by now, and
    /// it need not be written.
    fn is_wanted(&self) -> bool {
        true
    }

    /// All of it is written, or some is not, or perhaps not.
    fn answer(self: Box<Self>, result: Result<(), SinkError>);

    /// It was not written, for it is not [wanted](Self::is_wanted) any more.
    fn withdraw(self: Box<Self>) {
        self.answer(Err(SinkError::new("nobody wants it any more")));
    }
}

impl<F: FnOnce(Result<(), SinkError>) + Send> OutputCallback for F {
    fn answer(self: Box<Self>, result: Result<(), SinkError>) {
        self(result);
    }
}

impl HandlerOutput {
    /// These records; the callback, or a function, is told what became of them, on whatever thread.
    pub fn new(records: Vec<Record>, callback: impl OutputCallback + 'static) -> Self {
        HandlerOutput { records, callback: Box::new(callback) }
    }

    /// What is to be written.
    #[must_use]
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// The same, taken out.
    pub fn take_records(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.records)
    }

    /// Whether what is written still counts.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.callback.is_wanted()
    }

    /// They are not written, for they are not [wanted](Self::is_wanted) any more.
    pub fn withdraw(self) {
        self.callback.withdraw();
    }

    /// All of them are written, or some are not, or perhaps not.
    pub fn answer(self, result: Result<(), SinkError>) {
        self.callback.answer(result);
    }
}

/// Writes outputs together, or else one by one, and answers for each.
pub(super) fn put_together_or_singly<S: Sink + ?Sized>(sink: &mut S, outputs: Vec<HandlerOutput>) {
    let lengths: Vec<_> = outputs.iter().map(|output| output.records.len()).collect();
    let (records, callbacks): (Vec<_>, Vec<_>) =
        outputs.into_iter().map(|HandlerOutput { records, callback }| (records, callback)).unzip();
    let records: Vec<_> = records.into_iter().flatten().collect();
    let mut rest = &records[..];
    match (put(sink, &records), callbacks.len()) {
        (Ok(()), _) => callbacks.into_iter().for_each(|callback| callback.answer(Ok(()))),
        (Err(error), 1) => {
            callbacks
                .into_iter()
                .zip([error])
                .for_each(|(callback, error)| callback.answer(Err(error)));
        }
        (Err(_), _) => {
            for (length, callback) in lengths.into_iter().zip(callbacks) {
                let (own, others) = rest.split_at(length);
                rest = others;
                callback.answer(put(sink, own));
            }
        }
    }
}

fn put<S: Sink + ?Sized>(sink: &mut S, records: &[Record]) -> Result<(), SinkError> {
    if records.is_empty() {
        return Ok(());
    }
    let put = catch_unwind(AssertUnwindSafe(|| sink.put(records)));
    put.unwrap_or_else(|_| Err(SinkError::new("the sink has panicked")))
}

impl fmt::Debug for HandlerOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerOutput")
            .field("records", &self.records.len())
            .finish_non_exhaustive()
    }
}
