//! Servers with one store in PostgreSQL run the subtasks of leased kinds together, and an attempt goes on while the owner changes.

use std::sync::Arc;
use std::time::Duration;

use crate::common::cluster::{Owner, Waiting};
use crate::common::{Client, text};
use keylane_service::Kind;
use keylane_service::handle::{Attempt, AttemptFailure, FunctionHandler, Handler};
use keylane_service::http::{HttpSettings, Tokens};
use keylane_testkit::{PAUSE, PostgresServer, or_skip};
use serde_json::{Value, json};
use tokio::sync::{Barrier, Notify, Semaphore};

/// Longer than any test.
const LASTS: Duration = Duration::from_secs(600);

/// Handler that waits until as many attempts run at the same time as the barrier is for.
fn meets(barrier: &Arc<Barrier>) -> impl Handler {
    let barrier = Arc::clone(barrier);
    FunctionHandler::new(move |_| {
        let barrier = Arc::clone(&barrier);
        async move {
            barrier.wait().await;
            Ok(None)
        }
    })
}

async fn workers(client: &Client) -> Vec<Value> {
    let page = client.get("/v1/workers").await.expect(200).json();
    page["items"].as_array().unwrap().clone()
}

/// Each server runs one subtask at a time.
#[tokio::test(flavor = "multi_thread")]
async fn subtasks_run_at_all_servers_at_the_same_time() {
    let Some(database) = or_skip(PostgresServer::start()) else { return };
    let barrier = Arc::new(Barrier::new(3));
    let kinds = || vec![("meet", Kind::on_all_servers(LASTS, meets(&barrier)))];
    let http = HttpSettings::default();
    let owner = Waiting::with_kinds(&database, http.clone(), kinds()).await.start().await;
    let first = Waiting::with_kinds(&database, http.clone(), kinds()).await;
    let second = Waiting::with_kinds(&database, http, kinds()).await;
    let subtasks: Vec<_> = (0..30).map(|n| json!({"payload": n})).collect();
    let job = json!({"kind": "meet", "subtasks": subtasks}).to_string();
    let id = owner.client.submit(&job).await;
    assert_eq!(owner.client.wait(&id).await["counts"]["succeeded"], 30);
    let names: Vec<_> = workers(&owner.client).await;
    for client in [&owner.client, &first.client, &second.client] {
        let name = format!("http://{}", client.address);
        assert!(names.iter().any(|worker| worker["name"] == name), "{name}: {names:?}");
    }
    owner.stop().await;
}

/// With tokens too: a node shows the secret that the owner has written to the database.
#[tokio::test(flavor = "multi_thread")]
async fn a_kind_runs_where_it_has_a_handler() {
    let Some(database) = or_skip(PostgresServer::start()) else { return };
    let tokens = Tokens::parse("ops admin plain:0123456789abcdef\n").unwrap();
    let http = HttpSettings { tokens, ..HttpSettings::default() };
    let owner = vec![("here", Kind::leased(LASTS))];
    let owner = Waiting::with_kinds(&database, http.clone(), owner).await.start().await;
    let echo = FunctionHandler::new(|attempt: Attempt| async move {
        Ok(serde_json::value::RawValue::from_string(text(&attempt)).ok())
    });
    // A kind that the owner does not have takes nothing from the others.
    let barrier = Arc::new(Barrier::new(1));
    let kinds = vec![
        ("here", Kind::on_all_servers(LASTS, echo)),
        ("else", Kind::on_all_servers(LASTS, meets(&barrier))),
    ];
    let other = Waiting::with_kinds(&database, http, kinds).await;
    let headers =
        [("authorization", "Bearer 0123456789abcdef"), ("content-type", "application/json")];
    let submit = r#"{"kind":"here","payload":7}"#;
    let job = owner.client.send("POST", "/v1/jobs", &headers, submit).await.expect(202).json();
    let path = format!("/v1/jobs/{}", job["id"].as_str().unwrap());
    while owner.client.send("GET", &path, &headers, "").await.json()["state"] != "succeeded" {
        tokio::time::sleep(PAUSE).await;
    }
    drop(other);
    owner.stop().await;
}

/// Handler that says that it has begun, and ends when it is told.
fn told(begun: &Arc<Notify>, finish: &Arc<Semaphore>) -> impl Handler {
    let (begun, finish) = (Arc::clone(begun), Arc::clone(finish));
    FunctionHandler::new(move |attempt: Attempt| {
        let (begun, finish) = (Arc::clone(&begun), Arc::clone(&finish));
        async move {
            begun.notify_one();
            tokio::select! {
                permit = finish.acquire() => permit.expect("it is open").forget(),
                () = attempt.cancelled.cancelled() => panic!("nothing cancels it"),
            }
            Ok(serde_json::value::RawValue::from_string(attempt.number.to_string()).ok())
        }
    })
}

