//! A full disk, as clients meet it: new jobs get 507 and leave nothing behind, nothing is started whose end could
//! not be written, `/readyz` says why, and all goes on by itself when there is room.

use std::path::Path;
use std::time::Duration;

use crate::common::stage::{Actors, Stage, stage};
use crate::common::{Client, Log, builder_with, serve, settings};
use keylane_service::http::HttpServer;
use keylane_service::store::Store;
use keylane_service::{Kind, Service, store};
use keylane_testkit::{Missing, or_skip};
use serde_json::{Value, json};

/// A store of at most the given number of bytes, in place of a disk.
async fn start(folder: &Path, max_bytes: Option<u64>, actors: &Actors) -> Service {
    let store = store::StoreSettings { max_bytes, ..store::StoreSettings::default() };
    let settings = keylane_service::ServiceSettings { store, ..settings(folder) };
    let builder = builder_with(settings, &Log::default());
    builder.kind("stage", Kind::new(actors.clone())).start().await.unwrap()
}

fn text(bytes: usize) -> Value {
    json!("x".repeat(bytes))
}

async fn jobs(client: &Client) -> Vec<String> {
    let page = client.get("/v1/jobs?limit=1000").await.expect(200).json();
    let ids = page["items"].as_array().unwrap().iter();
    ids.map(|job| job["id"].as_str().unwrap().to_owned()).collect()
}

async fn stop(server: HttpServer, service: Service) {
    server.stop(Duration::from_secs(5)).await;
    service.stop(Duration::ZERO).await;
}

/// Asserts that the store has all that was written, and the expected number of jobs.
#[track_caller]
fn check(folder: &Path, jobs: usize) {
    let (store, _) = Store::open(folder.join("store"), &store::StoreSettings::default()).unwrap();
    let report = store.check().unwrap();
    assert_eq!((report.damage, report.jobs), (vec![], jobs as u64));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_does_not_fit_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let (actors, _stage) = stage();
    let service = start(folder.path(), Some(2_000_000), &actors).await;
    let (server, client) = serve(&service).await;
    let job = json!({"kind": "echo", "payload": text(300_000), "delay_ms": 3_600_000}).to_string();
    let mut accepted = Vec::new();
    let refused = loop {
        let answer = client.post("/v1/jobs", &job).await;
        if answer.status != 202 {
            break answer.expect(507);
        }
        accepted.push(answer.json()["id"].as_str().unwrap().to_owned());
    };
    assert_eq!(refused.json()["code"], "disk-full");
    assert!(accepted.len() >= 3, "{}", accepted.len());
    // By lines it is written as it comes, and taken back.
    let line = json!({"payload": text(1000)}).to_string() + "\n";
    let lines = format!("{{\"kind\":\"echo\"}}\n{}", line.repeat(3000));
    let headers = [("content-type", "application/x-ndjson"), ("idempotency-key", "again")];
    let refused = client.send("POST", "/v1/jobs", &headers, &lines).await.expect(507);
    assert_eq!(refused.json()["code"], "disk-full");
    accepted.reverse();
    assert_eq!(jobs(&client).await, accepted);
    // With room, and the same idempotency key, it is a new job.
    for id in accepted.split_off(1) {
        client.post(&format!("/v1/jobs/{id}/cancel"), "").await;
        client.send("DELETE", &format!("/v1/jobs/{id}"), &[], "").await.expect(204);
    }
    let lines = format!("{{\"kind\":\"echo\"}}\n{}", line.repeat(300));
    let taken = client.send("POST", "/v1/jobs", &headers, &lines).await.expect(202);
    let done = client.wait(taken.json()["id"].as_str().unwrap()).await;
    assert_eq!(done["counts"]["succeeded"], 300);
    stop(server, service).await;
    check(folder.path(), 2);
}

/// The gauges of the store: whether what happens is written, and whether new jobs are refused.
async fn gauges(client: &Client) -> [String; 2] {
    let text = client.get("/metrics").await.expect(200).text;
    ["keylane_store_up ", "keylane_store_refuses_jobs "].map(|name| {
        let value = text.lines().find_map(|line| line.strip_prefix(name));
        value.unwrap().to_owned()
    })
}

