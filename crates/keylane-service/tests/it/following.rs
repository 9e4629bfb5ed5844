//! A client that reconnects gets the missed events, or learns that they are gone; a repeated request gets the same job.

use std::path::Path;
use std::time::Duration;

use crate::common::{Client, Log, builder, serve};
use futures_util::StreamExt;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use keylane_service::Service;
use keylane_service::http::{self, HttpServer};
use serde_json::{Value, json};

async fn start(folder: &Path) -> (Service, HttpServer, Client) {
    let service = builder(folder, &Log::default()).start().await.unwrap();
    let (server, client) = serve(&service).await;
    (service, server, client)
}

async fn stop(service: Service, server: HttpServer) {
    server.stop(Duration::from_secs(5)).await;
    service.stop(Duration::from_secs(5)).await;
}

/// A connection that follows.
struct Follower {
    response: reqwest::Response,
    said: String,
}

/// An event as it is sent.
#[derive(Clone, Debug, PartialEq)]
struct Event {
    id: String,
    event: String,
    data: Value,
}

impl Follower {
    async fn new(client: &Client, path: &str, after: Option<&str>) -> Self {
        let mut request = client.http.get(format!("http://{}{path}", client.address));
        if let Some(after) = after {
            request = request.header("last-event-id", after);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let mut follower = Follower { response, said: String::new() };
        // With this it follows, and misses nothing from here on.
        assert!(follower.block().await.contains(": keylane"));
        follower
    }

    /// What comes up to the next empty line.
    async fn block(&mut self) -> String {
        loop {
            if let Some((block, rest)) = self.said.split_once("\n\n") {
                let block = block.to_owned();
                self.said = rest.to_owned();
                return block;
            }
            let part = self.response.chunk().await.unwrap().expect("the stream has no end");
            self.said.push_str(std::str::from_utf8(&part).unwrap());
        }
    }

    async fn next(&mut self) -> Event {
        // One without data only shows that the connection lives.
        let mut block = self.block().await;
        while !block.contains("data: ") {
            block = self.block().await;
        }
        let field =
            |name: &str| block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        Event {
            id: field("id").unwrap().to_owned(),
            event: field("event").unwrap().to_owned(),
            data: serde_json::from_str(field("data").unwrap()).unwrap(),
        }
    }

    /// Events up to the one of this sort about this job.
    async fn until(&mut self, event: &str, job: &str) -> Vec<Event> {
        let mut all = Vec::new();
        loop {
            all.push(self.next().await);
            let last = all.last().unwrap();
            if last.event == event && last.data["job"]["id"] == job {
                return all;
            }
        }
    }
}

const ECHO: &str = r#"{"kind":"echo","payload":1}"#;

#[tokio::test(flavor = "multi_thread")]
async fn who_comes_back_gets_everything_that_was_missed() {
    let folder = tempfile::tempdir().unwrap();
    let (_service, _server, client) = start(folder.path()).await;
    let mut steady = Follower::new(&client, "/v1/events", None).await;
    let mut first = Follower::new(&client, "/v1/events", None).await;
    let before = client.submit(ECHO).await;
    let last = first.until("job_ended", &before).await.pop().unwrap();
    drop(first);
    for _ in 0..20 {
        client.submit(ECHO).await;
    }
    let after = client.submit(ECHO).await;
    client.wait(&after).await;
    let all = steady.until("job_ended", &after).await;
    let at = all.iter().position(|event| event.id == last.id).unwrap();
    // By the header, as browsers send it, and by the query, for clients that cannot set one.
    let by_query = format!("/v1/events?after={}", last.id);
    for (path, header) in [("/v1/events", Some(last.id.as_str())), (by_query.as_str(), None)] {
        let mut again = Follower::new(&client, path, header).await;
        assert_eq!(again.until("job_ended", &after).await, all[at + 1..]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_longer_known_is_said_to_be() {
    let folder = tempfile::tempdir().unwrap();
    let (service, server, client) = start(folder.path()).await;
    let job = client.submit(ECHO).await;
    client.wait(&job).await;
    let mut follower = Follower::new(&client, &format!("/v1/jobs/{job}/events"), None).await;
    let known = follower.next().await;
    // A follower of one job first receives its current state.
    assert_eq!((&*known.event, &known.data["job"]["state"]), ("job_ended", &json!("succeeded")));
    for unknown in ["nonsense", "0-0", &format!("{}0000", known.id)] {
        let mut again = Follower::new(&client, "/v1/events", Some(unknown)).await;
        let reset = again.next().await;
        assert_eq!(reset.event, "reset", "{unknown}");
        // From there it goes on.
        let next = client.submit(ECHO).await;
        let news = again.until("job_ended", &next).await;
        assert!(news.iter().all(|event| event.event != "reset"), "{news:?}");
    }
    drop(follower);
    stop(service, server).await;
    // Events are in memory: those of an earlier start are not mistaken for those of this one.
    let (_service, _server, client) = start(folder.path()).await;
    let mut again =
        Follower::new(&client, &format!("/v1/jobs/{job}/events"), Some(&known.id)).await;
    assert_eq!(again.next().await.event, "reset");
    assert_eq!(again.next().await.data["job"]["state"], "succeeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_request_is_the_same_job_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let headers = [("content-type", "application/json"), ("idempotency-key", "once")];
    let (service, server, client) = start(folder.path()).await;
    let first = client.send("POST", "/v1/jobs", &headers, ECHO).await.expect(202).json();
    client.wait(first["id"].as_str().unwrap()).await;
    stop(service, server).await;

    let (_service, _server, client) = start(folder.path()).await;
    let again = client.send("POST", "/v1/jobs", &headers, ECHO).await.expect(202);
    assert_eq!(again.json()["id"], first["id"]);
    assert_eq!(again.json()["state"], "succeeded");
    assert_eq!(again.headers["idempotent-replayed"], "true");
    let other = r#"{"kind":"echo","payload":2}"#;
    let refused = client.send("POST", "/v1/jobs", &headers, other).await.expect(422);
    assert_eq!(refused.json()["code"], "other-request");
    let all = client.get("/v1/jobs").await.expect(200).json();
    assert_eq!(all["items"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_prefers_to_wait_is_answered_at_the_end_in_time_or_at_the_stop() {
    let folder = tempfile::tempdir().unwrap();
    let (service, server, client) = start(folder.path()).await;
    let send = |wait: &'static str, job: &'static str| {
        let client = client.clone();
        async move {
            let headers = [("content-type", "application/json"), ("prefer", wait)];
            client.send("POST", "/v1/jobs", &headers, job).await
        }
    };
    let hang = r#"{"kind":"hang","name":"hang","payload":1}"#;
    // The time is up: it is accepted, and says so.
    for wait in ["wait=0", "wait=1"] {
        let late = send(wait, hang).await.expect(202);
        assert_eq!(late.headers["preference-applied"], wait);
        assert!(late.headers.contains_key("retry-after"));
        let id = late.json()["id"].as_str().unwrap().to_owned();
        client.post(&format!("/v1/jobs/{id}/cancel"), r#"{"mode":"kill"}"#).await;
        client.wait(&id).await;
    }
    let waiting = tokio::spawn(send("respond-async, wait=60", hang));
    // It has been accepted as soon as it can be seen.
    while client.get("/v1/jobs?state=running").await.json()["items"].as_array().unwrap().is_empty()
    {
    }
    assert!(!waiting.is_finished());
    server.stop(Duration::from_secs(30)).await;
    let answer = waiting.await.unwrap().expect(202);
    // As it was when the request looked at it last, which may be before it began.
    let job = answer.json();
    assert!(matches!(job["state"].as_str(), Some("queued" | "running")), "{job}");
    service.stop(Duration::ZERO).await;
}

/// Nothing that happens once the answer has begun is missed, however late its first part is read.
#[tokio::test]
async fn who_is_answered_follows_already() {
    let folder = tempfile::tempdir().unwrap();
    let service = builder(folder.path(), &Log::default()).start().await.unwrap();
    let routes = TowerToHyperService::new(http::routes(&service, http::HttpSettings::default()));
    let request = |method: &str, path: &str| {
        let request = axum::http::Request::builder().method(method).uri(path);
        request.header("host", "localhost").body(axum::body::Body::empty()).unwrap()
    };
    let followed = routes.call(request("GET", "/v1/events")).await.unwrap();
    assert_eq!(followed.status(), 200);
    let paused = routes.call(request("POST", "/v1/keys/k/pause")).await.unwrap();
    assert_eq!(paused.status(), 200);
    let mut said = String::new();
    let mut parts = followed.into_body().into_data_stream();
    while !said.contains("event: key_changed") {
        let part = tokio::time::timeout(Duration::from_secs(60), parts.next()).await;
        let part = part.unwrap_or_else(|_| panic!("it is missing in: {said}"));
        said.push_str(std::str::from_utf8(&part.unwrap().unwrap()).unwrap());
    }
}
