//! Sample of an interval, as stored, and how several become one.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::engine::cut_text::cut_text;
use crate::scheduler::WaitCounts;
use crate::wire::{HistorySample, HistoryShare, HistoryWaits, Slice, Timestamp};

/// Maximum number of jobs in a sample.
const MAX_JOBS: usize = 8;

/// Maximum number of attempts in a sample.
pub(super) const MAX_SLICES: usize = 32;

/// Maximum size of a name or a key, in bytes.
pub(super) const MAX_NAME_BYTES: usize = 64;

/// Maximum number of keys of an attempt.
const MAX_KEYS: usize = 4;

/// Sample and its attempts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredSample {
    #[serde(flatten)]
    pub(super) sample: HistorySample,
    /// Longest attempts that ended in the interval.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(super) slices: Vec<Slice>,
}

impl StoredSample {
    /// Joins samples of the same interval and the finest resolution.
    pub(super) fn join_equal(parts: &[StoredSample]) -> Option<Self> {
        match parts {
            [one] => Some(one.clone()),
            _ => StoredSample::join(parts, parts.first()?.sample.at.0, true),
        }
    }

    /// Joins the samples of shorter intervals into one that begins at `at`: averages of what is a state, sums of what
    /// is counted, and the longest attempts. `None` if there are none.
    pub(super) fn join(parts: &[StoredSample], at: u64, has_slices: bool) -> Option<Self> {
        let last = parts.last()?;
        let of = parts.len() as f64;
        let mean = |of_one: fn(&HistorySample) -> f64| {
            rounded(parts.iter().map(|part| of_one(&part.sample)).sum::<f64>() / of)
        };
        let sum =
            |of_one: fn(&HistorySample) -> u64| parts.iter().map(|part| of_one(&part.sample)).sum();
        let mut busy: HashMap<&str, HistoryShare> = HashMap::new();
        for share in parts.iter().flat_map(|part| &part.sample.jobs) {
            let none = || HistoryShare { busy: 0.0, ..share.clone() };
            busy.entry(&share.job).or_insert_with(none).busy += share.busy;
        }
        let jobs = busy.into_values().map(|job| HistoryShare { busy: job.busy / of, ..job });
        let sample = HistorySample {
            at: Timestamp(at),
            slots: last.sample.slots,
            busy: mean(|it| it.busy),
            succeeded: sum(|it| it.succeeded),
            failed: sum(|it| it.failed),
            cancelled: sum(|it| it.cancelled),
            retried: sum(|it| it.retried),
            waiting: HistoryWaits {
                key: mean(|it| it.waiting.key),
                stopped: mean(|it| it.waiting.stopped),
                backoff: mean(|it| it.waiting.backoff),
                scheduled: mean(|it| it.waiting.scheduled),
                entering: mean(|it| it.waiting.entering),
                paused: mean(|it| it.waiting.paused),
                kind: mean(|it| it.waiting.kind),
                tenant: mean(|it| it.waiting.tenant),
                slot: mean(|it| it.waiting.slot),
            },
            jobs: busiest(jobs),
        };
        let slices = match has_slices {
            true => parts.iter().flat_map(|part| &part.slices).cloned().collect(),
            false => Vec::new(),
        };
        Some(StoredSample { sample, slices: longest(slices, MAX_SLICES) })
    }
}

/// Jobs with the most running subtasks, in this order.
pub(super) fn busiest(jobs: impl Iterator<Item = HistoryShare>) -> Vec<HistoryShare> {
    let share = |job: HistoryShare| HistoryShare { busy: rounded(job.busy), ..job };
    let mut all: Vec<_> = jobs.map(share).filter(|share| share.busy > 0.0).collect();
    all.sort_by(|a, b| b.busy.total_cmp(&a.busy).then_with(|| a.job.cmp(&b.job)));
    all.truncate(MAX_JOBS);
    all
}

/// The `most` longest attempts, in the order of their ends.
pub(super) fn longest(mut slices: Vec<Slice>, most: usize) -> Vec<Slice> {
    let end = |slice: &Slice| slice.end.unwrap_or(slice.begin).0;
    slices.sort_by_key(|slice| std::cmp::Reverse(end(slice).saturating_sub(slice.begin.0)));
    slices.truncate(most);
    slices.sort_by_key(end);
    slices
}

