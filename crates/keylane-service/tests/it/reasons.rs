//! What is said of jobs that wait: the cause, the remedy, and no remaining time where there is none.

use crate::common::{Client, Log, builder, serve};
use serde_json::{Value, json};

macro_rules! scene {
    ($client:ident) => {
        let folder = tempfile::tempdir().unwrap();
        let service = builder(folder.path(), &Log::default()).start().await.unwrap();
        let (_server, $client) = serve(&service).await;
    };
}

async fn job(client: &Client, id: &str) -> Value {
    client.get(&format!("/v1/jobs/{id}")).await.expect(200).json()
}

async fn subtask(client: &Client, id: &str, number: u32) -> Value {
    client.get(&format!("/v1/jobs/{id}/subtasks/{number}")).await.expect(200).json()
}

async fn submit(client: &Client, job: Value) -> String {
    client.submit(&job.to_string()).await
}

/// The path of a lease of the kind for remote workers.
async fn lease(client: &Client) -> String {
    let claim = r#"{"kinds":["remote"],"wait_ms":30000}"#;
    let claim = client.post("/v1/leases", claim).await.expect(200).json();
    format!("/v1/leases/{}", claim["leases"][0]["id"].as_str().unwrap())
}

#[track_caller]
fn assert_reason(because: &Value, reason: &str, parts: &[&str]) {
    assert_eq!(because["reason"], reason, "{because}");
    let text = because["text"].as_str().unwrap();
    assert!(parts.iter().all(|part| text.contains(part)), "{parts:?} in {text:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_job_starts_now_if_a_slot_is_free() {
    scene!(client);
    // It is looked at when it is accepted, before anything can start.
    let fresh = client.post("/v1/jobs", r#"{"kind":"hang","payload":1}"#).await.expect(202).json();
    assert_reason(&fresh["waiting_because"][0], "starting", &["a slot is free"]);
    let full = json!({"kind": "hang", "subtasks": [{}, {}, {}]});
    let full = submit(&client, full).await;
    client.wait_until(&full, |job| job["counts"]["running"] == 3).await;
    let late = client.post("/v1/jobs", r#"{"kind":"echo","payload":1}"#).await.expect(202).json();
    let parts = ["all 4 slots are taken", "first job that waits"];
    assert_reason(&late["waiting_because"][0], "not_admitted", &parts);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_for_remote_workers_says_that_none_asks() {
    scene!(client);
    let id = submit(&client, json!({"kind": "remote", "subtasks": [{}, {}, {}]})).await;
    let because = &job(&client, &id).await["waiting_because"][0];
    assert_reason(because, "no_worker", &["no remote worker asks", "`remote`", "start one"]);
    let first = lease(&client).await;
    let because = &job(&client, &id).await["waiting_because"][0];
    assert_reason(because, "no_worker", &["those that do have 1"]);
    client.post(&format!("{first}/complete"), "").await.expect(204);
    // One has ended, but nothing says when the next begins.
    let seen = job(&client, &id).await;
    assert_eq!((&seen["counts"]["succeeded"], seen.get("eta_ms")), (&json!(1), None), "{seen}");
    let (_second, _third) = (lease(&client).await, lease(&client).await);
    let seen = job(&client, &id).await;
    assert!(seen["eta_ms"].is_u64(), "{seen}");
    client.post(&format!("/v1/jobs/{id}/pause"), "").await.expect(200);
    assert_eq!(job(&client, &id).await.get("eta_ms"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_behind_a_paused_key_says_so_however_far_behind() {
    scene!(client);
    client.post("/v1/keys/a/pause", "").await.expect(200);
    let first = submit(&client, json!({"kind": "echo", "keys": ["b", "a"], "payload": 1})).await;
    let second = json!({"kind": "echo", "subtasks": [{"key": "a"}, {"payload": 2}]});
    let second = submit(&client, second).await;
    let third = json!({"kind": "echo", "subtasks": [{"key": "b"}, {"payload": 3}]});
    let third = submit(&client, third).await;
    let one_is_done = |job: &Value| job["counts"]["succeeded"] == 1;
    client.wait_until(&second, one_is_done).await;
    client.wait_until(&third, one_is_done).await;
    let paused = ["`a` is paused", "resume the key"];
    for (id, reason) in [(&first, "key_paused"), (&second, "key_paused"), (&third, "key_order")] {
        let seen = job(&client, id).await;
        assert_reason(&seen["waiting_because"][0], reason, &paused);
        assert_eq!(seen.get("eta_ms"), None, "{seen}");
        assert_reason(&subtask(&client, id, 0).await["waiting_because"], reason, &paused);
    }
    assert!(job(&client, &second).await["waiting_because"][0]["since"].is_string());
    client.post("/v1/keys/a/resume", "").await.expect(200);
    for id in [first, second, third] {
        assert_eq!(client.wait(&id).await["state"], "succeeded");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_behind_another_job_says_what_that_waits_for() {
    scene!(client);
    let first = submit(&client, json!({"kind": "remote", "key": "a", "payload": 1})).await;
    let second = submit(&client, json!({"kind": "echo", "key": "a", "payload": 2})).await;
    let because = &job(&client, &second).await["waiting_because"][0];
    assert_reason(because, "key_order", &["waits: no remote worker asks", "(1 ahead)"]);
    client.post(&format!("/v1/jobs/{first}/pause"), "").await.expect(200);
    let because = &job(&client, &second).await["waiting_because"][0];
    assert_reason(because, "key_order", &["waits: the job is paused; resume it"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_is_told_while_the_next_attempt_or_an_operator_is_waited_for() {
    scene!(client);
    let id = json!({"kind": "remote", "key": "a", "payload": 1, "on_fail": "stop_key"});
    let id = submit(&client, id).await;
    let behind = submit(&client, json!({"kind": "echo", "key": "a", "payload": 2})).await;
    let path = lease(&client).await;
    let again = r#"{"error":"no room","retry":true,"after_ms":3600000}"#;
    client.post(&format!("{path}/fail"), again).await.expect(204);
    let because = &job(&client, &id).await["waiting_because"][0];
    assert_reason(because, "backing_off", &["no room", "59 min"]);
    assert_reason(&subtask(&client, &id, 0).await["waiting_because"], "backing_off", &["no room"]);
    let because = &job(&client, &behind).await["waiting_because"][0];
    assert_reason(because, "key_order", &["has failed (no room)", "tried again in 59 min"]);
    client.post("/v1/keys/a/retry-head", "").await.expect(200);
    let path = lease(&client).await;
    client.post(&format!("{path}/fail"), r#"{"error":"no disk","retry":false}"#).await.expect(204);
    for id in [&id, &behind] {
        let because = &job(&client, id).await["waiting_because"][0];
        assert_reason(because, "key_stopped", &["no disk", "retry or skip"]);
    }
    client.post("/v1/keys/a/skip-head", "").await.expect(200);
    assert_eq!(client.wait(&behind).await["state"], "succeeded");
    let skipped = &subtask(&client, &id, 0).await["outcome"];
    assert_eq!((&skipped["outcome"], &skipped["attempt"]), (&json!("skipped"), &json!(2)));
    assert_eq!(skipped["error"], "skipped by an operator, after: no disk");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_key_without_subtasks_is_listed() {
    scene!(client);
    client.post("/v1/keys/forgotten/pause", "").await.expect(200);
    let listed = async |query: &str| {
        let keys = client.get(&format!("/v1/keys{query}")).await.expect(200).json();
        keys["items"].as_array().unwrap().clone()
    };
    let keys = listed("").await;
    assert_eq!(keys[0]["key"], "forgotten");
    assert_eq!((&keys[0]["state"], &keys[0]["length"]), (&json!("paused"), &json!(0)));
    assert!(keys[0]["paused_since"].is_string(), "{keys:?}");
    let id = submit(&client, json!({"kind": "hang", "key": "busy", "payload": 1})).await;
    client.wait_until(&id, |job| job["counts"]["running"] == 1).await;
    let names = |keys: Vec<Value>| -> Vec<String> {
        keys.iter().map(|key| key["key"].as_str().unwrap().to_owned()).collect()
    };
    // The pause has lasted longer than the subtask.
    assert_eq!(names(listed("").await), ["forgotten", "busy"]);
    assert_eq!(names(listed("?limit=1").await), ["forgotten"]);
    assert_eq!(names(listed("?sort=length").await), ["busy", "forgotten"]);
    client.post("/v1/keys/forgotten/resume", "").await.expect(200);
    assert_eq!(names(listed("").await), ["busy"]);
}

/// The time of a pause says nothing of the time that is left.
#[tokio::test(flavor = "multi_thread")]
async fn the_remaining_time_is_measured_anew_after_a_pause() {
    scene!(client);
    let keyed = json!({"key": "k"});
    let id =
        submit(&client, json!({"kind": "remote", "subtasks": [keyed, keyed, keyed, keyed]})).await;
    for done in 1..=2 {
        let lease = lease(&client).await;
        client.post(&format!("{lease}/complete"), "{}").await.expect(204);
        client.wait_until(&id, |job| job["counts"]["succeeded"] == done).await;
    }
    let next = lease(&client).await;
    assert!(job(&client, &id).await["eta_ms"].is_number());
    client.post(&format!("{next}/complete"), "{}").await.expect(204);
    client.wait_until(&id, |job| job["counts"]["succeeded"] == 3).await;
    for what in ["pause", "resume"] {
        client.post(&format!("/v1/jobs/{id}/{what}"), "").await.expect(200);
    }
    let _last = lease(&client).await;
    let now = job(&client, &id).await;
    assert!(now.get("eta_ms").is_none(), "{now}");
}
