//! A server runs the handlers of leased kinds under leases of its own: in order, with their results, logs and retries, and no attempt
//! outlives its lease.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Client, Log, builder, text};
use keylane_service::handle::{Attempt, AttemptFailure, FunctionHandler, Handler};
use keylane_service::http::{HttpServer, HttpSettings, StartingServer, Tokens};
use keylane_service::{Kind, LeaseRunner, LeaseRunnerSettings, Service};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::Notify;

/// Longer than any test, so that what ends a lease is what the test does.
const LASTS: Duration = Duration::from_secs(600);

struct Running {
    service: Service,
    server: HttpServer,
    client: Client,
    runner: LeaseRunner,
}

impl Running {
    async fn new(folder: &TempDir, http: HttpSettings, kinds: Vec<(&str, Kind)>) -> Self {
        let runner = LeaseRunner::new(LeaseRunnerSettings::default());
        runner.set_kinds(kinds.iter().map(|(name, kind)| (*name, kind)));
        let http = HttpSettings { listen: ([127, 0, 0, 1], 0).into(), ..http };
        let starting = StartingServer::bind(http).await.unwrap().lease_to(&runner);
        let mut builder = builder(folder.path(), &Log::default());
        for (name, kind) in kinds {
            builder = builder.kind(name, kind);
        }
        let service = builder.start().await.unwrap();
        let client = Client::of(starting.address());
        let server = starting.serve(&service);
        Running { service, server, client, runner }
    }

    async fn stop(self, within: Duration) {
        self.server.drain();
        self.runner.stop(within).await;
        self.server.stop(Duration::from_secs(30)).await;
        self.service.stop(Duration::from_secs(30)).await;
    }
}

