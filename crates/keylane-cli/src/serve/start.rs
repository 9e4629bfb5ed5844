//! Run of a server, from the bound address to the end of its last connection.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use keylane_process::GuardMechanism;
use keylane_service::http::{HttpServer, HttpSettings, StartingServer};
use keylane_service::{
    BackupSchedule, LeaseRunner, LeaseRunnerSettings, Node, NodeAddress, Service, ServiceBuilder,
    ServiceSettings, StartError, TraceSettings, WebhookSettings,
};
use signal_hook::consts::{SIGHUP, SIGTERM};

use super::announcement::{self, Announcement};
use super::config::Config;
use super::config_source::ConfigSource;
use super::reload;
use super::stop_signals::ServerSignals;
use super::store_place::StorePlace;
use crate::exit::ExitOutcome;
use crate::message::say;

/// A server that is about to start.
pub(super) struct Start {
    pub(super) source: ConfigSource,
    pub(super) serving: HttpSettings,
    pub(super) webhooks: Option<WebhookSettings>,
    pub(super) traces: Option<TraceSettings>,
    pub(super) backups: Option<BackupSchedule>,
    pub(super) store: StorePlace,
    pub(super) node_address: Option<NodeAddress>,
}

impl Start {
    /// Runs the server until it ends. `grace` is the time for what still runs afterwards.
    pub(super) async fn run(
        self,
        config: Config,
        shutdown_timeout: Duration,
        grace: &mut Duration,
    ) -> anyhow::Result<ExitOutcome> {
        let Start { source, serving, webhooks, traces, backups, mut store, node_address } = self;
        let stops = ServerSignals::watch()?;
        // First, so that probes get answers while a large store is read.
        let starting = StartingServer::bind(serving.clone()).await?;
        let starting = store.join(starting, node_address, serving.tls.is_some())?;
        let runner = LeaseRunner::new(LeaseRunnerSettings {
            slots: config.slots_per_server(),
            children: Some(store.lease_children()),
            guard: GuardMechanism::ThisProgram,
        });
        let mut starting = starting.lease_to(&runner);
        let plain = config.settings(&store);
        let tenants = config.tenants(plain.slots)?;
        let settings = ServiceSettings { backups, webhooks, traces, tenants, ..plain };
        let kinds = reload::KindTables::of(&config)?;
        kinds.run_by(&runner);
        let reloads = reload::ReloadState { source, server: config, kinds, runner };
        let mut running =
            RunningServer { store, serving, settings, reloads, stops, shutdown_timeout };
        let mut is_reload_due = false;
        loop {
            match running.round(starting, is_reload_due).await? {
                Round::Waits { server, is_reload_due: is_due } => {
                    (starting, is_reload_due) = (*server, is_due);
                }
                Round::Over { outcome, has_ended } => {
                    if has_ended {
                        *grace = Duration::ZERO;
                    }
                    return Ok(outcome);
                }
            }
        }
    }
}

/// State of a server from its start to its end.
struct RunningServer {
    store: StorePlace,
    serving: HttpSettings,
    settings: ServiceSettings,
    reloads: reload::ReloadState,
    stops: ServerSignals,
    shutdown_timeout: Duration,
}

/// End of a round: of the wait for the store, and of the time as its owner.
enum Round {
    /// The server waits for the store again: it was drained, or has lost the database while it read the store.
    Waits { server: Box<StartingServer>, is_reload_due: bool },
    /// The server ends. Whether nothing of it runs any longer.
    Over { outcome: ExitOutcome, has_ended: bool },
}

/// Reason why a server does not own its store any longer.
enum OwnerEnd {
    /// It can no longer use the store.
    Lost(String),
    /// A signal asks for its end.
    Signal(i32),
    /// An operator has drained it.
    Drained,
}

