//! Subtasks that entered the order later than their job was accepted are where they entered also after a restart: not
//! between two attempts of a subtask of their key that was before them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::common::stage::{Stage, stage};
use crate::common::{Client, serve};
use keylane_service::handle::AttemptFailure;
use keylane_service::http::HttpServer;
use keylane_service::store::{self, Store};
use keylane_service::wire::Timestamp;
use keylane_service::{Kind, Service, ServiceSettings};
use serde_json::{Value, json};

/// A service, its server, a client of that, and the stage on which all attempts are.
struct Place {
    store: PathBuf,
    service: Service,
    server: HttpServer,
    client: Client,
    stage: Stage,
}

impl Place {
    async fn start(store: PathBuf) -> Self {
        let (actors, stage) = stage();
        let split = Some(Arc::new(actors.clone()) as _);
        let kinds =
            [("act", Kind::new(actors.clone())), ("make", Kind { split, ..Kind::new(actors) })];
        let builder =
            Service::builder(ServiceSettings { slots: 2, ..ServiceSettings::new(&store) });
        let builder =
            kinds.into_iter().fold(builder, |builder, (name, kind)| builder.kind(name, kind));
        let service = builder.start().await.unwrap();
        let (server, client) = serve(&service).await;
        Place { store, service, server, client, stage }
    }

    /// Where its store is.
    async fn stop(self) -> PathBuf {
        self.server.stop(Duration::from_secs(5)).await;
        self.service.stop(Duration::from_secs(5)).await;
        self.store
    }

    async fn restart(self) -> Self {
        Place::start(self.stop().await).await
    }

    async fn submit(&self, job: Value) -> String {
        self.client.submit(&job.to_string()).await
    }

    /// A job with the key `k` has had its first attempt, and is to have its second one in an hour, or when it is told to.
    async fn tried_once(&mut self) {
        assert!(self.was_tried_once().await);
    }

    /// The same; or another was faster, of a job that was put off and not for long enough for this machine.
    async fn was_tried_once(&mut self) -> bool {
        let id = self.submit(json!({"kind": "act", "key": "k", "payload": "tried"})).await;
        if self.stage.next().await != "tried" {
            return false;
        }
        let after = Some(Duration::from_secs(3600));
        self.stage
            .end("tried", Err(AttemptFailure { after, ..AttemptFailure::passing("not yet") }));
        self.client.wait_until(&id, |job| job["counts"]["backing_off"] == 1).await;
        true
    }

    /// What was tried is done before the other begins.
    async fn expect_order(mut self) {
        // It waits for an hour, unless it ran when the server ended: then it runs again.
        self.client.post("/v1/keys/k/retry-head", "").await;
        assert_eq!(self.stage.next().await, "tried");
        self.stage.succeed("tried");
        assert_eq!(self.stage.next().await, "late");
        self.stage.succeed("late");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_retried() {
    let folder = tempfile::tempdir().unwrap();
    let mut place = Place::start(folder.path().join("store")).await;
    let id = place.submit(json!({"kind": "act", "key": "k", "payload": "late"})).await;
    assert_eq!(place.stage.next().await, "late");
    place.stage.end("late", Err(AttemptFailure::lasting("it forgot its line")));
    place.client.wait(&id).await;
    place.tried_once().await;
    place.client.post(&format!("/v1/jobs/{id}/retry"), "").await.accepted();
    place.restart().await.expect_order().await;
}

/// A job was put off, another was tried before its time came; the id of the first, and for how long it was.
async fn put_off(folder: &Path) -> (Place, String, Duration) {
    for delay_ms in [500, 5_000, 50_000] {
        let mut place = Place::start(folder.join(delay_ms.to_string())).await;
        let job = json!({"kind": "act", "key": "k", "payload": "late", "delay_ms": delay_ms});
        let id = place.submit(job).await;
        if place.was_tried_once().await {
            return (place, id, Duration::from_millis(delay_ms));
        }
    }
    panic!("the machine is too slow for this test");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_was_put_off_and_has_begun() {
    let folder = tempfile::tempdir().unwrap();
    let (place, id, _) = put_off(folder.path()).await;
    place.client.wait_until(&id, |job| job["state"] == "queued").await;
    place.restart().await.expect_order().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_was_put_off_and_whose_time_comes_while_nothing_runs() {
    let folder = tempfile::tempdir().unwrap();
    let (place, _, delay) = put_off(folder.path()).await;
    let store = place.stop().await;
    // Until it has come, at the latest.
    tokio::time::sleep(delay).await;
    Place::start(store).await.expect_order().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_was_split() {
    let folder = tempfile::tempdir().unwrap();
    let mut place = Place::start(folder.path().join("store")).await;
    let id = place.submit(json!({"kind": "make", "payload": "split"})).await;
    assert_eq!(place.stage.next().await, "split");
    place.tried_once().await;
    place.stage.answer("split", &json!([{"key": "k", "payload": "late"}]));
    place.client.wait_until(&id, |job| job["counts"]["waiting"] == 1).await;
    place.restart().await.expect_order().await;
}

/// Before, the time of a job was kept when it had begun; that is so in exports of that time, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_an_earlier_version_that_had_begun() {
    let folder = tempfile::tempdir().unwrap();
    let mut place = Place::start(folder.path().join("new")).await;
    let two = json!([{"key": "k", "payload": "done"}, {"key": "k", "payload": "tried"}]);
    place.submit(json!({"kind": "act", "name": "put off", "subtasks": two})).await;
    assert_eq!(place.stage.next().await, "done");
    place.stage.succeed("done");
    assert_eq!(place.stage.next().await, "tried");
    place.submit(json!({"kind": "act", "key": "k", "payload": "late"})).await;
    let path = place.stop().await;
    let (store, _) = Store::open(&path, &store::StoreSettings::default()).unwrap();
    let mut text = Vec::new();
    store.export(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    // Of the first job: how it came, and how it is.
    let old = text.replacen("\"start_at_ms\":null", "\"start_at_ms\":1000", 2);
    let path = folder.path().join("old");
    let (store, _) = Store::open(&path, &store::StoreSettings::default()).unwrap();
    store.import(&mut old.as_bytes()).unwrap();
    drop(store);
    Place::start(path).await.expect_order().await;
}

/// Their places are written some hundred at a time.
#[tokio::test(flavor = "multi_thread")]
async fn many_jobs_that_were_put_off_to_one_moment() {
    const MANY: usize = 1_200;
    let folder = tempfile::tempdir().unwrap();
    let mut place = Place::start(folder.path().join("store")).await;
    let at = Timestamp(Timestamp::now().0 + 2_000);
    let job =
        |nth: usize| json!({"kind": "act", "key": nth.to_string(), "payload": nth, "run_at": at});
    let jobs: Vec<String> = (0..MANY).map(|nth| job(nth).to_string()).collect();
    let submitted = jobs.iter().map(|job| place.service.submit(job));
    futures_util::future::try_join_all(submitted).await.unwrap();
    for _ in 0..MANY {
        let name = place.stage.next().await;
        place.stage.succeed(&name);
    }
    place.stage.expect_nobody();
}
