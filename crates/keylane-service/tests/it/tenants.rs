//! Tenants share the slots of a running service: a job names one, or its token does, and the limits of each are in
//! force at once, visible, and the same after a restart.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::common::{Client, Log, builder_with, serve, serve_with, settings};
use keylane_service::http::{HttpServer, HttpSettings, Tokens};
use keylane_service::{Service, ServiceSettings, StartRate, Tenant, Tenants};
use serde_json::{Value, json};

const JSON: (&str, &str) = ("content-type", "application/json");

fn named(tenants: &[(&str, Tenant)]) -> Tenants {
    let named = tenants.iter().map(|(name, tenant)| ((*name).to_owned(), *tenant));
    Tenants { named: named.collect::<BTreeMap<_, _>>(), refuse_unknown: false }
}

fn at_most(max_workers: usize) -> Tenant {
    Tenant { max_workers: Some(max_workers), ..Tenant::default() }
}

async fn start(folder: &Path, tenants: Tenants) -> Service {
    let settings = ServiceSettings { tenants, ..settings(folder) };
    builder_with(settings, &Log::default()).start().await.unwrap()
}

async fn stop(service: Service, server: HttpServer) {
    server.stop(Duration::from_secs(5)).await;
    service.stop(Duration::ZERO).await;
}

async fn job(client: &Client, id: &str) -> Value {
    client.get(&format!("/v1/jobs/{id}")).await.expect(200).json()
}

