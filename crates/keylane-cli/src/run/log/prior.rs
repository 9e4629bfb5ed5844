//! Log of earlier runs, read by a run that continues from it.

use std::borrow::Cow;
use std::io::BufRead;

use anyhow::{Context, bail};
use serde::Deserialize;

use super::header::{RecordOptions, ensure_format};
use super::line::LoggedResult;
use super::prior_pages::{PriorPages, PriorState};
use super::record_hash::parse_hash;

/// Records of the earlier runs.
#[derive(Debug, Default)]
pub(in crate::run) struct PriorRecords {
    pages: PriorPages,
    /// Options of the last run.
    options: Option<RecordOptions>,
    /// Number of the last run.
    runs: u32,
    /// Latest end of an attempt.
    last_end_us: i64,
}

/// Line of a header or of a record.
#[derive(Debug, Deserialize)]
struct PriorLine<'a> {
    keylane_log: Option<u32>,
    run: Option<u32>,
    options: Option<RecordOptions>,
    place: Option<u64>,
    #[serde(borrow)]
    hash: Option<Cow<'a, str>>,
    end_us: Option<i64>,
    result: Option<LoggedResult>,
}

impl PriorRecords {
    /// Reads whole lines. A last one without a line end is torn, and left out.
    ///
    /// # Errors
    /// If a line is damaged, with its number.
    pub(super) fn read(mut input: impl BufRead) -> anyhow::Result<Self> {
        let mut prior = PriorRecords::default();
        let mut line = Vec::new();
        for number in 1_u64.. {
            line.clear();
            input.read_until(b'\n', &mut line)?;
            if line.last() != Some(&b'\n') {
                break;
            }
            prior.add(&line, number).with_context(|| format!("line {number}"))?;
        }
        Ok(prior)
    }

    fn add(&mut self, line: &[u8], number: u64) -> anyhow::Result<()> {
        let line: PriorLine<'_> = serde_json::from_slice(line).context(
            "it is damaged; restore the line, remove it so that its record runs again, or start anew with another --log \
             file",
        )?;
        if let PriorLine { keylane_log: Some(version), run, options, .. } = line {
            ensure_format(version)?;
            self.runs = run.context("the number of the run is missing")?;
            self.options = options;
            return Ok(());
        }
        if number == 1 {
            bail!(
                "no header is there: it is no log of keylane run, or an earlier version wrote it, without hashes; \
                 give another --log file"
            );
        }
        let PriorLine {
            place: Some(place), hash: Some(hash), end_us, result: Some(result), ..
        } = line
        else {
            bail!(
                "`place`, `hash` or `result` is missing; restore the line, or start anew with another --log file"
            );
        };
        let hash = parse_hash(&hash).with_context(|| format!("{hash:?} is no hash"))?;
        if self.pages.add(place, hash, result.state()).is_err() {
            bail!(
                "record {place} has another hash than in the lines before; give another --log file"
            );
        }
        self.last_end_us = self.last_end_us.max(end_us.unwrap_or(0));
        Ok(())
    }

    pub(super) fn ensure_same_options(&self, options: &RecordOptions) -> anyhow::Result<()> {
        self.options.as_ref().map_or(Ok(()), |logged| options.ensure_same_as(logged))
    }

    /// Number of the runs in the log.
    pub(super) fn runs(&self) -> u32 {
        self.runs
    }

    /// Latest end of an attempt, in microseconds since 1970.
    pub(in crate::run) fn last_end_us(&self) -> i64 {
        self.last_end_us
    }

    /// Returns the hash and the state of a record that the log knows.
    pub(in crate::run) fn get(&self, place: u64) -> Option<(u64, PriorState)> {
        self.pages.get(place)
    }

    /// The highest place that the log knows; 0 if there is none.
    pub(in crate::run) fn last_place(&self) -> u64 {
        self.pages.last()
    }

    /// Returns the number of records in a state.
    pub(in crate::run) fn count(&self, state: PriorState) -> u64 {
        self.pages.count(state)
    }
}
