//! Options of `keylane run` about its input.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::{anyhow, ensure};
use clap::Args;

use crate::format_args::FormatArgs;
use crate::input::{InputFiles, InputFormat};

#[derive(Debug, Args)]
#[command(next_help_heading = "Input")]
pub(super) struct InputArgs {
    #[command(flatten)]
    format: FormatArgs,

    /// Records end with a NUL byte instead of a line end, as those of `find -print0`.
    #[arg(short = '0', long)]
    null: bool,

    /// Maximum number of records read ahead of the commands.
    #[arg(long, value_name = "N", default_value = "10000", value_parser = crate::number_arg::at_least_one)]
    pub(super) buffer: NonZeroUsize,
}

impl InputArgs {
    pub(super) fn format(&self) -> InputFormat {
        match self.format.format() {
            InputFormat::Lines if self.null => InputFormat::NulSeparated,
            format => format,
        }
    }

    /// Whether the first row of each table names its columns.
    pub(super) fn header(&self) -> bool {
        self.format.header
    }

    /// Opens the input.
    pub(super) fn open(&self, files: &[PathBuf]) -> anyhow::Result<InputFiles> {
        let opened = InputFiles::open(files, self.format(), self.format.header);
        opened.map_err(|error| match self.null {
            // A word behind the option was its value in earlier versions, and is a file now.
            true if !files.is_empty() => {
                anyhow!("{error:#}; a value that means \"no key\" is --null-value VALUE, not --null VALUE")
            }
            _ => error,
        })
    }

    /// Refuses combinations of options that contradict each other.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        self.format.check()?;
        ensure!(
            !self.null || self.format() == InputFormat::NulSeparated,
            "-0 (--null) is for --lines: records end with a NUL byte; leave it out, or write \
             --null-value VALUE for a value that means \"no key\""
        );
        Ok(())
    }
}
