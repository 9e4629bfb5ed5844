//! Command line of `keylane`: subcommands and options.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::thread;

use clap::{Args, Parser, Subcommand};

use crate::calibrate::CalibrateArgs;
use crate::duration_arg::DurationArg;
use crate::input::InputFormat;
use crate::key::NoKey;
use crate::progress::ProgressMode;
use crate::simulate::SimulateArgs;

/// Runs everything in parallel, except what must stay in order.
#[derive(Debug, Parser)]
#[command(name = "keylane", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of the client commands that are also accepted before the subcommand. Each has a value.
const BEFORE_SUBCOMMAND: [&str; 2] = ["--server", "--token-file"];

/// Moves those options behind the subcommand, where each client command defines them.
pub(crate) fn with_server_behind(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<_> = words.collect();
    let mut next = 1;
    while let Some(word) = words.get(next).and_then(|word| word.to_str()) {
        let has_value =
            |name: &str| word.strip_prefix(name).is_some_and(|rest| rest.starts_with('='));
        if BEFORE_SUBCOMMAND.contains(&word) {
            next += 2;
        } else if BEFORE_SUBCOMMAND.into_iter().any(has_value) {
            next += 1;
        } else {
            break;
        }
    }
    if next == 1 || next >= words.len() {
        return words;
    }
    let moved: Vec<_> = words.drain(1..next).collect();
    let at = words.iter().position(|word| word == "--").unwrap_or(words.len());
    words.splice(at..at, moved);
    words
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(RunArgs),
    Calibrate(CalibrateArgs),
    Simulate(SimulateArgs),
    #[cfg(feature = "consume")]
    Verify(crate::verify::VerifyArgs),
    #[cfg(feature = "consume")]
    #[command(flatten)]
    Streams(crate::consume::ConsumeCommand),
    #[cfg(feature = "service")]
    #[command(flatten)]
    Service(crate::serve::ServeCommand),
    #[cfg(feature = "service")]
    #[command(flatten)]
    Client(crate::client::ClientCommand),
}

impl Command {
    /// Returns whether the command prints nothing that is needed: a server only announces its address.
    pub(crate) fn works_without_stdout(&self) -> bool {
        match self {
            #[cfg(feature = "service")]
            Self::Service(crate::serve::ServeCommand::Serve(_)) => true,
            _ => false,
        }
    }
}

/// Runs a command for every record, in parallel across keys and in order within one.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct RunArgs {
    /// Number of commands that run at the same time: a number, or a percentage of the CPUs.
    #[arg(short, long, value_name = "N|N%", default_value = "100%")]
    pub(crate) jobs: ParallelismArg,

    #[command(flatten)]
    format: FormatArgs,

    /// The first line of the table has the columns' names.
    #[arg(long)]
    pub(crate) header: bool,

    /// Ordering key: a column's name or number, a .json.path, a /regex/, or a {template}.
    #[arg(long, value_name = "KEY")]
    pub(crate) key: String,

    /// Handling of records without a key.
    #[arg(long, value_enum, default_value = "unordered", value_name = "POLICY")]
    pub(crate) no_key: NoKey,

    /// A value that means "no key"; can be given several times.
    #[arg(long, value_name = "VALUE")]
    pub(crate) null_value: Vec<OsString>,

    /// Maximum number of records read ahead of the commands.
    #[arg(long, value_name = "N", default_value = "10000", value_parser = crate::number_arg::at_least_one)]
    pub(crate) buffer: NonZeroUsize,

    /// Start the command once per slot and give it records as lines on its
    /// standard input; it answers each with one line on its standard output.
    #[arg(long)]
    pub(crate) worker: bool,

    /// The line that a worker gets for a record.
    #[arg(long, value_name = "TEMPLATE", requires = "worker")]
    pub(crate) worker_line: Option<OsString>,

    /// Timeout of a worker's answer to a record; then the worker is ended and the record has
    /// failed.
    #[arg(long, value_name = "TIME", requires = "worker")]
    pub(crate) worker_timeout: Option<DurationArg>,

    /// Where a trace of the run goes: which record ran when and in which slot, for Perfetto and other
    /// viewers of the Trace Event Format.
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,

    /// File for a line of JSON per record that ran: place, key, times and exit status. `keylane verify` reads it.
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,

    /// Progress on standard error.
    #[arg(long, value_enum, default_value = "auto", value_name = "HOW")]
    pub(crate) progress: ProgressMode,

    /// Input file; standard input if absent or -.
    pub(crate) file: Option<PathBuf>,

    /// The command and its arguments; {} is the record, {name} a field, {key}
    /// the key, {#} the record's number. Without any of them, the record is
    /// the last argument. No shell is involved.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
