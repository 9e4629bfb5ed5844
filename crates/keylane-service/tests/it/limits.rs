//! A client's requests and delays hurt no other client: bodies, waiting requests and connections are bounded, and a client
//! that is too slow is disconnected.

use std::path::Path;
use std::time::Duration;

use crate::common::slow::{grumbling, small};
use crate::common::{Client, Log, builder_with, serve, serve_with};
use keylane_service::http::HttpSettings;
use keylane_service::{Service, SubmissionLimits};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

async fn service(folder: &Path, bounds: SubmissionLimits) -> Service {
    let settings = keylane_service::ServiceSettings { bounds, ..crate::common::settings(folder) };
    builder_with(settings, &Log::default()).start().await.unwrap()
}

fn job_with(payload_bytes: usize) -> String {
    json!({"kind": "echo", "payload": "x".repeat(payload_bytes)}).to_string()
}

const LINES: [(&str, &str); 1] = [("content-type", "application/x-ndjson")];

async fn count(client: &Client) -> usize {
    client.get("/v1/jobs").await.expect(200).json()["items"].as_array().unwrap().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_too_large_is_refused_and_nothing_of_it_stays() {
    let folder = tempfile::tempdir().unwrap();
    let bounds =
        SubmissionLimits { body_bytes: 1000, payload_bytes: 500, ..SubmissionLimits::default() };
    let service = service(folder.path(), bounds).await;
    let (_server, client) = serve(&service).await;
    let refused = client.post("/v1/jobs", &job_with(2000)).await.expect(413);
    assert_eq!(refused.json()["code"], "too-large");
    assert!(refused.json()["detail"].as_str().unwrap().contains("1000"), "{}", refused.text);
    // A payload has a bound of its own, and is named.
    let refused = client.post("/v1/jobs", &job_with(600)).await.expect(422);
    assert_eq!(refused.json()["errors"][0]["pointer"], "/payload");
    // The whole of a request by lines may be longer, for it is never in memory; a line may not.
    let mut lines = String::from("{\"kind\":\"echo\"}\n");
    (0..100).for_each(|n| lines.push_str(&format!("{{\"payload\":\"{}\"}}\n", "y".repeat(n))));
    assert!(lines.len() > 2000);
    let id = client.send("POST", "/v1/jobs", &LINES, &lines).await.expect(202).json()["id"].clone();
    client.wait(id.as_str().unwrap()).await;
    // One that is a little too long is read to its end; of one that has no end only so much is kept.
    for (bytes, end, status) in [(501, "\"}\n", 422), (200_000, "", 413)] {
        let longer = format!("{lines}{{\"payload\":\"{}{end}", "z".repeat(bytes));
        let refused = client.send("POST", "/v1/jobs", &LINES, &longer).await.expect(status);
        assert!(refused.text.contains("line 102"), "{}", refused.text);
    }
    // Commands about a job are small.
    let reason = json!({"reason": "r".repeat(100_000)}).to_string();
    let cancel = format!("/v1/jobs/{}/cancel", id.as_str().unwrap());
    assert_eq!(client.post(&cancel, &reason).await.expect(413).json()["code"], "too-large");
    assert_eq!(count(&client).await, 1);
}

/// The length is that of the sent bytes, not the announced one, which may be wrong.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_untold_length_is_bounded_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let bounds = SubmissionLimits { body_bytes: 100_000, ..SubmissionLimits::default() };
    let service = service(folder.path(), bounds).await;
    let (_server, client) = serve(&service).await;
    let mut stream = TcpStream::connect(client.address).await.unwrap();
    let head = "POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    // One chunk more than fits; the request never ends, and is answered all the same.
    for _ in 0..=10 {
        let chunk = format!("2710\r\n{}\r\n", " ".repeat(10_000));
        stream.write_all(chunk.as_bytes()).await.unwrap();
    }
    let mut status = [0; 12];
    stream.read_exact(&mut status).await.unwrap();
    assert_eq!(&status, b"HTTP/1.1 413");
}