/// Starts an owner that has no handler of the kind `slow`, and another server that has this one.
async fn owner_without_handler(
    database: &PostgresServer,
    handler: impl Handler,
) -> (Owner, Waiting) {
    let http = HttpSettings::default();
    let leased = vec![("slow", Kind::leased(LASTS))];
    let owner = Waiting::with_kinds(database, http.clone(), leased).await.start().await;
    let kinds = vec![("slow", Kind::on_all_servers(LASTS, handler))];
    (owner, Waiting::with_kinds(database, http, kinds).await)
}

/// As if the owner, or its network, stood still: another one takes over.
#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_goes_on_while_the_owner_changes_and_counts_once() {
    let Some(database) = or_skip(PostgresServer::start()) else { return };
    let (begun, finish) = (Arc::default(), Arc::new(Semaphore::new(0)));
    let (owner, other) = owner_without_handler(&database, told(&begun, &finish)).await;
    let subtasks = json!([{"key": "k"}, {"key": "k"}]);
    let id = owner.client.submit(&json!({"kind": "slow", "subtasks": subtasks}).to_string()).await;
    begun.notified().await;
    let taken = "UPDATE keylane.term SET node = NULL; DELETE FROM keylane.heartbeat";
    let _ = database.query(taken);
    let other = other.start().await;
    finish.add_permits(1);
    // The second one begins when the new owner knows the end of the first.
    begun.notified().await;
    finish.add_permits(1);
    let job = other.client.wait(&id).await;
    assert_eq!(job["counts"]["succeeded"], 2, "{job}");
    let results = other.client.get(&format!("/v1/jobs/{id}/results")).await.json();
    let attempts: Vec<_> =
        results["items"].as_array().unwrap().iter().map(|item| &item["result"]).collect();
    assert_eq!(attempts, [&json!(1), &json!(1)]);
    drop(owner);
    other.stop().await;
}

/// Its attempt is done at the server that waits, in order with those of the owner.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_waits_is_stopped_after_its_attempts() {
    let Some(database) = or_skip(PostgresServer::start()) else { return };
    let (begun, finish) = (Arc::default(), Arc::new(Semaphore::new(0)));
    let (owner, other) = owner_without_handler(&database, told(&begun, &finish)).await;
    let id = owner.client.submit(r#"{"kind":"slow","payload":1}"#).await;
    begun.notified().await;
    let runner = other.runner.clone();
    let stopping = tokio::spawn(async move { runner.stop(Duration::from_secs(600)).await });
    finish.add_permits(1);
    stopping.await.unwrap();
    assert_eq!(owner.client.wait(&id).await["state"], "succeeded");
    drop(other);
    owner.stop().await;
}

/// Otherwise an attempt at a server that still reaches this owner would run beside its next one, at the owner that has taken over.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_does_not_reach_its_database_extends_no_lease() {
    const SHORT: Duration = Duration::from_secs(2);
    let Some(mut database) = or_skip(PostgresServer::start()) else { return };
    let (begun, cancelled) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let of_handler = (Arc::clone(&begun), Arc::clone(&cancelled));
    let handler = FunctionHandler::new(move |attempt: Attempt| {
        let (begun, cancelled) = of_handler.clone();
        async move {
            begun.notify_one();
            attempt.cancelled.cancelled().await;
            cancelled.notify_one();
            Err(AttemptFailure::passing("it was cancelled"))
        }
    });
    let kinds =
        vec![("here", Kind::on_all_servers(SHORT, handler)), ("remote", Kind::leased(SHORT))];
    let owner = Waiting::with_kinds(&database, HttpSettings::default(), kinds).await.start().await;
    owner.client.submit(r#"{"kind":"here","payload":1}"#).await;
    begun.notified().await;
    let job = owner.client.submit(r#"{"kind":"remote","payload":1}"#).await;
    let claim = r#"{"kinds":["remote"],"wait_ms":60000}"#;
    let claimed = owner.client.post("/v1/leases", claim).await.expect(200).json();
    let lease = claimed["leases"][0]["id"].as_str().unwrap().to_owned();

    database.kill();
    let refused = async {
        let path = format!("/v1/leases/{lease}/heartbeat");
        while owner.client.post(&path, "").await.status != 503 {
            tokio::time::sleep(PAUSE).await;
        }
        cancelled.notified().await;
    };
    tokio::time::timeout(Duration::from_secs(60), refused).await.unwrap();

    // The end of a worker that could not report it before counts.
    database.restart();
    let path = format!("/v1/leases/{lease}/complete");
    loop {
        let answer = owner.client.post(&path, r#"{"result":7}"#).await;
        if answer.status == 204 {
            break;
        }
        assert!(matches!(answer.status, 503 | 507), "{answer:?}");
        tokio::time::sleep(PAUSE).await;
    }
    assert_eq!(owner.client.wait(&job).await["state"], "succeeded");
}
