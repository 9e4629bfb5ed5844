//! A stream of events takes its connection over, and the client sees plain HTTP: every byte before it, chunks, an end.

use std::time::Duration;

use crate::common::{Client, Log, builder, serve, serve_with};
use keylane_service::http::HttpSettings;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A connection, and what was read of it and not yet looked at.
struct Raw {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Raw {
    async fn new(client: &Client, requests: &str) -> Self {
        let mut stream = TcpStream::connect(client.address).await.unwrap();
        stream.write_all(requests.as_bytes()).await.unwrap();
        Raw { stream, read: Vec::new() }
    }

    /// All up to these bytes and with them.
    async fn until(&mut self, end: &str) -> String {
        loop {
            let at = self.read.windows(end.len()).position(|window| window == end.as_bytes());
            if let Some(at) = at {
                let rest = self.read.split_off(at + end.len());
                return String::from_utf8(std::mem::replace(&mut self.read, rest)).unwrap();
            }
            let read = self.stream.read_buf(&mut self.read).await.unwrap();
            assert!(read > 0, "the connection ended in {}", self.read.escape_ascii());
        }
    }

    async fn bytes(&mut self, count: usize) -> Vec<u8> {
        while self.read.len() < count {
            let read = self.stream.read_buf(&mut self.read).await.unwrap();
            assert!(read > 0, "the connection ended in {}", self.read.escape_ascii());
        }
        let rest = self.read.split_off(count);
        std::mem::replace(&mut self.read, rest)
    }

    /// One chunk of the chunked transfer coding; none for the last.
    async fn chunk(&mut self) -> Option<String> {
        let size = self.until("\r\n").await;
        let size = usize::from_str_radix(size.trim_end(), 16).unwrap();
        let bytes = self.bytes(size).await;
        assert_eq!(self.bytes(2).await, b"\r\n");
        (size > 0).then(|| String::from_utf8(bytes).unwrap())
    }

    /// Chunks up to one with this text.
    async fn chunks_until(&mut self, text: &str) {
        while !self.chunk().await.expect("the stream has not ended").contains(text) {}
    }
}

const EVENTS: &str = "GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n";

async fn pause_key(client: &Client, key: &str) {
    client.post(&format!("/v1/keys/{key}/pause"), "{}").await.expect(200);
}

/// What was asked before the stream is answered whole, although the client reads nothing until the stream has begun.
#[tokio::test(flavor = "multi_thread")]
async fn answers_before_a_stream_are_whole_and_the_stream_ends_as_chunks_do() {
    let folder = tempfile::tempdir().unwrap();
    let service = builder(folder.path(), &Log::default()).start().await.unwrap();
    let (server, client) = serve(&service).await;
    let document = client.get("/openapi.json").await.expect(200).text;
    let before = "GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(20);
    // What is asked behind the stream has no answer, and is not in its way.
    let behind = "GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let mut raw = Raw::new(&client, &format!("{before}{EVENTS}{behind}")).await;
    for _ in 0..20 {
        let head = raw.until("\r\n\r\n").await;
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert_eq!(raw.bytes(document.len()).await, document.as_bytes());
    }
    let head = raw.until("\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    let lines =
        ["transfer-encoding: chunked", "content-type: text/event-stream", "connection: close"];
    for line in lines {
        assert!(head.contains(line), "{head}");
    }
    raw.chunks_until(": keylane").await;
    for key in ["one", "two", "three"] {
        pause_key(&client, key).await;
        raw.chunks_until(&format!(r#""key":"{key}""#)).await;
    }
    server.stop(Duration::from_secs(30)).await;
    assert_eq!(raw.chunk().await, None);
    assert_eq!(raw.stream.read_buf(&mut raw.read).await.unwrap_or(0), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_chunks_gets_the_stream_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let service = builder(folder.path(), &Log::default()).start().await.unwrap();
    let (_server, client) = serve(&service).await;
    let mut raw = Raw::new(&client, "GET /v1/events HTTP/1.0\r\n\r\n").await;
    let head = raw.until("\r\n\r\n").await;
    assert!(!head.contains("transfer-encoding"), "{head}");
    assert_eq!(raw.until("\n\n").await, "retry: 2000\n: keylane\n\n");
    pause_key(&client, "one").await;
    assert!(raw.until("\n\n").await.starts_with("id: "));
    // Without a body there is nothing to take over, and the connection goes on.
    let head = EVENTS.replace("GET", "HEAD");
    let mut raw = Raw::new(&client, &format!("{head}{EVENTS}")).await;
    raw.until("\r\n\r\n").await;
    let head = raw.until("\r\n\r\n").await;
    assert!(head.contains("text/event-stream"), "{head}");
    raw.chunks_until(": keylane").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_a_stream_gives_its_place_back() {
    let folder = tempfile::tempdir().unwrap();
    let service = builder(folder.path(), &Log::default()).start().await.unwrap();
    let one = HttpSettings { max_event_streams: 1, ..HttpSettings::default() };
    let (_server, client) = serve_with(&service, one).await;
    let mut raw = Raw::new(&client, EVENTS).await;
    raw.until(": keylane").await;
    client.get("/v1/events").await.expect(429);
    // Its side of the connection ends, and it would read on.
    raw.stream.shutdown().await.unwrap();
    loop {
        let mut next = Raw::new(&client, EVENTS).await;
        if next.until("\r\n\r\n").await.starts_with("HTTP/1.1 200 ") {
            break;
        }
    }
}
