//! Watches over the contract: that no two tasks that conflict run at the same time, and that the tasks of
//! a key begin in the order of their places.
//!
//! It knows nothing of lanes, and believes nothing that they say but what a task holds. A task is
//! reported when it begins, before its body, and when it ends, before anything is given back.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;

use super::trace::TracedKey;
use crate::sync::{AtomicU64, Mutex, Ordering};

/// How often a pool has broken its word: see [`Builder::self_check`](crate::Builder::self_check).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violations {
    /// Tasks that began after one of the same key that was submitted later, and does not share it with
    /// them.
    pub order: u64,
    /// Tasks that began while one ran that they conflict with.
    pub overlap: u64,
}

impl Violations {
    /// Whether there were none, as there must not be.
    pub fn is_none(&self) -> bool {
        *self == Violations::default()
    }
}

/// Sees every task begin and end.
pub(crate) struct Checker<K> {
    running: Mutex<Running<K>>,
    order: AtomicU64,
    overlap: AtomicU64,
}

struct Running<K> {
    /// Every key that has ever had a task.
    lines: HashMap<K, Line>,
    /// Tasks that run, barriers among them.
    tasks: usize,
    barriers: usize,
}

/// The tasks of a key that run, and the places of those that have begun.
#[derive(Default)]
struct Line {
    shared: usize,
    exclusive: usize,
    /// The highest place of all,
    last: Option<u32>,
    /// and of those that did not share.
    last_exclusive: Option<u32>,
}

impl<K> Default for Checker<K> {
    fn default() -> Self {
        let running = Running { lines: HashMap::new(), tasks: 0, barriers: 0 };
        Checker {
            running: Mutex::new(running),
            order: AtomicU64::new(0),
            overlap: AtomicU64::new(0),
        }
    }
}

impl<K: Hash + Eq + Clone> Checker<K> {
    /// A task with this place begins.
    pub(crate) fn begins(&self, keys: &[TracedKey<K>], is_barrier: bool, place: u32) {
        let mut running = self.running.lock();
        let mut overlaps = if is_barrier { running.tasks != 0 } else { running.barriers != 0 };
        let mut overtakes = false;
        running.tasks += 1;
        running.barriers += usize::from(is_barrier);
        for TracedKey { key, is_shared } in keys {
            let line = running.lines.entry(key.clone()).or_default();
            overlaps |= line.exclusive != 0 || !is_shared && line.shared != 0;
            overtakes |= line.enter(*is_shared, place);
        }
        drop(running);
        if overlaps {
            self.overlap.fetch_add(1, Ordering::Relaxed);
        }
        if overtakes {
            self.order.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// It has ended, and is about to give back what it holds.
    pub(crate) fn ends(&self, keys: &[TracedKey<K>], is_barrier: bool) {
        let mut running = self.running.lock();
        running.tasks = running.tasks.saturating_sub(1);
        running.barriers = running.barriers.saturating_sub(usize::from(is_barrier));
        for TracedKey { key, is_shared } in keys {
            let Some(line) = running.lines.get_mut(key) else { continue };
            let count = if *is_shared { &mut line.shared } else { &mut line.exclusive };
            *count = count.saturating_sub(1);
        }
    }

    pub(crate) fn violations(&self) -> Violations {
        Violations {
            order: self.order.load(Ordering::Relaxed),
            overlap: self.overlap.load(Ordering::Relaxed),
        }
    }
}

impl Line {
    /// Whether somebody with a higher place has begun that this task is in order with.
    fn enter(&mut self, is_shared: bool, place: u32) -> bool {
        *if is_shared { &mut self.shared } else { &mut self.exclusive } += 1;
        let before = if is_shared { self.last_exclusive } else { self.last };
        let overtakes = before.is_some_and(|before| !is_later(place, before));
        if self.last.is_none_or(|last| is_later(place, last)) {
            self.last = Some(place);
        }
        if !is_shared && self.last_exclusive.is_none_or(|last| is_later(place, last)) {
            self.last_exclusive = Some(place);
        }
        overtakes
    }
}

/// Places wrap round.
fn is_later(place: u32, than: u32) -> bool {
    (1..=u32::MAX / 2).contains(&place.wrapping_sub(than))
}

impl<K> fmt::Debug for Checker<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checker").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Keys = &'static [(u32, bool)];

    /// What is found wrong with tasks that begin (with a place) and end in this order.
    fn check(steps: &[(Option<u32>, Keys)]) -> (u64, u64) {
        let checker = Checker::default();
        for (place, keys) in steps {
            let keys: Vec<_> =
                keys.iter().map(|(key, shared)| TracedKey::new(*key, *shared)).collect();
            match place {
                Some(place) => checker.begins(&keys, keys.is_empty(), *place),
                None => checker.ends(&keys, keys.is_empty()),
            }
        }
        let Violations { order, overlap } = checker.violations();
        (order, overlap)
    }

    const A: Keys = &[(1, false)];
    const A_READ: Keys = &[(1, true)];
    const B: Keys = &[(2, false)];
    const BOTH: Keys = &[(1, false), (2, false)];
    const BARRIER: Keys = &[];

    #[test]
    fn what_is_in_order_is_not_reported() {
        let both_readers = [(Some(1), A), (None, A), (Some(3), A_READ), (Some(2), A_READ)];
        assert_eq!(check(&both_readers), (0, 0), "readers begin in any order");
        assert_eq!(
            check(&[(Some(5), A), (Some(1), B), (None, A), (None, B), (Some(6), BOTH)]),
            (0, 0)
        );
        assert_eq!(
            check(&[(Some(u32::MAX), A), (None, A), (Some(0), A)]),
            (0, 0),
            "it wraps round"
        );
        assert_eq!(check(&[(Some(1), A), (None, A), (Some(2), BARRIER), (None, BARRIER)]), (0, 0));
    }

    #[test]
    fn an_overlap_is_reported() {
        assert_eq!(check(&[(Some(1), A), (Some(2), A)]), (0, 1));
        assert_eq!(check(&[(Some(1), A_READ), (Some(2), A)]), (0, 1));
        assert_eq!(check(&[(Some(1), A), (Some(2), A_READ)]), (0, 1));
        assert_eq!(check(&[(Some(1), B), (Some(2), BOTH)]), (0, 1));
        assert_eq!(check(&[(Some(1), B), (Some(2), BARRIER)]), (0, 1));
        assert_eq!(check(&[(Some(1), BARRIER), (Some(2), B)]), (0, 1));
    }

    #[test]
    fn a_wrong_order_is_reported() {
        assert_eq!(check(&[(Some(2), A), (None, A), (Some(1), A)]), (1, 0));
        assert_eq!(check(&[(Some(2), A), (None, A), (Some(1), A_READ)]), (1, 0));
        assert_eq!(check(&[(Some(2), A_READ), (None, A_READ), (Some(1), A)]), (1, 0));
        assert_eq!(check(&[(Some(2), BOTH), (None, BOTH), (Some(1), B)]), (1, 0));
        assert_eq!(check(&[(Some(2), A), (None, A), (Some(2), A)]), (1, 0), "nobody runs twice");
    }
}
