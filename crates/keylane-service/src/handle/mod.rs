//! Handlers of attempts: function, command, persistent worker process, or HTTP address.
//!
//! A [`Handler`] gets an [`Attempt`] and returns JSON, or a [`AttemptFailure`] that tells whether a retry
//! may help. Order, retries, timeouts and persistence are the engine's. Remote workers have no
//! handler: they acquire leases over HTTP.

mod arg_placeholders;
mod command;
mod environment;
mod function;
mod group;
mod http_handler;
mod log;
mod progress;
mod worker;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use crate::{JobId, Key, SubtaskNumber, TraceContext};

pub use command::{CommandHandler, ProcessLimits};
pub(crate) use function::panicked;
pub use function::{BlockingHandler, FunctionHandler};
pub use http_handler::{HttpHandler, InvalidAddress};
pub use keylane_process::DEFAULT_ENVIRONMENT;
pub use log::{AttemptOutput, OutputTail};
pub use progress::AttemptProgress;
pub(crate) use progress::ProgressSteps;
pub use worker::WorkerHandler;

/// Result of an attempt.
pub type AttemptResult = Result<Option<Box<RawValue>>, AttemptFailure>;

/// Boxed future of a handler.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Executes attempts of a kind.
pub trait Handler: Send + Sync + 'static {
    /// Name of the handler type, as in `command` or `function`.
    fn sort(&self) -> &'static str;

    /// Whether attempts of this handler write to their [log](Attempt::log). By default they do not,
    /// and have none.
    fn keeps_log(&self) -> bool {
        false
    }

    /// Timeout of an attempt if neither its job nor its kind has one. By default none; a handler
    /// that waits for a remote reply should have one.
    fn patience(&self) -> Option<Duration> {
        None
    }

    /// Maximum number of attempts that this executes at the same time. By default as many as it is given.
    fn max_attempts(&self) -> Option<usize> {
        None
    }

    /// Executes one attempt. The future is polled on the service's runtime and must not block.
    ///
    /// When the attempt is [cancelled](Attempt::cancelled) or times out, the future has a short
    /// grace period to end and is then dropped; the handler ensures that everything it started ends
    /// too.
    fn handle(&self, attempt: Attempt) -> BoxFuture<AttemptResult>;

    /// Releases the resources kept between attempts. No attempt is running.
    fn close(&self) -> BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }
}

/// One attempt at a subtask.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Id of the job.
    pub job: JobId,
    /// Kind of the job.
    pub kind: std::sync::Arc<str>,
    /// Step of the job that this attempt executes.
    pub step: Step,
    /// Keys of the subtask that it does not share.
    pub keys: Vec<Key>,
    /// Keys of the subtask that other subtasks may share.
    pub shared_keys: Vec<Key>,
    /// Number of the attempt, from 1. An attempt ended by a server crash counts if its start was
    /// written.
    pub number: u32,
    /// Fencing token: higher than that of any earlier attempt at this subtask, even across crashes.
    /// A system that is changed by attempts can refuse a lower one.
    pub fence: u64,
    /// Input of the subtask: JSON.
    pub payload: Bytes,
    /// Trace context of the job: the parent of the handler's spans.
    pub trace: Option<TraceContext>,
    /// Log of the attempt for humans, with the kind's size limit.
    pub log: AttemptOutput,
    /// Progress of the attempt, which clients see.
    pub progress: AttemptProgress,
    /// Cancelled when the job is cancelled with its running attempts, or the attempt times out.
    pub cancelled: CancellationToken,
    /// Registry of child processes, which ends them if this process is killed. The default registry
    /// does not.
    pub children: keylane_process::Registry,
}

/// Step of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Makes the subtasks from the job's payload.
    Split,
    /// One subtask.
    Subtask(SubtaskNumber),
    /// Combines the results of all subtasks.
    FanIn,
}

impl Attempt {
    /// Idempotency key of the subtask for other systems: equal for all its attempts and unique to
    /// it.
    #[must_use]
    pub fn idempotency_key(&self) -> String {
        format!("{}/{}", self.job, self.subtask_name())
    }

    /// Name of the step in the job: the subtask's number, `split` or `fan-in`.
    #[must_use]
    pub fn subtask_name(&self) -> String {
        match self.step {
            Step::Split => "split".into(),
            Step::Subtask(number) => number.to_string(),
            Step::FanIn => "fan-in".into(),
        }
    }

    pub(crate) fn traceparent(&self) -> Option<&str> {
        self.trace.as_ref().map(TraceContext::traceparent)
    }

    pub(crate) fn tracestate(&self) -> Option<&str> {
        self.trace.as_ref().and_then(TraceContext::tracestate)
    }

    /// First key that is not shared, as text.
    #[must_use]
    pub fn key(&self) -> Option<std::borrow::Cow<'_, str>> {
        self.keys.first().map(|key| String::from_utf8_lossy(&key.0))
    }
}

/// Failure of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptFailure {
    /// Error message for humans.
    pub error: String,
    /// Whether a retry may help.
    pub retry: bool,
    /// Minimum delay before the retry; if none, the kind's backoff applies.
    pub after: Option<Duration>,
}

impl AttemptFailure {
    /// Maximum size of the error message that is kept, in bytes.
    pub const MAX_BYTES: usize = 4096;

    /// Failure that a retry may fix.
    pub fn passing(error: impl Into<String>) -> Self {
        AttemptFailure { error: shortened(error.into()), retry: true, after: None }
    }

    /// Failure that every retry would repeat.
    pub fn lasting(error: impl Into<String>) -> Self {
        AttemptFailure { error: shortened(error.into()), retry: false, after: None }
    }
}

/// Truncates a long message: one is kept per failure.
fn shortened(mut text: String) -> String {
    if text.len() > AttemptFailure::MAX_BYTES {
        let end = text.floor_char_boundary(AttemptFailure::MAX_BYTES);
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Converts an answer to JSON: unchanged if it is valid JSON, else as a JSON string of its text.
fn as_json(answer: &[u8]) -> Option<Box<RawValue>> {
    let text = String::from_utf8_lossy(answer);
    let text = text.trim();
    if text.is_empty() {
        return None;
    }
    let raw = RawValue::from_string(text.to_owned());
    let raw = raw.or_else(|_| serde_json::value::to_raw_value(text));
    Some(raw.expect("a text can always be written as a JSON string"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_kept_as_json_or_as_a_string() {
        let json = |bytes: &[u8]| as_json(bytes).map(|raw| raw.get().to_owned());
        assert_eq!(json(b" {\"a\": 1}\n"), Some("{\"a\": 1}".into()));
        assert_eq!(json(b"done\n"), Some("\"done\"".into()));
        assert_eq!(json(b" \n"), None);
        assert_eq!(json(b"\xff"), Some("\"\u{fffd}\"".into()));
        // Large numbers keep all digits.
        assert_eq!(json(b"12345678901234567890123"), Some("12345678901234567890123".into()));
    }

    #[test]
    fn a_long_error_is_cut_between_characters() {
        let failure = AttemptFailure::passing("ä".repeat(AttemptFailure::MAX_BYTES));
        assert!(failure.error.len() <= AttemptFailure::MAX_BYTES + '…'.len_utf8());
        assert!(failure.error.ends_with("ä…"));
    }
}
