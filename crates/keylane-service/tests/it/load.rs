//! Large jobs, and many clients, are no burden for others: what is large is done in slices, in its place in the order.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use crate::common::{Client, Log, builder_with, serve, serve_with, settings};
use keylane_service::http::HttpSettings;
use keylane_service::{Service, SubmissionLimits};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// More than a slice, several times over.
const LARGE: usize = 5000;

/// A job with a key for each subtask, and `last` for the last one.
fn large(kind: &str, last: &str) -> String {
    let mut lines = format!("{{\"kind\":\"{kind}\"}}\n");
    for number in 1..LARGE {
        writeln!(lines, r#"{{"key":"k{}","payload":{number}}}"#, number % 3000).unwrap();
    }
    writeln!(lines, r#"{{"key":"{last}","payload":"last of the large one"}}"#).unwrap();
    lines
}

async fn submit_lines(client: &Client, lines: &str) -> String {
    let headers = [("content-type", "application/x-ndjson")];
    let answer = client.send("POST", "/v1/jobs", &headers, lines).await.expect(202);
    answer.json()["id"].as_str().unwrap().to_owned()
}

async fn start(folder: &Path, log: &Log) -> Service {
    builder_with(settings(folder), log).start().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_accepted_while_a_large_job_enters_stays_behind_it() {
    let (folder, log) = (tempfile::tempdir().unwrap(), Log::default());
    let service = start(folder.path(), &log).await;
    let (_server, client) = serve(&service).await;
    let large = submit_lines(&client, &large("echo", "z")).await;
    let small = client.submit(r#"{"kind":"echo","key":"z","payload":"the small one"}"#).await;
    assert_eq!(client.wait(&small).await["counts"]["succeeded"], 1);
    assert_eq!(client.wait(&large).await["counts"]["succeeded"], LARGE);
    let lines = log.lines();
    let of_z: Vec<_> = lines.iter().filter(|line| line.starts_with("z ")).collect();
    assert_eq!(of_z, ["z \"last of the large one\"", "z \"the small one\""]);
    assert_eq!(lines.len(), LARGE + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_job_is_cancelled_and_retried_in_slices_and_its_keys_go_on() {
    let (folder, log) = (tempfile::tempdir().unwrap(), Log::default());
    let service = start(folder.path(), &log).await;
    let (_server, client) = serve(&service).await;
    let id = submit_lines(&client, &large("hang", "z")).await;
    client.wait_until(&id, |job| job["counts"]["running"] == 4).await;
    let behind = client.submit(r#"{"kind":"echo","key":"z","payload":1}"#).await;
    client.post(&format!("/v1/jobs/{id}/cancel"), r#"{"mode":"kill"}"#).await;
    let cancelled = client.wait(&id).await;
    assert_eq!(cancelled["state"], "cancelled");
    let counts = &cancelled["counts"];
    let ended = counts["cancelled"].as_u64().unwrap() + counts["failed"].as_u64().unwrap();
    assert_eq!(ended, LARGE as u64);
    assert_eq!(client.wait(&behind).await["counts"]["succeeded"], 1);
    // Once more, all of it.
    let retry = format!("/v1/jobs/{id}/retry");
    client.post(&retry, r#"{"only":"unsuccessful"}"#).await.expect(202);
    client.wait_until(&id, |job| job["counts"]["running"] == 4).await;
    let job = client.get(&format!("/v1/jobs/{id}")).await.json();
    assert_eq!(
        (job["counts"]["total"].clone(), job["counts"]["failed"].clone()),
        (json!(LARGE), json!(0))
    );
    client.post(&format!("/v1/jobs/{id}/cancel"), r#"{"mode":"kill"}"#).await;
    assert_eq!(client.wait(&id).await["state"], "cancelled");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_a_large_job_enters_before_what_came_behind_it() {
    let (folder, log) = (tempfile::tempdir().unwrap(), Log::default());
    let service = start(folder.path(), &log).await;
    let (server, client) = serve(&service).await;
    let large = submit_lines(&client, &large("remote", "z")).await;
    let small = client.submit(r#"{"kind":"echo","key":"z","payload":"the small one"}"#).await;
    server.stop(Duration::from_secs(5)).await;
    service.stop(Duration::ZERO).await;
    let service = start(folder.path(), &log).await;
    let (_server, client) = serve(&service).await;
    let reasons =
        client.wait_until(&small, |job| job["waiting_because"][0]["reason"] == "key_order");
    assert_eq!(reasons.await["waiting_because"][0]["job"], json!(large));
    assert!(log.lines().is_empty());
    client.post(&format!("/v1/jobs/{large}/cancel"), "{}").await;
    assert_eq!(client.wait(&small).await["counts"]["succeeded"], 1);
}

/// Each upload was held against what had been accepted, so that several passed together.
#[tokio::test(flavor = "multi_thread")]
async fn uploads_in_progress_count_for_the_bound_on_what_waits() {
    let folder = tempfile::tempdir().unwrap();
    let bounds = SubmissionLimits { waiting_subtasks: 3000, ..SubmissionLimits::default() };
    let settings = keylane_service::ServiceSettings { bounds, ..settings(folder.path()) };
    let service = builder_with(settings, &Log::default()).start().await.unwrap();
    let (_server, client) = serve(&service).await;
    let lines = "{\"kind\":\"hang\"}\n".to_owned() + &"{}\n".repeat(2500);
    let length = lines.len() + 3;
    let head = format!(
        "POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-ndjson\r\ncontent-length: {length}\r\n\r\n"
    );
    let begin = async || {
        let mut upload = TcpStream::connect(client.address).await.unwrap();
        upload.write_all((head.clone() + &lines).as_bytes()).await.unwrap();
        upload
    };
    let mut first = begin().await;
    // When its lines were read it has most of the room, although it is not accepted.
    let headers = [("content-type", "application/x-ndjson")];
    loop {
        let second = client.send("POST", "/v1/jobs", &headers, &lines).await;
        if second.status == 429 {
            assert_eq!(second.json()["code"], "backlog-full");
            break;
        }
        // It was faster: its job gives the room back.
        let id = second.expect(202).json()["id"].as_str().unwrap().to_owned();
        client.post(&format!("/v1/jobs/{id}/cancel"), r#"{"mode":"kill"}"#).await;
        client.wait(&id).await;
        // The first upload may have been refused meanwhile.
        if first.try_read(&mut [0]).is_ok() {
            first = begin().await;
        }
    }
    first.write_all(b"{}\n").await.unwrap();
    let mut said = vec![0; 12];
    first.read_exact(&mut said).await.unwrap();
    assert_eq!(String::from_utf8(said).unwrap(), "HTTP/1.1 202");
    // One that breaks off gives its room back.
    drop(first);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bytes_of_keys_have_a_bound() {
    let folder = tempfile::tempdir().unwrap();
    let bounds = SubmissionLimits { waiting_key_bytes: 1000, ..SubmissionLimits::default() };
    let settings = keylane_service::ServiceSettings { bounds, ..settings(folder.path()) };
    let service = builder_with(settings, &Log::default()).start().await.unwrap();
    let (_server, client) = serve(&service).await;
    let with_key = |bytes: usize| json!({"kind": "hang", "key": "k".repeat(bytes)}).to_string();
    let id = client.submit(&with_key(600)).await;
    let refused = client.post("/v1/jobs", &with_key(600)).await.expect(429);
    assert!(refused.text.contains("keys"), "{}", refused.text);
    client.post(&format!("/v1/jobs/{id}/cancel"), r#"{"mode":"kill"}"#).await;
    client.wait(&id).await;
    client.submit(&with_key(600)).await;
}

/// A reader opened as many streams as there were places, and a probe waited without end.
#[tokio::test(flavor = "multi_thread")]
async fn when_streams_take_all_places_probes_and_operators_are_answered() {
    let folder = tempfile::tempdir().unwrap();
    let service = start(folder.path(), &Log::default()).await;
    let few =
        HttpSettings { max_connections: 32, max_event_streams: 100, ..HttpSettings::default() };
    let (_server, client) = serve_with(&service, few).await;
    let mut streams = Vec::new();
    for _ in 0..32 {
        let mut stream = TcpStream::connect(client.address).await.unwrap();
        stream.write_all(b"GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        let mut said = vec![0; 15];
        stream.read_exact(&mut said).await.unwrap();
        assert_eq!(said, b"HTTP/1.1 200 OK");
        streams.push(stream);
    }
    let alone = || Client { http: reqwest::Client::new(), ..client.clone() };
    for _ in 0..5 {
        let probed = alone().get("/livez").await.expect(200);
        assert_eq!(probed.headers["connection"], "close");
        alone().get("/v1/scheduler").await.expect(200);
        let refused = alone().get("/v1/events").await.expect(429);
        assert_eq!(refused.json()["code"], "too-many-requests");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_and_websockets_beyond_their_bounds_are_refused_before_they_begin() {
    let folder = tempfile::tempdir().unwrap();
    let service = start(folder.path(), &Log::default()).await;
    let none = HttpSettings { max_websockets: 0, max_event_streams: 1, ..HttpSettings::default() };
    let (_server, client) = serve_with(&service, none).await;
    let first = client.http.get(format!("http://{}/v1/events", client.address)).send().await;
    let first = first.unwrap();
    assert_eq!(first.status(), 200);
    let refused = client.get("/v1/events").await.expect(429);
    assert!(refused.headers.contains_key("retry-after"));
    let upgrade = [
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    let refused = client.send("GET", "/v1/ws", &upgrade, "").await.expect(429);
    assert_eq!(refused.json()["code"], "too-many-requests");
}

/// The figure that operators watch counts the file and its log, which has nearly all of a new store.
#[tokio::test(flavor = "multi_thread")]
async fn the_metric_and_the_dashboards_figure_count_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let service = start(folder.path(), &Log::default()).await;
    let (_server, client) = serve(&service).await;
    let large = "7".repeat(500_000);
    for _ in 0..8 {
        let body = format!(r#"{{"kind":"echo","delay_ms":3600000,"payload":"{large}"}}"#);
        client.submit(&body).await;
    }
    let length = |name: &str| std::fs::metadata(folder.path().join(name)).unwrap().len();
    let (file, log) = (length("store"), length("store-wal"));
    assert!(log > 3_000_000 && log > file, "{file} {log}");
    let metrics = client.get("/metrics").await.expect(200).text;
    let line = metrics.lines().find_map(|line| line.strip_prefix("keylane_store_bytes "));
    assert_eq!(line, Some(&*(file + log).to_string()));
    let summary = client.get("/v1/summary").await.expect(200).json();
    assert_eq!(summary["store_bytes"], file + log, "{summary}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_client_has_at_most_its_number_of_connections() {
    let folder = tempfile::tempdir().unwrap();
    let service = start(folder.path(), &Log::default()).await;
    let two = HttpSettings { max_connections_per_client: Some(2), ..HttpSettings::default() };
    let (_server, client) = serve_with(&service, two).await;
    let open = async || {
        let mut stream = TcpStream::connect(client.address).await.unwrap();
        stream.write_all(b"GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        let mut said = vec![0; 12];
        stream.read_exact(&mut said).await.unwrap();
        (stream, String::from_utf8(said).unwrap())
    };
    let (first, second) = (open().await, open().await);
    for (_, said) in [&first, &second] {
        assert_eq!(said, "HTTP/1.1 200");
    }
    assert_eq!(open().await.1, "HTTP/1.1 429");
    // The end of one makes room for another.
    drop(first);
    while open().await.1 != "HTTP/1.1 200" {}
}
