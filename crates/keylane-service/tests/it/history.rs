//! The past of the service survives a restart, in bounded space, and nothing depends on its file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::common::acting::ActingService;
use keylane_service::{ManualClock, ServiceSettings};

/// Begin of an interval of 15 minutes, and so of all shorter ones.
const BEGIN: u64 = 1_790_000_100_000;

struct Place {
    store: PathBuf,
    clock: ManualClock,
    _folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("tasks");
        Place { store, clock: ManualClock::at(BEGIN), _folder: folder }
    }

    async fn start(&self) -> ActingService {
        let settings = ServiceSettings {
            slots: 1,
            keeps_history: true,
            clock: Some(self.clock.clone()),
            ..ServiceSettings::new(&self.store)
        };
        ActingService::start(settings).await
    }

    fn file(&self, suffix: &str) -> PathBuf {
        let mut name = self.store.clone().into_os_string();
        name.push(suffix);
        name.into()
    }
}

/// Waits until the past has a sample that `is_wanted`, and returns it.
async fn sample(place: &ActingService, query: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
    loop {
        let past = place.client.get(&format!("/v1/history{query}")).await.expect(200).json();
        let samples = past["samples"].as_array().unwrap();
        if let Some(found) = samples.iter().find(|sample| is_wanted(sample)) {
            return found.clone();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn has_ended(sample: &Value) -> bool {
    sample["succeeded"] == 1
}

#[tokio::test]
async fn what_ran_and_waited_is_there_after_a_restart() {
    let place = Place::new();
    let mut service = place.start().await;
    service.submit("first", &json!({"key": "ann"})).await;
    assert_eq!(service.stage.next().await, "first");
    let waiting = service.submit("second", &json!({"key": "ann"})).await;
    place.clock.set(BEGIN + 10_000);
    let busy = sample(&service, "", |it| it["waiting"]["key"] == 1.0).await;
    assert_eq!((&busy["slots"], &busy["succeeded"]), (&json!(1), &json!(0)));
    service.stage.succeed("first");
    assert_eq!(service.stage.next().await, "second");
    // It counts for the interval in which it is read, which may be the next one.
    place.clock.set(BEGIN + 20_000);
    sample(&service, "", |it| it["at"] == "2026-09-21T14:15:10.000Z").await;
    place.clock.set(BEGIN + 30_000);
    let ended = sample(&service, "", has_ended).await;
    service.stage.succeed("second");
    service.client.wait(&waiting).await;
    service.stop(Duration::ZERO).await;

    let service = place.start().await;
    let again = sample(&service, "", has_ended).await;
    assert_eq!(again, ended);
    let past = service.client.get("/v1/history?include=slices").await.expect(200).json();
    assert_eq!(past["interval_ms"], 10_000);
    let slices = past["slices"].as_array().unwrap();
    assert_eq!(slices.len(), 2, "{past}");
    assert!(slices.iter().all(|slice| slice["keys"] == json!(["ann"])), "{past}");
    service.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn earlier_hours_have_longer_intervals() {
    let place = Place::new();
    let mut service = place.start().await;
    let job = service.submit("first", &json!({})).await;
    assert_eq!(service.stage.next().await, "first");
    service.stage.succeed("first");
    service.client.wait(&job).await;
    service.stop(Duration::ZERO).await;

    for (hours, interval) in [(2, 60_000), (30, 900_000)] {
        place.clock.set(BEGIN + hours * 3_600_000);
        let service = place.start().await;
        let begin = "?from=2026-09-21T14:00:00Z&include=slices";
        let sample = sample(&service, begin, has_ended).await;
        assert_eq!(sample["at"], "2026-09-21T14:15:00.000Z");
        let past = service.client.get(&format!("/v1/history{begin}")).await.expect(200).json();
        assert_eq!(past["interval_ms"], interval);
        // Keys of attempts are kept for a day.
        assert_eq!(past.get("slices").is_some(), hours == 2);
        // Nothing of the time when the service did not run.
        let samples = past["samples"].as_array().unwrap();
        assert!(samples.len() <= 3, "{past}");
        service.stop(Duration::ZERO).await;
    }
}

#[tokio::test]
async fn a_damaged_file_is_replaced_and_a_foreign_one_left_alone() {
    let place = Place::new();
    let start_with = async |content: &[u8]| {
        std::fs::write(place.file("-history"), content).unwrap();
        for suffix in ["-history-wal", "-history-shm"] {
            let _ = std::fs::remove_file(place.file(suffix));
        }
        let mut service = place.start().await;
        let job = service.submit("first", &json!({})).await;
        assert_eq!(service.stage.next().await, "first");
        service.stage.succeed("first");
        service.client.wait(&job).await;
        service.stop(Duration::ZERO).await;
    };
    start_with(&[7; 10_000]).await;
    let service = place.start().await;
    sample(&service, "", has_ended).await;
    service.stop(Duration::ZERO).await;

    // A store is no history.
    std::fs::copy(&place.store, place.file("-other")).unwrap();
    let foreign = std::fs::read(place.file("-other")).unwrap();
    start_with(&foreign).await;
    assert_eq!(std::fs::read(place.file("-history")).unwrap(), foreign);
}

#[tokio::test]
async fn only_the_owner_may_read_the_file() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    place.start().await.stop(Duration::ZERO).await;
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&place.file("-history")), 0o600);
}

#[tokio::test]
async fn periods_and_names_are_checked() {
    let place = Place::new();
    let service = place.start().await;
    for wrong in ["from=yesterday", "include=all", "until=2026-01-01T00:00:00Z"] {
        service.client.get(&format!("/v1/history?{wrong}")).await.expect(422);
    }
    // A period without an interval is no error.
    let query = "?from=2026-09-22T00:00:00Z&to=2026-09-21T00:00:00Z";
    let past = service.client.get(&format!("/v1/history{query}")).await.expect(200).json();
    assert_eq!(past["samples"], json!([]));
    service.stop(Duration::ZERO).await;
}
