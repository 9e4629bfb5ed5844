//! Answers that the next query may use again.

use std::time::Duration;

use crate::wire::Summary;

/// Cached summary.
#[derive(Debug)]
pub(super) struct CachedSummary {
    pub(super) summary: Summary,
    /// Steady time of the count.
    pub(super) counted: Duration,
    /// Duration of the count.
    pub(super) took: Duration,
}