impl RunningServer {
    /// Waits for the store, and owns it until the server ends or is drained.
    async fn round(
        &mut self,
        starting: StartingServer,
        is_reload_due: bool,
    ) -> anyhow::Result<Round> {
        let builder = self.builder();
        let waiting = Waiting { server: &starting, node: self.store.node.as_ref(), is_reload_due };
        let started = waiting.until_started(builder, &mut self.stops, &self.reloads).await?;
        let (service, is_reload_due) = match started {
            Started::Service(service, is_reload_due) => (service, is_reload_due),
            Started::Unavailable { why, is_reload_due } => {
                tracing::error!(%why, "the database cannot be used any more; the start begins again");
                tokio::time::sleep(RETRY).await;
                return Ok(Round::Waits { server: Box::new(starting), is_reload_due });
            }
            Started::Stopped { signal, is_node } => {
                self.stop_waiting(starting, is_node).await;
                return Ok(Round::Over { outcome: ending(signal), has_ended: true });
            }
        };
        let server = starting.serve(&service);
        Announcement {
            source: &self.reloads.source,
            store: &self.store.shown,
            server: &server,
            settings: &self.serving,
        }
        .print();
        if is_reload_due {
            self.reloads.run(&service, &server).await;
        }
        match self.until_end(&service, &server).await {
            OwnerEnd::Lost(why) => {
                eprintln!("keylane: {why}");
                Ok(Round::Over { outcome: ExitOutcome::Error, has_ended: true })
            }
            OwnerEnd::Signal(signal) => {
                self.stop(service, server).await;
                Ok(Round::Over { outcome: ending(signal), has_ended: false })
            }
            OwnerEnd::Drained => self.hand_over(service, server).await,
        }
    }

    fn builder(&self) -> ServiceBuilder {
        let settings = self.settings.clone();
        let builder = Service::builder(settings).guard(GuardMechanism::ThisProgram);
        let kinds = self.reloads.kinds.all().into_iter();
        kinds.fold(builder, |builder, (name, kind)| builder.kind(&name, kind))
    }

    /// Stops before the service has started. `is_node`: requests may have been forwarded, which are still answered.
    async fn stop_waiting(&mut self, starting: StartingServer, is_node: bool) {
        let within = if is_node { self.shutdown_timeout } else { Duration::ZERO };
        let runner = &self.reloads.runner;
        tokio::select! {
            _ = async { tokio::join!(starting.stop(within), runner.stop(within)) } => {}
            () = self.stops.again() => say("stopped at once"),
        }
    }

    async fn until_end(&mut self, service: &Service, server: &HttpServer) -> OwnerEnd {
        loop {
            let signal = tokio::select! {
                signal = self.stops.next() => signal,
                why = service.lost() => return OwnerEnd::Lost(why),
                () = drained(self.store.node.as_ref()) => return OwnerEnd::Drained,
            };
            match signal {
                SIGHUP if !self.stops.hangup_stops => self.reloads.run(service, server).await,
                signal => return OwnerEnd::Signal(signal),
            }
        }
    }

    async fn stop(&mut self, service: Service, server: HttpServer) {
        // Before the message: a subtask that ends because of it must not make way for another.
        service.drain();
        self.reloads.runner.drain();
        say("stopping; again to stop at once");
        tokio::select! {
            () = stop(server, service, &self.reloads.runner, self.shutdown_timeout) => {}
            () = self.stops.again() => say("stopped at once; running subtasks will be retried"),
        }
    }

    /// Stops the service, so that another server owns the store, and returns the server as one that waits. Attempts under leases continue.
    async fn hand_over(&mut self, service: Service, server: HttpServer) -> anyhow::Result<Round> {
        service.drain();
        say("drained: this server gives the store up, and forwards requests to the next owner");
        tokio::select! {
            starting = hand_over(service, server, self.shutdown_timeout) => {
                let starting = starting.context("only a server of a cluster is drained")?;
                let is_reload_due = self.reloads.source.file.is_some();
                Ok(Round::Waits { server: Box::new(starting), is_reload_due })
            }
            signal = self.stops.next() => {
                say("stopped at once; running subtasks will be retried");
                Ok(Round::Over { outcome: ending(signal), has_ended: false })
            }
        }
    }
}

async fn hand_over(
    service: Service,
    server: HttpServer,
    within: Duration,
) -> Option<StartingServer> {
    let begun = Instant::now();
    service.end_attempts(within).await;
    let starting = server.hand_over(GOODBYE).await;
    let left = within.saturating_sub(begun.elapsed());
    let _ = tokio::time::timeout(left + CLOSING, service.stop(left)).await;
    starting
}

/// Waits until an operator drains the server.
async fn drained(node: Option<&Node>) {
    match node {
        Some(node) => node.drained().await,
        None => std::future::pending().await,
    }
}

