//! Checks that every request must pass, on a running server: which hosts may reach it, by which name, with which token, and
//! what each role may do on each path that there is.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{Answered, Client, Log, builder, serve_with};
use futures_util::{SinkExt, StreamExt};
use keylane_service::Service;
use keylane_service::http::{HttpServer, HttpSettings, ServeError, Tokens};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::Response;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

/// Role that an operation needs: none, or this one, or one that includes it.
const NEEDED: &[(&str, &str)] = &[
    ("get /livez", "open"),
    ("get /readyz", "open"),
    ("get /version", "open"),
    ("get /problems/{code}", "open"),
    ("get /openapi.json", "open"),
    ("get /metrics", "read"),
    ("get /v1/jobs", "read"),
    ("post /v1/jobs", "submit"),
    ("post /v1/jobs/batch", "submit"),
    ("get /v1/jobs/{id}", "read"),
    ("put /v1/jobs/{id}", "submit"),
    ("patch /v1/jobs/{id}", "operate"),
    ("delete /v1/jobs/{id}", "operate"),
    ("get /v1/jobs/{id}/results", "read"),
    ("get /v1/jobs/{id}/subtasks", "read"),
    ("get /v1/jobs/{id}/subtasks/{number}", "read"),
    ("get /v1/jobs/{id}/subtasks/{number}/logs", "read"),
    ("get /v1/jobs/{id}/explain", "read"),
    ("post /v1/jobs/{id}/cancel", "operate"),
    ("post /v1/jobs/{id}/pause", "operate"),
    ("post /v1/jobs/{id}/resume", "operate"),
    ("post /v1/jobs/{id}/retry", "operate"),
    ("get /v1/jobs/{id}/events", "read"),
    ("get /v1/events", "read"),
    ("get /v1/ws", "read"),
    ("get /v1/keys", "read"),
    ("post /v1/keys", "operate"),
    ("get /v1/keys/{key}", "read"),
    ("post /v1/keys/{key}/{what}", "operate"),
    ("post /v1/leases", "worker"),
    ("post /v1/leases/heartbeat", "worker"),
    ("post /v1/leases/complete", "worker"),
    ("post /v1/leases/{id}/heartbeat", "worker"),
    ("post /v1/leases/{id}/complete", "worker"),
    ("post /v1/leases/{id}/fail", "worker"),
    ("get /v1/audit", "operate"),
    ("get /v1/kinds", "read"),
    ("get /v1/kinds/{kind}", "read"),
    ("patch /v1/kinds/{kind}", "operate"),
    ("post /v1/kinds/{kind}/pause", "operate"),
    ("post /v1/kinds/{kind}/resume", "operate"),
    ("post /v1/kinds/{kind}/reset", "operate"),
    ("get /v1/webhooks", "operate"),
    ("post /v1/webhooks/{webhook}/retry", "operate"),
    ("delete /v1/webhooks/{webhook}", "operate"),
    ("post /v1/backup", "admin"),
    ("get /v1/tenants", "read"),
    ("get /v1/nodes", "read"),
    ("post /v1/nodes/drain", "operate"),
    ("post /v1/nodes/resume", "operate"),
    ("get /v1/scheduler", "read"),
    ("get /v1/history", "read"),
    ("get /v1/workers", "read"),
    ("get /v1/schedules", "read"),
    ("get /v1/schedules/{name}", "read"),
    ("put /v1/schedules/{name}", "operate"),
    ("delete /v1/schedules/{name}", "operate"),
    ("post /v1/schedules/{name}/pause", "operate"),
    ("post /v1/schedules/{name}/resume", "operate"),
    ("post /v1/schedules/{name}/run", "operate"),
    ("get /v1/summary", "read"),
    ("get /v1/timeline", "read"),
];

/// Each role, and what it includes: docs/serve/operations.md has the same table.
const ROLES: &[(&str, &[&str])] = &[
    ("read", &["read"]),
    ("submit", &["read", "submit"]),
    ("operate", &["read", "submit", "operate"]),
    ("worker", &["worker"]),
    ("admin", &["read", "submit", "operate", "worker", "admin"]),
];

fn token(role: &str) -> String {
    format!("the-token-of-{role}-here")
}

