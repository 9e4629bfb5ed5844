//! Resolutions in which the past is kept.

/// Length of the intervals of a table, and number of its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resolution {
    /// Number of the resolution in the file.
    pub(super) number: u8,
    pub(super) interval_ms: u64,
    rows: u64,
    /// Whether its samples have attempts. They have keys, which nothing else keeps longer than its job.
    pub(super) has_slices: bool,
}

impl Resolution {
    pub(super) const FINEST: Resolution = Resolution::ALL[0];

    /// All resolutions, from the finest to the coarsest: an hour, a day, and 30 days. Each has 10 intervals more, because a
    /// request for the last hour is a moment old when it arrives.
    pub(super) const ALL: [Resolution; 3] = [
        Resolution { number: 0, interval_ms: 10_000, rows: 360 + 10, has_slices: true },
        Resolution { number: 1, interval_ms: 60_000, rows: 1440 + 10, has_slices: true },
        Resolution { number: 2, interval_ms: 900_000, rows: 2880 + 10, has_slices: false },
    ];

    /// Begin of the interval with the time `at`.
    pub(super) fn begin(self, at: u64) -> u64 {
        at - at % self.interval_ms
    }

    /// Row of the interval that begins at `at`.
    pub(super) fn row(self, at: u64) -> u64 {
        at / self.interval_ms % self.rows
    }

    /// Finest resolution that still has the intervals from `from` on, or the coarsest.
    pub(super) fn reaching(from: u64, now: u64) -> Self {
        let coarsest = Resolution::ALL[Resolution::ALL.len() - 1];
        let reaches = |it: &Resolution| now.saturating_sub(from) <= it.interval_ms * it.rows;
        Resolution::ALL.into_iter().find(reaches).unwrap_or(coarsest)
    }
}

#[cfg(test)]
mod tests {
    use super::Resolution;

    #[test]
    fn a_period_has_the_finest_resolution_that_reaches_it() {
        let hour = 3_600_000;
        let now = 1_000 * hour;
        let intervals =
            [1, 2, 24, 25, 720, 900].map(|hours| Resolution::reaching(now - hours * hour, now));
        let expected = [10_000, 60_000, 60_000, 900_000, 900_000, 900_000];
        assert_eq!(intervals.map(|resolution| resolution.interval_ms), expected);
        // Regression: a page asked for the last hour, and got minutes, because the request took a millisecond.
        assert_eq!(Resolution::reaching(now - hour - 1, now), Resolution::FINEST);
    }
}
