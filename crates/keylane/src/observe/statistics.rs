//! How much is measured.

/// How much a pool measures while it runs: see [`Builder::statistics`](crate::Builder::statistics).
///
/// Tasks, panics, refusals and the like are counted in any case; this is about what takes a look at the
/// clock: [`Snapshot::wait_time`](crate::observe::Snapshot::wait_time),
/// [`Snapshot::run_time`](crate::observe::Snapshot::run_time), and how long workers were busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Statistics {
    /// Nothing is measured.
    Off,
    /// As many tasks are measured as can be for next to nothing, and each counts for those that are not.
    ///
    /// - A task that runs for 20 µs or more, or comes 200 µs or more after another of its part of the
    ///   keys, is always measured.
    /// - Of shorter ones, and where more come, one of a row is, down to one in 256. Which one is left to
    ///   chance, and the length of the row depends only on what came before, so means and quantiles are
    ///   right on average, whatever pattern there is in the tasks.
    #[default]
    Sampled,
    /// Every task is measured, whatever that costs: tiny tasks take several times as long.
    Every,
}
