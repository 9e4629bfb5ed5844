//! `keylane consume`: handles the records of a topic, a journal, a file or a pipe, by a command or a service, and
//! keeps what is done; with `keylane produce`, `keylane lag` and `keylane config` around it.
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

pub(crate) use compose::{ConsumeArgs, run};
pub(crate) use config::{ConfigArgs, run as config};
pub(crate) use lag::{LagArgs, run as lag};
pub(crate) use produce::{ProduceArgs, run as produce};
pub(crate) use settings::Span;
