//! Jobs older than their retention are removed, however many there are, and delay nothing else.

use std::path::Path;
use std::time::Duration;

use crate::common::{Client, Log, builder_with, serve, settings};
use keylane_service::handle::{Attempt, FunctionHandler};
use keylane_service::{KeepJobs, Kind, Service, ServiceSettings};

async fn start(folder: &Path, keep: Option<Duration>, keep_idempotency: Duration) -> Service {
    let settings = ServiceSettings { keep, keep_idempotency, ..settings(folder) };
    builder_with(settings, &Log::default()).start().await.unwrap()
}

/// Submits under a key, and returns the job's id.
async fn submit(client: &Client, key: &str) -> String {
    let headers = [("content-type", "application/json"), ("idempotency-key", key)];
    let answer = client.send("POST", "/v1/jobs", &headers, r#"{"kind":"echo","payload":1}"#).await;
    answer.expect(202).json()["id"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_that_are_over_go_when_they_are_too_old_and_others_stay() {
    let folder = tempfile::tempdir().unwrap();
    let service = start(folder.path(), None, Duration::from_secs(9)).await;
    let (server, client) = serve(&service).await;
    let mut old = Vec::new();
    for number in 0..1100 {
        old.push(submit(&client, &number.to_string()).await);
    }
    for id in &old {
        client.wait(id).await;
    }
    let waits = client.submit(r#"{"kind":"echo","payload":1,"delay_ms":3600000}"#).await;
    server.stop(Duration::from_secs(5)).await;
    service.stop(Duration::ZERO).await;

    // It looks as soon as it starts, and goes on until nothing is left that is too old.
    let service = start(folder.path(), Some(Duration::ZERO), Duration::from_secs(9)).await;
    let (server, client) = serve(&service).await;
    for id in &old {
        while client.get(&format!("/v1/jobs/{id}")).await.status != 410 {}
    }
    let page = client.get("/v1/jobs").await.expect(200).json();
    assert_eq!(page["items"].as_array().unwrap().len(), 1, "{page}");
    assert_eq!(page["items"][0]["id"], waits);
    server.stop(Duration::from_secs(5)).await;
    service.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idempotency_key_that_has_expired_is_free_whether_it_was_removed_or_not() {
    let folder = tempfile::tempdir().unwrap();
    let service = start(folder.path(), None, Duration::ZERO).await;
    let (server, client) = serve(&service).await;
    let first = submit(&client, "a").await;
    assert_ne!(submit(&client, "a").await, first);
    server.stop(Duration::from_secs(5)).await;
    service.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_keeps_its_jobs_for_a_time_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let settings = ServiceSettings { keep: Some(Duration::ZERO), ..settings(folder.path()) };
    let echo = || Kind::new(FunctionHandler::new(|_: Attempt| async { Ok(None) }));
    let kept_for = |hours: u64| KeepJobs::For(Duration::from_secs(hours * 3600));
    let service = Service::builder(settings)
        .kind("hour", Kind { keep: kept_for(1), ..echo() })
        .kind("forever", Kind { keep: KeepJobs::Forever, ..echo() })
        .kind("plain", echo());
    let service = service.start().await.unwrap();
    let (server, client) = serve(&service).await;
    let submit = async |kind: &str| {
        let id = client.submit(&format!(r#"{{"kind":"{kind}","payload":1}}"#)).await;
        client.wait(&id).await;
        id
    };
    let (hour, forever) = (submit("hour").await, submit("forever").await);
    let plain = submit("plain").await;
    let kinds = client.get("/v1/kinds").await.expect(200).json();
    let shown = |name: &str, field: &str| {
        let kinds = kinds["items"].as_array().unwrap();
        kinds.iter().find(|kind| kind["name"] == name).unwrap()[field].clone()
    };
    assert_eq!(shown("hour", "retention_ms"), 3_600_000);
    assert_eq!(shown("forever", "keeps_forever"), true);
    server.stop(Duration::from_secs(5)).await;
    service.stop(Duration::ZERO).await;

    // With the next start the first kind keeps its jobs for no time.
    let settings = ServiceSettings { keep: Some(Duration::ZERO), ..self::settings(folder.path()) };
    let service = Service::builder(settings)
        .kind("hour", Kind { keep: kept_for(0), ..echo() })
        .kind("forever", Kind { keep: KeepJobs::Forever, ..echo() })
        .kind("plain", echo());
    let service = service.start().await.unwrap();
    let (server, client) = serve(&service).await;
    for id in [&hour, &plain] {
        while client.get(&format!("/v1/jobs/{id}")).await.status != 410 {}
    }
    client.get(&format!("/v1/jobs/{forever}")).await.expect(200);
    server.stop(Duration::from_secs(5)).await;
    service.stop(Duration::ZERO).await;
}
