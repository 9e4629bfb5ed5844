//! The version of a job, its `ETag`, rises with every change: over restarts, ends and retries, and while the clock is
//! set back again and again.

use std::path::Path;
use std::time::Duration;

use keylane_service::http::HttpServer;
use keylane_service::{ManualClock, Service, ServiceSettings};
use serde_json::{Value, json};

use crate::common::{Client, Log, builder_with, serve, settings};

const NOW: u64 = 1_763_000_000_000;
const HOUR: u64 = 3_600_000;

struct Observer {
    service: Service,
    server: HttpServer,
    client: Client,
    /// Last version, and the view of the job that it belongs to.
    last: (u64, Value),
}

impl Observer {
    async fn start(folder: &Path, clock: &ManualClock) -> Self {
        let settings = ServiceSettings { clock: Some(clock.clone()), ..settings(folder) };
        let service = builder_with(settings, &Log::default()).start().await.unwrap();
        let (server, client) = serve(&service).await;
        Observer { service, server, client, last: (0, Value::Null) }
    }

    async fn stop(self) -> (u64, Value) {
        self.server.stop(Duration::from_secs(5)).await;
        self.service.stop(Duration::ZERO).await;
        self.last
    }

    /// Starts the service again on the same store, an hour earlier by the clock.
    async fn restart(self, folder: &Path, clock: &ManualClock) -> Self {
        let last = self.stop().await;
        clock.set(clock.now() - HOUR);
        Observer { last, ..Observer::start(folder, clock).await }
    }

    /// Reads the job; its version is above the one before, or nothing of the job has changed.
    async fn read(&mut self, id: &str) -> Value {
        let answered = self.client.get(&format!("/v1/jobs/{id}")).await.expect(200);
        let mut job = answered.json();
        let version = job["version"].as_u64().unwrap();
        assert!(version < 1 << 53, "{job}");
        // Both depend on the moment of the request.
        for changing in ["version", "eta_ms", "waiting_because"] {
            job.as_object_mut().unwrap().remove(changing);
        }
        let (last, before) = &self.last;
        assert!(version > *last || (version == *last && job == *before), "{last} {before} {job}");
        self.last = (version, job.clone());
        job
    }

    async fn lease(&self) -> String {
        let ask = r#"{"kinds":["remote"],"wait_ms":60000}"#;
        let claimed = self.client.post("/v1/leases", ask).await.expect(200).json();
        claimed["leases"][0]["id"].as_str().unwrap().to_owned()
    }

    /// Runs one subtask of the job, and reads the job after each step.
    async fn run(&mut self, id: &str, end: &str, body: &str) {
        let lease = self.lease().await;
        self.read(id).await;
        self.client.post(&format!("/v1/leases/{lease}/{end}"), body).await.expect(204);
        self.read(id).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_rises_with_every_change_whatever_the_clock_shows() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::at(NOW);
    let mut observer = Observer::start(folder.path(), &clock).await;
    let job =
        json!({"kind": "remote", "attempts": 1, "subtasks": [{"payload": 1}, {"payload": 2}]});
    let id = observer.client.submit(&job.to_string()).await;
    observer.read(&id).await;
    observer = observer.restart(folder.path(), &clock).await;
    observer.read(&id).await;
    observer.run(&id, "complete", "").await;
    observer.client.post(&format!("/v1/jobs/{id}/pause"), "").await.expect(200);
    observer.read(&id).await;
    observer = observer.restart(folder.path(), &clock).await;
    observer.client.post(&format!("/v1/jobs/{id}/resume"), "").await.expect(200);
    observer.read(&id).await;
    observer.run(&id, "fail", r#"{"error":"no"}"#).await;
    for retry in 0..2 {
        assert_eq!(observer.client.wait(&id).await["state"], "failed");
        let over = observer.read(&id).await;
        // Written to the disk, and the same after a restart.
        observer = observer.restart(folder.path(), &clock).await;
        assert_eq!(observer.read(&id).await, over);
        observer.client.post(&format!("/v1/jobs/{id}/retry"), "").await.accepted();
        observer.read(&id).await;
        if retry == 0 {
            observer.run(&id, "fail", r#"{"error":"no"}"#).await;
        }
    }
    observer.run(&id, "complete", "").await;
    assert_eq!(observer.client.wait(&id).await["state"], "succeeded");
    observer.read(&id).await;
    observer.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_that_is_made_again_after_the_clock_was_set_back_has_a_new_version() {
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::at(NOW);
    let observer = Observer::start(folder.path(), &clock).await;
    let schedule = json!({"cron": "0 0 1 1 *", "job": {"kind": "echo", "payload": 1}}).to_string();
    let put = async || {
        let headers = [("content-type", "application/json")];
        let answered = observer.client.send("PUT", "/v1/schedules/s", &headers, &schedule).await;
        answered.expect(201).json()["version"].as_u64().unwrap()
    };
    let first = put().await;
    observer.client.send("DELETE", "/v1/schedules/s", &[], "").await.expect(204);
    clock.set(NOW - HOUR);
    let second = put().await;
    assert!(second > first, "{first} {second}");
    observer.stop().await;
}
