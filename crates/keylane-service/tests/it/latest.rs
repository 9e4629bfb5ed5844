//! A subtask replaces the latest one of its key: by every way of submission, told to the client of the replaced one,
//! and over restarts.

use std::path::Path;
use std::time::Duration;

use crate::common::{Client, Log, builder, serve};
use keylane_service::Service;
use keylane_service::http::HttpServer;
use serde_json::{Value, json};

struct Place {
    service: Service,
    server: HttpServer,
    client: Client,
}

impl Place {
    async fn start(folder: &Path) -> Self {
        let service = builder(folder, &Log::default()).start().await.unwrap();
        let (server, client) = serve(&service).await;
        Place { service, server, client }
    }

    async fn restart(self, folder: &Path) -> Self {
        self.server.stop(Duration::from_secs(5)).await;
        self.service.stop(Duration::from_secs(5)).await;
        Place::start(folder).await
    }

    async fn submit(&self, payload: u32) -> String {
        let job = json!({"kind": "remote", "key": "k", "latest": true, "payload": payload});
        self.client.submit(&job.to_string()).await
    }

    async fn claim(&self) -> Value {
        let ask = r#"{"kinds":["remote"],"wait_ms":30000}"#;
        self.client.post("/v1/leases", ask).await.expect(200).json()["leases"][0].clone()
    }

