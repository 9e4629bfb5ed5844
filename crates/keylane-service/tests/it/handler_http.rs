//! The answer of an address decides the outcome of the attempt.

use std::time::Duration;

use crate::common::attempts::{JOB, ask, attempt, cancellable, lasting, passing, result, traced};
use crate::common::{Log, builder, serve};
use keylane_service::Kind;
use keylane_service::handle::{AttemptResult, HttpHandler};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Answers one request with these bytes, and ends the connection. Returns the request.
async fn answering(answer: impl Into<Vec<u8>>) -> (HttpHandler, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let post =
        HttpHandler::new(&format!("http://{}/hook?a=1", listener.local_addr().unwrap())).unwrap();
    let answer = answer.into();
    let asked = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let request = request(&mut stream).await;
        // A client that has read enough reads no more.
        let _ = stream.write_all(&answer).await;
        request
    });
    (post, asked)
}

/// A request, up to the end of its body.
async fn request(stream: &mut TcpStream) -> String {
    let mut said = String::new();
    loop {
        said.push(char::from(stream.read_u8().await.unwrap()));
        let Some((head, body)) = said.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if body.len() == length.map_or(0, |length| length.parse().unwrap()) {
            return said;
        }
    }
}

/// An answer of this status, with these headers and this body.
fn answer(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n{headers}\r\n{body}")
}

/// Outcome of an attempt that gets this answer.
async fn of(status: &str, headers: &str, body: &str) -> AttemptResult {
    let (post, _) = answering(answer(status, headers, body)).await;
    ask(&post, attempt("null")).await
}

#[tokio::test]
async fn the_payload_is_posted_with_what_it_is_about() {
    let (post, asked) = answering(answer("200 OK", "", "{\"n\":1.50}")).await;
    assert_eq!(result(ask(&post, attempt("{\"file\":\"a.png\"}")).await), "{\"n\":1.50}");
    let asked = asked.await.unwrap();
    assert!(asked.starts_with("POST /hook?a=1 HTTP/1.1\r\n"), "{asked}");
    assert!(asked.ends_with("\r\n\r\n{\"file\":\"a.png\"}"), "{asked}");
    let (head, _) = asked.split_once("\r\n\r\n").unwrap();
    let idempotency = format!("idempotency-key: {JOB}/7");
    let job = format!("keylane-job: {JOB}");
    for header in [
        &*job,
        "keylane-kind: resize",
        "keylane-subtask: 7",
        "keylane-key: ann",
        "keylane-attempt: 2",
        "keylane-fence: 99",
        &idempotency,
        "content-type: application/json",
    ] {
        assert!(head.lines().any(|line| line == header), "{header} is not in {asked}");
    }
}

#[tokio::test]
async fn it_is_posted_in_the_trace_of_its_job() {
    let is_there = |asked: &str, header: &str| asked.lines().any(|line| line == header);
    let (post, asked) = answering(answer("200 OK", "", "")).await;
    ask(&post, traced("null")).await.unwrap();
    let asked = asked.await.unwrap();
    let parent = "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    assert!(is_there(&asked, parent) && is_there(&asked, "tracestate: a=1"), "{asked}");
    let (post, asked) = answering(answer("200 OK", "", "")).await;
    ask(&post, attempt("null")).await.unwrap();
    let asked = asked.await.unwrap();
    assert!(!asked.contains("\ntrace"), "{asked}");
}

#[tokio::test]
async fn any_2xx_is_success_and_its_body_the_result() {
    assert_eq!(result(of("201 Created", "", "made it").await), "\"made it\"");
    assert_eq!(result(of("204 No Content", "", "").await), "");
}

#[tokio::test]
async fn a_status_says_whether_another_attempt_could_help() {
    for status in ["408", "425", "429", "500", "502", "503", "599"] {
        let failure = of(&format!("{status} Something"), "", "").await;
        assert!(passing(failure).starts_with(&format!("the response was {status}")));
    }
    for status in ["300", "400", "401", "404", "409", "410", "422"] {
        let failure = of(&format!("{status} Something"), "", "no such album\n").await;
        let said = lasting(failure);
        assert!(said.contains(status) && said.ends_with(": no such album"), "{said}");
    }
}

#[tokio::test]
async fn retry_after_is_kept() {
    let after = async |header: &str| {
        of("503 Later", &format!("retry-after: {header}\r\n"), "").await.unwrap_err().after
    };
    assert_eq!(after("7").await, Some(Duration::from_secs(7)));
    assert_eq!(after("0").await, Some(Duration::ZERO));
    // What is not in seconds is left to the backoff.
    assert_eq!(after("Fri, 31 Dec 1999 23:59:59 GMT").await, None);
    assert_eq!(after("-1").await, None);
}

