//! Stops a key whose tasks fail again and again.
//!
//! A task is judged by whoever ends it, before it gives its lanes back. So whoever has the key next has
//! gone through the lock under which the failures before it were counted, and a key that is stopped is
//! held before anything else of it could be taken. What has become of a task is noted on its thread, and
//! only if it is not the usual; so where failures don't count nothing is asked.

use super::rates::PendingWakeups;
use super::*;
use crate::order::Stop;
use crate::run::{TurnResult, take_turn_result};

/// What becomes of a key whose tasks fail: see [`Builder::on_failure`](crate::Builder::on_failure).
///
/// A task fails if it panics or returns an error: [`Outcome::Panicked`](crate::Outcome::Panicked) or
/// [`Outcome::Failed`](crate::Outcome::Failed). Of a message it is the handler that fails, or the turn
/// that it [kept](crate::Turn::fail). A task that was cancelled before it began, or a future that was
/// cancelled, counts neither as a failure nor as a success.
///
/// - A rollup that fails is a failure of each of its keys, shared or not; one that does not is a
///   success of each. Barriers and tasks without keys have no key to stop.
/// - Subtasks of a job do not count: what becomes of a job whose subtasks fail is said
///   [there](crate::OnError).
/// - Among tasks that share a key those in a row are those that end one after the other.
///
/// ```
/// use keylane::observe::PauseReason;
/// use keylane::{OnFailure, Pool};
///
/// let on_failure = OnFailure::StopKey { after: 2 };
/// let pool = Pool::<&str>::builder().on_failure(on_failure).build()?;
/// let failing = |n| pool.submit_fallible("alice", move || Err::<(), _>(n));
/// let (first, second) = (failing(1)?, failing(2)?);
/// let third = pool.submit("alice", || "not before somebody has looked")?;
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnFailure {
    /// It goes on with the next task.
    #[default]
    Continue,
    /// After so many failures in a row, at least one, nothing of it begins any more, as if it were
    /// [paused](crate::control::Keys::pause): what waits can be [taken](crate::control::Keys::take), or goes on
    /// when the key is [resumed](crate::control::Keys::resume), and then as many may fail again.
    ///
    /// A key whose last task has failed costs a small entry until one succeeds or the key is resumed.
    /// A [drain](crate::Pool::shutdown) waits for what waits on stopped keys, too: give it a timeout.
    StopKey {
        /// How many failures.
        after: u32,
    },
}

impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
    /// A task that has at most one key has ended, and still holds its lane.
    pub(super) fn judge(
        &self,
        lanes: &mut Lanes<K, X::Work>,
        held: &Held<K, X::Work>,
        after: u32,
    ) -> PendingWakeups {
        if let (Some(failed), Held::Lane(slot)) = (self.take_failure(), held) {
            let (hash, key) = lanes.key_in(*slot);
            let key = key.clone();
            return self.count(lanes, hash, &key, failed, after);
        }
        PendingWakeups::default()
    }

    /// The same of a rollup.
    pub(super) fn judge_rollup(&self, rollup: &Rollup<K, X::Work>, after: u32) {
        if let (Some(failed), Scope::Keys(claims)) = (self.take_failure(), &rollup.scope) {
            for (hash, claim) in claims {
                let shard = self.shard_of(*hash);
                let mut lanes = self.shards[shard].lanes.lock();
                let wakeups = self.count(&mut lanes, *hash as u32, &claim.key, failed, after);
                drop(lanes);
                self.set_timers(shard, wakeups);
            }
        }
    }

    /// Whether the task that has ended on this thread has failed, if it makes a difference. Asked once
    /// for each task.
    fn take_failure(&self) -> Option<bool> {
        match take_turn_result() {
            TurnResult::Void => None,
            TurnResult::Failed => Some(true),
            // A failure of its own keys is seen: it was counted under a lock that this task's beginning
            // went through.
            TurnResult::Done => (self.failing.load(Ordering::Relaxed) != 0).then_some(false),
        }
    }

    fn count(
        &self,
        lanes: &mut Lanes<K, X::Work>,
        hash: u32,
        key: &K,
        failed: bool,
        after: u32,
    ) -> PendingWakeups {
        if !failed {
            self.clear_failures(lanes, hash, key);
            return PendingWakeups::default();
        }
        let failures = lanes.count_failure(hash, key);
        if failures == 1 {
            self.failing.fetch_add(1, Ordering::Relaxed);
        }
        if failures >= after {
            self.clear_failures(lanes, hash, key);
            let at = self.clock.now();
            let (reasons, recall) = lanes.pause(hash, key, at);
            reasons.stopped.get_or_insert(Stop { failures, at });
            lanes.check();
            return PendingWakeups::recall(recall);
        }
        PendingWakeups::default()
    }

    /// The failures of a key so far are forgotten.
    pub(super) fn clear_failures(&self, lanes: &mut Lanes<K, X::Work>, hash: u32, key: &K) {
        if lanes.forget_failures(hash, key) {
            self.failing.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
