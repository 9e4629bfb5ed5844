//! Answers about the past.

use super::resolution::Resolution;
use super::sample::longest;
use super::{History, StoredSample};
use crate::request_error::RequestError;
use crate::wire::{self, Timestamp};

/// Maximum number of attempts in an answer.
const MAX_ANSWERED: usize = 2000;

/// Length of a period without a begin: an hour.
const PERIOD: u64 = 3_600_000;

impl History {
    /// Returns the samples of a period, by default of the last hour, in the finest resolution that reaches its begin.
    /// Blocks on the disk.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(crate) fn between(
        &self,
        from: Option<Timestamp>,
        to: Option<Timestamp>,
        now: Timestamp,
        has_slices: bool,
    ) -> Result<wire::History, RequestError> {
        let to = to.unwrap_or(now).min(now);
        let from = from.unwrap_or(Timestamp(to.0.saturating_sub(PERIOD)));
        let resolution = Resolution::reaching(from.0, now.0);
        let begin = resolution.begin(from.0);
        let mut samples = self.stored(resolution, begin, to.0).map_err(|error| {
            RequestError::Damaged(format!("the history cannot be read: {error}"))
        })?;
        let slices = match has_slices {
            true => samples.iter_mut().flat_map(|it| std::mem::take(&mut it.slices)).collect(),
            false => Vec::new(),
        };
        let samples = samples.into_iter().map(|it| it.sample).collect();
        let interval_ms = resolution.interval_ms;
        Ok(wire::History { from, to, interval_ms, samples, slices: longest(slices, MAX_ANSWERED) })
    }

    /// Reads the samples of a period. In the finest resolution, those that are not in the file are among them.
    fn stored(
        &self,
        resolution: Resolution,
        from: u64,
        to: u64,
    ) -> rusqlite::Result<Vec<StoredSample>> {
        let storage = self.storage();
        let Some(file) = &storage.file else { return Ok(Vec::new()) };
        let mut samples = file.read(resolution, from, to)?;
        if resolution == Resolution::FINEST {
            let unwritten = self.unwritten();
            let is_asked = |it: &&StoredSample| (from..to).contains(&it.sample.at.0);
            samples.extend(unwritten.iter().filter(is_asked).cloned());
            samples.sort_by_key(|it| it.sample.at);
            let intervals = samples.chunk_by(|a, b| a.sample.at == b.sample.at);
            samples = intervals.filter_map(StoredSample::join_equal).collect();
        }
        Ok(samples)
    }
}
