//! Keylane runs everything in parallel, except what must stay in order.
//!
//! This is the command; the engine is the crate `keylane`. It needs a Unix
//! system, for process groups and signals.

#![forbid(unsafe_code)]

mod calibrate;
mod cli;
mod consume;
mod exit;
mod input;
mod key;
mod ledger;
mod output;
mod process;
mod progress;
mod run;
mod signals;
mod simulate;
mod svg;
mod template;
mod worker;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};
use crate::exit::Ending;

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("keylane: {error:#}");
            Ending::Error.into()
        }
    }
}

fn run() -> anyhow::Result<ExitCode> {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(refusal) => return usage(&refusal),
    };
    match cli.command {
        Command::Run(args) => Ok(run::run(args)?.into()),
        Command::Calibrate(args) => Ok(calibrate::run(&args)?.into()),
        Command::Simulate(args) => Ok(simulate::run(&args)?.into()),
        Command::Consume(args) => Ok(consume::run(*args)?.into()),
        Command::Produce(args) => Ok(consume::produce(args)?.into()),
        Command::Lag(args) => Ok(consume::lag(&args)?.into()),
        Command::Config(args) => Ok(consume::config(&args)?.into()),
    }
}

/// Prints help where it was asked for, or what is wrong with the words given.
fn usage(refusal: &clap::Error) -> anyhow::Result<ExitCode> {
    // Nobody can be told that the output is gone.
    let _ = refusal.print();
    Ok(if refusal.use_stderr() { Ending::Error.into() } else { ExitCode::SUCCESS })
}
