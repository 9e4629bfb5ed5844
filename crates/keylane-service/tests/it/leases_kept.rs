//! A lease goes on over a restart, ends when its job is killed or its time is up, and begins when it is on the disk.

use std::path::Path;
use std::time::Duration;

use crate::common::{Client, Log, builder_with, serve, settings};
use keylane_service::http::HttpServer;
use keylane_service::{Kind, ManualClock, Service, ServiceSettings};
use serde_json::{Value, json};

struct Place {
    service: Service,
    server: HttpServer,
    client: Client,
}

impl Place {
    async fn start(folder: &Path) -> Self {
        Place::with(settings(folder)).await
    }

    /// Kinds: `remote`, whose leases last long; `brief`, whose leases are to take 50 ms at most; `steps`, whose split is
    /// done here.
    async fn with(settings: ServiceSettings) -> Self {
        let brief = Kind {
            max_lease: Duration::from_millis(50),
            attempts: 1,
            ..Kind::leased(Duration::from_secs(30))
        };
        let halves = keylane_service::handle::FunctionHandler::new(|_| async {
            let halves = r#"[{"payload":1},{"payload":2}]"#.to_owned();
            Ok(serde_json::value::RawValue::from_string(halves).ok())
        });
        let steps = Kind {
            split: Some(std::sync::Arc::new(halves)),
            ..Kind::leased(Duration::from_secs(30))
        };
        let builder = builder_with(settings, &Log::default());
        let service = builder.kind("brief", brief).kind("steps", steps).start().await.unwrap();
        let (server, client) = serve(&service).await;
        Place { service, server, client }
    }

    async fn stop(self) {
        self.server.stop(Duration::from_secs(5)).await;
        self.service.stop(Duration::ZERO).await;
    }

    async fn restart(self, folder: &Path) -> Self {
        self.stop().await;
        Place::start(folder).await
    }

    async fn claim(&self, kind: &str) -> Value {
        let ask = json!({"kinds": [kind], "wait_ms": 60_000, "worker": "w"}).to_string();
        self.client.post("/v1/leases", &ask).await.expect(200).json()["leases"][0].clone()
    }

    /// What there is now, if there is something.
    async fn claim_now(&self, kind: &str) -> Option<Value> {
        let ask = json!({"kinds": [kind], "wait_ms": 100}).to_string();
        let claimed = self.client.post("/v1/leases", &ask).await.expect(200).json();
        claimed["leases"].get(0).cloned()
    }

    async fn say(&self, lease: &Value, what: &str, body: &str) -> u16 {
        let path = format!("/v1/leases/{}/{what}", lease["id"].as_str().unwrap());
        self.client.post(&path, body).await.status
    }

