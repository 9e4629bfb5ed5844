//! What operators ask for with an idempotency key is done once, over restarts.

use std::path::Path;
use std::time::Duration;

use crate::common::{Answered, Client, Log, builder, serve};
use serde_json::{Value, json};

async fn keyed(client: &Client, method: &str, path: &str, key: &str, body: &str) -> Answered {
    let headers =
        [("content-type", "application/json"), ("if-match", "*"), ("idempotency-key", key)];
    client.send(method, path, &headers, body).await
}

fn is_replay(answer: &Answered) -> bool {
    answer.headers.get("idempotent-replayed").is_some_and(|value| value == "true")
}

async fn started(
    folder: &Path,
) -> (keylane_service::Service, keylane_service::http::HttpServer, Client) {
    let service = builder(folder, &Log::default()).start().await.unwrap();
    let (server, client) = serve(&service).await;
    (service, server, client)
}

/// Entries of the audit log about one action.
async fn entries(client: &Client, what: &str) -> usize {
    let log = client.get(&format!("/v1/audit?what={what}")).await.expect(200).json();
    log["items"].as_array().unwrap().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_whose_answer_was_lost_is_answered_again() {
    let folder = tempfile::tempdir().unwrap();
    let (service, server, client) = started(folder.path()).await;
    let id = client.submit(r#"{"kind":"fail","payload":1}"#).await;
    client.wait(&id).await;
    let path = format!("/v1/jobs/{id}/retry");
    let first = keyed(&client, "POST", &path, "once", "").await.accepted();
    assert!(!is_replay(&first));
    client.wait(&id).await;
    let before = client.get(&format!("/v1/jobs/{id}")).await.json();
    let again = keyed(&client, "POST", &path, "once", "").await.expect(200);
    assert!(is_replay(&again));
    assert_eq!(again.json(), before, "nothing was done");
    // Also by the next server.
    server.stop(Duration::from_secs(5)).await;
    service.stop(Duration::from_secs(5)).await;
    let (_service, _server, client) = started(folder.path()).await;
    assert!(is_replay(&keyed(&client, "POST", &path, "once", "").await.expect(200)));
    assert_eq!(entries(&client, "job.retry").await, 1);
    // Another request under the key is refused, and another key is another request.
    let other = keyed(&client, "POST", &path, "once", r#"{"only":"unsuccessful"}"#).await;
    assert_eq!(other.expect(422).json()["code"], "other-request");
    // A submission has keys of its own.
    let job = r#"{"kind":"echo","payload":1}"#;
    assert!(!is_replay(&keyed(&client, "POST", "/v1/jobs", "once", job).await.expect(202)));
    assert!(!is_replay(&keyed(&client, "POST", &path, "twice", "").await.accepted()));
}

#[tokio::test(flavor = "multi_thread")]
async fn many_equal_requests_at_once_skip_one_head() {
    let folder = tempfile::tempdir().unwrap();
    let (_service, _server, client) = started(folder.path()).await;
    client.post("/v1/keys/a/pause", "").await.expect(200);
    let subtasks: Vec<Value> =
        (0..20).map(|payload| json!({"key": "a", "payload": payload})).collect();
    let id = client.submit(&json!({"kind": "echo", "subtasks": subtasks}).to_string()).await;
    let skips = (0..8).map(|_| {
        let client = client.clone();
        async move { keyed(&client, "POST", "/v1/keys/a/skip-head", "s", "").await.expect(200) }
    });
    let answers = futures_util::future::join_all(skips).await;
    assert_eq!(answers.iter().filter(|answer| !is_replay(answer)).count(), 1);
    assert!(answers.iter().all(|answer| answer.json()["length"] == 19), "{answers:?}");
    let by_query = "/v1/keys?key=a&what=skip-head";
    assert!(!is_replay(&keyed(&client, "POST", by_query, "q", "").await.expect(200)));
    let again = keyed(&client, "POST", by_query, "q", "").await.expect(200);
    assert!(is_replay(&again));
    assert_eq!(again.json()["length"], 18);
    assert_eq!(entries(&client, "key.skip-head").await, 2);
    drop(id);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_action_is_answered_again_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let (_service, _server, client) = started(folder.path()).await;
    let id = client.submit(r#"{"kind":"remote","payload":1}"#).await;
    let job = format!("/v1/jobs/{id}");
    let schedule = json!({"cron": "@daily", "job": {"kind": "echo", "payload": 1}}).to_string();
    let reason = r#"{"reason":"too old"}"#;
    for (method, path, body, first, again) in [
        ("POST", format!("{job}/pause"), "", 200, 200),
        ("POST", format!("{job}/resume"), "", 200, 200),
        ("PATCH", job.clone(), r#"{"weight":3}"#, 200, 200),
        ("POST", format!("{job}/cancel"), reason, 202, 200),
        ("PUT", "/v1/schedules/s".into(), schedule.as_str(), 201, 200),
        ("POST", "/v1/schedules/s/pause".into(), "", 200, 200),
        ("POST", "/v1/schedules/s/resume".into(), "", 200, 200),
        ("DELETE", "/v1/schedules/s".into(), "", 204, 204),
    ] {
        let key = format!("{method} {path}");
        let answer = keyed(&client, method, &path, &key, body).await;
        let done = answer.status == first || (first == 202 && answer.status == 200);
        assert!(done && !is_replay(&answer), "{key}: {answer:?}");
        // Right away: what comes later changes what a replay shows.
        if path.ends_with("cancel") {
            client.wait(&id).await;
        }
        let answer = keyed(&client, method, &path, &key, body).await;
        assert!(is_replay(&answer) && answer.status == again, "{key}: {answer:?}");
    }
    keyed(&client, "DELETE", &job, "gone", "").await.expect(204);
    assert!(is_replay(&keyed(&client, "DELETE", &job, "gone", "").await.expect(204)));
    client.get(&job).await.expect(410);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_refused_leaves_no_key_behind() {
    let folder = tempfile::tempdir().unwrap();
    let (_service, _server, client) = started(folder.path()).await;
    let id = client.submit(r#"{"kind":"remote","payload":1}"#).await;
    let path = format!("/v1/jobs/{id}/retry");
    keyed(&client, "POST", &path, "k", r#"{"only":"unsuccessful"}"#).await.expect(409);
    client.post(&format!("/v1/jobs/{id}/cancel"), "").await;
    client.wait(&id).await;
    let done = keyed(&client, "POST", &path, "k", r#"{"only":"unsuccessful"}"#).await.expect(202);
    assert!(!is_replay(&done));
    let long = "k".repeat(256);
    keyed(&client, "POST", &path, &long, "").await.expect(422);
}
