//! Independent check of the key order, behind the metric `keylane_order_violations_total`.
//!
//! The check does not read the lanes. Its input is: the job that got its place in the order (in the
//! callbacks of the commits, so in commit order), the subtask that begins, and the subtask that has
//! ended permanently. From these it verifies:
//!
//! 1. **One at a time, across attempts.** A subtask that has begun and has not ended permanently is
//!    *open*, also while it backs off or has stopped its keys. The begin of another subtask with
//!    one of its keys is a violation, unless both share the key, or both limit it and are not too many.
//! 2. **Forward only.** Of the subtasks with a key, each begins at or after the position of the one
//!    that began before: the position of its job, and its number there. A begin before that
//!    position is a violation: a later subtask has overtaken it. A subtask that shares or limits the key is
//!    compared only with those that do not do the same.
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

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasher;

use foldhash::quality::RandomState;

use crate::{JobNumber, Key, KeyClaim, SubtaskId, TaskKeys};

/// Number of keys after which the older generation of positions is removed.
const GENERATION: usize = 1 << 16;

/// Hash of a key.
type KeyHash = u128;

/// Hashes numbers of the service, and hashes of keys: no client chooses them.
type NumberState = foldhash::fast::RandomState;

/// Use of a key by a subtask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckedUse {
    Exclusive,
    Shared,
    /// At most this number of subtasks at a time.
    Limited(u16),
}

/// Position in the order: of the job, and in the job.
type OrderPosition = (u64, u32);

/// State of the order check.
#[derive(Debug, Default)]
pub(super) struct OrderCheck {
    hashers: [RandomState; 2],
    /// Number of each job's last entry into the order.
    entries: HashMap<JobNumber, u64, NumberState>,
    next_entry: u64,
    /// Subtasks that have begun and not ended permanently.
    open: HashMap<SubtaskId, UnfinishedSubtask, NumberState>,
    /// Open subtask of each key that does not share it.
    holders: HashMap<KeyHash, SubtaskId, NumberState>,
    /// Open subtasks that share a key.
    sharers: HashMap<KeyHash, BTreeSet<SubtaskId>, NumberState>,
    /// Open subtasks that limit a key.
    limited: HashMap<KeyHash, BTreeSet<SubtaskId>, NumberState>,
    /// Positions of the last begins of subtasks that do not share the key.
    last: LastBegins,
    /// Highest positions of the begins of subtasks that share the key.
    last_shared: LastBegins,
    /// Highest positions of the begins of subtasks that limit the key.
    last_limited: LastBegins,
}

/// Highest position of the begins of each key: recent keys, and older ones.
#[derive(Debug, Default)]
struct LastBegins([HashMap<KeyHash, OrderPosition, NumberState>; 2]);