fn echo() -> impl Handler {
    FunctionHandler::new(|attempt: Attempt| async move {
        tokio::task::yield_now().await;
        Ok(serde_json::value::RawValue::from_string(text(&attempt)).ok())
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn subtasks_of_a_key_run_in_order_and_have_their_results() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::default();
    let told = log.clone();
    let handler = FunctionHandler::new(move |attempt: Attempt| {
        let log = told.clone();
        async move {
            let key = attempt.key().unwrap_or_default().into_owned();
            log.add(format!("{key} {} begins", text(&attempt)));
            tokio::task::yield_now().await;
            log.add(format!("{key} {} ends", text(&attempt)));
            Ok(serde_json::value::RawValue::from_string(text(&attempt)).ok())
        }
    });
    let kinds = vec![("here", Kind::on_all_servers(LASTS, handler))];
    let running = Running::new(&folder, HttpSettings::default(), kinds).await;
    let subtasks: Vec<_> =
        (0..200).map(|n| json!({"key": format!("k{}", n % 5), "payload": n})).collect();
    let job = json!({"kind": "here", "subtasks": subtasks}).to_string();
    let id = running.client.submit(&job).await;
    let job = running.client.wait(&id).await;
    assert_eq!((&job["state"], &job["counts"]["succeeded"]), (&json!("succeeded"), &json!(200)));
    for key in 0..5 {
        let expected: Vec<_> = (0..40)
            .flat_map(|n| ["begins", "ends"].map(|end| format!("k{key} {} {end}", 5 * n + key)))
            .collect();
        let prefix = format!("k{key} ");
        let lines: Vec<_> =
            log.lines().into_iter().filter(|line| line.starts_with(&prefix)).collect();
        assert_eq!(lines, expected);
    }
    let results = running.client.get(&format!("/v1/jobs/{id}/results?limit=200")).await.json();
    assert_eq!(results["items"][199]["result"], 199);
    running.stop(Duration::ZERO).await;
}

/// The server's own requests need no token, and those of others do.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_tokens_leases_from_itself_and_a_forged_request_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = Tokens::parse("ops operate plain:0123456789abcdef\n").unwrap();
    let http = HttpSettings { tokens, ..HttpSettings::default() };
    let kinds = vec![("here", Kind::on_all_servers(LASTS, echo()))];
    let running = Running::new(&folder, http, kinds).await;
    let bearer = [("authorization", "Bearer 0123456789abcdef")];
    let submit = r#"{"kind":"here","payload":7}"#;
    let with_type = [bearer[0], ("content-type", "application/json")];
    let job = running.client.send("POST", "/v1/jobs", &with_type, submit).await.expect(202).json();
    let path = format!("/v1/jobs/{}", job["id"].as_str().unwrap());
    let ended = async || running.client.send("GET", &path, &bearer, "").await.json();
    while ended().await["state"] != "succeeded" {
        tokio::task::yield_now().await;
    }
    let forged = [("keylane-node", "00"), ("keylane-node-worker", "1")];
    let claim = r#"{"kinds":["here"]}"#;
    running.client.send("POST", "/v1/leases", &forged, claim).await.expect(401);
    running.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_and_panics_are_retried_and_progress_and_logs_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let handler = FunctionHandler::new(|attempt: Attempt| async move {
        match attempt.number {
            1 => Err(AttemptFailure::passing("not yet")),
            2 => panic!("not well"),
            number => Ok(serde_json::value::RawValue::from_string(number.to_string()).ok()),
        }
    });
    let backoff = keylane::Backoff { first: Duration::from_millis(1), ..Default::default() };
    let kinds = vec![("here", Kind { backoff, ..Kind::on_all_servers(LASTS, handler) })];
    let running = Running::new(&folder, HttpSettings::default(), kinds).await;
    let id = running.client.submit(r#"{"kind":"here","payload":1}"#).await;
    assert_eq!(running.client.wait(&id).await["state"], "succeeded");
    let results = running.client.get(&format!("/v1/jobs/{id}/results")).await.json();
    assert_eq!(results["items"][0]["result"], 3);
    running.stop(Duration::ZERO).await;
}

/// Handler that says when it has begun, and ends when it is cancelled.
fn until_cancelled(begun: &Arc<Notify>, ended: &Arc<Notify>) -> impl Handler {
    let (begun, ended) = (Arc::clone(begun), Arc::clone(ended));
    FunctionHandler::new(move |attempt: Attempt| {
        let (begun, ended) = (Arc::clone(&begun), Arc::clone(&ended));
        async move {
            begun.notify_one();
            attempt.cancelled.cancelled().await;
            ended.notify_one();
            Err(AttemptFailure::passing("given up"))
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_job_ends_its_handlers() {
    let folder = tempfile::tempdir().unwrap();
    let (begun, ended) = (Arc::default(), Arc::default());
    // With a short lease, because the next heartbeat tells of the cancellation.
    let kind = Kind::on_all_servers(Duration::from_millis(300), until_cancelled(&begun, &ended));
    let running = Running::new(&folder, HttpSettings::default(), vec![("here", kind)]).await;
    let id = running.client.submit(r#"{"kind":"here","payload":1}"#).await;
    begun.notified().await;
    let cancel = format!("/v1/jobs/{id}/cancel");
    running.client.post(&cancel, r#"{"mode":"kill"}"#).await.accepted();
    ended.notified().await;
    assert_eq!(running.client.wait(&id).await["state"], "cancelled");
    running.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_takes_too_long_is_cancelled_and_fails() {
    let folder = tempfile::tempdir().unwrap();
    let (begun, ended) = (Arc::default(), Arc::default());
    let timeout = Some(Duration::from_millis(500));
    let work = until_cancelled(&begun, &ended);
    let kind = Kind { timeout, attempts: 1, ..Kind::on_all_servers(LASTS, work) };
    let running = Running::new(&folder, HttpSettings::default(), vec![("here", kind)]).await;
    let id = running.client.submit(r#"{"kind":"here","key":"k","payload":1}"#).await;
    ended.notified().await;
    assert_eq!(running.client.wait(&id).await["state"], "failed");
    running.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_waits_for_running_attempts_and_then_cancels_them() {
    let folder = tempfile::tempdir().unwrap();
    let (begun, ended): (Arc<Notify>, Arc<Notify>) = Default::default();
    let finish = Arc::new(Notify::new());
    let (first, told) = (Arc::clone(&begun), Arc::clone(&finish));
    let waits = FunctionHandler::new(move |_| {
        let (begun, finish) = (Arc::clone(&first), Arc::clone(&told));
        async move {
            begun.notify_one();
            finish.notified().await;
            Ok(None)
        }
    });
    let kinds = vec![("here", Kind::on_all_servers(LASTS, waits))];
    let running = Running::new(&folder, HttpSettings::default(), kinds).await;
    let id = running.client.submit(r#"{"kind":"here","payload":1}"#).await;
    begun.notified().await;
    let stopping = tokio::spawn(running.stop(Duration::from_secs(600)));
    tokio::task::yield_now().await;
    finish.notify_one();
    stopping.await.unwrap();

    // The next process has it as succeeded. Its own attempt is cancelled, and counts as one.
    let kind = Kind { attempts: 1, ..Kind::on_all_servers(LASTS, until_cancelled(&begun, &ended)) };
    let running = Running::new(&folder, HttpSettings::default(), vec![("here", kind)]).await;
    assert_eq!(running.client.wait(&id).await["state"], "succeeded");
    let second = running.client.submit(r#"{"kind":"here","payload":1}"#).await;
    begun.notified().await;
    running.stop(Duration::ZERO).await;
    ended.notified().await;
    let running = Running::new(&folder, HttpSettings::default(), Vec::new()).await;
    assert_eq!(running.client.wait(&second).await["state"], "failed");
    running.stop(Duration::ZERO).await;
}

/// Replaced kinds are run by their new handlers, and those of a removed one wait.
#[tokio::test(flavor = "multi_thread")]
async fn kinds_can_be_replaced_while_attempts_run() {
    let folder = tempfile::tempdir().unwrap();
    let (begun, ended) = (Arc::default(), Arc::default());
    let old = Kind::on_all_servers(LASTS, until_cancelled(&begun, &ended));
    let running = Running::new(&folder, HttpSettings::default(), vec![("here", old)]).await;
    let id = running.client.submit(r#"{"kind":"here","payload":1}"#).await;
    begun.notified().await;
    let new = Kind::on_all_servers(LASTS, echo());
    running.runner.set_kinds([("here", &new)]);
    running.service.reload_kinds(vec![("here".into(), new)]).await;
    let other = running.client.submit(r#"{"kind":"here","payload":1}"#).await;
    assert_eq!(running.client.wait(&other).await["state"], "succeeded");
    let first = running.client.get(&format!("/v1/jobs/{id}")).await.json();
    assert_eq!(first["counts"]["running"], 1);
    running.stop(Duration::ZERO).await;
    ended.notified().await;
}
