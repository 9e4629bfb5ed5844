//! Jobs of a higher priority get slots first, also after a restart; the others say why they wait.

use std::path::Path;
use std::time::Duration;

use crate::common::stage::{Stage, stage};
use crate::common::{Client, serve};
use keylane_service::http::HttpServer;
use keylane_service::{Kind, Service, ServiceSettings};
use serde_json::{Value, json};

struct Place {
    service: Service,
    server: HttpServer,
    client: Client,
    stage: Stage,
}

impl Place {
    async fn start(store: &Path) -> Self {
        let (actors, stage) = stage();
        let settings =
            ServiceSettings { slots: 1, priority_ageing: None, ..ServiceSettings::new(store) };
        let service = Service::builder(settings).kind("act", Kind::new(actors));
        let service = service.start().await.unwrap();
        let (server, client) = serve(&service).await;
        Place { service, server, client, stage }
    }

    async fn stop(self) {
        self.server.stop(Duration::from_secs(5)).await;
        self.service.stop(Duration::ZERO).await;
    }

    async fn submit(&self, name: &str, more: Value) -> String {
        let mut job = json!({"kind": "act", "payload": name});
        job.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.client.submit(&job.to_string()).await
    }

    async fn because(&self, id: &str) -> (String, String) {
        let job = self.client.get(&format!("/v1/jobs/{id}")).await.expect(200).json();
        let because = &job["waiting_because"][0];
        let text = |field: &str| because[field].as_str().unwrap_or_default().to_owned();
        (text("reason"), text("text"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_higher_priority_comes_first_and_the_order_of_a_key_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let mut place = Place::start(&store).await;
    place.submit("first", json!({"attempts": 1})).await;
    assert_eq!(place.stage.next().await, "first");
    let low = place.submit("low", json!({"priority": "low", "key": "k"})).await;
    let high = place.submit("high", json!({"priority": "high"})).await;
    let behind = place.submit("behind", json!({"priority": "high", "key": "k"})).await;
    let (reason, text) = place.because(&low).await;
    assert_eq!(reason, "priority");
    assert!(text.ends_with("1 job of its tenant with a higher priority come first"), "{text}");
    let (reason, text) = place.because(&behind).await;
    assert_eq!(reason, "key_order");
    assert!(text.ends_with("the order of a key comes before the priorities of jobs"), "{text}");
    let shown = place.client.get(&format!("/v1/jobs/{high}")).await.expect(200).json();
    assert_eq!(shown["priority"], "high");
    place.stop().await;

    let mut place = Place::start(&store).await;
    for name in ["high", "low", "behind"] {
        assert_eq!(place.stage.next().await, name);
        place.stage.succeed(name);
    }
    assert_eq!(place.client.wait(&behind).await["state"], "succeeded");
    let wrong = r#"{"kind":"act","payload":1,"priority":"urgent"}"#;
    place.client.post("/v1/jobs", wrong).await.expect(422);
    place.stop().await;
}
