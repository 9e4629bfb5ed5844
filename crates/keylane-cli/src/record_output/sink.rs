//! Way of a record's output: its form, the results folder, and its turn.

use std::io;
use std::sync::Arc;

use crate::process::{AttemptClock, CapturedOutput, OutputReceiver, OutputStream};
use crate::run_stats::RunStats;

use super::form::{AttemptReport, OutputForm, json_head, json_line, tagged};
use super::line_output::LineOutput;
use super::ordered::{OrderedOutput, OutputTurn};
use super::results::ResultsFolder;
use super::tag::tag_of;

/// Output of a run.
#[derive(Debug)]
pub(crate) struct RunOutput {
    stats: Arc<RunStats>,
    form: OutputForm,
    results: Option<ResultsFolder>,
    order: Option<Arc<OrderedOutput>>,
    clock: AttemptClock,
}

/// Way of the answers of workers to standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerPath {
    /// As they are, at once.
    AtOnce,
    /// As they are, in the turns of their records.
    InTurn,
    /// Each in the form of the run.
    Formed,
}

/// Output of one record. Its turn ends when it is dropped.
#[derive(Debug)]
pub(crate) struct RecordSink {
    output: Arc<RunOutput>,
    number: u64,
    /// In front of each line.
    tag: Vec<u8>,
    /// The record as an object of JSON without its end, if that is needed.
    head: Vec<u8>,
    turn: Option<OutputTurn>,
}

/// Output that was not written. Ends the run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutputError {
    /// The run knows the reason and reports it.
    #[error("standard output was not written")]
    NotWritten,
    #[error(
        "cannot keep what a command prints: {0}; make room in the folder for temporary files, or \
         set TMPDIR to another"
    )]
    Lost(#[from] io::Error),
    #[error("{0:#}")]
    Results(anyhow::Error),
}

/// Receiver of what an attempt prints.
#[derive(Debug)]
pub(crate) enum AttemptReceiver<'s> {
    Whole(CapturedOutput),
    Lines(LineOutput<'s>),
}

impl OutputReceiver for AttemptReceiver<'_> {
    fn receive(&mut self, stream: OutputStream, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Whole(printed) => printed.receive(stream, bytes),
            Self::Lines(lines) => lines.push(stream, bytes),
        }
    }
}

impl RunOutput {
    /// With a `window`, output is in the order of the input, and at most that many records are unwritten.
    pub(crate) fn start(
        stats: &Arc<RunStats>,
        form: OutputForm,
        results: Option<ResultsFolder>,
        window: Option<usize>,
        clock: AttemptClock,
    ) -> io::Result<Self> {
        let order = window.map(|window| OrderedOutput::start(stats, window)).transpose()?;
        Ok(RunOutput { stats: Arc::clone(stats), form, results, order, clock })
    }

    /// Returns the way of the answers of workers.
    pub(crate) fn answer_path(&self, has_tag: bool) -> AnswerPath {
        match self.form == OutputForm::Grouped && !has_tag {
            true if self.order.is_none() => AnswerPath::AtOnce,
            true => AnswerPath::InTurn,
            false => AnswerPath::Formed,
        }
    }

    /// Ends the turns of records with the answers of a worker, as they are.
    ///
    /// # Errors
    /// If they cannot wait for their turns.
    pub(crate) fn answer_in_turn<'s>(
        &self,
        answers: impl Iterator<Item = (&'s mut RecordSink, &'s [u8])>,
    ) -> Result<(), OutputError> {
        let Some(order) = &self.order else { return Ok(()) };
        let turns = answers.filter_map(|(sink, line)| Some((sink.turn.take()?, line)));
        Ok(order.answered(turns)?)
    }

    /// Returns the time in microseconds since 1970.
    pub(crate) fn now_us(&self) -> i64 {
        self.clock.now_us()
    }

    /// Whether records come as objects of JSON.
    pub(crate) fn needs_head(&self) -> bool {
        self.form == OutputForm::Json || self.results.is_some()
    }

    /// Whether the output of another record may wait for its turn.
    pub(crate) fn has_room(&self) -> bool {
        self.order.as_ref().is_none_or(|order| order.has_room())
    }

    /// Waits until the output of another record may wait for its turn.
    pub(crate) fn wait_for_room(&self) {
        self.order.iter().for_each(|order| order.wait_for_room());
    }

    /// Returns the sink of the next record.
    pub(crate) fn record(
        self: &Arc<Self>,
        number: u64,
        tag: Option<Vec<u8>>,
        head: Vec<u8>,
    ) -> RecordSink {
        let turn = self.order.as_ref().map(|order| order.turn(self.form == OutputForm::Lines));
        let tag = tag.map(tag_of).unwrap_or_default();
        RecordSink { output: Arc::clone(self), number, tag, head, turn }
    }

    /// Writes all that waits for its turn. No record runs any more.
    pub(crate) fn finish(&self) {
        self.order.iter().for_each(|order| order.finish());
    }
}

