//! `keylane top`: live view of a server: jobs, running slots, and the oldest waiting keys.
//!
//! ```text
//! picture ─▶ state ─▶ view, text
//! (asked      (what is   (drawn on a terminal,
//!  each        shown,     or printed once)
//!  second)     keys)
//! ```

mod snapshot;
mod state;
mod terminal;
mod text;
mod view;

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use clap::Args;

use super::error::settle;
use super::options::{AFTER_HELP, ServerArgs};
use super::server_client::{ServerClient, block_on};
use crate::duration_arg::DurationArg;
use crate::exit::ExitOutcome;
use snapshot::ServerSnapshot;

/// Shows a live view of a server: jobs, slots, and the oldest waiting keys.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct TopArgs {
    /// Interval of updates.
    #[arg(long, value_name = "TIME", default_value = "1s")]
    interval: DurationArg,

    /// Print how it is once, and end: so also where the output is no terminal.
    #[arg(long)]
    once: bool,

    #[command(flatten)]
    server: ServerArgs,
}

/// Minimum interval of updates, which bounds the load on the server.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// Runs `keylane top`.
pub(crate) fn run(args: &TopArgs) -> anyhow::Result<ExitOutcome> {
    settle(ServerClient::new(&args.server).and_then(|server| {
        if args.once || !io::stdout().is_terminal() {
            let picture = block_on(ServerSnapshot::take(&server))?;
            io::stdout().lock().write_all(text::snapshot(&picture).as_bytes())?;
            return Ok(ExitOutcome::Finished { failed: 0 });
        }
        block_on(terminal::run(server, args.interval.0.max(MIN_INTERVAL)))
    }))
}
