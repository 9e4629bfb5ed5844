//! Remote workers are listed with what they run, also after a restart, and forgotten in time.

use std::path::Path;
use std::time::Duration;

use crate::common::{Client, Log, builder, serve_with};
use keylane_service::Service;
use keylane_service::http::{HttpServer, HttpSettings, Tokens};
use serde_json::{Value, json};

const TOKENS: &str = "\
    render-farm worker plain:the-token-of-the-render-farm
    other-farm worker plain:the-token-of-the-other-farm
    ann read plain:the-token-of-ann-who-looks
    bob submit plain:the-token-of-bob-who-submits";

struct Place {
    service: Service,
    server: HttpServer,
    client: Client,
}

impl Place {
    async fn start(folder: &Path) -> Self {
        let service = builder(folder, &Log::default()).start().await.unwrap();
        let tokens = Tokens::parse(TOKENS).unwrap();
        let settings = HttpSettings { tokens, ..HttpSettings::default() };
        let (server, client) = serve_with(&service, settings).await;
        Place { service, server, client }
    }

    async fn stop(self) {
        self.server.stop(Duration::from_secs(5)).await;
        self.service.stop(Duration::ZERO).await;
    }

    async fn send(&self, token: &str, (method, path): (&str, &str), body: &Value) -> Value {
        let authorization = format!("Bearer the-token-of-{token}");
        let headers =
            [("authorization", authorization.as_str()), ("content-type", "application/json")];
        let answer = self.client.send(method, path, &headers, &body.to_string()).await;
        assert!(answer.status < 300, "{}", answer.text);
        answer.json()
    }

    async fn submit(&self, job: Value) -> String {
        let job = self.send("bob-who-submits", ("POST", "/v1/jobs"), &job).await;
        job["id"].as_str().unwrap().to_owned()
    }

    async fn claim(&self, token: &str, worker: &str, most: u32) -> Vec<Value> {
        let ask = json!({"kinds": ["remote"], "max": most, "wait_ms": 60_000, "worker": worker});
        let answer = self.send(token, ("POST", "/v1/leases"), &ask).await;
        answer["leases"].as_array().unwrap().clone()
    }

    async fn page(&self, query: &str) -> Value {
        self.send("ann-who-looks", ("GET", &format!("/v1/workers{query}")), &json!({})).await
    }

    async fn list(&self) -> Vec<Value> {
        self.page("").await["items"].as_array().unwrap().clone()
    }
}

fn key_job(key: &str) -> Value {
    json!({"kind": "remote", "key": key, "payload": 1})
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_are_listed_with_their_tokens_kinds_and_leases() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::start(folder.path()).await;
    assert_eq!(place.list().await, [json!(null); 0]);
    let job = place.submit(key_job("album-7")).await;
    let lease = place.claim("the-render-farm", "w1", 1).await.remove(0);
    let held = place.list().await.remove(0);
    assert_eq!(
        (&held["name"], &held["token"], &held["kinds"], &held["waiting"], &held["leases"]),
        (&json!("w1"), &json!("render-farm"), &json!(["remote"]), &json!(0), &json!(1))
    );
    let running = &held["running"][0];
    assert_eq!((&running["job"], &running["number"]), (&json!(job), &json!(0)));
    assert_eq!((&running["keys"], &running["attempt"]), (&json!(["album-7"]), &json!(1)));
    assert_eq!(
        (&running["kind"], &running["expires_at"]),
        (&json!("remote"), &lease["expires_at"])
    );
    assert!(running["since"].is_string() && held["last_contact"].is_string(), "{held}");

    // Another worker waits, and is gone when its request is.
    let waiting = {
        let (client, ask) =
            (place.client.clone(), json!({"kinds": ["remote"], "wait_ms": 60_000}).to_string());
        tokio::spawn(async move {
            let headers = [("authorization", "Bearer the-token-of-the-other-farm")];
            client.send("POST", "/v1/leases", &headers, &ask).await
        })
    };
    let other = loop {
        if let Some(other) = place.list().await.get(1).filter(|other| other["waiting"] == 1) {
            break other.clone();
        }
    };
    assert_eq!((other.get("name"), &other["token"]), (None, &json!("other-farm")));
    assert_eq!((&other["leases"], &other["running"]), (&json!(0), &json!([])));
    let metrics = place.client.clone();
    let headers = [("authorization", "Bearer the-token-of-ann-who-looks")];
    let metrics = metrics.send("GET", "/metrics", &headers, "").await.text;
    assert!(metrics.contains("keylane_remote_workers 2"), "{metrics}");
    waiting.abort();
    while place.list().await[1]["waiting"] == 1 {}

    // Pages are in the order of the first requests.
    let first = place.page("?limit=1").await;
    assert_eq!(first["items"][0]["name"], "w1");
    let rest = place.page(&format!("?cursor={}", first["next_cursor"].as_str().unwrap())).await;
    assert_eq!(rest["items"][0]["token"], "other-farm");
    assert!(rest.get("next_cursor").is_none(), "{rest}");
    assert_eq!(place.page("?cursor=999999999999999").await["items"], json!([]));

    let end = json!({"leases": [{"id": lease["id"]}]});
    place.send("the-render-farm", ("POST", "/v1/leases/complete"), &end).await;
    let ended = place.list().await.remove(0);
    assert_eq!((&ended["leases"], &ended["running"]), (&json!(0), &json!([])));
}

