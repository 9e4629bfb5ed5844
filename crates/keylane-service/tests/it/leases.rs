//! A lease is of one attempt: when its time is up another worker gets the subtask, and what the first one says then
//! changes nothing.

use std::path::Path;
use std::time::Duration;

use crate::common::{Client, Log, builder, builder_with, serve, settings};
use keylane_service::http::HttpServer;
use keylane_service::{Kind, Service, ServiceSettings};
use serde_json::{Value, json};

async fn start(folder: &Path) -> (Service, HttpServer, Client) {
    // On a busy machine some end before anybody has them, and are attempts all the same.
    let short = Kind { attempts: 10_000, ..Kind::leased(Duration::from_millis(50)) };
    let service = builder(folder, &Log::default()).kind("short", short).start().await.unwrap();
    let (server, client) = serve(&service).await;
    (service, server, client)
}

/// The next lease of the kind, whenever there is one.
async fn claim(client: &Client, kind: &str) -> Value {
    let ask = json!({"kinds": [kind], "wait_ms": 60_000, "worker": "w"}).to_string();
    loop {
        let claimed = client.post("/v1/leases", &ask).await.expect(200).json();
        if let Some(lease) = claimed["leases"].get(0) {
            return lease.clone();
        }
    }
}

fn path(lease: &Value, what: &str) -> String {
    format!("/v1/leases/{}/{what}", lease["id"].as_str().unwrap())
}

