//! A job with `after` begins when the jobs named there have ended, also through restarts, and is cancelled when one that
//! had to succeed has not.

use std::path::Path;
use std::time::Duration;

use crate::common::acting::ActingService;
use keylane_service::handle::AttemptFailure;
use keylane_service::{ManualClock, ServiceSettings};
use serde_json::{Value, json};

/// Starts a service that keeps ended jobs for a minute.
async fn start(store: &Path, clock: &ManualClock) -> ActingService {
    let keep = Some(Duration::from_secs(60));
    let clock = Some(clock.clone());
    ActingService::start(ServiceSettings { keep, clock, slots: 4, ..ServiceSettings::new(store) })
        .await
}

fn clock() -> ManualClock {
    ManualClock::at(1_790_000_000_000)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_begins_when_all_that_it_waits_for_have_succeeded() {
    let folder = tempfile::tempdir().unwrap();
    let mut place = start(&folder.path().join("store"), &clock()).await;
    let one = place.submit("one", &json!({})).await;
    assert_eq!(place.stage.next().await, "one");
    let put = json!({"kind": "act", "payload": "two"}).to_string();
    let headers = [("content-type", "application/json")];
    place.client.send("PUT", "/v1/jobs/second", &headers, &put).await.expect(202);
    assert_eq!(place.stage.next().await, "two");

    let third = place.submit("three", &json!({"key": "k", "after": [one, "second"]})).await;
    // It has no place in the order yet, so that it blocks no key.
    let behind = place.submit("behind", &json!({"key": "k"})).await;
    assert_eq!(place.stage.next().await, "behind");
    place.stage.succeed("behind");
    place.client.wait(&behind).await;
    let job = place.job(&third).await;
    assert_eq!(
        (&job["state"], &job["after_on"]),
        (&json!("scheduled"), &json!("success")),
        "{job}"
    );
    assert_eq!(job["after"][0], one);
    let why = &job["waiting_because"][0];
    assert_eq!((&why["reason"], &why["job"]), (&json!("after_job"), &json!(one)), "{why}");
    let text = why["text"].as_str().unwrap();
    assert_eq!(
        text,
        format!("it starts when {one} (running) and 1 more of `after` have succeeded")
    );

    place.stage.succeed("one");
    place.client.wait(&one).await;
    place.stage.expect_nobody();
    place.stage.succeed("two");
    assert_eq!(place.stage.next().await, "three");
    place.stage.succeed("three");
    assert_eq!(place.client.wait(&third).await["state"], "succeeded");

    // Jobs that are over already delay nothing.
    let last = place.submit("last", &json!({"after": [third]})).await;
    assert_eq!(place.stage.next().await, "last");
    place.stage.succeed("last");
    assert_eq!(place.client.wait(&last).await["state"], "succeeded");
    place.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_cancels_what_needed_success_and_starts_what_needed_an_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut place = start(&folder.path().join("store"), &clock()).await;
    let first = place.submit("first", &json!({})).await;
    assert_eq!(place.stage.next().await, "first");
    let second = place.submit("second", &json!({"after": [first]})).await;
    let third = place.submit("third", &json!({"after": [second]})).await;
    let anyway = place.submit("anyway", &json!({"after": [first], "after_on": "end"})).await;
    place.stage.end("first", Err(AttemptFailure::lasting("no")));
    assert_eq!(place.stage.next().await, "anyway");
    place.stage.succeed("anyway");
    for (id, failed) in [(&second, &first), (&third, &second)] {
        let job = place.client.wait(id).await;
        assert_eq!(
            (&job["state"], &job["after_failed"]),
            (&json!("cancelled"), &json!(failed)),
            "{job}"
        );
    }
    assert_eq!(place.client.wait(&anyway).await["state"], "succeeded");

    // The retry of an operator counts more.
    let again = r#"{"only":"unsuccessful"}"#;
    place.client.post(&format!("/v1/jobs/{second}/retry"), again).await.accepted();
    assert_eq!(place.stage.next().await, "second");
    place.stage.succeed("second");
    let job = place.client.wait(&second).await;
    assert_eq!((&job["state"], job.get("after_failed")), (&json!("succeeded"), None), "{job}");
    // The result of a job that has failed already is known at once.
    let late = place.submit("late", &json!({"after": [first]})).await;
    assert_eq!(place.client.wait(&late).await["state"], "cancelled");
    place.stage.expect_nobody();
    place.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let clock = clock();
    let mut place = start(&store, &clock).await;
    let done = place.submit("done", &json!({})).await;
    assert_eq!(place.stage.next().await, "done");
    let open = place.submit("open", &json!({"attempts": 3})).await;
    assert_eq!(place.stage.next().await, "open");
    let both = place.submit("both", &json!({"after": [done, open]})).await;
    let old = place.submit("old", &json!({})).await;
    assert_eq!(place.stage.next().await, "old");
    for (name, id) in [("done", &done), ("old", &old)] {
        place.stage.succeed(name);
        place.client.wait(id).await;
    }
    place.stop(Duration::ZERO).await;

    // Also a job that is older than the retention stays while another one waits for it.
    clock.set(clock.now() + 3_600_000);
    let mut place = start(&store, &clock).await;
    assert_eq!(place.stage.next().await, "open");
    let job = place.job(&both).await;
    assert_eq!(job["waiting_because"][0]["reason"], "after_job", "{job}");
    while place.client.get(&format!("/v1/jobs/{old}")).await.status != 410 {}
    place.job(&done).await;
    place.stage.succeed("open");
    assert_eq!(place.stage.next().await, "both");
    place.stage.succeed("both");
    assert_eq!(place.client.wait(&both).await["state"], "succeeded");
    place.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_waits_for_others_can_be_delayed_paused_cancelled_and_expire() {
    let folder = tempfile::tempdir().unwrap();
    let clock = clock();
    let mut place = start(&folder.path().join("store"), &clock).await;
    let first = place.submit("first", &json!({})).await;
    assert_eq!(place.stage.next().await, "first");
    let after = |more: Value| {
        let mut job = json!({"after": [first]});
        job.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        job
    };
    let delayed = place.submit("delayed", &after(json!({"delay_ms": 7_200_000}))).await;
    let paused = place.submit("paused", &after(json!({}))).await;
    let cancelled = place.submit("cancelled", &after(json!({}))).await;
    let expired = place.submit("expired", &after(json!({"expires_ms": 3_600_000}))).await;
    place.client.post(&format!("/v1/jobs/{paused}/pause"), "").await.expect(200);
    place.client.post(&format!("/v1/jobs/{cancelled}/cancel"), "{}").await.accepted();
    assert_eq!(place.client.wait(&cancelled).await["state"], "cancelled");
    clock.set(clock.now() + 3_601_000);
    assert_eq!(place.client.wait(&expired).await["expired"], true);

    place.stage.succeed("first");
    place.client.wait(&first).await;
    let is_next = |job: &Value| job["waiting_because"][0]["reason"] == "job_paused";
    place.client.wait_until(&paused, is_next).await;
    let is_delayed = |job: &Value| job["waiting_because"][0]["reason"] == "scheduled";
    place.client.wait_until(&delayed, is_delayed).await;
    place.stage.expect_nobody();
    place.client.post(&format!("/v1/jobs/{paused}/resume"), "").await.expect(200);
    assert_eq!(place.stage.next().await, "paused");
    place.stage.succeed("paused");
    clock.set(clock.now() + 3_601_000);
    assert_eq!(place.stage.next().await, "delayed");
    place.stage.succeed("delayed");
    assert_eq!(place.client.wait(&delayed).await["state"], "succeeded");
    place.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_another_one_waits_for_is_not_removed() {
    let folder = tempfile::tempdir().unwrap();
    let mut place = start(&folder.path().join("store"), &clock()).await;
    let done = place.submit("done", &json!({})).await;
    assert_eq!(place.stage.next().await, "done");
    place.stage.succeed("done");
    place.client.wait(&done).await;
    let open = place.submit("open", &json!({})).await;
    assert_eq!(place.stage.next().await, "open");
    let waits = place.submit("waits", &json!({"after": [done, open]})).await;
    let remove = format!("/v1/jobs/{done}");
    let refused = place.client.send("DELETE", &remove, &[], "").await.expect(409).json();
    assert!(
        refused["detail"].as_str().unwrap().starts_with(&format!("job {waits} waits")),
        "{refused}"
    );
    place.client.post(&format!("/v1/jobs/{waits}/cancel"), "{}").await.accepted();
    place.client.wait(&waits).await;
    place.client.send("DELETE", &remove, &[], "").await.expect(204);

    let job = json!({"kind": "act", "payload": 1, "after": [open, done]}).to_string();
    let refused = place.client.post("/v1/jobs", &job).await.expect(409).json();
    let why = refused["detail"].as_str().unwrap();
    assert!(why.contains(&done) && why.contains("was removed"), "{refused}");
    let batch =
        json!({"jobs": [{"kind": "act", "payload": 1, "after": ["no-such-job"]}]}).to_string();
    let refused = place.client.post("/v1/jobs/batch", &batch).await.expect(409).json();
    assert!(refused["detail"].as_str().unwrap().contains("no-such-job"), "{refused}");
    let many: Vec<_> = (0..65).map(|_| &*open).collect();
    let job = json!({"kind": "act", "payload": 1, "after": many}).to_string();
    let refused = place.client.post("/v1/jobs", &job).await.expect(422).json();
    assert_eq!(refused["errors"][0]["pointer"], "/after", "{refused}");
    place.stage.succeed("open");
    // A refused job leaves nothing behind.
    place.client.wait(&open).await;
    place.client.send("DELETE", &format!("/v1/jobs/{open}"), &[], "").await.expect(204);
    place.stop(Duration::ZERO).await;
}
