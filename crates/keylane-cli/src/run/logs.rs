//! Logs of a run: each record that ends is in them before its key goes on.

use std::fs::File;
use std::sync::Arc;

use crate::process::{AttemptClock, EndedAttempt, RecordEnd};
use crate::record_keys::RecordKeys;
use crate::run_stats::RecordLocation;

use super::args::RunArgs;
use super::job_log::JobLog;
use super::log::{
    self, LogFile, LoggedAttempt, LoggedKeys, LoggedResult, PriorRecords, RecordOptions,
};

/// Logs of a run, none of which need exist.
#[derive(Debug)]
pub(super) struct RunLogs {
    pub(super) clock: AttemptClock,
    log: Option<LogFile>,
    job_log: Option<JobLog>,
}

/// Log of earlier runs, opened and not written yet.
#[derive(Debug)]
pub(super) struct OpenedLog {
    file: Option<File>,
    options: RecordOptions,
    pub(super) prior: Arc<PriorRecords>,
}

/// Opens the log, and reads it if the run continues from it.
pub(super) fn open(args: &RunArgs, options: RecordOptions) -> anyhow::Result<OpenedLog> {
    let opened =
        args.logs.log.as_deref().map(|path| log::open(path, args.logs.continues(), &options));
    let (file, prior) = match opened.transpose()? {
        Some((file, prior)) => (Some(file), prior),
        None => (None, PriorRecords::default()),
    };
    Ok(OpenedLog { file, options, prior: Arc::new(prior) })
}

impl RunLogs {
    /// Starts the logs of this run, so that an error is reported before any command starts.
    pub(super) fn start(args: &RunArgs, opened: OpenedLog) -> anyhow::Result<Self> {
        let OpenedLog { file, options, prior } = opened;
        let clock = AttemptClock::new(prior.last_end_us());
        let has_limit = args.keys.limit_per_key.is_some();
        let input: Vec<_> = args.files.iter().map(|path| path.display().to_string()).collect();
        let log = args.logs.log.as_deref().zip(file);
        let log = log
            .map(|(path, file)| LogFile::start(path, (file, prior), has_limit, &input, &options));
        let continues = args.logs.continues().is_some();
        let job_log = args.logs.joblog.as_deref().map(|path| JobLog::open(path, continues));
        Ok(RunLogs { clock, log: log.transpose()?, job_log: job_log.transpose()? })
    }

    /// Whether records are logged with their hashes.
    pub(super) fn has_log(&self) -> bool {
        self.log.is_some()
    }

    /// Logs an attempt of a command, with a line for each of its records.
    ///
    /// # Errors
    /// If a log cannot be written, with the remedy.
    pub(super) fn attempt<'a>(
        &self,
        places: impl ExactSizeIterator<Item = &'a RecordLocation>,
        (keys, attempt): (&'a RecordKeys, u32),
        argv: &[Vec<u8>],
        ended: &'a EndedAttempt,
        result: LoggedResult,
    ) -> anyhow::Result<()> {
        let is_batch = places.len() > 1;
        let mut places = places.peekable();
        let Some(first) = places.peek().map(|place| place.number) else { return Ok(()) };
        // First the log that other runs rely on.
        self.lines(places.map(|place| LoggedAttempt {
            place,
            keys: LoggedKeys::All(keys),
            batch: is_batch.then_some(first),
            attempt,
            times: Some(ended.times),
            end: &ended.end,
            result,
        }))?;
        match &self.job_log {
            Some(job_log) if result != LoggedResult::Retry => job_log.write(first, argv, ended),
            _ => Ok(()),
        }
    }

    /// Logs a record that ended without an attempt.
    ///
    /// # Errors
    /// If the log cannot be written, with the remedy.
    pub(super) fn without_attempt(
        &self,
        place: &RecordLocation,
        keys: LoggedKeys<'_>,
        why: String,
        result: LoggedResult,
    ) -> anyhow::Result<()> {
        let end = &RecordEnd::Failed(why);
        let (batch, attempt, times) = (None, 0, None);
        self.lines([LoggedAttempt { place, keys, batch, attempt, times, end, result }])
    }

    /// Logs attempts that end at the same time, by one write.
    ///
    /// # Errors
    /// If the log cannot be written, with the remedy.
    pub(super) fn lines<'a>(
        &self,
        attempts: impl IntoIterator<Item = LoggedAttempt<'a>>,
    ) -> anyhow::Result<()> {
        let Some(log) = &self.log else { return Ok(()) };
        let mut text = Vec::with_capacity(256);
        let now_us = self.clock.now_us();
        attempts.into_iter().for_each(|attempt| log.line(&mut text, &attempt, now_us));
        log.write(&text)
    }
}
