//! Answers that the next query may use again.

use std::sync::Arc;
use std::time::Duration;

use crate::wire::Summary;
use crate::{JobId, SubtaskNumber};

/// A job with its number of stored subtasks, and their numbers by key.
pub(super) type ByKey = ((JobId, u32), Arc<[SubtaskNumber]>);

/// Cached summary.
#[derive(Debug)]
pub(super) struct CachedSummary {
    pub(super) summary: Summary,
    /// Steady time of the count.
    pub(super) counted: Duration,
    /// Duration of the count.
    pub(super) took: Duration,
}
