//! Waits: what the coordinator waits for next, and how long.

use std::time::{Duration, Instant};

use super::super::partition::PartitionState;
use super::super::revocation::Revocation;
use super::{Coordinator, NextWait, WaitFor};
use crate::source::Source;

/// Maximum time between two polls: the source must keep in touch with its broker.
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Timeout of a poll while the coordinator waits for the source alone.
const MAX_POLL_TIMEOUT: Duration = Duration::from_millis(100);

/// Timeout of a poll while the coordinator also waits for workers and the source has no waker.
const POLL_TIMEOUT_WITHOUT_WAKER: Duration = Duration::from_millis(2);

/// Maximum number of records per poll: enough to amortize the cost of a poll.
const RECORDS_PER_POLL: usize = 1024;

impl Coordinator {
    /// Decides what to wait for: the source, the mailbox, or both.
    pub(in crate::consumer) fn next_wait(&self) -> NextWait {
        let now = self.now();
        let timeout = self.next_due(now).saturating_duration_since(now).min(MAX_POLL_TIMEOUT);
        let both = self.waits_for_workers() && self.waits_for_source();
        let (what, timeout) = if both && self.shared.mailbox.has_waker() {
            (WaitFor::Both, timeout)
        } else if both {
            (WaitFor::Source, timeout.min(POLL_TIMEOUT_WITHOUT_WAKER))
        } else if !self.waits_for_workers() {
            (WaitFor::Source, timeout)
        } else if now.duration_since(self.polled_at) >= MAX_POLL_INTERVAL {
            (WaitFor::Source, Duration::ZERO)
        } else {
            (WaitFor::Workers, timeout.min(MAX_POLL_INTERVAL))
        };
        NextWait { what, timeout }
    }

    /// Prepares a wait that events in the mailbox end. Returns whether there are some already.
    pub(in crate::consumer) fn begin_wait(&mut self, wait: NextWait) -> bool {
        let ends_by_mailbox = matches!(wait.what, WaitFor::Workers | WaitFor::Both);
        ends_by_mailbox && self.shared.mailbox.arm_or_take(&mut self.worker_events)
    }

    /// Waits for at most `timeout`, and handles the events that came.
    pub(in crate::consumer) fn end_wait(&mut self, wait: NextWait, timeout: Duration) {
        match wait.what {
            WaitFor::Source | WaitFor::Both => self.poll(timeout),
            WaitFor::Workers if timeout.is_zero() => {}
            WaitFor::Workers => self.shared.mailbox.wait(&mut self.worker_events, timeout),
        }
        self.handle_worker_events();
        self.handle_events();
    }

    /// Returns whether the end of an attempt can free room, make a commit due, or finish a
    /// revocation.
    fn waits_for_workers(&self) -> bool {
        let wanted = |state: &PartitionState| {
            let waits = state.has_buffered() || state.paused.is_some() || state.exhausted;
            !state.closing && (waits || state.can_reach_commit(self.config.commit_after))
        };
        let is_ending = self.revocations.iter().any(Revocation::is_awaiting);
        is_ending || !self.forced.is_empty() || self.partitions().any(wanted)
    }

    /// Returns whether an event of the source is awaited. A failed source sends none and does not
    /// block.
    pub(super) fn waits_for_source(&self) -> bool {
        let takes = |state: &PartitionState| {
            let more = state.paused.is_none() && !state.exhausted && !state.closing;
            // The answer to a commit is an event, and the next commit waits for it.
            more || state.is_committing()
        };
        let wanted = self.revocations.iter().any(Revocation::waits_for_source)
            || self.partitions().next().is_none()
            || self.partitions().any(takes);
        wanted && !self.source_is_dead
    }

    /// Returns the time of the next step. A step that is due is always taken in the next round;
    /// steps that wait for an answer or a pause are not due. Otherwise the loop would spin.
    fn next_due(&self, now: Instant) -> Instant {
        let steps = self.revocations.iter().map(|revocation| self.next_step(revocation, now));
        steps.chain(self.next_commit()).min().unwrap_or(now + MAX_POLL_TIMEOUT)
    }

    fn poll(&mut self, timeout: Duration) {
        // None is admitted before it is known that no partition is missing.
        let takes_none = self.ending.is_some() || self.awaits_all_partitions;
        let max_records = if takes_none { 0 } else { RECORDS_PER_POLL };
        let polled = self.source.poll(timeout, max_records, &mut self.events);
        self.polled_at = self.now();
        if let Err(error) = polled {
            self.source_failed(error);
        }
    }
}
