use std::time::Instant;

use crate::Partition;

/// Partitions that are given up together: because they are wanted back, or because the consumer ends.
#[derive(Debug)]
pub(super) struct Revocation {
    pub(super) slots: Vec<usize>,
    /// What the source is told in the end; nothing if all ends.
    pub(super) release: Vec<Partition>,
    pub(super) stage: RevocationStage,
}

/// Completion far that is.
#[derive(Clone, Copy, Debug)]
pub(super) enum RevocationStage {
    /// What runs is awaited.
    Awaiting { deadline: Instant },
    /// The last progress is being stored.
    Committing { deadline: Instant },
}

impl Revocation {
    pub(super) fn is_awaiting(&self) -> bool {
        matches!(self.stage, RevocationStage::Awaiting { .. })
    }

    pub(super) fn waits_for_source(&self) -> bool {
        matches!(self.stage, RevocationStage::Committing { .. })
    }

    /// These are somebody else's already.
    pub(super) fn forget(&mut self, slots: &[usize], lost: &[Partition]) {
        self.slots.retain(|slot| !slots.contains(slot));
        self.release.retain(|partition| !lost.contains(partition));
    }
}
