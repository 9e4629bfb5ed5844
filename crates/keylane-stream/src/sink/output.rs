//! Output of one record's handler, and the callback for its result.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::error::SinkError;
use crate::Record;

/// Output of one record, with the callback for its result.
///
/// Dropping it without an answer counts as not written.
#[must_use = "dropping it without an answer counts as not written"]
pub struct HandlerOutput {
    records: Vec<Record>,
    callback: Box<dyn OutputCallback>,
}

/// Callback for the result of an output.
pub trait OutputCallback: Send {
    /// Returns whether the output is still needed. It is not if the record's partition was
    /// released: then it need not be written.
    fn is_wanted(&self) -> bool {
        true
    }

    /// Called with the result: all records are written, or some are not, or perhaps not.
    fn answer(self: Box<Self>, result: Result<(), SinkError>);

    /// Called when the output was not written because it is no longer [wanted](Self::is_wanted).
    fn withdraw(self: Box<Self>) {
        self.answer(Err(SinkError::new("the partition of the record was released")));
    }
}

impl<F: FnOnce(Result<(), SinkError>) + Send> OutputCallback for F {
    fn answer(self: Box<Self>, result: Result<(), SinkError>) {
        self(result);
    }
}

impl HandlerOutput {
    /// Creates an output. The callback, or a function, receives the result on any thread.
    pub fn new(records: Vec<Record>, callback: impl OutputCallback + 'static) -> Self {
        HandlerOutput { records, callback: Box::new(callback) }
    }

    /// Returns the records to write.
    #[must_use]
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Takes the records out.
    pub fn take_records(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.records)
    }

    /// Returns whether the output is still needed.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.callback.is_wanted()
    }

    /// Ends the output unwritten, because it is no longer [wanted](Self::is_wanted).
    pub fn withdraw(self) {
        self.callback.withdraw();
    }

    /// Ends the output with `result`.
    pub fn answer(self, result: Result<(), SinkError>) {
        self.callback.answer(result);
    }
}

/// Writes outputs together with `put`, or, if that fails, one by one, and answers each.
pub(super) fn put_together_or_singly(
    outputs: Vec<HandlerOutput>,
    mut put: impl FnMut(&[Record]) -> Result<(), SinkError>,
) {
    let lengths: Vec<_> = outputs.iter().map(|output| output.records.len()).collect();
    let (records, callbacks): (Vec<_>, Vec<_>) =
        outputs.into_iter().map(|HandlerOutput { records, callback }| (records, callback)).unzip();
    let records: Vec<_> = records.into_iter().flatten().collect();
    let mut rest = &records[..];
    match (put_caught(&mut put, &records), callbacks.len()) {
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
                callback.answer(put_caught(&mut put, own));
            }
        }
    }
}

/// Writes records, if there are any. A panic of the sink is an error.
fn put_caught(
    put: impl FnOnce(&[Record]) -> Result<(), SinkError>,
    records: &[Record],
) -> Result<(), SinkError> {
    if records.is_empty() {
        return Ok(());
    }
    let result = catch_unwind(AssertUnwindSafe(|| put(records)));
    result.unwrap_or_else(|_| Err(SinkError::new("the sink has panicked")))
}

impl fmt::Debug for HandlerOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerOutput")
            .field("records", &self.records.len())
            .finish_non_exhaustive()
    }
}
