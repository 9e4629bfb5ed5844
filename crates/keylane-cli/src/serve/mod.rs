//! `keylane serve`: the task service as a process, from its start to its graceful shutdown.

mod announcement;
mod check;
mod config;
mod config_source;
mod data_folder;
mod init;
mod kind_arg;
mod kind_table;
mod old_names;
mod rate_text;
mod reload;
mod slot_count;
mod store;
mod store_place;
mod tenant_table;
mod trace_table;
mod value_types;
mod webhook_table;

use std::io::{IsTerminal, stderr, stdin, stdout};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use keylane_process::GuardMechanism;
use keylane_service::http::{HttpServer, StartingServer};
use keylane_service::{Service, ServiceSettings};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tokio::signal::unix::{Signal, SignalKind, signal};

use self::announcement::Announcement;
use self::config_source::ConfigSource;
use self::kind_arg::KindArg;
use self::store_place::StorePlace;
use crate::duration_arg::DurationArg;
use crate::exit::ExitOutcome;
use crate::message::say;

/// The subcommands that open a store themselves.
#[derive(Debug, Subcommand)]
pub(crate) enum ServeCommand {
    Serve(ServeArgs),
    Store(store::StoreArgs),
}

impl ServeCommand {
    pub(crate) fn run(&self) -> anyhow::Result<ExitOutcome> {
        match self {
            ServeCommand::Serve(args) => run(args),
            ServeCommand::Store(args) => store::run(args),
        }
    }
}

/// Accepts jobs over HTTP and WebSocket, keeps them on the disk, and runs them: in order per key, shared
/// fairly.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct ServeArgs {
    /// The configuration: kinds of jobs, and the server's settings. Without it the server has the kinds of
    /// --kind, and listens at 127.0.0.1:7420.
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,

    /// A kind of jobs whose subtasks run a command, such as hello='cat'. The command is split into words as
    /// a shell does, and runs without one. Repeat it for more kinds. Without --config and --kind there is
    /// the example hello='cat'.
    #[arg(long = "kind", value_name = "NAME=COMMAND")]
    kinds: Vec<KindArg>,

    /// Address to listen at, instead of the configuration's. Any address but loopback needs tokens.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,

    /// Path of the store, if the configuration has none. By default keylane.db in the current folder if
    /// there is a configuration, and otherwise keylane/keylane.db in the user's data directory
    /// (XDG_DATA_HOME, or ~/.local/share).
    ///
    /// Or the address of a PostgreSQL database, such as postgres://user@host/database?sslmode=verify-full: several
    /// servers can share one, of which one at a time runs the jobs, and another takes over when that ends.
    #[arg(long, value_name = "FILE|ADDRESS")]
    store: Option<PathBuf>,

    /// Folder of this server's own files if the store is in PostgreSQL, if the configuration has none: one for each
    /// server. By default keylane in the user's data directory.
    #[arg(long, value_name = "FOLDER")]
    data_folder: Option<PathBuf>,

    /// Only validate the configuration and the programs that it names.
    #[arg(long)]
    check: bool,

    /// Only write a configuration with every setting and a comment to each, by default to keylane.toml.
    #[arg(
        long, value_name = "FILE", num_args = 0..=1, default_missing_value = "keylane.toml",
        conflicts_with_all = ["config", "kinds", "listen", "store", "data_folder", "check"]
    )]
    init: Option<PathBuf>,

    /// Time to wait for running subtasks at shutdown.
    #[arg(long, value_name = "TIME", default_value = "30s")]
    shutdown_timeout: DurationArg,
}

const AFTER_HELP: &str = "\
The first SIGTERM or SIGINT stops accepting and begins nothing more; what runs may end, within the time of
--shutdown-timeout. Remote workers can heartbeat and complete meanwhile. The second signal ends it at once; nothing that was
acknowledged is lost by that. SIGHUP reads tokens, certificates, kinds, tenants and webhooks anew and ends nothing; in a
terminal it stops the server as SIGTERM does.

Examples:

  keylane serve --kind greet='echo hello {key}'
  keylane submit greet --key ann --wait

  keylane serve --init
  keylane serve --config keylane.toml

docs/serve/configuration.md describes every setting.";

