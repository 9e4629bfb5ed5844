//! Independent check of the key order, behind the metric `keylane_order_violations_total`.
//!
//! The check does not read the lanes. Its input is: the job that got its place in the order (in the
//! callbacks of the commits, so in commit order), the subtask that begins, and the subtask that has
//! ended permanently. From these it verifies:
//!
//! 1. **One at a time, across attempts.** A subtask that has begun and has not ended permanently is
//!    *open*, also while it backs off or has stopped its keys. The begin of another subtask with
//!    one of its keys is a violation.
//! 2. **Forward only.** Of the subtasks with a key, each begins at or after the position of the one
//!    that began before: the position of its job, and its number there. A begin before that
//!    position is a violation: a later subtask has overtaken it.
//!
//! So an overtaken subtask is detected when it begins itself; a lost subtask is not detected here.
//! Subtasks dropped with their job have no end of their own, so the check asks on demand whether
//! the job of an open subtask still has it. A retried job enters again, and its earlier open
//! subtasks hold no key.
//!
//! After a restart, subtasks with a mark on the disk are open again: those that wait for their next
//! attempt, have stopped their keys, have a lease that goes on, or whose attempt the end of the
//! process cut off. A mark of an earlier round of a job is deleted when the job is retried
//! (`store/started_attempts.rs`). Two facts are unknown after a restart: begins whose marks were not written,
//! and the last position of each key. So an overtaking of an ended subtask is detected if both begins
//! are in one process.
//!
//! Keys are stored as 128-bit hashes. Positions are kept for at least the last [`GENERATION`] keys,
//! in two generations; all other entries are removed with the open subtasks.

use std::collections::HashMap;
use std::hash::BuildHasher;

use foldhash::quality::RandomState;

use crate::{JobNumber, Key, SubtaskId};

/// Number of keys after which the older generation of positions is removed.
const GENERATION: usize = 1 << 16;

/// Hash of a key.
type KeyHash = u128;

/// Position in the order: of the job, and in the job.
type OrderPosition = (u64, u32);

/// State of the order check.
#[derive(Debug, Default)]
pub(super) struct OrderCheck {
    hashers: [RandomState; 2],
    /// Number of each job's last entry into the order.
    entries: HashMap<JobNumber, u64>,
    next_entry: u64,
    /// Subtasks that have begun and not ended permanently.
    open: HashMap<SubtaskId, UnfinishedSubtask>,
    /// Open subtask of each key.
    holders: HashMap<KeyHash, SubtaskId>,
    /// Position of the last begin of each key: recent keys, and older ones.
    last: [HashMap<KeyHash, OrderPosition>; 2],
}

#[derive(Debug)]
struct UnfinishedSubtask {
    keys: Box<[KeyHash]>,
    /// Number of the job's entry when the subtask began.
    entry: Option<u64>,
    runs: bool,
}

/// Violation of the order by a begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OrderViolation {
    /// The subtask already runs.
    Twice,
    /// Another subtask with one of its keys is open.
    Beside(SubtaskId),
    /// A later subtask with one of its keys has begun before it.
    Overtaken,
}

impl OrderCheck {
    /// Records that a job entered the order: its subtasks are behind all others from now on.
    pub(super) fn entered(&mut self, job: JobNumber) {
        self.next_entry += 1;
        self.entries.insert(job, self.next_entry);
    }

    /// Removes a finished job.
    pub(super) fn left(&mut self, job: JobNumber) {
        self.entries.remove(&job);
    }

