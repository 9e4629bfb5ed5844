//! Limits of keys over the API: several subtasks of a key at a time, and a rate for each key; also after a restart.

use std::path::Path;
use std::time::Duration;

use crate::common::{Client, Log, builder, serve};
use keylane_service::http::HttpServer;
use keylane_service::{Kind, Service, StartRate};
use serde_json::{Value, json};

struct Place {
    service: Service,
    server: HttpServer,
    client: Client,
}

impl Place {
    async fn start(folder: &Path) -> Self {
        let leased = || Kind::leased(Duration::from_secs(30));
        let several = Kind { max_per_key: Some(2), ..leased() };
        // One in a quarter of an hour.
        let rate = StartRate { per_second: 1.0 / 900.0, burst: 1 };
        let paced = Kind { rate_per_key: Some(rate), ..leased() };
        let builder = builder(folder, &Log::default()).kind("several", several);
        let service = builder.kind("paced", paced).start().await.unwrap();
        let (server, client) = serve(&service).await;
        Place { service, server, client }
    }

    async fn restart(self, folder: &Path) -> Self {
        self.server.stop(Duration::from_secs(5)).await;
        self.service.stop(Duration::from_secs(5)).await;
        Place::start(folder).await
    }

    async fn claim(&self, kind: &str) -> Value {
        let ask = json!({"kinds": [kind], "wait_ms": 30000}).to_string();
        self.client.post("/v1/leases", &ask).await.expect(200).json()["leases"][0].clone()
    }

    async fn complete(&self, lease: &Value) {
        let path = format!("/v1/leases/{}/complete", lease["id"].as_str().unwrap());
        self.client.post(&path, "").await.expect(204);
    }

    async fn read(&self, path: &str) -> Value {
        self.client.get(path).await.expect(200).json()
    }

    /// Reason for which a subtask waits.
    async fn reason(&self, job: &str, number: u32) -> Value {
        let subtask = self.read(&format!("/v1/jobs/{job}/subtasks/{number}")).await;
        subtask["waiting_because"].clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn as_many_as_the_limit_have_a_key_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::start(folder.path()).await;
    let subtasks = json!([{"key": "k"}, {"key": "k"}, {"key": "k"}, {"key": "k"}]);
    let id =
        place.client.submit(&json!({"kind": "several", "subtasks": subtasks}).to_string()).await;
    assert_eq!(place.read(&format!("/v1/jobs/{id}")).await["max_per_key"], 2);
    let first = place.claim("several").await;
    let place = place.restart(folder.path()).await;
    let second = place.claim("several").await;
    assert_eq!((&first["number"], &second["number"]), (&json!(0), &json!(1)));
    let because = place.reason(&id, 3).await;
    assert_eq!((&because["reason"], &because["key"]), (&json!("key_limit"), &json!("k")));
    assert_eq!(because["position"], 4);
    place.complete(&second).await;
    let third = place.claim("several").await;
    assert_eq!(third["number"], 2);

    // A job has its own limit, and the least one holds.
    let alone = json!({"kind": "several", "max_per_key": 1, "key": "k"});
    let alone = place.client.submit(&alone.to_string()).await;
    assert_eq!(place.reason(&alone, 0).await["reason"], "key_order");
    place.complete(&first).await;
    let fourth = place.claim("several").await;
    assert_eq!(fourth["number"], 3);
    place.complete(&fourth).await;
    assert_eq!(place.reason(&alone, 0).await["reason"], "key_order");
    place.complete(&third).await;
    assert_eq!(place.claim("several").await["job"], json!(alone));
    assert_eq!(place.client.wait(&id).await["state"], "succeeded");
    let metrics = place.client.get("/metrics").await.text;
    assert!(metrics.contains("keylane_order_violations_total 0\n"), "{metrics}");

    for wrong in [0, 257] {
        let job = json!({"kind": "remote", "max_per_key": wrong, "key": "k"}).to_string();
        let refused = place.client.post("/v1/jobs", &job).await.expect(422).json();
        assert_eq!(refused["errors"][0]["pointer"], "/max_per_key", "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_waits_for_its_rate_and_a_restart_fills_its_bucket() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::start(folder.path()).await;
    let subtasks = json!([{"key": "k"}, {"key": "k"}, {"key": "other"}]);
    let id = place.client.submit(&json!({"kind": "paced", "subtasks": subtasks}).to_string()).await;
    let first = place.claim("paced").await;
    assert_eq!(first["number"], 0);
    let other = place.claim("paced").await;
    assert_eq!(other["number"], 2);
    place.complete(&first).await;
    let because = place.reason(&id, 1).await;
    assert_eq!((&because["reason"], &because["key"]), (&json!("key_rate_limited"), &json!("k")));
    let text = because["text"].as_str().unwrap();
    assert!(text.contains("`rate_per_key`") && because["until"].is_string(), "{because}");
    let explained = place.read(&format!("/v1/jobs/{id}/explain")).await.to_string();
    assert!(explained.contains("key_rate_limited"), "{explained}");
    let metrics = place.client.get("/metrics").await.text;
    assert!(metrics.contains("keylane_keys_with_rate 2\n"), "{metrics}");
    let kinds = place.read("/v1/kinds").await.to_string();
    assert!(kinds.contains("\"per_second_per_key\":0.00111"), "{kinds}");

    let place = place.restart(folder.path()).await;
    let second = place.claim("paced").await;
    assert_eq!(second["number"], 1);
    place.complete(&second).await;
    place.complete(&other).await;
    assert_eq!(place.client.wait(&id).await["state"], "succeeded");
}
