//! Options of `keylane run` about batches: several records of a key for one command.

use std::num::NonZeroUsize;
use std::time::Duration;

use anyhow::ensure;
use clap::Args;

use crate::duration_arg::DurationArg;

use super::waiting_batches::WaitingBatches;

/// Linger time without the option, as that of `keylane consume`.
const LINGER: Duration = Duration::from_millis(5);

#[derive(Debug, Args)]
#[command(next_help_heading = "Batches")]
pub(super) struct BatchArgs {
    /// Run the command for up to N records of a key at once: it gets them as lines on its standard input, in
    /// order. All of them succeed or fail together.
    #[arg(long, value_name = "N", value_parser = crate::number_arg::at_least_one)]
    batch: Option<NonZeroUsize>,

    /// Time for which the first record of a batch waits for others: 5ms by default.
    #[arg(long, value_name = "TIME", requires = "batch")]
    linger: Option<DurationArg>,
}

/// An option that a run has, and the reason why batches cannot be combined with it.
pub(super) type BatchConflict = (bool, &'static str);

impl BatchArgs {
    /// Whether a command gets several records.
    pub(super) fn is_on(&self) -> bool {
        self.batch.is_some()
    }

    /// Maximum number of records of a batch, at least 1.
    pub(super) fn max_records(&self) -> Option<NonZeroUsize> {
        self.batch
    }

    /// Returns the batches of a run, without a record.
    pub(super) fn batches<R>(&self) -> Option<WaitingBatches<R>> {
        let linger = self.linger.map_or(LINGER, |linger| linger.0);
        self.batch.map(|max_records| WaitingBatches::new(max_records.get(), linger))
    }

    /// Returns the batches of a dry run, which linger until they are full.
    pub(super) fn preview<R>(&self) -> Option<WaitingBatches<R>> {
        self.batch.map(|max_records| WaitingBatches::new(max_records.get(), Duration::MAX))
    }

    /// Refuses the options that are given and that batches do not have.
    pub(super) fn check(&self, conflicts: &[BatchConflict]) -> anyhow::Result<()> {
        let refused = conflicts.iter().find(|(is_given, _)| self.is_on() && *is_given);
        ensure!(refused.is_none(), "--batch cannot be used with {}", refused.map_or("", |it| it.1));
        Ok(())
    }
}
