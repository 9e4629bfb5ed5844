//! `GET /v1/ws`: each client's messages are handled and answered in order, however many clients there are.

use std::collections::HashMap;
use std::time::Duration;

use crate::common::slow::{grumbling, small};
use crate::common::{Client, Log, builder, serve, serve_with};
use futures_util::{SinkExt, StreamExt};
use keylane_service::http::HttpSettings;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

async fn connect(client: &Client) -> Socket {
    let mut request = format!("ws://{}/v1/ws", client.address).into_client_request().unwrap();
    request.headers_mut().insert("sec-websocket-protocol", "keylane.v1".parse().unwrap());
    tokio_tungstenite::connect_async(request).await.unwrap().0
}

async fn say(socket: &mut Socket, message: &Value) {
    socket.send(Message::text(message.to_string())).await.unwrap();
}

async fn hear(socket: &mut Socket) -> Value {
    loop {
        if let Message::Text(text) = socket.next().await.unwrap().unwrap() {
            return serde_json::from_str(&text).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_clients_are_each_answered_in_order() {
    const CLIENTS: usize = 1000;
    const MESSAGES: usize = 5;
    // Both ends of each are in this process: more files than many systems allow at first.
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let log = Log::default();
    let service = builder(folder.path(), &log).start().await.unwrap();
    let (_server, client) = serve(&service).await;
    let mut sockets = Vec::new();
    for _ in 0..CLIENTS {
        sockets.push(connect(&client).await);
    }
    // Interleaved: one message of each client after another, and none waits for an answer.
    for seq in 0..MESSAGES {
        for (number, socket) in sockets.iter_mut().enumerate() {
            let job = json!({"kind": "echo", "key": format!("c{number}"), "payload": seq});
            say(socket, &json!({"op": "submit", "seq": seq, "job": job})).await;
        }
    }
    for (number, socket) in sockets.iter_mut().enumerate() {
        let mut last = String::new();
        for seq in 0..MESSAGES {
            let answer = hear(socket).await;
            assert_eq!(
                (&answer["op"], &answer["seq"]),
                (&json!("accepted"), &json!(seq)),
                "{answer}"
            );
            answer["job"]["id"].as_str().unwrap().clone_into(&mut last);
        }
        let done = client.wait(&last).await;
        assert_eq!(done["state"], "succeeded", "client {number}");
    }
    let mut by_key: HashMap<String, Vec<String>> = HashMap::new();
    for line in log.lines() {
        let (key, payload) = line.split_once(' ').unwrap();
        by_key.entry(key.to_owned()).or_default().push(payload.to_owned());
    }
    assert_eq!(by_key.len(), CLIENTS);
    assert!(by_key.values().all(|payloads| *payloads == ["0", "1", "2", "3", "4"]), "{by_key:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_follows_a_job_and_asks_about_it() {
    let folder = tempfile::tempdir().unwrap();
    let service = builder(folder.path(), &Log::default()).start().await.unwrap();
    let (_server, client) = serve(&service).await;
    let mut socket = connect(&client).await;
    say(&mut socket, &json!({"op": "submit", "seq": 1, "job": {"kind": "hang", "payload": 1}}))
        .await;
    let id = hear(&mut socket).await["job"]["id"].as_str().unwrap().to_owned();
    say(&mut socket, &json!({"op": "follow", "seq": 2, "id": id})).await;
    say(&mut socket, &json!({"op": "cancel", "seq": 3, "id": id, "mode": "kill"})).await;
    let mut heard = Vec::new();
    loop {
        let message = hear(&mut socket).await;
        let is_end = message["event"]["event"] == "job_ended";
        heard.push(message);
        if is_end {
            break;
        }
    }
    let answers: Vec<_> = heard.iter().filter_map(|message| message["seq"].as_u64()).collect();
    assert!(answers.is_sorted(), "{answers:?}");
    assert_eq!(heard.last().unwrap()["event"]["job"]["state"], "cancelled");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_understood_is_refused_and_the_next_is_handled() {
    let folder = tempfile::tempdir().unwrap();
    let service = builder(folder.path(), &Log::default()).start().await.unwrap();
    let (_server, client) = serve(&service).await;
    let mut socket = connect(&client).await;
    for (message, code) in [
        ("{", "bad-syntax"),
        (r#"{"op":"dance","seq":7}"#, "invalid"),
        (r#"{"op":"submit","seq":7}"#, "invalid"),
        (r#"{"op":"submit","seq":7,"job":{"kind":"echo","payload":1,"keey":1}}"#, "invalid"),
        (r#"{"op":"status","seq":7,"id":"job_1"}"#, "unknown"),
    ] {
        socket.send(Message::text(message)).await.unwrap();
        let answer = hear(&mut socket).await;
        assert_eq!(
            (&answer["op"], &answer["problem"]["code"]),
            (&json!("refused"), &json!(code)),
            "{message}"
        );
    }
    say(&mut socket, &json!({"op": "submit", "seq": 8, "job": {"kind": "echo", "payload": 1}}))
        .await;
    assert_eq!(hear(&mut socket).await["op"], "accepted");
}

/// A key with a line end is one that a batch has given to its jobs; such a one, or an endless one, would have been
/// kept.
#[tokio::test(flavor = "multi_thread")]
async fn an_idempotency_key_is_held_to_the_same_as_over_http() {
    let folder = tempfile::tempdir().unwrap();
    let service = builder(folder.path(), &Log::default()).start().await.unwrap();
    let (_server, client) = serve(&service).await;
    let mut socket = connect(&client).await;
    let longest = "k".repeat(255);
    let submit = |key: &str| {
        let job = json!({"kind": "echo", "payload": 1});
        json!({"op": "submit", "seq": 9, "job": job, "idempotency_key": key})
    };
    for wrong in ["", "a\n0", "a\tb", "é", "\u{7f}", &format!("{longest}k")] {
        say(&mut socket, &submit(wrong)).await;
        let answer = hear(&mut socket).await;
        assert_eq!((&answer["op"], &answer["seq"]), (&json!("refused"), &json!(9)), "{wrong:?}");
        assert_eq!(answer["problem"]["errors"][0]["pointer"], "/idempotency_key", "{answer}");
    }
    say(&mut socket, &submit(&longest)).await;
    let first = hear(&mut socket).await;
    assert_eq!((&first["op"], &first["replayed"]), (&json!("accepted"), &json!(false)));
    // It is the same key there.
    let headers = [("content-type", "application/json"), ("idempotency-key", &*longest)];
    let body = submit(&longest)["job"].to_string();
    let again = client.send("POST", "/v1/jobs", &headers, &body).await.expect(202);
    assert_eq!(again.json()["id"], first["job"]["id"]);
    let headers = [("content-type", "application/json"), ("idempotency-key", &*(longest + "k"))];
    client.send("POST", "/v1/jobs", &headers, &body).await.expect(422);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_says_goodbye() {
    let folder = tempfile::tempdir().unwrap();
    let service = builder(folder.path(), &Log::default()).start().await.unwrap();
    let (server, client) = serve(&service).await;
    let mut socket = connect(&client).await;
    let stop = tokio::spawn(server.stop(Duration::from_secs(10)));
    let goodbye = loop {
        match socket.next().await.unwrap().unwrap() {
            Message::Close(frame) => break frame.unwrap(),
            _ => continue,
        }
    };
    assert_eq!(u16::from(goodbye.code), 1001);
    stop.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_vanish_in_the_middle_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::default();
    let service = builder(folder.path(), &log).start().await.unwrap();
    let (_server, client) = serve(&service).await;
    for number in 0..50 {
        let mut socket = connect(&client).await;
        let job = json!({"kind": "echo", "key": "shared", "payload": number});
        say(&mut socket, &json!({"op": "submit", "seq": 1, "job": job})).await;
        if number % 2 == 0 {
            hear(&mut socket).await;
        }
        // Without a goodbye, and sometimes in the middle of a frame.
        if let MaybeTlsStream::Plain(stream) = socket.get_mut() {
            let _ = stream.try_write(&[0x81, 0xfe]);
        }
        drop(socket);
    }
    let mut socket = connect(&client).await;
    say(&mut socket, &json!({"op": "submit", "seq": 1, "job": {"kind": "echo", "payload": 1}}))
        .await;
    assert_eq!(hear(&mut socket).await["op"], "accepted");
    while client.get("/v1/summary").await.json()["websockets"] != 1 {
        tokio::task::yield_now().await;
    }
}

/// Such a client was waited for without end, and kept its permit from others.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_nothing_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let (open, gate) = watch::channel(false);
    let service = builder(folder.path(), &Log::default()).kind("grumble", grumbling(gate));
    let service = service.start().await.unwrap();
    let body_timeout = Duration::from_millis(100);
    let (_server, client) =
        serve_with(&service, HttpSettings { body_timeout, ..HttpSettings::default() }).await;
    let many = vec![json!({}); 3000];
    // Not over the server, which also cuts off a client that pauses within a body.
    let id = service.submit(&json!({"kind": "grumble", "subtasks": many}).to_string()).await;
    let id = id.unwrap().to_string();

    let stream = small(client.address).await;
    let request = format!("ws://{}/v1/ws", client.address).into_client_request().unwrap();
    let (mut socket, _) = tokio_tungstenite::client_async(request, stream).await.unwrap();
    let follow = json!({"op": "follow", "seq": 1, "id": id});
    socket.send(Message::text(follow.to_string())).await.unwrap();
    let said = socket.next().await.unwrap().unwrap();
    assert!(said.to_text().unwrap().contains("following"), "{said}");
    assert_eq!(client.get("/v1/summary").await.json()["websockets"], 1);

    // From here on it sends nothing and reads nothing, while there is much to be said.
    open.send(true).unwrap();
    while client.get("/v1/summary").await.json()["websockets"] != 0 {
        tokio::task::yield_now().await;
    }
    // What was on the way still comes, and then the end, without a goodbye.
    while let Some(Ok(said)) = socket.next().await {
        assert!(!said.is_close(), "{said}");
    }
}