/// Elsewhere it would be a GET without the payload.
#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = format!("location: http://{}/\r\n", elsewhere.local_addr().unwrap());
    for status in ["301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"] {
        assert!(lasting(of(status, &to, "").await).contains(&status[..3]));
    }
    // No connection has come yet: this is the first.
    let (own, accepted) =
        tokio::join!(TcpStream::connect(elsewhere.local_addr().unwrap()), elsewhere.accept());
    assert_eq!(own.unwrap().local_addr().unwrap(), accepted.unwrap().1);
}

#[tokio::test]
async fn no_answer_may_be_one_next_time() {
    // Bound, so that no other program gets the port, and not listening.
    let closed = tokio::net::TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let post = HttpHandler::new(&format!("http://{}/", closed.local_addr().unwrap())).unwrap();
    let said = passing(ask(&post, attempt("null")).await);
    assert!(said.starts_with("no answer: ") && said.contains("refused"), "{said}");
    // Nor is half of one an answer.
    for half in ["", "HTTP/1.1 200", "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{\"n\""] {
        let (post, _) = answering(half).await;
        assert!(passing(ask(&post, attempt("null")).await).starts_with("no answer: "), "{half}");
    }
}

/// A long page of a proxy without a backend was a final failure, as if its status were not there.
#[tokio::test]
async fn what_comes_with_a_refusal_does_not_make_something_else_of_it() {
    let long = "x".repeat(17 * 1024 * 1024);
    let said = passing(of("503 Service Unavailable", "", &long).await);
    assert!(said.len() < 500, "{}", said.len());
    let broken_off = "HTTP/1.1 404 Not Found\r\ncontent-length: 900\r\n\r\nno such album";
    let (post, _) = answering(broken_off).await;
    let said = lasting(ask(&post, attempt("null")).await);
    assert!(said.contains("no such album"), "{said}");
    // A result that long is refused, for it would be the same again.
    assert!(lasting(of("200 OK", "", &long).await).contains("16777216 bytes"));
}

/// An answer that had begun was waited for, time-out or not.
#[tokio::test]
async fn who_is_cancelled_waits_for_no_answer() {
    for begun in ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{"] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let post =
            HttpHandler::new(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
        let (attempt, cancel) = cancellable("null");
        let answer = tokio::spawn(ask(&post, attempt));
        let (mut stream, _) = listener.accept().await.unwrap();
        request(&mut stream).await;
        stream.write_all(begun.as_bytes()).await.unwrap();
        cancel.cancel();
        assert_eq!(passing(answer.await.unwrap()), "given up");
    }
}

/// The key is blocked meanwhile, so a handler cannot block it for longer than a day.
#[tokio::test(flavor = "multi_thread")]
async fn a_pause_beyond_24_hours_is_cut_to_24_hours() {
    const WEEK: &str = "604800";
    let (post, asked) =
        answering(answer("503 Later", &format!("retry-after: {WEEK}\r\n"), "")).await;
    let folder = tempfile::tempdir().unwrap();
    let hook = Kind { attempts: 2, ..Kind::new(post) };
    let service = builder(folder.path(), &Log::default()).kind("hook", hook);
    let service = service.start().await.unwrap();
    let (_server, client) = serve(&service).await;
    let by_header = client.submit(r#"{"kind":"hook","payload":1}"#).await;
    asked.await.unwrap();

    let by_field = client.submit(r#"{"kind":"remote","key":"k","payload":1}"#).await;
    let claim = r#"{"kinds":["remote"],"wait_ms":30000}"#;
    let claim = client.post("/v1/leases", claim).await.expect(200).json();
    let lease = claim["leases"][0]["id"].as_str().unwrap();
    let later = format!(r#"{{"error":"not now","retry":true,"after_ms":{WEEK}000}}"#);
    client.post(&format!("/v1/leases/{lease}/fail"), &later).await.expect(204);

    for id in [by_header, by_field] {
        let is_backing_off = |job: &Value| job["counts"]["backing_off"] == 1;
        client.wait_until(&id, is_backing_off).await;
        let job = client.get(&format!("/v1/jobs/{id}")).await.expect(200).json();
        let until = job["waiting_because"][0]["until"].as_str().unwrap();
        let left = until.parse::<jiff::Timestamp>().unwrap().duration_since(jiff::Timestamp::now());
        assert_eq!(left.as_hours(), 23, "{job}");
    }
}
