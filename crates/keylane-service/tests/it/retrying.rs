//! What is done again of a job that was over, and what is not, also over a restart.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::common::serve;
use crate::common::stage::{Stage, stage};
use keylane_service::handle::AttemptFailure;
use keylane_service::{Kind, Service, ServiceSettings};
use serde_json::{Value, json};

/// One slot; its attempt is on the stage.
async fn start(folder: &Path) -> (Service, Stage) {
    let (actors, stage) = stage();
    let settings = ServiceSettings { slots: 1, ..ServiceSettings::new(folder.join("store")) };
    (Service::builder(settings).kind("act", Kind::new(actors)).start().await.unwrap(), stage)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_cancelled_with_a_job_stays_so_when_only_the_failed_are_done_again() {
    let folder = tempfile::tempdir().unwrap();
    let (service, mut stage) = start(folder.path()).await;
    let (server, client) = serve(&service).await;
    let subtasks = json!([{"key": "k", "payload": "a"}, {"payload": "b"}, {"payload": "c"}]);
    let body = json!({"kind": "act", "on_error": "fail_fast", "subtasks": subtasks});
    let id = client.submit(&body.to_string()).await;
    assert_eq!(stage.next().await, "a");
    stage.end("a", Err(AttemptFailure::lasting("it forgot its line")));
    let counts = client.wait(&id).await["counts"].clone();
    assert_eq!((&counts["failed"], &counts["cancelled"]), (&json!(1), &json!(2)));
    // So that it is not done before the restart.
    client.post("/v1/keys/k/pause", "").await.expect(200);
    client.post(&format!("/v1/jobs/{id}/retry"), "").await.accepted();
    server.stop(Duration::from_secs(5)).await;
    service.stop(Duration::from_secs(5)).await;

    let (service, mut stage) = start(folder.path()).await;
    let (_server, client) = serve(&service).await;
    let counts = client.get(&format!("/v1/jobs/{id}")).await.json()["counts"].clone();
    assert_eq!((&counts["failed"], &counts["cancelled"]), (&json!(0), &json!(2)));
    client.post("/v1/keys/k/resume", "").await.expect(200);
    assert_eq!(stage.next().await, "a");
    stage.succeed("a");
    let done = client.wait(&id).await;
    assert_eq!(
        (&done["counts"]["succeeded"], &done["counts"]["cancelled"]),
        (&json!(1), &json!(2))
    );
    stage.expect_nobody();
    // They can still be asked for.
    let all = json!({"only": "unsuccessful"}).to_string();
    client.post(&format!("/v1/jobs/{id}/retry"), &all).await.accepted();
    for name in ["b", "c"] {
        assert_eq!(stage.next().await, name);
        stage.succeed(name);
    }
    assert_eq!(client.wait(&id).await["counts"]["succeeded"], 3);
}

/// The operator's retry counts more than the delay, also after a restart.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_was_cancelled_before_the_end_of_its_delay_is_retried_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (service, _stage) = start(folder.path()).await;
    let (server, client) = serve(&service).await;
    let body = json!({"kind": "act", "key": "k", "payload": "a", "delay_ms": 3_600_000});
    let id = client.submit(&body.to_string()).await;
    client.post(&format!("/v1/jobs/{id}/cancel"), "").await.accepted();
    assert_eq!(client.wait(&id).await["state"], "cancelled");
    client.post("/v1/keys/k/pause", "").await.expect(200);
    let all = json!({"only": "unsuccessful"}).to_string();
    client.post(&format!("/v1/jobs/{id}/retry"), &all).await.accepted();
    server.stop(Duration::from_secs(5)).await;
    service.stop(Duration::from_secs(5)).await;

    let (service, mut stage) = start(folder.path()).await;
    let (_server, client) = serve(&service).await;
    client.post("/v1/keys/k/resume", "").await.expect(200);
    assert_eq!(stage.next().await, "a");
    stage.succeed("a");
    assert_eq!(client.wait(&id).await["state"], "succeeded");
}

/// Kinds whose steps are on the stage, too.
async fn start_with_steps(folder: &Path) -> (Service, Stage) {
    let (actors, stage) = stage();
    let step = || Some(Arc::new(actors.clone()) as _);
    let builder = Service::builder(ServiceSettings {
        slots: 4,
        ..ServiceSettings::new(folder.join("store"))
    })
    .kind("act", Kind::new(actors.clone()))
    .kind("split", Kind { split: step(), ..Kind::new(actors.clone()) })
    .kind("sum", Kind { fan_in: step(), ..Kind::new(actors.clone()) });
    (builder.start().await.unwrap(), stage)
}

/// A start would make at once what had failed just now: again and again, if the server is restarted again and again.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_goes_on_over_a_restart_with_its_reason_also_that_of_a_step() {
    let folder = tempfile::tempdir().unwrap();
    let (service, mut stage) = start_with_steps(folder.path()).await;
    let (server, client) = serve(&service).await;
    let jobs = [
        json!({"kind": "act", "payload": "one"}),
        json!({"kind": "split", "payload": "two"}),
        json!({"kind": "sum", "fan_in": true, "payload": "three"}),
    ];
    let mut ids = Vec::new();
    for job in jobs {
        let id = client.submit(&job.to_string()).await;
        let mut name = stage.next().await;
        if name == "three" {
            stage.succeed("three");
            name = stage.next().await;
        }
        let after = Some(Duration::from_secs(3600));
        stage.end(&name, Err(AttemptFailure { after, ..AttemptFailure::passing("no answer") }));
        let waits = |job: &Value| job["waiting_because"][0]["reason"] == "backing_off";
        let job = client.wait_until(&id, waits).await;
        ids.push((id, job["waiting_because"][0].clone()));
    }
    server.stop(Duration::from_secs(5)).await;
    service.stop(Duration::from_secs(5)).await;

    let (service, mut stage) = start_with_steps(folder.path()).await;
    let (server, client) = serve(&service).await;
    for (id, before) in &ids {
        let job = client.get(&format!("/v1/jobs/{id}")).await.expect(200).json();
        let because = &job["waiting_because"][0];
        for name in ["reason", "until"] {
            assert_eq!(because[name], before[name], "{job}");
        }
        assert!(because["text"].as_str().unwrap().ends_with(": no answer"), "{job}");
    }
    // It is behind all that a start begins.
    let last = client.submit(r#"{"kind":"act","payload":"last"}"#).await;
    assert_eq!(stage.next().await, "last");
    stage.succeed("last");
    client.wait(&last).await;
    stage.expect_nobody();
    server.stop(Duration::from_secs(5)).await;
    service.stop(Duration::from_secs(5)).await;
}
