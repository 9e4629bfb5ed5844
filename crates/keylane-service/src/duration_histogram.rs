//! Histogram of durations, in the text format of Prometheus.

use std::fmt::{self, Write};

/// Upper bounds of the buckets, in milliseconds. From a commit to an hour, each two to five times the one before.
const BOUNDS_MS: [u64; 16] =
    [1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 10_000, 30_000, 120_000, 600_000, 3_600_000];

/// Numbers of durations by length.
#[derive(Clone, Debug, Default)]
pub(crate) struct DurationHistogram {
    /// Number of durations up to each bound, and beyond the last one, without those up to the bound before.
    counts: [u64; BOUNDS_MS.len() + 1],
    sum_ms: u64,
}

impl DurationHistogram {
    pub(crate) fn record(&mut self, ms: u64) {
        let bucket = BOUNDS_MS.partition_point(|bound| *bound < ms);
        self.counts[bucket] += 1;
        self.sum_ms = self.sum_ms.saturating_add(ms);
    }

    /// Returns the number of durations.
    #[cfg(test)]
    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of the durations.
    #[cfg(test)]
    pub(crate) fn sum_ms(&self) -> u64 {
        self.sum_ms
    }

    /// Writes the series of a metric. `labels` are those of all of them, each followed by a comma.
    pub(crate) fn write(&self, to: &mut String, name: &str, labels: &str) -> fmt::Result {
        let mut count = 0;
        for (bound, more) in BOUNDS_MS.iter().zip(&self.counts) {
            count += more;
            let bound = seconds(*bound);
            writeln!(to, "keylane_{name}_bucket{{{labels}le=\"{bound}\"}} {count}")?;
        }
        count += self.counts[BOUNDS_MS.len()];
        writeln!(to, "keylane_{name}_bucket{{{labels}le=\"+Inf\"}} {count}")?;
        let all = match labels.strip_suffix(',') {
            Some(labels) => format!("{{{labels}}}"),
            None => String::new(),
        };
        writeln!(to, "keylane_{name}_sum{all} {}", seconds(self.sum_ms))?;
        writeln!(to, "keylane_{name}_count{all} {count}")
    }
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus has only doubles")]
fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_for_its_bucket_and_all_larger_ones() {
        let mut histogram = DurationHistogram::default();
        [0, 1, 2, 60, 4_000_000].into_iter().for_each(|ms| histogram.record(ms));
        let mut text = String::new();
        histogram.write(&mut text, "x_seconds", "kind=\"a\",").unwrap();
        let value = |series: &str| {
            let line = text.lines().find(|line| line.starts_with(series)).unwrap();
            line.rsplit(' ').next().unwrap().to_owned()
        };
        for (bound, count) in [("0.001", "2"), ("0.002", "3"), ("0.1", "4"), ("+Inf", "5")] {
            let series = format!("keylane_x_seconds_bucket{{kind=\"a\",le=\"{bound}\"}}");
            assert_eq!(value(&series), count, "{bound}");
        }
        assert_eq!(value("keylane_x_seconds_sum{kind=\"a\"}"), "4000.063");
        assert_eq!(value("keylane_x_seconds_count{kind=\"a\"}"), "5");
    }
}
