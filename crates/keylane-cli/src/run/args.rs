//! Options of `keylane run`.

use std::ffi::OsString;
use std::num::NonZeroU16;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use anyhow::ensure;
use clap::{Args, ValueEnum};
use keylane::Rate;

use crate::duration_arg::DurationArg;
use crate::key::NoKey;
use crate::parallelism_arg::ParallelismArg;
use crate::progress::ProgressMode;
use crate::rate_arg::RateArg;
use crate::record_keys::KeySelection;
use crate::worker::{WorkerKeys, WorkerKeysArg};

use super::batch_args::BatchArgs;
use super::input_args::InputArgs;
use super::log_args::LogArgs;
use super::output_args::OutputArgs;
use super::preview_args::PreviewArgs;

/// Runs a command for every record, in parallel across keys and in order within one.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct RunArgs {
    /// Number of commands that run at the same time: a number, a percentage of the CPUs, +N or -N for
    /// more or fewer than the CPUs, 0 for as many as possible, or cores: one per physical core.
    #[arg(short, long, value_name = "N", default_value = "cores", allow_negative_numbers = true)]
    pub(crate) jobs: ParallelismArg,

    #[command(flatten)]
    pub(super) input: InputArgs,

    #[command(flatten)]
    pub(super) keys: KeyArgs,

    #[command(flatten)]
    pub(super) pace: PaceArgs,

    #[command(flatten)]
    pub(super) failures: FailureArgs,

    #[command(flatten)]
    pub(super) batch: BatchArgs,

    #[command(flatten)]
    pub(super) worker: WorkerArgs,

    #[command(flatten)]
    pub(super) output: OutputArgs,

    #[command(flatten)]
    pub(super) preview: PreviewArgs,

    /// Where a trace of the run goes: which record ran when and in which slot, for Perfetto and other
    /// viewers of the Trace Event Format.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) trace: Option<PathBuf>,

    #[command(flatten)]
    pub(super) logs: LogArgs,

    /// Progress on standard error.
    #[arg(long, value_enum, default_value = "auto", value_name = "HOW", help_heading = "Output")]
    pub(super) progress: ProgressMode,

    /// Input files, read one after the other; - is standard input, and the default. Files of gzip and
    /// zstd are decompressed.
    #[arg(value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,

    /// The command and its arguments; {} is the record, {name} a field, {key}
    /// the key, {#} the record's number, {%} the slot's. Without any of them, the
    /// record is the last argument. No shell is involved.
    #[arg(last = true, required_unless_present = "plan", value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Order")]
pub(super) struct KeyArgs {
    /// Ordering key: a column's name or number, a .json.path, a /regex/, or a {template}; .path[]
    /// means each element of an array. Repeated: a record that involves several keys waits for the
    /// earlier records of all of them.
    #[arg(long, value_name = "KEY", required_unless_present = "shared_key")]
    pub(super) key: Vec<String>,

    /// A key that the record only shares: records that share it may run together, but not beside a
    /// record with it as --key. Repeatable.
    #[arg(long, value_name = "KEY")]
    pub(super) shared_key: Vec<String>,

    /// Records that wait for all records before them, and hold up all behind them: those with this
    /// value in a field, or that match the expression.
    #[arg(long, value_name = "FIELD=VALUE|/REGEX/")]
    pub(super) barrier: Option<String>,

    /// Run up to N records of a key at the same time, in no particular order among them.
    #[arg(long, value_name = "N", conflicts_with = "latest")]
    pub(super) limit_per_key: Option<NonZeroU16>,

    /// A record replaces the one of its key that still waits: only the latest is worth the work.
    #[arg(long, conflicts_with_all = ["shared_key", "barrier"])]
    pub(super) latest: bool,

    /// Handling of records without a key.
    #[arg(long, value_enum, default_value = "unordered", value_name = "POLICY")]
    pub(super) no_key: NoKey,

