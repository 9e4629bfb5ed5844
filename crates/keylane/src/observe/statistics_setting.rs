//! Extent of a pool's measurements.

/// Extent of a pool's measurements: see [`Builder::statistics`](crate::Builder::statistics).
///
/// Tasks, panics and refusals are always counted. This setting is for values that need the clock:
/// [`Snapshot::wait_time`](crate::observe::Snapshot::wait_time),
/// [`Snapshot::run_time`](crate::observe::Snapshot::run_time), and the busy time of workers.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Statistics {
    /// Measures no task.
    Off,
    /// Measures a sample of the tasks, at almost no cost, each of which counts for the others.
    ///
    /// - A task that runs for at least 20 µs, or arrives at least 200 µs after another one of its
    ///   shard, is always measured.
    /// - Of shorter or more frequent tasks, one in a series is measured, down to one in 256. It is
    ///   chosen at random, and the length of the series depends only on earlier tasks, so means and
    ///   quantiles are unbiased for any pattern of the tasks.
    Sampled,
    /// Measures every task: short tasks then take several times as long.
    Every,
}

impl Statistics {
    #[inline]
    pub(crate) fn is_on(self) -> bool {
        !matches!(self, Statistics::Off)
    }

    #[inline]
    pub(crate) fn is_every(self) -> bool {
        matches!(self, Statistics::Every)
    }
}
