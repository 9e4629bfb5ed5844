//! Latency histogram of attempts, updated by all workers without a lock.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds of the buckets, in milliseconds. Longer attempts are counted apart.
const BOUNDS_MS: [u64; 14] =
    [1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 60_000, 300_000, 900_000, 3_600_000];

/// Counts of attempts by latency.
#[derive(Debug, Default)]
pub(super) struct TimeHistogram {
    /// Attempts per bucket, not cumulative.
    buckets: [AtomicU64; BOUNDS_MS.len()],
    /// Attempts above the highest bound.
    above: AtomicU64,
    sum_micros: AtomicU64,
}

/// Latency of attempts, from their start to their answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandlerTimes {
    /// Number of answered attempts.
    pub count: u64,
    /// Sum of their latencies.
    pub sum: Duration,
    /// Upper bounds in ascending order, each with the cumulative number of attempts.
    pub buckets: Vec<(Duration, u64)>,
}

impl TimeHistogram {
    pub(super) fn add(&self, time: Duration) {
        let bucket = BOUNDS_MS.iter().position(|bound| time <= Duration::from_millis(*bound));
        bucket.map_or(&self.above, |bucket| &self.buckets[bucket]).fetch_add(1, Relaxed);
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.sum_micros.fetch_add(micros, Relaxed);
    }

    /// Returns the counts so far. Concurrent updates may be in one figure and not yet in another.
    pub(super) fn snapshot(&self) -> HandlerTimes {
        let mut count = 0;
        let buckets = BOUNDS_MS.iter().zip(&self.buckets).map(|(bound, bucket)| {
            count += bucket.load(Relaxed);
            (Duration::from_millis(*bound), count)
        });
        let buckets = buckets.collect();
        let sum = Duration::from_micros(self.sum_micros.load(Relaxed));
        HandlerTimes { count: count + self.above.load(Relaxed), sum, buckets }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_counts_in_all_buckets_that_it_fits() {
        let times = TimeHistogram::default();
        for ms in [1, 2, 40, 7_200_000] {
            times.add(Duration::from_millis(ms));
        }
        let found = times.snapshot();
        assert_eq!((found.count, found.sum), (4, Duration::from_millis(7_200_043)));
        let counts: Vec<u64> = found.buckets.iter().map(|(_, count)| *count).collect();
        assert_eq!(counts[..5], [1, 2, 2, 2, 3]);
        assert_eq!(*counts.last().unwrap(), 3);
    }
}
