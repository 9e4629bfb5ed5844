//! From its `expires_at` on, nothing of a job starts, whatever it waits for; what runs may finish; its keys go on.

use std::path::Path;
use std::time::Duration;

use crate::common::stage::{Stage, stage};
use crate::common::{Client, serve};
use keylane_service::handle::AttemptFailure;
use keylane_service::http::HttpServer;
use keylane_service::wire::Timestamp;
use keylane_service::{Kind, Service, ServiceSettings};
use serde_json::{Value, json};

struct Place {
    service: Service,
    server: HttpServer,
    client: Client,
    stage: Stage,
}

impl Place {
    async fn start(store: &Path) -> Self {
        let (actors, stage) = stage();
        let settings = ServiceSettings { slots: 1, ..ServiceSettings::new(store) };
        let remote = Kind::leased(Duration::from_secs(60));
        let service = Service::builder(settings).kind("act", Kind::new(actors));
        let service = service.kind("remote", remote).start().await.unwrap();
        let (server, client) = serve(&service).await;
        Place { service, server, client, stage }
    }

    async fn stop(self) {
        self.server.stop(Duration::from_secs(5)).await;
        self.service.stop(Duration::from_secs(5)).await;
    }

    async fn submit(&self, job: Value) -> String {
        self.client.submit(&job.to_string()).await
    }

    /// Waits for the end of an expired job, and returns it.
    async fn expired(&self, id: &str) -> Value {
        let job = self.client.wait(id).await;
        assert_eq!((&job["state"], &job["expired"]), (&json!("cancelled"), &json!(true)), "{job}");
        job
    }
}

/// Short, so that the tests last no longer; nothing is judged by it but what comes after its end.
const SOON_MS: u64 = 300;

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_a_slot_is_cancelled_and_what_runs_may_finish() {
    let folder = tempfile::tempdir().unwrap();
    let mut place = Place::start(&folder.path().join("store")).await;
    let subtasks = json!([{"key": "k", "payload": "first"}, {"key": "k", "payload": "second"}]);
    let id =
        place.submit(json!({"kind": "act", "subtasks": subtasks, "expires_ms": SOON_MS})).await;
    assert_eq!(place.stage.next().await, "first");
    let behind = place.submit(json!({"kind": "act", "key": "k", "payload": "behind"})).await;
    place.client.wait_until(&id, |job| job["expired"] == true).await;
    place.stage.succeed("first");
    // The keys go on.
    assert_eq!(place.stage.next().await, "behind");
    place.stage.succeed("behind");
    let job = place.expired(&id).await;
    assert_eq!((&job["counts"]["succeeded"], &job["counts"]["cancelled"]), (&json!(1), &json!(1)));
    assert_eq!(place.client.wait(&behind).await["state"], "succeeded");
    let metrics = place.client.get("/metrics").await.expect(200).text;
    assert!(metrics.contains("keylane_jobs_expired_total 1"), "{metrics}");
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_expires_whatever_it_waits_for() {
    let folder = tempfile::tempdir().unwrap();
    let mut place = Place::start(&folder.path().join("store")).await;
    let job = |more: Value| {
        let mut job = json!({"kind": "act", "payload": "never", "expires_ms": SOON_MS});
        job.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        job
    };
    // Its next attempt, an operator, its time, a remote worker; and one whose time has passed.
    let tried = place.submit(job(json!({"payload": "tried", "expires_ms": 2 * SOON_MS}))).await;
    assert_eq!(place.stage.next().await, "tried");
    let after = Some(Duration::from_secs(3600));
    place.stage.end("tried", Err(AttemptFailure { after, ..AttemptFailure::passing("not yet") }));
    place.client.post("/v1/keys/k/pause", "").await.expect(200);
    let paused_key = place.submit(job(json!({"key": "k"}))).await;
    let put_off = place.submit(job(json!({"delay_ms": 3_600_000}))).await;
    let remote = place.submit(job(json!({"kind": "remote"}))).await;
    let over = json!({"kind": "act", "payload": "never", "expires_at": "2026-01-01T00:00:00Z"});
    let over = place.submit(over).await;
    for id in [&tried, &paused_key, &put_off, &remote, &over] {
        place.expired(id).await;
    }
    place.stage.expect_nobody();
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_expires_while_the_server_is_down_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let place = Place::start(&store).await;
    place.client.post("/v1/kinds/act/pause", "{}").await.expect(200);
    let job = json!({"kind": "act", "key": "k", "payload": "never", "expires_ms": SOON_MS});
    let id = place.submit(job).await;
    let at =
        place.client.get(&format!("/v1/jobs/{id}")).await.expect(200).json()["expires_at"].clone();
    assert!(at.is_string(), "{at}");
    place.stop().await;
    let time = serde_json::from_value(at.clone()).unwrap();
    while Timestamp::now() < time {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut place = Place::start(&store).await;
    place.client.post("/v1/kinds/act/resume", "").await.expect(200);
    let job = place.expired(&id).await;
    assert_eq!(job["expires_at"], at);
    place.stage.expect_nobody();

    // The retry of an operator counts more than the time.
    let again = r#"{"only":"unsuccessful"}"#;
    place.client.post(&format!("/v1/jobs/{id}/retry"), again).await.accepted();
    assert_eq!(place.stage.next().await, "never");
    place.stage.succeed("never");
    let job = place.client.wait(&id).await;
    assert_eq!(job["state"], "succeeded");
    assert!(job.get("expires_at").is_none() && job.get("expired").is_none(), "{job}");
    place.stop().await;
    let place = Place::start(&store).await;
    let job = place.client.get(&format!("/v1/jobs/{id}")).await.expect(200).json();
    assert!(job.get("expires_at").is_none(), "{job}");
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_times_are_refused_with_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::start(&folder.path().join("store")).await;
    let at = "2030-01-01T00:00:00Z";
    for (more, pointer) in [
        (json!({"expires_ms": 0}), "/expires_ms"),
        (json!({"expires_at": at, "expires_ms": 1}), "/expires_ms"),
        (json!({"expires_at": "2190-01-01T00:00:00Z"}), "/expires_at"),
    ] {
        let mut job = json!({"kind": "act", "payload": 1});
        job.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let refused = place.client.post("/v1/jobs", &job.to_string()).await.expect(422).json();
        assert_eq!(refused["errors"][0]["pointer"], pointer, "{refused}");
    }
    let job = json!({"kind": "act", "payload": 1, "expires_at": at});
    let schedule = json!({"cron": "@daily", "job": job}).to_string();
    let headers = [("content-type", "application/json")];
    let refused = place.client.send("PUT", "/v1/schedules/s", &headers, &schedule).await;
    assert_eq!(refused.expect(422).json()["errors"][0]["pointer"], "/job/expires_at");
    place.stop().await;
}
