use super::epochs::Epochs;
use super::ffi::TopicId;
use super::pause_buffer::PauseBuffer;
use super::topic_partition::TopicPartition;
use crate::Position;
use crate::source::Partition;
use crate::tracker::Progress;

use super::start_offset::identity;

/// A partition that is ours, from when it was taken until it is given up: one stretch of owning it.
#[derive(Debug)]
pub(super) struct OwnedPartition {
    pub(super) partition: Partition,
    /// None if the broker has no ids.
    pub(super) id: Option<TopicId>,
    /// What its progress belongs to, in the map beside its offset.
    pub(super) identity: Vec<u8>,
    /// What comes next of it. What is below was delivered, or is kept, or does not exist.
    pub(super) next: Position,
    /// What was done when this stretch began.
    pub(super) begun: Progress,
    /// The watermark that was stored last.
    pub(super) stored: Position,
    /// The watermark of the commit that is on its way.
    pub(super) committing: Option<Position>,
    /// Whether the broker is being asked where it goes on. Until the answer nothing of it is delivered or
    /// committed.
    pub(super) resolving: bool,
    /// Leader epochs of what was delivered.
    pub(super) epochs: Epochs,
    /// Where the log was truncated_at, if its leader epochs show that it was.
    pub(super) truncated_at: Option<Position>,
    pub(super) pause_buffer: PauseBuffer,
}

impl OwnedPartition {
    /// A partition that begins at `progress`; `committed` is the leader epoch of the record before its watermark,
    /// `map` the highest one below its end.
    pub(super) fn new(
        name: &TopicPartition,
        id: Option<TopicId>,
        progress: &Progress,
        (committed, map): (Option<u32>, Option<u32>),
    ) -> Self {
        let (watermark, end) = (progress.watermark(), progress.end());
        OwnedPartition {
            partition: name.partition(),
            id,
            identity: identity(name, id),
            next: progress.watermark(),
            begun: progress.clone(),
            stored: progress.watermark(),
            committing: None,
            resolving: false,
            epochs: Epochs::new((watermark, committed), (end, map)),
            truncated_at: None,
            pause_buffer: PauseBuffer::default(),
        }
    }
}
