//! Jobs with a split and a fan-in: the split is done once, when a slot is free, and the fan-in sees every
//! result, also over a restart.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::common::{Log, builder, serve, text};
use keylane_service::handle::{Attempt, AttemptFailure, FunctionHandler};
use keylane_service::{Kind, Service};
use serde_json::json;
use serde_json::value::RawValue;

fn raw(text: String) -> Option<Box<RawValue>> {
    RawValue::from_string(text).ok()
}

/// A kind that makes as many subtasks as its payload says, each of which returns its payload, and sums them up.
fn summing(splits: &Arc<AtomicU32>, log: &Log) -> Kind {
    let (splits, log) = (Arc::clone(splits), log.clone());
    let work = FunctionHandler::new(|attempt: Attempt| async move { Ok(raw(text(&attempt))) });
    let split = FunctionHandler::new(move |attempt: Attempt| {
        splits.fetch_add(1, Ordering::SeqCst);
        async move {
            let count: u32 =
                text(&attempt).parse().map_err(|_| AttemptFailure::lasting("no number"))?;
            let subtasks: Vec<_> =
                (0..count).map(|n| json!({"key": format!("k{}", n % 3), "payload": n})).collect();
            Ok(raw(json!(subtasks).to_string()))
        }
    });
    let fan_in = FunctionHandler::new(move |attempt: Attempt| {
        let log = log.clone();
        async move {
            let all: serde_json::Value = serde_json::from_slice(&attempt.payload).unwrap();
            let results = all["results"].as_array().unwrap();
            log.add(format!("{} results", results.len()));
            let sum: u64 = results.iter().map(|result| result.as_u64().unwrap()).sum();
            Ok(raw(sum.to_string()))
        }
    });
    Kind { split: Some(Arc::new(split)), fan_in: Some(Arc::new(fan_in)), ..Kind::new(work) }
}

async fn start(folder: &Path, splits: &Arc<AtomicU32>, log: &Log) -> Service {
    builder(folder, log).kind("sum", summing(splits, log)).start().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_split_done_and_summed_up() {
    let (folder, splits, log) = (tempfile::tempdir().unwrap(), Arc::default(), Log::default());
    let service = start(folder.path(), &splits, &log).await;
    let (_server, client) = serve(&service).await;
    let id = client.submit(r#"{"kind":"sum","payload":1000}"#).await;
    let done = client.wait(&id).await;
    assert_eq!((&done["state"], &done["result"]), (&json!("succeeded"), &json!(499_500)));
    assert_eq!(done["counts"]["total"], 1000);
    assert_eq!((splits.load(Ordering::SeqCst), log.lines()), (1, vec!["1000 results".to_owned()]));
    // All of it can be read when it is over.
    let again = client.get(&format!("/v1/jobs/{id}")).await.json();
    assert_eq!(again["result"], 499_500);
    let results = client.get(&format!("/v1/jobs/{id}/results?order=key&limit=1000")).await.json();
    let keys: Vec<_> =
        results["items"].as_array().unwrap().iter().map(|item| item["keys"][0].clone()).collect();
    assert!(keys.len() == 1000 && keys.is_sorted_by_key(|key| key.as_str().unwrap().to_owned()));
    let subtask = client.get(&format!("/v1/jobs/{id}/subtasks/999")).await.json();
    assert_eq!((&subtask["payload"], &subtask["keys"][0]), (&json!(999), &json!("k0")));
    client.get(&format!("/v1/jobs/{id}/subtasks/1000")).await.expect(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_split_that_makes_nothing_and_one_that_fails() {
    let (folder, splits, log) = (tempfile::tempdir().unwrap(), Arc::default(), Log::default());
    let service = start(folder.path(), &splits, &log).await;
    let (_server, client) = serve(&service).await;
    let id = client.submit(r#"{"kind":"sum","payload":0}"#).await;
    let done = client.wait(&id).await;
    assert_eq!((&done["state"], &done["result"]), (&json!("succeeded"), &json!(0)));
    let id = client.submit(r#"{"kind":"sum","payload":"x"}"#).await;
    let failed = client.wait(&id).await;
    assert_eq!((&failed["state"], &failed["error"]), (&json!("failed"), &json!("no number")));
    assert_eq!(failed["counts"]["total"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_split_is_not_done_again_after_a_restart() {
    let (folder, splits, log) = (tempfile::tempdir().unwrap(), Arc::default(), Log::default());
    let service = start(folder.path(), &splits, &log).await;
    let (server, client) = serve(&service).await;
    client.post("/v1/keys/k1/pause", "").await.expect(200);
    let id = client.submit(r#"{"kind":"sum","payload":9}"#).await;
    client.wait_until(&id, |job| job["counts"]["succeeded"] == 6).await;
    server.stop(Duration::from_secs(5)).await;
    service.stop(Duration::from_secs(5)).await;

    let service = start(folder.path(), &splits, &log).await;
    let (_server, client) = serve(&service).await;
    let job = client.get(&format!("/v1/jobs/{id}")).await.json();
    assert_eq!((&job["counts"]["succeeded"], &job["counts"]["total"]), (&json!(6), &json!(9)));
    client.post("/v1/keys/k1/resume", "").await.expect(200);
    let done = client.wait(&id).await;
    assert_eq!(done["result"], 36);
    assert_eq!((splits.load(Ordering::SeqCst), log.lines()), (1, vec!["9 results".to_owned()]));
}
