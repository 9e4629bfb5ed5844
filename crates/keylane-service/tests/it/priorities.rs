//! Jobs of a higher priority get slots first, also after a restart; the others say why they wait.

use std::path::Path;
use std::time::Duration;

use crate::common::acting::ActingService;
use keylane_service::ServiceSettings;
use serde_json::json;

/// Starts a service with one slot, and without ageing.
async fn start(store: &Path) -> ActingService {
    let settings =
        ServiceSettings { slots: 1, priority_ageing: None, ..ServiceSettings::new(store) };
    ActingService::start(settings).await
}

/// Returns the first reason for which a job waits, with its sentence.
async fn because(place: &ActingService, id: &str) -> (String, String) {
    let because = place.job(id).await["waiting_because"][0].clone();
    let text = |field: &str| because[field].as_str().unwrap_or_default().to_owned();
    (text("reason"), text("text"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_higher_priority_comes_first_and_the_order_of_a_key_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let mut place = start(&store).await;
    place.submit("first", &json!({"attempts": 1})).await;
    assert_eq!(place.stage.next().await, "first");
    let low = place.submit("low", &json!({"priority": "low", "key": "k"})).await;
    let high = place.submit("high", &json!({"priority": "high"})).await;
    let behind = place.submit("behind", &json!({"priority": "high", "key": "k"})).await;
    let (reason, text) = because(&place, &low).await;
    assert_eq!(reason, "priority");
    assert!(text.ends_with("1 job of its tenant with a higher priority comes first"), "{text}");
    let (reason, text) = because(&place, &behind).await;
    assert_eq!(reason, "key_order");
    assert!(text.ends_with("the order of a key comes before the priorities of jobs"), "{text}");
    assert_eq!(place.job(&high).await["priority"], "high");
    place.stop(Duration::ZERO).await;

    let mut place = start(&store).await;
    for name in ["high", "low", "behind"] {
        assert_eq!(place.stage.next().await, name);
        place.stage.succeed(name);
    }
    assert_eq!(place.client.wait(&behind).await["state"], "succeeded");
    let wrong = r#"{"kind":"act","payload":1,"priority":"urgent"}"#;
    place.client.post("/v1/jobs", wrong).await.expect(422);
    place.stop(Duration::ZERO).await;
}
