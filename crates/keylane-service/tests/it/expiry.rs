//! From its `expires_at` on, nothing of a job starts, whatever it waits for; what runs may finish; its keys go on.

use std::path::Path;
use std::time::Duration;

use crate::common::stage::{Stage, stage};
use crate::common::{Client, serve};
use keylane_service::handle::AttemptFailure;
use keylane_service::http::HttpServer;
use keylane_service::{Kind, ManualClock, Service, ServiceSettings};
use serde_json::{Value, json};

const HOUR_MS: u64 = 3_600_000;

/// An hour, and more than the service's clock may run ahead of a clock that stands still.
const OVER_AN_HOUR_MS: u64 = HOUR_MS + 1_000;

struct Place {
    service: Service,
    server: HttpServer,
    client: Client,
    stage: Stage,
    clock: ManualClock,
}

impl Place {
    async fn start(store: &Path) -> Self {
        Place::start_at(store, ManualClock::at(1_790_000_000_000)).await
    }

    async fn start_at(store: &Path, clock: ManualClock) -> Self {
        let (actors, stage) = stage();
        let settings =
            ServiceSettings { slots: 1, clock: Some(clock.clone()), ..ServiceSettings::new(store) };
        let remote = Kind::leased(Duration::from_secs(60));
        let service = Service::builder(settings).kind("act", Kind::new(actors));
        let service = service.kind("remote", remote).start().await.unwrap();
        let (server, client) = serve(&service).await;
        Place { service, server, client, stage, clock }
    }

    async fn stop(self) {
        self.server.stop(Duration::from_secs(5)).await;
        self.service.stop(Duration::from_secs(5)).await;
    }

    async fn submit(&self, job: Value) -> String {
        self.client.submit(&job.to_string()).await
    }

    /// Moves the clock to the time of jobs that expire after an hour.
    fn pass_an_hour(&self) {
        self.clock.set(self.clock.now() + OVER_AN_HOUR_MS);
    }

    /// Waits until a job has expired.
    async fn until_expired(&self, id: &str) -> Value {
        self.client.wait_until(id, |job| job["expired"] == true).await
    }

    /// Waits for the end of an expired job, and returns it.
    async fn expect_end(&self, id: &str, state: &str) -> Value {
        let job = self.client.wait(id).await;
        assert_eq!((&job["state"], &job["expired"]), (&json!(state), &json!(true)), "{job}");
        job
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_a_slot_is_cancelled_and_what_runs_may_finish() {
    let folder = tempfile::tempdir().unwrap();
    let mut place = Place::start(&folder.path().join("store")).await;
    let subtasks = json!([{"key": "k", "payload": "first"}, {"key": "k", "payload": "second"}]);
    let id =
        place.submit(json!({"kind": "act", "subtasks": subtasks, "expires_ms": HOUR_MS})).await;
    assert_eq!(place.stage.next().await, "first");
    let behind = place.submit(json!({"kind": "act", "key": "k", "payload": "behind"})).await;
    place.pass_an_hour();
    place.until_expired(&id).await;
    place.stage.succeed("first");
    // The keys go on.
    assert_eq!(place.stage.next().await, "behind");
    place.stage.succeed("behind");
    let job = place.expect_end(&id, "cancelled").await;
    assert_eq!((&job["counts"]["succeeded"], &job["counts"]["cancelled"]), (&json!(1), &json!(1)));
    assert_eq!(place.client.wait(&behind).await["state"], "succeeded");
    let metrics = place.client.get("/metrics").await.expect(200).text;
    assert!(metrics.contains("keylane_jobs_expired_total 1"), "{metrics}");
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_which_everything_has_started_ends_as_its_last_attempts_do() {
    let folder = tempfile::tempdir().unwrap();
    let mut place = Place::start(&folder.path().join("store")).await;
    for (end, state) in [
        (Ok(None), "succeeded"),
        (Err(AttemptFailure::passing("not yet")), "cancelled"),
        (Err(AttemptFailure::lasting("never")), "failed"),
    ] {
        let job = json!({"kind": "act", "payload": "last", "attempts": 2, "expires_ms": HOUR_MS});
        let id = place.submit(job).await;
        assert_eq!(place.stage.next().await, "last");
        place.pass_an_hour();
        place.until_expired(&id).await;
        place.stage.end("last", end);
        place.expect_end(&id, state).await;
        place.stage.expect_nobody();
    }
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_an_expired_job_has_stopped_stays_stopped_through_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let mut place = Place::start(&store).await;
    let job = json!({
        "kind": "act", "key": "k", "payload": "stops", "attempts": 1, "on_fail": "stop_key",
        "expires_ms": HOUR_MS,
    });
    let id = place.submit(job).await;
    assert_eq!(place.stage.next().await, "stops");
    place.stage.end("stops", Err(AttemptFailure::passing("no")));
    let is_stopped = |job: &Value| job["waiting_because"][0]["reason"] == "key_stopped";
    place.client.wait_until(&id, is_stopped).await;
    place.submit(json!({"kind": "act", "key": "k", "payload": "behind"})).await;
    place.pass_an_hour();
    place.until_expired(&id).await;
    let clock = place.clock.clone();
    place.stop().await;

    let mut place = Place::start_at(&store, clock).await;
    let job = place.client.get(&format!("/v1/jobs/{id}")).await.expect(200).json();
    assert!(is_stopped(&job) && job["expired"] == true, "{job}");
    place.stage.expect_nobody();
    place.client.post("/v1/keys/k/skip-head", "").await.expect(200);
    assert_eq!(place.stage.next().await, "behind");
    place.stage.succeed("behind");
    place.expect_end(&id, "failed").await;
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_expires_whatever_it_waits_for() {
    let folder = tempfile::tempdir().unwrap();
    let mut place = Place::start(&folder.path().join("store")).await;
    let job = |more: Value| {
        let mut job = json!({"kind": "act", "payload": "never", "expires_ms": HOUR_MS});
        job.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        job
    };
    // Its next attempt, an operator, its time, a remote worker; and one whose time has passed.
    let tried = place.submit(job(json!({"payload": "tried"}))).await;
    assert_eq!(place.stage.next().await, "tried");
    let after = Some(Duration::from_secs(86_400));
    place.stage.end("tried", Err(AttemptFailure { after, ..AttemptFailure::passing("not yet") }));
    place.client.post("/v1/keys/k/pause", "").await.expect(200);
    let paused_key = place.submit(job(json!({"key": "k"}))).await;
    let put_off = place.submit(job(json!({"delay_ms": 2 * HOUR_MS}))).await;
    let remote = place.submit(job(json!({"kind": "remote"}))).await;
    let over = json!({"kind": "act", "payload": "never", "expires_at": "2026-01-01T00:00:00Z"});
    let over = place.submit(over).await;
    place.expect_end(&over, "cancelled").await;
    place.pass_an_hour();
    for id in [&tried, &paused_key, &put_off, &remote] {
        place.expect_end(id, "cancelled").await;
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
    let job = json!({"kind": "act", "key": "k", "payload": "never", "expires_ms": HOUR_MS});
    let id = place.submit(job).await;
    let at =
        place.client.get(&format!("/v1/jobs/{id}")).await.expect(200).json()["expires_at"].clone();
    assert!(at.is_string(), "{at}");
    let clock = place.clock.clone();
    place.stop().await;
    clock.set(clock.now() + OVER_AN_HOUR_MS);
    let mut place = Place::start_at(&store, clock.clone()).await;
    place.client.post("/v1/kinds/act/resume", "").await.expect(200);
    let job = place.expect_end(&id, "cancelled").await;
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
    let place = Place::start_at(&store, clock).await;
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
