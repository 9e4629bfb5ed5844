//! `keylane serve`: the task service as a process. It starts, says where it listens, and stops well.

mod config;
mod store;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use keylane_process::Guard;
use keylane_service::Service;
use keylane_service::http::{Server, Settings};
use signal_hook::consts::{SIGINT, SIGTERM};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::consume::Span;
use crate::exit::Ending;
pub(crate) use store::{StoreArgs, run as store};

/// Accepts jobs over HTTP and WebSocket, keeps them on the disk, and runs them: in order per key, shared
/// fairly.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct ServeArgs {
    /// The configuration: kinds of jobs, and the server's settings.
    #[arg(long, short, value_name = "FILE")]
    config: PathBuf,

    /// Where the jobs are kept, if the configuration does not say.
    #[arg(long, value_name = "FILE", default_value = "keylane.db")]
    store: PathBuf,

    /// Only read the configuration, and say what is wrong with it.
    #[arg(long)]
    check: bool,

    /// How long a stop waits for what runs.
    #[arg(long, value_name = "TIME", default_value = "30s")]
    stop_within: Span,
}

const AFTER_HELP: &str = "\
The first SIGTERM or SIGINT stops accepting and begins nothing more; what runs may end, within the time of
--stop-within. The second ends it at once; nothing that was acknowledged is lost by that.

Example of a configuration:

  [kinds.hello]
  command = [\"cat\"]

  curl localhost:7420/v1/jobs --json '{\"kind\":\"hello\",\"key\":\"ann\",\"payload\":{\"n\":1}}'

docs/serve.md has every setting.";

/// Runs `keylane serve`.
pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<Ending> {
    let config = config::Config::read(&args.config)?;
    let kinds = config.kinds()?;
    let serving = config.serving()?;
    if args.check {
        println!("{}: all is well", args.config.display());
        return Ok(Ending::Finished { failed: 0 });
    }
    log();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let mut builder = Service::builder(config.settings(&args.store)).guard(Guard::ThisProgram);
    for (name, kind) in kinds {
        builder = builder.kind(name, kind);
    }
    let ending = runtime.block_on(async {
        let mut stops = Stops::watch()?;
        let service = builder.start().await.context("cannot start the service")?;
        let server = Server::start(&service, serving.clone()).await?;
        say(&server, &serving);
        let signal = stops.next().await;
        // Before anybody is told so: what ends because of what we say must not make room for another.
        service.drain();
        eprintln!("keylane: stopping; again to stop at once");
        tokio::select! {
            () = stop(server, service, args.stop_within.0) => {}
            _ = stops.next() => eprintln!("keylane: stopped at once; what ran is tried again"),
        }
        Ok::<_, anyhow::Error>(match signal {
            // Asked to stop, it has.
            SIGTERM => Ending::Finished { failed: 0 },
            signal => Ending::Signalled { signal },
        })
    });
    // What runs is dropped here, and its processes end with it: left to the end of our own, some would go on
    // beside their next attempt. What blocks in a thread is not waited for any longer.
    runtime.shutdown_timeout(Duration::from_secs(1));
    ending
}

/// Both in one time: what the server's connections took of it, the service no longer has.
async fn stop(server: Server, service: Service, within: Duration) {
    let begun = Instant::now();
    server.stop(within).await;
    service.stop(within.saturating_sub(begun.elapsed())).await;
}

fn say(server: &Server, settings: &Settings) {
    let scheme = if settings.tls.is_some() { "https" } else { "http" };
    println!("keylane: listening on {scheme}://{}", server.address());
    // Whoever started it may read that by a pipe.
    let _ = std::io::Write::flush(&mut std::io::stdout());
}

/// Messages for people go to standard error; `KEYLANE_LOG` chooses how many.
fn log() {
    let level = match std::env::var("KEYLANE_LOG").as_deref() {
        Ok("error") => tracing::Level::ERROR,
        Ok("info") => tracing::Level::INFO,
        Ok("debug") => tracing::Level::DEBUG,
        Ok("trace") => tracing::Level::TRACE,
        _ => tracing::Level::WARN,
    };
    let plain = tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(level);
    // Tests in one process share it.
    let _ = plain.with_ansi(false).try_init();
}

/// The signals that ask for an end.
struct Stops {
    interrupts: Signal,
    terminations: Signal,
}

impl Stops {
    fn watch() -> anyhow::Result<Self> {
        let watch = |kind| signal(kind).context("cannot watch for signals");
        Ok(Stops {
            interrupts: watch(SignalKind::interrupt())?,
            terminations: watch(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) -> i32 {
        tokio::select! {
            _ = self.interrupts.recv() => SIGINT,
            _ = self.terminations.recv() => SIGTERM,
        }
    }
}

/// Where the store is, for commands that need no kinds.
fn store_of(config: Option<&Path>, store: &Path) -> anyhow::Result<PathBuf> {
    Ok(match config {
        Some(config) => config::Config::read(config)?.settings(store).path,
        None => store.to_owned(),
    })
}
