//! Bounds that hold for the answers of handlers: the pause before an attempt, and the capacity for
//! the subtasks of a split.

use serde_json::json;
use tokio::sync::{mpsc, oneshot};

use super::*;
use crate::engine::{RetrySelection, ServiceSettings};
use crate::job_definition::SubmissionLimits;
use crate::request_error::RequestError;
use crate::wire::{JobState, RetryOnly};
use crate::{JobId, Kind, Service, ServiceBuilder};
use keylane::Backoff;

/// Handler whose attempts get their answers from the test.
#[derive(Debug)]
struct Asked(mpsc::UnboundedSender<(Attempt, oneshot::Sender<AttemptResult>)>);

/// Attempts that have begun.
#[derive(Debug)]
struct Asks(mpsc::UnboundedReceiver<(Attempt, oneshot::Sender<AttemptResult>)>);

impl Asks {
    /// Returns the next attempt. Fails the test if none begins.
    async fn next(&mut self) -> (Attempt, oneshot::Sender<AttemptResult>) {
        let next = tokio::time::timeout(Duration::from_secs(30), self.0.recv()).await;
        next.expect("nothing has begun").expect("the handler is there")
    }
}

impl Handler for Asked {
    fn sort(&self) -> &'static str {
        "function"
    }

    fn handle(&self, attempt: Attempt) -> crate::handle::BoxFuture<AttemptResult> {
        let (answer, answered) = oneshot::channel();
        let _ = self.0.send((attempt, answer));
        Box::pin(async { answered.await.unwrap_or(Ok(None)) })
    }
}

/// Returns a builder with two kinds: the subtasks of `plain` and the splits of `split` get their
/// answers from the test, and the subtasks of `split` hold their capacity.
fn builder(folder: &std::path::Path, bounds: SubmissionLimits) -> (ServiceBuilder, Asks) {
    let (to, asks) = mpsc::unbounded_channel();
    let backoff = Backoff { first: Duration::from_millis(1), ..Backoff::default() };
    let plain = Kind { attempts: 2, backoff, ..Kind::new(Asked(to.clone())) };
    let split = Kind { split: Some(Arc::new(Asked(to))), ..Kind::leased(Duration::from_secs(60)) };
    let split = Kind { attempts: 2, backoff, ..split };
    let settings = ServiceSettings { bounds, ..ServiceSettings::new(folder.join("store")) };
    (Service::builder(settings).kind("plain", plain).kind("split", split), Asks(asks))
}

async fn submit(service: &Service, job: serde_json::Value) -> JobId {
    service.submit(&job.to_string()).await.unwrap()
}

