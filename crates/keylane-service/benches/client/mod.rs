//! A client that takes little of the machine, so that most of it is left to the server: HTTP/1.1 over a plain
//! socket, one request after another.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) const JSON: &str = "application/json";
pub(crate) const LINES: &str = "application/x-ndjson";

/// A connection that is used for one request after another.
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Connection { stream, buffer: Vec::new() }
    }

    /// The answer to a job, or lines of one.
    pub(crate) async fn submit(&mut self, kind: &str, body: &[u8]) -> Vec<u8> {
        self.post("/v1/jobs", &format!("content-type: {kind}\r\n"), body).await
    }

    /// The body of an answer to a request with this body; each header ends its line.
    pub(crate) async fn post(&mut self, path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: {}\r\n\r\n",
            body.len()
        );
        let whole = [head.as_bytes(), body].concat();
        self.stream.write_all(&whole).await.unwrap();
        self.answer().await
    }

    pub(crate) async fn get(&mut self, path: &str) -> serde_json::Value {
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        self.stream.write_all(request.as_bytes()).await.unwrap();
        serde_json::from_slice(&self.answer().await).unwrap()
    }

    async fn answer(&mut self) -> Vec<u8> {
        loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&self.buffer[..end]).to_ascii_lowercase();
                assert!(head.starts_with("http/1.1 20"), "{head}");
                let end = end + 4 + length(&head);
                if self.buffer.len() >= end {
                    let rest = self.buffer.split_off(end);
                    let whole = std::mem::replace(&mut self.buffer, rest);
                    return whole[end - length(&head)..].to_vec();
                }
            }
            let read = self.stream.read_buf(&mut self.buffer).await.unwrap();
            assert!(read > 0, "the server has closed the connection");
        }
    }
}

/// Of the body. An answer without content does not say.
fn length(head: &str) -> usize {
    let named = head.split("content-length:").nth(1);
    named.map_or(0, |rest| rest.split("\r\n").next().unwrap().trim().parse().unwrap())
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|part| part == what)
}

/// A job of one subtask.
pub(crate) fn job(kind: &str, key: u64) -> Vec<u8> {
    format!("{{\"kind\":\"{kind}\",\"key\":\"k{key}\",\"payload\":{{\"n\":{key}}}}}").into_bytes()
}

pub(crate) fn percentile(times: &mut [Duration], part: f64) -> Duration {
    times.sort_unstable();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a place"
    )]
    let at = ((times.len() - 1) as f64 * part) as usize;
    times[at]
}
