//! What people do to the head of a key is still so after a restart.

use std::path::Path;
use std::time::Duration;

use crate::common::{Client, Log, builder, serve};
use keylane_service::Service;
use keylane_service::http::HttpServer;
use serde_json::{Value, json};

/// A service, its server, and a client of that.
struct Place {
    service: Service,
    server: HttpServer,
    client: Client,
}

impl Place {
    async fn start(folder: &Path, log: &Log) -> Self {
        let service = builder(folder, log).start().await.unwrap();
        let (server, client) = serve(&service).await;
        Place { service, server, client }
    }

    async fn restart(self, folder: &Path, log: &Log) -> Self {
        self.server.stop(Duration::from_secs(5)).await;
        self.service.stop(Duration::from_secs(5)).await;
        Place::start(folder, log).await
    }

    /// A job of a kind for workers elsewhere: `a` of it runs, and of `b` and `c` nothing begins.
    async fn begun(&self, on_error: &str) -> (String, Value) {
        for key in ["b", "c"] {
            self.client.post(&format!("/v1/keys/{key}/pause"), "").await.expect(200);
        }
        let subtasks = json!([{"key": "a"}, {"key": "b"}, {"key": "c"}]);
        let job = json!({"kind": "remote", "on_error": on_error, "subtasks": subtasks});
        let id = self.client.submit(&job.to_string()).await;
        (id, self.claim().await)
    }

    async fn claim(&self) -> Value {
        let ask = r#"{"kinds":["remote"],"wait_ms":10000}"#;
        let claimed = self.client.post("/v1/leases", ask).await.expect(200).json();
        claimed["leases"][0].clone()
    }

    async fn complete(&self, lease: &Value) {
        let path = format!("/v1/leases/{}/complete", lease["id"].as_str().unwrap());
        self.client.post(&path, "").await.expect(204);
    }

    /// Waits until the job's subtask has stopped its key.
    async fn wait_for_stop(&self, id: &str) {
        self.client
            .wait_until(id, |job| job["waiting_because"][0]["reason"] == "key_stopped")
            .await;
    }
}

async fn over(client: &Client, id: &str) -> Value {
    let over = tokio::time::timeout(Duration::from_secs(60), client.wait(id)).await;
    over.expect("the job is over")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_skipped_subtask_fails_its_job_at_once_also_after_a_restart() {
    let (folder, log) = (tempfile::tempdir().unwrap(), Log::default());
    let place = Place::start(folder.path(), &log).await;
    let (id, lease) = place.begun("fail_fast").await;
    assert_eq!(lease["keys"], json!(["a"]));
    place.client.post("/v1/keys/b/skip-head", "").await.expect(200);
    let place = place.restart(folder.path(), &log).await;
    // What was dropped does not come back, and what ran ends by itself.
    place.complete(&lease).await;
    let job = over(&place.client, &id).await;
    assert_eq!(job["state"], "failed", "{job}");
    let counts = &job["counts"];
    assert_eq!((&counts["succeeded"], &counts["failed"]), (&json!(1), &json!(0)), "{job}");
    assert_eq!(counts["cancelled"], 2, "{job}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_which_something_was_skipped_has_failed_also_after_a_restart() {
    for restarts in [false, true] {
        let (folder, log) = (tempfile::tempdir().unwrap(), Log::default());
        let mut place = Place::start(folder.path(), &log).await;
        let (id, lease) = place.begun("finish_all").await;
        place.client.post("/v1/keys/b/skip-head", "").await.expect(200);
        if restarts {
            place = place.restart(folder.path(), &log).await;
        }
        place.complete(&lease).await;
        place.client.post("/v1/keys/c/resume", "").await.expect(200);
        place.complete(&place.claim().await).await;
        let job = over(&place.client, &id).await;
        assert_eq!(job["state"], "failed", "{job}");
        let counts = &job["counts"];
        assert_eq!((&counts["succeeded"], &counts["cancelled"]), (&json!(2), &json!(1)), "{job}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_is_to_be_tried_again_is_also_after_a_restart() {
    let (folder, log) = (tempfile::tempdir().unwrap(), Log::default());
    let mut place = Place::start(folder.path(), &log).await;
    let job = r#"{"kind":"fail","on_fail":"stop_key","key":"k","payload":1}"#;
    let id = place.client.submit(job).await;
    place.wait_for_stop(&id).await;
    assert_eq!(log.lines(), ["try 1 of 1", "try 2 of 1"]);
    // One attempt beyond those it has, at once.
    place.client.post("/v1/keys/k/retry-head", "").await.expect(200);
    place.wait_for_stop(&id).await;
    // It has the number of the last attempt, at once and after a restart.
    assert_eq!(log.lines()[2..], ["try 2 of 1"]);
    for tries in [4, 5] {
        place.client.post(&format!("/v1/jobs/{id}/pause"), "").await.expect(200);
        place.client.post("/v1/keys/k/retry-head", "").await.expect(200);
        place = place.restart(folder.path(), &log).await;
        let key = place.client.get("/v1/keys/k").await.expect(200).json();
        assert_eq!(key["state"], "open", "{key}");
        place.client.post(&format!("/v1/jobs/{id}/resume"), "").await.expect(200);
        place.wait_for_stop(&id).await;
        assert_eq!(log.lines()[2..], vec!["try 2 of 1"; tries - 2]);
    }
    // No request has asked for more.
    place = place.restart(folder.path(), &log).await;
    place.wait_for_stop(&id).await;
    assert_eq!(log.lines().len(), 5);
}
