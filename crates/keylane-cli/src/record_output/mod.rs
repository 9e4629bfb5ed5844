//! Output of records in the form and the order of the run: each attempt's output is written once, whole
//! or in whole lines.
//!
//! ```text
//! command ─▶ receiver ─▶ form (tag, JSON) ─▶ at once, or in its turn ─▶ standard output
//!            │ (or whole   │
//!            │  lines)     └▶ results folder
//! ```
//!
//! With turns, an output waits for those of all records before it. No lock is held while anything is
//! written, and no thread but the writer's waits for standard output.

mod form;
mod json;
mod line_output;
mod ordered;
mod results;
mod sink;
mod spill;
mod tag;

pub(crate) use form::{AttemptReport, OutputForm};
pub(crate) use results::ResultsFolder;
pub(crate) use sink::{AnswerPath, AttemptReceiver, OutputError, RecordSink, RunOutput};
