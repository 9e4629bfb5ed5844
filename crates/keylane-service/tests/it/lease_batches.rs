//! Leases that are kept, ended and followed by others in one request mean the same as one by one.

use std::path::Path;
use std::time::Duration;

use crate::common::{Client, Log, builder, serve};
use keylane_service::http::HttpServer;
use keylane_service::{Kind, Service};
use serde_json::{Value, json};

async fn start(folder: &Path) -> (Service, HttpServer, Client) {
    let once = Kind { attempts: 1, ..Kind::leased(Duration::from_secs(60)) };
    let service = builder(folder, &Log::default()).kind("once", once).start().await.unwrap();
    let (server, client) = serve(&service).await;
    (service, server, client)
}

/// Submits a job of subtasks with a key each, whose payloads are their numbers.
async fn submit(client: &Client, kind: &str, count: usize) -> String {
    let subtasks: Vec<_> =
        (0..count).map(|n| json!({"key": format!("{kind}{n}"), "payload": n})).collect();
    client.submit(&json!({"kind": kind, "subtasks": subtasks}).to_string()).await
}

/// Claims exactly this many subtasks.
async fn claim(client: &Client, kind: &str, count: usize) -> Vec<Value> {
    let mut leases = Vec::new();
    while leases.len() < count {
        let ask = json!({"kinds": [kind], "max": count - leases.len(), "wait_ms": 60_000});
        let claimed = client.post("/v1/leases", &ask.to_string()).await.expect(200).json();
        leases.extend(claimed["leases"].as_array().unwrap().clone());
    }
    leases
}

async fn complete(client: &Client, body: &Value) -> Value {
    client.post("/v1/leases/complete", &body.to_string()).await.expect(200).json()
}

async fn heartbeat(client: &Client, ids: &[&str]) -> Vec<Value> {
    let body = json!({"leases": ids}).to_string();
    let beaten = client.post("/v1/leases/heartbeat", &body).await.expect(200).json();
    beaten["items"].as_array().unwrap().clone()
}

fn statuses(answer: &Value) -> Vec<u64> {
    let items = answer["items"].as_array().unwrap().iter();
    items.map(|item| item["status"].as_u64().unwrap()).collect()
}

fn id(lease: &Value) -> &str {
    lease["id"].as_str().unwrap()
}

