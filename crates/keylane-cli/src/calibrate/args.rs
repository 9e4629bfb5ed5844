//! Arguments of `keylane calibrate`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

/// Measures how this machine gets on with more and more workers, and recommends a number.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct CalibrateArgs {
    /// Workload of the workers; a custom command is measured alone.
    #[arg(
        long,
        value_enum,
        default_value = "both",
        value_name = "WHAT",
        conflicts_with = "command"
    )]
    pub(super) workload: WorkloadArg,

    /// Duration of the measurement of each number of workers.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub(super) seconds: Duration,

    /// Maximum number of workers to measure; twice the number of logical CPUs by default.
    #[arg(long, value_name = "N", value_parser = most)]
    pub(super) max_workers: Option<usize>,

    /// Maximum delay of a light task beside the workers, at its 99th percentile, in milliseconds.
    #[arg(long, value_name = "MS", default_value = "10", value_parser = millis)]
    pub(super) latency: f64,

    /// Write the measurements as a CSV table to this file.
    #[arg(long, value_name = "FILE")]
    pub(super) csv: Option<PathBuf>,

    /// Write the measurements as a drawing to this file.
    #[arg(long, value_name = "FILE")]
    pub(super) svg: Option<PathBuf>,

    /// A command to measure, and its arguments. Each worker runs it again and again, without input,
    /// and its output is thrown away.
    #[arg(last = true, value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum WorkloadArg {
    /// Arithmetic that stays in the processor.
    Cpu,
    /// Reading more memory than the caches hold.
    Memory,
    /// Both, one after the other.
    Both,
}

const AFTER_HELP: &str = "\
Let nothing else run meanwhile: whatever does is part of what is measured. A longer --seconds gives \
steadier figures.";

/// Maximum number of workers: more threads tell no more about a machine.
const MAX_WORKERS: usize = 4096;

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: Option<f64> = text.parse().ok().filter(|s| (0.001..=3600.0).contains(s));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "give seconds, from 0.001 to 3600".to_owned())
}

fn most(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=MAX_WORKERS).contains(count));
    count.ok_or_else(|| format!("give a number from 1 to {MAX_WORKERS}"))
}

fn millis(text: &str) -> Result<f64, String> {
    let millis = text.parse().ok().filter(|millis| (0.01..=60_000.0).contains(millis));
    millis.ok_or_else(|| "give milliseconds, from 0.01 to 60000".to_owned())
}
