//! Transaction of a simulated member, and the progress that it commits.

use super::history::Place;

/// Transaction of a member.
#[derive(Default)]
pub(super) struct Transaction {
    pub(super) phase: Phase,
    /// Records whose output is in it.
    pub(super) outputs: Vec<Place>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// Output can be added.
    #[default]
    Open,
    /// It is closed to output, or ends.
    Sealed,
    /// It was aborted, and the member has not read that.
    Aborted,
}

/// Progress that a transaction commits: partitions, each with a position and its metadata.
pub(super) type Offsets = Vec<(u32, (u64, String))>;
