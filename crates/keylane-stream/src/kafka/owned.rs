use super::epochs::Epochs;
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
    /// Leader epochs of what was delivered.
    pub(super) epochs: Epochs,
    /// Where the log was cut, if its leader epochs show that it was.
    pub(super) cut: Option<Position>,
    pub(super) hold: Hold,
}

impl Owned {
    /// A partition that begins at `progress`; `committed` is the leader epoch of the record before its watermark,
    /// `map` the highest one below its end.
    pub(super) fn new(
        name: &Name,
        id: Option<TopicId>,
        progress: &Progress,
        (committed, map): (Option<u32>, Option<u32>),
    ) -> Self {
        let (watermark, end) = (progress.watermark(), progress.end());
        Owned {
            partition: name.partition(),
            id,
            identity: identity(name, id),
            next: progress.watermark(),
            begun: progress.clone(),
            stored: progress.watermark(),
            committing: None,
            asking: false,
            epochs: Epochs::new((watermark, committed), (end, map)),
            cut: None,
            hold: Hold::default(),
        }
    }
}
