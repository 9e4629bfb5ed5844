//! What jobs were submitted with holds in a store that was exported and imported, salvaged or restored from a backup.

use std::path::Path;
use std::time::Duration;

use crate::common::acting::ActingService;
use crate::common::webhook_receiver::Receiver;
use keylane_service::store::{Store, StoreSettings};
use keylane_service::{
    AllowedNetworks, ManualClock, ServiceSettings, WebhookSecrets, WebhookSettings,
};
use serde_json::json;

const HOUR_MS: u64 = 3_600_000;
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Starts a service with one slot, without ageing of priorities.
async fn start(store: &Path, clock: &ManualClock) -> ActingService {
    let allow = AllowedNetworks::parse(["127.0.0.0/8"]).unwrap();
    let webhooks = WebhookSettings::new(WebhookSecrets::parse(SECRET).unwrap(), allow).unwrap();
    let settings = ServiceSettings {
        slots: 1,
        priority_ageing: None,
        webhooks: Some(webhooks),
        clock: Some(clock.clone()),
        ..ServiceSettings::new(store)
    };
    ActingService::start(settings).await
}

/// Submits jobs, moves the closed store, and checks in the new one what each job was submitted with.
async fn expect_all_in_the_store(moved: impl FnOnce(&Path, &Path)) {
    let folder = tempfile::tempdir().unwrap();
    let [old, new] = ["old", "new"].map(|name| folder.path().join(name));
    let clock = ManualClock::at(1_790_000_000_000);
    let mut receiver = Receiver::start().await;
    let mut place = start(&old, &clock).await;
    place.submit("ended", &json!({"webhook": receiver.url()})).await;
    assert_eq!(place.stage.next().await, "ended");
    place.stage.succeed("ended");
    let unanswered = receiver.next().await;
    let running = place.submit("running", &json!({"priority": "high"})).await;
    assert_eq!(place.stage.next().await, "running");
    let low = place.submit("low", &json!({"priority": "low"})).await;
    let unique = json!({"unique_ms": 2 * HOUR_MS});
    let normal = place.submit("normal", &unique).await;
    let expiring = json!({"expires_ms": HOUR_MS, "webhook": receiver.url()});
    let expiring = place.submit("expiring", &expiring).await;
    let behind = json!({"priority": "high", "after": [running]});
    let behind = place.submit("behind", &behind).await;
    place.stop(Duration::ZERO).await;

    moved(&old, &new);
    clock.set(clock.now() + HOUR_MS + 1_000);
    let mut place = start(&new, &clock).await;
    let mut ends = Vec::new();
    for _ in 0..2 {
        let received = receiver.next().await;
        let job = received.json();
        ends.push((job["type"].to_string(), received.id() == unanswered.id()));
        received.answer(200);
    }
    ends.sort_unstable();
    let expected = [("\"job.cancelled\"", false), ("\"job.succeeded\"", true)];
    assert_eq!(ends, expected.map(|(end, is_again)| (end.to_owned(), is_again)));
    assert_eq!(place.job(&expiring).await["expired"], true);
    assert_eq!(place.submit("normal", &unique).await, normal);
    let mut started = Vec::new();
    for _ in 0..4 {
        let name = place.stage.next().await;
        place.stage.succeed(&name);
        started.push(name);
    }
    // A job with `after` becomes ready when the end before it is on the disk, so its turn varies.
    let turn = |name| started.iter().position(|it| it == name).unwrap();
    assert!(turn("running") < turn("normal") && turn("normal") < turn("low"), "{started:?}");
    assert!(turn("running") < turn("behind"), "{started:?}");
    for id in [&behind, &normal, &low] {
        assert_eq!(place.client.wait(id).await["state"], "succeeded");
    }
    place.stop(Duration::ZERO).await;
}

fn open(path: &Path) -> Store {
    Store::open(path, &StoreSettings::default()).unwrap().0
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_has_what_jobs_were_submitted_with() {
    expect_all_in_the_store(|old, new| {
        let mut export = Vec::new();
        open(old).export(&mut export).unwrap();
        open(new).import(&mut &export[..]).unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_salvaged_store_has_what_jobs_were_submitted_with() {
    expect_all_in_the_store(|old, new| {
        let salvaged = Store::salvage(old, new, 1_790_000_000_000).unwrap();
        assert_eq!(salvaged.losses, []);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_has_what_jobs_were_submitted_with() {
    expect_all_in_the_store(|old, new| open(old).backup(new).unwrap()).await;
}
