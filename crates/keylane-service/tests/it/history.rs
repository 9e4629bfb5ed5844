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

async fn past(service: &ActingService, query: &str) -> Value {
    service.client.get(&format!("/v1/history{query}")).await.expect(200).json()
}

/// Returns the sample of the interval that begins at this time. A stop makes one of the interval in which it is.
fn sample<'a>(past: &'a Value, at: &str) -> &'a Value {
    let all = past["samples"].as_array().unwrap();
    let at = format!("2026-09-21T{at}.000Z");
    all.iter().find(|sample| sample["at"] == *at).unwrap_or_else(|| panic!("{at}: {past}"))
}

/// Runs a job with one subtask to its end.
async fn run_one(service: &mut ActingService) {
    let job = service.submit("only", &json!({})).await;
    assert_eq!(service.stage.next().await, "only");
    service.stage.succeed("only");
    service.client.wait(&job).await;
}

#[tokio::test]
async fn what_ran_and_waited_is_there_after_a_restart() {
    let place = Place::new();
    let mut service = place.start().await;
    service.submit("first", &json!({"key": "ann"})).await;
    assert_eq!(service.stage.next().await, "first");
    let last = service.submit("second", &json!({"key": "ann", "name": "October"})).await;
    service.stop(Duration::ZERO).await;

    place.clock.set(BEGIN + 10_000);
    let mut service = place.start().await;
    let before = past(&service, "").await;
    assert_eq!(before["interval_ms"], 10_000);
    let cut_off = sample(&before, "14:15:00");
    assert_eq!((&cut_off["slots"], &cut_off["succeeded"]), (&json!(1), &json!(0)));
    assert_eq!(cut_off["waiting"]["key"], 1.0, "{cut_off}");
    for name in ["first", "second"] {
        assert_eq!(service.stage.next().await, name);
        service.stage.succeed(name);
    }
    service.client.wait(&last).await;
    service.stop(Duration::ZERO).await;

    place.clock.set(BEGIN + 20_000);
    let service = place.start().await;
    let after = past(&service, "?include=slices").await;
    assert_eq!(sample(&after, "14:15:00"), cut_off);
    assert_eq!(sample(&after, "14:15:10")["succeeded"], 2);
    let slices = after["slices"].as_array().unwrap();
    let ended: Vec<_> = slices.iter().filter(|slice| slice["outcome"] == "succeeded").collect();
    assert_eq!(ended.len(), 2, "{after}");
    assert!(ended.iter().all(|slice| slice["keys"] == json!(["ann"])), "{after}");
    service.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn an_interval_with_a_restart_has_what_ran_before_and_after_it() {
    let place = Place::new();
    for _ in 0..2 {
        let mut service = place.start().await;
        run_one(&mut service).await;
        service.stop(Duration::ZERO).await;
    }
    let service = place.start().await;
    let past = past(&service, "").await;
    assert_eq!(past["samples"].as_array().unwrap().len(), 1, "{past}");
    assert_eq!(sample(&past, "14:15:00")["succeeded"], 2);
    service.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn earlier_hours_have_longer_intervals() {
    let place = Place::new();
    let mut service = place.start().await;
    run_one(&mut service).await;
    service.stop(Duration::ZERO).await;

    for (hours, interval) in [(2, 60_000), (30, 900_000)] {
        place.clock.set(BEGIN + hours * 3_600_000);
        let service = place.start().await;
        let past = past(&service, "?from=2026-09-21T14:00:00Z&include=slices").await;
        assert_eq!(past["interval_ms"], interval);
        assert_eq!(sample(&past, "14:15:00")["succeeded"], 1);
        // Keys of attempts are kept for a day.
        assert_eq!(past.get("slices").is_some(), hours == 2);
        // Nothing of the time when the service did not run.
        assert!(past["samples"].as_array().unwrap().len() <= 2, "{past}");
        service.stop(Duration::ZERO).await;
    }
}

#[tokio::test]
async fn a_damaged_file_is_replaced_and_a_foreign_one_left_alone() {
    let place = Place::new();
    let run_with = async |content: &[u8]| {
        std::fs::write(place.file("-history"), content).unwrap();
        let mut service = place.start().await;
        run_one(&mut service).await;
        service.stop(Duration::ZERO).await;
    };
    run_with(&[7; 10_000]).await;
    let service = place.start().await;
    assert_eq!(sample(&past(&service, "").await, "14:15:00")["succeeded"], 1);
    service.stop(Duration::ZERO).await;

    // A store is no history.
    for suffix in ["-history-wal", "-history-shm"] {
        let _ = std::fs::remove_file(place.file(suffix));
    }
    let foreign = std::fs::read(&place.store).unwrap();
    run_with(&foreign).await;
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
    assert_eq!(past(&service, query).await["samples"], json!([]));
    service.stop(Duration::ZERO).await;
}
