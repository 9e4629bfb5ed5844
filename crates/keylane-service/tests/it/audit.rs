//! Each action of an operator is written down once: caller, action, object and result.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::common::{Answered, Client, Log, builder, builder_with, serve_with, settings};
use futures_util::{SinkExt, StreamExt};
use keylane_service::http::{self, HttpServer, Tokens};
use keylane_service::store::{self, Store};
use keylane_service::{Service, ServiceSettings};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

const ROLES: [&str; 4] = ["submit", "worker", "operate", "admin"];

fn token(role: &str) -> String {
    format!("the-token-of-{role}-here")
}

struct Scene {
    service: Service,
    server: HttpServer,
    client: Client,
    folder: tempfile::TempDir,
}

impl Scene {
    async fn new() -> Scene {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(folder.path());
        Scene::with(folder, settings).await
    }

    async fn with(folder: tempfile::TempDir, settings: ServiceSettings) -> Scene {
        let lines = ROLES.map(|role| format!("{role} {role} plain:{}\n", token(role))).concat();
        let service = builder_with(settings, &Log::default()).start().await.unwrap();
        let tokens = Tokens::parse(&lines).unwrap();
        let (server, client) =
            serve_with(&service, http::HttpSettings { tokens, ..Default::default() }).await;
        Scene { service, server, client, folder }
    }

    async fn stop(self) -> tempfile::TempDir {
        self.server.stop(Duration::from_secs(5)).await;
        self.service.stop(Duration::ZERO).await;
        self.folder
    }

