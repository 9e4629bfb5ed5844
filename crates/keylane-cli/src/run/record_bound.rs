//! Bound on the unfinished records of a run with batches, whose tasks have several records each.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;

use crate::key::RecordKey;

/// Counts unfinished records: all, and those of each key.
#[derive(Debug)]
pub(crate) struct RecordBound {
    state: Mutex<BoundState>,
    /// Notifies the reader: a record has ended.
    ended: Condvar,
    max_records: usize,
}

#[derive(Debug, Default)]
struct BoundState {
    records: usize,
    /// Keys with unfinished records.
    keys: HashMap<RecordKey, usize, RandomState>,
}

/// Place of an unfinished record. Its drop frees the place.
#[derive(Debug)]
pub(super) struct RecordPermit {
    bound: Arc<RecordBound>,
    key: RecordKey,
}

impl RecordBound {
    pub(super) fn new(max_records: usize) -> Arc<Self> {
        Arc::new(RecordBound { state: Mutex::default(), ended: Condvar::new(), max_records })
    }

    /// Whether a record can be taken without waiting.
    pub(super) fn has_room(&self) -> bool {
        self.lock().records < self.max_records
    }

    /// Takes a place for a record. Waits until there is one.
    pub(super) fn acquire(self: &Arc<Self>, key: &RecordKey) -> RecordPermit {
        let mut state = self.lock();
        while state.records >= self.max_records {
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.records += 1;
        *state.keys.entry(key.clone()).or_default() += 1;
        RecordPermit { bound: Arc::clone(self), key: key.clone() }
    }

    /// Returns the keys with unfinished records and the numbers of these, the highest first.
    pub(super) fn keys(&self) -> Vec<(RecordKey, usize)> {
        let has_key = |key: &RecordKey| !matches!(key, RecordKey::Unkeyed(_));
        let state = self.lock();
        let keys = state.keys.iter().filter(|(key, _)| has_key(key));
        let mut keys: Vec<_> = keys.map(|(key, count)| (key.clone(), *count)).collect();
        drop(state);
        keys.sort_unstable_by_key(|(_, count)| std::cmp::Reverse(*count));
        keys
    }

    fn lock(&self) -> MutexGuard<'_, BoundState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RecordPermit {
    fn drop(&mut self) {
        let mut state = self.bound.lock();
        state.records -= 1;
        if let Some(count) = state.keys.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                state.keys.remove(&self.key);
            }
        }
        drop(state);
        self.bound.ended.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_without_unfinished_records_is_forgotten() {
        let bound = RecordBound::new(3);
        let [a, b] = ["a", "b"].map(|name| RecordKey::Named(name.as_bytes().into()));
        let (first, second) = (bound.acquire(&a), bound.acquire(&b));
        let third = bound.acquire(&b);
        assert!(!bound.has_room());
        assert_eq!(bound.keys(), [(b.clone(), 2), (a, 1)]);
        drop((first, third));
        assert!(bound.has_room());
        assert_eq!(bound.keys(), [(b, 1)]);
        drop(second);
        assert!(bound.lock().keys.is_empty() && bound.lock().records == 0);
    }
}
