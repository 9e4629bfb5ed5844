//! Histograms of durations, accurate to 6.25 % in constant memory.
//!
//! Each power of two is divided into 16 buckets of equal width, as in Gil Tene's HdrHistogram, so a
//! value is known to within a sixteenth, from nanoseconds to days, in six kilobytes.

use std::fmt;
use std::time::Duration;

use crate::sync::{AtomicU64, Ordering};

/// Binary logarithm of the number of buckets in each power of two.
const BITS: u32 = 4;
const SPLIT: usize = 1 << BITS;

/// Largest value, in nanoseconds: 2^48, more than three days. Longer durations count as this one.
const LARGEST: u64 = (1 << 48) - 1;
const BUCKETS: usize = (48 - BITS as usize + 1) * SPLIT;

/// Histogram with one writing thread and any number of readers.
pub(crate) struct HistogramRecorder {
    /// Count of each bucket. Written with plain loads and stores, because there is one writer.
    counts: Box<[AtomicU64]>,
    /// Sum of all recorded durations, in nanoseconds.
    sum: AtomicU64,
    /// Longest recorded duration, in nanoseconds.
    longest: AtomicU64,
}

impl HistogramRecorder {
    pub(crate) fn new() -> Self {
        HistogramRecorder {
            counts: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
            longest: AtomicU64::new(0),
        }
    }

    /// Records a duration `times` times, once for each task that it stands for. Only the owner may
    /// call this.
    pub(crate) fn record(&self, nanos: u64, times: u64) {
        let add = |to: &AtomicU64, more: u64| {
            to.store(to.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
        };
        add(&self.counts[bucket_of(nanos)], times);
        add(&self.sum, nanos.saturating_mul(times));
        if nanos > self.longest.load(Ordering::Relaxed) {
            self.longest.store(nanos, Ordering::Relaxed);
        }
    }

    /// Adds the recorded durations to a histogram.
    pub(crate) fn add_to(&self, histogram: &mut Histogram) {
        for (sum, count) in histogram.counts.iter_mut().zip(&self.counts) {
            *sum += count.load(Ordering::Relaxed);
        }
        let sum = self.sum.load(Ordering::Relaxed);
        histogram.sum = histogram.sum.saturating_add(sum);
        histogram.longest = histogram.longest.max(self.longest.load(Ordering::Relaxed));
    }
}

impl fmt::Debug for HistogramRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut histogram = Histogram::new();
        self.add_to(&mut histogram);
        histogram.fmt(f)
    }
}

/// Distribution of durations.
///
/// A duration is known to within a sixteenth: reported values are never too short, and at most 6.25
/// % too long. Where tasks are sampled, each measured one counts for all tasks that it stands for,
/// so counts and quantiles are estimates for all tasks.
///
/// ```
/// use std::time::Duration;
/// use keylane::Pool;
///
/// let pool = Pool::<u32>::builder().build()?;
/// for key in 0..100 {
///     pool.execute(key, || std::thread::sleep(Duration::from_micros(100)))?;
/// }
/// pool.shutdown()?;
/// let run = pool.inspect().snapshot(0).run_time;
/// assert!(run.quantile(0.5) >= Duration::from_micros(100));
/// println!("median {:?}, 99 % within {:?}", run.quantile(0.5), run.quantile(0.99));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Histogram {
    counts: Box<[u64]>,
    /// Sum of all durations, in nanoseconds.
    sum: u64,
    /// Longest duration, in nanoseconds.
    longest: u64,
}

impl Histogram {
    pub(crate) fn new() -> Self {
        Histogram { counts: vec![0; BUCKETS].into(), sum: 0, longest: 0 }
    }

