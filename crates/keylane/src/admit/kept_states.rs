//! States of keys: values that a handler keeps for each key, in the key's entry of the bound.
//!
//! A key's entry exists while the key has unfinished tasks, and every way of a task out of the pool
//! passes it. So the state ends with the last task, and no second count is needed.
//!
//! # Protocol
//! Each step is one section under the lock of the entry's part. No state is created, used or dropped
//! under it.
//! 1. Take: the handler of a running task takes the state out, or creates one if there is none.
//! 2. Put: before its turn ends, it puts the state back if the key has another unfinished task, or
//!    if states outlive their tasks and the bound is open. Otherwise the caller drops the state, in
//!    the turn.
//! 3. End: the last permit of a key removes the entry. If the entry has a state, because the tasks
//!    behind the last one that ran were taken or cancelled, the caller drops it. If states outlive
//!    their tasks, the entry stays with its state.
//! 4. Expiry: an entry without permits and waiters whose state was used too long ago is removed.
//! 5. Close: all such entries are removed, and from then on step 2 keeps no state alone.
//!
//! # Why two threads never use one state
//! Steps 1 and 2 are those of one turn, and a turn of a message holds its key exclusively. Steps 3
//! to 5 remove a state only with its entry, while the key has no permit: a running task has one.
//!
//! # Why no task misses the state of the task before it
//! A task that was accepted before step 2 has a permit, so the state is put back. One that comes
//! later finds the state of step 2, or comes after its drop and creates a new one.
//!
//! # Why each state is dropped once
//! It has one owner: its entry, or the thread that took it or the entry out. A panic of the handler
//! leaves it with the thread that runs the handler, which drops it.

use super::key_bound::{KeyBound, KeyRef, drop_entries, spread};
use crate::key_state::ErasedKeyState;

impl<K: Eq + Clone> KeyBound<K> {
    /// Step 1, for a running task of the key.
    pub(crate) fn take_state(&self, key_ref: &KeyRef<'_, K>) -> Option<ErasedKeyState> {
        let mut part = self.parts[key_ref.part].lock();
        part.entries.find_mut(spread(key_ref.hash), |it| it.is_of(key_ref))?.state.take()
    }

    /// Step 2, for a running task of the key. Returns the state if it ends with the task.
    pub(crate) fn put_state(
        &self,
        key_ref: &KeyRef<'_, K>,
        mut state: ErasedKeyState,
        now: u64,
    ) -> Option<ErasedKeyState> {
        state.set_last_use(now);
        let mut part = self.parts[key_ref.part].lock();
        let keeps = self.keeps_states && !part.closed;
        let entry = part.entries.find_mut(spread(key_ref.hash), |it| it.is_of(key_ref));
        // Of the permits in use, one is that of the caller's task.
        match entry.filter(|entry| keeps || entry.taken > 1) {
            Some(entry) => entry.state.replace(state),
            None => Some(state),
        }
    }

    /// Step 4: drops the states of idle keys that were last used at `until` or before. Returns the
    /// earliest last use among those left.
    pub(crate) fn expire_states(&self, until: u64) -> Option<u64> {
        let mut earliest: Option<u64> = None;
        for part in &self.parts {
            let mut part = part.lock();
            let expired = part.take_idle(|state| {
                let last_use = state.last_use();
                if last_use > until {
                    earliest = Some(earliest.map_or(last_use, |other| other.min(last_use)));
                }
                last_use <= until
            });
            drop(part);
            drop_entries(expired);
        }
        earliest
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn key_ref(key: &u32) -> KeyRef<'_, u32> {
        KeyRef { part: 0, hash: *key, key }
    }

    /// Bound on which `tasks` tasks of key 7 have entered.
    fn bound(keeps_states: bool, tasks: usize) -> KeyBound<u32> {
        let bound = KeyBound::new(usize::MAX, 1, keeps_states);
        for _ in 0..tasks {
            assert_eq!(bound.try_acquire(&[key_ref(&7)]), Ok(()));
            drop(bound.entered(&key_ref(&7)));
        }
        bound
    }

    #[test]
    fn a_state_stays_while_another_task_of_its_key_is_unfinished() {
        let (bound, counted) = (bound(false, 2), Arc::new(()));
        assert!(bound.take_state(&key_ref(&7)).is_none());
        assert!(bound.put_state(&key_ref(&7), ErasedKeyState::new(counted.clone()), 0).is_none());
        drop(bound.end(&key_ref(&7)));
        let state = bound.take_state(&key_ref(&7)).expect("the second task finds the state");
        let last = bound.put_state(&key_ref(&7), state, 0).expect("no task is left");
        drop(bound.end(&key_ref(&7)));
        assert_eq!((bound.entries(), Arc::strong_count(&counted)), (0, 2));
        last.end();
        assert_eq!(Arc::strong_count(&counted), 1);
    }

    #[test]
    fn a_state_ends_with_the_last_task_that_does_not_run() {
        let (bound, counted) = (bound(false, 2), Arc::new(()));
        assert!(bound.put_state(&key_ref(&7), ErasedKeyState::new(counted.clone()), 0).is_none());
        drop(bound.end(&key_ref(&7)));
        assert_eq!(Arc::strong_count(&counted), 2);
        drop(bound.end(&key_ref(&7)));
        assert_eq!((bound.entries(), Arc::strong_count(&counted)), (0, 1));
    }

    #[test]
    fn idle_states_expire_and_end_when_the_bound_is_closed() {
        let (bound, counted) = (bound(true, 1), Arc::new(()));
        assert!(bound.put_state(&key_ref(&7), ErasedKeyState::new(counted.clone()), 5).is_none());
        assert_eq!(bound.expire_states(9), None);
        assert_eq!(Arc::strong_count(&counted), 2, "its task is unfinished");
        drop(bound.end(&key_ref(&7)));
        assert_eq!(bound.expire_states(4), Some(5));
        assert_eq!((bound.expire_states(5), Arc::strong_count(&counted)), (None, 1));
        assert_eq!(bound.entries(), 0);

        assert_eq!(bound.try_acquire(&[key_ref(&7)]), Ok(()));
        drop(bound.entered(&key_ref(&7)));
        assert!(bound.put_state(&key_ref(&7), ErasedKeyState::new(counted.clone()), 6).is_none());
        drop(bound.end(&key_ref(&7)));
        bound.close();
        assert_eq!((bound.entries(), Arc::strong_count(&counted)), (0, 1));
    }
}