/// Waits until all that has happened is on the disk, by what is answered only then.
async fn all_written(client: &Client, job: &str) {
    for what in ["pause", "resume"] {
        client.post(&format!("/v1/jobs/{job}/{what}"), "").await.expect(200);
    }
}

/// A job too large for the room that is left says nothing of what runs: attempts begin, and their ends are written.
/// Until then a load balancer is to send jobs elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_refuses_jobs_for_want_of_room_is_not_ready() {
    let folder = tempfile::tempdir().unwrap();
    let (actors, mut stage) = stage();
    let service = start(folder.path(), Some(2_000_000), &actors).await;
    let (server, client) = serve(&service).await;
    let two = [("k", "first"), ("k", "second")];
    let two = two.map(|(key, payload)| json!({"key": key, "payload": payload}));
    let runs = client.submit(&json!({"kind": "stage", "subtasks": two}).to_string()).await;
    assert_eq!(stage.next().await, "first");
    client.get("/readyz").await.expect(200);
    assert_eq!(gauges(&client).await, ["1", "0"]);
    let large =
        json!({"kind": "echo", "payload": text(900_000), "delay_ms": 3_600_000}).to_string();
    let mut waiting = Vec::new();
    loop {
        let answer = client.post("/v1/jobs", &large).await;
        if answer.status == 507 {
            break;
        }
        waiting.push(answer.expect(202).json()["id"].as_str().unwrap().to_owned());
    }
    let is_not_ready = async || {
        let health = client.get("/readyz").await.expect(503).json();
        let store = &health["checks"][0];
        assert_eq!((&store["name"], &store["ok"]), (&json!("store"), &json!(false)), "{health}");
        assert!(store["detail"].as_str().unwrap().contains("full"), "{health}");
        assert_eq!(gauges(&client).await, ["1", "1"]);
    };
    is_not_ready().await;
    // What runs goes on, and what it has written shows that there is room for that.
    stage.succeed("first");
    assert_eq!(stage.next().await, "second");
    all_written(&client, &runs).await;
    client.get("/readyz").await.expect(200);
    assert_eq!(gauges(&client).await, ["1", "0"]);
    // A job that is accepted shows it as well,
    client.post("/v1/jobs", &large).await.expect(507);
    is_not_ready().await;
    let small = json!({"kind": "echo", "payload": 1, "delay_ms": 3_600_000}).to_string();
    client.submit(&small).await;
    client.get("/readyz").await.expect(200);
    // and so does the room that another one leaves.
    client.post("/v1/jobs", &large).await.expect(507);
    let one = &waiting[0];
    client.post(&format!("/v1/jobs/{one}/cancel"), "").await;
    client.wait(one).await;
    all_written(&client, &runs).await;
    client.post("/v1/jobs", &large).await.expect(507);
    is_not_ready().await;
    client.send("DELETE", &format!("/v1/jobs/{one}"), &[], "").await.expect(204);
    client.get("/readyz").await.expect(200);
    client.post("/v1/jobs", &large).await.expect(202);
    stage.succeed("second");
    client.wait(&runs).await;
    stop(server, service).await;
    // As many large ones as before, the small one, and the one that ran.
    check(folder.path(), waiting.len() + 2);
}

