//! A service whose attempts end when a test says so, with a client.

use std::time::Duration;

use keylane_service::http::HttpServer;
use keylane_service::{Kind, Service, ServiceBuilder, ServiceSettings};
use serde_json::{Value, json};

use super::stage::{Stage, stage};
use super::{Client, serve};

/// The attempts of its kind `act` come onto the stage, under the names that are their payloads.
pub(crate) struct ActingService {
    pub(crate) service: Service,
    pub(crate) server: HttpServer,
    pub(crate) client: Client,
    pub(crate) stage: Stage,
}

impl ActingService {
    pub(crate) async fn start(settings: ServiceSettings) -> Self {
        ActingService::start_with(settings, |service| service).await
    }

    /// Starts a service with more kinds.
    pub(crate) async fn start_with(
        settings: ServiceSettings,
        more: impl FnOnce(ServiceBuilder) -> ServiceBuilder,
    ) -> Self {
        let (actors, stage) = stage();
        let service = Service::builder(settings).kind("act", Kind::new(actors));
        let service = more(service).start().await.unwrap();
        let (server, client) = serve(&service).await;
        ActingService { service, server, client, stage }
    }

    /// Stops it, and waits for running attempts for this long.
    pub(crate) async fn stop(self, patience: Duration) {
        self.server.stop(Duration::from_secs(5)).await;
        self.service.stop(patience).await;
    }

    /// Submits a job with one subtask of this name, and returns the job's id. `more` are further fields of the job.
    pub(crate) async fn submit(&self, name: &str, more: &Value) -> String {
        let mut job = json!({"kind": "act", "payload": name});
        job.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.client.submit(&job.to_string()).await
    }

    pub(crate) async fn job(&self, id: &str) -> Value {
        self.client.get(&format!("/v1/jobs/{id}")).await.expect(200).json()
    }
}
