//! Which job is served before which.

/// Whom the rules put first. [`Allocator`](super::Allocator) says what holds in all of them.
///
/// What each costs in mean time and what it gives is measured in docs/performance.md.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// The four rules to the letter. The places of rule 2 are given in the order of arrival and kept until
    /// the job is over, and each job that has one keeps at least one worker.
    ///
    /// Fair to those who are active: all of them go on, whatever else comes. With as many long jobs as
    /// workers the next one, however short, waits for a whole job; where many jobs come at a high load,
    /// take another order.
    #[default]
    Arrival,
    /// For the least mean time of all jobs: within a tenth of what is possible at any load. The places go
    /// to the jobs that need least, whenever they come. There are two: who needs
    /// least gets what it can use, and the next keeps at least one worker, so that none takes all. With fewer
    /// than six workers there is one place, for the second would be too large a part of them.
    ///
    /// What those two leave goes to the others. One decision in [`TURN`](Self::TURN) goes to whoever
    /// waits longest.
    Balanced,
    /// One place, however many workers there are: shortest remaining processing time first, with
    /// numbers of subtasks in the place of times.
    Shortest,
}

/// Below so many workers the second place costs too much: with four of them, a seventh in mean time at a
/// load of 95 %; with six, less than a tenth.
const WORKERS_FOR_TWO: usize = 6;

impl Order {
    /// Where jobs are not served by arrival, no job that has something to do and no worker is passed over
    /// so often without one of those who wait getting one: the longest waiting.
    ///
    /// Seldom enough to cost the short ones 1 %, and counted in decisions, so that it is right for
    /// subtasks of any length.
    pub const TURN: u32 = 128;

    /// How many jobs are given their first worker before any gets its second.
    pub(super) fn places(self, workers: usize) -> usize {
        match self {
            Order::Balanced if workers >= WORKERS_FOR_TWO => 2,
            _ => 1,
        }
    }
}