/// Brings a server to the point at which the end of an attempt, `first`, does not fit. Meanwhile `other` runs, and
/// `behind` is behind that in its key. Returns the job that can be removed for room, and this one.
async fn fill(client: &Client, stage: &mut Stage) -> (String, String) {
    let old = client.submit(r#"{"kind":"stage","payload":"old"}"#).await;
    assert_eq!(stage.next().await, "old");
    stage.answer("old", &text(600_000));
    client.wait(&old).await;
    let three = [("k", "first"), ("l", "other"), ("l", "behind")];
    let three = three.map(|(key, payload)| json!({"key": key, "payload": payload}));
    let new = client.submit(&json!({"kind": "stage", "subtasks": three}).to_string()).await;
    assert_eq!(two(stage).await, ["first", "other"]);
    stage.answer("first", &text(800_000));
    while client.get("/readyz").await.status == 200 {}
    (old, new)
}

/// The next two that begin, by name.
async fn two(stage: &mut Stage) -> [String; 2] {
    let mut two = [stage.next().await, stage.next().await];
    two.sort_by_key(|name| name != "first");
    two
}

const MAX_BYTES: u64 = 1_400_000;

#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_does_not_fit_is_written_when_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let (actors, mut stage) = stage();
    let service = start(folder.path(), Some(MAX_BYTES), &actors).await;
    let (server, client) = serve(&service).await;
    let (old, new) = fill(&client, &mut stage).await;
    let health = client.get("/readyz").await.expect(503).json();
    assert_eq!(health["status"], "unavailable", "{health}");
    let check_of = |name: &str| {
        let checks = health["checks"].as_array().unwrap();
        checks.iter().find(|check| check["name"] == name).unwrap().clone()
    };
    assert_eq!(
        (&check_of("store")["ok"], &check_of("accepting")["ok"]),
        (&json!(false), &json!(true))
    );
    assert!(check_of("store")["detail"].as_str().unwrap().contains("full"), "{health}");
    assert_eq!(gauges(&client).await, ["0", "1"]);
    assert_eq!(client.get("/v1/summary").await.json()["store"], "full");
    // It lives, and can be looked at; nothing new is taken, however small.
    client.get("/livez").await.expect(200);
    let small = r#"{"kind":"echo","payload":1}"#;
    let refused = client.post("/v1/jobs", small).await.expect(507);
    assert_eq!(refused.json()["code"], "disk-full");
    // What is not on the disk is not shown as done, and nothing more begins, though there is a slot for it.
    stage.succeed("other");
    while client.get("/v1/summary").await.expect(200).json()["busy"] != 0 {}
    let job = client.get(&format!("/v1/jobs/{new}")).await.expect(200).json();
    assert_eq!(job["counts"]["succeeded"], 0, "{job}");
    stage.expect_nobody();

    client.send("DELETE", &format!("/v1/jobs/{old}"), &[], "").await.expect(204);
    assert_eq!(stage.next().await, "behind");
    client.get("/readyz").await.expect(200);
    assert_eq!(gauges(&client).await, ["1", "0"]);
    stage.succeed("behind");
    assert_eq!(client.wait(&new).await["counts"]["succeeded"], 3);
    let results = client.get(&format!("/v1/jobs/{new}/results")).await.expect(200).json();
    assert_eq!(results["items"][0]["result"], text(800_000));
    let id = client.submit(small).await;
    client.wait(&id).await;
    stop(server, service).await;
    check(folder.path(), 2);
}

/// A lease of a job of the kind `remote`: its path.
async fn lease(client: &Client) -> String {
    let ask = r#"{"kinds":["remote"],"wait_ms":10000}"#;
    let claimed = client.post("/v1/leases", ask).await.expect(200).json();
    format!("/v1/leases/{}", claimed["leases"][0]["id"].as_str().unwrap())
}

