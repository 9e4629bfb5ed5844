//! Commands for streams: `keylane consume` handles the records of a topic, a journal, a file or a
//! pipe, by a command or a service, and stores its progress; `keylane produce`, `keylane lag` and
//! `keylane config` support it.
//!
//! ```text
//! settings ─▶ plan ─▶ compose ─▶ consumer (keylane-stream)
//! (options,   (checked,           │      ▲
//!  TOML)       defaults)          ▼      │
//!                              handle   endpoint, lag
//! ```

mod batches;
mod compose;
mod config;
mod endpoint;
mod environment;
mod handle;
mod journals;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(not(feature = "kafka"))]
#[path = "no_kafka.rs"]
mod kafka;
mod keys;
mod lag;
mod log;
mod metadata;
mod outputs;
mod plan;
mod produce;
mod settings;
mod view;
mod workers;

use clap::Subcommand;

use crate::exit::Ending;

/// The subcommands about streams of records.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Consume(Box<compose::ConsumeArgs>),
    Produce(produce::ProduceArgs),
    Lag(lag::LagArgs),
    Config(config::ConfigArgs),
}

impl Command {
    pub(crate) fn run(self) -> anyhow::Result<Ending> {
        match self {
            Command::Consume(args) => compose::run(*args),
            Command::Produce(args) => produce::run(args),
            Command::Lag(args) => lag::run(&args),
            Command::Config(args) => config::run(&args),
        }
    }
}
