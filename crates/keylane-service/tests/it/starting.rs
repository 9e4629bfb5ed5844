//! Probes of a server that is starting get answers, and its clients are told to come back.

use crate::common::{Client, Log, builder};
use keylane_service::Kind;
use keylane_service::handle::FunctionHandler;
use keylane_service::http::{HttpSettings, StartingServer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn bind() -> (StartingServer, Client) {
    let settings = HttpSettings { listen: ([127, 0, 0, 1], 0).into(), ..HttpSettings::default() };
    let starting = StartingServer::bind(settings).await.unwrap();
    let client = Client::of(starting.address());
    (starting, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_starting_server_is_alive_and_not_ready() {
    let (starting, client) = bind().await;
    let alive = client.send("GET", "/livez", &[], "").await;
    assert_eq!((alive.status, &*alive.text), (200, "ok\n"));
    let ready = client.send("GET", "/readyz", &[], "").await;
    assert_eq!((ready.status, &ready.json()["checks"][0]["name"]), (503, &"started".into()));
    for (method, path) in
        [("POST", "/v1/jobs"), ("GET", "/v1/jobs/x"), ("GET", "/"), ("GET", "/metrics")]
    {
        let refused = client.send(method, path, &[], "").await;
        assert_eq!(
            (refused.status, &refused.json()["code"]),
            (503, &"unavailable".into()),
            "{path}"
        );
        assert_eq!(refused.headers["retry-after"], "1", "{path}");
    }

    let folder = tempfile::tempdir().unwrap();
    let kind = Kind::new(FunctionHandler::new(|_| async { Ok(None) }));
    let service = builder(folder.path(), &Log::default()).kind("k", kind).start().await.unwrap();
    let address = starting.address();
    let server = starting.serve(&service);
    assert_eq!(server.address(), address);
    assert_eq!(client.send("GET", "/readyz", &[], "").await.status, 200);
    let id = client.submit(r#"{"kind":"k","payload":1}"#).await;
    assert_eq!(client.wait(&id).await["state"], "succeeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_is_given_up_frees_the_address() {
    let (starting, client) = bind().await;
    assert_eq!(client.send("GET", "/livez", &[], "").await.status, 200);
    let listen = starting.address();
    drop(starting);
    // The accepting task ends soon after.
    loop {
        let settings = HttpSettings { listen, ..HttpSettings::default() };
        if StartingServer::bind(settings).await.is_ok() {
            break;
        }
        tokio::task::yield_now().await;
    }
}

/// Many clients send the head and the body of a request apart from each other, and read the answer only then.
async fn send_twice(server: &StartingServer) {
    for _ in 0..50 {
        let mut connection = TcpStream::connect(server.address()).await.unwrap();
        connection.set_nodelay(true).unwrap();
        for _ in 0..2 {
            let head = "POST /v1/jobs HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n";
            connection.write_all(head.as_bytes()).await.unwrap();
            tokio::task::yield_now().await;
            connection.write_all(b"{}").await.unwrap();
            let mut answer = Vec::new();
            while !answer.ends_with(b"}") {
                assert_ne!(connection.read_buf(&mut answer).await.unwrap(), 0, "it was closed");
            }
            assert!(answer.starts_with(b"HTTP/1.1 503 "));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_stays_usable_after_a_request_with_a_body_was_refused() {
    let (starting, _) = bind().await;
    send_twice(&starting).await;
    let (waiting, _node) = starting.join("http://127.0.0.1:1".parse().unwrap());
    send_twice(&waiting).await;
}
