//! Forms of output: as printed, with tags, or a line of JSON per attempt.

use std::io::{self, Write};

use serde::Serialize;

use crate::process::{CapturedOutput, OutputCapture};

use super::json::append_field;
use super::tag::TagWriter;

/// Form of the output of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputForm {
    /// The output of an attempt as a whole.
    Grouped,
    /// Each line as soon as it is complete.
    Lines,
    /// A line of JSON for each attempt, with all it printed.
    Json,
}

/// How an attempt has ended, for a line of JSON.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct AttemptReport<'r> {
    /// Number of the attempt and its times, if it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) start_us: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) end_us: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) exit: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) signal: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<&'r str>,
}

/// Puts a tag in front of each line of both streams.
pub(super) fn tagged(printed: &mut CapturedOutput, tag: &[u8]) -> io::Result<CapturedOutput> {
    let mut tagged = CapturedOutput::default();
    printed.stdout.write_to(&mut TagWriter::new(&mut tagged.stdout, tag))?;
    printed.stderr.write_to(&mut TagWriter::new(&mut tagged.stderr, tag))?;
    Ok(tagged)
}

/// Returns the line of JSON of an attempt. `head` is an object without its end.
pub(super) fn json_line(
    printed: &mut CapturedOutput,
    head: &[u8],
    report: &AttemptReport<'_>,
) -> io::Result<CapturedOutput> {
    let mut line = OutputCapture::default();
    line.write_all(&json_head(head, report))?;
    append_field(&mut line, "stdout", &mut printed.stdout)?;
    append_field(&mut line, "stderr", &mut printed.stderr)?;
    line.write_all(b"}\n")?;
    Ok(CapturedOutput { stdout: line, stderr: OutputCapture::default() })
}

/// Returns an object with the members of `head`, an object without its end, and of the report; without
/// its end.
pub(super) fn json_head(head: &[u8], report: &AttemptReport<'_>) -> Vec<u8> {
    let report = serde_json::to_vec(report).expect("a report has members with names");
    let inside = &report[1..report.len() - 1];
    [head, b",", inside].concat()
}
