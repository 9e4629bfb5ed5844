//! Options of `keylane run` about the output of its commands.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum};

use crate::input::FieldLayout;
use crate::process::AttemptClock;
use crate::record_output::{OutputForm, ResultsFolder, RunOutput};
use crate::run_stats::RunStats;
use crate::template::Template;

use super::batch_args::BatchConflict;

#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(super) struct OutputArgs {
    /// Output appears in the order of the input. It waits in memory and temporary files, and records
    /// run ahead of the first unfinished one by --buffer at most.
    #[arg(short, long)]
    keep_order: bool,

    /// Each line appears as soon as it is complete, instead of the output of a command as a whole. With
    /// -k, those of the first unfinished record do.
    #[arg(long, visible_alias = "lb")]
    line_buffer: bool,

    /// Each line of output begins with the record and a tab.
    #[arg(long, conflicts_with = "tagstring")]
    tag: bool,

    /// Each line of output begins with this text and a tab; it may have placeholders, such as {key}.
    #[arg(long, value_name = "TEMPLATE")]
    tagstring: Option<String>,

    /// Form of the output.
    #[arg(long, value_enum, default_value = "text", value_name = "FORM")]
    output_format: OutputFormat,

    /// Folder for the output of each record, in files: DIR/NUMBER/stdout, stderr, seq and result.json.
    #[arg(long, value_name = "DIR")]
    results: Option<PathBuf>,
}

/// Form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OutputFormat {
    /// As the commands print it.
    Text,
    /// A line of JSON for each attempt: its record, key, times, exit status and output.
    Ndjson,
}

/// Whether GNU parallel writes its results to a file of this name.
fn names_file(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ["csv", "tsv", "json"].iter().any(|form| ending == *form))
}

impl OutputArgs {
    /// Refuses combinations of options that contradict each other.
    pub(super) fn check(&self, has_workers: bool) -> anyhow::Result<()> {
        let is_json = self.output_format == OutputFormat::Ndjson;
        ensure!(
            !(self.line_buffer && is_json),
            "--line-buffer shows lines while their commands run, and --output-format ndjson has a line for each \
             attempt that has ended; keep one"
        );
        ensure!(
            !(is_json && self.has_tag()),
            "--tag and --tagstring are for --output-format text; lines of ndjson have the record's number and key"
        );
        ensure!(
            !(has_workers && self.line_buffer),
            "--line-buffer cannot be used with --worker: each answer is a line, which appears at once"
        );
        ensure!(
            !(has_workers && self.results.is_some()),
            "--results cannot be used with --worker: a record has an answer and no files; use --output-format ndjson"
        );
        let file = self.results.as_deref().filter(|path| names_file(path) && !path.is_dir());
        if let Some(file) = file {
            bail!(
                "--results takes a folder, and {} has the name of a file, which GNU parallel would write; name a folder, or \
                 use --output-format ndjson, which prints a line for each record",
                file.display()
            );
        }
        Ok(())
    }

    /// Options of the output that batches do not have.
    pub(super) fn conflicts_with_batch(&self) -> [BatchConflict; 3] {
        [
            (
                self.output_format == OutputFormat::Ndjson,
                "--output-format ndjson, whose lines have one record each; leave out one of them",
            ),
            (
                self.results.is_some(),
                "--results, which has a folder for each record; leave out one of them",
            ),
            (
                self.tag,
                "--tag, which is the record; write --tagstring '{key}', or leave out one of them",
            ),
        ]
    }

    /// Returns the template of tags, if lines have any. Those of a batch are equal for its records.
    pub(super) fn tag(
        &self,
        layout: &FieldLayout,
        is_batch: bool,
    ) -> anyhow::Result<Option<Template>> {
        let template = match &self.tagstring {
            Some(text) => Template::parse(text.as_bytes(), layout)
                .with_context(|| format!("--tagstring {text}"))?,
            None if self.tag => Template::whole(),
            None => return Ok(None),
        };
        ensure!(
            !(is_batch && template.names_record()),
            "--batch cannot be used with a --tagstring that has other placeholders than {{key}}: a batch has several \
             records; leave them out, or leave out --batch"
        );
        Ok(Some(template))
    }

    /// Whether lines begin with a tag.
    pub(super) fn has_tag(&self) -> bool {
        self.tag || self.tagstring.is_some()
    }

    /// Whether output appears in the order of the input.
    pub(super) fn keeps_order(&self) -> bool {
        self.keep_order
    }

    /// Creates the folder of results, so that an error is reported before any command starts.
    pub(super) fn results(&self) -> anyhow::Result<Option<ResultsFolder>> {
        self.results.as_deref().map(ResultsFolder::create).transpose()
    }

    /// Begins the output of a run whose reader is at most `buffer` records ahead.
    pub(super) fn start(
        &self,
        stats: &Arc<RunStats>,
        results: Option<ResultsFolder>,
        buffer: usize,
        clock: AttemptClock,
    ) -> anyhow::Result<Arc<RunOutput>> {
        let form = match self.output_format {
            OutputFormat::Ndjson => OutputForm::Json,
            OutputFormat::Text if self.line_buffer => OutputForm::Lines,
            OutputFormat::Text => OutputForm::Grouped,
        };
        let window = self.keep_order.then_some(buffer);
        Ok(Arc::new(RunOutput::start(stats, form, results, window, clock)?))
    }
}
