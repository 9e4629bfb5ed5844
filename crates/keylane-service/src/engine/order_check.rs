//! Checks the order of keys beside the scheduler: `keylane_order_violations_total`.
//!
//! It knows nothing of lanes. It is told which job got its place in the order (in the callbacks of the commits, so in the
//! order of the disk), which subtask begins, and which has ended for good. From that alone:
//!
//! 1. **One at a time, over attempts.** A subtask that has begun and has not ended for good is *open*, also while it backs
//!    off or has stopped its keys. A begin of another subtask with one of its keys is a violation.
//! 2. **Forward.** Of the subtasks with a key, each begins at or behind the place of the one that began before: the place
//!    of its job, and its number there. A begin before that is a violation: the later one has overtaken it.
//!
//! A subtask that is overtaken is so found when it begins itself; one that is lost for ever is not found here.
//! What is dropped with its job has no end of its own: whether an open subtask's job still holds it is asked when it
//! matters. A job that is taken up again enters anew, and holds nothing that was open before.
//!
//! After a restart, what waits for its next attempt, has stopped its keys or has a lease that goes on is open again. Not
//! known are attempts that the end of the process cut off, for their marks do not tell them from attempts of an earlier
//! round of their job, and the places at which keys began before: an overtaking is found if both begins are of one process.
//!
//! Keys are kept as 128 bits of hash. Places of keys are kept for the last [`GENERATION`] keys at least, in two
//! generations; all else goes with the subtasks that are open.

use std::collections::HashMap;
use std::hash::BuildHasher;

use foldhash::quality::RandomState;

use crate::{JobNumber, Key, SubtaskId};

/// Keys after which the older generation of places is forgotten.
const GENERATION: usize = 1 << 16;

/// A key.
type Hash = u128;

/// A place in the order: of the job, and in it.
type Place = (u64, u32);

/// Begins and ends, as they should be.
#[derive(Debug, Default)]
pub(super) struct OrderCheck {
    hashers: [RandomState; 2],
    /// Jobs by the number of their entry into the order.
    entries: HashMap<JobNumber, u64>,
    next_entry: u64,
    /// Subtasks that have begun and not ended for good.
    open: HashMap<SubtaskId, Open>,
    /// Which of them has each key.
    holders: HashMap<Hash, SubtaskId>,
    /// The place at which each key began last: recent keys, and those before them.
    last: [HashMap<Hash, Place>; 2],
}

#[derive(Debug)]
struct Open {
    keys: Box<[Hash]>,
    /// The number of its job's entry when it began.
    entry: Option<u64>,
    runs: bool,
}

/// What was wrong with a begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Violation {
    /// It runs already.
    Twice,
    /// Another subtask of one of its keys is open.
    Beside(SubtaskId),
    /// A later subtask of one of its keys has begun before it.
    Overtaken,
}

impl OrderCheck {
    /// The subtasks of the job stand behind all others from now on.
    pub(super) fn entered(&mut self, job: JobNumber) {
        self.next_entry += 1;
        self.entries.insert(job, self.next_entry);
    }

    /// The job is over.
    pub(super) fn left(&mut self, job: JobNumber) {
        self.entries.remove(&job);
    }

    /// An attempt at a subtask begins. `is_held` says whether the job of an open subtask still has it to do.
    pub(super) fn begun(
        &mut self,
        subtask: SubtaskId,
        keys: &[Key],
        is_held: impl Fn(SubtaskId) -> bool,
    ) -> Option<Violation> {
        let keys: Box<[Hash]> = keys.iter().map(|key| self.hash(key)).collect();
        let mut violation = None;
        if self.open.get(&subtask).is_some_and(|open| open.runs) {
            violation = Some(Violation::Twice);
        }
        let entry = self.entries.get(&subtask.job).copied();
        let place = entry.map(|entry| (entry, subtask.number));
        for key in &keys {
            let holder = self.holders.insert(*key, subtask).filter(|holder| *holder != subtask);
            let is_held = |holder: &SubtaskId| self.is_current(*holder) && is_held(*holder);
            if let Some(holder) = holder.filter(is_held) {
                violation = Some(Violation::Beside(holder));
            }
            let Some(place) = place else { continue };
            if self.put_last(*key, place).is_some_and(|last| last > place) {
                violation.get_or_insert(Violation::Overtaken);
            }
        }
        if !keys.is_empty() {
            self.open.insert(subtask, Open { keys, entry, runs: true });
        }
        violation
    }

