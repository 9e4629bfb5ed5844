//! One assignment of a partition: decides whether an attempt may start, and whether its answer
//! counts.
//!
//! # Protocol
//!
//! One word has the number of running attempts and two bits: *closed*, no attempt may start; and
//! *fenced*, running attempts are not awaited, and their answers are ignored. The coordinator sets
//! the bits in this order and never clears one.
//!
//! - A worker *begins*: it increments the count, if the word is not closed.
//! - A worker *ends*: it puts its event into the mailbox, then decrements the count. If that leaves
//!   a closed word with a count of zero, it notifies the mailbox.
//! - The coordinator *closes*, and waits until the count is zero. Then it reads the mailbox once
//!   more.
//!
//! # Why it is right
//!
//! *When the coordinator has seen zero, no attempt is running, and none will start.* All changes
//! are to one word, so they have one order. An attempt begins before the closing in this order, or
//! not at all; so after the closing the count only falls.
//!
//! *The coordinator then finds the events of all attempts.* Each was put there before its worker's
//! decrement, which releases, and the coordinator's load of the zero acquires what all decrements
//! released.
//!
//! *The coordinator is notified of the zero.* If it has read another value, some decrement comes
//! later and makes it zero. That worker saw the closed bit, and notifies; the mailbox keeps a
//! notification until the coordinator reads it next (`mailbox.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::cancellation::CancelHooks;
use super::mailbox::Mailbox;
use crate::Partition;

const CLOSED: usize = 1 << (usize::BITS - 1);
const FENCED: usize = 1 << (usize::BITS - 2);
const COUNT: usize = FENCED - 1;

/// One assignment of a partition to this consumer.
#[derive(Debug)]
pub(super) struct Assignment {
    pub(super) partition: Partition,
    /// Index of the partition in the coordinator's slots.
    pub(super) slot: usize,
    /// Number of the assignment, unique within the consumer.
    pub(super) epoch: u64,
    /// See the protocol. Workers change the count; the coordinator sets the bits.
    word: AtomicUsize,
    /// Hooks that end running attempts early.
    pub(super) cancel_hooks: Arc<CancelHooks>,
}

/// A running attempt. The coordinator waits for its end when it closes the assignment.
#[derive(Debug)]
pub(super) struct RunningAttempt {
    assignment: Arc<Assignment>,
    begun_at: Instant,
}

impl Assignment {
    pub(super) fn new(partition: Partition, slot: usize, epoch: u64) -> Arc<Self> {
        let (word, cancel_hooks) = (AtomicUsize::new(0), Arc::<CancelHooks>::default());
        Arc::new(Assignment { partition, slot, epoch, word, cancel_hooks })
    }

    /// Starts an attempt at time `now`, unless the assignment is closed.
    pub(super) fn begin(self: &Arc<Self>, now: Instant) -> Option<RunningAttempt> {
        let one_more = |word| if word & CLOSED == 0 { Some(word + 1) } else { None };
        // Before the flag of a pause is read; see `RecordContext::set_paused`.
        let begun = self.word.fetch_update(Ordering::SeqCst, Ordering::Relaxed, one_more);
        begun.is_ok().then(|| RunningAttempt { assignment: self.clone(), begun_at: now })
    }

    /// Lets no further attempt start.
    pub(super) fn close(&self) {
        self.word.fetch_or(CLOSED, Ordering::AcqRel);
    }

    /// Ignores the answers of running attempts from now on.
    pub(super) fn fence(&self) {
        self.word.fetch_or(CLOSED | FENCED, Ordering::AcqRel);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.word.load(Ordering::Acquire) & CLOSED != 0
    }

    pub(super) fn is_fenced(&self) -> bool {
        self.word.load(Ordering::Acquire) & FENCED != 0
    }

    /// Number of running attempts.
    pub(super) fn running(&self) -> usize {
        self.word.load(Ordering::SeqCst) & COUNT
    }
}

impl RunningAttempt {
    /// Returns the time from the start of the attempt to `now`.
    pub(super) fn time(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.begun_at)
    }

    /// Ends the attempt. Its event must be in the mailbox already.
    pub(super) fn end<E>(self, mailbox: &Mailbox<E>) {
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
        let mailbox = Mailbox::<()>::new(None);
        let assignment = Assignment::new(Partition::new("t", 0), 0, 1);
        let now = Instant::now();
        let (one, two) = (assignment.begin(now).unwrap(), assignment.begin(now).unwrap());
        one.end(&mailbox);
        assert!(!mailbox.arm_or_take(&mut Vec::new()), "a notification without a waiting thread");
        assignment.close();
        assert!(assignment.begin(now).is_none());
        assert_eq!(assignment.running(), 1);
        two.end(&mailbox);
        assert_eq!(assignment.running(), 0);
        assert!(mailbox.arm_or_take(&mut Vec::new()), "the last one rings");
    }
}
