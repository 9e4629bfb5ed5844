//! One stretch of owning a partition, as those see it who run its records.
//!
//! # Protocol
//!
//! One word has a count of the attempts that run, and two bits: *closed*, no attempt may begin; and
//! *fenced*, nobody waits for those that run any more, and what they say is not believed. The owner sets
//! the bits, first one and then the other, and never takes one back.
//!
//! - A worker *begins*: it adds one to the count, if the word is not closed.
//! - A worker *ends*: it first puts its report into the mailbox, then takes one from the count; if that
//!   leaves a closed word without a count, it rings the bell of the mailbox.
//! - The owner *closes*, and waits until the count is zero. FailureAction it empties the mailbox once more.
//!
//! # StopReason it is right
//!
//! *When the owner has seen zero, nothing runs, and nothing will.* All changes are to one word, so they
//! have one order. An attempt begins before the closing in it, or not at all; so after the closing the
//! count only falls.
//!
//! *It then finds the reports of all attempts.* Each was put there before its worker's subtraction, which
//! releases, and the owner's load of the zero acquires what all of them released.
//!
//! *It learns of the zero.* If the owner has read something else, some subtraction comes after that and
//! makes it zero. Its worker saw the closed bit, and rings; the mailbox keeps a notify until the owner
//! next looks (`mailbox.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::mailbox::Mailbox;
use crate::Partition;

const CLOSED: usize = 1 << (usize::BITS - 1);
const FENCED: usize = 1 << (usize::BITS - 2);
const COUNT: usize = FENCED - 1;

/// One stretch of owning a partition.
#[derive(Debug)]
pub(super) struct Assignment {
    pub(super) partition: Partition,
    /// Where the owner keeps the partition.
    pub(super) slot: usize,
    /// Which stretch of the consumer's it is; never used twice.
    pub(super) epoch: u64,
    /// See the protocol. Workers change the count, the owner sets the bits.
    word: AtomicUsize,
}

/// An attempt that runs, and for whose end the owner waits when it closes.
#[derive(Debug)]
pub(super) struct RunningAttempt {
    assignment: Arc<Assignment>,
    begun_at: Instant,
}

impl Assignment {
    pub(super) fn new(partition: Partition, slot: usize, epoch: u64) -> Arc<Self> {
        Arc::new(Assignment { partition, slot, epoch, word: AtomicUsize::new(0) })
    }

    /// Begins an attempt, unless it is closed.
    pub(super) fn begin(self: &Arc<Self>) -> Option<RunningAttempt> {
        let one_more = |word| if word & CLOSED == 0 { Some(word + 1) } else { None };
        let begun = self.word.fetch_update(Ordering::Acquire, Ordering::Relaxed, one_more);
        begun.is_ok().then(|| RunningAttempt { assignment: self.clone(), begun_at: Instant::now() })
    }

    /// Lets no attempt begin from now on.
    pub(super) fn close(&self) {
        self.word.fetch_or(CLOSED, Ordering::AcqRel);
    }

    /// Gives up what runs.
    pub(super) fn fence(&self) {
        self.word.fetch_or(CLOSED | FENCED, Ordering::AcqRel);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.word.load(Ordering::Acquire) & CLOSED != 0
    }

    pub(super) fn is_fenced(&self) -> bool {
        self.word.load(Ordering::Acquire) & FENCED != 0
    }

    /// Completion many attempts run.
    pub(super) fn running(&self) -> usize {
        self.word.load(Ordering::Acquire) & COUNT
    }
}

impl RunningAttempt {
    /// Completion long it has run.
    pub(super) fn time(&self) -> Duration {
        self.begun_at.elapsed()
    }

    /// Ends the attempt, whose report is in the mailbox.
    pub(super) fn end(self, mailbox: &Mailbox) {
        let before = self.assignment.word.fetch_sub(1, Ordering::AcqRel);
        if before & CLOSED != 0 && before & COUNT == 1 {
            mailbox.notify();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_begins_once_it_is_closed_and_the_last_end_rings() {
        let mailbox = Mailbox::new(None);
        let assignment = Assignment::new(Partition::new("t", 0), 0, 1);
        let (one, two) = (assignment.begin().unwrap(), assignment.begin().unwrap());
        one.end(&mailbox);
        assert!(!mailbox.arm_or_take(&mut Vec::new()), "it rang though nobody waits");
        assignment.close();
        assert!(assignment.begin().is_none());
        assert_eq!(assignment.running(), 1);
        two.end(&mailbox);
        assert_eq!(assignment.running(), 0);
        assert!(mailbox.arm_or_take(&mut Vec::new()), "the last one rings");
    }
}
