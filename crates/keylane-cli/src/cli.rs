//! Command line of `keylane`: subcommands and options.

use std::ffi::OsString;

use clap::{Parser, Subcommand};

use crate::calibrate::CalibrateArgs;
use crate::completions::CompletionsArgs;
use crate::man_pages::ManArgs;
use crate::run::RunArgs;
use crate::simulate::SimulateArgs;

/// Runs everything in parallel, except what must stay in order.
#[derive(Debug, Parser)]
#[command(name = "keylane", version, long_version = crate::features::version(), arg_required_else_help = true)]
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
    Run(Box<RunArgs>),
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
    Completions(CompletionsArgs),
    Man(ManArgs),
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
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
