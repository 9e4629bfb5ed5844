//! `keylane completions`: a script with which a shell completes all subcommands and options.

use clap::Args;
use clap_complete::Shell;

use crate::exit::ExitOutcome;
use crate::standard_streams::print;

/// Prints a script that lets a shell complete subcommands and options.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

const AFTER_HELP: &str = "\
bash: keylane completions bash > ~/.local/share/bash-completion/completions/keylane
zsh:  keylane completions zsh > FOLDER/_keylane, with a FOLDER of $fpath
fish: keylane completions fish > ~/.config/fish/completions/keylane.fish";

/// Runs `keylane completions`. `keylane` is the whole command.
pub(crate) fn run(
    args: &CompletionsArgs,
    mut keylane: clap::Command,
) -> anyhow::Result<ExitOutcome> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut keylane, "keylane", &mut script);
    print(&script)
}