    /// Number of durations.
    ///
    /// ```
    /// use keylane::Pool;
    /// use keylane::observe::Statistics;
    ///
    /// let pool = Pool::<u32>::builder().statistics(Statistics::Every).build()?;
    /// pool.execute_many((0..100).map(|key| (key, || ())))?;
    /// pool.shutdown()?;
    /// assert_eq!(pool.inspect().snapshot(0).wait_time.count(), 100);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns whether there are no durations.
    ///
    /// ```
    /// let pool = keylane::Pool::<u32>::builder().build()?;
    /// assert!(pool.inspect().snapshot(0).wait_time.is_empty()); // no task has begun
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Sum of all durations.
    ///
    /// ```
    /// # use keylane::Pool;
    /// # use keylane::observe::Statistics;
    /// # let pool = Pool::<u32>::builder().statistics(Statistics::Every).build()?;
    /// pool.execute_many((0..100).map(|key| (key, || ())))?;
    /// pool.shutdown()?;
    /// let waits = pool.inspect().snapshot(0).wait_time;
    /// assert!(waits.sum() >= waits.max());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum)
    }

    /// Mean of all durations, or zero if there are none.
    ///
    /// ```
    /// # use keylane::Pool;
    /// # use keylane::observe::Statistics;
    /// # let pool = Pool::<u32>::builder().statistics(Statistics::Every).build()?;
    /// pool.execute_many((0..100).map(|key| (key, || ())))?;
    /// pool.shutdown()?;
    /// let waits = pool.inspect().snapshot(0).wait_time;
    /// assert!(waits.mean() <= waits.max());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.sum.checked_div(self.count()).unwrap_or(0))
    }

    /// Longest measured duration, exactly, or zero if there are none.
    ///
    /// ```
    /// # use keylane::Pool;
    /// # use keylane::observe::Statistics;
    /// # let pool = Pool::<u32>::builder().statistics(Statistics::Every).build()?;
    /// pool.execute_many((0..100).map(|key| (key, || ())))?;
    /// pool.shutdown()?;
    /// let waits = pool.inspect().snapshot(0).wait_time;
    /// assert!(waits.quantile(0.5) <= waits.max());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.longest)
    }

    /// Smallest duration that is not exceeded by this fraction of all durations: 0.5 for the
    /// median, 0.99 for all but the longest hundredth. Zero if there are none.
    ///
    /// # Panics
    ///
    /// If `quantile` is not between 0 and 1.
    pub fn quantile(&self, quantile: f64) -> Duration {
        assert!((0.0..=1.0).contains(&quantile), "`quantile` must be between 0 and 1");
        let rank = ((self.count() as f64 * quantile).ceil() as u64).max(1);
        let mut seen = 0;
        let within = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        let end = within.map_or(self.longest, last_of);
        Duration::from_nanos(end.min(self.longest))
    }

    /// Number of durations in the buckets that end at or below `limit`.
    ///
    /// ```
    /// use std::time::Duration;
    /// # use keylane::Pool;
    /// # use keylane::observe::Statistics;
    /// # let pool = Pool::<u32>::builder().statistics(Statistics::Every).build()?;
    ///
    /// pool.execute_many((0..100).map(|key| (key, || ())))?;
    /// pool.shutdown()?;
    /// let waits = pool.inspect().snapshot(0).wait_time;
    /// println!("{} of 100 tasks began within 1 ms", waits.count_up_to(Duration::from_millis(1)));
    /// assert_eq!(waits.count_up_to(Duration::MAX), 100);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn count_up_to(&self, limit: Duration) -> u64 {
        let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        let fits = |&(bucket, _): &(usize, &u64)| last_of(bucket) <= limit;
        self.counts.iter().enumerate().take_while(fits).map(|(_, count)| count).sum()
    }

    /// Iterates over the non-empty buckets, the shortest first: the longest duration of the bucket,
    /// and its count.
    ///
    /// ```
    /// # use keylane::Pool;
    /// # use keylane::observe::Statistics;
    /// # let pool = Pool::<u32>::builder().statistics(Statistics::Every).build()?;
    /// pool.execute_many((0..100).map(|key| (key, || ())))?;
    /// pool.shutdown()?;
    /// let waits = pool.inspect().snapshot(0).wait_time;
    /// for (longest, count) in waits.buckets() {
    ///     println!("{count} tasks waited up to {longest:?}");
    /// }
    /// assert_eq!(waits.buckets().map(|(_, count)| count).sum::<u64>(), 100);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> {
        let buckets = self.counts.iter().enumerate().filter(|(_, count)| **count != 0);
        buckets.map(|(bucket, count)| (Duration::from_nanos(last_of(bucket)), *count))
    }

    /// Adds the durations of another histogram.
    ///
    /// ```
    /// use keylane::Pool;
    /// use keylane::observe::Statistics;
    ///
    /// let pool = || Pool::<u32>::builder().statistics(Statistics::Every).build();
    /// let (one, other) = (pool()?, pool()?);
    /// one.submit(7, || ())?.wait()?;
    /// other.submit(8, || ())?.wait()?;
    /// let mut waits = one.inspect().snapshot(0).wait_time;
    /// waits.merge(&other.inspect().snapshot(0).wait_time);
    /// assert_eq!(waits.count(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn merge(&mut self, other: &Histogram) {
        for (sum, count) in self.counts.iter_mut().zip(&other.counts) {
            *sum += count;
        }
        self.sum = self.sum.saturating_add(other.sum);
        self.longest = self.longest.max(other.longest);
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Histogram")
            .field("count", &self.count())
            .field("mean", &self.mean())
            .field("median", &self.quantile(0.5))
            .field("p99", &self.quantile(0.99))
            .field("max", &self.max())
            .finish()
    }
}

