//! The end of a job with a webhook is sent to its receiver, signed, and again until the receiver has it: over failures and
//! restarts, and only to allowed addresses.

use std::time::Duration;

use keylane_service::{
    AllowedNetworks, Kind, ServiceSettings, WebhookSecrets, WebhookSettings,
    handle::{AttemptFailure, FunctionHandler},
};
use serde_json::{Value, json};

use crate::common::acting::ActingService;
use crate::common::webhook_receiver::Receiver;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const NEW_SECRET: &str = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

fn webhooks(secrets: &str, networks: &[&str]) -> Option<WebhookSettings> {
    let secrets = WebhookSecrets::parse(secrets).unwrap();
    let allow = AllowedNetworks::parse(networks.iter().copied()).unwrap();
    Some(WebhookSettings::new(secrets, allow).unwrap())
}

fn settings(folder: &tempfile::TempDir) -> ServiceSettings {
    let webhooks = webhooks(SECRET, &["127.0.0.0/8"]);
    ServiceSettings { webhooks, ..ServiceSettings::new(folder.path().join("store")) }
}

/// Submits a job with a webhook and lets it succeed.
async fn finish(place: &mut ActingService, name: &str, url: &str) -> String {
    let id = place.submit(name, &json!({"webhook": url, "labels": {"a": "b"}})).await;
    assert_eq!(place.stage.next().await, name);
    place.stage.succeed(name);
    place.client.wait(&id).await;
    id
}

async fn list(place: &ActingService, query: &str) -> Value {
    place.client.get(&format!("/v1/webhooks{query}")).await.expect(200).json()
}

