//! Options of the format of an input that is read once: how its bytes are cut into records.

use anyhow::ensure;
use clap::Args;

use crate::input::InputFormat;

/// Format of an input.
#[derive(Debug, Args)]
pub(crate) struct FormatArgs {
    #[command(flatten)]
    format: FormatFlags,

    /// The first line of each table has the columns' names.
    #[arg(long)]
    pub(crate) header: bool,
}

#[derive(Debug, Args)]
#[group(multiple = false)]
struct FormatFlags {
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

impl FormatArgs {
    pub(crate) fn format(&self) -> InputFormat {
        match self.format {
            FormatFlags { csv: true, .. } => InputFormat::Csv,
            FormatFlags { tsv: true, .. } => InputFormat::Tsv,
            FormatFlags { ndjson: true, .. } => InputFormat::Ndjson,
            _ => InputFormat::Lines,
        }
    }

    /// Refuses a header without a table.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        ensure!(
            !self.header || self.format().dialect().is_some(),
            "--header is for tables; give --csv or --tsv as well"
        );
        Ok(())
    }
}
