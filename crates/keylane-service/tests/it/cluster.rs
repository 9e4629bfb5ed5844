//! Servers with one store in PostgreSQL: each answers every request, the owner itself and the others through it, also while another one
//! takes over.

use std::path::Path;
use std::time::Duration;

use crate::common::cluster::{Waiting, two};
use crate::common::{Answered, Client};
use futures_util::{SinkExt, StreamExt};
use keylane_service::http::{HttpSettings, TlsIdentity, Tokens};
use keylane_testkit::{PAUSE, PostgresServer, or_skip};
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

/// Headers that differ between any two answers.
fn comparable(answer: &Answered) -> Vec<(String, String)> {
    let names =
        answer.headers.iter().filter(|(name, _)| !matches!(name.as_str(), "date" | "x-request-id"));
    let mut all: Vec<_> =
        names.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect();
    all.sort();
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_waits_answers_as_the_owner_does() {
    let Some(database) = or_skip(PostgresServer::start()) else { return };
    let (owner, other) = two(&database, HttpSettings::default()).await;
    other.until_it_forwards().await;
    let id = other.client.submit(r#"{"kind":"echo","key":"a","payload":7}"#).await;
    assert_eq!(other.client.wait(&id).await["state"], "succeeded");
    let lines = "{\"kind\":\"echo\"}\n{\"payload\":1}\n{\"payload\":2}\n";
    let many = [("content-type", "application/x-ndjson")];
    let submitted = other.client.send("POST", "/v1/jobs", &many, lines).await.expect(202);
    let many = submitted.json()["id"].as_str().unwrap().to_owned();
    other.client.wait(&many).await;
    for path in [
        &format!("/v1/jobs/{id}"),
        &format!("/v1/jobs/{many}/results"),
        "/v1/jobs?limit=1",
        "/v1/jobs/0",
        "/nothing",
        "/readyz",
        "/openapi.json",
        "/",
    ] {
        for method in ["GET", "HEAD"] {
            let by = async |client: &Client| client.send(method, path, &[], "").await;
            let (theirs, own) = (by(&owner.client).await, by(&other.client).await);
            assert_eq!(
                (theirs.status, comparable(&theirs)),
                (own.status, comparable(&own)),
                "{path}"
            );
            if theirs.status < 400 {
                assert_eq!(theirs.text, own.text, "{path}");
            }
        }
    }
    let metrics = other.client.get("/metrics").await.expect(200).text;
    assert!(metrics.contains("keylane_owner 0"), "{metrics}");
    assert!(owner.client.get("/metrics").await.text.contains("keylane_owner 1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn all_servers_are_listed_with_the_owner_until_they_stop() {
    let Some(database) = or_skip(PostgresServer::start()) else { return };
    let (owner, other) = two(&database, HttpSettings::default()).await;
    other.until_it_forwards().await;
    let address = |client: &Client| format!("http://{}", client.address);
    let listed = async |client: &Client| {
        let nodes = client.get("/v1/nodes").await.expect(200).json();
        let mut nodes: Vec<_> = nodes["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|node| (node["address"].as_str().unwrap().to_owned(), node["owner"] == true))
            .collect();
        nodes.sort();
        nodes
    };
    let mut both = [(address(&owner.client), true), (address(&other.client), false)];
    both.sort();
    // It writes its row soon after it has seen the owner.
    while listed(&other.client).await != both {
        tokio::time::sleep(PAUSE).await;
    }
    owner.stop().await;
    let other = other.start().await;
    assert_eq!(listed(&other.client).await, [(address(&other.client), true)]);
    other.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_and_websockets_pass_through_a_server_that_waits() {
    let Some(database) = or_skip(PostgresServer::start()) else { return };
    let (owner, other) = two(&database, HttpSettings::default()).await;
    other.until_it_forwards().await;
    let request = format!("ws://{}/v1/ws", other.client.address);
    let mut request = request.into_client_request().unwrap();
    request.headers_mut().insert("sec-websocket-protocol", "keylane.v1".parse().unwrap());
    let (mut socket, answer) = tokio_tungstenite::connect_async(request).await.unwrap();
    assert_eq!(answer.headers()["sec-websocket-protocol"], "keylane.v1");
    let job = json!({"kind": "echo", "payload": 1});
    let submit = json!({"op": "submit", "seq": 5, "job": job}).to_string();
    socket.send(Message::text(submit)).await.unwrap();
    let reply = socket.next().await.unwrap().unwrap().into_text().unwrap();
    assert!(reply.contains(r#""seq":5"#), "{reply}");
    let url = format!("http://{}/v1/events", other.client.address);
    let mut events = other.client.http.get(url).send().await.unwrap();
    other.client.post("/v1/keys/k/pause", "").await.expect(200);
    let mut said = Vec::new();
    while !String::from_utf8_lossy(&said).contains("key_changed") {
        said.extend_from_slice(&events.chunk().await.unwrap().expect("it has not ended"));
    }
    // Both end with the owner.
    owner.stop().await;
    while let Ok(Some(_)) = events.chunk().await {}
    while let Some(Ok(_)) = socket.next().await {}
}

/// Without that, a stop would take as long as the streams.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_waits_ends_its_streams_when_it_stops_and_the_owner_goes_on() {
    let Some(database) = or_skip(PostgresServer::start()) else { return };
    let (owner, other) = two(&database, HttpSettings::default()).await;
    other.until_it_forwards().await;
    let url = format!("http://{}/v1/events", other.client.address);
    let mut events = other.client.http.get(url).send().await.unwrap();
    let request = format!("ws://{}/v1/ws", other.client.address);
    let mut request = request.into_client_request().unwrap();
    request.headers_mut().insert("sec-websocket-protocol", "keylane.v1".parse().unwrap());
    let (mut socket, _) = tokio_tungstenite::connect_async(request).await.unwrap();
    other.server.stop(Duration::from_secs(3600)).await;
    while events.chunk().await.unwrap().is_some() {}
    while let Some(Ok(_)) = socket.next().await {}
    let id = owner.client.submit(r#"{"kind":"echo","payload":1}"#).await;
    assert_eq!(owner.client.wait(&id).await["state"], "succeeded");
}

/// The owner believes the headers of other nodes, and a client can write the same ones.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_a_token_is_refused_whatever_headers_it_sends() {
    let Some(database) = or_skip(PostgresServer::start()) else { return };
    let tokens = Tokens::parse("ops operate plain:0123456789abcdef\n").unwrap();
    let (owner, other) = two(&database, HttpSettings { tokens, ..HttpSettings::default() }).await;
    other.until_it_forwards().await;
    let claim = r#"{"kinds":["echo"]}"#;
    for client in [&owner.client, &other.client] {
        for name in ["keylane-node-worker", "keylane-client"] {
            let headers = [("content-type", "application/json"), (name, "127.0.0.1")];
            client.send("POST", "/v1/leases", &headers, claim).await.expect(401);
        }
    }
}

/// The same connection of a client goes on when its server becomes the owner.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_takes_over_answers_itself() {
    let Some(database) = or_skip(PostgresServer::start()) else { return };
    let (owner, other) = two(&database, HttpSettings::default()).await;
    other.until_it_forwards().await;
    let id = other.client.submit(r#"{"kind":"echo","key":"a","payload":7}"#).await;
    owner.stop().await;
    let other = other.start().await;
    assert_eq!(other.client.wait(&id).await["state"], "succeeded");
    assert!(other.client.get("/metrics").await.text.contains("keylane_owner 1"));
}

/// As if the owner, or its network, stood still.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_at_an_owner_that_is_none_any_more_ends() {
    let Some(database) = or_skip(PostgresServer::start()) else { return };
    let (owner, other) = two(&database, HttpSettings::default()).await;
    other.until_it_forwards().await;
    let id = other.client.submit(r#"{"kind":"hang","key":"a"}"#).await;
    let (client, path) = (other.client.clone(), format!("/v1/jobs/{id}"));
    // Nothing changes the job any more once it runs.
    let tag = loop {
        let shown = client.get(&path).await;
        if shown.json()["state"] == "running" {
            break shown.headers["etag"].to_str().unwrap().to_owned();
        }
    };
    let waits = tokio::spawn(async move {
        let headers = [("prefer", "wait=600"), ("if-none-match", tag.as_str())];
        client.send("GET", &path, &headers, "").await
    });
    let taken = "UPDATE keylane.term SET node = NULL; DELETE FROM keylane.heartbeat";
    let _ = database.query(taken);
    let answer = waits.await.unwrap().expect(503);
    assert_eq!(answer.headers["retry-after"], "1");
    assert_eq!(answer.json()["code"], "unavailable");
    let other = other.start().await;
    other.client.get(&format!("/v1/jobs/{id}")).await.expect(200);
    drop(owner);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_cannot_be_reached_is_named_in_the_refusal() {
    let Some(database) = or_skip(PostgresServer::start()) else { return };
    let (owner, other) = two(&database, HttpSettings::default()).await;
    other.until_it_forwards().await;
    owner.server.stop(Duration::from_secs(30)).await;
    loop {
        let refused = other.client.get("/v1/jobs").await.expect(503).text;
        if refused.contains("cannot be reached") {
            break;
        }
        // The first request can meet the end of the connection that is kept for the next one.
        assert!(refused.contains("did not answer"), "{refused}");
    }
    let ready = other.client.get("/readyz").await.expect(503);
    assert_eq!(ready.json()["checks"][0]["name"], "owner");
    assert_eq!(other.client.get("/livez").await.status, 200);
}

/// A client is known by its own address, and the connections of a node are not those of one client.
#[tokio::test(flavor = "multi_thread")]
async fn the_owner_counts_the_clients_of_other_servers_and_not_the_servers() {
    let Some(database) = or_skip(PostgresServer::start()) else { return };
    let tokens = Tokens::parse("ops admin plain:0123456789abcdef\n").unwrap();
    let http =
        HttpSettings { tokens, max_connections_per_client: Some(1), ..HttpSettings::default() };
    let owner = Waiting::new(&database, http.clone()).await.start().await;
    let other = HttpSettings { max_connections_per_client: None, ..http };
    let other = Waiting::new(&database, other).await;
    other.until_it_forwards().await;
    // Each occupies a connection to the owner.
    let follow = || {
        let url = format!("http://{}/v1/events", other.client.address);
        other.client.http.get(url).bearer_auth("0123456789abcdef").send()
    };
    let mut streams = Vec::new();
    while streams.len() < 5 {
        let stream = follow().await.unwrap();
        if stream.status() == 200 {
            streams.push(stream);
        }
    }
    // A client cannot pretend to be a node: the owner counts it by its own address.
    let forged = [("keylane-node", "00"), ("keylane-client", "10.1.2.3")];
    other.client.send("GET", "/v1/jobs", &forged, "").await.expect(503);
    drop(owner);
}

fn identity(name: &str) -> TlsIdentity {
    let papers = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/papers");
    let place = |what: &str| papers.join(format!("{name}-{what}.pem"));
    TlsIdentity::read(&place("cert"), &place("key")).unwrap()
}

/// The certificate of the owner is known by its hash in the database.
#[tokio::test(flavor = "multi_thread")]
async fn requests_are_forwarded_over_tls_to_the_certificate_that_the_owner_has_named() {
    const NAME: &str = "keylane.test";
    let Some(database) = or_skip(PostgresServer::start()) else { return };
    let http = HttpSettings { hosts: vec![NAME.into()], ..HttpSettings::default() };
    let own = HttpSettings { tls: Some(identity("own")), ..http.clone() };
    let owner = Waiting::new(&database, own).await.start().await;
    let other = Waiting::new(&database, http).await;
    other.until_it_forwards().await;
    let url = format!("http://{}/v1/events", other.client.address);
    let mut events = other.client.http.get(url).send().await.unwrap();
    // The owner tells the others of a new certificate, which new connections get.
    owner.server.reload(Tokens::default(), Some(identity("other"))).unwrap();
    let hash = |name: &str| {
        let sql =
            "SELECT encode(certificate, 'hex') FROM keylane.node WHERE certificate IS NOT NULL";
        (name.to_owned(), database.query(sql))
    };
    let before = hash("before");
    while hash("before") == before {
        tokio::time::sleep(PAUSE).await;
    }
    other.until_it_forwards().await;
    // A reload ends nothing.
    other.client.post("/v1/keys/k/pause", "").await.expect(200);
    let mut said = Vec::new();
    while !String::from_utf8_lossy(&said).contains("key_changed") {
        said.extend_from_slice(&events.chunk().await.unwrap().expect("it has not ended"));
    }
    // And no other certificate is accepted.
    let changed = "UPDATE keylane.node SET certificate = sha256('x') WHERE certificate IS NOT NULL";
    while {
        let _ = database.query(changed);
        other.client.get("/readyz").await.status != 503
    } {}
}
