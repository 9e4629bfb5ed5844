//! Run of a server, from the bound address to the end of its last connection.

use std::time::{Duration, Instant};

use anyhow::Context;
use keylane_process::GuardMechanism;
use keylane_service::http::{HttpServer, HttpSettings, StartingServer};
use keylane_service::{
    BackupSchedule, LeaseRunner, LeaseRunnerSettings, Node, NodeAddress, Service, ServiceBuilder,
    ServiceSettings, TraceSettings, WebhookSettings,
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
        let mut stops = ServerSignals::watch()?;
        // First, so that probes get answers while a large store is read.
        let starting = StartingServer::bind(serving.clone()).await?;
        let starting = store.join(starting, node_address, serving.tls.is_some())?;
        let runner = LeaseRunner::new(LeaseRunnerSettings {
            slots: config.slots_per_server(),
            children: Some(store.lease_children()),
            guard: GuardMechanism::ThisProgram,
        });
        let starting = starting.lease_to(&runner);
        let plain = config.settings(&store);
        let tenants = config.tenants(plain.slots)?;
        let settings = ServiceSettings { backups, webhooks, traces, tenants, ..plain };
        let kinds = reload::KindTables::of(&config)?;
        kinds.run_by(&runner);
        let mut builder = Service::builder(settings).guard(GuardMechanism::ThisProgram);
        for (name, kind) in kinds.all() {
            builder = builder.kind(&name, kind);
        }
        let mut reloads = reload::ReloadState { source, server: config, kinds, runner };
        let waiting =
            Waiting { server: &starting, node: store.node.as_ref(), is_reload_due: false };
        let (service, is_reload_due) = match waiting
            .until_started(builder, &mut stops, &reloads)
            .await?
        {
            Started::Service(service, is_reload_due) => (service, is_reload_due),
            Started::Stopped { signal, is_node } => {
                // Requests that were forwarded are still answered.
                let within = if is_node { shutdown_timeout } else { Duration::ZERO };
                tokio::select! {
                    _ = async { tokio::join!(starting.stop(within), reloads.runner.stop(within)) } => {}
                    () = stops.again() => say("stopped at once"),
                }
                *grace = Duration::ZERO;
                return Ok(ending(signal));
            }
        };
        let server = starting.serve(&service);
        Announcement {
            source: &reloads.source,
            store: &store.shown,
            server: &server,
            settings: &serving,
        }
        .print();
        if is_reload_due {
            reloads.run(&service, &server).await;
        }
        let signal = loop {
            let signal = tokio::select! {
                signal = stops.next() => signal,
                why = service.lost() => {
                    eprintln!("keylane: {why}");
                    *grace = Duration::ZERO;
                    return Ok(ExitOutcome::Error);
                }
            };
            match signal {
                SIGHUP if !stops.hangup_stops => reloads.run(&service, &server).await,
                signal => break signal,
            }
        };
        // Before the message: a subtask that ends because of it must not make way for another.
        service.drain();
        reloads.runner.drain();
        say("stopping; again to stop at once");
        tokio::select! {
            () = stop(server, service, &reloads.runner, shutdown_timeout) => {}
            () = stops.again() => say("stopped at once; running subtasks will be retried"),
        }
        Ok(ending(signal))
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
                    let service = started.context("cannot start the service")?;
                    return Ok(Started::Service(service, self.is_reload_due));
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