    /// Checks the begin of an attempt. `is_held` returns true if the job of an open subtask still
    /// has it.
    pub(super) fn begun(
        &mut self,
        subtask: SubtaskId,
        keys: &[Key],
        is_held: impl Fn(SubtaskId) -> bool,
    ) -> Option<OrderViolation> {
        let keys: Box<[KeyHash]> = keys.iter().map(|key| self.hash(key)).collect();
        let mut violation = None;
        if self.open.get(&subtask).is_some_and(|open| open.runs) {
            violation = Some(OrderViolation::Twice);
        }
        let entry = self.entries.get(&subtask.job).copied();
        let place = entry.map(|entry| (entry, subtask.number));
        for key in &keys {
            let holder = self.holders.insert(*key, subtask).filter(|holder| *holder != subtask);
            let is_held = |holder: &SubtaskId| self.is_current(*holder) && is_held(*holder);
            if let Some(holder) = holder.filter(is_held) {
                violation = Some(OrderViolation::Beside(holder));
            }
            let Some(place) = place else { continue };
            if self.put_last(*key, place).is_some_and(|last| last > place) {
                violation.get_or_insert(OrderViolation::Overtaken);
            }
        }
        if !keys.is_empty() {
            self.open.insert(subtask, UnfinishedSubtask { keys, entry, runs: true });
        }
        violation
    }

    /// Returns true if an open subtask began after the last entry of its job.
    fn is_current(&self, subtask: SubtaskId) -> bool {
        let open = self.open.get(&subtask);
        open.is_some_and(|open| open.entry == self.entries.get(&subtask.job).copied())
    }

    /// Adds a subtask that had begun before the restart and has not ended.
    pub(super) fn restored(&mut self, subtask: SubtaskId, keys: &[Key]) {
        self.begun(subtask, keys, |_| false);
        self.attempt_ended(subtask);
    }

    /// Records the end of an attempt that another one may follow.
    pub(super) fn attempt_ended(&mut self, subtask: SubtaskId) {
        if let Some(open) = self.open.get_mut(&subtask) {
            open.runs = false;
        }
    }

    /// Records the permanent end of a subtask.
    pub(super) fn ended(&mut self, subtask: SubtaskId) {
        let Some(open) = self.open.remove(&subtask) else { return };
        for key in open.keys {
            if self.holders.get(&key) == Some(&subtask) {
                self.holders.remove(&key);
            }
        }
    }

    /// Stores the position of a begin, and returns the previous one of the key. A violation does
    /// not move the position back.
    fn put_last(&mut self, key: KeyHash, place: OrderPosition) -> Option<OrderPosition> {
        let [recent, older] = &mut self.last;
        let before = recent.get(&key).or_else(|| older.get(&key)).copied();
        recent.insert(key, before.map_or(place, |before| before.max(place)));
        if recent.len() >= GENERATION {
            *older = std::mem::take(recent);
        }
        before
    }