#[derive(Debug)]
struct UnfinishedSubtask {
    /// Keys, and how the subtask uses them.
    keys: Box<[(KeyHash, CheckedUse)]>,
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
        keys: &TaskKeys,
        is_held: impl Fn(SubtaskId) -> bool,
    ) -> Option<OrderViolation> {
        let keys: Box<[(KeyHash, CheckedUse)]> = self.hashed(subtask.job, keys);
        let mut violation = None;
        if self.open.get(&subtask).is_some_and(|open| open.runs) {
            violation = Some(OrderViolation::Twice);
        }
        let entry = self.entries.get(&subtask.job).copied();
        let place = entry.map(|entry| (entry, subtask.number));
        for (key, how) in &keys {
            let beside = self.take_key(*key, *how, subtask, &is_held);
            violation = beside.map(OrderViolation::Beside).or(violation);
            let Some(place) = place else { continue };
            if self.put_last(*key, *how, place).is_some_and(|last| last > place) {
                violation.get_or_insert(OrderViolation::Overtaken);
            }
        }
        if !keys.is_empty() {
            self.open.insert(subtask, UnfinishedSubtask { keys, entry, runs: true });
        }
        violation
    }

    /// Records a subtask as a holder of a key. Returns another one that is open and conflicts with
    /// it.
    fn take_key(
        &mut self,
        key: KeyHash,
        how: CheckedUse,
        subtask: SubtaskId,
        is_held: impl Fn(SubtaskId) -> bool,
    ) -> Option<SubtaskId> {
        let is_open = |check: &Self, other: SubtaskId| {
            other != subtask && check.is_current(other) && is_held(other)
        };
        let holder = match how {
            CheckedUse::Exclusive => self.holders.insert(key, subtask),
            CheckedUse::Shared | CheckedUse::Limited(_) => self.holders.get(&key).copied(),
        };
        let holder = holder.filter(|other| is_open(self, *other));
        // Most services neither share nor limit keys.
        let all_of = |of: &HashMap<KeyHash, BTreeSet<SubtaskId>, NumberState>| -> Vec<SubtaskId> {
            let all = if of.is_empty() { None } else { of.get(&key) };
            all.into_iter().flatten().copied().filter(|other| is_open(self, *other)).collect()
        };
        let (sharers, limited) = (all_of(&self.sharers), all_of(&self.limited));
        let beside = match how {
            CheckedUse::Exclusive => sharers.first().or(limited.first()),
            CheckedUse::Shared => limited.first(),
            CheckedUse::Limited(limit) => sharers.first().or(limited.get(usize::from(limit) - 1)),
        };
        let found = holder.or(beside.copied());
        match how {
            CheckedUse::Exclusive => {
                self.sharers.remove(&key);
                self.limited.remove(&key);
            }
            CheckedUse::Shared => _ = self.sharers.entry(key).or_default().insert(subtask),
            CheckedUse::Limited(_) => _ = self.limited.entry(key).or_default().insert(subtask),
        }
        found
    }

    /// Returns true if an open subtask began after the last entry of its job.
    fn is_current(&self, subtask: SubtaskId) -> bool {
        let open = self.open.get(&subtask);
        open.is_some_and(|open| open.entry == self.entries.get(&subtask.job).copied())
    }

    /// Adds a subtask that had begun before the restart and has not ended.
    pub(super) fn restored(&mut self, subtask: SubtaskId, keys: &TaskKeys) {
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
        for (key, how) in open.keys {
            let all = match how {
                CheckedUse::Exclusive => {
                    if self.holders.get(&key) == Some(&subtask) {
                        self.holders.remove(&key);
                    }
                    continue;
                }
                CheckedUse::Shared => &mut self.sharers,
                CheckedUse::Limited(_) => &mut self.limited,
            };
            if let Some(open) = all.get_mut(&key) {
                open.remove(&subtask);
                if open.is_empty() {
                    all.remove(&key);
                }
            }
        }
    }

    /// Stores the position of a begin, and returns the highest one before it with which it must
    /// not change places. A violation does not move the position back.
    fn put_last(
        &mut self,
        key: KeyHash,
        how: CheckedUse,
        place: OrderPosition,
    ) -> Option<OrderPosition> {
        let OrderCheck { last, last_shared, last_limited, .. } = self;
        match how {
            CheckedUse::Exclusive => {
                last.put(key, place).max(last_shared.get(key)).max(last_limited.get(key))
            }
            CheckedUse::Shared => {
                last_shared.put(key, place);
                last.get(key).max(last_limited.get(key))
            }
            CheckedUse::Limited(_) => {
                last_limited.put(key, place);
                last.get(key).max(last_shared.get(key))
            }
        }
    }

    /// Returns the hashes of the keys. A key that is exclusive, too, is not shared. In a job with
    /// barriers, all subtasks share a key of the job, and a barrier has it alone.
    fn hashed(&self, job: JobNumber, keys: &TaskKeys) -> Box<[(KeyHash, CheckedUse)]> {
        let how = match keys.limit {
            0 => CheckedUse::Exclusive,
            limit => CheckedUse::Limited(limit),
        };
        let exclusive = keys.exclusive.iter().map(|key| (self.hash(key), how));
        let shared = keys.shared.iter().filter(|key| !keys.exclusive.contains(key));
        let of_job = (keys.is_barrier || keys.is_beside_barriers).then(|| {
            let key = [&[KeyClaim::JOB][..], &job.0.to_be_bytes()].concat();
            let is_alone = keys.is_barrier;
            let how = if is_alone { CheckedUse::Exclusive } else { CheckedUse::Shared };
            (self.hash(&Key::new(key)), how)
        });
        let shared = shared.map(|key| (self.hash(key), CheckedUse::Shared));
        exclusive.chain(shared).chain(of_job).collect()
    }

    fn hash(&self, key: &Key) -> KeyHash {
        let [high, low] = self.hashers.each_ref().map(|hasher| hasher.hash_one(&key.0));
        u128::from(high) << 64 | u128::from(low)
    }
}

