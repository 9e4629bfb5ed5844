//! Options of `keylane run` about its logs, and about the runs that continue from one.

use std::path::PathBuf;

use anyhow::ensure;
use clap::Args;

/// Logs of a run, and what a run takes from the log of an earlier one.
#[derive(Debug, Args)]
#[command(next_help_heading = "Logs")]
pub(super) struct LogArgs {
    /// File for a line of JSON per attempt that ended: place, hash, key, times, exit status and
    /// result. `keylane verify` reads it, and --resume continues from it.
    #[arg(long, value_name = "FILE")]
    pub(super) log: Option<PathBuf>,

    /// File for a line per command that ended, in the format of GNU parallel's job log.
    #[arg(long, value_name = "FILE")]
    pub(super) joblog: Option<PathBuf>,

    /// Continue the run that wrote the file of --log: records that have ended there do not run
    /// again.
    #[arg(long, conflicts_with_all = ["dry_run", "plan"])]
    pub(super) resume: bool,

    /// Run the records again that failed in the run that wrote the file of --log. With --resume, its
    /// unfinished records run as well.
    #[arg(long, conflicts_with_all = ["dry_run", "plan"])]
    pub(super) retry_failed: bool,
}

impl LogArgs {
    /// The option that continues an earlier run, if one is given.
    pub(super) fn continues(&self) -> Option<&'static str> {
        match (self.resume, self.retry_failed) {
            (true, _) => Some("--resume"),
            (false, true) => Some("--retry-failed"),
            (false, false) => None,
        }
    }

    /// Refuses combinations of options that contradict each other.
    pub(super) fn check(&self, is_worker: bool, keeps_order: bool) -> anyhow::Result<()> {
        if let Some(option) = self.continues() {
            ensure!(
                self.log.is_some(),
                "{option} needs the log of the run to continue; give its file with --log FILE"
            );
            ensure!(
                !keeps_order,
                "{option} cannot be used with --keep-order (-k): output that waits for its turn is lost if a run is \
                 killed, and its record has ended in the log; use --results DIR, which has the output of each record"
            );
        }
        ensure!(
            self.joblog.is_none() || !is_worker,
            "--joblog has a line per command, and a worker handles many records; use --log FILE"
        );
        Ok(())
    }
}
