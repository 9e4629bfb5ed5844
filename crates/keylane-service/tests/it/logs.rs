//! What an attempt said is there to be read, for each attempt, as long as its job is kept: after a restart and a
//! kill, whatever became of the attempt, and never more of it than its kind allows.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::common::attempts::named_pipe;
use crate::common::{Client, Log, builder_with, serve, serve_with, settings};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keylane::Backoff;
use keylane_service::handle::CommandHandler;
use keylane_service::http::{self, HttpServer, Tokens};
use keylane_service::store::{self, StoreOpenError};
use keylane_service::{Kind, Service, ServiceBuilder, ServiceSettings, StartError};
use serde_json::{Value, json};

/// A kind that runs its payload as a shell's script: three attempts, one at once behind the other.
fn scripts() -> Kind {
    let backoff = Backoff { first: Duration::from_millis(1), ..Backoff::default() };
    let run = CommandHandler::new([
        "sh",
        "-c",
        "script=$(cat | sed 's/^\"//; s/\"$//'); eval \"$script\"",
    ]);
    Kind { attempts: 3, backoff, ..Kind::new(run) }
}

fn kinds(settings: &ServiceSettings) -> ServiceBuilder {
    let split = CommandHandler::new([
        "sh",
        "-c",
        "echo splits >&2; echo '[{\"payload\":\"echo it >&2\"}]'",
    ]);
    let sum = CommandHandler::new(["sh", "-c", "echo sums up >&2; cat"]);
    let steps = Kind { split: Some(Arc::new(split)), fan_in: Some(Arc::new(sum)), ..scripts() };
    let time = Duration::from_secs(1);
    let hurried = Kind { timeout: Some(time), attempts: 1_000_000, ..scripts() };
    builder_with(settings.clone(), &Log::default())
        .kind("script", scripts())
        .kind("brief", Kind { log_bytes: 1000, ..scripts() })
        .kind("silent", Kind { log_bytes: 0, ..scripts() })
        .kind("hurried", hurried)
        .kind("steps", steps)
}

/// A process that another test of this file starts has the lock of a store that was just closed as its own until
/// it runs its program: that is a moment, and no more.
async fn start_with(settings: ServiceSettings) -> Service {
    for _ in 0..2000 {
        match kinds(&settings).start().await {
            Err(StartError::Store(StoreOpenError::InUse { .. })) => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            started => return started.unwrap(),
        }
    }
    panic!("the store is in use");
}

async fn start(folder: &Path) -> (Service, HttpServer, Client) {
    let service = start_with(settings(folder)).await;
    let (server, client) = serve(&service).await;
    (service, server, client)
}

async fn stop(service: Service, server: HttpServer) {
    server.stop(Duration::from_secs(5)).await;
    service.stop(Duration::ZERO).await;
}

async fn submit(client: &Client, kind: &str, script: &str) -> String {
    client.submit(&json!({"kind": kind, "payload": script}).to_string()).await
}

fn path(id: &str, number: &str) -> String {
    format!("/v1/jobs/{id}/subtasks/{number}/logs")
}

async fn logs(client: &Client, id: &str, number: &str) -> Vec<Value> {
    let page = client.get(&path(id, number)).await.expect(200).json();
    page["items"].as_array().unwrap().clone()
}