impl LastBegins {
    fn get(&self, key: KeyHash) -> Option<OrderPosition> {
        let [recent, older] = &self.0;
        recent.get(&key).or_else(|| older.get(&key)).copied()
    }

    /// Raises the position of a key, and returns the previous one.
    fn put(&mut self, key: KeyHash, place: OrderPosition) -> Option<OrderPosition> {
        let [recent, older] = &mut self.0;
        let before = match recent.entry(key) {
            Entry::Occupied(mut last) => {
                let before = *last.get();
                last.insert(before.max(place));
                return Some(before);
            }
            Entry::Vacant(last) => {
                let before = older.get(&key).copied();
                last.insert(before.map_or(place, |before| before.max(place)));
                before
            }
        };
        if recent.len() >= GENERATION {
            *older = std::mem::take(recent);
        }
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(job: u64, number: u32) -> SubtaskId {
        SubtaskId { job: JobNumber(job), number }
    }

    fn keys(names: &[&str]) -> TaskKeys {
        TaskKeys { exclusive: names.iter().map(Key::new).collect(), ..TaskKeys::default() }
    }

    fn shared(names: &[&str]) -> TaskKeys {
        TaskKeys { shared: names.iter().map(Key::new).collect(), ..TaskKeys::default() }
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
    fn those_that_share_a_key_begin_beside_each_other_in_any_order_and_beside_no_other() {
        let mut check = check(&[1, 2, 3]);
        for subtask in [of(1, 1), of(2, 0), of(1, 0)] {
            assert_eq!(check.begun(subtask, &shared(&["a"]), |_| true), None, "{subtask:?}");
        }
        check.ended(of(2, 0));
        let beside = Some(OrderViolation::Beside(of(1, 0)));
        assert_eq!(check.begun(of(2, 1), &keys(&["a"]), |_| true), beside);
        [of(1, 0), of(1, 1)].into_iter().for_each(|subtask| check.ended(subtask));
        let beside = Some(OrderViolation::Beside(of(2, 1)));
        assert_eq!(check.begun(of(3, 0), &shared(&["a"]), |_| true), beside);
        [of(2, 1), of(3, 0)].into_iter().for_each(|subtask| check.ended(subtask));
        // Both are overtaken: an exclusive one by one that shares the key, and the other way round.
        let overtaken = Some(OrderViolation::Overtaken);
        assert_eq!(check.begun(of(2, 5), &keys(&["a"]), |_| true), overtaken);
        check.ended(of(2, 5));
        assert_eq!(check.begun(of(2, 4), &shared(&["a"]), |_| true), overtaken);
        check.ended(of(2, 4));
        assert!(check.open.is_empty() && check.holders.is_empty() && check.sharers.is_empty());
    }

    #[test]
    fn no_more_than_the_limit_begin_beside_each_other_in_any_order_and_beside_no_other() {
        let mut check = check(&[1, 2, 3]);
        let limited = TaskKeys { limit: 2, ..keys(&["a"]) };
        for subtask in [of(1, 3), of(1, 1)] {
            assert_eq!(check.begun(subtask, &limited, |_| true), None, "{subtask:?}");
        }
        let beside = Some(OrderViolation::Beside(of(1, 3)));
        assert_eq!(check.begun(of(1, 4), &limited, |_| true), beside);
        [of(1, 1), of(1, 3)].into_iter().for_each(|subtask| check.ended(subtask));
        assert_eq!(check.begun(of(1, 2), &limited, |_| true), None);
        let beside = Some(OrderViolation::Beside(of(1, 2)));
        assert_eq!(check.begun(of(2, 0), &shared(&["a"]), |_| true), beside);
        check.ended(of(2, 0));
        assert_eq!(check.begun(of(2, 1), &keys(&["a"]), |_| true), beside);
        [of(1, 2), of(1, 4), of(2, 1)].into_iter().for_each(|subtask| check.ended(subtask));
        let overtaken = Some(OrderViolation::Overtaken);
        assert_eq!(check.begun(of(1, 9), &limited, |_| true), overtaken);
        check.ended(of(1, 9));
        assert!(check.open.is_empty() && check.holders.is_empty() && check.limited.is_empty());
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
            let key = keys(&[&number.to_string()]);
            assert_eq!(check.begun(of(1, number), &key, |_| true), None);
            check.ended(of(1, number));
        }
        assert!(check.last.0.iter().map(HashMap::len).sum::<usize>() <= 2 * GENERATION);
    }
}