/// Waits until the list of undelivered webhooks satisfies a condition.
async fn until(place: &ActingService, is_right: impl Fn(&Value) -> bool) -> Value {
    loop {
        let shown = list(place, "").await["items"].clone();
        if is_right(&shown) {
            return shown;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_job_is_sent_with_a_signature() {
    let folder = tempfile::tempdir().unwrap();
    let mut receiver = Receiver::start().await;
    let mut place = ActingService::start(settings(&folder)).await;
    let id = finish(&mut place, "one", &receiver.url()).await;
    let received = receiver.next().await;
    assert!(received.is_signed_with(SECRET) && !received.is_signed_with(NEW_SECRET));
    assert_eq!(received.headers["content-type"], "application/json");
    let (body, job) = (received.json(), place.job(&id).await);
    assert_eq!(body["type"], "job.succeeded");
    assert_eq!(body["timestamp"], job["ended_at"]);
    assert_eq!(body["data"]["labels"], json!({"a": "b"}));
    for field in ["id", "kind", "state", "counts", "version", "ended_at", "webhook"] {
        assert_eq!(body["data"][field], job[field], "{field}");
    }
    received.answer(204);
    until(&place, |shown| *shown == json!([])).await;
    let metrics = place.client.get("/metrics").await.expect(200).text;
    assert!(metrics.contains("keylane_webhook_attempts_total{outcome=\"delivered\"} 1\n"));
    place.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_and_cancellations_are_sent_too_and_each_end_of_a_retried_job() {
    let folder = tempfile::tempdir().unwrap();
    let mut receiver = Receiver::start().await;
    let mut place = ActingService::start(settings(&folder)).await;
    let more = json!({"webhook": receiver.url(), "attempts": 1});
    let id = place.submit("one", &more).await;
    assert_eq!(place.stage.next().await, "one");
    place.stage.end("one", Err(AttemptFailure::lasting("no")));
    let first = receiver.next().await;
    assert_eq!(
        (&first.json()["type"], &first.json()["data"]["error"]),
        (&json!("job.failed"), &json!("no"))
    );
    let first_id = first.id().to_owned();
    first.answer(200);
    place.client.post(&format!("/v1/jobs/{id}/retry"), "").await.expect(202);
    assert_eq!(place.stage.next().await, "one");
    place.stage.succeed("one");
    let second = receiver.next().await;
    assert_eq!(second.json()["type"], "job.succeeded");
    assert_ne!(second.id(), first_id);
    second.answer(200);

    let waiting = json!({"webhook": receiver.url(), "delay_ms": 1_000_000});
    let id = place.submit("two", &waiting).await;
    place.client.post(&format!("/v1/jobs/{id}/cancel"), "").await.expect(200);
    let third = receiver.next().await;
    assert_eq!(third.json()["type"], "job.cancelled");
    third.answer(200);
    place.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_attempt_is_shown_and_repeated_with_the_same_id() {
    let folder = tempfile::tempdir().unwrap();
    let mut receiver = Receiver::start().await;
    let mut place = ActingService::start(settings(&folder)).await;
    let job = finish(&mut place, "one", &receiver.url()).await;
    let received = receiver.next().await;
    let id = received.id().to_owned();
    received.answer(500);
    let shown = until(&place, |shown| shown[0]["attempts"] == 1).await;
    let shown = &shown[0];
    assert_eq!((&shown["id"], &shown["job"]), (&json!(id), &json!(job)));
    assert_eq!((&shown["state"], &shown["max_attempts"]), (&json!("waiting"), &json!(8)));
    let error = "the response was 500 Internal Server Error: so it is";
    assert_eq!(shown["error"], error);
    assert!(shown["next_at"].as_str() > shown["failed_at"].as_str(), "{shown}");
    let action = format!("/v1/webhooks/{id}/retry");
    let answered = place.client.post(&action, "").await.expect(200).json();
    assert_eq!(answered["attempts"], 0);
    let again = receiver.next().await;
    assert_eq!(again.id(), id);
    place.client.post(&action, "").await.expect(409);
    again.answer(200);
    until(&place, |shown| *shown == json!([])).await;
    place.client.post(&action, "").await.expect(404);
    place.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_may_refuse_for_good_and_an_operator_removes_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut receiver = Receiver::start().await;
    let mut place = ActingService::start(settings(&folder)).await;
    finish(&mut place, "one", &receiver.url()).await;
    receiver.next().await.answer(410);
    let shown = until(&place, |shown| shown[0]["state"] == "failed").await;
    assert!(shown[0].get("next_at").is_none(), "{shown}");
    assert_eq!(list(&place, "?state=failed").await["items"], shown);
    assert_eq!(list(&place, "?state=waiting").await["items"], json!([]));
    let path = format!("/v1/webhooks/{}", shown[0]["id"].as_str().unwrap());
    place.client.send("DELETE", &path, &[], "").await.expect(204);
    assert_eq!(list(&place, "").await["items"], json!([]));
    place.client.send("DELETE", &path, &[], "").await.expect(404);
    place.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_delivered_is_sent_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut receiver = Receiver::start().await;
    let mut place = ActingService::start(settings(&folder)).await;
    finish(&mut place, "one", &receiver.url()).await;
    let unanswered = receiver.next().await;
    let id = unanswered.id().to_owned();
    finish(&mut place, "two", &receiver.url()).await;
    receiver.next().await.answer(410);
    until(&place, |shown| shown.as_array().unwrap().iter().any(|it| it["state"] == "failed")).await;
    place.stop(Duration::ZERO).await;
    drop(unanswered);

    let place = ActingService::start(settings(&folder)).await;
    let again = receiver.next().await;
    assert_eq!(again.id(), id);
    again.answer(200);
    let shown = until(&place, |shown| shown.as_array().unwrap().len() == 1).await;
    assert_eq!(shown[0]["state"], "failed");
    place.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn private_addresses_are_refused_unless_they_are_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let mut receiver = Receiver::start().await;
    let webhooks_of = |networks: &[&str]| webhooks(SECRET, networks);
    let settings = ServiceSettings { webhooks: webhooks_of(&[]), ..settings(&folder) };
    let mut place = ActingService::start(settings).await;
    finish(&mut place, "one", &receiver.url()).await;
    let by_name = format!("http://localhost:{}/hook", receiver.address.port());
    finish(&mut place, "two", &by_name).await;
    let shown = until(&place, |shown| shown[0]["attempts"] == 1 && shown[1]["attempts"] == 1).await;
    for one in shown.as_array().unwrap() {
        let error = one["error"].as_str().unwrap();
        assert!(error.contains("is not a public address"), "{error}");
        assert!(error.contains("webhooks.allow_networks"), "{error}");
    }
    // A reload allows it, and signs with the new secret and the old one.
    let secrets = format!("{NEW_SECRET}\n{SECRET}\n");
    place.service.reload_webhooks(webhooks(&secrets, &["127.0.0.1", "::1"]));
    for one in shown.as_array().unwrap() {
        let path = format!("/v1/webhooks/{}/retry", one["id"].as_str().unwrap());
        place.client.post(&path, "").await.expect(200);
        let received = receiver.next().await;
        assert!(received.is_signed_with(SECRET) && received.is_signed_with(NEW_SECRET));
        received.answer(200);
    }
    until(&place, |shown| *shown == json!([])).await;
    place.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_may_have_a_webhook_for_its_jobs() {
    let folder = tempfile::tempdir().unwrap();
    let mut receiver = Receiver::start().await;
    let url = receiver.url();
    let kind = Kind {
        webhook: Some(url.clone()),
        ..Kind::new(FunctionHandler::new(|_| async { Ok(None) }))
    };
    let place =
        ActingService::start_with(settings(&folder), |service| service.kind("told", kind)).await;
    let id = place.client.submit(r#"{"kind":"told","payload":1}"#).await;
    let received = receiver.next().await;
    assert_eq!(received.json()["data"]["id"], id);
    received.answer(200);
    assert_eq!(place.job(&id).await["webhook"], url);
    place.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_cannot_be_sent_is_refused_at_the_submission() {
    let folder = tempfile::tempdir().unwrap();
    let place = ActingService::start(settings(&folder)).await;
    for (url, why) in [
        ("ftp://example.com/", "its scheme is `ftp`"),
        ("example.com", "it is no URL"),
        ("http://", "it is no URL"),
    ] {
        let job = json!({"kind": "act", "payload": 1, "webhook": url}).to_string();
        let problem = place.client.post("/v1/jobs", &job).await.expect(422).json();
        assert_eq!(problem["errors"][0]["pointer"], "/webhook", "{problem}");
        assert!(problem["errors"][0]["detail"].as_str().unwrap().starts_with(why), "{problem}");
    }
    place.service.reload_webhooks(None);
    let job = json!({"kind": "act", "payload": 1, "webhook": "https://example.com/"});
    let problem = place.client.post("/v1/jobs", &job.to_string()).await.expect(409).json();
    assert!(problem["detail"].as_str().unwrap().contains("webhooks.secret_file"), "{problem}");
    let schedule = json!({"cron": "0 0 1 1 *", "job": job}).to_string();
    let headers = [("content-type", "application/json")];
    place.client.send("PUT", "/v1/schedules/yearly", &headers, &schedule).await.expect(409);
    place.stop(Duration::ZERO).await;
}