/// All that a worker can say of a lease is refused.
async fn is_lost(client: &Client, lease: &Value) {
    for (what, body) in [
        ("heartbeat", ""),
        ("complete", r#"{"result":"stale"}"#),
        ("fail", r#"{"error":"stale","retry":false}"#),
    ] {
        let refused = client.post(&path(lease, what), body).await.expect(409);
        assert_eq!(refused.json()["code"], "lease-lost", "{what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_whose_time_is_up_is_another_workers() {
    let folder = tempfile::tempdir().unwrap();
    let (_service, _server, client) = start(folder.path()).await;
    let two = r#"{"kind":"short","subtasks":[{"key":"k","payload":1},{"key":"k","payload":2}]}"#;
    let id = client.submit(two).await;
    let mut last: Option<Value> = None;
    // No worker reports: each has its first task, and none has the one behind it.
    for _ in 0..3 {
        let lease = claim(&client, "short").await;
        assert_eq!(lease["payload"], 1);
        if let Some(last) = last.replace(lease.clone()) {
            assert!(lease["attempt"].as_u64() > last["attempt"].as_u64(), "{lease} after {last}");
            assert!(lease["fence"].as_u64() > last["fence"].as_u64(), "{lease} after {last}");
            is_lost(&client, &last).await;
        }
    }
    let metrics = client.get("/metrics").await.expect(200).text;
    let expired =
        metrics.lines().find_map(|line| line.strip_prefix("keylane_lease_expired_total "));
    assert!(expired.unwrap().parse::<f64>().unwrap() >= 2.0, "{metrics}");
    assert!(metrics.contains("keylane_order_violations_total 0"));
    client.post(&format!("/v1/jobs/{id}/cancel"), r#"{"mode":"kill"}"#).await;
    let over = client.wait(&id).await;
    assert_eq!(over["counts"]["succeeded"], 0, "{over}");
    is_lost(&client, &last.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_are_used_up_by_workers_that_die() {
    let folder = tempfile::tempdir().unwrap();
    let (_service, _server, client) = start(folder.path()).await;
    let id = client.submit(r#"{"kind":"short","payload":1,"attempts":2}"#).await;
    let dying = tokio::spawn({
        let client = client.clone();
        async move { while claim(&client, "short").await["attempt"] != Value::Null {} }
    });
    let failed = client.wait(&id).await;
    dying.abort();
    let subtask = client.get(&format!("/v1/jobs/{id}/subtasks/0")).await.expect(200).json();
    assert_eq!(subtask["attempts"], 2, "{subtask}");
    assert_eq!((&failed["state"], &failed["counts"]["failed"]), (&json!("failed"), &json!(1)));
    assert!(failed["error"].as_str().unwrap().contains("lease"), "{failed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_puts_the_end_off_and_says_when_nobody_wants_it() {
    let folder = tempfile::tempdir().unwrap();
    let (_service, _server, client) = start(folder.path()).await;
    let id = client.submit(r#"{"kind":"remote","payload":1}"#).await;
    let lease = claim(&client, "remote").await;
    let time = |value: &Value| -> jiff::Timestamp { value.as_str().unwrap().parse().unwrap() };
    let first = time(&lease["expires_at"]);
    let mut until = first;
    // Each is at a later moment than the one before, or in the same millisecond.
    for _ in 0..20 {
        let beat =
            client.post(&path(&lease, "heartbeat"), r#"{"progress":0.5}"#).await.expect(200).json();
        assert_eq!(beat["cancel"], false);
        let next = time(&beat["expires_at"]);
        assert!(next >= until, "{next} after {until}");
        until = next;
    }
    assert!(until > first);
    client.post(&format!("/v1/jobs/{id}/cancel"), r#"{"mode":"kill"}"#).await;
    is_lost(&client, &lease).await;
}

/// Ids cannot be guessed: neither another number nor another job's name makes another worker's lease one's own.
#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_is_nobodys_ends_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (_service, _server, client) = start(folder.path()).await;
    client.submit(r#"{"kind":"remote","payload":1}"#).await;
    let lease = claim(&client, "remote").await;
    let id = lease["id"].as_str().unwrap();
    for odd in ["lease", "lease_1", "lease_x_y_z", "nothing"] {
        client.post(&format!("/v1/leases/{odd}/complete"), "").await.expect(404);
    }
    let other = id.replace("_0_job", "_1_job");
    assert_ne!(other, id);
    for odd in [&other, &format!("{id}0")] {
        client.post(&format!("/v1/leases/{odd}/complete"), "").await.expect(409);
    }
    client.post(&path(&lease, "complete"), "").await.expect(204);
}

/// A task that begins while a worker already takes its tasks is the worker's too: no lease is lost on its way, and
/// one attempt is enough.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_given_to_a_worker_comes_to_it() {
    const SUBTASKS: usize = 3000;
    let folder = tempfile::tempdir().unwrap();
    let settings = ServiceSettings { slots: 64, ..settings(folder.path()) };
    let once = Kind { attempts: 1, ..Kind::leased(Duration::from_secs(60)) };
    let service = builder_with(settings, &Log::default()).kind("once", once).start().await.unwrap();
    let (_server, client) = serve(&service).await;
    let workers: Vec<_> = (0..4).map(|_| tokio::spawn(work_off(client.clone()))).collect();
    let subtasks: Vec<_> =
        (0..SUBTASKS).map(|n| json!({"key": format!("k{n}"), "payload": n})).collect();
    let id = client.submit(&json!({"kind": "once", "subtasks": subtasks}).to_string()).await;
    let over = client.wait(&id).await;
    workers.iter().for_each(tokio::task::JoinHandle::abort);
    assert_eq!(over["counts"]["succeeded"], SUBTASKS, "{over}");
    let metrics = client.get("/metrics").await.expect(200).text;
    assert!(metrics.contains("keylane_lease_expired_total 0"), "{metrics}");
}

/// Asks for some at once, in short waits, and completes all it gets.
async fn work_off(client: Client) {
    loop {
        let ask = r#"{"kinds":["once"],"max":8,"wait_ms":5}"#;
        let claimed = client.post("/v1/leases", ask).await.expect(200).json();
        let leases = claimed["leases"].as_array().unwrap();
        let ends = leases.iter().map(|lease| {
            let (client, path) = (client.clone(), path(lease, "complete"));
            async move { client.post(&path, "").await.expect(204) }
        });
        futures_util::future::join_all(ends).await;
    }
}