#[group(multiple = false)]
struct FormatArgs {
    /// Every line is a record (this is the default).
    #[arg(long)]
    lines: bool,
    /// Records are rows of comma-separated values, quoted as RFC 4180 says.
    #[arg(long)]
    csv: bool,
    /// Records are rows of tab-separated values, without quotes.
    #[arg(long)]
    tsv: bool,
    /// Every line that is not blank is a JSON value.
    #[arg(long)]
    ndjson: bool,
}

const AFTER_HELP: &str = "\
Exit code: 0; 1 to 100 for that many failed records; 101 for more; 255 for wrong \
usage or input; 128 and the signal's number if a signal ended the run.

Commands see the key in KEYLANE_KEY and the record's number in KEYLANE_SEQ. \
Interrupt once to let the running commands finish, twice to end them.";

impl RunArgs {
    pub(crate) fn format(&self) -> InputFormat {
        match &self.format {
            FormatArgs { csv: true, .. } => InputFormat::Csv,
            FormatArgs { tsv: true, .. } => InputFormat::Tsv,
            FormatArgs { ndjson: true, .. } => InputFormat::Ndjson,
            _ => InputFormat::Lines,
        }
    }
}

/// A number of parallel commands, never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParallelismArg {
    Count(NonZeroUsize),
    PercentOfCpus(NonZeroUsize),
}

/// Beyond this, memory for stacks and the kernel's process limit come first.
const MAX_JOBS: usize = 10_000;

impl ParallelismArg {
    pub(crate) fn count(self) -> usize {
        let wanted = match self {
            Self::Count(count) => count.get(),
            Self::PercentOfCpus(percent) => {
                let cpus = thread::available_parallelism().map_or(1, NonZeroUsize::get);
                cpus.saturating_mul(percent.get()) / 100
            }
        };
        wanted.clamp(1, MAX_JOBS)
    }
}

impl std::str::FromStr for ParallelismArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (digits, percent) = match text.strip_suffix('%') {
            Some(digits) => (digits, true),
            None => (text, false),
        };
        let remedy = "give a number from 1 on like 8, or a percentage of the CPUs like 200%";
        let count: NonZeroUsize = digits.parse().map_err(|_| remedy.to_owned())?;
        if !percent && count.get() > MAX_JOBS {
            return Err(format!("at most {MAX_JOBS} are possible"));
        }
        Ok(if percent { Self::PercentOfCpus(count) } else { Self::Count(count) })
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn jobs_are_a_number_or_a_percentage_and_never_zero() {
        let jobs = |text: &str| text.parse::<ParallelismArg>().map(ParallelismArg::count);
        assert_eq!(jobs("3"), Ok(3));
        assert!(jobs("1%").unwrap() >= 1);
        assert!(jobs("200%").unwrap() >= 2);
        assert!(["0", "0%", "-1", "x", "", "1.5", "10001"].iter().all(|text| jobs(text).is_err()));
    }

    #[test]
    fn options_of_clients_may_stand_before_the_subcommand() {
        let moved = |words: &str| {
            let words = words.split(' ').map(OsString::from);
            let all = with_server_behind(words).into_iter().map(|word| word.into_string().unwrap());
            all.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(moved("k --server u keys pause a"), "k keys pause a --server u");
        assert_eq!(
            moved("k --server=u --token-file f status -- x"),
            "k status --server=u --token-file f -- x"
        );
        for same in ["k keys --server u", "k --servers u keys", "k --server", "k run -- --server u"]
        {
            assert_eq!(moved(same), same);
        }
    }
}
