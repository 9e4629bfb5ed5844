//! Tokens and certificates that are replaced while connections are open.

use crate::common::{Client, Log, builder, serve_with};
use futures_util::StreamExt;
use keylane_service::http::{HttpSettings, TlsIdentity, Tokens};
use serde_json::Value;
use std::path::Path;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

type Socket = WebSocketStream<MaybeTlsStream<tokio::net::TcpStream>>;

const LEAKED: &str = "the-token-that-leaked";
const OTHER: &str = "the-token-that-stays";

fn tokens(lines: &[&str]) -> Tokens {
    let lines: Vec<_> = lines.iter().map(|token| format!("ops admin plain:{token}\n")).collect();
    Tokens::parse(&lines.concat()).unwrap()
}

async fn follow(client: &Client, token: &str, path: &str) -> reqwest::Response {
    let request = client.http.get(format!("http://{}{path}", client.address));
    let mut events = request.bearer_auth(token).send().await.unwrap();
    assert_eq!(events.status(), 200);
    // It follows from here on.
    assert!(events.chunk().await.unwrap().is_some());
    events
}

async fn connect(client: &Client, token: &str) -> Socket {
    let mut request = format!("ws://{}/v1/ws", client.address).into_client_request().unwrap();
    let value = format!("Bearer {token}").parse().unwrap();
    request.headers_mut().insert("authorization", value);
    tokio_tungstenite::connect_async(request).await.unwrap().0
}

/// A token that is revoked may be in the wrong hands: what it has opened shows and takes nothing more. The name of the
/// token that takes its place may be the same.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_revoked_token_has_opened_ends_and_nothing_else_does() {
    let folder = tempfile::tempdir().unwrap();
    let service = builder(folder.path(), &Log::default()).start().await.unwrap();
    let settings = HttpSettings { tokens: tokens(&[LEAKED, OTHER]), ..HttpSettings::default() };
    let (server, client) = serve_with(&service, settings).await;
    let body = r#"{"kind":"echo","delay_ms":3600000,"payload":1}"#;
    let url = format!("http://{}/v1/jobs", client.address);
    let job = client.http.post(url).bearer_auth(OTHER).body(body).send().await.unwrap();
    let job: Value = serde_json::from_str(&job.text().await.unwrap()).unwrap();
    let of_job = format!("/v1/jobs/{}/events", job["id"].as_str().unwrap());
    let mut leaked = [
        follow(&client, LEAKED, "/v1/events").await,
        follow(&client, LEAKED, "/v1/events?include=summary").await,
        follow(&client, LEAKED, &of_job).await,
    ];
    let mut stays = follow(&client, OTHER, "/v1/events").await;
    let (mut leaked_socket, mut other_socket) =
        (connect(&client, LEAKED).await, connect(&client, OTHER).await);

    server.reload(tokens(&["another-one-for-ops", OTHER]), None).unwrap();
    for events in &mut leaked {
        while events.chunk().await.unwrap().is_some() {}
    }
    let goodbye = leaked_socket.next().await.unwrap().unwrap();
    assert!(
        matches!(&goodbye, Message::Close(Some(frame)) if u16::from(frame.code) == 1008),
        "{goodbye:?}"
    );

    // The others still hear what happens.
    let url = format!("http://{}/v1/keys/k/pause", client.address);
    assert_eq!(client.http.post(url).bearer_auth(OTHER).send().await.unwrap().status(), 200);
    let mut said = Vec::new();
    while !String::from_utf8_lossy(&said).contains("key_changed") {
        said.extend_from_slice(&stays.chunk().await.unwrap().expect("it has not ended"));
    }
    drop(server);
    let goodbye = other_socket.close(None).await;
    assert!(goodbye.is_ok(), "{goodbye:?}");
}

const NAME: &str = "keylane.test";

fn tls(name: &str) -> TlsIdentity {
    let papers = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/papers");
    let place = |what: &str| papers.join(format!("{name}-{what}.pem"));
    TlsIdentity::read(&place("cert"), &place("key")).unwrap()
}

/// A client that trusts one certificate alone, and keeps its connection.
fn trusting(name: &str, address: std::net::SocketAddr) -> reqwest::Client {
    let papers = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/papers");
    let pem = std::fs::read(papers.join(format!("{name}-cert.pem"))).unwrap();
    let trusted = reqwest::Certificate::from_pem(&pem).unwrap();
    let client = reqwest::Client::builder().tls_certs_only([trusted]);
    client.resolve(NAME, address).build().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn new_connections_get_the_new_certificate_and_old_ones_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let service = builder(folder.path(), &Log::default()).start().await.unwrap();
    let settings =
        HttpSettings { tls: Some(tls("own")), hosts: vec![NAME.into()], ..HttpSettings::default() };
    let (server, plain) = serve_with(&service, settings).await;
    let url = |path: &str| format!("https://{NAME}:{}{path}", plain.address.port());
    let old = trusting("own", plain.address);
    let mut events = old.get(url("/v1/events")).send().await.unwrap();
    assert!(events.chunk().await.unwrap().is_some());

    server.reload(Tokens::default(), Some(tls("other"))).unwrap();
    let new = trusting("other", plain.address);
    assert_eq!(new.post(url("/v1/keys/k/pause")).send().await.unwrap().status(), 200);
    let refused = trusting("own", plain.address).get(url("/livez")).send().await.unwrap_err();
    assert!(refused.is_connect(), "{refused:?}");
    let mut said = Vec::new();
    while !String::from_utf8_lossy(&said).contains("key_changed") {
        said.extend_from_slice(&events.chunk().await.unwrap().expect("it has not ended"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_token_is_refused_and_what_it_has_opened_ends() {
    let folder = tempfile::tempdir().unwrap();
    let service = builder(folder.path(), &Log::default()).start().await.unwrap();
    let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(5);
    let lines = [
        "old admin plain:the-token-of-last-year expires=2020-01-31T00:00:00Z\n".to_owned(),
        format!("ops admin plain:{LEAKED} expires={soon}\n"),
        format!("ops admin plain:{OTHER} expires=2999-01-31T00:00:00Z\n"),
    ];
    let tokens = Tokens::parse(&lines.concat()).unwrap();
    let settings = HttpSettings { tokens, ..HttpSettings::default() };
    let (_server, client) = serve_with(&service, settings).await;
    let ask = |token: &'static str| {
        let request = client.http.get(format!("http://{}/v1/jobs", client.address));
        request.bearer_auth(token).send()
    };
    let refused = ask("the-token-of-last-year").await.unwrap();
    assert_eq!(refused.status(), 401);
    let said = refused.text().await.unwrap();
    assert!(said.contains("the token `old` has expired at 2020-01-31"), "{said}");
    assert_eq!(ask(OTHER).await.unwrap().status(), 200);

    let mut events = follow(&client, LEAKED, "/v1/events").await;
    let mut socket = connect(&client, LEAKED).await;
    while events.chunk().await.unwrap().is_some() {}
    let goodbye = socket.next().await.unwrap().unwrap();
    assert!(
        matches!(&goodbye, Message::Close(Some(frame)) if u16::from(frame.code) == 1008),
        "{goodbye:?}"
    );
    assert_eq!(ask(LEAKED).await.unwrap().status(), 401);
    assert_eq!(ask(OTHER).await.unwrap().status(), 200);
}
