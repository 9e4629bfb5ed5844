//! An operator retries chosen subtasks of a finished job, also with other payloads; all others keep their results.

use std::path::Path;
use std::time::Duration;

use crate::common::stage::{Stage, stage};
use crate::common::{Client, serve};
use keylane_service::handle::AttemptFailure;
use keylane_service::http::HttpServer;
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
        let service = Service::builder(settings).kind("act", Kind::new(actors));
        let service = service.start().await.unwrap();
        let (server, client) = serve(&service).await;
        Place { service, server, client, stage }
    }

    async fn stop(self) {
        self.server.stop(Duration::from_secs(5)).await;
        self.service.stop(Duration::from_secs(5)).await;
    }

    /// A finished job: of its subtasks, all with one key, those in `fails` have failed.
    async fn finished(&mut self, payloads: &[String], fails: &[usize]) -> String {
        let subtasks: Vec<_> =
            payloads.iter().map(|text| json!({"key": "k", "payload": text})).collect();
        let id =
            self.client.submit(&json!({"kind": "act", "subtasks": subtasks}).to_string()).await;
        for (number, payload) in payloads.iter().enumerate() {
            assert_eq!(self.stage.next().await, *payload);
            let lasting = || Err(AttemptFailure::lasting("no"));
            let end = if fails.contains(&number) { lasting() } else { Ok(None) };
            self.stage.end(payload, end);
        }
        self.client.wait(&id).await;
        id
    }

    async fn retry(&self, id: &str, body: Value) {
        self.client.post(&format!("/v1/jobs/{id}/retry"), &body.to_string()).await.accepted();
    }

    async fn payload(&self, id: &str, number: usize) -> Value {
        let path = format!("/v1/jobs/{id}/subtasks/{number}");
        self.client.get(&path).await.expect(200).json()["payload"].clone()
    }
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("subtask {number}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_chosen_ones_run_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut place = Place::start(&folder.path().join("store")).await;
    let id = place.finished(&names(4), &[0, 2, 3]).await;
    place.retry(&id, json!({"subtasks": [{"number": 3}, {"number": 0}]})).await;
    // In the order of the job, whatever the order in the request.
    for name in ["subtask 0", "subtask 3"] {
        assert_eq!(place.stage.next().await, name);
        place.stage.succeed(name);
    }
    let job = place.client.wait(&id).await;
    let counts = &job["counts"];
    assert_eq!((&job["state"], &counts["succeeded"]), (&json!("failed"), &json!(3)), "{job}");
    assert_eq!(counts["failed"], 1, "{job}");
    place.retry(&id, json!({"subtasks": [{"number": 2}]})).await;
    assert_eq!(place.stage.next().await, "subtask 2");
    place.stage.succeed("subtask 2");
    assert_eq!(place.client.wait(&id).await["state"], "succeeded");
    place.stage.expect_nobody();
    let audit = place.client.get("/v1/audit?what=job.retry").await.expect(200).json();
    let told = &audit["items"][1]["parameters"];
    assert_eq!(told["subtasks"], json!([3, 0]), "{audit}");
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_payload_replaces_the_old_one_for_good() {
    // In the row of the job; in several chunks; and a payload that leaves the row.
    for (size, edited) in
        [(0, "edited".to_owned()), (100_000, "edited".into()), (0, "e".repeat(9_000))]
    {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store");
        let mut place = Place::start(&store).await;
        let mut payloads = names(4);
        payloads.iter_mut().for_each(|text| text.push_str(&"+".repeat(size)));
        let id = place.finished(&payloads, &[1, 2]).await;
        place.client.post("/v1/kinds/act/pause", "{}").await.expect(200);
        let chosen = json!({"subtasks": [{"number": 2, "payload": edited}, {"number": 1}]});
        place.retry(&id, chosen).await;
        place.stop().await;

        let mut place = Place::start(&store).await;
        place.client.post("/v1/kinds/act/resume", "").await.expect(200);
        for payload in [&payloads[1], &edited] {
            assert_eq!(place.stage.next().await, *payload);
            place.stage.end(payload, Err(AttemptFailure::lasting("no")));
        }
        assert_eq!(place.client.wait(&id).await["counts"]["failed"], 2);
        place.retry(&id, json!({"subtasks": [{"number": 2}]})).await;
        assert_eq!(place.stage.next().await, edited);
        place.stage.succeed(&edited);
        place.client.wait(&id).await;
        for (number, payload) in payloads.iter().enumerate() {
            let expected = if number == 2 { &edited } else { payload };
            assert_eq!(place.payload(&id, number).await, **expected);
        }
        let audit = place.client.get("/v1/audit?what=job.retry").await.expect(200).json();
        let told = &audit["items"][1]["parameters"];
        assert_eq!(*told, json!({"subtasks": [2, 1], "with_new_payload": [2]}));
        place.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_may_be_null_and_a_number_may_have_a_point() {
    let folder = tempfile::tempdir().unwrap();
    let mut place = Place::start(&folder.path().join("store")).await;
    let id = place.finished(&names(2), &[1]).await;
    place.retry(&id, json!({"subtasks": [{"number": 1.0, "payload": null}]})).await;
    assert_eq!(place.stage.next().await, "null");
    place.stage.succeed("null");
    place.client.wait(&id).await;
    assert_eq!(place.payload(&id, 1).await, Value::Null);
    for wrong in [json!([1, 2]), json!({"number": null})] {
        let body = json!({"subtasks": [wrong]}).to_string();
        place.client.post(&format!("/v1/jobs/{id}/retry"), &body).await.expect(422);
    }
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_retried_is_refused_and_nothing_runs() {
    let folder = tempfile::tempdir().unwrap();
    let mut place = Place::start(&folder.path().join("store")).await;
    let id = place.finished(&names(3), &[1]).await;
    let path = format!("/v1/jobs/{id}/retry");
    let large = "x".repeat(1024 * 1024);
    let many: Vec<_> = (0..101).map(|number| json!({"number": number, "payload": 1})).collect();
    for (body, pointer) in [
        (json!({"only": "failed", "subtasks": [{"number": 1}]}), "/only"),
        (json!({"subtasks": []}), "/subtasks"),
        (json!({"subtasks": [{"number": 1, "payload": large}]}), "/subtasks/0/payload"),
        (json!({"subtasks": many}), "/subtasks/100/payload"),
    ] {
        let refused = place.client.post(&path, &body.to_string()).await.expect(422).json();
        assert_eq!(refused["errors"][0]["pointer"], pointer, "{refused}");
    }
    let edited = json!({"number": 1, "payload": 5});
    for (other, why) in [
        (json!({"number": 0, "payload": 5}), "subtask 0 has succeeded; only"),
        (json!({"number": 1}), "subtask 1 is named twice"),
        (json!({"number": 3}), "the job has no subtask 3; its numbers are 0 to 2"),
    ] {
        let body = json!({"subtasks": [edited, other]}).to_string();
        let refused = place.client.post(&path, &body).await.expect(409).json();
        let detail = refused["detail"].as_str().unwrap();
        assert!(detail.starts_with(why), "{detail}");
    }
    assert_eq!(place.payload(&id, 1).await, "subtask 1");
    place.stage.expect_nobody();
    place.stop().await;
}