    async fn job(&self, id: &str) -> Value {
        self.client.get(&format!("/v1/jobs/{id}")).await.expect(200).json()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_survives_restarts_with_its_fence_and_attempt() {
    let folder = tempfile::tempdir().unwrap();
    let mut place = Place::start(folder.path()).await;
    let two = r#"{"kind":"remote","subtasks":[{"key":"k","payload":1},{"key":"k","payload":2}]}"#;
    let id = place.client.submit(two).await;
    let free = place.client.submit(r#"{"kind":"remote","payload":3}"#).await;
    let lease = place.claim("remote").await;
    let other = place.claim("remote").await;
    for _ in 0..2 {
        place = place.restart(folder.path()).await;
        assert_eq!(place.say(&lease, "heartbeat", "").await, 200);
        // Nothing of its key, and not itself, is given to another.
        assert_eq!(place.claim_now("remote").await, None);
        let running = &place.job(&id).await["counts"]["running"];
        assert_eq!(running, 1);
    }
    assert_eq!(place.say(&lease, "complete", r#"{"result":"kept"}"#).await, 204);
    assert_eq!(place.say(&other, "complete", "").await, 204);
    let next = place.claim("remote").await;
    assert_eq!((&next["payload"], &next["attempt"]), (&json!(2), &json!(1)));
    assert!(next["fence"].as_u64() > lease["fence"].as_u64());
    assert!(next["fence"].as_u64().unwrap() < 1 << 53);
    assert_eq!(place.say(&next, "complete", "").await, 204);
    assert_eq!(place.client.wait(&id).await["state"], "succeeded");
    assert_eq!(place.client.wait(&free).await["state"], "succeeded");
    let path = format!("/v1/jobs/{id}/results");
    let results = place.client.get(&path).await.expect(200).json();
    assert_eq!(
        (&results["items"][0]["result"], &results["items"][0]["attempt"]),
        (&json!("kept"), &json!(1))
    );
    let metrics = place.client.get("/metrics").await.expect(200).text;
    assert!(metrics.contains("keylane_order_violations_total 0"), "{metrics}");
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_survived_can_fail_be_paused_and_be_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut place = Place::start(folder.path()).await;
    let mut leases = Vec::new();
    for key in ["fails", "paused", "killed"] {
        let job = json!({"kind": "remote", "key": key, "attempts": 1, "payload": key}).to_string();
        let id = place.client.submit(&job).await;
        leases.push((id, place.claim("remote").await));
    }
    place.client.post("/v1/keys/paused/pause", "").await.expect(200);
    place = place.restart(folder.path()).await;
    let [(fails, lost), (paused, done), (killed, dead)] = leases.try_into().unwrap();
    assert_eq!(place.say(&lost, "fail", r#"{"error":"no"}"#).await, 204);
    assert_eq!(place.client.wait(&fails).await["state"], "failed");
    assert_eq!(place.say(&done, "complete", "").await, 204);
    assert_eq!(place.client.wait(&paused).await["state"], "succeeded");
    let kill = format!("/v1/jobs/{killed}/cancel");
    place.client.post(&kill, r#"{"mode":"kill"}"#).await.expect(200);
    assert_eq!(place.client.wait(&killed).await["state"], "cancelled");
    for what in ["heartbeat", "complete"] {
        assert_eq!(place.say(&dead, what, "").await, 409, "{what}");
    }
    place.stop().await;
}

/// Its key is held by nothing after that.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_lease_ends_at_once_and_its_key_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::start(folder.path()).await;
    let id = place.client.submit(r#"{"kind":"remote","key":"k","payload":1}"#).await;
    let behind = place.client.submit(r#"{"kind":"remote","key":"k","payload":2}"#).await;
    let lease = place.claim("remote").await;
    let cancel = format!("/v1/jobs/{id}/cancel");
    // Asked gracefully, what runs ends by itself.
    place.client.post(&cancel, "").await.expect(202);
    assert_eq!(place.say(&lease, "heartbeat", "").await, 200);
    place.client.post(&cancel, r#"{"mode":"kill"}"#).await.expect(200);
    for what in ["heartbeat", "complete"] {
        assert_eq!(place.say(&lease, what, "").await, 409, "{what}");
    }
    assert_eq!(place.client.wait(&id).await["state"], "cancelled");
    let next = place.claim("remote").await;
    assert_eq!(place.say(&next, "complete", "").await, 204);
    assert_eq!(place.client.wait(&behind).await["state"], "succeeded");
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn heartbeats_extend_no_lease_beyond_its_maximum_or_the_jobs_timeout() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::start(folder.path()).await;
    for job in [
        r#"{"kind":"brief","payload":1}"#,
        r#"{"kind":"remote","timeout_ms":50,"attempts":1,"payload":1}"#,
    ] {
        let id = place.client.submit(job).await;
        let kind = serde_json::from_str::<Value>(job).unwrap()["kind"].as_str().unwrap().to_owned();
        let lease = place.claim(&kind).await;
        while place.say(&lease, "heartbeat", "").await == 200 {}
        assert_eq!(place.say(&lease, "complete", "").await, 409);
        let over = place.client.wait(&id).await;
        assert_eq!(over["state"], "failed");
        assert!(over["error"].as_str().unwrap().contains("longer than 50ms"), "{over}");
    }
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_steps_of_a_job_need_no_remote_worker() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::start(folder.path()).await;
    let id = place.client.submit(r#"{"kind":"steps","payload":0}"#).await;
    // The split is done although no worker asks.
    place.client.wait_until(&id, |job| job["counts"]["total"] == 2).await;
    for _ in 0..2 {
        let lease = place.claim("steps").await;
        assert_eq!(place.say(&lease, "complete", "").await, 204);
    }
    assert_eq!(place.client.wait(&id).await["state"], "succeeded");
    place.stop().await;
}

/// The failure was for good although attempts are left: nothing but the stop itself says that the key stands.
#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_key_stays_stopped_over_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let mut place = Place::start(folder.path()).await;
    let two = json!({"kind": "remote", "on_fail": "stop_key", "attempts": 5,
        "subtasks": [{"key": "k", "payload": 1}, {"key": "k", "payload": 2}]});
    let id = place.client.submit(&two.to_string()).await;
    let lease = place.claim("remote").await;
    let refusal = r#"{"error":"it is wrong","retry":false}"#;
    assert_eq!(place.say(&lease, "fail", refusal).await, 204);
    for _ in 0..2 {
        let key = place.client.get("/v1/keys/k").await.expect(200).json();
        assert_eq!(key["state"], "stopped", "{key}");
        assert_eq!(place.claim_now("remote").await, None);
        place = place.restart(folder.path()).await;
    }
    place.client.post("/v1/keys/k/retry-head", "").await.expect(200);
    // That it was retried is kept as well.
    place = place.restart(folder.path()).await;
    for (payload, attempt) in [(1, 2), (2, 1)] {
        let lease = place.claim("remote").await;
        assert_eq!((&lease["payload"], &lease["attempt"]), (&json!(payload), &json!(attempt)));
        assert_eq!(place.say(&lease, "complete", "").await, 204);
    }
    assert_eq!(place.client.wait(&id).await["state"], "succeeded");
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_after_a_failure_still_does_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut place = Place::start(folder.path()).await;
    let id = place.client.submit(r#"{"kind":"remote","key":"k","payload":1}"#).await;
    let lease = place.claim("remote").await;
    let later = r#"{"error":"not now","after_ms":3600000}"#;
    assert_eq!(place.say(&lease, "fail", later).await, 204);
    let because = |job: &Value| job["waiting_because"][0]["reason"].clone();
    assert_eq!(because(&place.job(&id).await), "backing_off");
    place = place.restart(folder.path()).await;
    assert_eq!(because(&place.job(&id).await), "backing_off");
    assert_eq!(place.claim_now("remote").await, None);
    // Told to, it does not wait any longer, also after another restart.
    place.client.post("/v1/keys/k/retry-head", "").await.expect(200);
    place = place.restart(folder.path()).await;
    let lease = place.claim("remote").await;
    assert_eq!(lease["attempt"], 2);
    assert_eq!(place.say(&lease, "complete", "").await, 204);
    assert_eq!(place.client.wait(&id).await["state"], "succeeded");
    place.stop().await;
}

/// Two hours pass on the clock of the wall, and none of the steady one's.
#[tokio::test(flavor = "multi_thread")]
async fn run_at_follows_the_wall_clock_and_leases_and_backoffs_do_not() {
    const NOW: u64 = 1_763_000_000_000;
    const HOURS: u64 = 2 * 3_600_000;
    let folder = tempfile::tempdir().unwrap();
    let clock = ManualClock::at(NOW);
    let settings = ServiceSettings { clock: Some(clock.clone()), ..settings(folder.path()) };
    let place = Place::with(settings).await;
    let held = place.client.submit(r#"{"kind":"remote","payload":"held"}"#).await;
    let lease = place.claim("remote").await;
    let waits = place.client.submit(r#"{"kind":"remote","key":"k","payload":"waits"}"#).await;
    let failed = place.claim("remote").await;
    assert_eq!(place.say(&failed, "fail", r#"{"error":"no","after_ms":3600000}"#).await, 204);
    let at = jiff::Timestamp::from_millisecond((NOW + HOURS - 1000) as i64).unwrap();
    let run_at = json!({"kind": "echo", "payload": 1, "run_at": at.to_string()}).to_string();
    let scheduled = place.client.submit(&run_at).await;
    assert_eq!(place.job(&scheduled).await["state"], "scheduled");
    clock.set(NOW + HOURS);
    let over = place.client.wait(&scheduled).await;
    let time = |value: &Value| value.as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    assert!(time(&over["ended_at"]) >= at, "{over}");
    assert_eq!(place.say(&lease, "complete", "").await, 204);
    assert_eq!(place.client.wait(&held).await["state"], "succeeded");
    assert_eq!(place.job(&waits).await["waiting_because"][0]["reason"], "backing_off");
    // Back again, all goes on as well.
    clock.set(NOW);
    let id = place.client.submit(r#"{"kind":"echo","payload":2}"#).await;
    assert_eq!(place.client.wait(&id).await["state"], "succeeded");
    place.stop().await;
}
