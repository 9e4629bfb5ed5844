//! Subtasks share keys and are barriers, by every way of submission, and after a restart.

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

    /// Claims a lease.
    async fn claim(&self) -> Value {
        let ask = r#"{"kinds":["remote"],"wait_ms":30000}"#;
        self.client.post("/v1/leases", ask).await.expect(200).json()["leases"][0].clone()
    }

    async fn complete(&self, lease: &Value) {
        let path = format!("/v1/leases/{}/complete", lease["id"].as_str().unwrap());
        self.client.post(&path, "").await.expect(204);
    }

    async fn read(&self, path: &str) -> Value {
        self.client.get(path).await.expect(200).json()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn those_that_share_a_key_run_together_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::start(folder.path()).await;
    let subtasks = json!([
        {"shared_keys": ["config"], "key": "a"},
        {"shared_keys": ["config"], "key": "b"},
        {"key": "config"},
        {"shared_keys": ["config"]},
    ]);
    let job = json!({"kind": "remote", "subtasks": subtasks});
    let id = place.client.submit(&job.to_string()).await;
    let first = place.claim().await;
    assert_eq!((&first["keys"], &first["shared_keys"]), (&json!(["a"]), &json!(["config"])));
    let place = place.restart(folder.path()).await;
    let second = place.claim().await;
    assert_eq!((&second["number"], &second["keys"]), (&json!(1), &json!(["b"])));

    let head = &place.read("/v1/keys/config").await["head"];
    assert_eq!((&head["number"], &head["shared"]), (&json!(0), &json!(true)));
    let running = place.read("/v1/scheduler").await;
    let shared: Vec<_> =
        running["running"].as_array().unwrap().iter().map(|it| &it["shared_keys"]).collect();
    assert_eq!(shared, [&json!(["config"]), &json!(["config"])]);
    let subtasks = place.read(&format!("/v1/jobs/{id}/subtasks?key=config")).await;
    let subtasks = subtasks["items"].as_array().unwrap();
    assert_eq!(subtasks.len(), 4);
    assert_eq!(
        (&subtasks[1]["keys"], &subtasks[1]["shared_keys"]),
        (&json!(["b"]), &json!(["config"]))
    );
    assert_eq!(subtasks[2].get("shared_keys"), None);
    let because = |number: usize| &subtasks[number]["waiting_because"];
    assert_eq!((&because(2)["reason"], &because(2)["number"]), (&json!("key_order"), &json!(1)));
    assert_eq!((&because(3)["reason"], &because(3)["number"]), (&json!("key_order"), &json!(2)));
    assert!(because(3)["text"].as_str().unwrap().starts_with("its shared key `config`"));

    for lease in [&second, &first] {
        place.complete(lease).await;
    }
    for number in [2, 3] {
        let lease = place.claim().await;
        assert_eq!(lease["number"], number);
        place.complete(&lease).await;
    }
    let job = place.client.wait(&id).await;
    assert_eq!(job["state"], "succeeded", "{job}");
    let results = place.read(&format!("/v1/jobs/{id}/results")).await;
    assert_eq!(results["items"][3]["shared_keys"], json!(["config"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_way_of_submission_takes_shared_keys() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::start(folder.path()).await;
    let single = json!({"kind": "remote", "payload": 1, "key": "a", "shared_keys": ["s"]});
    let lines = "{\"kind\":\"remote\"}\n{\"key\":\"b\",\"shared_keys\":[\"s\"]}\n{\"shared_keys\":[\"s\"]}\n";
    let ndjson = [("content-type", "application/x-ndjson")];
    let (client, one) = (&place.client, single.to_string());
    client
        .send("POST", "/v1/jobs", &[("content-type", "application/json")], &one)
        .await
        .expect(202);
    client.send("POST", "/v1/jobs", &ndjson, lines).await.expect(202);
    let batch = json!({"jobs": [single, {"kind": "remote", "subtasks": [{"shared_keys": ["s"]}]}]});
    client.post("/v1/jobs/batch", &batch.to_string()).await.expect(202);
    client.post("/v1/keys/s/pause", "").await.expect(200);
    assert_eq!(place.read("/v1/keys/s").await["length"], 5);
    client.post("/v1/keys/s/resume", "").await.expect(200);
    let mut keys = Vec::new();
    // The second subtask with key `a` waits for the first one.
    for _ in 0..4 {
        let lease = place.claim().await;
        assert_eq!(lease["shared_keys"], json!(["s"]));
        keys.push(lease["keys"].clone());
    }
    keys.sort_by_key(Value::to_string);
    assert_eq!(keys, [json!(["a"]), json!(["b"]), json!([]), json!([])]);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_shared_keys_are_named_with_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::start(folder.path()).await;
    let pointer = |problem: Value| problem["errors"][0]["pointer"].as_str().unwrap().to_owned();
    let many: Vec<_> = (0..40).map(|number| number.to_string()).collect();
    for (subtask, wanted) in [
        (json!({"shared_keys": [""]}), "/subtasks/0/shared_keys"),
        (json!({"shared_keys": ["x".repeat(1025)]}), "/subtasks/0/shared_keys"),
        (json!({"keys": many, "shared_keys": many}), "/subtasks/0/keys"),
    ] {
        let job = json!({"kind": "remote", "subtasks": [subtask]});
        let refused = place.client.post("/v1/jobs", &job.to_string()).await.expect(422).json();
        assert_eq!(pointer(refused), wanted);
        let lines = format!("{{\"kind\":\"remote\"}}\n{subtask}\n");
        let ndjson = [("content-type", "application/x-ndjson")];
        let refused =
            place.client.send("POST", "/v1/jobs", &ndjson, &lines).await.expect(422).json();
        assert_eq!(pointer(refused), wanted.replace("/subtasks/0", "line 2"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_barrier_comes_between_the_earlier_and_the_later_ones_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::start(folder.path()).await;
    let lines = "{\"kind\":\"remote\"}\n{}\n{}\n{\"key\":\"a\"}\n{\"barrier\":true,\"key\":\"b\"}\n{}\n{}\n";
    let ndjson = [("content-type", "application/x-ndjson")];
    let accepted = place.client.send("POST", "/v1/jobs", &ndjson, lines).await.expect(202).json();
    let id = accepted["id"].as_str().unwrap();
    let other = place.client.submit(r#"{"kind":"remote","payload":1}"#).await;
    let first = place.claim().await;
    assert_eq!((&first["job"], &first["number"]), (&json!(id), &json!(0)));
    let place = place.restart(folder.path()).await;
    // Another job does not wait for the barrier.
    let mut leases = vec![place.claim().await, place.claim().await];
    leases.sort_by_key(|lease| lease["job"] == other.as_str());
    assert_eq!(leases[0]["number"], 1);
    assert_eq!(leases[1]["job"], other.as_str());
    leases.push(place.claim().await);
    assert_eq!((&leases[2]["number"], &leases[2]["keys"]), (&json!(2), &json!(["a"])));

    let subtasks = place.read(&format!("/v1/jobs/{id}/subtasks")).await;
    let of = |number: usize| &subtasks["items"][number];
    assert_eq!((of(3)["barrier"].clone(), of(3)["keys"].clone()), (json!(true), json!(["b"])));
    assert_eq!((of(2).get("barrier"), &of(5)["keys"]), (None, &json!([])));
    for (number, behind, text) in [
        (3, 2, "it is a barrier, and waits for 3 earlier subtasks of its job"),
        (5, 3, "it waits for the barrier subtask 3 of job_"),
    ] {
        let because = &of(number)["waiting_because"];
        assert_eq!((&because["reason"], &because["number"]), (&json!("barrier"), &json!(behind)));
        assert!(because["text"].as_str().unwrap().starts_with(text), "{because}");
    }
    let keys = place.read("/v1/keys").await;
    let keys: Vec<_> = keys["items"].as_array().unwrap().iter().map(|key| &key["key"]).collect();
    assert_eq!(keys.len(), 2, "{keys:?}");
    let summary = place.read("/v1/summary").await;
    assert_eq!(summary["keys"], 2, "{summary}");

    leases.push(first);
    for lease in &leases {
        place.complete(lease).await;
    }
    let barrier = place.claim().await;
    assert_eq!((&barrier["number"], &barrier["keys"]), (&json!(3), &json!(["b"])));
    let place = place.restart(folder.path()).await;
    place.complete(&barrier).await;
    let last = [place.claim().await, place.claim().await];
    assert_eq!(last.each_ref().map(|lease| lease["number"].clone()), [json!(4), json!(5)]);
    for lease in &last {
        place.complete(lease).await;
    }
    assert_eq!(place.client.wait(id).await["state"], "succeeded");
    assert_eq!(place.read("/v1/summary").await["keys"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retried_job_has_its_barriers_again() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::start(folder.path()).await;
    let job = json!({"kind": "remote", "attempts": 1,
        "subtasks": [{}, {"barrier": true}, {}]});
    let id = place.client.submit(&job.to_string()).await;
    for number in 0..3 {
        let lease = place.claim().await;
        assert_eq!(lease["number"], number);
        let path = format!("/v1/leases/{}/fail", lease["id"].as_str().unwrap());
        place.client.post(&path, r#"{"error":"no"}"#).await.expect(204);
    }
    assert_eq!(place.client.wait(&id).await["state"], "failed");
    place.client.post(&format!("/v1/jobs/{id}/retry"), "").await.accepted();
    for number in 0..3 {
        let lease = place.claim().await;
        assert_eq!(lease["number"], number);
        let subtask = place.read(&format!("/v1/jobs/{id}/subtasks/2")).await;
        let reason = if number < 2 { json!("barrier") } else { Value::Null };
        assert_eq!(subtask["waiting_because"]["reason"], reason, "{subtask}");
        place.complete(&lease).await;
    }
    assert_eq!(place.client.wait(&id).await["state"], "succeeded");
}
