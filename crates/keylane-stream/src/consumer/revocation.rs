//! Partitions that are released together, because the source has revoked them or the consumer
//! stops.

use std::time::Instant;

use crate::Partition;

/// A revocation in progress.
#[derive(Debug)]
pub(super) struct Revocation {
    pub(super) slots: Vec<usize>,
    /// Partitions to release at the source in the end; empty during shutdown.
    pub(super) release: Vec<Partition>,
    pub(super) stage: RevocationStage,
}

/// Stage of a revocation.
#[derive(Clone, Copy, Debug)]
pub(super) enum RevocationStage {
    /// Running attempts are awaited. At `cancel_at` they are cancelled.
    Awaiting { cancel_at: Instant, deadline: Instant },
    /// The end of cancelled attempts was forced, and is awaited. Until `report_by`, attempts without
    /// a hook are awaited too: they may be reporting their end.
    Forcing { deadline: Instant, report_by: Instant },
    /// The last progress is being committed.
    Committing { deadline: Instant },
}

impl Revocation {
    pub(super) fn is_awaiting(&self) -> bool {
        matches!(self.stage, RevocationStage::Awaiting { .. } | RevocationStage::Forcing { .. })
    }

    pub(super) fn waits_for_source(&self) -> bool {
        matches!(self.stage, RevocationStage::Committing { .. })
    }

    /// Removes partitions that were lost meanwhile.
    pub(super) fn forget(&mut self, slots: &[usize], lost: &[Partition]) {
        self.slots.retain(|slot| !slots.contains(slot));
        self.release.retain(|partition| !lost.contains(partition));
    }
}