fn tokens() -> Tokens {
    let lines = ROLES.iter().map(|(role, _)| format!("{role} {role} plain:{}\n", token(role)));
    Tokens::parse(&lines.collect::<String>()).unwrap()
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

/// A service and a server on it, which live as long as this.
struct Scene {
    service: Service,
    server: HttpServer,
    client: Client,
    _folder: tempfile::TempDir,
}

async fn scene(settings: HttpSettings) -> Scene {
    let folder = tempfile::tempdir().unwrap();
    let service = builder(folder.path(), &Log::default()).start().await.unwrap();
    let (server, client) = serve_with(&service, settings).await;
    Scene { service, server, client, _folder: folder }
}

async fn with_tokens() -> Scene {
    scene(HttpSettings { tokens: tokens(), ..HttpSettings::default() }).await
}

impl Client {
    /// The status alone: an answer may have no end.
    async fn status(&self, operation: &str, token: Option<&str>) -> u16 {
        let (method, path) = operation.split_once(' ').unwrap();
        // Nothing is called that, so nothing happens to anything.
        let path = path
            .replace("{id}", "job_0000000000")
            .replace("{number}", "0")
            .replace("{key}", "nobody")
            .replace("{name}", "nobody")
            .replace("{what}", "retry-head")
            .replace("{code}", "gone");
        let method = method.to_uppercase().parse().unwrap();
        let mut request = self.http.request(method, format!("http://{}{path}", self.address));
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        request.send().await.unwrap().status().as_u16()
    }
}

/// All operations that the document describes, with what it says of each.
async fn documented(client: &Client) -> BTreeMap<String, Value> {
    let document = client.get("/openapi.json").await.expect(200).json();
    let paths = document["paths"].as_object().unwrap().clone();
    let operations = paths.into_iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().unwrap().clone();
        methods.into_iter().map(move |(method, said)| (format!("{method} {path}"), said))
    });
    operations.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_loopback_is_open_without_tokens() {
    let Scene { service, .. } = &scene(HttpSettings::default()).await;
    for open in ["0.0.0.0:0", "[::]:0"] {
        let listen = open.parse().unwrap();
        let settings = HttpSettings { listen, ..HttpSettings::default() };
        let refused = HttpServer::start(service, settings.clone()).await.unwrap_err();
        assert!(matches!(refused, ServeError::Open(_)), "{refused:?}");
        let text = refused.to_string();
        assert!(text.contains("no tokens are set") && text.contains("127.0.0.1"), "{text}");
        let guarded = HttpSettings { tokens: tokens(), ..settings };
        match HttpServer::start(service, guarded).await {
            Ok(server) => assert!(!server.address().ip().is_loopback()),
            // A machine may have no such addresses.
            Err(ServeError::Listen { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
    let settings =
        HttpSettings { listen: "127.0.0.2:0".parse().unwrap(), ..HttpSettings::default() };
    if let Err(refused) = HttpServer::start(service, settings).await {
        assert!(matches!(refused, ServeError::Listen { .. }), "{refused:?}");
    }
}

/// A path that is added is in the table and in the document, or this fails; and then the next test tries it.
#[tokio::test(flavor = "multi_thread")]
async fn every_route_is_described_and_has_its_role_here() {
    let scene = with_tokens().await;
    let documented = documented(&scene.client).await;
    let described: BTreeSet<&str> = documented.keys().map(String::as_str).collect();
    let here: BTreeSet<&str> = NEEDED.iter().map(|(operation, _)| *operation).collect();
    assert_eq!(described, here);
    assert_eq!(routes(), here);
    for (operation, role) in NEEDED {
        let answers = &documented[*operation]["responses"];
        let guarded = answers.get("401").is_some() && answers.get("403").is_some();
        assert_eq!(guarded, *role != "open", "{operation}: the document says 401 and 403, or not");
    }
}

/// The routes as the source has them: a router cannot be asked for its own. The dashboard's files are no part
/// of the API.
fn routes() -> BTreeSet<&'static str> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/http");
    let mut routes = BTreeSet::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for route in text.split(".route(").skip(1) {
            let (_, path) = route.split_once('"').unwrap();
            let (path, rest) = path.split_once('"').unwrap();
            // Up to the end of the call, whose arguments have balanced parentheses.
            let mut depth = 1;
            let ends = |letter: char| {
                depth += i32::from(letter == '(') - i32::from(letter == ')');
                depth == 0
            };
            let methods = &rest[..rest.find(ends).unwrap()];
            for method in ["get", "post", "put", "patch", "delete", "any"] {
                let is_there = methods
                    .split(|letter: char| !(letter.is_alphanumeric() || letter == '('))
                    .any(|word| word.starts_with(&format!("{method}(")));
                if is_there && path != "/" && path != "/ui/{*path}" {
                    routes.insert(&*format!("{method} {path}").leak());
                }
            }
        }
    }
    routes
}

#[tokio::test(flavor = "multi_thread")]
async fn each_role_may_do_what_it_is_for_and_nothing_else() {
    // Each server is sent few wrong tokens, for many are answered slowly.
    for operations in NEEDED.chunks(5) {
        let Scene { client, .. } = &with_tokens().await;
        for (operation, needed) in operations {
            each_role_may(client, operation, needed).await;
        }
    }
}

async fn each_role_may(client: &Client, operation: &str, needed: &str) {
    for (role, may) in ROLES {
        let status = client.status(operation, Some(&token(role))).await;
        let wanted = needed == "open" || may.contains(&needed);
        assert!(status != 401 && status != 405, "{role}: {operation} gives {status}");
        assert_eq!(status != 403, wanted, "{role}: {operation} gives {status}");
    }
    for unknown in [None, Some("the-token-of-nobody-here"), Some("")] {
        let status = client.status(operation, unknown).await;
        assert_eq!(status == 401, needed != "open", "{unknown:?}: {operation} gives {status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_no_token_learns_what_is_wanted_and_nothing_more() {
    let Scene { client, .. } = &with_tokens().await;
    let submit = r#"{"kind":"echo","payload":1}"#;
    let refused = client.post("/v1/jobs", submit).await.expect(401);
    assert_eq!(refused.headers["www-authenticate"], "Bearer");
    assert_eq!(refused.json()["code"], "unauthorized");
    // What is wrong with the token's form is no better than a wrong one.
    let admin = token("admin");
    for header in [bearer("no-such-token-at-all"), format!("Basic {admin}"), admin.clone()] {
        let headers = [("authorization", header.as_str()), ("content-type", "application/json")];
        let refused = client.send("POST", "/v1/jobs", &headers, submit).await.expect(401);
        assert!(!refused.text.contains("no-such-token"), "{}", refused.text);
    }
    // Nor does a path say whether it is there.
    assert_eq!(client.status("get /v1/jobs/{id}", None).await, 401);
    // A token that may only submit cannot cancel, and learns the name by which it is known.
    let refused = as_role(client, "submit", "POST", "/v1/jobs/job_0000000000/cancel").await;
    let refused = refused.expect(403).json();
    assert_eq!(refused["code"], "forbidden");
    assert!(refused["detail"].as_str().unwrap().contains("`submit`"), "{refused}");
    let all = as_role(client, "read", "GET", "/v1/jobs").await.expect(200).json();
    assert_eq!(all["items"], json!([]), "nothing was submitted");
}

async fn as_role(client: &Client, role: &str, method: &str, path: &str) -> Answered {
    client.send(method, path, &[("authorization", &bearer(&token(role)))], "").await
}

type Socket = WebSocketStream<MaybeTlsStream<tokio::net::TcpStream>>;

pub(crate) async fn connect(
    client: &Client,
    protocols: &str,
) -> Result<(Socket, Response<Option<Vec<u8>>>), tokio_tungstenite::tungstenite::Error> {
    let mut request = format!("ws://{}/v1/ws", client.address).into_client_request().unwrap();
    request.headers_mut().insert("sec-websocket-protocol", protocols.parse().unwrap());
    tokio_tungstenite::connect_async(request).await
}

pub(crate) async fn ask(socket: &mut Socket, message: &Value) -> Value {
    socket.send(Message::text(message.to_string())).await.unwrap();
    loop {
        if let Message::Text(text) = socket.next().await.unwrap().unwrap() {
            return serde_json::from_str(&text).unwrap();
        }
    }
}

pub(crate) fn submission(seq: u64) -> Value {
    json!({"op": "submit", "seq": seq, "job": {"kind": "hang", "payload": 1}})
}

/// One connection carries what needs several roles: each message is held against its own.
#[tokio::test(flavor = "multi_thread")]
async fn each_message_of_a_websocket_needs_its_role() {
    let Scene { client, .. } = &with_tokens().await;
    for protocols in ["keylane.v1", "keylane.v1, bearer.no-such-token-at-all"] {
        let refused = connect(client, protocols).await.unwrap_err();
        assert!(refused.to_string().contains("401"), "{refused}");
    }
    let worker = connect(client, &format!("keylane.v1, bearer.{}", token("worker"))).await;
    assert!(worker.unwrap_err().to_string().contains("403"));
    let mut id = String::new();
    // From the highest to the lowest: the first submits what the others look at.
    for (role, may) in ROLES.iter().rev().filter(|(role, _)| *role != "worker") {
        let protocols = format!("keylane.v1, bearer.{}", token(role));
        let (mut socket, answer) = connect(client, &protocols).await.unwrap();
        assert_eq!(answer.headers()["sec-websocket-protocol"], "keylane.v1", "not the token");
        let submitted = ask(&mut socket, &submission(1)).await;
        assert_eq!(submitted["op"] == "accepted", may.contains(&"submit"), "{role}: {submitted}");
        if role == &"admin" {
            id = submitted["job"]["id"].as_str().unwrap().to_owned();
        }
        for op in ["status", "follow"] {
            let seen = ask(&mut socket, &json!({"op": op, "seq": 2, "id": id})).await;
            assert_ne!(seen["op"], "refused", "{role}: {seen}");
        }
        let cancel = json!({"op": "cancel", "seq": 3, "id": id});
        let (mut socket, _) = connect(client, &protocols).await.unwrap();
        let cancelled = ask(&mut socket, &cancel).await;
        assert_eq!(cancelled["op"] == "job", may.contains(&"operate"), "{role}: {cancelled}");
        if cancelled["op"] != "job" {
            assert_eq!(cancelled["problem"]["code"], "forbidden");
        }
    }
}

/// A server that may only be looked at took jobs, and let them be cancelled, over a WebSocket: only the methods
/// of requests were looked at.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_changed_on_a_server_that_is_read_only() {
    let Scene { client, service, .. } =
        &scene(HttpSettings { tokens: tokens(), read_only: true, ..HttpSettings::default() }).await;
    for (operation, _) in NEEDED {
        let status = client.status(operation, Some(&token("admin"))).await;
        assert_eq!(status == 403, !operation.starts_with("get "), "{operation} gives {status}");
    }
    assert_eq!(client.get("/version").await.expect(200).json()["read_only"], true);
    let id = service.submit(r#"{"kind":"hang","payload":1}"#).await.unwrap().to_string();
    let protocols = format!("keylane.v1, bearer.{}", token("admin"));
    let (mut socket, _) = connect(client, &protocols).await.unwrap();
    for message in [submission(1), json!({"op": "cancel", "seq": 2, "id": id})] {
        let refused = ask(&mut socket, &message).await;
        assert_eq!(refused["problem"]["code"], "forbidden", "{refused}");
    }
    let all = as_role(client, "read", "GET", "/v1/jobs").await.expect(200).json();
    assert_eq!(all["items"].as_array().unwrap().len(), 1, "{all}");
    assert_ne!(all["items"][0]["state"], "cancelled", "{all}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_answers_to_its_own_names_only() {
    let hosts = vec!["tasks.example".to_owned()];
    let Scene { client, .. } = &scene(HttpSettings { hosts, ..HttpSettings::default() }).await;
    let asked_as = |host: &'static str| async move {
        client.send("GET", "/v1/jobs", &[("host", host)], "").await
    };
    for known in ["localhost", "127.0.0.1:1", "[::1]:7420", "TASKS.example:443"] {
        asked_as(known).await.expect(200);
    }
    for foreign in ["evil.example", "tasks.example.evil", "localhost.evil.example:7420"] {
        let refused = asked_as(foreign).await.expect(403).json();
        assert_eq!(refused["code"], "forbidden");
        assert!(refused["detail"].as_str().unwrap().contains("`hosts`"), "{refused}");
    }
    // Whether it lives is asked by whatever name it is reached by.
    client.send("GET", "/livez", &[("host", "evil.example")], "").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_site_changes_nothing() {
    let Scene { client, .. } = &scene(HttpSettings::default()).await;
    let host = client.address.to_string();
    let own = format!("http://{host}");
    let submit = |headers: Vec<(&'static str, String)>| async move {
        let mut all = vec![("content-type", "application/json")];
        all.extend(headers.iter().map(|(name, value)| (*name, value.as_str())));
        client.send("POST", "/v1/jobs", &all, r#"{"kind":"echo","payload":1}"#).await.status
    };
    for foreign in ["cross-site", "same-site"] {
        assert_eq!(submit(vec![("sec-fetch-site", foreign.into())]).await, 403);
    }
    assert_eq!(submit(vec![("origin", "https://evil.example".into())]).await, 403);
    assert_eq!(client.get("/v1/jobs").await.json()["items"], json!([]));
    assert_eq!(submit(vec![("sec-fetch-site", "same-origin".into())]).await, 202);
    assert_eq!(submit(vec![("origin", own)]).await, 202);
    // A connection that stays is as good as a write, and what only looks is let through: such a page cannot
    // read the answer.
    let mut request = format!("ws://{host}/v1/ws").into_client_request().unwrap();
    request.headers_mut().insert("origin", "https://evil.example".parse().unwrap());
    let refused = tokio_tungstenite::connect_async(request).await.unwrap_err();
    assert!(refused.to_string().contains("403"), "{refused}");
    let headers = [("sec-fetch-site", "cross-site")];
    let seen = client.send("GET", "/v1/jobs", &headers, "").await.expect(200);
    assert!(!seen.headers.contains_key("access-control-allow-origin"));
}

/// A page of the dashboard can use the API as it does, and no page of another site can hold it in a frame.
#[tokio::test(flavor = "multi_thread")]
async fn every_answer_tells_browsers_to_be_strict() {
    let Scene { client, server, .. } = scene(HttpSettings::default()).await;
    for path in ["/", "/livez", "/v1/jobs", "/v1/nothing", "/ui/js/main.js"] {
        let headers = client.get(path).await.headers;
        let policy = headers["content-security-policy"].to_str().unwrap();
        assert!(policy.contains("default-src 'self'"), "{path}: {policy}");
        assert!(policy.contains("frame-ancestors 'none'"), "{path}: {policy}");
        assert!(!policy.contains("unsafe"), "{path}: {policy}");
        assert_eq!(headers["x-content-type-options"], "nosniff", "{path}");
        assert!(headers.contains_key("x-request-id"), "{path}");
    }
    drop(server);
}

/// Any number of tokens could be tried, and no log said so.
#[tokio::test(flavor = "multi_thread")]
async fn wrong_tokens_are_slowed_and_right_ones_from_the_same_address_are_not() {
    let Scene { client, .. } = &with_tokens().await;
    let send = |token: String| {
        let client = client.clone();
        let authorization = format!("Bearer {token}");
        async move {
            let headers = [("authorization", authorization.as_str())];
            client.send("GET", "/v1/jobs", &headers, "").await
        }
    };
    // Without a token nothing is guessed.
    for _ in 0..20 {
        let asked = client.get("/v1/jobs").await.expect(401);
        assert!(!asked.headers.contains_key("connection"));
    }
    for guess in 0..10 {
        let wrong = send(format!("a-wrong-token-{guess:04}")).await.expect(401);
        assert!(!wrong.headers.contains_key("connection"));
    }
    let mut guesses = tokio::task::JoinSet::new();
    (0..60).for_each(|guess| drop(guesses.spawn(send(format!("a-wrong-token-{guess:04}")))));
    let mut refused = 0;
    while let Some(answer) = guesses.join_next().await {
        let answer = answer.unwrap();
        assert_eq!(answer.headers["connection"], "close");
        assert!(matches!(answer.status, 401 | 429), "{}", answer.text);
        refused += u32::from(answer.status == 429);
        if refused == 1 {
            // The maximum number of its answers waits now: the next is refused.
            send(token("read")).await.expect(200);
        }
    }
    assert!(refused > 0);
}
