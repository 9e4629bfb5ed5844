//! What cannot go on is held, by name and with the remedy, and the server starts: jobs of a kind that is not configured
//! any more, and damaged jobs with what is behind them.

use std::path::Path;
use std::time::Duration;

use crate::common::stage::{Actors, Stage, stage};
use crate::common::{Client, Log, builder, serve};
use keylane::Backoff;
use keylane_service::http::HttpServer;
use keylane_service::{Kind, Service};
use rusqlite::Connection;
use serde_json::{Value, json};

/// A kind whose attempts come onto the stage.
fn staged(actors: &Actors) -> Kind {
    // An attempt that the stop has ended does not back off after the next start.
    let backoff = Backoff { first: Duration::from_millis(1), ..Backoff::default() };
    Kind { backoff, ..Kind::new(actors.clone()) }
}

async fn start(folder: &Path, actors: &Actors, kinds: &[&str]) -> Service {
    let builder = builder(folder, &Log::default());
    let named =
        |builder: keylane_service::ServiceBuilder, kind: &&str| builder.kind(kind, staged(actors));
    kinds.iter().fold(builder, named).start().await.unwrap()
}

async fn reload(service: &Service, actors: &Actors, kinds: &[&str]) {
    let kinds = kinds.iter().map(|kind| ((*kind).to_owned(), staged(actors)));
    service.reload_kinds(kinds.collect()).await;
}

async fn stop(server: HttpServer, service: Service) {
    server.stop(Duration::from_secs(5)).await;
    service.stop(Duration::ZERO).await;
}

/// A job of one subtask for each key, which is called by its key and the job's name.
fn job(kind: &str, name: &str, keys: &[&str]) -> String {
    let subtasks: Vec<Value> = keys
        .iter()
        .map(|key| match *key {
            "" => json!({"payload": format!("{name}-")}),
            key => json!({"key": key, "payload": format!("{name}-{key}")}),
        })
        .collect();
    json!({"kind": kind, "subtasks": subtasks}).to_string()
}

async fn view(client: &Client, id: &str) -> Value {
    client.get(&format!("/v1/jobs/{id}")).await.expect(200).json()
}

fn because(view: &Value) -> (String, String) {
    let because = &view["waiting_because"][0];
    let text = |name: &str| because[name].as_str().unwrap_or_default().to_owned();
    (text("reason"), text("text"))
}

async fn held(client: &Client, reason: &str) -> String {
    let metrics = client.get("/metrics").await.expect(200).text;
    let name = format!("keylane_jobs_held{{reason=\"{reason}\"}} ");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
    line.unwrap_or_else(|| panic!("{metrics}")).to_owned()
}

fn number(id: &str) -> u64 {
    keylane_service::JobId::parse(id).unwrap().number().0
}