/// A lease that another token extends is that worker's.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_listed_with_the_worker_that_was_heard_of_last() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::start(folder.path()).await;
    place.submit(key_job("a")).await;
    let lease = place.claim("the-render-farm", "w1", 1).await.remove(0);
    let beat = json!({"leases": [lease["id"]]});
    place.send("the-other-farm", ("POST", "/v1/leases/heartbeat"), &beat).await;
    let listed = place.list().await;
    let of = |worker: &Value| {
        (worker["token"].clone(), worker["name"].clone(), worker["leases"].clone())
    };
    let listed: Vec<_> = listed.iter().map(of).collect();
    let is = |token: &str, leases: u32| (json!(token), json!("w1"), json!(leases));
    assert_eq!(listed, [is("render-farm", 0), is("other-farm", 1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_listed_after_a_restart_by_its_lease() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::start(folder.path()).await;
    place.submit(key_job("a")).await;
    let lease = place.claim("the-render-farm", "w1", 1).await.remove(0);
    place.stop().await;
    let place = Place::start(folder.path()).await;
    let kept = place.list().await.remove(0);
    assert_eq!((&kept["name"], &kept["leases"]), (&json!("w1"), &json!(1)));
    assert!(kept.get("token").is_none() && kept.get("last_contact").is_none(), "{kept}");
    assert_eq!(kept["running"][0]["keys"], json!(["a"]));
    let beat = json!({"leases": [lease["id"]]});
    place.send("the-render-farm", ("POST", "/v1/leases/heartbeat"), &beat).await;
    let listed = place.list().await;
    assert_eq!(listed.len(), 1);
    assert_eq!((&listed[0]["token"], &listed[0]["leases"]), (&json!("render-farm"), &json!(1)));
    assert!(listed[0]["last_contact"].is_string());
    place.stop().await;
}

/// However many leases a worker has, the list has few of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_has_the_oldest_leases_of_a_worker() {
    let folder = tempfile::tempdir().unwrap();
    let settings = keylane_service::ServiceSettings {
        slots: 64,
        ..keylane_service::ServiceSettings::new(folder.path().join("store"))
    };
    let service = crate::common::builder_with(settings, &Log::default()).start().await.unwrap();
    let (_server, client) = crate::common::serve(&service).await;
    let subtasks: Vec<_> = (0..30).map(|n| json!({"key": format!("k{n}"), "payload": n})).collect();
    client.submit(&json!({"kind": "remote", "subtasks": subtasks}).to_string()).await;
    let mut count = 0;
    while count < 30 {
        let ask = json!({"kinds": ["remote"], "max": 30, "wait_ms": 60_000}).to_string();
        let claimed = client.post("/v1/leases", &ask).await.expect(200).json();
        count += claimed["leases"].as_array().unwrap().len();
    }
    let listed = client.get("/v1/workers").await.expect(200).json();
    let worker = &listed["items"][0];
    assert_eq!((&worker["leases"], &worker["token"]), (&json!(30), &json!("anyone")));
    let running = worker["running"].as_array().unwrap();
    assert_eq!(running.len(), 20);
    assert!(running.is_sorted_by_key(|lease| lease["since"].as_str().unwrap().to_owned()));
}
