//! Commits of progress: when one is due, and when the last one of a partition has arrived.

use std::time::{Duration, Instant};

use super::super::partition::PartitionState;
use super::{Coordinator, CoordinatorConfig};
use crate::source::ProgressCommit;

/// Pause before `begin_commit` is tried again after the source has refused it.
const BEGIN_COMMIT_RETRY_INTERVAL: Duration = Duration::from_millis(2);

impl Coordinator {
    pub(super) fn commit_due(&mut self) {
        let now = self.now();
        if self.source.is_transactional() {
            return self.commit_transaction(now);
        }
        let CoordinatorConfig { commit_every, commit_after, .. } = self.config;
        let mut commits = Vec::new();
        // Includes partitions in revocation: if another failure follows before their running
        // attempts end, completed records would be repeated.
        for state in self.slots.iter_mut().flatten() {
            let due = state.commit_due_at(commit_every, commit_after);
            if due.is_some_and(|due| due <= now)
                && let Some(progress) = state.start_commit(now)
            {
                commits.push(ProgressCommit {
                    partition: state.assignment.partition.clone(),
                    progress,
                });
            }
        }
        if !commits.is_empty() {
            self.source.commit(commits);
        }
    }

    /// Commits the progress of all partitions together with the output in the transaction. Aborts
    /// the transaction if it has output of a record that is not complete.
    fn commit_transaction(&mut self, now: Instant) {
        if self.next_transaction().is_none_or(|due| now < due) {
            return;
        }
        if !self.source.begin_commit() {
            self.begin_commit_after = now + BEGIN_COMMIT_RETRY_INTERVAL;
            return;
        }
        // Records whose output is in the transaction were reported before `begin_commit` returned,
        // so their events are in the mailbox.
        self.read_events();
        if self.tainted {
            self.aborting = true;
            return self.source.abort_transaction();
        }
        let state = self.slots.iter_mut().flatten();
        let commits = state.filter_map(|state| {
            let partition = state.assignment.partition.clone();
            state.start_commit(now).map(|progress| ProgressCommit { partition, progress })
        });
        let commits = commits.collect();
        self.source.commit(commits);
    }

    /// Returns the time of the next commit. Returns `None` if every commit waits for the answer to
    /// an earlier one: that answer is an event of the source.
    pub(super) fn next_commit(&self) -> Option<Instant> {
        if self.source.is_transactional() {
            return self.next_transaction();
        }
        self.partitions().filter_map(|state| self.commit_due_at(state)).min()
    }

    /// Returns the time of the next commit of a transactional source.
    fn next_transaction(&self) -> Option<Instant> {
        if self.aborting || self.partitions().any(PartitionState::is_committing) {
            return None;
        }
        if self.tainted {
            return Some(self.begin_commit_after);
        }
        let last = self.revocations.iter().filter(|revocation| revocation.waits_for_source());
        let last = last
            .flat_map(|revocation| self.of(revocation))
            .filter_map(PartitionState::committable_at);
        let due =
            self.partitions().filter_map(|state| self.commit_due_at(state)).chain(last).min()?;
        Some(due.max(self.begin_commit_after))
    }

    fn commit_due_at(&self, state: &PartitionState) -> Option<Instant> {
        state.commit_due_at(self.config.commit_every, self.config.commit_after)
    }

    /// Commits the last progress of these partitions if necessary, and returns whether nothing is
    /// left to commit.
    pub(super) fn is_committed(&mut self, slots: &[usize], now: Instant) -> bool {
        let together = self.source.is_transactional();
        let mut commits = Vec::new();
        let mut saved = true;
        for slot in slots {
            let Some(state) = self.slots[*slot].as_mut() else { continue };
            if !together && let Some(progress) = state.start_commit(now) {
                commits.push(ProgressCommit {
                    partition: state.assignment.partition.clone(),
                    progress,
                });
            }
            saved &= state.has_nothing_to_commit();
        }
        if !commits.is_empty() {
            self.source.commit(commits);
        }
        saved
    }
}
