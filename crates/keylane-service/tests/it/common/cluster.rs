//! Servers of a test's own that share a store in PostgreSQL.

use std::time::Duration;

use keylane_service::http::{HttpServer, HttpSettings, StartingServer};
use keylane_service::store::{PostgresSettings, StoreSettings};
use keylane_service::{
    Kind, LeaseRunner, LeaseRunnerSettings, Service, ServiceSettings, StartError,
};
use keylane_testkit::{PAUSE, PostgresServer};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::{Client, Log, builder_with, settings};

/// A server that has not started: it forwards, or reads its store.
pub(crate) struct Waiting {
    pub(crate) server: StartingServer,
    starting: JoinHandle<Result<Service, StartError>>,
    pub(crate) client: Client,
    /// Runs its kinds with leases and handlers.
    pub(crate) runner: LeaseRunner,
    folder: TempDir,
}

/// The owner of the store.
pub(crate) struct Owner {
    pub(crate) server: HttpServer,
    pub(crate) service: Service,
    pub(crate) client: Client,
    pub(crate) runner: LeaseRunner,
    _folder: TempDir,
}

impl Waiting {
    pub(crate) async fn new(database: &PostgresServer, http: HttpSettings) -> Self {
        Waiting::with_kinds(database, http, Vec::new()).await
    }

    /// With more kinds. It runs one leased subtask at a time.
    pub(crate) async fn with_kinds(
        database: &PostgresServer,
        http: HttpSettings,
        kinds: Vec<(&str, Kind)>,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let scheme = if http.tls.is_some() { "https" } else { "http" };
        let http = HttpSettings { listen: ([127, 0, 0, 1], 0).into(), ..http };
        let server = StartingServer::bind(http).await.unwrap();
        let client = Client::of(server.address());
        let address = format!("{scheme}://{}", server.address()).parse().unwrap();
        let (server, node) = server.join(address);
        let postgres: PostgresSettings = database.address().parse().unwrap();
        let store = StoreSettings {
            postgres: Some(postgres.of_node(node.clone())),
            ..StoreSettings::default()
        };
        let runner = LeaseRunner::new(LeaseRunnerSettings { slots: 1, ..Default::default() });
        let server = server.lease_to(&runner);
        runner.set_kinds(kinds.iter().map(|(name, kind)| (*name, kind)));
        let settings = ServiceSettings { store, ..settings(folder.path()) };
        let mut builder = builder_with(settings, &Log::default());
        for (name, kind) in kinds {
            builder = builder.kind(name, kind);
        }
        let starting = tokio::spawn(builder.start());
        Waiting { server, starting, client, runner, folder }
    }

    /// Waits until it owns the store.
    pub(crate) async fn start(self) -> Owner {
        let service = self.starting.await.unwrap().unwrap();
        let server = self.server.serve(&service);
        Owner { server, service, client: self.client, runner: self.runner, _folder: self.folder }
    }

    /// Waits until it forwards requests.
    pub(crate) async fn until_it_forwards(&self) {
        while self.client.get("/readyz").await.status != 200 {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

impl Owner {
    pub(crate) async fn stop(self) {
        self.server.drain();
        self.service.quiesce(Duration::from_secs(30)).await;
        self.runner.stop(Duration::from_secs(30)).await;
        self.server.stop(Duration::from_secs(30)).await;
        self.service.stop(Duration::from_secs(30)).await;
    }
}

/// Starts two servers, of which the first one owns the store.
pub(crate) async fn two(database: &PostgresServer, http: HttpSettings) -> (Owner, Waiting) {
    let owner = Waiting::new(database, http.clone()).await.start().await;
    let other = Waiting::new(database, http).await;
    (owner, other)
}
