//! What is done again of a job that was over, and what is not, also over a restart.

use std::path::Path;
use std::time::Duration;

use crate::common::serve;
use crate::common::stage::{Stage, stage};
use keylane_service::handle::Failure;
use keylane_service::{Kind, Service, Settings};
use serde_json::json;

/// One slot, and whoever is in it is on the stage.
async fn start(folder: &Path) -> (Service, Stage) {
    let (actors, stage) = stage();
    let settings = Settings { slots: 1, ..Settings::new(folder.join("store")) };
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
    stage.end("a", Err(Failure::lasting("it forgot its line")));
    let counts = client.wait(&id).await["counts"].clone();
    assert_eq!((&counts["failed"], &counts["cancelled"]), (&json!(1), &json!(2)));
    // So that it is not done before the restart.
    client.post("/v1/keys/k/pause", "").await.expect(200);
    client.post(&format!("/v1/jobs/{id}/retry"), "").await.expect(202);
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
    client.post(&format!("/v1/jobs/{id}/retry"), &all).await.expect(202);
    for name in ["b", "c"] {
        assert_eq!(stage.next().await, name);
        stage.succeed(name);
    }
    assert_eq!(client.wait(&id).await["counts"]["succeeded"], 3);
}
