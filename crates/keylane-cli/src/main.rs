//! Keylane runs everything in parallel, except what must stay in order.
//!
//! This is the command; the engine is the crate `keylane`. It needs a Unix
//! system, for process groups and signals.

#![forbid(unsafe_code)]

mod calibrate;
mod cli;
mod client;
mod consume;
mod exit;
mod input;
mod key;
mod ledger;
mod output;
mod process;
mod progress;
mod run;
mod serve;
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
    // Before anything else: as a guard, or as the first process of a container, this does something else.
    if let Some(code) = keylane_process::enter().or_else(keylane_process::enter_as_init) {
        return code;
    }
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
        Command::Serve(args) => Ok(serve::run(&args)?.into()),
        Command::Store(args) => Ok(serve::store(&args)?.into()),
        Command::Submit(args) => Ok(client::submit(&args)?.into()),
        Command::Status(args) => Ok(client::status(&args)?.into()),
        Command::Watch(args) => Ok(client::watch(&args)?.into()),
        Command::Results(args) => Ok(client::results(&args)?.into()),
        Command::Logs(args) => Ok(client::logs(&args)?.into()),
        Command::Cancel(args) => Ok(client::cancel(&args)?.into()),
        Command::Pause(args) => Ok(client::pause(&args)?.into()),
        Command::Resume(args) => Ok(client::resume(&args)?.into()),
        Command::Retry(args) => Ok(client::retry(&args)?.into()),
        Command::Keys(args) => Ok(client::keys(&args)?.into()),
        Command::Schedules(args) => Ok(client::schedules(&args)?.into()),
        Command::Audit(args) => Ok(client::audit(&args)?.into()),
        Command::Top(args) => Ok(client::top(&args)?.into()),
    }
}

/// Prints help where it was asked for, or what is wrong with the words given.
fn usage(refusal: &clap::Error) -> anyhow::Result<ExitCode> {
    // Nobody can be told that the output is gone.
    let _ = refusal.print();
    Ok(if refusal.use_stderr() { Ending::Error.into() } else { ExitCode::SUCCESS })
}
