use super::hold::Hold;
use super::names::Name;
use super::native::TopicId;
use crate::Position;
use crate::source::Partition;
use crate::tracker::Progress;

use super::begin::identity;

/// A partition that is ours, from when it was taken until it is given up: one stretch of owning it.
#[derive(Debug)]
pub(super) struct Owned {
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
    pub(super) asking: bool,
    pub(super) hold: Hold,
}

impl Owned {
    pub(super) fn new(name: &Name, id: Option<TopicId>, progress: &Progress) -> Self {
        Owned {
            partition: name.partition(),
            id,
            identity: identity(name, id),
            next: progress.watermark(),
            begun: progress.clone(),
            stored: progress.watermark(),
            committing: None,
            asking: false,
            hold: Hold::default(),
        }
    }
}
