//! Longest chain of records that must run one after another, by the rules of order.
//!
//! A record's *depth* is one more than the depth of the deepest earlier record that it waits for; the longest chain is
//! the largest depth. A barrier ends a *section*: depths begin anew behind it, and the sections' chains add up.

use std::num::NonZeroU16;

use crate::key::RecordKey;
use crate::key_counts::{KeyCounts, KeyLimits};
use crate::record_keys::RecordKeys;

/// Bounds of the plan's table of keys: about 200 MiB.
const LIMITS: KeyLimits = KeyLimits { keys: 1_000_000, bytes: 64 << 20 };

/// Depths of a key's records in the current section.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct KeyDepth {
    section: u64,
    /// Depth of the last record with the key for itself.
    exclusive: u64,
    /// Largest depth of the records after it that share the key.
    shared: u64,
    /// Records in the section.
    records: u64,
    /// Number of the last record with the key, so that a key given twice counts once.
    last: u64,
}

/// Figures of a plan.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Figures {
    pub(super) records: u64,
    pub(super) keyless: u64,
    pub(super) barriers: u64,
    /// Longest chain, over all sections.
    pub(super) chain: u64,
    /// Key of the last record of the longest section's chain.
    pub(super) chain_key: Option<RecordKey>,
    /// Largest number of slots that can shorten the run.
    pub(super) useful_jobs: u64,
    /// Least time of the run, in records' times.
    pub(super) rounds: u64,
}

/// Reads records in their order and tells the figures.
#[derive(Debug)]
pub(super) struct Chains {
    pub(super) keys: KeyCounts<KeyDepth>,
    jobs: u64,
    limit_per_key: Option<NonZeroU16>,
    done: Figures,
    section: Section,
    longest_section: u64,
}

/// Records since the last barrier.
#[derive(Debug, Default)]
struct Section {
    number: u64,
    records: u64,
    depth: u64,
    deepest_key: Option<RecordKey>,
}

impl Chains {
    pub(super) fn new(jobs: u64, limit_per_key: Option<NonZeroU16>) -> Self {
        Self::with_limits(jobs, limit_per_key, LIMITS)
    }

    fn with_limits(jobs: u64, limit_per_key: Option<NonZeroU16>, limits: KeyLimits) -> Self {
        let section = Section { number: 1, ..Section::default() };
        let (keys, done) = (KeyCounts::new(limits), Figures::default());
        Chains { keys, jobs, limit_per_key, done, section, longest_section: 0 }
    }

    /// Adds the next record.
    pub(super) fn add(&mut self, keys: &RecordKeys) {
        self.done.records += 1;
        if !matches!(keys.first, RecordKey::Named(_)) {
            self.done.keyless += 1;
        }
        keys.all().for_each(|key| self.count(key));
        if keys.is_barrier {
            self.barrier();
            return;
        }
        let depth = 1 + self.depth_before(keys);
        if self.limit_per_key.is_none() {
            keys.shared().iter().for_each(|key| {
                let state = &mut self.keys.entry(key).state;
                state.shared = state.shared.max(depth);
            });
            keys.exclusive().iter().for_each(|key| {
                let state = &mut self.keys.entry(key).state;
                (state.exclusive, state.shared) = (depth, 0);
            });
        }
        self.section.records += 1;
        if depth > self.section.depth {
            self.section.depth = depth;
            let has_key = keys.all().next().is_some();
            self.section.deepest_key = has_key.then(|| keys.first.clone());
        }
    }

    /// Counts the current record for a key, and brings its depths to the current section.
    fn count(&mut self, key: &RecordKey) {
        let (number, section) = (self.done.records, self.section.number);
        let entry = self.keys.entry(key);
        if entry.state.section != section {
            entry.state = KeyDepth { section, last: entry.state.last, ..KeyDepth::default() };
        }
        if entry.state.last != number {
            entry.state.last = number;
            entry.state.records += 1;
            entry.records += 1;
        }
    }

    /// Depth of the deepest earlier record that a record with these keys waits for.
    fn depth_before(&mut self, keys: &RecordKeys) -> u64 {
        let limit = self.limit_per_key;
        let of_exclusive = keys.exclusive().iter().map(|key| {
            let state = self.keys.entry(key).state;
            match limit {
                // The records of a key have no order, and that many run together.
                Some(limit) => state.records.div_ceil(limit.get().into()).saturating_sub(1),
                None => state.exclusive.max(state.shared),
            }
        });
        let of_exclusive = of_exclusive.max().unwrap_or(0);
        let of_shared = keys.shared().iter().map(|key| self.keys.entry(key).state.exclusive);
        of_exclusive.max(of_shared.max().unwrap_or(0))
    }

    fn barrier(&mut self) {
        self.end_section();
        self.done.barriers += 1;
        self.done.chain += 1;
        self.done.rounds += 1;
        self.done.useful_jobs = self.done.useful_jobs.max(1);
    }

    fn end_section(&mut self) {
        let next = Section { number: self.section.number + 1, ..Section::default() };
        let ended = std::mem::replace(&mut self.section, next);
        if ended.records == 0 {
            return;
        }
        let done = &mut self.done;
        done.chain += ended.depth;
        done.rounds += ended.depth.max(ended.records.div_ceil(self.jobs));
        done.useful_jobs = done.useful_jobs.max(ended.records.div_ceil(ended.depth));
        if ended.depth > self.longest_section {
            self.longest_section = ended.depth;
            done.chain_key = ended.deepest_key;
        }
    }

    /// Returns the figures and the counts of keys.
    pub(super) fn finish(mut self) -> (Figures, KeyCounts<KeyDepth>) {
        self.end_section();
        (self.done, self.keys)
    }
}

#[cfg(test)]
#[path = "chains_tests.rs"]
mod tests;