async fn tenant(client: &Client, name: &str) -> Value {
    let all = client.get("/v1/tenants").await.expect(200).json();
    let all = all["items"].as_array().unwrap().clone();
    all.into_iter().find(|tenant| tenant["name"] == name).unwrap_or(Value::Null)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_at_its_maximum_says_so_and_keeps_no_slot_from_others() {
    let folder = tempfile::tempdir().unwrap();
    let service = start(folder.path(), named(&[("ann", at_most(1))])).await;
    let (server, client) = serve(&service).await;
    let first = client.submit(r#"{"kind":"hang","tenant":"ann","subtasks":[{},{}]}"#).await;
    client.wait_until(&first, |job| job["counts"]["running"] == 1).await;
    let other = client.submit(r#"{"kind":"hang","subtasks":[{},{},{}]}"#).await;
    client.wait_until(&other, |job| job["counts"]["running"] == 3).await;
    let waiting = job(&client, &first).await;
    assert_eq!(waiting["tenant"], "ann");
    for (name, listed) in [("ann", Some(&first)), ("default", Some(&other)), ("bob", None)] {
        let page = client.get(&format!("/v1/jobs?tenant={name}")).await.expect(200).json();
        let ids = page["items"].as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap());
        assert!(ids.eq(listed.map(String::as_str)), "{name}: {page}");
    }
    let because = &waiting["waiting_because"][0];
    assert_eq!(because["reason"], "tenant_at_limit", "{because}");
    let text = because["text"].as_str().unwrap();
    assert!(text.contains("`ann` has as many slots as its `max_workers`"), "{text}");
    let ann = tenant(&client, "ann").await;
    let expected = json!({
        "name": "ann", "configured": true, "weight": 1, "min_workers": 0, "max_workers": 1,
        "jobs": 1, "running": 1, "unfinished": 2,
    });
    assert_eq!(ann, expected);
    let default = tenant(&client, "default").await;
    assert_eq!((&default["running"], &default["configured"]), (&json!(3), &json!(false)));
    // A reload raises the maximum.
    client.post(&format!("/v1/jobs/{other}/cancel"), r#"{"mode":"kill"}"#).await;
    client.wait(&other).await;
    service.reload_tenants(named(&[("ann", at_most(2))]));
    client.wait_until(&first, |job| job["counts"]["running"] == 2).await;
    service.reload_tenants(Tenants::default());
    assert_eq!(tenant(&client, "ann").await["configured"], false);
    stop(service, server).await;

    // The tenant of a job is stored, and its limits are in force before anything starts.
    let service = start(folder.path(), named(&[("ann", at_most(1))])).await;
    let (server, client) = serve(&service).await;
    client.wait_until(&first, |job| job["counts"]["running"] == 1).await;
    let ann = tenant(&client, "ann").await;
    assert_eq!((&ann["running"], &ann["unfinished"]), (&json!(1), &json!(2)), "{ann}");
    client.post(&format!("/v1/jobs/{first}/cancel"), r#"{"mode":"kill"}"#).await;
    client.wait(&first).await;
    let ann = tenant(&client, "ann").await;
    assert_eq!((&ann["jobs"], &ann["unfinished"]), (&json!(0), &json!(0)), "{ann}");
    stop(service, server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_waiting_work_of_a_tenant_is_bounded_and_others_are_taken() {
    let folder = tempfile::tempdir().unwrap();
    let bounded = Tenant { max_waiting: Some(2), ..Tenant::default() };
    let service = start(folder.path(), named(&[("ann", bounded)])).await;
    let (server, client) = serve(&service).await;
    let two = client.submit(r#"{"kind":"hang","tenant":"ann","subtasks":[{},{}]}"#).await;
    let more = r#"{"kind":"echo","tenant":"ann","payload":1}"#;
    let refused = client.post("/v1/jobs", more).await.expect(429);
    assert_eq!(refused.json()["code"], "backlog-full");
    let detail = refused.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("tenant `ann`") && detail.contains("`max_waiting`"), "{detail}");
    assert!(refused.headers.contains_key("retry-after"));
    let other = client.submit(r#"{"kind":"echo","payload":1}"#).await;
    assert_eq!(client.wait(&other).await["state"], "succeeded");
    client.post(&format!("/v1/jobs/{two}/cancel"), r#"{"mode":"kill"}"#).await;
    client.wait(&two).await;
    let taken = client.submit(more).await;
    assert_eq!(client.wait(&taken).await["state"], "succeeded");
    // A retry needs room too.
    let one = client.submit(r#"{"kind":"hang","tenant":"ann","payload":1}"#).await;
    let retry = r#"{"only":"unsuccessful"}"#;
    client.post(&format!("/v1/jobs/{two}/retry"), retry).await.expect(429);
    client.post(&format!("/v1/jobs/{one}/cancel"), r#"{"mode":"kill"}"#).await;
    client.wait(&one).await;
    client.post(&format!("/v1/jobs/{two}/retry"), retry).await.accepted();
    assert_eq!(job(&client, &two).await["tenant"], "ann");
    stop(service, server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rate_of_a_tenant_holds_for_all_its_jobs_and_says_until_when() {
    let folder = tempfile::tempdir().unwrap();
    let rate = Some(StartRate { per_second: 0.001, burst: 1 });
    let service =
        start(folder.path(), named(&[("ann", Tenant { rate, ..Tenant::default() })])).await;
    let (server, client) = serve(&service).await;
    let first = client.submit(r#"{"kind":"echo","tenant":"ann","payload":1}"#).await;
    assert_eq!(client.wait(&first).await["state"], "succeeded");
    let second = client.submit(r#"{"kind":"echo","tenant":"ann","payload":2}"#).await;
    let because = job(&client, &second).await["waiting_because"][0].clone();
    assert_eq!(because["reason"], "tenant_rate_limited", "{because}");
    assert!(because["until"].is_string() && because["text"].as_str().unwrap().contains("`ann`"));
    service.reload_tenants(Tenants::default());
    assert_eq!(client.wait(&second).await["state"], "succeeded");
    stop(service, server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_or_unknown_tenant_is_refused_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let refuse = Tenants { refuse_unknown: true, ..named(&[("ann", Tenant::default())]) };
    let service = start(folder.path(), refuse).await;
    let (server, client) = serve(&service).await;
    for tenant in ["bob", "a b", ""] {
        let body = json!({"kind": "echo", "payload": 1, "tenant": tenant}).to_string();
        let refused = client.post("/v1/jobs", &body).await.expect(422).json();
        assert_eq!(refused["errors"][0]["pointer"], "/tenant", "{refused}");
    }
    client.submit(r#"{"kind":"echo","payload":1,"tenant":"ann"}"#).await;
    client.submit(r#"{"kind":"echo","payload":1,"tenant":"default"}"#).await;
    let schedule =
        json!({"cron": "@daily", "job": {"kind": "echo", "payload": 1, "tenant": "bob"}});
    let path = "/v1/schedules/nightly";
    let refused = client.send("PUT", path, &[JSON], &schedule.to_string()).await.expect(422).json();
    assert_eq!(refused["errors"][0]["pointer"], "/job/tenant", "{refused}");
    stop(service, server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_jobs_of_a_token_belong_to_its_tenant() {
    let folder = tempfile::tempdir().unwrap();
    let service = start(folder.path(), Tenants::default()).await;
    let line =
        |name: &str, options: &str| format!("{name} admin plain:the-token-of-{name} {options}\n");
    let lines = [line("ann", "tenant=team-a"), line("bob", "tenant=team-b"), line("ops", "")];
    let tokens = Tokens::parse(&lines.concat()).unwrap();
    let (server, client) =
        serve_with(&service, HttpSettings { tokens, ..HttpSettings::default() }).await;
    let send = async |name: &str, method: &str, path: &str, body: &Value| {
        let token = format!("Bearer the-token-of-{name}");
        client.send(method, path, &[JSON, ("authorization", &token)], &body.to_string()).await
    };
    let plain = json!({"kind": "echo", "payload": 1});
    let of_b = json!({"kind": "echo", "payload": 1, "tenant": "team-b"});
    let accepted = send("ann", "POST", "/v1/jobs", &plain).await.expect(202).json();
    assert_eq!(accepted["tenant"], "team-a");
    let accepted = send("ops", "POST", "/v1/jobs", &of_b).await.expect(202).json();
    assert_eq!(accepted["tenant"], "team-b");
    assert_eq!(
        send("ops", "POST", "/v1/jobs", &plain).await.expect(202).json()["tenant"],
        "default"
    );
    for (method, path, body) in [
        ("POST", "/v1/jobs", of_b.clone()),
        ("PUT", "/v1/jobs/mine", of_b.clone()),
        ("POST", "/v1/jobs/batch", json!({"jobs": [plain, of_b]})),
        ("PUT", "/v1/schedules/s", json!({"cron": "@daily", "job": of_b})),
    ] {
        let refused = send("ann", method, path, &body).await.expect(403).json();
        let detail = refused["detail"].as_str().unwrap();
        assert!(detail.contains("`team-a`") && detail.contains("`team-b`"), "{path}: {detail}");
    }
    let set = json!({"cron": "@daily", "job": plain});
    let schedule = send("ann", "PUT", "/v1/schedules/s", &set).await.expect(201).json();
    assert_eq!(schedule["job"]["tenant"], "team-a");
    send("bob", "POST", "/v1/schedules/s/run", &json!({})).await.expect(403);
    let made = send("ops", "POST", "/v1/schedules/s/run", &json!({})).await.expect(202).json();
    assert_eq!(made["tenant"], "team-a");
    stop(service, server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_counts_for_its_tenant_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let tenants = named(&[("ann", at_most(1))]);
    let service = start(folder.path(), tenants.clone()).await;
    let (server, client) = serve(&service).await;
    let id = client.submit(r#"{"kind":"remote","tenant":"ann","subtasks":[{},{}]}"#).await;
    let claim = json!({"kinds": ["remote"], "max": 2, "wait_ms": 1000}).to_string();
    let leases = client.post("/v1/leases", &claim).await.expect(200).json();
    assert_eq!(leases["leases"].as_array().unwrap().len(), 1, "{leases}");
    stop(service, server).await;

    let service = start(folder.path(), tenants).await;
    let (server, client) = serve(&service).await;
    let none = json!({"kinds": ["remote"], "max": 2, "wait_ms": 0}).to_string();
    assert_eq!(client.post("/v1/leases", &none).await.expect(200).json()["leases"], json!([]));
    assert_eq!(job(&client, &id).await["counts"]["running"], 1);
    let lease = &leases["leases"][0];
    let path = format!("/v1/leases/{}/complete", lease["id"].as_str().unwrap());
    client.post(&path, r#"{"result":1}"#).await.expect(204);
    let next = client.post("/v1/leases", &claim).await.expect(200).json();
    assert_eq!(next["leases"].as_array().unwrap().len(), 1, "{next}");
    stop(service, server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_name_only_configured_tenants() {
    let folder = tempfile::tempdir().unwrap();
    let service = start(folder.path(), named(&[("ann", at_most(1))])).await;
    let (server, client) = serve(&service).await;
    for tenant in ["ann", "bob", "cleo", "default"] {
        let body = json!({"kind": "hang", "tenant": tenant, "payload": 1}).to_string();
        let id = client.submit(&body).await;
        client.wait_until(&id, |job| job["counts"]["running"] == 1).await;
    }
    let metrics = client.get("/metrics").await.expect(200).text;
    for line in [
        "keylane_tenant_slots_busy{tenant=\"ann\"} 1",
        "keylane_tenant_slots_busy{tenant=\"default\"} 1",
        "keylane_tenant_slots_busy{tenant=\"others\"} 2",
        "keylane_tenant_subtasks{tenant=\"ann\"} 1",
        "keylane_tenant_subtasks{tenant=\"others\"} 2",
        "keylane_tenant_jobs{tenant=\"others\"} 2",
    ] {
        assert!(metrics.lines().any(|it| it == line), "{line} is missing in\n{metrics}");
    }
    assert!(!metrics.contains("bob"));
    stop(service, server).await;
}
