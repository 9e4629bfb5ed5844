//! The metrics have histograms of the durations of attempts, of the waits of jobs and of writes.

use std::time::Duration;

use crate::common::stage::stage;
use crate::common::{Client, serve};
use keylane_service::handle::AttemptFailure;
use keylane_service::{Kind, Service, ServiceSettings};
use serde_json::json;

/// Returns the value of a series.
async fn value(client: &Client, series: &str) -> f64 {
    let text = client.get("/metrics").await.expect(200).text;
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.map_or(0.0, |value| value.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_waits_and_writes_are_counted_by_their_duration() {
    let folder = tempfile::tempdir().unwrap();
    let (actors, mut stage) = stage();
    let settings =
        ServiceSettings { slots: 1, ..ServiceSettings::new(folder.path().join("store")) };
    let service = Service::builder(settings).kind("a \"kind\"", Kind::new(actors));
    let service = service.start().await.unwrap();
    let (server, client) = serve(&service).await;
    let submit = async |name: &str| {
        let job = json!({"kind": "a \"kind\"", "payload": name, "attempts": 1});
        client.submit(&job.to_string()).await
    };
    let first = submit("first").await;
    assert_eq!(stage.next().await, "first");
    let second = submit("second").await;
    // The second job waits, and its wait is counted when it starts.
    assert_eq!(value(&client, "keylane_job_wait_seconds_count").await, 1.0);
    stage.succeed("first");
    client.wait(&first).await;
    assert_eq!(stage.next().await, "second");
    stage.end("second", Err(AttemptFailure::passing("no")));
    client.wait(&second).await;
    assert_eq!(value(&client, "keylane_job_wait_seconds_count").await, 2.0);
    for outcome in ["succeeded", "failed"] {
        let labels = format!("kind=\"a \\\"kind\\\"\",outcome=\"{outcome}\"");
        let count = format!("keylane_attempt_seconds_count{{{labels}}}");
        assert_eq!(value(&client, &count).await, 1.0, "{outcome}");
        let all = format!("keylane_attempt_seconds_bucket{{{labels},le=\"+Inf\"}}");
        assert_eq!(value(&client, &all).await, 1.0, "{outcome}");
    }
    // The ends of both attempts were written.
    let writes = value(&client, "keylane_store_write_seconds_count").await;
    assert!(writes >= 2.0, "{writes}");
    server.stop(Duration::from_secs(5)).await;
    service.stop(Duration::from_secs(5)).await;
}
