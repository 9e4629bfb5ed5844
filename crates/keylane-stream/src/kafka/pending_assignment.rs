//! An assignment that awaits an answer, and where its partitions start.

use std::collections::HashMap;

use super::ffi::TopicId;
use super::start_offset::StartAt;
use super::topic_partition::TopicPartition;
use crate::tracker::Progress;

/// An assignment that the client has offered, with the start positions that are resolved so far.
#[derive(Debug)]
pub(super) struct PendingAssignment {
    pub(super) names: Vec<TopicPartition>,
    /// Partitions that start at an end of their log, whose offsets are not known yet.
    pub(super) unknown: HashMap<TopicPartition, StartAt>,
    pub(super) known: HashMap<TopicPartition, ResolvedStart>,
}

/// Start of an offered partition.
#[derive(Debug)]
pub(super) struct ResolvedStart {
    pub(super) progress: Progress,
    pub(super) id: Option<TopicId>,
    /// Leader epochs: of the record before the watermark, and the highest one of the map.
    pub(super) epochs: (Option<u32>, Option<u32>),
}
