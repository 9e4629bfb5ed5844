//! A job keeps its place in its client's trace, over restarts too, and its handlers learn it; an invalid trace is no
//! reason to refuse it.

use std::path::Path;
use std::time::Duration;

use crate::common::{Client, Log, builder, serve};
use keylane_service::handle::{Attempt, FunctionHandler};
use keylane_service::http::HttpServer;
use keylane_service::{Kind, Service};
use serde_json::{Value, json};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const OTHER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

/// A service with a kind that answers with the trace of its attempt.
async fn start(folder: &Path) -> (Service, HttpServer, Client) {
    let traced = FunctionHandler::new(|attempt: Attempt| async move {
        let trace = attempt.trace.as_ref();
        let told = json!([
            trace.map(|trace| trace.traceparent()),
            trace.and_then(|trace| trace.tracestate()),
        ]);
        Ok(serde_json::value::to_raw_value(&told).ok())
    });
    let service = builder(folder, &Log::default()).kind("traced", Kind::new(traced));
    let service = service.start().await.unwrap();
    let (server, client) = serve(&service).await;
    (service, server, client)
}

const JOB: &str = r#"{"kind":"traced","payload":1}"#;

/// Sends something with these headers, besides what it is.
async fn send(
    client: &Client,
    method: &str,
    path: &str,
    with: &[(&str, &str)],
    body: &str,
) -> Value {
    let kind = if body.contains('\n') { "application/x-ndjson" } else { "application/json" };
    let headers = [&[("content-type", kind)], with].concat();
    let answer = client.send(method, path, &headers, body).await;
    assert!((200..300).contains(&answer.status), "{answer:?}");
    answer.json()
}

/// The trace of something, as it is shown.
fn shown(of: &Value) -> [&Value; 2] {
    [&of["traceparent"], &of["tracestate"]]
}

/// The trace that the handler of a job with one subtask was told, when it has ended.
async fn told(client: &Client, id: &Value) -> Value {
    let id = id.as_str().unwrap();
    client.wait(id).await;
    let results = client.get(&format!("/v1/jobs/{id}/results")).await.expect(200).json();
    results["items"][0]["result"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_does_a_job_is_told_its_trace_however_it_came() {
    let folder = tempfile::tempdir().unwrap();
    let (_service, _server, client) = start(folder.path()).await;
    let with = [("traceparent", PARENT), ("tracestate", "a=1"), ("tracestate", " b=2 ")];
    let batch = json!({"jobs": [{"kind": "traced", "payload": 1}]}).to_string();
    let lines = format!("{}\n{}\n", r#"{"kind":"traced"}"#, r#"{"payload":1}"#);
    let expected = json!([PARENT, "a=1,b=2"]);
    for (method, path, body) in [
        ("POST", "/v1/jobs", JOB),
        ("POST", "/v1/jobs", &*lines),
        ("PUT", "/v1/jobs/mine", JOB),
        ("POST", "/v1/jobs/batch", &*batch),
        ("POST", "/v1/jobs/batch?atomic=false", &*batch),
    ] {
        let answer = send(&client, method, path, &with, body).await;
        let job = if path.contains("batch") { &answer["items"][0]["job"] } else { &answer };
        assert_eq!(json!(shown(job)), expected, "{method} {path}");
        assert_eq!(told(&client, &job["id"]).await, expected, "{method} {path}");
        let id = job["id"].as_str().unwrap();
        // Also when it is over.
        let job = client.get(&format!("/v1/jobs/{id}")).await.expect(200).json();
        assert_eq!(json!(shown(&job)), expected);
    }
    // A client that sends none has none.
    let job = send(&client, "POST", "/v1/jobs", &[], JOB).await;
    assert!(job.get("traceparent").is_none() && job.get("tracestate").is_none(), "{job}");
    assert_eq!(told(&client, &job["id"]).await, json!([null, null]));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_valid_is_as_if_it_had_not_come() {
    let folder = tempfile::tempdir().unwrap();
    let (_service, _server, client) = start(folder.path()).await;
    let none: [&[(&str, &str)]; 5] = [
        &[("traceparent", "00-abc"), ("tracestate", "a=1")],
        &[("traceparent", "00-00000000000000000000000000000000-00f067aa0ba902b7-01")],
        &[("traceparent", PARENT), ("traceparent", OTHER)],
        &[("traceparent", "é")],
        &[("tracestate", "a=1")],
    ];
    for with in none {
        let job = send(&client, "POST", "/v1/jobs", with, JOB).await;
        assert_eq!(shown(&job), [&Value::Null; 2], "{with:?}");
    }
    let halves: [&[(&str, &str)]; 3] = [
        &[("traceparent", PARENT), ("tracestate", "a")],
        &[("traceparent", PARENT), ("tracestate", "a=1"), ("tracestate", "a=2")],
        &[("traceparent", PARENT), ("tracestate", "a=é")],
    ];
    for with in halves {
        let job = send(&client, "POST", "/v1/jobs", with, JOB).await;
        assert_eq!(shown(&job), [&json!(PARENT), &Value::Null], "{with:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_request_from_another_span_is_the_same_job() {
    let folder = tempfile::tempdir().unwrap();
    let (_service, _server, client) = start(folder.path()).await;
    for (method, path) in [("POST", "/v1/jobs"), ("PUT", "/v1/jobs/mine")] {
        let again = |parent| {
            let key = ("idempotency-key", "once");
            let headers = [("content-type", "application/json"), key, ("traceparent", parent)];
            let client = client.clone();
            async move { client.send(method, path, &headers, JOB).await }
        };
        let first = again(PARENT).await.expect(202).json();
        let second = again(OTHER).await;
        assert_eq!(second.headers["idempotent-replayed"], "true");
        assert_eq!(second.json()["id"], first["id"]);
        // It was submitted by the first.
        assert_eq!(second.json()["traceparent"], PARENT);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_has_the_trace_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (service, server, client) = start(folder.path()).await;
    let with = [("traceparent", PARENT), ("tracestate", "a=1")];
    let two = r#"{"kind":"remote","subtasks":[{"payload":1},{"payload":2}]}"#;
    send(&client, "POST", "/v1/jobs", &with, two).await;
    let claim = json!({"kinds": ["remote"], "wait_ms": 60_000}).to_string();
    let before = client.post("/v1/leases", &claim).await.expect(200).json();
    server.stop(Duration::from_secs(5)).await;
    service.stop(Duration::ZERO).await;
    let (_service, _server, client) = start(folder.path()).await;
    let after = client.post("/v1/leases", &claim).await.expect(200).json();
    for claimed in [before, after] {
        assert_eq!(shown(&claimed["leases"][0]), [&json!(PARENT), &json!("a=1")], "{claimed}");
    }
    client.submit(r#"{"kind":"remote","payload":3}"#).await;
    let claim = json!({"kinds": ["remote"], "max": 9, "wait_ms": 60_000}).to_string();
    let rest = client.post("/v1/leases", &claim).await.expect(200).json();
    let plain = rest["leases"].as_array().unwrap().iter().find(|lease| lease["payload"] == 3);
    assert!(plain.unwrap().get("traceparent").is_none(), "{rest}");
}
