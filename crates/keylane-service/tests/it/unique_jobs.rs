//! A job that is unique for a time is accepted once: a request for an equal one gets the first.

use std::path::Path;
use std::time::Duration;

use crate::common::{Answered, Client, Log, builder_with, serve};
use keylane_service::http::HttpServer;
use keylane_service::{ManualClock, Service, ServiceSettings};
use serde_json::{Value, json};

const HOUR_MS: u64 = 3_600_000;

struct Place {
    service: Service,
    server: HttpServer,
    client: Client,
}

impl Place {
    async fn start(store: &Path, clock: &ManualClock, log: &Log) -> Self {
        let settings =
            ServiceSettings { clock: Some(clock.clone()), ..ServiceSettings::new(store) };
        let service = builder_with(settings, log).start().await.unwrap();
        let (server, client) = serve(&service).await;
        Place { service, server, client }
    }

    async fn stop(self) {
        self.server.stop(Duration::from_secs(5)).await;
        self.service.stop(Duration::from_secs(5)).await;
    }

    /// Submits a job. Returns its id, and whether it was accepted before.
    async fn submit(&self, job: Value) -> (String, bool) {
        id_of(&self.client.post("/v1/jobs", &job.to_string()).await.accepted())
    }
}

fn id_of(answer: &Answered) -> (String, bool) {
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    (id, answer.headers.contains_key("idempotent-replayed"))
}

fn clock() -> ManualClock {
    ManualClock::at(1_790_000_000_000)
}

/// A job that is unique for an hour, with further fields.
fn job(more: Value) -> Value {
    let mut job = json!({"kind": "echo", "key": "k", "payload": {"n": 1}, "unique_ms": HOUR_MS});
    let (fields, Value::Object(more)) = (job.as_object_mut().unwrap(), more) else { panic!() };
    fields.extend(more);
    job
}