/// Shortens what users have chosen, so that the size of a sample is bounded.
pub(super) fn cut(mut slice: Slice) -> Slice {
    for keys in [&mut slice.keys, &mut slice.shared_keys] {
        keys.truncate(MAX_KEYS);
        for key in keys {
            *key = cut_text(key, MAX_NAME_BYTES);
        }
    }
    slice
}

pub(super) fn waits_of(counts: &WaitCounts) -> HistoryWaits {
    let WaitCounts { key, stopped, backoff, scheduled, entering, paused, kind, tenant, slot } =
        *counts;
    HistoryWaits {
        key: number(key),
        stopped: number(stopped),
        backoff: number(backoff),
        scheduled: number(scheduled),
        entering: number(entering),
        paused: number(paused),
        kind: number(kind),
        tenant: number(tenant),
        slot: number(slot),
    }
}

/// Rounds to two places: a chart shows no more, and a sample stays small.
pub(super) fn rounded(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

#[expect(clippy::cast_precision_loss, reason = "for a chart")]
pub(super) fn number(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(begin: u64, end: u64) -> Slice {
        Slice {
            slot: 0,
            job: "job_0".into(),
            number: 0,
            keys: Vec::new(),
            shared_keys: Vec::new(),
            attempt: 1,
            begin: Timestamp(begin),
            end: Some(Timestamp(end)),
            outcome: None,
            rule: "keep".into(),
        }
    }

    fn share(job: &str, busy: f64) -> HistoryShare {
        HistoryShare { job: job.into(), kind: "act".into(), name: None, busy }
    }

    fn sample(busy: f64, succeeded: u64, jobs: &[(&str, f64)]) -> StoredSample {
        let jobs = busiest(jobs.iter().map(|(job, busy)| share(job, *busy)));
        let waiting = HistoryWaits { key: busy * 10.0, ..HistoryWaits::default() };
        let (at, failed, cancelled, retried) = (Timestamp(0), 0, 0, 0);
        let sample = HistorySample {
            at,
            slots: 4,
            busy,
            succeeded,
            failed,
            cancelled,
            retried,
            waiting,
            jobs,
        };
        StoredSample { sample, slices: vec![slice(0, succeeded)] }
    }

    #[test]
    fn states_are_averaged_and_counts_added() {
        let parts = [sample(1.0, 5, &[("a", 1.0)]), sample(2.0, 7, &[("b", 1.5), ("a", 0.5)])];
        let StoredSample { sample, slices } = StoredSample::join(&parts, 60_000, true).unwrap();
        assert_eq!(
            (sample.at.0, sample.slots, sample.busy, sample.succeeded),
            (60_000, 4, 1.5, 12)
        );
        assert_eq!(sample.waiting.key, 15.0);
        let jobs: Vec<_> = sample.jobs.iter().map(|it| (it.job.as_str(), it.busy)).collect();
        assert_eq!(jobs, [("a", 0.75), ("b", 0.75)]);
        assert_eq!(slices, [slice(0, 5), slice(0, 7)]);
        assert_eq!(StoredSample::join(&parts, 0, false).unwrap().slices, []);
        assert_eq!(StoredSample::join(&[], 0, true), None);
    }

    #[test]
    fn a_sample_is_bounded() {
        let jobs = busiest((0..100).map(|job| share(&format!("job_{job:03}"), f64::from(job))));
        assert_eq!((jobs.len(), jobs[0].job.as_str()), (MAX_JOBS, "job_099"));
        let slices = longest((0..100).map(|end| slice(10, 10 + end)).collect(), MAX_SLICES);
        assert_eq!((slices.len(), slices[0].end), (MAX_SLICES, Some(Timestamp(78))));
        let keys = vec!["ä".repeat(33); 9];
        let cut =
            cut(Slice { keys: keys.clone(), shared_keys: vec!["ä".repeat(32)], ..slice(0, 1) });
        assert_eq!(cut.keys, vec![format!("{}…", "ä".repeat(30)); 4]);
        assert_eq!(cut.shared_keys, ["ä".repeat(32)]);
    }
}