    /// A value that means "no key"; can be given several times.
    #[arg(long, value_name = "VALUE")]
    pub(super) null_value: Vec<OsString>,
}

impl KeyArgs {
    /// Whether a record can have other claims than one key.
    pub(super) fn has_claims(&self) -> bool {
        let KeyArgs { key, shared_key, barrier, limit_per_key, .. } = self;
        let is_list = key.iter().any(|key| key.ends_with("[]"));
        key.len() > 1
            || is_list
            || !shared_key.is_empty()
            || barrier.is_some()
            || limit_per_key.is_some()
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Pace")]
pub(super) struct PaceArgs {
    /// Maximum number of records that start in a time, such as 100/s, 5/m or 1/10s.
    #[arg(long, value_name = "N/TIME")]
    pub(super) rate: Option<RateArg>,

    /// Maximum number of records of a key that start in a time.
    #[arg(long, value_name = "N/TIME")]
    pub(super) rate_per_key: Option<RateArg>,

    /// Least time between the starts of two commands.
    #[arg(long, value_name = "TIME")]
    pub(super) delay: Option<DurationArg>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Failures")]
pub(super) struct FailureArgs {
    /// Maximum number of attempts per record; 0 means unlimited. The later records of its key wait
    /// for the last attempt.
    #[arg(long, value_name = "N", default_value = "1")]
    pub(super) attempts: u32,

    /// The wait after the first failure. It doubles with each further one, and a part of it is left
    /// to chance.
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub(super) backoff: DurationArg,

    /// The longest wait between attempts.
    #[arg(long, value_name = "TIME", default_value = "1m")]
    pub(super) max_backoff: DurationArg,

    /// Timeout of a command: then it gets TERM, and KILL two seconds later, and the attempt has
    /// failed.
    #[arg(long, value_name = "TIME")]
    pub(super) timeout: Option<DurationArg>,

    /// Action after the last attempt of a record.
    #[arg(long, value_enum, default_value = "continue", value_name = "WHAT")]
    pub(super) on_fail: OnFail,

    /// Where dead letters go: file:PATH, a line of JSON each.
    #[arg(long, value_name = "WHERE")]
    pub(super) dead_letters: Option<String>,
}

impl PaceArgs {
    /// Rate of the starts of commands by `--delay`.
    pub(super) fn rate_of_delay(&self) -> Option<Rate> {
        let delay = self.delay.map(|delay| delay.0).filter(|delay| !delay.is_zero());
        delay.map(Rate::every)
    }

    /// Rate of the starts of all records: the slower one of `--rate` and `--delay`, both of which
    /// space starts evenly.
    pub(super) fn rate_of_all(&self) -> Option<Rate> {
        let rates = [self.rate.map(|rate| rate.0), self.rate_of_delay()];
        rates.into_iter().flatten().max_by_key(|rate| rate.interval())
    }
}

/// Action after the last attempt of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnFail {
    /// The record counts as failed, and its key goes on.
    Continue,
    /// The record counts as done, and its key goes on.
    Skip,
    /// The record counts as failed, and no later record of its keys runs.
    StopKey,
    /// The record counts as failed, and no other record starts.
    Stop,
    /// The record goes to the dead letters, and its key goes on.
    DeadLetter,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Workers")]
pub(super) struct WorkerArgs {
    /// Start the command once per slot and give it records as lines on its
    /// standard input; it answers each with one line on its standard output.
    #[arg(long)]
    pub(super) worker: bool,

    /// The line that a worker gets for a record.
    #[arg(long, value_name = "TEMPLATE", requires = "worker")]
    pub(super) worker_line: Option<OsString>,

    /// Timeout of a worker's answer to a record; then the worker is ended and the record has
    /// failed.
    #[arg(long, value_name = "TIME", requires = "worker")]
    pub(super) worker_timeout: Option<DurationArg>,

    #[command(flatten)]
    pub(super) placement: WorkerKeysArg,
}

const AFTER_HELP: &str = "\
Exit code: 0; 1 to 100 for that many failed records; 101 for more; 255 for wrong \
usage or input; 128 and the signal's number if a signal ended the run.

Commands see the key in KEYLANE_KEY, the record's number in KEYLANE_SEQ, the attempt's in KEYLANE_ATTEMPT and the \
slot's in KEYLANE_SLOT. With --batch, KEYLANE_SEQ is the number of the first record, KEYLANE_LAST_SEQ that of the last, \
and KEYLANE_COUNT the number of records. \
Exit status 65 means that a further attempt is useless. \
Interrupt once to let the running commands finish, twice to end them.";

impl KeyArgs {
    pub(super) fn selection(&self) -> KeySelection<'_> {
        let nulls = self.null_value.iter().map(|null| null.as_bytes().to_vec()).collect();
        let KeyArgs { key, shared_key, barrier, no_key, .. } = self;
        KeySelection { key, shared_key, barrier: barrier.as_deref(), nulls, no_key: *no_key }
    }
}

impl RunArgs {
    /// Refuses combinations of options that contradict each other.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        self.input.check()?;
        ensure!(
            !self.keys.latest || self.keys.key.len() == 1,
            "--latest is for records with one key; give --key once"
        );
        self.check_worker()?;
        self.check_batch()?;
        self.logs.check(self.worker.worker, self.output.keeps_order())?;
        self.output.check(self.worker.worker)?;
        let FailureArgs { on_fail, dead_letters, .. } = &self.failures;
        ensure!(
            *on_fail != OnFail::DeadLetter || dead_letters.is_some(),
            "--on-fail dead-letter needs a place for the dead letters; give --dead-letters file:PATH"
        );
        ensure!(
            dead_letters.is_none() || *on_fail == OnFail::DeadLetter,
            "--dead-letters is for --on-fail dead-letter; give that as well, or leave out --dead-letters"
        );
        Ok(())
    }

    /// Refuses options that batches do not have.
    fn check_batch(&self) -> anyhow::Result<()> {
        let KeyArgs { key, shared_key, barrier, limit_per_key, latest, .. } = &self.keys;
        let has_several = key.len() > 1 || key.iter().any(|key| key.ends_with("[]"));
        self.batch.check(&[
            (
                self.worker.worker,
                "--worker: a worker gets a line for each record; leave out one of them",
            ),
            (
                has_several,
                "several --key or with a list: a batch has records of one key; give --key once, or leave out --batch",
            ),
            (
                !shared_key.is_empty(),
                "--shared-key: a batch has its key for itself; leave out one of them",
            ),
            (
                barrier.is_some(),
                "--barrier: a batch has records of one key, and a barrier waits for those of all keys; leave out one \
                 of them",
            ),
            (
                limit_per_key.is_some(),
                "--limit-per-key: a batch has records of a key in their order; leave out one of them",
            ),
            (
                *latest,
                "--latest: a batch has all records of a key that wait; leave out one of them",
            ),
            (
                self.pace.rate_per_key.is_some(),
                "--rate-per-key: the records of a batch have one key and start at the same time; write --delay TIME \
                 for the time between two commands, or leave out --batch",
            ),
            (
                self.preview.plan,
                "--plan, which counts records that run one after another; leave out one of them",
            ),
        ])?;
        self.batch.check(&self.output.conflicts_with_batch())
    }

    /// Refuses options that workers do not have.
    fn check_worker(&self) -> anyhow::Result<()> {
        if !self.worker.worker {
            return Ok(());
        }
        ensure!(
            self.failures.timeout.is_none(),
            "--timeout is for commands, and a worker runs on; give --worker-timeout"
        );
        ensure!(
            self.keys.limit_per_key.is_none()
                || self.worker.placement.worker_keys == WorkerKeys::Any,
            "with --limit-per-key the records of a key run together, but a worker has one record at a \
             time and a key always has the same worker; add --worker-keys any"
        );
        Ok(())
    }
}