impl RecordSink {
    /// Returns the receiver for an attempt.
    pub(crate) fn receiver(&self) -> AttemptReceiver<'_> {
        let RunOutput { stats, form, results, .. } = &*self.output;
        match form {
            OutputForm::Lines => {
                let (turn, is_copied) = (self.turn.as_ref(), results.is_some());
                AttemptReceiver::Lines(LineOutput::new(&stats.output, turn, &self.tag, is_copied))
            }
            OutputForm::Grouped | OutputForm::Json => {
                AttemptReceiver::Whole(CapturedOutput::default())
            }
        }
    }

    /// Writes what an attempt has printed.
    ///
    /// # Errors
    /// If it was not written, to its end.
    pub(crate) fn end_attempt(
        &self,
        received: AttemptReceiver<'_>,
        report: &AttemptReport<'_>,
    ) -> Result<(), OutputError> {
        let (printed, is_written) = match received {
            AttemptReceiver::Whole(printed) => (Some(printed), true),
            AttemptReceiver::Lines(mut lines) => {
                let is_written = lines.finish()?;
                (lines.copy, is_written)
            }
        };
        let Some(mut printed) = printed else {
            return if is_written { Ok(()) } else { Err(OutputError::NotWritten) };
        };
        if let Some(results) = &self.output.results {
            let report = [&*json_head(&self.head, report), b"}\n"].concat();
            results.save(self.number, &mut printed, &report).map_err(OutputError::Results)?;
        }
        match self.output.form {
            OutputForm::Lines if is_written => Ok(()),
            OutputForm::Lines => Err(OutputError::NotWritten),
            OutputForm::Grouped | OutputForm::Json => self.write(self.formed(printed, report)?),
        }
    }

    /// Takes the answer of a worker: appends it to `text`, for the caller to write, unless it has to
    /// wait for its turn.
    ///
    /// # Errors
    /// If it cannot wait.
    pub(crate) fn answer(
        &self,
        line: &[u8],
        report: &AttemptReport<'_>,
        text: &mut Vec<u8>,
    ) -> Result<(), OutputError> {
        let mut printed = CapturedOutput::default();
        printed.receive(OutputStream::Stdout, line)?;
        let mut formed = self.formed(printed, report)?;
        match &self.turn {
            Some(turn) => turn.add(formed)?,
            None => formed.stdout.write_to(text)?,
        }
        Ok(())
    }

    /// Reports a record that could not run.
    ///
    /// # Errors
    /// If the report was not written.
    pub(crate) fn refuse(&self, why: &str) -> Result<(), OutputError> {
        let report = AttemptReport { error: Some(why), ..AttemptReport::default() };
        self.end_attempt(AttemptReceiver::Whole(CapturedOutput::default()), &report)
    }

    /// Returns what an attempt has printed, in the form of the run.
    fn formed(
        &self,
        mut printed: CapturedOutput,
        report: &AttemptReport<'_>,
    ) -> io::Result<CapturedOutput> {
        match self.output.form {
            OutputForm::Json => json_line(&mut printed, &self.head, report),
            _ if self.tag.is_empty() => Ok(printed),
            _ => tagged(&mut printed, &self.tag),
        }
    }

    fn write(&self, mut printed: CapturedOutput) -> Result<(), OutputError> {
        if printed.is_empty() {
            return Ok(());
        }
        if let Some(turn) = &self.turn {
            return Ok(turn.add(printed)?);
        }
        let CapturedOutput { stdout, stderr } = &mut printed;
        let output = &self.output.stats.output;
        let written = output.write_both(|out| stdout.write_to(out), |err| stderr.write_to(err));
        if written.is_ok() || stdout.is_empty() { Ok(()) } else { Err(OutputError::NotWritten) }
    }
}