#[tokio::test(flavor = "multi_thread")]
async fn when_too_much_waits_more_is_put_off_and_comes_in_later() {
    let folder = tempfile::tempdir().unwrap();
    let bounds = SubmissionLimits { waiting_subtasks: 3, ..SubmissionLimits::default() };
    let service = service(folder.path(), bounds).await;
    let (server, client) = serve(&service).await;
    let three = r#"{"kind":"hang","subtasks":[{"key":"a"},{"key":"a"},{"key":"a"}]}"#;
    let id = client.submit(three).await;
    let headers = [("content-type", "application/json"), ("idempotency-key", "later")];
    let one = r#"{"kind":"echo","payload":1}"#;
    let refused = client.send("POST", "/v1/jobs", &headers, one).await.expect(429);
    assert_eq!(refused.json()["code"], "backlog-full");
    let after: u64 = refused.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!(after >= 1, "{after}");
    // What was put off was not refused for good: the same request is taken when there is room.
    client.post(&format!("/v1/jobs/{id}/cancel"), r#"{"mode":"kill"}"#).await;
    client.wait(&id).await;
    let taken = client.send("POST", "/v1/jobs", &headers, one).await.expect(202);
    assert!(!taken.headers.contains_key("idempotent-replayed"));
    client.wait(taken.json()["id"].as_str().unwrap()).await;
    // After a restart what is unfinished counts as before.
    let id = client.submit(three).await;
    client.wait_until(&id, |job| job["counts"]["running"] == 1).await;
    server.stop(Duration::from_secs(5)).await;
    service.stop(Duration::ZERO).await;
    let service = self::service(folder.path(), bounds).await;
    let (_server, client) = serve(&service).await;
    client.post("/v1/jobs", one).await.expect(429);
}

/// None of them has an end of its own.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_dropped_with_a_job_makes_room() {
    let folder = tempfile::tempdir().unwrap();
    let bounds = SubmissionLimits { waiting_subtasks: 3, ..SubmissionLimits::default() };
    let service = service(folder.path(), bounds).await;
    let (_server, client) = serve(&service).await;
    let three = r#"{"kind":"echo","delay_ms":3600000,"subtasks":[{"key":"a"},{"key":"a"},{}]}"#;
    for _ in 0..3 {
        let id = client.submit(three).await;
        client.post("/v1/jobs", three).await.expect(429);
        client.post(&format!("/v1/jobs/{id}/cancel"), "{}").await;
        client.wait(&id).await;
    }
    // Tried again they take it once more.
    let id = client.submit(three).await;
    client.post(&format!("/v1/jobs/{id}/cancel"), "{}").await;
    client.wait(&id).await;
    client.post(&format!("/v1/jobs/{id}/retry"), r#"{"only":"unsuccessful"}"#).await.accepted();
    let ended = client.wait(&id).await;
    assert_eq!(ended["counts"]["succeeded"], 3);
    client.submit(three).await;
    client.post("/v1/jobs", three).await.expect(429);
}

/// An answer that was lost is there to be had again: full or not, its job is one of those that fill it.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_accepted_is_answered_again_however_much_waits() {
    let folder = tempfile::tempdir().unwrap();
    let bounds = SubmissionLimits { waiting_subtasks: 3, ..SubmissionLimits::default() };
    let service = service(folder.path(), bounds).await;
    let (_server, client) = serve(&service).await;
    let json = ("content-type", "application/json");
    let lines = ("content-type", "application/x-ndjson");
    let key = ("idempotency-key", "answer-lost");
    let mine = "/v1/jobs/mine";
    let one = r#"{"kind":"hang","payload":1}"#;
    let other = r#"{"kind":"hang","payload":2}"#;
    let line = "{\"kind\":\"hang\"}\n{\"payload\":1}\n";
    let asked = [
        ("POST", "/v1/jobs", vec![json, key], one),
        ("POST", "/v1/jobs", vec![lines, ("idempotency-key", "lines")], line),
        ("PUT", mine, vec![json], one),
    ];
    let mut ids = Vec::new();
    for (method, path, headers, body) in &asked {
        ids.push(client.send(method, path, headers, body).await.expect(202).json()["id"].clone());
    }
    client.send("POST", "/v1/jobs", &[json], one).await.expect(429);
    for ((method, path, headers, body), id) in asked.iter().zip(&ids) {
        let again = client.send(method, path, headers, body).await;
        assert_eq!(&again.json()["id"], id, "{method} {path}");
    }
    // What was not accepted is refused, with a name as without; and other words under a used name are not room's fault.
    for (key, body, status) in [("new", one, 429), ("answer-lost", other, 422)] {
        let headers = [json, ("idempotency-key", key)];
        client.send("POST", "/v1/jobs", &headers, body).await.expect(status);
    }
    client.send("PUT", "/v1/jobs/yours", &[json], one).await.expect(429);
    client.send("PUT", mine, &[json], other).await.expect(409);
}