/// Attempt, state and text of each.
fn brief(logs: &[Value]) -> Vec<(u64, &str, &str)> {
    let brief = |log: &'_ Value| log["attempt"].as_u64().unwrap();
    logs.iter()
        .map(|log| (brief(log), log["state"].as_str().unwrap(), log["text"].as_str().unwrap()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_each_attempt_said_is_there_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (service, server, client) = start(folder.path()).await;
    let script = "echo try $KEYLANE_ATTEMPT >&2; echo 7; test $KEYLANE_ATTEMPT = 3";
    let id = submit(&client, "script", script).await;
    client.wait(&id).await;
    let expected =
        [(1, "failed", "try 1\n"), (2, "failed", "try 2\n"), (3, "succeeded", "try 3\n")];
    let before = logs(&client, &id, "0").await;
    assert_eq!(brief(&before), expected);
    for log in &before {
        assert!(log["started_at"].as_str() <= log["ended_at"].as_str(), "{log}");
        assert_eq!((&log["left_out_bytes"], &log["base64"]), (&json!(0), &Value::Null));
    }
    assert!(before.is_sorted_by_key(|log| log["fence"].as_u64()));
    let accept = [("accept", "text/plain")];
    let text = client.send("GET", &path(&id, "0"), &accept, "").await.expect(200);
    let kind = text.headers["content-type"].to_str().unwrap();
    assert_eq!(kind, "text/plain; charset=utf-8");
    let lines: Vec<_> = text.text.lines().collect();
    assert_eq!(lines.len(), 6, "{lines:?}");
    assert!(lines[2].starts_with("==> attempt 2, failed, 20") && lines[2].ends_with(" <=="));
    assert_eq!([lines[1], lines[3], lines[5]], ["try 1", "try 2", "try 3"]);
    stop(service, server).await;

    let (service, server, client) = start(folder.path()).await;
    assert_eq!(logs(&client, &id, "0").await, before);
    stop(service, server).await;
}

/// One that is taken up again begins to count anew; what came before stays before it.
#[tokio::test(flavor = "multi_thread")]
async fn a_retried_job_says_more_behind_what_it_said() {
    let folder = tempfile::tempdir().unwrap();
    let (service, server, client) = start(folder.path()).await;
    let id = submit(&client, "script", "echo no >&2; exit 65").await;
    client.wait(&id).await;
    client.post(&format!("/v1/jobs/{id}/retry"), "").await.accepted();
    client.wait(&id).await;
    let logs = logs(&client, &id, "0").await;
    assert_eq!(brief(&logs), [(1, "failed", "no\n"), (1, "failed", "no\n")]);
    assert!(logs[0]["fence"].as_u64() < logs[1]["fence"].as_u64());
    stop(service, server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_runs_is_heard_and_what_it_said_stays_when_it_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    named_pipe(&pipe);
    let (service, server, client) = start(folder.path()).await;
    // It ignores every signal that can be ignored, and ends when it is killed.
    let script =
        format!("trap '' TERM; echo begins >&2; echo begun > {}; sleep 1000", pipe.display());
    let id = submit(&client, "script", &script).await;
    let begun = tokio::task::spawn_blocking(move || std::fs::read(pipe).unwrap());
    assert_eq!(begun.await.unwrap(), b"begun\n");
    let heard = loop {
        let heard = logs(&client, &id, "0").await;
        if !heard.is_empty() {
            break heard;
        }
    };
    assert_eq!(brief(&heard), [(1, "running", "begins\n")]);
    assert_eq!(heard[0]["ended_at"], Value::Null);
    let accept = [("accept", "text/plain")];
    let text = client.send("GET", &path(&id, "0"), &accept, "").await.expect(200).text;
    assert!(text.starts_with("==> attempt 1, running, "), "{text}");
    client.post(&format!("/v1/jobs/{id}/cancel"), r#"{"mode":"kill"}"#).await;
    client.wait(&id).await;
    assert_eq!(brief(&logs(&client, &id, "0").await), [(1, "cancelled", "begins\n")]);
    stop(service, server).await;
}

/// Its error does not say what it was at.
#[tokio::test(flavor = "multi_thread")]
async fn one_whose_time_is_up_has_said_what_it_had() {
    let folder = tempfile::tempdir().unwrap();
    let (service, server, client) = start(folder.path()).await;
    let id = submit(&client, "hurried", "echo where it hangs >&2; sleep 1000").await;
    // On a slow machine the first ones don't get there.
    loop {
        let said = logs(&client, &id, "0").await;
        if let Some(ended) = said.iter().find(|log| log["state"] != "running") {
            assert_eq!(
                (&ended["state"], &ended["text"]),
                (&json!("failed"), &json!("where it hangs\n"))
            );
            break;
        }
    }
    client.post(&format!("/v1/jobs/{id}/cancel"), r#"{"mode":"kill"}"#).await;
    client.wait(&id).await;
    stop(service, server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_writes_without_end_is_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let (service, server, client) = start(folder.path()).await;
    // 200,000 lines of 12 bytes, of which the last 83 fit into 1000 bytes.
    let id = submit(&client, "brief", "seq -f 'line %06.0f' 200000 >&2").await;
    client.wait(&id).await;
    let said = logs(&client, &id, "0").await;
    let text = said[0]["text"].as_str().unwrap();
    assert!(text.starts_with("line 199918\n") && text.ends_with("line 200000\n"), "{text}");
    assert_eq!((text.len(), &said[0]["left_out_bytes"]), (83 * 12, &json!(2_400_000 - 83 * 12)));
    let accept = [("accept", "text/plain")];
    let text = client.send("GET", &path(&id, "0"), &accept, "").await.expect(200).text;
    assert!(text.contains("<==\n[2399004 bytes left out]\nline 199918\n"), "{text}");
    // Nothing of one line without end but its end.
    let id = submit(&client, "brief", "head -c 3000000 /dev/zero | tr -c y x >&2").await;
    client.wait(&id).await;
    let said = logs(&client, &id, "0").await;
    assert_eq!(said[0]["text"], "x".repeat(1000));
    assert_eq!(said[0]["left_out_bytes"], 2_999_000);
    stop(service, server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_says_nothing_or_is_not_to_be_heard_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let (service, server, client) = start(folder.path()).await;
    for (kind, payload) in
        [("script", "echo 7"), ("silent", "echo a word >&2; exit 1"), ("echo", "a function's")]
    {
        let id = submit(&client, kind, payload).await;
        client.wait(&id).await;
        assert_eq!(logs(&client, &id, "0").await, Vec::<Value>::new(), "{kind}");
        let accept = [("accept", "text/plain")];
        let text = client.send("GET", &path(&id, "0"), &accept, "").await.expect(200).text;
        assert_eq!(text, "");
    }
    stop(service, server).await;
    let store = rusqlite::Connection::open(folder.path().join("store")).unwrap();
    let rows: i64 = store.query_row("SELECT count(*) FROM log", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_text_is_there_byte_by_byte() {
    let folder = tempfile::tempdir().unwrap();
    let (service, server, client) = start(folder.path()).await;
    let id = submit(&client, "script", "echo Yf9i | base64 -d >&2").await;
    client.wait(&id).await;
    let said = logs(&client, &id, "0").await;
    assert_eq!(said[0]["text"], "a\u{fffd}b");
    assert_eq!(STANDARD.decode(said[0]["base64"].as_str().unwrap()).unwrap(), b"a\xffb");
    stop(service, server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_steps_of_a_job_are_heard_by_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let (service, server, client) = start(folder.path()).await;
    let id = submit(&client, "steps", "anything").await;
    client.wait(&id).await;
    for (number, text) in [("split", "splits\n"), ("0", "it\n"), ("fan-in", "sums up\n")] {
        assert_eq!(brief(&logs(&client, &id, number).await), [(1, "succeeded", text)]);
    }
    for number in ["1", "-1", "x", "4294967296", "Split"] {
        client.get(&path(&id, number)).await.expect(404);
    }
    // A job without such steps has no logs of them.
    let plain = submit(&client, "script", "true").await;
    client.wait(&plain).await;
    for number in ["1", "split", "fan-in"] {
        client.get(&path(&plain, number)).await.expect(404);
    }
    client.get(&path("job_0199aaaaaaaa7000800000000000000a", "0")).await.expect(404);
    stop(service, server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn they_go_when_their_job_is_removed_or_too_old() {
    let folder = tempfile::tempdir().unwrap();
    let (service, server, client) = start(folder.path()).await;
    let removed = submit(&client, "script", "echo one >&2").await;
    let old = submit(&client, "script", "echo two >&2").await;
    for id in [&removed, &old] {
        client.wait(id).await;
        assert_eq!(logs(&client, id, "0").await.len(), 1);
    }
    client.send("DELETE", &format!("/v1/jobs/{removed}"), &[], "").await.expect(204);
    client.get(&path(&removed, "0")).await.expect(410);
    assert_eq!(logs(&client, &old, "0").await.len(), 1);
    stop(service, server).await;

    let settings = ServiceSettings { keep: Some(Duration::ZERO), ..settings(folder.path()) };
    let service = start_with(settings).await;
    let (server, client) = serve(&service).await;
    while client.get(&path(&old, "0")).await.status != 410 {}
    stop(service, server).await;
    let store = rusqlite::Connection::open(folder.path().join("store")).unwrap();
    let rows: i64 = store.query_row("SELECT count(*) FROM log", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 0);
}

/// An end that does not fit takes what was said with it, and both are written when there is room.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_loses_neither_an_end_nor_what_was_said_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let max_bytes = Some(1_400_000);
    let store = store::StoreSettings { max_bytes, ..store::StoreSettings::default() };
    let service = start_with(ServiceSettings { store, ..settings(folder.path()) }).await;
    let (server, client) = serve(&service).await;
    let old = client.submit(r#"{"kind":"remote","payload":1}"#).await;
    let lease = claim(&client).await;
    let large = |bytes: usize| json!({"result": "x".repeat(bytes), "log": "the end\n"}).to_string();
    client.post(&format!("/v1/leases/{lease}/complete"), &large(600_000)).await.expect(204);
    client.wait(&old).await;
    let new = client.submit(r#"{"kind":"remote","payload":1}"#).await;
    let lease = claim(&client).await;
    client.post(&format!("/v1/leases/{lease}/complete"), &large(800_000)).await.expect(507);
    assert_eq!(logs(&client, &new, "0").await, Vec::<Value>::new());
    client.send("DELETE", &format!("/v1/jobs/{old}"), &[], "").await.expect(204);
    client.wait(&new).await;
    assert_eq!(brief(&logs(&client, &new, "0").await), [(1, "succeeded", "the end\n")]);
    stop(service, server).await;
    let (service, server, client) = start(folder.path()).await;
    assert_eq!(brief(&logs(&client, &new, "0").await), [(1, "succeeded", "the end\n")]);
    stop(service, server).await;
}

const FOLDER: &str = "KEYLANE_LOGS_FOLDER";

/// The server, if this process was started to be one that is killed.
#[tokio::test(flavor = "multi_thread")]
async fn server_to_be_killed() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let (_service, _server, client) = start(Path::new(&folder)).await;
    let id = submit(&client, "script", FAILS_THEN_WAITS).await;
    while brief(&logs(&client, &id, "0").await).len() < 2 {}
    // That the second one has begun is on the disk, too, by what is answered only then.
    for what in ["pause", "resume"] {
        client.post(&format!("/v1/jobs/{id}/{what}"), "").await.expect(200);
    }
    std::fs::write(Path::new(&folder).join("pipe"), &id).unwrap();
    std::future::pending::<()>().await;
}

/// The second attempt ends when its last reader has gone.
const FAILS_THEN_WAITS: &str = "echo try $KEYLANE_ATTEMPT >&2; test $KEYLANE_ATTEMPT = 1 && exit 1; \
     test $KEYLANE_ATTEMPT = 3 || while echo; do sleep 0.1; done";

#[tokio::test(flavor = "multi_thread")]
async fn what_was_said_before_a_kill_is_there_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    named_pipe(&pipe);
    let mut server = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "logs::server_to_be_killed"])
        .env(FOLDER, folder.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    // The first attempt has failed, and the second one runs.
    let told = tokio::task::spawn_blocking(move || std::fs::read_to_string(pipe).unwrap());
    let id = told.await.unwrap();
    server.kill().unwrap();
    server.wait().unwrap();

    let (service, server, client) = start(folder.path()).await;
    client.wait(&id).await;
    // The server took what the second one said with it, and counts it.
    let expected = [(1, "failed", "try 1\n"), (3, "succeeded", "try 3\n")];
    assert_eq!(brief(&logs(&client, &id, "0").await), expected);
    stop(service, server).await;
}

/// Claims a subtask for a worker elsewhere, and returns its lease.
async fn claim(client: &Client) -> String {
    let claim = r#"{"kinds":["remote"],"wait_ms":60000}"#;
    loop {
        let claimed = client.post("/v1/leases", claim).await.expect(200).json();
        if let Some(lease) = claimed["leases"].get(0) {
            return lease["id"].as_str().unwrap().to_owned();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_elsewhere_says_it_with_the_end_of_its_lease() {
    let folder = tempfile::tempdir().unwrap();
    let (service, server, client) = start(folder.path()).await;
    let id = client.submit(r#"{"kind":"remote","payload":1}"#).await;
    let lease = claim(&client).await;
    let long = "it went wrong\n".repeat(1000);
    let failed = json!({"error": "no", "after_ms": 0, "log": long}).to_string();
    client.post(&format!("/v1/leases/{lease}/fail"), &failed).await.expect(204);
    let lease = claim(&client).await;
    let log = json!({"log": "it went well"}).to_string();
    client.post(&format!("/v1/leases/{lease}/complete"), &log).await.expect(204);
    client.wait(&id).await;
    let said = logs(&client, &id, "0").await;
    let kept = "it went wrong\n".repeat(8192 / 14);
    let expected = [(1, "failed", kept.as_str()), (2, "succeeded", "it went well")];
    assert_eq!(brief(&said), expected);
    assert_eq!(said[0]["left_out_bytes"], long.len() - kept.len());
    // Whose lease is lost is not heard.
    client.post(&format!("/v1/leases/{lease}/fail"), &failed).await.expect(409);
    assert_eq!(logs(&client, &id, "0").await, said);
    stop(service, server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_read_jobs_may_read_them_and_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let service = start_with(settings(folder.path())).await;
    let tokens = "a admin plain:the-token-of-admin\nr read plain:the-token-of-read\n\
                  w worker plain:the-token-of-worker\n";
    let tokens = Tokens::parse(tokens).unwrap();
    let settings = http::HttpSettings { tokens, ..http::HttpSettings::default() };
    let (server, client) = serve_with(&service, settings).await;
    let with = |role: &str| format!("Bearer the-token-of-{role}");
    let admin = with("admin");
    let headers = [("authorization", &*admin), ("content-type", "application/json")];
    let job = json!({"kind": "script", "payload": "echo a word >&2"}).to_string();
    let headers = [headers[0], headers[1], ("prefer", "wait=30")];
    let job = client.send("POST", "/v1/jobs", &headers, &job).await.expect(200).json();
    let path = path(job["id"].as_str().unwrap(), "0");
    for (role, status) in [("read", 200), ("admin", 200), ("worker", 403), ("nobody", 401)] {
        let bearer = with(role);
        let answer = client.send("GET", &path, &[("authorization", &bearer)], "").await;
        assert_eq!(answer.expect(status).text.contains("a word"), status == 200, "{role}");
    }
    client.get(&path).await.expect(401);
    stop(service, server).await;
}