fn change(folder: &Path, sql: &str) {
    let connection = Connection::open(folder.join("store")).unwrap();
    assert!(connection.execute(sql, []).unwrap() > 0, "{sql}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_that_is_gone_holds_its_jobs_and_the_server_starts() {
    let folder = tempfile::tempdir().unwrap();
    let (actors, mut stage) = stage();
    let service = start(folder.path(), &actors, &["old", "new"]).await;
    let (server, client) = serve(&service).await;
    let old = client.submit(&job("old", "one", &["k", ""])).await;
    two(&mut stage).await;
    let behind = client.submit(&job("new", "behind", &["k"])).await;
    stop(server, service).await;

    let service = start(folder.path(), &actors, &["new"]).await;
    let (server, client) = serve(&service).await;
    let free = client.submit(&job("new", "free", &["other"])).await;
    assert_eq!(stage.next().await, "free-other");
    stage.succeed("free-other");
    client.wait(&free).await;
    stage.expect_nobody();
    let (reason, text) = because(&view(&client, &old).await);
    assert_eq!(reason, "no_kind");
    assert!(text.contains("`old`") && text.contains("cancel the job"), "{text}");
    assert_eq!(held(&client, "no_kind").await, "1");
    let mine = client.get(&format!("/v1/jobs/{old}/subtasks/0")).await.expect(200).json();
    assert_eq!(mine["waiting_because"]["reason"], "no_kind", "{mine}");
    // So does what waits behind it, for a subtask that is only held.
    let (reason, text) = because(&view(&client, &behind).await);
    assert_eq!(reason, "key_order");
    assert!(text.contains("`old`") && text.contains("cancel the job"), "{text}");
    // To resume it is not enough.
    client.post(&format!("/v1/jobs/{old}/pause"), "").await.expect(200);
    client.post(&format!("/v1/jobs/{old}/resume"), "").await.expect(200);
    let free = client.submit(&job("new", "second", &["other"])).await;
    assert_eq!(stage.next().await, "second-other");
    stage.succeed("second-other");
    client.wait(&free).await;
    stage.expect_nobody();
    stop(server, service).await;

    // With the kind it goes on, in its order.
    let service = start(folder.path(), &actors, &["old", "new"]).await;
    let (server, _client) = serve(&service).await;
    two(&mut stage).await;
    stage.expect_nobody();
    stop(server, service).await;

    // Without it, it can be cancelled, and the key goes on.
    let service = start(folder.path(), &actors, &["new"]).await;
    let (server, client) = serve(&service).await;
    client.post(&format!("/v1/jobs/{old}/cancel"), "{}").await.expect(200);
    assert_eq!(stage.next().await, "behind-k");
    stage.succeed("behind-k");
    client.wait(&behind).await;
    assert_eq!(client.wait(&old).await["state"], "cancelled");
    assert_eq!(held(&client, "no_kind").await, "0");
    stop(server, service).await;
}

/// Runs a job that shares nothing with the others, after which all that can begin has begun.
async fn run_alone(client: &Client, stage: &mut Stage, name: &str) {
    let free = client.submit(&job("new", name, &["alone"])).await;
    let begun = format!("{name}-alone");
    assert_eq!(stage.next().await, begun);
    stage.succeed(&begun);
    client.wait(&free).await;
    stage.expect_nobody();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_without_a_kind_holds_its_jobs_and_one_with_it_lets_them_continue() {
    let folder = tempfile::tempdir().unwrap();
    let (actors, mut stage) = stage();
    let service = start(folder.path(), &actors, &["old", "new"]).await;
    let (server, client) = serve(&service).await;
    let running = client.submit(&job("old", "running", &["k"])).await;
    assert_eq!(stage.next().await, "running-k");
    let old = client.submit(&job("old", "old", &["k", "own"])).await;
    assert_eq!(stage.next().await, "old-own");
    let behind = client.submit(&job("new", "behind", &["k"])).await;

    reload(&service, &actors, &["new"]).await;
    assert_eq!(held(&client, "no_kind").await, "2");
    // Running attempts continue.
    stage.succeed("running-k");
    assert_eq!(client.wait(&running).await["state"], "succeeded");
    run_alone(&client, &mut stage, "first").await;
    assert_eq!(held(&client, "no_kind").await, "1");
    let mine = client.get(&format!("/v1/jobs/{old}/subtasks/0")).await.expect(200).json();
    assert_eq!(mine["waiting_because"]["reason"], "no_kind", "{mine}");
    let text = mine["waiting_because"]["text"].as_str().unwrap();
    assert!(text.contains("`old`") && text.contains("reload"), "{text}");
    let (reason, text) = because(&view(&client, &behind).await);
    assert_eq!(reason, "key_order");
    assert!(text.contains("`old`") && text.contains("cancel the job"), "{text}");

    // The place on the shared key is kept.
    reload(&service, &actors, &["old", "new"]).await;
    assert_eq!(stage.next().await, "old-k");
    assert_eq!(held(&client, "no_kind").await, "0");
    run_alone(&client, &mut stage, "second").await;
    stage.succeed("old-k");
    assert_eq!(stage.next().await, "behind-k");
    stage.succeed("old-own");
    stage.succeed("behind-k");
    for id in [&old, &behind] {
        assert_eq!(client.wait(id).await["state"], "succeeded");
    }
    stop(server, service).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_held_since_the_start_continues_when_a_reload_adds_its_kind() {
    let folder = tempfile::tempdir().unwrap();
    let (actors, mut stage) = stage();
    let service = start(folder.path(), &actors, &["old", "new"]).await;
    let (server, client) = serve(&service).await;
    let old = client.submit(&job("old", "old", &["k"])).await;
    assert_eq!(stage.next().await, "old-k");
    let behind = client.submit(&job("new", "behind", &["k"])).await;
    let paused = client.submit(&job("old", "paused", &["own"])).await;
    assert_eq!(stage.next().await, "paused-own");
    client.post(&format!("/v1/jobs/{paused}/pause"), "").await.expect(200);
    stop(server, service).await;

    let service = start(folder.path(), &actors, &["new"]).await;
    let (server, client) = serve(&service).await;
    assert_eq!(held(&client, "no_kind").await, "2");
    run_alone(&client, &mut stage, "first").await;
    reload(&service, &actors, &["old", "new"]).await;
    assert_eq!(stage.next().await, "old-k");
    assert_eq!(held(&client, "no_kind").await, "0");
    // The end of the hold does not resume a job that an operator has paused.
    run_alone(&client, &mut stage, "second").await;
    assert_eq!(because(&view(&client, &paused).await).0, "job_paused");
    stage.succeed("old-k");
    assert_eq!(stage.next().await, "behind-k");
    stage.succeed("behind-k");
    for id in [&old, &behind] {
        assert_eq!(client.wait(id).await["state"], "succeeded");
    }
    stop(server, service).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_for_remote_workers_says_that_a_reload_has_removed_its_kind() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::default();
    let lease = Kind::leased(Duration::from_secs(60));
    let service = builder(folder.path(), &log).kind("remote", lease.clone()).start().await.unwrap();
    let (server, client) = serve(&service).await;
    let id = client.submit(&job("remote", "remote", &["k"])).await;
    assert_eq!(because(&view(&client, &id).await).0, "no_worker");
    service.reload_kinds(Vec::new()).await;
    assert_eq!(because(&view(&client, &id).await).0, "no_kind");
    assert_eq!(held(&client, "no_kind").await, "1");
    service.reload_kinds(vec![("remote".to_owned(), lease)]).await;
    assert_eq!(because(&view(&client, &id).await).0, "no_worker");
    assert_eq!(held(&client, "no_kind").await, "0");
    stop(server, service).await;
}

async fn two(stage: &mut Stage) {
    let mut two = [stage.next().await, stage.next().await];
    two.sort();
    assert_eq!(two, ["one-", "one-k"]);
}

/// Three jobs of which nothing has ended: `a`, `b` behind it on key `k`, and `c` on a key of its own; and one without
/// keys.
async fn four(folder: &Path) -> [String; 4] {
    // What begins before it is paused is of no interest.
    let (actors, _stage) = stage();
    let service = start(folder, &actors, &["stage"]).await;
    let (server, client) = serve(&service).await;
    let paused = async |text: String| {
        let id = client.submit(&text).await;
        client.post(&format!("/v1/jobs/{id}/pause"), "").await.expect(200);
        id
    };
    let all = [
        paused(job("stage", "a", &["k"])).await,
        paused(job("stage", "b", &["k"])).await,
        paused(job("stage", "c", &["l"])).await,
        paused(job("stage", "d", &[""])).await,
    ];
    stop(server, service).await;
    all
}

async fn resume(client: &Client, ids: &[String]) {
    for id in ids {
        client.post(&format!("/v1/jobs/{id}/resume"), "").await.expect(200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_job_costs_itself_and_stops_its_keys_until_it_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let (actors, mut stage) = stage();
    let [a, b, c, d] = four(folder.path()).await;
    // Its state says something else, so its row is not what was written; its keys can be read.
    let row = number(&a);
    change(folder.path(), &format!("UPDATE job SET state = 18 WHERE number = {row}"));

    let service = start(folder.path(), &actors, &["stage"]).await;
    let (server, client) = serve(&service).await;
    resume(&client, &[b.clone(), c.clone(), d.clone()]).await;
    let mut begun = [stage.next().await, stage.next().await];
    begun.sort();
    assert_eq!(begun, ["c-l", "d-"]);
    for name in begun {
        stage.succeed(&name);
    }
    for id in [&c, &d] {
        assert_eq!(client.wait(id).await["state"], "succeeded");
    }
    stage.expect_nobody();
    let (reason, text) = because(&view(&client, &b).await);
    assert_eq!(reason, "key_stopped");
    assert!(text.contains(&a) && text.contains("DELETE"), "{text}");
    assert_eq!(held(&client, "damaged").await, "1");
    let damaged = client.get(&format!("/v1/jobs/{a}")).await.expect(500).json();
    assert_eq!(damaged["code"], "damaged", "{damaged}");
    client.get("/readyz").await.expect(200);
    for path in
        ["/v1/jobs", "/v1/jobs?limit=2", "/v1/jobs?state=paused", "/v1/jobs?state=cancelled"]
    {
        assert_named(&client, path, &a).await;
    }
    let refused = client.post(&format!("/v1/jobs/{a}/cancel"), "{}").await.expect(409);
    assert!(refused.text.contains("DELETE"), "{}", refused.text);

    client.send("DELETE", &format!("/v1/jobs/{a}"), &[], "").await.expect(204);
    assert_eq!(stage.next().await, "b-k");
    stage.succeed("b-k");
    client.wait(&b).await;
    client.get(&format!("/v1/jobs/{a}")).await.expect(410);
    assert_eq!(held(&client, "damaged").await, "0");
    stop(server, service).await;
    let service = start(folder.path(), &actors, &["stage"]).await;
    service.stop(Duration::ZERO).await;
}

/// A list names what it cannot show, on the page where it would be.
async fn assert_named(client: &Client, path: &str, id: &str) {
    let (mut path, mut named) = (path.to_owned(), Vec::new());
    loop {
        let page = client.get(&path).await.expect(200).json();
        let items = page["items"].as_array().unwrap();
        assert!(items.iter().all(|job| job["id"] != id), "{page}");
        named.extend(page["damaged"].as_array().cloned().unwrap_or_default());
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("/v1/jobs?limit=2&cursor={cursor}");
    }
    assert_eq!(named.len(), 1, "{path}: {named:?}");
    assert_eq!((&named[0]["id"], &named[0]["number"]), (&json!(id), &json!(number(id))));
    let problem = named[0]["problem"].as_str().unwrap();
    assert!(problem.contains("damaged") && problem.contains("DELETE"), "{problem}");
}

/// A byte of the payload, of the job's row or of the number of its subtasks: its keys are known.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_byte_stops_the_keys_of_its_job_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b, c, d] = four(folder.path()).await;
    let flips = [
        "chunk = CAST(substr(chunk, 1, 6) || x'99' || substr(chunk, 8) AS BLOB)",
        "head = CAST(substr(head, 1, 4) || x'99' || substr(head, 6) AS BLOB)",
        "total = total + 64",
        "entered = entered + 4096",
        "kind = kind || 'x'",
    ];
    for flip in flips {
        let copy = tempfile::tempdir().unwrap();
        for file in ["store", "store-mark", "store-boot"] {
            std::fs::copy(folder.path().join(file), copy.path().join(file)).unwrap();
        }
        change(copy.path(), &format!("UPDATE job SET {flip} WHERE number = {}", number(&a)));
        let (actors, mut stage) = stage();
        let service = start(copy.path(), &actors, &["stage"]).await;
        let (server, client) = serve(&service).await;
        resume(&client, &[b.clone(), c.clone(), d.clone()]).await;
        let late = client.submit(&job("stage", "late", &["m"])).await;
        let mut begun = [stage.next().await, stage.next().await, stage.next().await];
        begun.sort();
        assert_eq!(begun, ["c-l", "d-", "late-m"], "{flip}");
        begun.iter().for_each(|name| stage.succeed(name));
        for id in [&c, &d, &late] {
            client.wait(id).await;
        }
        stage.expect_nobody();
        let (reason, text) = because(&view(&client, &b).await);
        assert_eq!(reason, "key_stopped", "{flip}");
        assert!(text.contains(&a) && text.contains("DELETE"), "{text}");
        assert_eq!(held(&client, "damaged").await, "1");
        assert_eq!(held(&client, "behind_damaged").await, "0");
        client.send("DELETE", &format!("/v1/jobs/{a}"), &[], "").await.expect(204);
        assert_eq!(stage.next().await, "b-k");
        stage.succeed("b-k");
        client.wait(&b).await;
        stop(server, service).await;
    }
}

/// Which keys it has is what cannot be read.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_job_whose_keys_cannot_be_read_holds_all_with_keys_behind_it() {
    let folder = tempfile::tempdir().unwrap();
    let (actors, mut stage) = stage();
    let [a, b, c, d] = four(folder.path()).await;
    let row = number(&b);
    // The key itself, behind the number of keys and its length.
    let chunk = "substr(chunk, 1, 2) || x'99' || substr(chunk, 4)";
    change(
        folder.path(),
        &format!("UPDATE job SET chunk = CAST({chunk} AS BLOB) WHERE number = {row}"),
    );

    let service = start(folder.path(), &actors, &["stage"]).await;
    let (server, client) = serve(&service).await;
    resume(&client, &[a.clone(), c.clone(), d.clone()]).await;
    // What came before it goes on, and what has no key.
    let mut begun = [stage.next().await, stage.next().await];
    begun.sort();
    assert_eq!(begun, ["a-k", "d-"]);
    for name in begun {
        stage.succeed(&name);
    }
    for id in [&a, &d] {
        client.wait(id).await;
    }
    // What comes later may be behind it, too.
    let late = client.submit(&job("stage", "late", &["m"])).await;
    let free = client.submit(&job("stage", "free", &[""])).await;
    assert_eq!(stage.next().await, "free-");
    stage.succeed("free-");
    client.wait(&free).await;
    stage.expect_nobody();
    for id in [&c, &late] {
        let (reason, text) = because(&view(&client, id).await);
        assert_eq!(reason, "behind_damaged");
        assert!(text.contains(&b) && text.contains("DELETE"), "{text}");
    }
    assert_eq!(because(&view(&client, &b).await).0, "damaged");
    assert_eq!(held(&client, "behind_damaged").await, "2");

    client.send("DELETE", &format!("/v1/jobs/{b}"), &[], "").await.expect(204);
    let mut begun = [stage.next().await, stage.next().await];
    begun.sort();
    assert_eq!(begun, ["c-l", "late-m"]);
    for name in begun {
        stage.succeed(&name);
    }
    for id in [&c, &late] {
        client.wait(id).await;
    }
    assert_eq!(held(&client, "behind_damaged").await, "0");
    stop(server, service).await;
}
