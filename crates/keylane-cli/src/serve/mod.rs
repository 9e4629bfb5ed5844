//! `keylane serve`: the task service as a process, from its start to its graceful shutdown.

mod announcement;
mod check;
mod config;
mod config_source;
mod data_folder;
mod init;
mod kind_arg;
mod kind_table;
#[cfg(feature = "postgres")]
mod node_address;
mod old_names;
mod rate_text;
mod reload;
mod slot_count;
mod start;
mod stop_signals;
mod store;
mod store_place;
mod tenant_table;
mod trace_table;
mod value_types;
mod webhook_table;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use keylane_service::NodeAddress;

use self::config_source::ConfigSource;
use self::kind_arg::KindArg;
use self::start::Start;
use self::store_place::StorePlace;
use crate::duration_arg::DurationArg;
use crate::exit::ExitOutcome;

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
    /// servers can share one. One at a time owns it and decides what runs, the others forward requests to it, and one of them takes over when it ends.
    #[arg(long, value_name = "FILE|ADDRESS")]
    store: Option<PathBuf>,

    /// Folder of this server's own files if the store is in PostgreSQL, if the configuration has none: one for each
    /// server. By default keylane in the user's data directory.
    #[arg(long, value_name = "FOLDER")]
    data_folder: Option<PathBuf>,

    /// Address at which the other servers of a database in --store reach this one, such as https://10.0.0.5:7420, if the configuration has
    /// none. By default the address at which it listens; if that is 0.0.0.0, the one from which it reaches the database.
    #[arg(long, value_name = "ADDRESS")]
    node_address: Option<NodeAddress>,

    /// Only validate the configuration and the programs that it names.
    #[arg(long)]
    check: bool,

    /// Only write a configuration with every setting and a comment to each, by default to keylane.toml.
    #[arg(
        long, value_name = "FILE", num_args = 0..=1, default_missing_value = "keylane.toml",
        conflicts_with_all = ["config", "kinds", "listen", "store", "data_folder", "node_address", "check"]
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
    let node_address = match (config.node_address()?, &args.node_address) {
        (None, given) => given.clone(),
        (configured, _) => configured,
    };
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
    let backups = config.backups()?;
    if store.is_database() && backups.is_some() {
        bail!(
            "backup_folder is for a store in a file; back up the database by its own means, such as pg_dump"
        );
    }
    let server = Start { source, serving, webhooks, traces, backups, store, node_address };
    log();
    config.warn();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let mut grace = Duration::from_secs(1);
    let ended = runtime.block_on(server.run(config, args.shutdown_timeout.0, &mut grace));
    // Running handlers are dropped here, and their processes end with them: otherwise some would
    // run until our exit, beside their next attempt. Blocking threads are not awaited any longer.
    runtime.shutdown_timeout(grace);
    ended
}

/// Runs `keylane serve --check`.
fn check_only(source: &ConfigSource, config: &config::Config) -> anyhow::Result<ExitOutcome> {
    let place = source.file.as_ref().map(|file| file.display().to_string());
    let place = place.unwrap_or_else(|| "the command line".to_owned());
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