#[tokio::test(flavor = "multi_thread")]
async fn an_equal_job_is_the_first_one_until_the_time_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let (store, clock, log) = (folder.path().join("store"), clock(), Log::default());
    let place = Place::start(&store, &clock, &log).await;
    let (first, before) = place.submit(job(json!({}))).await;
    assert!(!before);
    place.client.wait(&first).await;
    for more in
        [json!({}), json!({"name": "n", "weight": 2, "delay_ms": 5}), json!({"unique_ms": 1})]
    {
        assert_eq!(place.submit(job(more)).await, (first.clone(), true));
    }
    for more in [
        json!({"payload": {"n": 2}}),
        json!({"key": "l"}),
        json!({"kind": "fail"}),
        json!({"shared_keys": ["l"]}),
    ] {
        let (id, before) = place.submit(job(more)).await;
        assert!(id != first && !before);
    }
    // One that is not unique is no other's equal.
    let plain = json!({"kind": "echo", "key": "k", "payload": {"n": 1}});
    assert!(!place.submit(plain).await.1);
    place.stop().await;

    let place = Place::start(&store, &clock, &log).await;
    assert_eq!(place.submit(job(json!({}))).await, (first.clone(), true));
    place.stop().await;
    clock.set(clock.now() + HOUR_MS + 1_000);
    let place = Place::start(&store, &clock, &log).await;
    let (second, before) = place.submit(job(json!({}))).await;
    assert!(second != first && !before);
    // A removed job is no other's equal.
    place.client.wait(&second).await;
    place.client.send("DELETE", &format!("/v1/jobs/{second}"), &[], "").await.expect(204);
    let (third, before) = place.submit(job(json!({}))).await;
    assert!(third != second && !before);
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_equal_jobs_that_come_at_the_same_time_one_is_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::default();
    let place = Place::start(&folder.path().join("store"), &clock(), &log).await;
    let several = || (0..8).map(|_| place.submit(job(json!({}))));
    let all = futures_util::future::join_all(several()).await;
    assert_eq!(all.iter().filter(|(_, before)| !before).count(), 1);
    assert!(all.iter().all(|(id, _)| *id == all[0].0));
    place.client.wait(&all[0].0).await;
    assert_eq!(log.lines().len(), 1);
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_names_of_a_request_that_gets_an_equal_job_are_names_of_that_job() {
    let folder = tempfile::tempdir().unwrap();
    let (store, clock, log) = (folder.path().join("store"), clock(), Log::default());
    let place = Place::start(&store, &clock, &log).await;
    let (first, _) = place.submit(job(json!({}))).await;
    let body = job(json!({})).to_string();
    let headers = [("content-type", "application/json"), ("idempotency-key", "mine")];
    let keyed = || place.client.send("POST", "/v1/jobs", &headers, &body);
    let named = || place.client.send("PUT", "/v1/jobs/my-job", &headers[..1], &body);
    assert_eq!(id_of(&keyed().await.accepted()), (first.clone(), true));
    assert_eq!(id_of(&named().await.accepted()), (first.clone(), true));
    // Also when an equal job would be accepted again.
    place.stop().await;
    clock.set(clock.now() + HOUR_MS + 1_000);
    let place = Place::start(&store, &clock, &log).await;
    let keyed = || place.client.send("POST", "/v1/jobs", &headers, &body);
    let named = || place.client.send("PUT", "/v1/jobs/my-job", &headers[..1], &body);
    assert_eq!(id_of(&keyed().await.accepted()), (first.clone(), true));
    assert_eq!(id_of(&named().await.accepted()), (first.clone(), true));
    let shown = place.client.get("/v1/jobs/my-job").await.expect(200).json();
    assert_eq!(shown["id"], *first);
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_accepts_each_of_equal_jobs_once() {
    for is_atomic in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let log = Log::default();
        let place = Place::start(&folder.path().join("store"), &clock(), &log).await;
        let (first, _) = place.submit(job(json!({}))).await;
        let other = || job(json!({"payload": 2}));
        let jobs = json!([other(), job(json!({})), other(), job(json!({"payload": 3}))]);
        let body = json!({"jobs": jobs}).to_string();
        let path = format!("/v1/jobs/batch?atomic={is_atomic}");
        let headers = [("content-type", "application/json"), ("idempotency-key", "batch")];
        for time in 0..2 {
            let answer = place.client.send("POST", &path, &headers, &body).await;
            let answer = answer.accepted().json();
            let id =
                |place: usize| answer["items"][place]["job"]["id"].as_str().unwrap().to_owned();
            assert_eq!((id(1), id(2)), (first.clone(), id(0)), "{time}: {answer}");
            assert!(id(3) != id(0) && id(3) != first);
            place.client.wait(&id(0)).await;
            place.client.wait(&id(3)).await;
        }
        place.client.wait(&first).await;
        assert_eq!(log.lines().len(), 3, "{:?}", log.lines());
        // All of it is there already.
        let body = json!({"jobs": [other(), other()]}).to_string();
        let answer = place.client.post(&path, &body).await.accepted().json();
        assert_eq!(answer["items"][0]["job"]["id"], answer["items"][1]["job"]["id"]);
        assert_eq!(log.lines().len(), 3, "{:?}", log.lines());
        place.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_period_that_makes_no_sense_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::start(&folder.path().join("store"), &clock(), &Log::default()).await;
    let wrong = job(json!({"unique_ms": 0})).to_string();
    let refused = place.client.post("/v1/jobs", &wrong).await.expect(422).json();
    assert_eq!(refused["errors"][0]["pointer"], "/unique_ms", "{refused}");
    let schedule = json!({"cron": "@daily", "job": job(json!({}))}).to_string();
    let headers = [("content-type", "application/json")];
    let refused = place.client.send("PUT", "/v1/schedules/s", &headers, &schedule).await;
    assert_eq!(refused.expect(422).json()["errors"][0]["pointer"], "/job/unique_ms");
    place.stop().await;
}
