//! Arguments of `keylane simulate`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{ArgGroup, Args};

use super::time;

/// Shows the effect of the rules for jobs in virtual time, beside FIFO, round robin and SRPT.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
#[command(group(ArgGroup::new("jobs").required(true).args(["file", "random"])))]
pub(crate) struct SimulateArgs {
    /// The jobs: CSV with the columns name,arrival,subtasks,length and, if you like, weight, or the
    /// decisions that a pool has recorded; standard input for -.
    pub(super) file: Option<PathBuf>,

    /// Number of random jobs, instead of a file.
    #[arg(long, value_name = "JOBS", value_parser = jobs)]
    pub(super) random: Option<usize>,

    /// How busy random jobs keep the workers.
    #[arg(long, value_name = "N%", default_value = "80%", requires = "random", value_parser = load)]
    pub(super) load: f64,

    /// Seed of the random jobs; equal seeds give equal jobs.
    #[arg(long, value_name = "N", default_value = "1", requires = "random")]
    pub(super) seed: u64,

    /// Number of workers; by default 4, or the recorded number.
    #[arg(short, long, value_name = "N", value_parser = workers)]
    pub(super) workers: Option<usize>,

    /// Maximum number of active jobs under the four rules; by default the number of workers.
    #[arg(long, value_name = "N", value_parser = crate::number_arg::at_least_one)]
    pub(super) max_active: Option<NonZeroUsize>,

    /// Maximum time for which a job may be held at one worker, or at none for shorter ones; by
    /// default unlimited.
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub(super) max_hold: Option<u64>,

    /// Write the schedules as a drawing.
    #[arg(long, value_name = "FILE")]
    pub(super) svg: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
Times are seconds, or 1:30, or 1:00:00. The length of a job's subtasks is one time, or several with \
semicolons, which are used in turns. Nothing is really waited for.

The four rules serve jobs in the order of their arrival, as a pool does if nothing else is said. Balanced \
has two places, for the jobs with the fewest subtasks left, and one with fewer than six workers. Shortest \
first has one place.

SRPT always serves the job with the least work left, which only a simulation can know: it is the mark \
that the others are measured against.";

/// More workers than a machine has, and a drawing can show.
const MAX_WORKERS: usize = 4096;

fn workers(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=MAX_WORKERS).contains(count));
    count.ok_or_else(|| format!("give a number from 1 to {MAX_WORKERS}"))
}

fn jobs(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=1_000_000).contains(count));
    count.ok_or_else(|| "give a number from 1 to 1000000".to_owned())
}

fn load(text: &str) -> Result<f64, String> {
    let percent: Option<f64> = text.trim_end_matches('%').parse().ok();
    let load = percent.map(|percent| percent / 100.0).filter(|load| (0.01..=1.5).contains(load));
    load.ok_or_else(|| "give a percentage from 1% to 150%".to_owned())
}
