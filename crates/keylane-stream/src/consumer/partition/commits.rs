//! Commits of a partition: what can be committed, since when, and what is on its way.

use std::time::{Duration, Instant};

use super::{COMMIT_RETRY_INTERVAL, CommitState, PartitionState};
use crate::source::CommitError;
use crate::tracker::{OffsetMapLimit, Progress};

impl PartitionState {
    /// Returns the progress to commit.
    pub(super) fn progress(&self) -> Progress {
        self.tracker.progress().shortened(self.limit)
    }

    /// Returns the earliest time of the next commit, or `None` if there is nothing to commit, a
    /// commit is in progress, or the partition was lost.
    pub(in crate::consumer) fn committable_at(&self) -> Option<Instant> {
        if self.is_committing() || !self.has_uncommitted() {
            return None;
        }
        let started_at = self.commit.started_at;
        match self.commit.refused {
            Some(CommitError::NotOurs) => None,
            Some(CommitError::Later(_)) => Some(started_at + COMMIT_RETRY_INTERVAL),
            Some(CommitError::TooLong) | None => Some(started_at),
        }
    }

    /// Returns the time at which the next commit is due: `every` after the last one, or at once
    /// after `after_records` completions. `None` if no commit is possible, or the time exceeds the
    /// clock's range.
    pub(in crate::consumer) fn commit_due_at(
        &self,
        every: Duration,
        after_records: u64,
    ) -> Option<Instant> {
        let CommitState { started_at, completed, .. } = self.commit;
        let committable_at = self.committable_at()?;
        let enough = completed >= after_records;
        let wanted_at = if enough { started_at } else { started_at.checked_add(every)? };
        Some(wanted_at.max(committable_at))
    }

    /// Starts a commit if one is possible at `now`, and returns the progress to commit.
    pub(in crate::consumer) fn start_commit(&mut self, now: Instant) -> Option<Progress> {
        if self.committable_at().is_none_or(|at| now < at) {
            return None;
        }
        let progress = self.progress();
        self.commit.pending = Some((self.commit.version, progress.watermark()));
        self.commit.started_at = now;
        self.commit.completed = 0;
        Some(progress)
    }

    /// Records the result of the commit in progress.
    pub(in crate::consumer) fn committed(&mut self, result: &Result<(), CommitError>) {
        let Some((version, watermark)) = self.commit.pending.take() else { return };
        self.commit.refused = result.clone().err();
        match result {
            Ok(()) => {
                self.commit.committed_version = version;
                let is_saved = version == self.commit.version;
                self.commit.uncommitted_since = (!is_saved).then_some(self.commit.started_at);
                self.commit.committed = watermark;
            }
            Err(CommitError::TooLong) => self.shorten_map(),
            Err(_) => {}
        }
    }

    /// Returns whether there is nothing to commit, or no commit can succeed.
    pub(in crate::consumer) fn has_nothing_to_commit(&self) -> bool {
        !self.is_committing() && self.committable_at().is_none()
    }

    pub(in crate::consumer) fn has_uncommitted(&self) -> bool {
        self.commit.version != self.commit.committed_version
    }

    pub(in crate::consumer) fn is_committing(&self) -> bool {
        self.commit.pending.is_some()
    }

    /// Returns whether completing the records in flight could make a commit due.
    pub(in crate::consumer) fn can_reach_commit(&self, after_records: u64) -> bool {
        let can_end = self.in_flight.len() as u64;
        !self.is_committing() && self.commit.completed.saturating_add(can_end) >= after_records
    }

    /// Halves the limit of the map after the source has refused the map as too long.
    fn shorten_map(&mut self) {
        let half = (self.limit.get() / 2).max(OffsetMapLimit::MIN_CHARACTERS);
        self.limit = OffsetMapLimit::characters(half).unwrap_or(self.limit);
        self.tracker.set_limit(self.limit);
    }
}