fn made(subtasks: &serde_json::Value) -> AttemptResult {
    Ok(Some(RawValue::from_string(subtasks.to_string()).unwrap()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_that_a_handler_asks_for_is_at_most_a_day() {
    let folder = tempfile::tempdir().unwrap();
    let (builder, mut asks) = builder(folder.path(), SubmissionLimits::default());
    let service = builder.start().await.unwrap();
    let id = submit(&service, json!({"kind": "plain", "payload": 1})).await;
    let (_, answer) = asks.next().await;
    let (core, before) = (&service.core, service.core.clock.now().0);
    let version = core.query.job(id).unwrap().version;
    let after = Some(Duration::from_millis(u64::MAX));
    answer.send(Err(AttemptFailure { after, ..AttemptFailure::passing("not now") })).unwrap();
    core.query.changed(id, version, Duration::from_secs(30)).await.unwrap();
    let waits = core.query.subtask(id, 0).unwrap().waiting_because.unwrap();
    assert_eq!(waits.reason, "backing_off");
    let day = 24 * 3_600_000;
    let (until, now) = (waits.until.unwrap().0, core.clock.now().0);
    assert!((before + day..=now + day).contains(&until), "{before} {until} {now}");
    service.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_subtasks_of_a_split_need_capacity() {
    let folder = tempfile::tempdir().unwrap();
    let bounds = SubmissionLimits {
        waiting_subtasks: 3,
        waiting_key_bytes: 20,
        ..SubmissionLimits::default()
    };
    let (builder, mut asks) = builder(folder.path(), bounds);
    let service = builder.start().await.unwrap();
    let core = &service.core;
    let first = submit(&service, json!({"kind": "split", "payload": 1})).await;
    let (_, answer) = asks.next().await;
    answer.send(made(&json!([{}, {}, {}, {}]))).unwrap();
    // The second attempt fits.
    let (again, answer) = asks.next().await;
    assert_eq!(again.number, 2);
    let refused = core.query.job(first).unwrap();
    assert_eq!(refused.counts.total, 0, "{refused:?}");
    answer.send(made(&json!([{"key": "0123456789"}, {}]))).unwrap();
    let mut job = core.query.job(first).unwrap();
    while job.counts.total < 2 {
        job = core.query.changed(first, job.version, Duration::from_secs(30)).await.unwrap();
    }

    // The last attempt that does not fit fails the job, and the error names the limit.
    for (subtasks, limit) in [
        (json!([{}, {}]), "`max_waiting_subtasks`"),
        (json!([{"key": "0123456789!"}]), "`max_key_bytes`"),
    ] {
        let second = submit(&service, json!({"kind": "split", "payload": 1})).await;
        for _ in 0..2 {
            let (_, answer) = asks.next().await;
            answer.send(made(&subtasks)).unwrap();
        }
        let failed = service.wait(second).await.unwrap();
        assert_eq!(failed.state, JobState::Failed);
        let error = failed.error.unwrap();
        assert!(error.contains(limit), "{error}");
    }
    // What was refused has released its capacity.
    let third = submit(&service, json!({"kind": "plain", "payload": 1})).await;
    let (_, answer) = asks.next().await;
    answer.send(Ok(None)).unwrap();
    assert_eq!(service.wait(third).await.unwrap().state, JobState::Succeeded);
    service.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_needs_capacity() {
    let folder = tempfile::tempdir().unwrap();
    let bounds = SubmissionLimits {
        waiting_subtasks: 3,
        waiting_key_bytes: 20,
        ..SubmissionLimits::default()
    };
    let (builder, mut asks) = builder(folder.path(), bounds);
    let service = builder.start().await.unwrap();
    let core = &service.core;
    let act = &crate::engine::audit::AuditedRequest::in_process(
        crate::engine::audit::OperatorAction::RetryJob,
    );
    let key = "0123456789!";
    let failing = json!({"kind": "plain", "attempts": 1, "subtasks": [{"key": key}, {}]});
    let failed = submit(&service, failing).await;
    for _ in 0..2 {
        let (_, answer) = asks.next().await;
        answer.send(Err(AttemptFailure::lasting("no"))).unwrap();
    }
    assert_eq!(service.wait(failed).await.unwrap().state, JobState::Failed);

    let mut held = Vec::new();
    for (other, limit) in [
        (json!({"kind": "plain", "subtasks": [{}, {}]}), "`max_waiting_subtasks`"),
        (json!({"kind": "plain", "key": "abcdefghij", "payload": 1}), "`max_key_bytes`"),
    ] {
        let subtasks = other["subtasks"].as_array().map_or(1, Vec::len);
        let other = submit(&service, other).await;
        for _ in 0..subtasks {
            held.push(asks.next().await.1);
        }
        let refused = core
            .retries
            .retry(failed, RetrySelection::Only(RetryOnly::Failed), act)
            .await
            .unwrap_err();
        assert!(
            matches!(&refused, RequestError::Backlog { what, .. } if what.contains(limit)),
            "{refused}"
        );
        assert_eq!(core.query.job(failed).unwrap().state, JobState::Failed);
        for answer in held.drain(..) {
            answer.send(Ok(None)).unwrap();
        }
        service.wait(other).await.unwrap();
    }
    // With room it is retried, and a refused retry has released its claim.
    core.retries.retry(failed, RetrySelection::Only(RetryOnly::Failed), act).await.unwrap();
    for _ in 0..2 {
        let (_, answer) = asks.next().await;
        answer.send(Ok(None)).unwrap();
    }
    assert_eq!(service.wait(failed).await.unwrap().state, JobState::Succeeded);
    service.stop(Duration::ZERO).await;
}
