//! Options of `keylane run` about its input.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::{anyhow, ensure};
use clap::Args;

use crate::input::{InputFiles, InputFormat};

#[derive(Debug, Args)]
#[command(next_help_heading = "Input")]
pub(super) struct InputArgs {
    #[command(flatten)]
    format: FormatArgs,

    /// Records end with a NUL byte instead of a line end, as those of `find -print0`.
    #[arg(short = '0', long)]
    null: bool,

    /// The first line of each table has the columns' names.
    #[arg(long)]
    pub(super) header: bool,

    /// Maximum number of records read ahead of the commands.
    #[arg(long, value_name = "N", default_value = "10000", value_parser = crate::number_arg::at_least_one)]
    pub(super) buffer: NonZeroUsize,
}

#[derive(Debug, Args)]
#[group(multiple = false)]
struct FormatArgs {
    /// Every line is a record (this is the default).
    #[arg(long)]
    lines: bool,
    /// Records are rows of comma-separated values, quoted as RFC 4180 says.
    #[arg(long)]
    csv: bool,
    /// Records are rows of tab-separated values, without quotes.
    #[arg(long)]
    tsv: bool,
    /// Every line that is not blank is a JSON value.
    #[arg(long)]
    ndjson: bool,
}

impl InputArgs {
    pub(super) fn format(&self) -> InputFormat {
        match &self.format {
            FormatArgs { csv: true, .. } => InputFormat::Csv,
            FormatArgs { tsv: true, .. } => InputFormat::Tsv,
            FormatArgs { ndjson: true, .. } => InputFormat::Ndjson,
            _ if self.null => InputFormat::NulSeparated,
            _ => InputFormat::Lines,
        }
    }

    /// Opens the input.
    pub(super) fn open(&self, files: &[PathBuf]) -> anyhow::Result<InputFiles> {
        let opened = InputFiles::open(files, self.format(), self.header);
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
        let format = self.format();
        ensure!(
            !self.header || matches!(format, InputFormat::Csv | InputFormat::Tsv),
            "--header is for tables; give --csv or --tsv as well"
        );
        ensure!(
            !self.null || format == InputFormat::NulSeparated,
            "-0 (--null) is for --lines: records end with a NUL byte; leave it out, or write \
             --null-value VALUE for a value that means \"no key\""
        );
        Ok(())
    }
}