/// Everything that comes until the server ends the connection. The test ends when it does.
async fn until_let_go(client: &Client, request: &str) -> String {
    let mut stream = TcpStream::connect(client.address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said).await;
    String::from_utf8_lossy(&said).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn who_sends_half_a_request_is_let_go() {
    let folder = tempfile::tempdir().unwrap();
    let service = service(folder.path(), SubmissionLimits::default()).await;
    let impatient = Duration::from_millis(100);
    let heads = HttpSettings { head_timeout: impatient, ..HttpSettings::default() };
    let (_heads, client) = serve_with(&service, heads).await;
    // Nothing, and half of a head.
    for request in ["", "GET /livez HTTP/1.1\r\nhost: local"] {
        let said = until_let_go(&client, request).await;
        assert!(!said.contains(" 200 "), "{said}");
    }
    let bodies = HttpSettings { body_timeout: impatient, ..HttpSettings::default() };
    let (_bodies, client) = serve_with(&service, bodies).await;
    // One whose head is there and whose body never comes, as a whole or by lines.
    for kind in ["json", "x-ndjson"] {
        let request = format!(
            "POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/{kind}\r\n\
             content-length: 500\r\n\r\n{{\"kind\":\"echo\"}}\n"
        );
        let said = until_let_go(&client, &request).await;
        assert!(said.starts_with("HTTP/1.1 408"), "{kind}: {said}");
        assert!(said.contains("\"too-slow\""), "{said}");
    }
    assert_eq!(count(&client).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_comes_when_all_places_are_taken_waits_for_one() {
    let folder = tempfile::tempdir().unwrap();
    let service = service(folder.path(), SubmissionLimits::default()).await;
    let head_timeout = Duration::from_secs(600);
    let one = HttpSettings { max_connections: 1, head_timeout, ..HttpSettings::default() };
    let (_server, client) = serve_with(&service, one).await;
    let mut first = TcpStream::connect(client.address).await.unwrap();
    ask_whether_it_lives(&mut first).await;
    // It has the place as long as it stays connected.
    let second = tokio::spawn(async move { client.get("/livez").await.status });
    for _ in 0..100 {
        ask_whether_it_lives(&mut first).await;
    }
    assert!(!second.is_finished(), "it got a place that was taken");
    drop(first);
    assert_eq!(second.await.unwrap(), 200);
}

async fn ask_whether_it_lives(stream: &mut TcpStream) {
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut said = Vec::new();
    while !said.ends_with(b"\r\n\r\nok\n") {
        said.push(stream.read_u8().await.unwrap());
    }
}

/// Head of a request whose body has lines, with the given number of bytes.
fn lines(bytes: usize, more: &str) -> String {
    format!(
        "POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-ndjson\r\n\
         content-length: {bytes}\r\n{more}\r\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_refused_in_the_middle_of_a_body_gets_the_answer() {
    let folder = tempfile::tempdir().unwrap();
    let service = service(folder.path(), SubmissionLimits::default()).await;
    let (_server, client) = serve(&service).await;
    // Most clients send everything before they look, and then go on with the same connection.
    let body = "{\"kind\":\"nothing of that name\"}\n".to_owned() + &"{}\n".repeat(1_000_000);
    let mut stream = TcpStream::connect(client.address).await.unwrap();
    stream.write_all((lines(body.len(), "") + &body).as_bytes()).await.unwrap();
    let mut said = String::new();
    while !said.ends_with('}') {
        let mut part = [0; 4096];
        let read = stream.read(&mut part).await.unwrap();
        assert!(read > 0, "the connection was closed: {said}");
        said.push_str(&String::from_utf8_lossy(&part[..read]));
    }
    assert!(said.starts_with("HTTP/1.1 422"), "{said}");
    assert!(!said.contains("connection: close"), "{said}");
    ask_whether_it_lives(&mut stream).await;
    // Too much to be read for nothing, and what was not asked for: the connection ends, and says so.
    let first = "{\"kind\":\"nothing of that name\"}\n";
    let said = until_let_go(&client, &(lines(100_000_000, "") + first)).await;
    assert!(said.starts_with("HTTP/1.1 422") && said.contains("connection: close"), "{said}");
    let wrong = lines(1000, "expect: 100-continue\r\n").replace("ndjson", "nothing");
    let said = until_let_go(&client, &wrong).await;
    assert!(said.starts_with("HTTP/1.1 415") && said.contains("connection: close"), "{said}");
}

/// One that follows events and reads none of them kept its place among the connections for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_nothing_makes_way() {
    let folder = tempfile::tempdir().unwrap();
    let (open, gate) = watch::channel(false);
    let builder = builder_with(crate::common::settings(folder.path()), &Log::default());
    let service = builder.kind("grumble", grumbling(gate)).start().await.unwrap();
    let body_timeout = Duration::from_millis(100);
    let settings = HttpSettings { body_timeout, max_connections: 1, ..HttpSettings::default() };
    let (_server, client) = serve_with(&service, settings).await;
    let mut stream = small(client.address).await;
    stream.write_all(b"GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut status = [0; 12];
    stream.read_exact(&mut status).await.unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");
    let many = vec![json!({}); 3000];
    let many = json!({"kind": "grumble", "subtasks": many}).to_string();
    service.submit(&many).await.unwrap();
    open.send(true).unwrap();
    // There is one place, and this needs it.
    client.get("/livez").await.expect(200);
    drop(stream);
}