    /// Whether an open subtask began after its job entered last.
    fn is_current(&self, subtask: SubtaskId) -> bool {
        let open = self.open.get(&subtask);
        open.is_some_and(|open| open.entry == self.entries.get(&subtask.job).copied())
    }

    /// A subtask had begun before the restart, and waits for its next attempt or an operator.
    pub(super) fn restored(&mut self, subtask: SubtaskId, keys: &[Key]) {
        self.begun(subtask, keys, |_| false);
        self.attempt_ended(subtask);
    }

    /// An attempt has ended, and another follows or an operator decides.
    pub(super) fn attempt_ended(&mut self, subtask: SubtaskId) {
        if let Some(open) = self.open.get_mut(&subtask) {
            open.runs = false;
        }
    }

    /// A subtask has ended for good.
    pub(super) fn ended(&mut self, subtask: SubtaskId) {
        let Some(open) = self.open.remove(&subtask) else { return };
        for key in open.keys {
            if self.holders.get(&key) == Some(&subtask) {
                self.holders.remove(&key);
            }
        }
    }

    /// Notes the place at which a key begins, and returns the last one. A violation does not set it back.
    fn put_last(&mut self, key: Hash, place: Place) -> Option<Place> {
        let [recent, older] = &mut self.last;
        let before = recent.get(&key).or_else(|| older.get(&key)).copied();
        recent.insert(key, before.map_or(place, |before| before.max(place)));
        if recent.len() >= GENERATION {
            *older = std::mem::take(recent);
        }
        before
    }

    fn hash(&self, key: &Key) -> Hash {
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
        // Taken up again, it stands behind.
        check.entered(JobNumber(2));
        assert_eq!(check.begun(of(2, 0), &keys(&["a"]), |_| true), None);
    }

    #[test]
    fn a_later_one_that_begins_while_an_earlier_one_backs_off_is_seen() {
        let mut check = check(&[1, 2]);
        assert_eq!(check.begun(of(1, 0), &keys(&["a"]), |_| true), None);
        check.attempt_ended(of(1, 0));
        let beside = Some(Violation::Beside(of(1, 0)));
        assert_eq!(check.begun(of(2, 0), &keys(&["b", "a"]), |_| true), beside);
        // And the earlier one was overtaken.
        check.ended(of(2, 0));
        assert_eq!(check.begun(of(1, 0), &keys(&["a"]), |_| true), Some(Violation::Overtaken));
    }

    #[test]
    fn what_waits_since_before_a_restart_holds_its_keys() {
        let mut check = check(&[1, 2]);
        check.restored(of(1, 3), &keys(&["a", "b"]));
        let beside = Some(Violation::Beside(of(1, 3)));
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
        assert_eq!(check.begun(of(1, 5), &keys(&["a"]), |_| true), Some(Violation::Overtaken));
        check.ended(of(1, 5));
        // Within a job, too.
        assert_eq!(check.begun(of(1, 4), &keys(&["a"]), |_| true), Some(Violation::Overtaken));
    }

    #[test]
    fn one_that_runs_twice_is_seen_and_one_that_was_dropped_is_none() {
        let mut check = check(&[1, 2]);
        assert_eq!(check.begun(of(1, 0), &keys(&["a"]), |_| true), None);
        assert_eq!(check.begun(of(1, 0), &keys(&["a"]), |_| true), Some(Violation::Twice));
        check.attempt_ended(of(1, 0));
        // Its job was cancelled meanwhile.
        assert_eq!(check.begun(of(2, 0), &keys(&["a"]), |_| false), None);
        // Its late end takes nothing from the other one.
        check.ended(of(1, 0));
        assert_eq!(
            check.begun(of(2, 1), &keys(&["a"]), |_| true),
            Some(Violation::Beside(of(2, 0)))
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
