//! What does the work: a function, a command, a long-lived worker, an address, or whoever takes a lease.
//!
//! All of them are [`Handler`]s but the last, for a remote worker asks by itself. A handler is given an
//! [`Attempt`] and answers with JSON, or with a [`Failure`] that says whether another attempt could help.
//! Order, retries, timeouts and what is written down are not its business.

mod command;
mod environment;
mod function;
mod group;
mod log;
mod post;
mod words;
mod worker;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use crate::{JobId, Key, SubtaskNumber, TraceContext};

pub use command::{Command, Limits};
pub(crate) use function::panicked;
pub use function::{Blocking, Function};
pub use keylane_process::DEFAULT_ENVIRONMENT;
pub use log::{Log, Said};
pub use post::{NoAddress, Post};
pub use worker::Workers;

/// What becomes of an attempt.
pub type Answer = Result<Option<Box<RawValue>>, Failure>;

/// A future that somebody else drives.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Does the work of a kind.
pub trait Handler: Send + Sync + 'static {
    /// What sort of handler it is, in a word: `command`, `function`.
    fn sort(&self) -> &'static str;

    /// Whether its attempts say something to people, which goes into their [logs](Attempt::log). Unless it says
    /// so they have none.
    fn keeps_log(&self) -> bool {
        false
    }

    /// How long an attempt may take if neither its job nor its kind says so: unless this does, as long as it takes. For
    /// those that wait for something that may never come.
    fn patience(&self) -> Option<Duration> {
        None
    }

    /// Does one attempt. The future is polled on the service's runtime and must not block it.
    ///
    /// If the attempt is [cancelled](Attempt::cancelled) or times out, the future is given a moment to end by
    /// itself and is dropped then; a handler sees to it that what it began ends with it.
    fn handle(&self, attempt: Attempt) -> BoxFuture<Answer>;

    /// Ends what the handler keeps between attempts. No attempt runs any more.
    fn close(&self) -> BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }
}

/// One try at a subtask.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The job,
    pub job: JobId,
    /// and its kind.
    pub kind: std::sync::Arc<str>,
    /// What of it is to be done.
    pub step: Step,
    /// The subtask's keys.
    pub keys: Vec<Key>,
    /// Which attempt it is, from 1. A crash of the server counts as one, as far as its beginning had been
    /// written down.
    pub number: u32,
    /// Higher than that of any earlier attempt at this subtask, crashes or not: whoever is told to change
    /// something can refuse what comes with a lower one.
    pub fence: u64,
    /// What the subtask is given: JSON.
    pub payload: Bytes,
    /// Where the job is in its client's trace: the parent of what the handler does.
    pub trace: Option<TraceContext>,
    /// Where it puts what it says for people, as its kind allows.
    pub log: Log,
    /// When somebody has cancelled the job and wants it to end now, or the time is up.
    pub cancelled: CancellationToken,
    /// Registry of the processes that handlers start, which ends them if this process is killed. The default one does
    /// not.
    pub children: keylane_process::Registry,
}

/// What of a job is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// To say what its subtasks are.
    Split,
    /// One of its subtasks.
    Subtask(SubtaskNumber),
    /// The last step, over the results.
    FanIn,
}

impl Attempt {
    /// What names the subtask to other systems: the same for each attempt at it, and for nothing else.
    #[must_use]
    pub fn idempotency_key(&self) -> String {
        format!("{}/{}", self.job, self.subtask_name())
    }

    /// What of the job it is, in a word: a subtask's number, `split` or `fan-in`.
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

    /// The first of its keys, as text.
    #[must_use]
    pub fn key(&self) -> Option<std::borrow::Cow<'_, str>> {
        self.keys.first().map(|key| String::from_utf8_lossy(&key.0))
    }
}

/// Why an attempt failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What went wrong, for people.
    pub error: String,
    /// Whether another attempt could help.
    pub retry: bool,
    /// Not before so long from now; by the kind's backoff if it does not say.
    pub after: Option<Duration>,
}

impl Failure {
    /// How many bytes of what went wrong are kept.
    pub const MOST_BYTES: usize = 4096;

    /// Another attempt may help.
    pub fn passing(error: impl Into<String>) -> Self {
        Failure { error: shortened(error.into()), retry: true, after: None }
    }

    /// Another attempt would fail the same.
    pub fn lasting(error: impl Into<String>) -> Self {
        Failure { error: shortened(error.into()), retry: false, after: None }
    }
}

/// The beginning of a long text: it is kept for each failure.
fn shortened(mut text: String) -> String {
    if text.len() > Failure::MOST_BYTES {
        let end = text.floor_char_boundary(Failure::MOST_BYTES);
        text.truncate(end);
        text.push('…');
    }
    text
}

/// An answer that came as bytes: as the JSON that it is, or as a JSON string of its text.
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
        // Large numbers keep their digits.
        assert_eq!(json(b"12345678901234567890123"), Some("12345678901234567890123".into()));
    }

    #[test]
    fn a_long_error_is_cut_between_characters() {
        let failure = Failure::passing("ä".repeat(Failure::MOST_BYTES));
        assert!(failure.error.len() <= Failure::MOST_BYTES + '…'.len_utf8());
        assert!(failure.error.ends_with("ä…"));
    }
}
