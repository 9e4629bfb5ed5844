//! Operators pause kinds and change their limits while the service runs, and the changes last until they are
//! taken back.

use std::path::Path;
use std::time::Duration;

use crate::common::{Client, Log, builder, serve};
use keylane_service::handle::{CommandHandler, FunctionHandler, WorkerHandler};
use keylane_service::http::HttpServer;
use keylane_service::store::Store;
use keylane_service::{Kind, Service};
use serde_json::{Value, json};

async fn start(folder: &Path) -> (Service, HttpServer, Client) {
    let service = builder(folder, &Log::default()).start().await.unwrap();
    let (server, client) = serve(&service).await;
    (service, server, client)
}

async fn stop(service: Service, server: HttpServer) {
    server.stop(Duration::from_secs(5)).await;
    service.stop(Duration::ZERO).await;
}

/// Applies an action, and returns the kind as it is then.
async fn act(client: &Client, action: &str, body: &Value) -> Value {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    client.post(&format!("/v1/kinds/{action}"), &body).await.expect(200).json()
}

async fn patch(client: &Client, kind: &str, body: &Value) -> Value {
    let json = [("content-type", "application/json")];
    let path = format!("/v1/kinds/{kind}");
    client.send("PATCH", &path, &json, &body.to_string()).await.expect(200).json()
}

async fn kind(client: &Client, name: &str) -> Value {
    client.get(&format!("/v1/kinds/{name}")).await.expect(200).json()
}

