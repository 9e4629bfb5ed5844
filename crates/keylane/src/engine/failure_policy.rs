//! Stops a key whose tasks fail repeatedly.
//!
//! The thread that ends a task counts its failure before it releases the lanes. So the next task of
//! the key has gone through the lock under which the failures before it were counted, and a stopped
//! key is paused before any other task of it can be taken. The result of a task is noted on its
//! thread, and only if it is not a plain success; so where failures do not count, nothing is
//! checked.

use super::rate_state::PendingWakeups;
use super::*;
use crate::order::KeyStop;
use crate::run::{TurnResult, take_turn_result};

/// Policy for a key whose tasks fail: see [`Builder::on_failure`](crate::Builder::on_failure).
///
/// A task fails if it panics or returns an error: [`Outcome::Panicked`](crate::Outcome::Panicked)
/// or [`Outcome::Failed`](crate::Outcome::Failed). A message fails if its handler does, or the turn
/// that the handler [kept](crate::Turn::fail). A task that was cancelled before it began, or a
/// future that was cancelled, counts neither as a failure nor as a success.
///
/// - A rollup that fails is a failure of each of its keys, shared or not; one that does not is a
///   success of each. Barriers and tasks without keys have no key to stop.
/// - Subtasks of a job do not count: see [`OnError`](crate::OnError) for jobs.
/// - Among tasks that share a key, consecutive failures are those that end one after the other.
///
/// ```
/// use keylane::observe::PauseReason;
/// use keylane::{OnFailure, Pool};
///
/// let on_failure = OnFailure::StopKey { after: 2 };
/// let pool = Pool::<&str>::builder().on_failure(on_failure).build()?;
/// let failing = |n| pool.task("alice").fallible().submit(move || Err::<(), _>(n));
/// let (first, second) = (failing(1)?, failing(2)?);
/// let third = pool.submit("alice", || "waits until the key is resumed")?;
/// first.wait()?;
/// second.wait()?;
/// # while pool.keys().list_stopped().is_empty() {
/// #     std::thread::yield_now();
/// # }
/// let stopped = &pool.keys().list_stopped()[0];
/// assert_eq!(stopped.key, "alice");
/// assert!(matches!(stopped.hold, PauseReason::Stopped { failures: 2, .. }));
/// pool.keys().resume(&"alice");
/// assert!(third.wait()?.is_completed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum OnFailure {
    /// The key continues with its next task.
    Continue,
    /// After `after` consecutive failures, at least one, no task of the key begins any more, as if
    /// the key were [paused](crate::control::Keys::pause): waiting tasks can be
    /// [taken](crate::control::Keys::take), or run when the key is
    /// [resumed](crate::control::Keys::resume), which resets the count.
    ///
    /// A key whose last task has failed costs a small entry until a task succeeds or the key is
    /// resumed. A [shutdown](crate::Pool::shutdown) waits for the tasks of stopped keys, too: give
    /// it a timeout.
    StopKey {
        /// Number of consecutive failures. At least 1.
        after: u32,
    },
}

impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
    /// Counts the result of a task that has at most one key, has ended, and still holds its lane.
    pub(super) fn count_result(
        &self,
        lanes: &mut Lanes<K, X::Work>,
        held: &HeldLanes<K, X::Work>,
        after: u32,
    ) -> PendingWakeups {
        if let (Some(failed), HeldLanes::Lane(slot)) = (self.take_failure(), held) {
            return self.count(lanes, *slot, failed, after);
        }
        PendingWakeups::default()
    }

    /// Counts the result of a rollup for each of its keys.
    pub(super) fn count_rollup_result(&self, rollup: &Rollup<K, X::Work>, after: u32) {
        if let (Some(failed), RollupScope::Keys(claims)) = (self.take_failure(), &rollup.scope) {
            for part in claims {
                let shard = self.shard_of(part.hash);
                let mut lanes = self.shards[shard].lanes.lock();
                let slot = part.held_slot().expect("a task that ends holds its lanes");
                let wakeups = self.count(&mut lanes, slot, failed, after);
                drop(lanes);
                self.set_timers(shard, wakeups);
            }
        }
    }

    /// Returns whether the task that has ended on this thread has failed, if that matters. Called
    /// once for each task.
    fn take_failure(&self) -> Option<bool> {
        match take_turn_result() {
            TurnResult::Void => None,
            TurnResult::Failed => Some(true),
            // Relaxed: a failure of the task's own keys is visible, since it was counted under a
            // lock that the task's start went through.
            TurnResult::Done => (self.failing.load(Ordering::Relaxed) != 0).then_some(false),
        }
    }

    /// Counts a result for the key of a held lane. If the key panics, its count is unknown: after a
    /// failure it is then stopped.
    fn count(
        &self,
        lanes: &mut Lanes<K, X::Work>,
        slot: usize,
        failed: bool,
        after: u32,
    ) -> PendingWakeups {
        if !failed {
            self.clear_failures_in(lanes, slot);
            return PendingWakeups::default();
        }
        let counted = lanes.count_failure(slot);
        if counted == Some(1) {
            self.failing.fetch_add(1, Ordering::Relaxed);
        }
        let failures = counted.unwrap_or(after);
        if failures >= after {
            self.clear_failures_in(lanes, slot);
            let at = self.clock.now();
            let recall = lanes.pause_slot(slot);
            lanes.pause_reasons(slot).stopped.get_or_insert(KeyStop { failures, at });
            lanes.check();
            return PendingWakeups::recall(recall);
        }
        PendingWakeups::default()
    }

    /// Resets the failure count of the key of a held lane.
    fn clear_failures_in(&self, lanes: &mut Lanes<K, X::Work>, slot: usize) {
        if lanes.forget_failures_in(slot) {
            self.failing.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Resets the failure count of a key.
    pub(super) fn clear_failures(&self, lanes: &mut Lanes<K, X::Work>, hash: u32, key: &K) {
        if lanes.forget_failures(hash, key) {
            self.failing.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