/// Index of the bucket of a value. Values below 16 have a bucket each.
fn bucket_of(nanos: u64) -> usize {
    let nanos = nanos.min(LARGEST);
    let octave = (u64::BITS - 1 - (nanos | 1).leading_zeros()).saturating_sub(BITS);
    (octave as usize) * SPLIT + (nanos >> octave) as usize
}

/// Largest value of a bucket.
fn last_of(bucket: usize) -> u64 {
    let octave = (bucket / SPLIT).saturating_sub(1);
    let within = (bucket - octave * SPLIT) as u64;
    ((within + 1) << octave) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_bucket_which_is_no_wider_than_a_sixteenth_of_it() {
        let mut values: Vec<u64> = (0..5000).collect();
        values.extend((4..48).flat_map(|bits| {
            let power = 1_u64 << bits;
            [power - 1, power, power + 1, power + power / 3, power + power / 2]
        }));
        values.push(LARGEST);
        for value in values {
            let bucket = bucket_of(value);
            assert!(bucket < BUCKETS);
            let first = if bucket == 0 { 0 } else { last_of(bucket - 1) + 1 };
            assert!(first <= value && value <= last_of(bucket), "{value} is in {bucket}");
            assert!((last_of(bucket) - first) * SPLIT as u64 <= value, "{value}: too wide");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        assert_eq!(last_of(BUCKETS - 1), LARGEST);
    }

    #[test]
    fn quantiles_are_never_too_short_and_at_most_a_sixteenth_too_long() {
        let recorder = HistogramRecorder::new();
        let mut values: Vec<u64> = (1..=10_000).map(|n| n * n).collect();
        values.iter().for_each(|&value| recorder.record(value, 1));
        values.sort_unstable();
        let mut histogram = Histogram::new();
        recorder.add_to(&mut histogram);
        assert_eq!(histogram.count(), 10_000);
        for quantile in [0.0, 0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0] {
            let rank = ((10_000.0 * quantile) as usize).max(1);
            let exact = values[rank - 1] as f64;
            let said = histogram.quantile(quantile).as_nanos() as f64;
            assert!(said >= exact && said <= exact * 1.0625, "{quantile}: {said} for {exact}");
        }
        assert_eq!(histogram.max().as_nanos(), 100_000_000);
        let mean: u64 = values.iter().sum::<u64>() / 10_000;
        assert_eq!(histogram.mean().as_nanos(), u128::from(mean));
    }

    #[test]
    fn a_sample_counts_for_all_tasks_that_it_stands_for_and_merging_adds() {
        let recorder = HistogramRecorder::new();
        recorder.record(100, 64);
        recorder.record(1_000_000, 1);
        let mut histogram = Histogram::new();
        recorder.add_to(&mut histogram);
        recorder.add_to(&mut histogram);
        let mut twice = histogram.clone();
        twice.merge(&histogram);
        assert_eq!((histogram.count(), twice.count()), (130, 260));
        assert_eq!(twice.sum().as_nanos(), 4 * (6_400 + 1_000_000));
        assert_eq!(histogram.count_up_to(Duration::from_micros(1)), 128);
        assert_eq!(histogram.buckets().map(|(_, count)| count).collect::<Vec<_>>(), [128, 2]);
        assert!(Histogram::new().is_empty());
        assert_eq!(Histogram::new().quantile(0.5), Duration::ZERO);
    }
}
