//! What RFC 9112 and RFC 6455 ask of a server, byte by byte.

use crate::common::{Client, Log, builder, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

macro_rules! scene {
    ($client:ident) => {
        let folder = tempfile::tempdir().unwrap();
        let service = builder(folder.path(), &Log::default()).start().await.unwrap();
        let (_server, $client) = serve(&service).await;
    };
}

/// The head of the answer to a request.
async fn head(stream: &mut TcpStream, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n") {
        read.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(read).unwrap().to_ascii_lowercase()
}

async fn status(client: &Client, request: &str) -> String {
    let mut stream = TcpStream::connect(client.address).await.unwrap();
    let head = head(&mut stream, request).await;
    head.split(' ').nth(1).unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_has_one_host() {
    scene!(client);
    for (request, wanted) in [
        ("GET /version HTTP/1.1\r\nhost: localhost\r\n\r\n", "200"),
        ("GET /v1/jobs HTTP/1.1\r\nhost: localhost\r\n\r\n", "200"),
        ("GET /v1/jobs HTTP/1.1\r\n\r\n", "400"),
        ("GET /v1/jobs HTTP/1.1\r\nhost: localhost\r\nhost: localhost\r\n\r\n", "400"),
        ("GET /v1/jobs HTTP/1.0\r\n\r\n", "200"),
        ("GET http://evil.example/v1/jobs HTTP/1.1\r\nhost: localhost\r\n\r\n", "403"),
        ("GET http://localhost/v1/jobs HTTP/1.1\r\nhost: localhost\r\n\r\n", "200"),
        ("GET /v1/jobs HTTP/1.1\r\nhost: evil.example\r\n\r\n", "403"),
    ] {
        assert_eq!(status(&client, request).await, wanted, "{request}");
    }
}

const KEY: &str = "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
const VERSION: &str = "sec-websocket-version: 13\r\n";

fn handshake(rest: &str) -> String {
    format!(
        "GET /v1/ws HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n{rest}\r\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handshake_has_a_key_and_a_known_version() {
    scene!(client);
    let empty = "sec-websocket-key: \r\n";
    let short = "sec-websocket-key: dGhl\r\n";
    let twice = format!("{KEY}{KEY}{VERSION}");
    for (rest, wanted) in [
        (format!("{KEY}{VERSION}"), "101"),
        (VERSION.to_owned(), "400"),
        (format!("{empty}{VERSION}"), "400"),
        (format!("{short}{VERSION}"), "400"),
        (twice, "400"),
        (KEY.to_owned(), "400"),
    ] {
        assert_eq!(status(&client, &handshake(&rest)).await, wanted, "{rest}");
    }
    let mut stream = TcpStream::connect(client.address).await.unwrap();
    let old = handshake(&format!("{KEY}sec-websocket-version: 12\r\n"));
    let head = head(&mut stream, &old).await;
    assert!(head.starts_with("http/1.1 426 "), "{head}");
    assert!(head.contains("\r\nsec-websocket-version: 13\r\n"), "{head}");
    assert!(head.contains("\r\nupgrade: websocket\r\n"), "{head}");
}

/// A frame of a client, masked by zeros.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    [&[first, 0x80 | length, 0, 0, 0, 0], payload].concat()
}

/// The code with which the server closes a connection on which these bytes were sent.
async fn closed_with(client: &Client, bytes: &[u8]) -> u16 {
    let mut stream = TcpStream::connect(client.address).await.unwrap();
    let head = head(&mut stream, &handshake(&format!("{KEY}{VERSION}"))).await;
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    stream.write_all(bytes).await.unwrap();
    // A server's frames are not masked. What comes first is the close.
    let (first, length) = (stream.read_u8().await.unwrap(), stream.read_u8().await.unwrap());
    assert_eq!(first, 0x88);
    assert!((2..126).contains(&length), "a close frame of {length} bytes");
    let mut payload = vec![0; length.into()];
    stream.read_exact(&mut payload).await.unwrap();
    // Nothing comes behind it.
    assert_eq!(stream.read(&mut [0]).await.unwrap_or(0), 0);
    u16::from_be_bytes([payload[0], payload[1]])
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_against_the_protocol_is_closed_with_its_code() {
    scene!(client);
    const TEXT: u8 = 0x81;
    const PING: u8 = 0x89;
    let unmasked = vec![TEXT, 2, b'{', b'}'];
    let long_ping = [&[PING, 0xfe, 0, 126, 0, 0, 0, 0][..], &[b'a'; 126]].concat();
    for (what, bytes, code) in [
        ("a ping of 126 bytes", long_ping, 1002),
        ("a fragmented ping", frame(0x09, b"a"), 1002),
        ("a reserved bit", frame(0xc1, b"{}"), 1002),
        ("a reserved opcode", frame(0x83, b"{}"), 1002),
        ("a reserved control opcode", frame(0x8b, b""), 1002),
        ("a frame without a mask", unmasked, 1002),
        ("a continuation of nothing", frame(0x80, b"{}"), 1002),
        ("a text within a text", [frame(0x01, b"{"), frame(TEXT, b"{")].concat(), 1002),
        ("a close of one byte", frame(0x88, b"a"), 1002),
        ("a text that is not UTF-8", frame(TEXT, b"\xff"), 1007),
        ("a close whose reason is not UTF-8", frame(0x88, b"\x03\xe8\xff"), 1007),
        ("bytes", frame(0x82, b"a"), 1003),
    ] {
        assert_eq!(closed_with(&client, &bytes).await, code, "{what}");
    }
}
