//! `keylane man`: manual pages of the command and all its subcommands.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use clap_mangen::Man;

use crate::exit::ExitOutcome;
use crate::standard_streams::print;

/// Writes manual pages of keylane and all its subcommands.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct ManArgs {
    /// Folder for the pages, keylane.1, keylane-run.1 and so on; it is created. Without it, the page of keylane alone
    /// goes to standard output.
    folder: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
keylane man ~/.local/share/man/man1 installs the pages for one user: then `man keylane-run` shows one.";

/// Runs `keylane man`. `keylane` is the whole command.
pub(crate) fn run(args: &ManArgs, keylane: clap::Command) -> anyhow::Result<ExitOutcome> {
    let mut keylane = without_help(keylane);
    // Names such as `keylane-run`, which the pages have, come with that.
    keylane.build();
    let Some(folder) = &args.folder else {
        return print(&page(&keylane)?);
    };
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot create the folder {}", folder.display()))?;
    write_pages(&keylane, folder)?;
    Ok(ExitOutcome::Finished { failed: 0 })
}

/// Leaves out the subcommand `help`, of which there is no page.
fn without_help(command: clap::Command) -> clap::Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}

/// Writes the page of a command, and those of its subcommands.
fn write_pages(command: &clap::Command, folder: &Path) -> anyhow::Result<()> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    let path = folder.join(format!("{name}.1"));
    fs::write(&path, page(command)?).with_context(|| {
        format!("cannot write {}; choose a folder that you may write to", path.display())
    })?;
    let shown = |inner: &&clap::Command| !inner.is_hide_set();
    command.get_subcommands().filter(shown).try_for_each(|inner| write_pages(inner, folder))
}

fn page(command: &clap::Command) -> anyhow::Result<Vec<u8>> {
    let mut text = Vec::new();
    Man::new(command.clone()).render(&mut text)?;
    Ok(text)
}