    async fn end(&self, lease: &Value, how: &str) {
        let path = format!("/v1/leases/{}/{how}", lease["id"].as_str().unwrap());
        let body = if how == "fail" { r#"{"error":"no"}"# } else { "" };
        self.client.post(&path, body).await.expect(204);
    }

    async fn read(&self, path: &str) -> Value {
        self.client.get(path).await.expect(200).json()
    }
}

/// Reads the stream of a job's events up to one of this type, and returns that.
async fn event_of(answer: &mut reqwest::Response, wanted: &str) -> Value {
    let mut read = String::new();
    loop {
        let chunk = answer.chunk().await.unwrap().expect("the stream goes on");
        read.push_str(std::str::from_utf8(&chunk).unwrap());
        let whole = read.rsplit_once("\n\n").map_or("", |(whole, _)| whole);
        let named = format!("event: {wanted}\n");
        if let Some(block) = whole.split("\n\n").find(|block| block.contains(&named)) {
            let data = block.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
            return serde_json::from_str(data).unwrap();
        }
    }
}

async fn check_replaced(place: &Place, old: &str, new: &str) {
    let job = place.read(&format!("/v1/jobs/{old}")).await;
    assert_eq!((&job["state"], &job["counts"]["superseded"]), (&json!("succeeded"), &json!(1)));
    assert_eq!(job["counts"]["succeeded"], 0);
    let subtask = place.read(&format!("/v1/jobs/{old}/subtasks/0")).await;
    let by = json!({"job": new, "number": 0});
    assert_eq!((&subtask["state"], &subtask["latest"]), (&json!("superseded"), &json!(true)));
    assert_eq!((&subtask["outcome"]["superseded_by"], &subtask["attempts"]), (&by, &json!(0)));
    let results = place.read(&format!("/v1/jobs/{old}/results")).await;
    let result = &results["items"][0];
    assert_eq!((&result["outcome"], &result["superseded_by"]), (&json!("superseded"), &by));
    assert_eq!((result.get("error"), result.get("result")), (None, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_replaced_one_is_told_and_only_the_last_runs_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::start(folder.path()).await;
    let first = place.submit(1).await;
    let url = format!("http://{}/v1/jobs/{first}/events", place.client.address);
    let mut events = place.client.http.get(url).send().await.unwrap();
    event_of(&mut events, "job_changed").await;
    let second = place.submit(2).await;
    let told = event_of(&mut events, "subtask_superseded").await;
    assert_eq!((&told["job"]["id"], &told["number"]), (&json!(first), &json!(0)));
    assert_eq!(told["superseded_by"], json!({"job": second, "number": 0}));
    event_of(&mut events, "job_ended").await;
    drop(events);
    check_replaced(&place, &first, &second).await;
    let metrics = place.client.get("/metrics").await.text;
    assert!(metrics.contains("keylane_subtasks_total{outcome=\"superseded\"} 1\n"), "{metrics}");

    let place = place.restart(folder.path()).await;
    check_replaced(&place, &first, &second).await;
    let third = place.submit(3).await;
    place.client.wait(&second).await;
    check_replaced(&place, &second, &third).await;
    let lease = place.claim().await;
    assert_eq!((&lease["job"], &lease["payload"]), (&json!(third), &json!(3)));
    place.end(&lease, "complete").await;
    let job = place.client.wait(&third).await;
    assert_eq!((&job["state"], &job["counts"]["succeeded"]), (&json!("succeeded"), &json!(1)));
    assert_eq!(place.read("/v1/summary").await["keys"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_a_worker_has_or_that_waits_for_a_retry_is_not_replaced_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::start(folder.path()).await;
    // Both in one job, which enters as a whole after the restart.
    let latest = |payload: u32| json!({"key": "k", "latest": true, "payload": payload});
    let job = json!({"kind": "remote", "subtasks": [latest(1)]});
    let first = place.client.submit(&job.to_string()).await;
    let lease = place.claim().await;
    let job = json!({"kind": "remote", "subtasks": [latest(2), latest(3)]});
    let second = place.client.submit(&job.to_string()).await;
    let is_replaced = |job: &Value| job["counts"]["superseded"] == 1;
    place.client.wait_until(&second, is_replaced).await;

    let place = place.restart(folder.path()).await;
    let job = place.read(&format!("/v1/jobs/{first}")).await;
    let counts = &job["counts"];
    assert_eq!((&counts["running"], &counts["superseded"]), (&json!(1), &json!(0)), "{job}");
    place.end(&lease, "complete").await;
    let lease = place.claim().await;
    assert_eq!((&lease["number"], &lease["payload"]), (&json!(1), &json!(3)));
    place.end(&lease, "fail").await;

    let place = place.restart(folder.path()).await;
    let third = place.submit(4).await;
    let job = place.read(&format!("/v1/jobs/{second}")).await;
    assert_eq!(job["counts"]["superseded"], 1, "{job}");
    let lease = place.claim().await;
    assert_eq!((&lease["job"], &lease["attempt"]), (&json!(second), &json!(2)));
    place.end(&lease, "complete").await;
    assert_eq!(place.client.wait(&second).await["state"], "succeeded");
    assert_eq!(place.claim().await["job"], json!(third));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_leaves_the_replaced_one_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::start(folder.path()).await;
    let latest = |payload: u32| json!({"key": "k", "latest": true, "payload": payload});
    let job = json!({"kind": "remote", "attempts": 1, "subtasks": [latest(1), latest(2)]});
    let id = place.client.submit(&job.to_string()).await;
    let lease = place.claim().await;
    assert_eq!(lease["number"], 1);
    place.end(&lease, "fail").await;
    assert_eq!(place.client.wait(&id).await["state"], "failed");
    place
        .client
        .post(&format!("/v1/jobs/{id}/retry"), r#"{"only":"unsuccessful"}"#)
        .await
        .expect(202);
    let place = place.restart(folder.path()).await;
    let lease = place.claim().await;
    assert_eq!(lease["number"], 1);
    place.end(&lease, "complete").await;
    let job = place.client.wait(&id).await;
    let counts = &job["counts"];
    assert_eq!((&counts["superseded"], &counts["succeeded"]), (&json!(1), &json!(1)), "{job}");
    assert_eq!(job["state"], "succeeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_way_of_submission_replaces() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::start(folder.path()).await;
    let first = place.submit(1).await;
    let latest = json!({"keys": ["k"], "latest": true});
    let job = json!({"kind": "remote", "subtasks": [latest]});
    let second = place.client.submit(&job.to_string()).await;
    let ndjson = [("content-type", "application/x-ndjson")];
    let lines = format!("{{\"kind\":\"remote\"}}\n{latest}\n");
    let third = place.client.send("POST", "/v1/jobs", &ndjson, &lines).await.expect(202).json();
    let batch = json!({"jobs": [job]});
    let batch = place.client.post("/v1/jobs/batch", &batch.to_string()).await.expect(202).json();
    let [third, last] =
        [&third["id"], &batch["items"][0]["job"]["id"]].map(|id| id.as_str().unwrap().to_owned());
    for (old, new) in [(&first, &second), (&second, &third), (&third, &last)] {
        place.client.wait(old).await;
        check_replaced(&place, old, new).await;
    }
    assert_eq!(place.claim().await["job"], json!(last));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subtask_that_replaces_has_exactly_one_key() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::start(folder.path()).await;
    for subtask in [
        json!({"latest": true}),
        json!({"latest": true, "keys": ["a", "b"]}),
        json!({"latest": true, "key": "a", "shared_keys": ["b"]}),
        json!({"latest": true, "shared_keys": ["b"]}),
        json!({"latest": true, "key": "a", "barrier": true}),
    ] {
        let job = json!({"kind": "remote", "subtasks": [subtask]});
        let refused = place.client.post("/v1/jobs", &job.to_string()).await.expect(422).json();
        let error = &refused["errors"][0];
        assert_eq!(error["pointer"], "/subtasks/0/latest", "{refused}");
        let lines = format!("{{\"kind\":\"remote\"}}\n{subtask}\n");
        let ndjson = [("content-type", "application/x-ndjson")];
        let refused =
            place.client.send("POST", "/v1/jobs", &ndjson, &lines).await.expect(422).json();
        assert_eq!(refused["errors"][0]["pointer"], "line 2/latest", "{refused}");
    }
    let several = json!({"kind": "remote", "latest": true, "subtasks": [{"key": "a"}]});
    place.client.post("/v1/jobs", &several.to_string()).await.expect(422);
}
