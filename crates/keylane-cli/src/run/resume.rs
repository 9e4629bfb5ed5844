//! `--resume` and `--retry-failed`: which records of the input run, and whether the input is that of
//! the earlier runs.
//!
//! The whole input is compared with the log before any command starts, because a record that was
//! inserted or removed shows only at a later one that the log knows.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};

use crate::input::{InputFiles, InputRecord};
use crate::run_stats::records;

use super::args::RunArgs;
use super::log::{PriorRecords, PriorState, record_hash};

/// Choice of the records that run.
#[derive(Debug)]
pub(super) struct RecordChoice {
    prior: Arc<PriorRecords>,
    /// Unfinished records run.
    is_resume: bool,
    /// Records run that have failed finally.
    is_retry: bool,
}

impl RecordChoice {
    /// Returns the choice of a run that continues from a log; `None` if all records run.
    pub(super) fn new(args: &RunArgs, prior: &Arc<PriorRecords>) -> Option<Self> {
        let (is_resume, is_retry) = (args.logs.resume, args.logs.retry_failed);
        let prior = Arc::clone(prior);
        (is_resume || is_retry).then_some(RecordChoice { prior, is_resume, is_retry })
    }

    /// Whether a record runs.
    ///
    /// # Errors
    /// If the log knows another record in its place.
    pub(super) fn runs(&self, record: &InputRecord, hash: u64) -> anyhow::Result<bool> {
        let Some((known, state)) = self.prior.get(record.number) else {
            return Ok(self.is_resume);
        };
        ensure!(
            known == hash,
            "this is not the record {} of the log: the input was changed, or its lines moved; continue with the \
             input of the first run, or start anew with another --log file",
            record.number
        );
        Ok(match state {
            PriorState::Finished => false,
            PriorState::Failed => self.is_retry,
            PriorState::Stopped => true,
            PriorState::Unfinished | PriorState::Unknown => self.is_resume,
        })
    }

    /// Compares the input with the log.
    ///
    /// # Errors
    /// If a record that the log knows was changed, moved or removed, with its place.
    fn check(&self, mut input: InputFiles) -> anyhow::Result<()> {
        let last = self.prior.last_place();
        let mut record = InputRecord::default();
        while record.number < last {
            if !input.next(&mut record)? {
                bail!(
                    "{} ends after record {}, and the log has record {last}: the input was changed; continue with the \
                     input of the first run, or start anew with another --log file",
                    input.name(),
                    record.number,
                );
            }
            let known = self.prior.get(record.number).is_some();
            let hash = if known { record_hash(&record.raw) } else { 0 };
            self.runs(&record, hash)
                .with_context(|| format!("{}:{}", input.name(), record.line))?;
        }
        Ok(())
    }

    /// "continuing after 5 records that ended in earlier runs". A log without any has perhaps the wrong name.
    pub(super) fn summary(&self, log: &Path) -> String {
        let failed = self.prior.count(PriorState::Failed);
        let count = self.prior.count(PriorState::Finished) + failed;
        if count == 0 && self.is_resume {
            return format!(
                "the log {} has no record that has ended; starting with the first one",
                log.display()
            );
        }
        let ended = records(count);
        match (failed, self.is_retry) {
            (0, _) => format!("continuing after {ended} that ended in earlier runs"),
            (failed, true) => {
                format!(
                    "continuing after {ended} that ended in earlier runs; {failed} failed and run again"
                )
            }
            (failed, false) => format!(
                "continuing after {ended} that ended in earlier runs; {failed} failed (--retry-failed runs them again)"
            ),
        }
    }
}

/// Returns the remedy for records that were read and not run, or nothing if this run cannot be continued.
pub(super) fn remedy(args: &RunArgs) -> &'static str {
    if args.logs.continues().is_some() {
        return "; the same command continues with them";
    }
    let can_continue = args.logs.log.is_some()
        && !args.output.keeps_order()
        && ensure_can_be_read_again("--resume", args).is_ok();
    if can_continue { "; the same command with --resume continues with them" } else { "" }
}

/// Refuses to continue with an input that cannot be read twice.
pub(super) fn ensure_can_continue(args: &RunArgs) -> anyhow::Result<()> {
    args.logs.continues().map_or(Ok(()), |option| ensure_can_be_read_again(option, args))
}

fn ensure_can_be_read_again(option: &str, args: &RunArgs) -> anyhow::Result<()> {
    ensure!(
        !args.files.is_empty() && !args.files.iter().any(|path| path == Path::new("-")),
        "{option}: standard input cannot be read again from its start, so that its records cannot be compared with the \
         log; write it to a file, and name the file"
    );
    for file in &args.files {
        ensure!(
            file.metadata().map_or(true, |kind| kind.is_file()),
            "{option}: {} is no regular file, so that its records cannot be compared with the log; write them to a file",
            file.display()
        );
    }
    Ok(())
}

/// Compares the input with the log before the run reads it.
pub(super) fn check_input(choice: &RecordChoice, args: &RunArgs) -> anyhow::Result<()> {
    choice.check(args.input.open(&args.files)?)
}