async fn job(client: &Client, id: &str) -> Value {
    client.get(&format!("/v1/jobs/{id}")).await.expect(200).json()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_kind_starts_nothing_and_says_why_and_others_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let (service, server, client) = start(folder.path()).await;
    let running = client.submit(r#"{"kind":"hang","payload":1}"#).await;
    client.wait_until(&running, |job| job["counts"]["running"] == 1).await;
    let paused = act(&client, "hang/pause", &json!({"reason": "the disk is replaced"})).await;
    assert_eq!((&paused["paused"], &paused["running"]), (&json!(true), &json!(1)), "{paused}");
    assert_eq!(paused["pause_reason"], "the disk is replaced");
    let waiting = client.submit(r#"{"kind":"hang","key":"k","payload":2}"#).await;
    let other = client.submit(r#"{"kind":"echo","payload":3}"#).await;
    assert_eq!(client.wait(&other).await["state"], "succeeded");
    let because = &job(&client, &waiting).await["waiting_because"][0];
    assert_eq!(because["reason"], "kind_paused", "{because}");
    assert_eq!(because["since"], paused["paused_since"]);
    let text = because["text"].as_str().unwrap();
    assert!(text.contains("`hang` is paused (the disk is replaced)"), "{text}");
    // What runs goes on, and can be cancelled.
    assert_eq!(job(&client, &running).await["counts"]["running"], 1);
    client.post(&format!("/v1/jobs/{running}/cancel"), r#"{"mode":"kill"}"#).await;
    assert_eq!(client.wait(&running).await["state"], "cancelled");
    // The interrupted start of the paused kind is not tried again, and a second pause keeps the time.
    let again = act(&client, "hang/pause", &Value::Null).await;
    assert_eq!(again["paused_since"], paused["paused_since"]);
    assert_eq!(again.get("pause_reason"), None);
    assert_eq!(job(&client, &waiting).await["counts"]["running"], 0);
    let resumed = act(&client, "hang/resume", &Value::Null).await;
    assert_eq!((&resumed["paused"], resumed.get("paused_since")), (&json!(false), None));
    client.wait_until(&waiting, |job| job["counts"]["running"] == 1).await;
    stop(service, server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn remote_workers_get_no_lease_of_a_paused_kind() {
    let folder = tempfile::tempdir().unwrap();
    let (service, server, client) = start(folder.path()).await;
    act(&client, "remote/pause", &Value::Null).await;
    let id = client.submit(r#"{"kind":"remote","payload":1}"#).await;
    let claim = |wait: u32| json!({"kinds": ["remote"], "wait_ms": wait}).to_string();
    let none = client.post("/v1/leases", &claim(50)).await.expect(200).json();
    assert_eq!(none["leases"], json!([]));
    assert_eq!(job(&client, &id).await["waiting_because"][0]["reason"], "kind_paused");
    // A worker that waits meanwhile gets it.
    let claim = claim(60_000);
    let (lease, _) = tokio::join!(
        client.post("/v1/leases", &claim),
        act(&client, "remote/resume", &Value::Null)
    );
    assert_eq!(lease.expect(200).json()["leases"][0]["payload"], 1);
    stop(service, server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_limits_last_over_restart_and_reload_until_they_are_reset() {
    let folder = tempfile::tempdir().unwrap();
    let (service, server, client) = start(folder.path()).await;
    let limits = json!({"concurrency": 1, "per_second": 1000, "attempts": 2, "timeout_ms": 60_000});
    let changed = patch(&client, "hang", &limits).await;
    let names = json!(["concurrency", "per_second", "attempts", "timeout_ms"]);
    assert_eq!(changed["changed"], names);
    patch(&client, "echo", &json!({"concurrency": 3})).await;
    act(&client, "fail/pause", &Value::Null).await;
    stop(service, server).await;

    let (service, server, client) = start(folder.path()).await;
    for is_reloaded in [false, true] {
        if is_reloaded {
            let hang =
                FunctionHandler::new(|attempt: keylane_service::handle::Attempt| async move {
                    attempt.cancelled.cancelled().await;
                    Ok(None)
                });
            let other = Kind { concurrency: Some(9), attempts: 7, ..Kind::new(hang) };
            service.reload_kinds(vec![("hang".to_owned(), other)]).await;
        }
        let hang = kind(&client, "hang").await;
        assert_eq!((&hang["concurrency"], &hang["attempts"]), (&json!(1), &json!(2)), "{hang}");
        assert_eq!(hang["changed"], names);
    }
    let id = client.submit(r#"{"kind":"hang","subtasks":[{},{}]}"#).await;
    client.wait_until(&id, |job| job["counts"]["running"] == 1).await;
    assert_eq!(job(&client, &id).await["waiting_because"][0]["reason"], "kind_at_limit");
    let one = act(&client, "hang/reset", &json!({"settings": ["concurrency"]})).await;
    assert_eq!((&one["concurrency"], &one["attempts"]), (&json!(9), &json!(2)), "{one}");
    client.wait_until(&id, |job| job["counts"]["running"] == 2).await;
    let all = act(&client, "hang/reset", &Value::Null).await;
    assert_eq!((&all["changed"], &all["attempts"]), (&json!([]), &json!(7)), "{all}");
    stop(service, server).await;

    // A reset does not end a pause, and the kinds without a configuration keep their changes.
    let (service, server, client) = start(folder.path()).await;
    assert_eq!(kind(&client, "hang").await["changed"], json!([]));
    assert_eq!(kind(&client, "echo").await["concurrency"], 3);
    assert_eq!(act(&client, "fail/reset", &Value::Null).await["paused"], true);
    stop(service, server).await;
    let store = Store::inspect(folder.path().join("store")).unwrap();
    assert!(store.damage.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_change_is_refused_with_its_place_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (service, server, client) = start(folder.path()).await;
    let before = kind(&client, "echo").await;
    let json = [("content-type", "application/json")];
    for (body, place) in [
        (r#"{"concurrency":0}"#, "/concurrency"),
        (r#"{"per_second":-1}"#, "/per_second"),
        (r#"{"per_second_per_key":0}"#, "/per_second_per_key"),
        (r#"{"burst":0}"#, "/burst"),
        (r#"{"attempts":0}"#, "/attempts"),
        (r#"{"timeout_ms":0}"#, "/timeout_ms"),
        (r#"{"workers":3}"#, "/workers"),
    ] {
        let refused = client.send("PATCH", "/v1/kinds/echo", &json, body).await.expect(422).json();
        assert_eq!(refused["errors"][0]["pointer"], place, "{refused}");
    }
    let long = json!({"reason": "x".repeat(1025)}).to_string();
    client.post("/v1/kinds/echo/pause", &long).await.expect(422);
    client.post("/v1/kinds/echo/reset", r#"{"settings":["workers"]}"#).await.expect(422);
    // What would have no effect: the kind has no rate.
    for (body, remedy) in [
        (r#"{"burst":5}"#, "set `per_second` too"),
        (r#"{"burst_per_key":5}"#, "set `per_second_per_key` too"),
    ] {
        let refused = client.send("PATCH", "/v1/kinds/echo", &json, body).await.expect(409);
        assert!(refused.text.contains(remedy), "{}", refused.text);
    }
    client.post("/v1/kinds/nothing/pause", "").await.expect(404);
    client.get("/v1/kinds/nothing").await.expect(404);
    assert_eq!(kind(&client, "echo").await, before);
    // An action that changes nothing is done all the same.
    assert_eq!(act(&client, "echo/resume", &Value::Null).await, before);
    stop(service, server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_than_its_workers_run_is_refused_and_as_many_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let workers = WorkerHandler::new(CommandHandler::new(["cat"]), 2, None);
    // As the configuration file sets it.
    let worked = Kind { concurrency: Some(2), ..Kind::new(workers) };
    let service = builder(folder.path(), &Log::default()).kind("worked", worked);
    let service = service.start().await.unwrap();
    let (server, client) = serve(&service).await;
    let json = [("content-type", "application/json")];
    let body = r#"{"concurrency":3}"#;
    let refused = client.send("PATCH", "/v1/kinds/worked", &json, body).await.expect(409);
    assert!(refused.text.contains("the configured workers run 2"), "{}", refused.text);
    assert!(refused.text.contains("configure more `workers`"), "{}", refused.text);
    assert_eq!(patch(&client, "worked", &json!({"concurrency": 2})).await["concurrency"], 2);
    assert_eq!(patch(&client, "worked", &json!({"concurrency": 1})).await["concurrency"], 1);
    stop(service, server).await;
}