    fn hash(&self, key: &Key) -> KeyHash {
        let [high, low] = self.hashers.each_ref().map(|hasher| hasher.hash_one(&key.0));
        u128::from(high) << 64 | u128::from(low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(job: u64, number: u32) -> SubtaskId {
        SubtaskId { job: JobNumber(job), number }
    }

    fn keys(names: &[&str]) -> Vec<Key> {
        names.iter().map(Key::new).collect()
    }

    fn check(jobs: &[u64]) -> OrderCheck {
        let mut check = OrderCheck::default();
        jobs.iter().for_each(|job| check.entered(JobNumber(*job)));
        check
    }

    #[test]
    fn what_is_in_order_is_no_violation() {
        // The second job has entered first.
        let mut check = check(&[2, 1]);
        for (subtask, names) in [
            (of(2, 0), &["a"][..]),
            (of(2, 3), &["a", "b"]),
            (of(1, 0), &["b"]),
            (of(1, 1), &["a"]),
            (of(1, 2), &[]),
        ] {
            for _ in 0..2 {
                assert_eq!(check.begun(subtask, &keys(names), |_| true), None, "{subtask:?}");
                check.attempt_ended(subtask);
            }
            check.ended(subtask);
        }
        assert!(check.open.is_empty() && check.holders.is_empty());
        // A retried job enters behind the others.
        check.entered(JobNumber(2));
        assert_eq!(check.begun(of(2, 0), &keys(&["a"]), |_| true), None);
    }

    #[test]
    fn a_later_one_that_begins_while_an_earlier_one_backs_off_is_seen() {
        let mut check = check(&[1, 2]);
        assert_eq!(check.begun(of(1, 0), &keys(&["a"]), |_| true), None);
        check.attempt_ended(of(1, 0));
        let beside = Some(OrderViolation::Beside(of(1, 0)));
        assert_eq!(check.begun(of(2, 0), &keys(&["b", "a"]), |_| true), beside);
        // The earlier subtask was overtaken.
        check.ended(of(2, 0));
        assert_eq!(check.begun(of(1, 0), &keys(&["a"]), |_| true), Some(OrderViolation::Overtaken));
    }

    #[test]
    fn what_waits_since_before_a_restart_holds_its_keys() {
        let mut check = check(&[1, 2]);
        check.restored(of(1, 3), &keys(&["a", "b"]));
        let beside = Some(OrderViolation::Beside(of(1, 3)));
        assert_eq!(check.begun(of(2, 0), &keys(&["b"]), |_| true), beside);
        check.ended(of(2, 0));
        assert_eq!(check.begun(of(1, 3), &keys(&["a"]), |_| true), None);
        check.ended(of(1, 3));
        assert_eq!(check.begun(of(2, 1), &keys(&["a"]), |_| true), None);
    }

    #[test]
    fn one_that_was_overtaken_before_it_ever_began_is_seen() {
        let mut check = check(&[1, 2]);
        assert_eq!(check.begun(of(2, 0), &keys(&["a"]), |_| true), None);
        check.ended(of(2, 0));
        assert_eq!(check.begun(of(1, 5), &keys(&["a"]), |_| true), Some(OrderViolation::Overtaken));
        check.ended(of(1, 5));
        // Within one job, too.
        assert_eq!(check.begun(of(1, 4), &keys(&["a"]), |_| true), Some(OrderViolation::Overtaken));
    }

    #[test]
    fn one_that_runs_twice_is_seen_and_one_that_was_dropped_is_none() {
        let mut check = check(&[1, 2]);
        assert_eq!(check.begun(of(1, 0), &keys(&["a"]), |_| true), None);
        assert_eq!(check.begun(of(1, 0), &keys(&["a"]), |_| true), Some(OrderViolation::Twice));
        check.attempt_ended(of(1, 0));
        // Its job was cancelled meanwhile.
        assert_eq!(check.begun(of(2, 0), &keys(&["a"]), |_| false), None);
        // Its late end does not release the other subtask's key.
        check.ended(of(1, 0));
        assert_eq!(
            check.begun(of(2, 1), &keys(&["a"]), |_| true),
            Some(OrderViolation::Beside(of(2, 0)))
        );
    }

    #[test]
    fn one_that_was_dropped_holds_no_key_when_its_job_is_taken_up_again() {
        let mut check = check(&[1, 2]);
        assert_eq!(check.begun(of(1, 0), &keys(&["a"]), |_| true), None);
        check.attempt_ended(of(1, 0));
        check.left(JobNumber(1));
        check.entered(JobNumber(1));
        assert_eq!(check.begun(of(2, 0), &keys(&["a"]), |_| true), None);
        check.ended(of(2, 0));
        assert_eq!(check.begun(of(1, 0), &keys(&["a"]), |_| true), None);
    }

    #[test]
    fn old_places_are_forgotten() {
        let mut check = check(&[1]);
        for number in 0..3 * GENERATION as u32 {
            let key = [Key::new(number.to_le_bytes())];
            assert_eq!(check.begun(of(1, number), &key, |_| true), None);
            check.ended(of(1, number));
        }
        assert!(check.last.iter().map(HashMap::len).sum::<usize>() <= 2 * GENERATION);
    }
}
