//! Attempts for handlers, without a service around them.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use keylane_process::Registry;
use keylane_service::handle::{
    Attempt, AttemptFailure, AttemptOutput, AttemptResult, Handler, Step,
};
use keylane_service::{JobId, Key, TraceContext};
use tokio_util::sync::CancellationToken;

pub(crate) const JOB: &str = "job_0199aaaaaaaa7000800000000000000a";

/// The second attempt at subtask 7 of a job, of the key `ann`.
pub(crate) fn attempt(payload: &str) -> Attempt {
    Attempt {
        progress: keylane_service::handle::AttemptProgress::default(),
        job: JobId::parse(JOB).unwrap(),
        kind: "resize".into(),
        step: Step::Subtask(7),
        keys: vec![Key::new("ann"), Key::new("bob")],
        shared_keys: Vec::new(),
        number: 2,
        fence: 99,
        payload: Bytes::copy_from_slice(payload.as_bytes()),
        trace: None,
        log: AttemptOutput::default(),
        cancelled: CancellationToken::new(),
        children: Registry::default(),
    }
}

/// The same, in a trace.
pub(crate) fn traced(payload: &str) -> Attempt {
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    Attempt { trace: TraceContext::parse(parent, "a=1"), ..attempt(payload) }
}

/// An attempt, and what cancels it.
pub(crate) fn cancellable(payload: &str) -> (Attempt, CancellationToken) {
    let attempt = attempt(payload);
    let cancel = attempt.cancelled.clone();
    (attempt, cancel)
}

/// What a handler makes of it. Fails the test if that takes longer than anything here may.
#[track_caller]
pub(crate) fn ask<T: Handler>(
    handler: &T,
    attempt: Attempt,
) -> impl Future<Output = AttemptResult> + use<T> {
    let caller = std::panic::Location::caller();
    let answer = handler.handle(attempt);
    async move {
        let answer = tokio::time::timeout(Duration::from_secs(60), answer).await;
        answer.unwrap_or_else(|_| panic!("there was no answer, at {caller}"))
    }
}

/// The result as its JSON.
#[track_caller]
pub(crate) fn result(answer: AttemptResult) -> String {
    answer.unwrap().map_or_else(String::new, |raw| raw.get().to_owned())
}

/// A failure that lasts, with what it says.
#[track_caller]
pub(crate) fn lasting(answer: AttemptResult) -> String {
    let AttemptFailure { error, retry, .. } = answer.unwrap_err();
    assert!(!retry, "it passes: {error}");
    error
}

/// A failure that passes, with what it says.
#[track_caller]
pub(crate) fn passing(answer: AttemptResult) -> String {
    let AttemptFailure { error, retry, .. } = answer.unwrap_err();
    assert!(retry, "it lasts: {error}");
    error
}

/// A named pipe, by which commands and tests wait for each other.
pub(crate) fn named_pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}
