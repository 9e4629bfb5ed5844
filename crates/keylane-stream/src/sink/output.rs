use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{Sink, SinkError};
use crate::Record;

/// What was made of one record, and whom to tell what became of it.
///
/// Dropped without an answer it counts as not written.
#[must_use = "it is owed an answer"]
pub struct Output {
    records: Vec<Record>,
    answer: Answer,
}

type Answer = Box<dyn FnOnce(Result<(), SinkError>) + Send>;

impl Output {
    /// These records; `answer` is called with what became of them, on whatever thread. It must not take long.
    pub fn new(
        records: Vec<Record>,
        answer: impl FnOnce(Result<(), SinkError>) + Send + 'static,
    ) -> Self {
        Output { records, answer: Box::new(answer) }
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

    /// All of them are written, or some are not, or perhaps not.
    pub fn answer(self, result: Result<(), SinkError>) {
        (self.answer)(result);
    }
}

/// Writes outputs together, or else one by one, and answers for each.
pub(super) fn put_together_or_singly<S: Sink + ?Sized>(sink: &mut S, outputs: Vec<Output>) {
    let lengths: Vec<_> = outputs.iter().map(|output| output.records.len()).collect();
    let (records, answers): (Vec<_>, Vec<_>) =
        outputs.into_iter().map(|Output { records, answer }| (records, answer)).unzip();
    let records: Vec<_> = records.into_iter().flatten().collect();
    let mut rest = &records[..];
    match (put(sink, &records), answers.len()) {
        (Ok(()), _) => answers.into_iter().for_each(|answer| answer(Ok(()))),
        (Err(error), 1) => {
            answers.into_iter().zip([error]).for_each(|(answer, error)| answer(Err(error)))
        }
        (Err(_), _) => {
            for (length, answer) in lengths.into_iter().zip(answers) {
                let (own, others) = rest.split_at(length);
                rest = others;
                answer(put(sink, own));
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

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output").field("records", &self.records.len()).finish_non_exhaustive()
    }
}
