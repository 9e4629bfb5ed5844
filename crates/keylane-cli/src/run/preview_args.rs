//! Options of `keylane run` that show what a run would do, and run nothing.

use std::num::NonZeroU64;

use clap::Args;

use crate::duration_arg::DurationArg;

#[derive(Debug, Args)]
#[command(next_help_heading = "Preview")]
pub(super) struct PreviewArgs {
    /// Read the input and print how far it can run in parallel: the longest chain of records that must run one after
    /// another, the largest useful -j, the least time, and the hottest keys. Runs nothing.
    #[arg(long)]
    pub(super) plan: bool,

    /// Print the command of each record as a shell would read it, in the order of the input; with --worker, its line.
    /// Runs nothing.
    #[arg(long, conflicts_with = "plan")]
    pub(super) dry_run: bool,

    /// Time that a record takes, for the least time of the plan.
    #[arg(long, value_name = "TIME", requires = "plan")]
    pub(super) plan_duration: Option<DurationArg>,

    /// Maximum number of records read for the plan.
    #[arg(long, value_name = "N", requires = "plan")]
    pub(super) plan_sample: Option<NonZeroU64>,
}
