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
mod config;
mod control_endpoints;
mod control_target;
mod environment;
mod file_sources;
mod forced_end;
mod format_settings;
mod handlers;
mod invalid_settings;
mod journals;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(not(feature = "kafka"))]
#[path = "no_kafka.rs"]
mod kafka;
mod key_settings;
mod keys;
mod lag;
mod letters;
mod listen_token;
mod log;
mod metadata;
mod one_or_several;
mod output_records;
mod pace_settings;
mod payloads;
mod produce;
mod responses;
mod run;
mod settings;
mod source_settings;
mod status;
mod status_endpoints;
mod table_rows;
mod topics;
mod validated;
mod worker_processes;

use clap::Subcommand;

use crate::exit::ExitOutcome;

/// The subcommands about streams of records.
#[derive(Debug, Subcommand)]
pub(crate) enum ConsumeCommand {
    Consume(Box<run::ConsumeArgs>),
    Produce(produce::ProduceArgs),
    Lag(lag::LagArgs),
    Config(config::ConfigArgs),
}

impl ConsumeCommand {
    pub(crate) fn run(self) -> anyhow::Result<ExitOutcome> {
        match self {
            ConsumeCommand::Consume(args) => run::run(*args),
            ConsumeCommand::Produce(args) => produce::run(args),
            ConsumeCommand::Lag(args) => lag::run(&args),
            ConsumeCommand::Config(args) => config::run(&args),
        }
    }
}