/// Runs `keylane serve`.
fn run(args: &ServeArgs) -> anyhow::Result<ExitOutcome> {
    if let Some(path) = &args.init {
        return init::write(path);
    }
    let (file, kinds) = (args.config.clone(), args.kinds.clone());
    let source = ConfigSource { file, kinds, listen: args.listen };
    let config = source.read()?;
    let serving = config.serving()?;
    config.kinds()?;
    config.backups()?;
    let webhooks = config.webhooks()?;
    let traces = config.traces()?;
    config.tenants(config.slots())?;
    if args.check {
        return check_only(&source, &config);
    }
    let store = match (config.store(), &args.store) {
        (Some(path), _) => path.to_owned(),
        (None, Some(path)) => path.clone(),
        (None, None) => source.default_store()?,
    };
    let store =
        StorePlace::read(&store, || match config.data_folder(args.data_folder.as_deref()) {
            Some(folder) => Ok(folder.to_owned()),
            None => data_folder::data_folder(),
        })?;
    let plain = config.settings(&store);
    let tenants = config.tenants(plain.slots)?;
    let backups = config.backups()?;
    if store.is_database() && backups.is_some() {
        bail!(
            "backup_folder is for a store in a file; back up the database by its own means, such as pg_dump"
        );
    }
    let settings = ServiceSettings { backups, webhooks, traces, tenants, ..plain };
    log();
    config.warn();
    let kinds = reload::KindTables::of(&config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let mut builder = Service::builder(settings).guard(GuardMechanism::ThisProgram);
    for (name, kind) in kinds.all() {
        builder = builder.kind(&name, kind);
    }
    let mut grace = Duration::from_secs(1);
    let ended = runtime.block_on(async {
        let mut stops = ServerSignals::watch()?;
        // First, so that probes get answers while a large store is read.
        let starting = StartingServer::bind(serving.clone()).await?;
        let service = tokio::select! {
            started = builder.start() => started.context("cannot start the service")?,
            // The start may be waiting for the commands of an earlier server, which its guard goes on to end.
            signal = stops.end() => {
                eprintln!("keylane: stopped before the start was complete");
                grace = Duration::ZERO;
                return Ok(ending(signal));
            }
        };
        let server = starting.serve(&service);
        Announcement { source: &source, store: &store.shown, server: &server, settings: &serving }
            .print();
        let mut reloads = reload::ReloadState { source, server: config, kinds };
        let signal = loop {
            let signal = tokio::select! {
                signal = stops.next() => signal,
                why = service.lost() => {
                    eprintln!("keylane: {why}");
                    grace = Duration::ZERO;
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
        say("stopping; again to stop at once");
        tokio::select! {
            () = stop(server, service, args.shutdown_timeout.0) => {}
            () = stops.again() => say("stopped at once; running subtasks will be retried"),
        }
        Ok::<_, anyhow::Error>(ending(signal))
    });
    // Running handlers are dropped here, and their processes end with them: otherwise some would
    // run until our exit, beside their next attempt. Blocking threads are not awaited any longer.
    runtime.shutdown_timeout(grace);
    ended
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
async fn stop(server: HttpServer, service: Service, within: Duration) {
    let begun = Instant::now();
    server.drain();
    service.quiesce(within).await;
    server.stop(within.saturating_sub(begun.elapsed()).max(GOODBYE)).await;
    let left = within.saturating_sub(begun.elapsed());
    // Without the grace of a handler that ignores its cancellation: `--stop-within` is a promise,
    // and the end of this process ends such a handler.
    let _ = tokio::time::timeout(left + CLOSING, service.stop(left)).await;
}

/// Runs `keylane serve --check`.
fn check_only(source: &ConfigSource, config: &config::Config) -> anyhow::Result<ExitOutcome> {
    let place = source.file.as_ref().map_or("--kind".into(), |file| file.display().to_string());
    for note in check::check(&config.commands())? {
        println!("{place}: note: {note}");
    }
    println!("{place}: the configuration is valid");
    Ok(ExitOutcome::Finished { failed: 0 })
}

/// Starts the log on standard error; `KEYLANE_LOG` sets its level.
fn log() {
    let level = match std::env::var("KEYLANE_LOG").as_deref() {
        Ok("error") => tracing::Level::ERROR,
        Ok("info") => tracing::Level::INFO,
        Ok("debug") => tracing::Level::DEBUG,
        Ok("trace") => tracing::Level::TRACE,
        _ => tracing::Level::WARN,
    };
    let plain = tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(level);
    // A write error is ignored: reporting it to the same terminal would end the logging thread.
    let plain = plain.with_ansi(false).log_internal_errors(false);
    // Tests in one process share it.
    let _ = plain.try_init();
}

/// The signals that ask for an end, or for the configuration to be read anew.
struct ServerSignals {
    interrupts: Signal,
    terminations: Signal,
    hangups: Signal,
    /// Whether SIGHUP asks for an end: it runs in a terminal, which sends that when it is closed.
    hangup_stops: bool,
}

impl ServerSignals {
    fn watch() -> anyhow::Result<Self> {
        let watch = |kind| signal(kind).context("cannot watch for signals");
        Ok(ServerSignals {
            interrupts: watch(SignalKind::interrupt())?,
            terminations: watch(SignalKind::terminate())?,
            hangups: watch(SignalKind::hangup())?,
            hangup_stops: stdin().is_terminal() || stdout().is_terminal() || stderr().is_terminal(),
        })
    }

    async fn next(&mut self) -> i32 {
        tokio::select! {
            _ = self.interrupts.recv() => SIGINT,
            _ = self.terminations.recv() => SIGTERM,
            _ = self.hangups.recv() => SIGHUP,
        }
    }

    /// The next one that asks for an end.
    async fn end(&mut self) -> i32 {
        loop {
            match self.next().await {
                SIGHUP if !self.hangup_stops => {}
                signal => return signal,
            }
        }
    }

    /// The next one that asks for an end once more.
    async fn again(&mut self) {
        // A closed terminal may send SIGHUP twice, by the kernel and by the shell.
        while self.next().await == SIGHUP {}
    }
}
