//! `keylane logs`: logs of the attempts at a subtask, in order.

use std::fmt::Write as _;
use std::io::{self, Write};

use clap::Args;
use keylane_service::wire::{AttemptLog, Page};
use serde_json::value::RawValue;

use super::error::{say, settle};
use super::options::{AFTER_HELP, ServerArgs};
use super::render::{one_line, plain};
use super::server_client::{ServerClient, block_on};
use crate::exit::ExitOutcome;

/// Prints the logs of the attempts at a subtask, such as the standard error of commands.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct LogsArgs {
    /// The job.
    #[arg(value_name = "ID")]
    id: String,

    /// Number of the subtask, or split or fan-in for those steps.
    #[arg(value_name = "NUMBER", default_value = "0")]
    number: String,

    /// Print JSON, a line for each attempt.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerArgs,
}

/// Runs `keylane logs`.
pub(crate) fn run(args: &LogsArgs) -> anyhow::Result<ExitOutcome> {
    settle(print(args).map(|()| ExitOutcome::Finished { failed: 0 }))
}

fn print(args: &LogsArgs) -> anyhow::Result<()> {
    let server = ServerClient::new(&args.server)?;
    let path = ["v1", "jobs", &args.id, "subtasks", &args.number, "logs"];
    let page: Page<Box<RawValue>> = block_on(server.read(&path, &[]))?;
    let mut text = Vec::new();
    for log in &page.items {
        if args.json {
            text.extend(one_line(log.get().as_bytes()));
            text.push(b'\n');
        } else {
            text.extend(as_text(&serde_json::from_str(log.get())?).into_bytes());
        }
    }
    io::stdout().lock().write_all(&text)?;
    if page.items.is_empty() && !args.json {
        say("no attempt at the subtask has a log");
    }
    Ok(())
}

/// An attempt, and its lines.
fn as_text(log: &AttemptLog) -> String {
    let at = log.ended_at.unwrap_or(log.started_at);
    let mut text = format!("==> attempt {}, {}, {at} <==\n", log.attempt, log.state.as_str());
    if log.left_out_bytes > 0 {
        let _ = writeln!(text, "[{} bytes left out]", log.left_out_bytes);
    }
    for line in log.text.lines() {
        // A tab is harmless on a terminal.
        let parts: Vec<_> = line.split('\t').map(plain).collect();
        text.push_str(&parts.join("\t"));
        text.push('\n');
    }
    text
}
