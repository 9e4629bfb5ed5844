//! Entry point of the command `keylane`; the engine is the crate `keylane`. Needs a Unix system,
//! for process groups and signals.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(all(feature = "consume", feature = "service")),
    allow(dead_code, unused_imports, reason = "a smaller build uses a part of the shared modules")
)]

mod calibrate;
mod cli;
#[cfg(feature = "service")]
mod client;
mod completions;
mod condition;
#[cfg(feature = "consume")]
mod consume;
mod duration_arg;
mod exit;
mod features;
mod format_args;
mod hints;
mod hot_keys;
#[cfg(any(feature = "consume", feature = "service"))]
mod http_client;
mod input;
mod key;
mod key_counts;
mod man_pages;
mod message;
mod number_arg;
mod output;
mod parallelism_arg;
mod path_part;
mod process;
mod progress;
mod rate_arg;
mod record_keys;
mod record_output;
mod renamed;
mod run;
mod run_stats;
#[cfg(feature = "service")]
mod serve;
mod shell_words;
mod signals;
mod simulate;
mod standard_streams;
mod svg;
mod template;
#[cfg(feature = "consume")]
mod verify;
mod worker;

use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::cli::{Cli, Command};
use crate::exit::ExitOutcome;

fn main() -> ExitCode {
    // Before anything else: as a guard, or as the first process of a container, this does something else.
    if let Some(code) = keylane_process::enter().or_else(keylane_process::enter_as_init) {
        return code;
    }
    match run() {
        Ok(code) => code,
        Err(error) => {
            // A write to a closed terminal fails, and must not change the exit code.
            let _ = writeln!(std::io::stderr(), "keylane: {error:#}");
            ExitOutcome::Error.into()
        }
    }
}

fn run() -> anyhow::Result<ExitCode> {
    signals::fail_beyond_file_size_limit()?;
    let words = cli::with_server_behind(std::env::args_os());
    let (words, warnings) = renamed::with_new_names(words)?;
    for warning in warnings {
        message::say(warning);
    }
    hints::refuse_separators(&words)?;
    let cli = match Cli::try_parse_from(&words) {
        Ok(cli) => cli,
        Err(mut refusal) => {
            hints::improve(&mut refusal, &words);
            return usage(&refusal);
        }
    };
    if !cli.command.works_without_stdout() {
        standard_streams::ensure_stdout_is_open()?;
    }
    match cli.command {
        Command::Run(args) => Ok(run::run(*args)?.into()),
        Command::Calibrate(args) => Ok(calibrate::run(&args)?.into()),
        Command::Simulate(args) => Ok(simulate::run(&args)?.into()),
        Command::Completions(args) => Ok(completions::run(&args, Cli::command())?.into()),
        Command::Man(args) => Ok(man_pages::run(&args, Cli::command())?.into()),
        #[cfg(feature = "consume")]
        Command::Verify(args) => Ok(verify::run(&args)?.into()),
        #[cfg(feature = "consume")]
        Command::Streams(command) => Ok(command.run()?.into()),
        #[cfg(feature = "service")]
        Command::Service(command) => Ok(command.run()?.into()),
        #[cfg(feature = "service")]
        Command::Client(command) => Ok(command.run()?.into()),
    }
}

/// Prints help if it was requested, else the error of the command line.
fn usage(refusal: &clap::Error) -> anyhow::Result<ExitCode> {
    if let Some(missing) = features::missing(refusal) {
        anyhow::bail!(missing);
    }
    // A failure to print cannot be reported anywhere.
    let _ = refusal.print();
    Ok(if refusal.use_stderr() { ExitOutcome::Error.into() } else { ExitCode::SUCCESS })
}