/// Each item counts by itself: one that is stale or unknown has a problem of its own.
#[tokio::test(flavor = "multi_thread")]
async fn each_end_of_a_batch_counts_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let (_service, _server, client) = start(folder.path()).await;
    let job = submit(&client, "once", 4).await;
    let leases = claim(&client, "once", 4).await;
    let answer = complete(
        &client,
        &json!({"leases": [
            {"id": id(&leases[0]), "result": {"n": 1.50}, "log": "fine"},
            {"id": id(&leases[1]), "error": "no room", "log": "not fine"},
            {"id": id(&leases[0]), "result": 2},
            {"id": "nothing"},
            {"id": id(&leases[2]), "release": true},
            {"id": id(&leases[3])},
        ]}),
    )
    .await;
    assert_eq!(statuses(&answer), [204, 204, 409, 404, 204, 204], "{answer}");
    assert_eq!(answer["items"][2]["problem"]["code"], "lease-lost");
    assert_eq!(answer["items"][3]["problem"]["code"], "unknown");
    assert!(answer.get("leases").is_none(), "{answer}");
    // The released subtask has its only attempt again, with another fence.
    let again = claim(&client, "once", 1).await.remove(0);
    assert_eq!((&again["payload"], &again["attempt"]), (&leases[2]["payload"], &json!(1)));
    assert!(again["fence"].as_u64() > leases[2]["fence"].as_u64());
    let answer =
        complete(&client, &json!({"leases": [{"id": id(&again), "result": "done"}]})).await;
    assert_eq!(statuses(&answer), [204]);
    let over = client.wait(&job).await;
    let counts = &over["counts"];
    assert_eq!((&counts["succeeded"], &counts["failed"]), (&json!(3), &json!(1)), "{over}");
    let path = |n: &Value, what: &str| format!("/v1/jobs/{job}/subtasks/{n}{what}");
    let first = client.get(&path(&leases[0]["number"], "/logs")).await.expect(200);
    assert!(first.text.contains("fine"), "{}", first.text);
    let results = client.get(&format!("/v1/jobs/{job}/results")).await.expect(200);
    assert!(results.text.contains(r#"{"n":1.5}"#), "{}", results.text);
    assert!(results.text.contains("no room"), "{}", results.text);
    let metrics = client.get("/metrics").await.expect(200).text;
    assert!(metrics.contains("keylane_order_violations_total 0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn heartbeats_of_many_leases_are_one_request() {
    let folder = tempfile::tempdir().unwrap();
    let (_service, _server, client) = start(folder.path()).await;
    let [kept, killed] = [submit(&client, "once", 2).await, submit(&client, "remote", 2).await];
    let mut leases = claim(&client, "once", 2).await;
    leases.extend(claim(&client, "remote", 2).await);
    let mut ids: Vec<&str> = leases.iter().map(id).collect();
    ids.push("nothing");
    let time = |value: &Value| -> jiff::Timestamp { value.as_str().unwrap().parse().unwrap() };
    let beats = heartbeat(&client, &ids).await;
    for (lease, beat) in leases.iter().zip(&beats) {
        assert_eq!((&beat["status"], &beat["cancel"]), (&json!(200), &json!(false)), "{beat}");
        assert!(time(&beat["expires_at"]) >= time(&lease["expires_at"]), "{beat}");
    }
    assert_eq!(beats[4]["status"], 404);
    client.post(&format!("/v1/jobs/{killed}/cancel"), r#"{"mode":"kill"}"#).await.expect(200);
    let beats = heartbeat(&client, &ids).await;
    let statuses: Vec<_> = beats.iter().map(|beat| beat["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [200, 200, 409, 409, 404]);
    assert_eq!(beats[2]["problem"]["code"], "lease-lost");
    client.post(&format!("/v1/jobs/{kept}/cancel"), r#"{"mode":"graceful"}"#).await.expect(202);
    let beats = heartbeat(&client, &ids[..2]).await;
    assert!(beats.iter().all(|beat| beat["status"] == 200), "{beats:?}");
}

/// A worker has its next subtasks in the answer to its report, in order per key: the end of the one before is on
/// the disk with its own start.
#[tokio::test(flavor = "multi_thread")]
async fn the_answer_to_a_report_has_the_next_leases() {
    const ROUNDS: u64 = 50;
    let folder = tempfile::tempdir().unwrap();
    let (_service, _server, client) = start(folder.path()).await;
    let subtasks: Vec<_> = (0..ROUNDS)
        .flat_map(|round| ["a", "b"].map(|key| json!({"key": key, "payload": round})))
        .collect();
    let job = client.submit(&json!({"kind": "once", "subtasks": subtasks}).to_string()).await;
    let ask = json!({"kinds": ["once"], "max": 2, "wait_ms": 60_000, "worker": "w"});
    let mut leases = claim(&client, "once", 2).await;
    for round in 0..ROUNDS {
        assert_eq!(leases.len(), 2);
        assert!(leases.iter().all(|lease| lease["payload"] == round), "{leases:?}");
        let ends: Vec<_> = leases.iter().map(|lease| json!({"id": id(lease)})).collect();
        let mut body = json!({"leases": ends});
        if round + 1 < ROUNDS {
            body["claim"] = ask.clone();
        }
        let answer = complete(&client, &body).await;
        assert_eq!(statuses(&answer), [204, 204]);
        leases = answer["leases"].as_array().cloned().unwrap_or_default();
    }
    let over = client.wait(&job).await;
    assert_eq!(over["counts"]["succeeded"], 2 * ROUNDS, "{over}");
}

/// Nothing of a request counts that is refused for its form.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_with_an_invalid_item_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (_service, _server, client) = start(folder.path()).await;
    submit(&client, "once", 1).await;
    let lease = claim(&client, "once", 1).await.remove(0);
    let id = id(&lease);
    for (body, pointer) in [
        (json!({"leases": []}), "/leases"),
        (json!({"leases": [{"id": id}, {"id": id, "result": 1, "error": "e"}]}), "/leases/1"),
        (json!({"leases": [{"id": id, "release": true, "log": "l"}]}), "/leases/0/log"),
        (json!({"leases": [{"id": id, "retry": false}]}), "/leases/0/retry"),
        (json!({"leases": [{"id": id, "after_ms": 5}]}), "/leases/0/after_ms"),
        (json!({"leases": [{"id": id, "outcome": "x"}]}), "/leases/0/outcome"),
        (json!({"leases": [[id]]}), "/leases/0"),
        (json!({"leases": [{"id": id}], "claim": {"kinds": ["echo"]}}), "/claim/kinds/0"),
        (json!({"leases": [{"id": id}], "claim": {"kinds": ["once"], "max": 0}}), "/claim/max"),
    ] {
        let refused = client.post("/v1/leases/complete", &body.to_string()).await.expect(422);
        assert_eq!(refused.json()["errors"][0]["pointer"], pointer, "{body}");
    }
    let many = vec!["lease_1_0_job"; 1001];
    for (path, body) in [
        ("heartbeat", json!({"leases": many})),
        ("heartbeat", json!({"leases": []})),
        (
            "complete",
            json!({"leases": many.iter().map(|id| json!({"id": id})).collect::<Vec<_>>()}),
        ),
    ] {
        let refused = client.post(&format!("/v1/leases/{path}"), &body.to_string()).await;
        assert_eq!(refused.expect(422).json()["errors"][0]["pointer"], "/leases");
    }
    assert_eq!(heartbeat(&client, &[id]).await[0]["status"], 200);
}

/// While the server stops, ends count, and no lease is granted.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_takes_batches_of_ends() {
    let folder = tempfile::tempdir().unwrap();
    let (service, _server, client) = start(folder.path()).await;
    let job = submit(&client, "once", 4).await;
    let leases = claim(&client, "once", 2).await;
    service.drain();
    let ids: Vec<_> = leases.iter().map(id).collect();
    assert!(heartbeat(&client, &ids).await.iter().all(|beat| beat["status"] == 200));
    let ends: Vec<_> = ids.iter().map(|id| json!({"id": id})).collect();
    let ask = json!({"kinds": ["once"], "max": 2, "wait_ms": 60_000});
    let answer = complete(&client, &json!({"leases": ends, "claim": ask})).await;
    assert_eq!(statuses(&answer), [204, 204]);
    assert_eq!(answer["leases"], json!([]));
    assert_eq!(answer["claim_problem"]["code"], "unavailable", "{answer}");
    let seen = client.get(&format!("/v1/jobs/{job}")).await.expect(200).json();
    assert_eq!(seen["counts"]["succeeded"], 2, "{seen}");
}

/// A paused kind, its concurrency and a paused job bound batches like single requests.
#[tokio::test(flavor = "multi_thread")]
async fn limits_and_pauses_bound_a_batch() {
    let folder = tempfile::tempdir().unwrap();
    let (_service, _server, client) = start(folder.path()).await;
    submit(&client, "once", 8).await;
    let change = [("content-type", "application/json"), ("if-match", "*")];
    client.send("PATCH", "/v1/kinds/once", &change, r#"{"concurrency":3}"#).await.expect(200);
    let leases = claim(&client, "once", 3).await;
    let next = |ends: &[Value]| {
        let ends: Vec<_> = ends.iter().map(|lease| json!({"id": id(lease)})).collect();
        json!({"leases": ends, "claim": {"kinds": ["once"], "max": 8}})
    };
    // Two places are free.
    let answer = complete(&client, &next(&leases[..2])).await;
    let mut more = answer["leases"].as_array().unwrap().clone();
    more.extend(claim(&client, "once", 2 - more.len()).await);
    assert_eq!(more.len(), 2);
    client.post("/v1/kinds/once/pause", "").await.expect(200);
    let answer = complete(&client, &next(&more)).await;
    assert_eq!((statuses(&answer), &answer["leases"]), (vec![204, 204], &json!([])));
    client.post("/v1/kinds/once/resume", "").await.expect(200);
    assert_eq!(claim(&client, "once", 2).await.len(), 2);
}

/// Workers whose clocks differ go by the time that is left.
#[tokio::test(flavor = "multi_thread")]
async fn leases_and_heartbeats_say_the_time_that_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let (_service, _server, client) = start(folder.path()).await;
    submit(&client, "once", 1).await;
    client.submit(r#"{"kind": "once", "payload": 1, "timeout_ms": 30000}"#).await;
    let leases = claim(&client, "once", 2).await;
    let left = |answer: &Value| answer["expires_in_ms"].as_u64().unwrap();
    assert!((1..=60_000).contains(&left(&leases[0])), "{leases:?}");
    assert_eq!(leases[0].get("timeout_ms"), None);
    // Beyond the timeout a heartbeat extends nothing.
    assert!((1..=30_000).contains(&left(&leases[1])), "{leases:?}");
    assert_eq!(leases[1]["timeout_ms"], 30_000);
    let beaten = heartbeat(&client, &[id(&leases[0]), id(&leases[1]), "lease_1_2_3"]).await;
    assert!((1..=60_000).contains(&left(&beaten[0])), "{beaten:?}");
    assert!((1..=30_000).contains(&left(&beaten[1])), "{beaten:?}");
    assert_eq!(beaten[2].get("expires_in_ms"), None);
    let single = format!("/v1/leases/{}/heartbeat", id(&leases[0]));
    let beaten = client.post(&single, "").await.expect(200).json();
    assert!((1..=60_000).contains(&left(&beaten)), "{beaten}");
}

#[tokio::test(flavor = "multi_thread")]
async fn heartbeats_of_several_leases_have_the_progress_of_each() {
    let folder = tempfile::tempdir().unwrap();
    let (_service, _server, client) = start(folder.path()).await;
    let job = submit(&client, "once", 3).await;
    let leases = claim(&client, "once", 3).await;
    let ids: Vec<_> = leases.iter().map(id).collect();
    let beat = json!({"leases": ids, "progress": {ids[0]: 0.25, ids[2]: 1}}).to_string();
    client.post("/v1/leases/heartbeat", &beat).await.expect(200);
    let mut seen = Vec::new();
    for lease in &leases {
        let path = format!("/v1/jobs/{job}/subtasks/{}", lease["number"]);
        seen.push(client.get(&path).await.json()["progress"].as_f64());
    }
    assert_eq!(seen, [Some(0.25), None, Some(1.0)]);
    let wrong = json!({"leases": ids, "progress": {ids[0]: 2}}).to_string();
    let refused = client.post("/v1/leases/heartbeat", &wrong).await.expect(422).json();
    assert_eq!(refused["errors"][0]["pointer"], format!("/progress/{}", ids[0]), "{refused}");
}