/// Asks for it, and is told that the disk is full.
async fn refused(client: &Client, method: &str, path: &str, body: &str) {
    let headers = [("content-type", "application/json"), ("if-match", "*")];
    let refused = client.send(method, path, &headers, body).await.expect(507);
    assert_eq!(refused.json()["code"], "disk-full");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_for_while_nothing_is_written_is_not_done() {
    let folder = tempfile::tempdir().unwrap();
    let (actors, mut stage) = stage();
    let service = start(folder.path(), Some(MAX_BYTES), &actors).await;
    let (server, client) = serve(&service).await;
    let remote = client.submit(r#"{"kind":"remote","key":"r","payload":1}"#).await;
    let lease = lease(&client).await;
    let (old, new) = fill(&client, &mut stage).await;
    let job = format!("/v1/jobs/{new}");
    refused(&client, "POST", "/v1/keys/l/pause", "").await;
    refused(&client, "POST", "/v1/keys/l/skip-head", "").await;
    refused(&client, "POST", &format!("{job}/cancel"), "").await;
    refused(&client, "POST", &format!("{job}/pause"), "").await;
    refused(&client, "PATCH", &job, r#"{"weight":7}"#).await;
    refused(&client, "POST", &format!("{lease}/complete"), r#"{"result":5}"#).await;
    refused(&client, "POST", &format!("{lease}/fail"), r#"{"error":"no"}"#).await;
    let batch = json!({"leases": [{"id": lease.strip_prefix("/v1/leases/")}]}).to_string();
    refused(&client, "POST", "/v1/leases/complete", &batch).await;
    client.post(&format!("{lease}/heartbeat"), "").await.expect(200);

    client.send("DELETE", &format!("/v1/jobs/{old}"), &[], "").await.expect(204);
    while client.get("/readyz").await.status != 200 {}
    client.post(&format!("{lease}/complete"), r#"{"result":5}"#).await.expect(204);
    assert_eq!(client.wait(&remote).await["state"], "succeeded");
    let view = client.get(&job).await.expect(200).json();
    assert_eq!((&view["state"], &view["weight"]), (&json!("running"), &json!(1)), "{view}");
    for name in ["other", "behind"] {
        if name == "behind" {
            assert_eq!(stage.next().await, name);
        }
        stage.succeed(name);
    }
    assert_eq!(client.wait(&new).await["counts"]["succeeded"], 3);
    stop(server, service).await;
    check(folder.path(), 2);
}

/// The full disk is found by the write itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_workers_answer_that_does_not_fit_is_taken_and_written_when_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let (actors, mut stage) = stage();
    let service = start(folder.path(), Some(MAX_BYTES), &actors).await;
    let (server, client) = serve(&service).await;
    let old = client.submit(r#"{"kind":"stage","payload":"old"}"#).await;
    assert_eq!(stage.next().await, "old");
    stage.answer("old", &text(600_000));
    client.wait(&old).await;
    let remote = client.submit(r#"{"kind":"remote","key":"r","payload":1}"#).await;
    let complete = format!("{}/complete", lease(&client).await);
    let body = json!({"result": text(800_000)}).to_string();
    let answer = client.post(&complete, &body).await.expect(507).json();
    assert_eq!(answer["code"], "not-yet-written");
    refused(&client, "POST", &complete, &body).await;
    client.send("DELETE", &format!("/v1/jobs/{old}"), &[], "").await.expect(204);
    assert_eq!(client.wait(&remote).await["counts"]["succeeded"], 1);
    assert_eq!(client.post(&complete, &body).await.expect(409).json()["code"], "lease-lost");
    stop(server, service).await;
    check(folder.path(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_was_never_written_is_tried_again_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (actors, mut stage) = stage();
    let service = start(folder.path(), Some(MAX_BYTES), &actors).await;
    let (server, client) = serve(&service).await;
    let (old, new) = fill(&client, &mut stage).await;
    stop(server, service).await;

    let service = start(folder.path(), None, &actors).await;
    let (server, client) = serve(&service).await;
    client.get("/readyz").await.expect(200);
    assert_eq!(two(&mut stage).await, ["first", "other"]);
    stage.expect_nobody();
    stage.succeed("first");
    stage.succeed("other");
    assert_eq!(stage.next().await, "behind");
    stage.succeed("behind");
    assert_eq!(client.wait(&new).await["counts"]["succeeded"], 3);
    let first = client.get(&format!("/v1/jobs/{new}/subtasks/0")).await.expect(200).json();
    assert_eq!(first["attempts"], 2, "{first}");
    let results = client.get(&format!("/v1/jobs/{old}/results")).await.expect(200).json();
    assert_eq!(results["items"][0]["result"], text(600_000));
    stop(server, service).await;
    check(folder.path(), 2);
}

/// Where a child finds its disk. Only children have it.
const DISK: &str = "KEYLANE_SERVICE_ON_A_FULL_DISK";

/// In namespaces of its own anybody can mount a file system, where the machine allows that.
const IN_MEMORY: &str = "mount -t tmpfs -o size=4m tmpfs \"$FOLDER\" && exec \"$0\" \"$@\"";

/// The start wrote that it was one before all else, and ended if that did not fit: reads and the dashboard were gone.
#[test]
fn a_server_starts_on_a_full_disk_and_goes_on_when_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let unshare = |words: &[&str]| {
        let mut command = std::process::Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", IN_MEMORY]).args(words);
        command.env("FOLDER", folder.path()).env(DISK, folder.path()).output()
    };
    if !unshare(&["true"]).is_ok_and(|output| output.status.success()) {
        // Nothing that could be installed would help.
        let why = "this machine does not allow a test to mount a file system";
        or_skip::<()>(Err(Missing::new(why)));
        return;
    }
    let this = std::env::current_exe().unwrap();
    let words =
        [this.to_str().unwrap(), "--exact", "disk_full::starts_on_a_full_disk", "--nocapture"];
    let output = unshare(&words).unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("it goes on"), "{said}{complaint}");
}

/// Not a test of its own: what the child of the one above does.
#[tokio::test(flavor = "multi_thread")]
async fn starts_on_a_full_disk() {
    let Some(disk) = std::env::var_os(DISK) else { return };
    let disk = Path::new(&disk);
    let (actors, mut stage) = stage();
    let first = disk.join("first");
    std::fs::create_dir(&first).unwrap();
    let service = start(&first, None, &actors).await;
    let (server, client) = serve(&service).await;
    let id = client.submit(r#"{"kind":"stage","key":"k","payload":"one"}"#).await;
    assert_eq!(stage.next().await, "one");
    client.post(&format!("/v1/jobs/{id}/pause"), "").await.expect(200);
    client.post(&format!("/v1/jobs/{id}/resume"), "").await.expect(200);
    // As a killed server leaves it.
    let second = disk.join("second");
    std::fs::create_dir(&second).unwrap();
    for suffix in ["-mark", "", "-wal", "-shm"] {
        let name = format!("store{suffix}");
        std::fs::copy(first.join(&name), second.join(&name)).unwrap();
    }
    stop(server, service).await;
    let ballast = disk.join("ballast");
    fill_with(&ballast);

    let service = start(&second, None, &actors).await;
    let (server, client) = serve(&service).await;
    assert_eq!(jobs(&client).await, [id.as_str()]);
    client.get("/readyz").await.expect(503);
    let refused = client.post("/v1/jobs", r#"{"kind":"echo","payload":1}"#).await.expect(507);
    assert!(refused.headers.contains_key("retry-after"), "{:?}", refused.headers);
    let job = client.get(&format!("/v1/jobs/{id}")).await.expect(200).json();
    assert_eq!(job["counts"]["running"], 0, "{job}");
    stage.expect_nobody();

    stop(server, service).await;
    // The files of a store that was closed in order.
    let service = start(&first, None, &actors).await;
    let (server, client) = serve(&service).await;
    assert_eq!(jobs(&client).await, [id.as_str()]);
    client.get("/readyz").await.expect(503);
    client.get(&format!("/v1/jobs/{id}")).await.expect(200);
    stop(server, service).await;
    let service = start(&second, None, &actors).await;
    let (server, client) = serve(&service).await;
    assert_eq!(jobs(&client).await, [id.as_str()]);
    stage.expect_nobody();

    std::fs::remove_file(ballast).unwrap();
    assert_eq!(stage.next().await, "one");
    client.get("/readyz").await.expect(200);
    stage.succeed("one");
    assert_eq!(client.wait(&id).await["state"], "succeeded");
    stop(server, service).await;
    check(&second, 1);
    println!("\nit goes on");
}

/// Takes all the room there is.
fn fill_with(path: &Path) {
    use std::io::Write;
    let mut file = std::fs::File::create(path).unwrap();
    for block in [vec![0; 64 * 1024], vec![0; 4096], vec![0; 1]] {
        while file.write_all(&block).is_ok() {}
    }
}