/// A server whose service has not started: it reads its store, or forwards requests to the owner of that.
struct Waiting<'a> {
    server: &'a StartingServer,
    /// This server as a node, if others can own the store.
    node: Option<&'a Node>,
    /// Whether the configuration is to be read anew when the service has started.
    is_reload_due: bool,
}

/// End of the wait for the start of a service.
enum Started {
    /// It has started; whether the configuration is to be read anew.
    Service(Service, bool),
    /// The database could not be reached while the store was read.
    Unavailable { why: Arc<str>, is_reload_due: bool },
    /// A signal asked for the end. Whether requests may have been forwarded until then.
    Stopped { signal: i32, is_node: bool },
}

impl Waiting<'_> {
    async fn until_started(
        mut self,
        builder: ServiceBuilder,
        stops: &mut ServerSignals,
        reloads: &reload::ReloadState,
    ) -> anyhow::Result<Started> {
        let start = builder.start();
        tokio::pin!(start);
        let mut owner = None;
        loop {
            tokio::select! {
                started = &mut start => {
                    return match started {
                        Ok(service) => Ok(Started::Service(service, self.is_reload_due)),
                        Err(StartError::Unavailable { why }) => {
                            Ok(Started::Unavailable { why, is_reload_due: self.is_reload_due })
                        }
                        Err(error) => Err(error).context("cannot start the service"),
                    };
                }
                // The start may be waiting for the commands of an earlier server, which its guard goes on to end.
                signal = stops.next() => match signal {
                    SIGHUP if !stops.hangup_stops => self.reload(reloads),
                    signal => {
                        let is_node = owner.is_some();
                        say(if is_node { "stopping" } else { "stopped before the start was complete" });
                        return Ok(Started::Stopped { signal, is_node });
                    }
                },
                other = other_owner(self.node, owner.as_ref()) => {
                    announcement::print_forwarding(self.server.address(), &other);
                    owner = Some(other);
                }
            }
        }
    }

    /// Reloads the certificate. The rest of the configuration is read anew when the service has started.
    fn reload(&mut self, reloads: &reload::ReloadState) {
        self.is_reload_due = true;
        match reloads.certificate().and_then(|tls| Ok(self.server.reload(tls)?)) {
            Ok(()) => say(
                "reloaded the certificate; the rest is reloaded when this server owns the store",
            ),
            Err(error) => say(format_args!("not reloaded, and all goes on as before: {error:#}")),
        }
    }
}

/// Waits until another node than the one at `last` owns the store.
async fn other_owner(node: Option<&Node>, last: Option<&NodeAddress>) -> NodeAddress {
    match node {
        Some(node) => node.other_owner(last).await,
        None => std::future::pending().await,
    }
}

/// How a server ends that was asked to by this signal.
fn ending(signal: i32) -> ExitOutcome {
    match signal {
        // Asked to stop, it has.
        SIGTERM => ExitOutcome::Finished { failed: 0 },
        signal => ExitOutcome::Signalled { signal },
    }
}

/// Minimum time for open connections after the time for running subtasks.
const GOODBYE: Duration = Duration::from_secs(1);

/// Time until a start that has lost the database begins again.
const RETRY: Duration = Duration::from_secs(1);

/// Maximum time for cancelled subtasks to end and for the store to be closed.
const CLOSING: Duration = Duration::from_secs(3);

/// Shuts down within one timeout. The server answers until no subtask runs, so that remote workers
/// can report results and `/readyz` reports the shutdown; the time that its connections then take
/// is taken from the service's.
async fn stop(server: HttpServer, service: Service, runner: &LeaseRunner, within: Duration) {
    let begun = Instant::now();
    server.drain();
    service.quiesce(within).await;
    // Before the end of the service, which is told of the ends.
    runner.stop(within.saturating_sub(begun.elapsed())).await;
    server.stop(within.saturating_sub(begun.elapsed()).max(GOODBYE)).await;
    let left = within.saturating_sub(begun.elapsed());
    // Without the grace of a handler that ignores its cancellation: `--stop-within` is a promise,
    // and the end of this process ends such a handler.
    let _ = tokio::time::timeout(left + CLOSING, service.stop(left)).await;
}
