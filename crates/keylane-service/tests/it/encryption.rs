//! The server speaks TLS with the operator's certificate, and with no client that does not trust it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::{Client, Log, builder, serve_with};
use keylane_service::http::{HttpSettings, TlsError, TlsIdentity};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A certificate for a name that only the test resolves, and its key: `papers/README.md` has how they were made.
struct Papers {
    certificate: PathBuf,
    key: PathBuf,
}

const NAME: &str = "keylane.test";

impl Papers {
    fn of(called: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/papers");
        let place = |what: &str| folder.join(format!("{called}-{what}.pem"));
        Papers { certificate: place("cert"), key: place("key") }
    }

    fn tls(&self) -> TlsIdentity {
        TlsIdentity::read(&self.certificate, &self.key).unwrap()
    }

    /// A client that trusts this certificate and no other.
    fn client(&self, address: SocketAddr) -> reqwest::Client {
        let pem = std::fs::read(&self.certificate).unwrap();
        let trusted = reqwest::Certificate::from_pem(&pem).unwrap();
        let client = reqwest::Client::builder().tls_certs_only([trusted]);
        client.resolve(NAME, address).build().unwrap()
    }
}

fn url(client: &Client, path: &str) -> String {
    format!("https://{NAME}:{}{path}", client.address.port())
}

fn settings(tls: TlsIdentity) -> HttpSettings {
    HttpSettings { tls: Some(tls), hosts: vec![NAME.into()], ..HttpSettings::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_come_in_over_tls_and_nothing_comes_in_without() {
    let folder = tempfile::tempdir().unwrap();
    let papers = Papers::of("own");
    let service = builder(folder.path(), &Log::default()).start().await.unwrap();
    let (_server, plain) = serve_with(&service, settings(papers.tls())).await;
    let client = papers.client(plain.address);
    let submit = client.post(url(&plain, "/v1/jobs")).header("prefer", "wait=30");
    let answer = submit.body(r#"{"kind":"echo","payload":7}"#).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert!(answer.text().await.unwrap().contains("succeeded"));

    // A client that trusts another certificate does not speak to it.
    let other = Papers::of("other").client(plain.address);
    let refused = other.get(url(&plain, "/livez")).send().await.unwrap_err();
    assert!(refused.is_connect(), "{refused:?}");
    // Nor is anything read of a request that is not encrypted.
    let mut stream = TcpStream::connect(plain.address).await.unwrap();
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    // It is told so by TLS, or finds the connection ended.
    let _ = stream.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP"), "{}", String::from_utf8_lossy(&answer));
    // And the server is there for others all the while.
    assert_eq!(client.get(url(&plain, "/livez")).send().await.unwrap().status(), 200);
}

/// A stream of events takes its connection over, encryption included.
#[tokio::test(flavor = "multi_thread")]
async fn events_come_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    let papers = Papers::of("own");
    let service = builder(folder.path(), &Log::default()).start().await.unwrap();
    let (server, plain) = serve_with(&service, settings(papers.tls())).await;
    let client = papers.client(plain.address);
    let mut events = client.get(url(&plain, "/v1/events")).send().await.unwrap();
    let mut said = Vec::new();
    for key in ["one", "two"] {
        let paused = client.post(url(&plain, &format!("/v1/keys/{key}/pause"))).send().await;
        assert_eq!(paused.unwrap().status(), 200);
        while !String::from_utf8_lossy(&said).contains(&format!(r#""key":"{key}""#)) {
            said.extend_from_slice(&events.chunk().await.unwrap().expect("it has not ended"));
        }
    }
    server.stop(Duration::from_secs(30)).await;
    while events.chunk().await.unwrap().is_some() {}
}

/// A connection takes one of `max_connections` places, handshake or not.
#[tokio::test(flavor = "multi_thread")]
async fn who_never_shakes_hands_is_let_go() {
    let folder = tempfile::tempdir().unwrap();
    let papers = Papers::of("own");
    let service = builder(folder.path(), &Log::default()).start().await.unwrap();
    let head_timeout = Duration::from_millis(200);
    let settings = HttpSettings { max_connections: 1, head_timeout, ..settings(papers.tls()) };
    let (_server, plain) = serve_with(&service, settings).await;
    let mut silent = TcpStream::connect(plain.address).await.unwrap();
    // It waits behind the silent connection, and has its turn when that one is closed.
    let client = papers.client(plain.address);
    // On a busy machine it may be late itself, and comes again.
    while client.get(url(&plain, "/livez")).send().await.is_err() {}
    let mut said = Vec::new();
    let _ = silent.read_to_end(&mut said).await;
    assert_eq!(said, b"");
}

#[test]
fn papers_that_do_not_fit_are_refused_by_name() {
    let (own, other) = (Papers::of("own"), Papers::of("other"));
    let mixed = TlsIdentity::read(&own.certificate, &other.key).unwrap_err();
    assert!(matches!(mixed, TlsError::Unfit(_)), "{mixed:?}");
    let nothing = PathBuf::from("/nowhere/nothing.pem");
    for (certificate, key, named) in [
        (&nothing, &own.key, &nothing),
        (&own.certificate, &nothing, &nothing),
        // No key is in the certificate's file.
        (&own.certificate, &own.certificate, &own.certificate),
    ] {
        let text = TlsIdentity::read(certificate, key).unwrap_err().to_string();
        assert!(text.contains(named.to_str().unwrap()), "{text}");
    }
    // Without a certificate no client could be served.
    let bare = TlsIdentity::read(&own.key, &own.key).unwrap_err();
    assert!(matches!(bare, TlsError::Unfit(_)), "{bare:?}");
}