    async fn send(
        &self,
        role: &str,
        operation: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answered {
        let (method, path) = operation.split_once(' ').unwrap();
        let bearer = format!("Bearer {}", token(role));
        let mut all = vec![("authorization", bearer.as_str())];
        if !body.is_empty() {
            all.push(("content-type", "application/json"));
        }
        all.extend(headers);
        self.client.send(method, path, &all, body).await
    }

    async fn ask(&self, operation: &str, body: &str) -> Answered {
        self.send("operate", operation, &[], body).await
    }

    async fn submit(&self, job: &str) -> String {
        let answer = self.ask("POST /v1/jobs", job).await.expect(202);
        answer.json()["id"].as_str().unwrap().to_owned()
    }

    async fn wait(&self, id: &str) {
        let operation = format!("GET /v1/jobs/{id}");
        loop {
            let answer = self.send("operate", &operation, &[("prefer", "wait=30")], "").await;
            let job = answer.expect(200).json();
            if matches!(job["state"].as_str(), Some("succeeded" | "failed" | "cancelled")) {
                return;
            }
        }
    }

    /// The log, the oldest entry first.
    async fn log(&self, query: &str) -> Vec<Value> {
        let (mut all, mut cursor) = (Vec::new(), String::new());
        loop {
            let path = format!("GET /v1/audit?limit=7{query}{cursor}");
            let page = self.send("admin", &path, &[], "").await.expect(200).json();
            all.extend(page["items"].as_array().unwrap().iter().cloned());
            let Some(next) = page["next_cursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        all.reverse();
        all
    }

    /// Entries of the log beyond the first `count`.
    async fn since(&self, known: usize) -> Vec<Value> {
        self.log("").await.split_off(known)
    }
}

/// What is as expected of an entry, without what is different each time.
fn plain(entry: &Value) -> Value {
    let mut entry = entry.clone();
    let fields = entry.as_object_mut().unwrap();
    fields.remove("number").unwrap();
    fields.remove("at").unwrap();
    entry
}

/// The operations that need the role of an operator, besides looking: found by asking, so none is left out.
async fn operators_operations(scene: &Scene) -> BTreeSet<String> {
    let document = scene.client.get("/openapi.json").await.expect(200).json();
    let mut found = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys().filter(|method| *method != "get") {
            let operation = format!("{} {path}", method.to_uppercase());
            let mut refused = true;
            for role in ["submit", "worker"] {
                refused &= scene.send(role, &filled(&operation), &[], "").await.status == 403;
            }
            if refused {
                found.insert(operation);
            }
        }
    }
    found
}

/// An operation on things that are not there.
fn filled(operation: &str) -> String {
    operation
        .replace("{id}", "job_0000000000")
        .replace("{key}", "nobody")
        .replace("{name}", "nobody")
        .replace("{kind}", "nothing")
        .replace("{what}", "retry-head")
}

/// 200, or 202 if something of it is still to come.
const DONE: u16 = 0;

/// A step of an operator: what is asked for, and what is in the log then.
struct Step {
    /// As the document has it.
    operation: &'static str,
    path: String,
    headers: &'static [(&'static str, &'static str)],
    body: Value,
    status: u16,
    entry: Value,
}

/// A route that is added without an entry here, or without one in the log, fails this.
#[tokio::test(flavor = "multi_thread")]
async fn each_action_on_each_route_is_written_once_with_who_and_what_came_of_it() {
    let scene = Scene::new().await;
    let operations = operators_operations(&scene).await;
    let live = scene.submit(r#"{"kind":"hang","key":"k/1","payload":1}"#).await;
    let over = scene.submit(r#"{"kind":"echo","payload":1}"#).await;
    let failed = scene.submit(r#"{"kind":"fail","payload":1}"#).await;
    for id in [&over, &failed] {
        scene.wait(id).await;
    }
    scene.ask("POST /v1/keys/h/pause", "").await.expect(200);
    let held = scene.submit(r#"{"kind":"echo","key":"h","payload":1}"#).await;
    let step = |operation: &'static str, id: &str, body: Value, status: u16, entry: Value| Step {
        operation,
        path: operation
            .split_once(' ')
            .unwrap()
            .1
            .replace("{id}", id)
            .replace("{name}", id)
            .replace("{kind}", "remote"),
        headers: &[],
        body,
        status,
        entry,
    };
    let job =
        |what: &str, id: &str, outcome: &str| json!({"what": what, "job": id, "outcome": outcome});
    let with = |mut entry: Value, field: &str, value: Value| {
        entry[field] = value;
        entry
    };
    let refused = |entry: Value, code: &str| with(entry, "problem", json!(code));
    let key = |what: &str, key: &str| json!({"what": what, "key": key, "outcome": "done"});
    let schedule =
        |what: &str, outcome: &str| json!({"what": what, "schedule": "s", "outcome": outcome});
    let kind =
        |what: &str, outcome: &str| json!({"what": what, "kind": "remote", "outcome": outcome});
    let nothing = Value::Null;
    let set = json!({"cron": "@yearly", "time_zone": "UTC", "job": {"kind": "echo", "payload": "s3cret"}});
    let set_as =
        json!({"cron": "@yearly", "time_zone": "UTC", "overlap": "allow", "missed": "once"});
    const ANY: &[(&str, &str)] = &[("if-match", "*")];
    let steps = vec![
        step(
            "POST /v1/jobs/{id}/pause",
            &live,
            nothing.clone(),
            200,
            job("job.pause", &live, "done"),
        ),
        step(
            "POST /v1/jobs/{id}/resume",
            &live,
            nothing.clone(),
            200,
            job("job.resume", &live, "done"),
        ),
        Step {
            headers: ANY,
            ..step(
                "PATCH /v1/jobs/{id}",
                &live,
                json!({"name": "n", "labels": {"a": "b"}}),
                200,
                with(
                    job("job.patch", &live, "done"),
                    "parameters",
                    json!({"name": "n", "labels": {"a": "b"}}),
                ),
            )
        },
        Step {
            headers: &[("if-match", "W/\"1\"")],
            ..step(
                "PATCH /v1/jobs/{id}",
                &live,
                json!({"weight": 7}),
                412,
                with(
                    refused(job("job.patch", &live, "refused"), "stale"),
                    "parameters",
                    json!({"weight": 7}),
                ),
            )
        },
        step(
            "PATCH /v1/jobs/{id}",
            &live,
            json!({"weight": 7}),
            428,
            refused(job("job.patch", &live, "refused"), "precondition-required"),
        ),
        step(
            "POST /v1/jobs/{id}/retry",
            &live,
            nothing.clone(),
            409,
            with(
                refused(job("job.retry", &live, "refused"), "conflict"),
                "parameters",
                json!({"only": "failed"}),
            ),
        ),
        step(
            "DELETE /v1/jobs/{id}",
            &live,
            nothing.clone(),
            409,
            refused(job("job.purge", &live, "refused"), "conflict"),
        ),
        step(
            "POST /v1/jobs/{id}/cancel",
            &live,
            json!({"mode": "kill", "reason": "it hangs"}),
            DONE,
            with(
                with(job("job.cancel", &live, "done"), "reason", json!("it hangs")),
                "parameters",
                json!({"mode": "kill"}),
            ),
        ),
        step(
            "POST /v1/jobs/{id}/cancel",
            &live,
            json!({"mood": 1}),
            422,
            refused(job("job.cancel", &live, "refused"), "invalid"),
        ),
        step(
            "POST /v1/jobs/{id}/cancel",
            &over,
            nothing.clone(),
            200,
            with(job("job.cancel", &over, "unchanged"), "parameters", json!({"mode": "graceful"})),
        ),
        step(
            "POST /v1/jobs/{id}/retry",
            &failed,
            json!({"only": "unsuccessful"}),
            DONE,
            with(job("job.retry", &failed, "done"), "parameters", json!({"only": "unsuccessful"})),
        ),
        step("DELETE /v1/jobs/{id}", &over, nothing.clone(), 204, job("job.purge", &over, "done")),
        step(
            "DELETE /v1/jobs/{id}",
            &over,
            nothing.clone(),
            410,
            refused(job("job.purge", &over, "refused"), "gone"),
        ),
        step(
            "POST /v1/jobs/{id}/pause",
            "no-such",
            nothing.clone(),
            404,
            refused(job("job.pause", "no-such", "refused"), "unknown"),
        ),
        Step {
            path: "/v1/keys/a%2Fb/pause".into(),
            ..step("POST /v1/keys/{key}/{what}", "", nothing.clone(), 200, key("key.pause", "a/b"))
        },
        Step {
            path: "/v1/keys/a%2Fb/resume".into(),
            ..step("POST /v1/keys/{key}/{what}", "", nothing.clone(), 200, key("key.resume", "a/b"))
        },
        Step {
            path: "/v1/keys/none/retry-head".into(),
            ..step(
                "POST /v1/keys/{key}/{what}",
                "",
                nothing.clone(),
                404,
                json!({"what": "key.retry-head", "key": "none", "outcome": "refused", "problem": "unknown"}),
            )
        },
        Step {
            path: "/v1/keys/none/dance".into(),
            ..step(
                "POST /v1/keys/{key}/{what}",
                "",
                nothing.clone(),
                404,
                json!({"what": "key.steer", "key": "none", "outcome": "refused", "problem": "unknown"}),
            )
        },
        Step {
            path: "/v1/keys?key=h&what=skip-head".into(),
            ..step("POST /v1/keys", "", nothing.clone(), 200, key("key.skip-head", "h"))
        },
        step(
            "PUT /v1/schedules/{name}",
            "s",
            set.clone(),
            201,
            with(schedule("schedule.put", "done"), "parameters", set_as.clone()),
        ),
        step(
            "PUT /v1/schedules/{name}",
            "s",
            set,
            200,
            with(schedule("schedule.put", "unchanged"), "parameters", set_as),
        ),
        step(
            "PUT /v1/schedules/{name}",
            "s",
            json!({}),
            422,
            refused(schedule("schedule.put", "refused"), "invalid"),
        ),
        step(
            "POST /v1/schedules/{name}/pause",
            "s",
            nothing.clone(),
            200,
            schedule("schedule.pause", "done"),
        ),
        step(
            "POST /v1/schedules/{name}/pause",
            "s",
            nothing.clone(),
            200,
            schedule("schedule.pause", "unchanged"),
        ),
        step(
            "POST /v1/schedules/{name}/resume",
            "s",
            nothing.clone(),
            200,
            schedule("schedule.resume", "done"),
        ),
        step(
            "POST /v1/schedules/{name}/run",
            "s",
            nothing.clone(),
            202,
            schedule("schedule.run", "done"),
        ),
        step(
            "DELETE /v1/schedules/{name}",
            "s",
            nothing.clone(),
            204,
            schedule("schedule.delete", "done"),
        ),
        step(
            "DELETE /v1/schedules/{name}",
            "s",
            nothing.clone(),
            404,
            refused(schedule("schedule.delete", "refused"), "unknown"),
        ),
        step(
            "POST /v1/schedules/{name}/run",
            "s",
            nothing.clone(),
            404,
            refused(schedule("schedule.run", "refused"), "unknown"),
        ),
        step(
            "POST /v1/kinds/{kind}/pause",
            "",
            json!({"reason": "deploy"}),
            200,
            with(kind("kind.pause", "done"), "reason", json!("deploy")),
        ),
        step("POST /v1/kinds/{kind}/resume", "", nothing.clone(), 200, kind("kind.resume", "done")),
        step(
            "POST /v1/kinds/{kind}/resume",
            "",
            nothing.clone(),
            200,
            kind("kind.resume", "unchanged"),
        ),
        step(
            "PATCH /v1/kinds/{kind}",
            "",
            json!({"concurrency": 3}),
            200,
            with(kind("kind.patch", "done"), "parameters", json!({"concurrency": 3})),
        ),
        step(
            "POST /v1/kinds/{kind}/reset",
            "",
            json!({"settings": ["concurrency"]}),
            200,
            with(kind("kind.reset", "done"), "parameters", json!({"settings": ["concurrency"]})),
        ),
        step(
            "POST /v1/webhooks/{webhook}/retry",
            "",
            nothing.clone(),
            404,
            json!({"what": "webhook.retry", "outcome": "refused", "problem": "unknown"}),
        ),
        step(
            "DELETE /v1/webhooks/{webhook}",
            "",
            nothing.clone(),
            404,
            json!({"what": "webhook.remove", "outcome": "refused", "problem": "unknown"}),
        ),
        // With a store in a file there is no other server.
        Step {
            path: "/v1/nodes/drain?address=http://a".into(),
            ..step(
                "POST /v1/nodes/drain",
                "",
                nothing.clone(),
                404,
                json!({
                    "what": "node.drain", "outcome": "refused", "problem": "unknown",
                    "parameters": {"address": "http://a"},
                }),
            )
        },
        Step {
            path: "/v1/nodes/resume?address=http://a".into(),
            ..step(
                "POST /v1/nodes/resume",
                "",
                nothing.clone(),
                404,
                json!({
                    "what": "node.resume", "outcome": "refused", "problem": "unknown",
                    "parameters": {"address": "http://a"},
                }),
            )
        },
        // Only an administrator gets a copy: `backups.rs`.
        step(
            "POST /v1/backup",
            "",
            nothing,
            403,
            json!({"what": "store.backup", "outcome": "refused", "problem": "forbidden"}),
        ),
    ];
    let tried: BTreeSet<String> = steps.iter().map(|step| step.operation.to_owned()).collect();
    assert_eq!(tried, operations, "each route by which an operator acts has a step here");
    let mut known = scene.log("").await.len();
    let mut last = 0;
    for Step { operation, path, headers, body, status, entry } in steps {
        let method = operation.split_once(' ').unwrap().0;
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = scene.send("operate", &format!("{method} {path}"), headers, &body).await;
        match status {
            DONE => assert!(matches!(answer.status, 200 | 202), "{operation}: {}", answer.text),
            status => assert_eq!(answer.status, status, "{operation}: {}", answer.text),
        }
        let new = scene.since(known).await;
        assert_eq!(new.len(), 1, "{operation}: {new:?}");
        known += 1;
        let mut expected = entry;
        expected["who"] = json!("operate");
        expected["from"] = json!("127.0.0.1");
        if operation == "POST /v1/schedules/{name}/run" && status == 202 {
            expected["job"] = answer.json()["id"].clone();
        }
        assert_eq!(plain(&new[0]), expected, "{operation}");
        let number = new[0]["number"].as_u64().unwrap();
        assert!(last == 0 || number == last + 1);
        last = number;
    }
    let all = scene.log("").await;
    let text = serde_json::to_string(&all).unwrap();
    assert!(!text.contains("s3cret"), "payloads are in no log");
    assert!(!text.contains("the-token-of"), "nor are tokens");
    // Submissions and looks are not what operators do.
    scene.submit(r#"{"kind":"echo","payload":1}"#).await;
    scene.ask(&format!("GET /v1/jobs/{held}"), "").await.expect(200);
    assert_eq!(scene.log("").await.len(), all.len());
    // And it is all there after a restart.
    let folder = scene.stop().await;
    let settings = settings(folder.path());
    let scene = Scene::with(folder, settings).await;
    assert_eq!(scene.log("").await, all);
    scene.stop().await;
}

/// A token that may only submit is refused, and cannot fill the log with refusals, however often it tries and where.
#[tokio::test(flavor = "multi_thread")]
async fn who_lacks_the_role_is_written_once_and_then_counted() {
    let scene = Scene::new().await;
    let operations = operators_operations(&scene).await;
    let log = scene.log("").await;
    let who: Vec<&str> = log.iter().map(|entry| entry["who"].as_str().unwrap()).collect();
    assert_eq!(who, ["submit", "worker"]);
    for entry in &log {
        assert_eq!(
            (&entry["outcome"], &entry["problem"]),
            (&json!("refused"), &json!("forbidden"))
        );
        assert_eq!(entry["from"], "127.0.0.1");
    }
    for operation in &operations {
        scene.send("submit", &filled(operation), &[], "").await.expect(403);
    }
    assert_eq!(scene.log("").await, log);
    // Two roles that are refused each of them, and once more.
    let denied = format!("{{outcome=\"denied\"}} {}", 3 * operations.len());
    let metrics = scene.ask("GET /metrics", "").await.expect(200).text;
    assert!(metrics.contains(&format!("keylane_operator_actions_total{denied}")), "{metrics}");
    // A caller without any token has no name.
    scene.client.post("/v1/jobs/job_0000000000/cancel", "").await.expect(401);
    assert_eq!(scene.log("").await, log);
    // Only operators read it.
    for role in ["submit", "worker"] {
        scene.send(role, "GET /v1/audit", &[], "").await.expect(403);
    }
    scene.ask("GET /v1/audit", "").await.expect(200);
    assert_eq!(scene.log("").await, log, "looking at it is not in it");
    scene.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_only_answered_again_is_no_other_action() {
    let scene = Scene::new().await;
    let set = r#"{"cron":"@yearly","job":{"kind":"echo","payload":1}}"#;
    scene.ask("PUT /v1/schedules/s", set).await.expect(201);
    let run = || scene.send("operate", "POST /v1/schedules/s/run", &[("idempotency-key", "a")], "");
    let first = run().await.expect(202).json();
    for _ in 0..3 {
        let again = run().await.expect(202);
        assert_eq!(again.headers["idempotent-replayed"], "true");
        assert_eq!(again.json()["id"], first["id"]);
    }
    let runs = scene.log("&what=schedule.run").await;
    assert_eq!(runs.len(), 1);
    assert_eq!(runs[0]["job"], first["id"]);
    // Requests at the same time count as one, or are refused.
    let headers = [("idempotency-key", "b")];
    let all = (0..8).map(|_| scene.send("operate", "POST /v1/schedules/s/run", &headers, ""));
    let answers = futures_util::future::join_all(all).await;
    assert!(answers.iter().any(|answer| answer.status == 202));
    let done = scene.log("&what=schedule.run").await;
    assert_eq!(done.iter().filter(|entry| entry["outcome"] == "done").count(), 2);
    scene.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_done_over_a_websocket_and_in_process_is_in_it() {
    let scene = Scene::new().await;
    let connect = |role: &'static str| {
        let mut request =
            format!("ws://{}/v1/ws", scene.client.address).into_client_request().unwrap();
        let protocols = format!("keylane.v1, bearer.{}", token(role));
        request.headers_mut().insert("sec-websocket-protocol", protocols.parse().unwrap());
        async { tokio_tungstenite::connect_async(request).await.unwrap().0 }
    };
    let id = scene.submit(r#"{"kind":"hang","payload":1}"#).await;
    let name = "named";
    scene.ask(&format!("PUT /v1/jobs/{name}"), r#"{"kind":"hang","payload":1}"#).await.expect(202);
    let named = scene.ask(&format!("GET /v1/jobs/{name}"), "").await.json()["id"].clone();
    let mut operator = connect("operate").await;
    let mut submitter = connect("submit").await;
    let mut expected = Vec::new();
    for (who, id, outcome) in [
        ("submit", &*id, "refused"),
        ("operate", &*id, "done"),
        ("operate", name, "done"),
        ("operate", "no-such-job", "refused"),
    ] {
        let socket = if who == "submit" { &mut submitter } else { &mut operator };
        let cancel = json!({"op": "cancel", "seq": 1, "id": id, "mode": "kill"});
        socket.send(Message::text(cancel.to_string())).await.unwrap();
        while !matches!(socket.next().await.unwrap().unwrap(), Message::Text(_)) {}
        let job = if id == name { named.clone() } else { json!(id) };
        let mut entry = json!({"who": who, "from": "127.0.0.1", "what": "job.cancel", "job": job,
            "parameters": {"mode": "kill"}, "outcome": outcome});
        if outcome == "refused" {
            entry["problem"] = json!(if who == "submit" { "forbidden" } else { "unknown" });
        }
        expected.push(entry);
        let log: Vec<Value> = scene.log("").await.iter().map(plain).collect();
        assert_eq!(log, expected);
    }
    scene.wait(&id).await;
    let other = scene.service.submit(r#"{"kind":"hang","payload":1}"#).await.unwrap();
    scene.service.cancel(other).await.unwrap();
    let last = scene.since(4).await;
    assert_eq!(last.len(), 1);
    assert_eq!(
        plain(&last[0]),
        json!({"who": "in-process", "what": "job.cancel", "job": other.to_string(), "outcome": "done"})
    );
    scene.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_are_found_by_who_what_job_and_time() {
    let scene = Scene::new().await;
    let id = scene.submit(r#"{"kind":"hang","payload":1}"#).await;
    for number in 0..9 {
        scene.ask(&format!("POST /v1/keys/k{number}/pause"), "").await.expect(200);
    }
    scene.send("admin", "POST /v1/keys/k/pause", &[], "").await.expect(200);
    scene.ask(&format!("POST /v1/jobs/{id}/pause"), "").await.expect(200);
    let all = scene.log("").await;
    let numbers = |log: &[Value]| -> Vec<u64> {
        log.iter().map(|entry| entry["number"].as_u64().unwrap()).collect()
    };
    assert_eq!(numbers(&all), (1..=11).collect::<Vec<_>>());
    assert_eq!(numbers(&scene.log("&who=admin").await), [10]);
    assert_eq!(numbers(&scene.log("&what=job.pause").await), [11]);
    assert_eq!(numbers(&scene.log(&format!("&job={id}")).await), [11]);
    assert_eq!(
        numbers(&scene.log("&who=operate&what=key.pause").await),
        (1..=9).collect::<Vec<_>>()
    );
    assert_eq!(scene.log("&job=no-such").await, [] as [Value; 0]);
    let at = all[10]["at"].as_str().unwrap();
    let since = scene.log(&format!("&since={at}")).await;
    assert!(since.iter().all(|entry| entry["at"].as_str().unwrap() >= at));
    assert!(numbers(&since).contains(&11));
    assert_eq!(scene.log("&since=2999-01-01T00:00:00Z").await, [] as [Value; 0]);
    for wrong in ["what=job.dance", "since=today", "cursor=x", "limit=0", "hwo=a"] {
        scene.ask(&format!("GET /v1/audit?{wrong}"), "").await.expect(422);
    }
    // A job that has gone is still found by its id.
    scene.ask(&format!("POST /v1/jobs/{id}/cancel"), r#"{"mode":"kill"}"#).await;
    scene.wait(&id).await;
    scene.ask(&format!("DELETE /v1/jobs/{id}"), "").await.expect(204);
    assert_eq!(numbers(&scene.log(&format!("&job={id}")).await), [11, 12, 13]);
    scene.stop().await;
}

/// Holds for any number of actions, and for long texts about them.
#[tokio::test(flavor = "multi_thread")]
async fn the_log_is_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let few = ServiceSettings { max_audit: 5, ..settings(folder.path()) };
    let scene = Scene::with(folder, few).await;
    for _ in 0..20 {
        scene.ask("POST /v1/keys/k/pause", "").await.expect(200);
        assert!(scene.log("").await.len() <= 5);
    }
    let numbers: Vec<Value> =
        scene.log("").await.iter().map(|entry| entry["number"].clone()).collect();
    assert_eq!(json!(numbers), json!([16, 17, 18, 19, 20]));
    let id = scene.submit(r#"{"kind":"hang","payload":1}"#).await;
    let long = json!({"reason": "é".repeat(30_000)}).to_string();
    let cancelled = scene.ask(&format!("POST /v1/jobs/{id}/cancel"), &long).await;
    assert!(matches!(cancelled.status, 200 | 202), "{}", cancelled.text);
    let labels: serde_json::Map<String, Value> =
        (0..30).map(|number| (format!("l{number}"), json!("v".repeat(100)))).collect();
    let patch = json!({"labels": labels}).to_string();
    scene.send("operate", &format!("PATCH /v1/jobs/{id}"), &[("if-match", "*")], &patch).await;
    let last = scene.log("").await.split_off(3);
    let reason = last[0]["reason"].as_str().unwrap();
    assert!(reason.len() <= 1024 && reason.len() > 1000 && reason.ends_with('…'));
    assert_eq!(last[1]["parameters"], json!({"too_large": ["labels"]}));
    let folder = scene.stop().await;

    // What is too old goes when the server looks, which it does as soon as it starts.
    let none = ServiceSettings { keep_audit: Some(Duration::ZERO), ..settings(folder.path()) };
    let scene = Scene::with(folder, none).await;
    while !scene.log("").await.is_empty() {}
    scene.ask("POST /v1/keys/k/pause", "").await.expect(200);
    let last = scene.send("admin", "GET /v1/audit", &[], "").await.expect(200).json();
    // It may have gone again by now; if not, no number was given before.
    for entry in last["items"].as_array().unwrap() {
        assert_eq!(entry["number"], 23);
    }
    scene.stop().await;
}

/// What there is no room for is neither done nor in the log; or both, as soon as there is room.
#[tokio::test(flavor = "multi_thread")]
async fn on_a_full_disk_there_is_no_action_without_its_entry() {
    let folder = tempfile::tempdir().unwrap();
    let store =
        store::StoreSettings { max_bytes: Some(1_000_000), ..store::StoreSettings::default() };
    let full = ServiceSettings { store: store.clone(), ..settings(folder.path()) };
    let scene = Scene::with(folder, full).await;
    let job =
        |delay: u64| json!({"kind": "echo", "payload": "x".repeat(150_000), "delay_ms": delay});
    let over = scene.submit(&job(0).to_string()).await;
    scene.wait(&over).await;
    while scene.ask("POST /v1/jobs", &job(3_600_000).to_string()).await.status == 202 {}
    let mut answered = 0;
    let refused = loop {
        let answer = scene.ask(&format!("POST /v1/keys/k{answered}/pause"), "").await;
        if answer.status != 200 {
            break answer;
        }
        answered += 1;
    };
    assert_eq!(refused.expect(507).json()["code"], "not-yet-written");
    let keys = |log: &[Value]| -> BTreeSet<String> {
        let keys = log.iter().filter(|entry| entry["what"] == "key.pause");
        keys.map(|entry| entry["key"].as_str().unwrap().to_owned()).collect()
    };
    let expected: BTreeSet<String> = (0..answered).map(|number| format!("k{number}")).collect();
    assert_eq!(keys(&scene.log("").await), expected);
    // What makes room has its entry, too; and then the last pause is written, which is in force all the while.
    scene.ask(&format!("DELETE /v1/jobs/{over}"), "").await.expect(204);
    assert_eq!(scene.log("&what=job.purge").await.len(), 1);
    let last = format!("k{answered}");
    while !keys(&scene.log("").await).contains(&last) {}
    let log = keys(&scene.log("").await);
    let folder = scene.stop().await;
    let (store, _) = Store::open(folder.path().join("store"), &store).unwrap();
    let paused = store.keys().unwrap().into_iter();
    let paused: BTreeSet<_> =
        paused.map(|(key, _)| String::from_utf8(key.0.to_vec()).unwrap()).collect();
    assert_eq!(paused, log);
    assert_eq!(store.check().unwrap().damage, []);
}

/// The routes of operators are in routers of their own, and paths that others have, too, have all their methods.
#[tokio::test(flavor = "multi_thread")]
async fn a_path_has_the_methods_of_all_its_routers() {
    let scene = Scene::new().await;
    let refused = scene.ask("POST /v1/jobs/job_0000000000", "").await.expect(405);
    let allowed = refused.headers["allow"].to_str().unwrap();
    for method in ["GET", "PUT", "PATCH", "DELETE"] {
        assert!(allowed.contains(method), "{allowed}");
    }
    assert!(scene.log("").await.is_empty());
    scene.stop().await;
}

/// Without tokens everybody is the same one.
#[tokio::test(flavor = "multi_thread")]
async fn without_tokens_it_was_anyone() {
    let folder = tempfile::tempdir().unwrap();
    let service = builder(folder.path(), &Log::default()).start().await.unwrap();
    let (server, client) = crate::common::serve(&service).await;
    client.post("/v1/keys/k/pause", "").await.expect(200);
    let page = client.get("/v1/audit").await.expect(200).json();
    assert_eq!(page["items"][0]["who"], "anyone");
    assert_eq!(page.get("next_cursor"), None);
    server.stop(Duration::from_secs(5)).await;
    service.stop(Duration::ZERO).await;
}
