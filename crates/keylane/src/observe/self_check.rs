//! Watches over the contract: that no two tasks that conflict run at the same time, and that the tasks of
//! a key begin in the order of their places.
//!
//! It knows nothing of lanes, and believes nothing that they say but what a task holds. A task is
//! reported when it begins, before its body, and when it ends, before anything is given back.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::Hash;

use super::trace::TraceKey;
use crate::sync::{AtomicU64, Mutex, Ordering};

/// How often a pool has broken its word: see [`Builder::self_check`](crate::Builder::self_check).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violations {
    /// Tasks that began after one of the same key that was submitted later, and does not share it with
    /// them; or limit it, as they do.
    pub order: u64,
    /// Tasks that began while one ran that they conflict with, or while as many ran as one of them
    /// [lets use](crate::Claims::limited) the key at once.
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
    running: Mutex<RunningTasks<K>>,
    order: AtomicU64,
    overlap: AtomicU64,
}

struct RunningTasks<K> {
    /// Every key that has ever had a task.
    keys: HashMap<K, KeyUse>,
    /// Tasks that run, barriers among them.
    tasks: usize,
    barriers: usize,
}

/// The tasks of a key that run, and the places of those that have begun.
#[derive(Default)]
struct KeyUse {
    exclusive: Begun,
    shared: Begun,
    limited: Begun,
    /// How many of those run that let so many use the key at once.
    limits: BTreeMap<u16, usize>,
}

/// Those tasks of a key that use it in one way.
#[derive(Default)]
struct Begun {
    /// How many run.
    running: usize,
    /// The highest place of all that have begun.
    last: Option<u32>,
}

/// How a task uses a key.
#[derive(Clone, Copy)]
enum Use {
    Alone,
    Shared,
    Limited(u16),
}

impl Use {
    fn of<K>(traced: &TraceKey<K>) -> Self {
        match (traced.is_shared, traced.most) {
            (_, Some(most)) => Use::Limited(most),
            (true, None) => Use::Shared,
            (false, None) => Use::Alone,
        }
    }
}

impl<K> Default for Checker<K> {
    fn default() -> Self {
        let running = RunningTasks { keys: HashMap::new(), tasks: 0, barriers: 0 };
        Checker {
            running: Mutex::new(running),
            order: AtomicU64::new(0),
            overlap: AtomicU64::new(0),
        }
    }
}

impl<K: Hash + Eq + Clone> Checker<K> {
    /// A task with this place begins.
    pub(crate) fn begins(&self, keys: &[TraceKey<K>], is_barrier: bool, place: u32) {
        let mut running = self.running.lock();
        let mut overlaps = if is_barrier { running.tasks != 0 } else { running.barriers != 0 };
        let mut overtakes = false;
        running.tasks += 1;
        running.barriers += usize::from(is_barrier);
        for traced in keys {
            let line = running.keys.entry(traced.key.clone()).or_default();
            overlaps |= line.overlaps(Use::of(traced));
            overtakes |= line.enter(Use::of(traced), place);
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
    pub(crate) fn ends(&self, keys: &[TraceKey<K>], is_barrier: bool) {
        let mut running = self.running.lock();
        running.tasks = running.tasks.saturating_sub(1);
        running.barriers = running.barriers.saturating_sub(usize::from(is_barrier));
        for traced in keys {
            if let Some(line) = running.keys.get_mut(&traced.key) {
                line.leave(Use::of(traced));
            }
        }
    }

    pub(crate) fn violations(&self) -> Violations {
        Violations {
            order: self.order.load(Ordering::Relaxed),
            overlap: self.overlap.load(Ordering::Relaxed),
        }
    }
}

impl KeyUse {
    /// Whether one runs that a task must not run beside.
    fn overlaps(&self, how: Use) -> bool {
        let (alone, shared) = (self.exclusive.running, self.shared.running);
        let limited = self.limited.running;
        match how {
            Use::Alone => alone + shared + limited != 0,
            Use::Shared => alone + limited != 0,
            Use::Limited(most) => {
                let least = self.limits.keys().next().map_or(most, |least| most.min(*least));
                alone + shared != 0 || limited >= least.into()
            }
        }
    }

    /// Notes that a task begins. Returns whether somebody with a higher place has begun that this task is in
    /// order with: anybody, but for those that use the key together with it.
    fn enter(&mut self, how: Use, place: u32) -> bool {
        let (own, others) = self.by_use(how);
        let lasts = others.map(|begun| begun.last);
        let alone = matches!(how, Use::Alone).then_some(own.last);
        let overtakes =
            lasts.into_iter().chain(alone).flatten().any(|before| !is_later(place, before));
        own.running += 1;
        if own.last.is_none_or(|last| is_later(place, last)) {
            own.last = Some(place);
        }
        if let Use::Limited(most) = how {
            *self.limits.entry(most).or_default() += 1;
        }
        overtakes
    }

    fn leave(&mut self, how: Use) {
        let (own, _) = self.by_use(how);
        own.running = own.running.saturating_sub(1);
        if let Use::Limited(most) = how
            && let Entry::Occupied(mut count) = self.limits.entry(most)
        {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    /// Those that use the key in this way, and the two kinds of others.
    fn by_use(&mut self, how: Use) -> (&mut Begun, [&Begun; 2]) {
        let KeyUse { exclusive, shared, limited, .. } = self;
        match how {
            Use::Alone => (exclusive, [shared, limited]),
            Use::Shared => (shared, [exclusive, limited]),
            Use::Limited(_) => (limited, [exclusive, shared]),
        }
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

    type Keys = &'static [(u32, Use)];

    /// What is found wrong with tasks that begin (with a place) and end in this order.
    fn check(steps: &[(Option<u32>, Keys)]) -> (u64, u64) {
        let checker = Checker::default();
        for (place, keys) in steps {
            let traced = |(key, how): &(u32, Use)| match how {
                Use::Alone => TraceKey::new(*key, false),
                Use::Shared => TraceKey::new(*key, true),
                Use::Limited(most) => TraceKey::limited(*key, *most),
            };
            let keys: Vec<_> = keys.iter().map(traced).collect();
            match place {
                Some(place) => checker.begins(&keys, keys.is_empty(), *place),
                None => checker.ends(&keys, keys.is_empty()),
            }
        }
        let Violations { order, overlap } = checker.violations();
        (order, overlap)
    }

    const A: Keys = &[(1, Use::Alone)];
    const A_READ: Keys = &[(1, Use::Shared)];
    const A_OF_TWO: Keys = &[(1, Use::Limited(2))];
    const A_OF_THREE: Keys = &[(1, Use::Limited(3))];
    const B: Keys = &[(2, Use::Alone)];
    const BOTH: Keys = &[(1, Use::Alone), (2, Use::Alone)];
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
    fn no_more_than_the_least_of_them_lets_run_together() {
        let (two, three) = (A_OF_TWO, A_OF_THREE);
        let in_time = [(Some(1), two), (Some(2), two), (None, two), (Some(3), two), (None, two)];
        assert_eq!(check(&in_time), (0, 0));
        assert_eq!(check(&[(Some(1), two), (Some(2), two), (Some(3), two)]), (0, 1));
        assert_eq!(check(&[(Some(1), three), (Some(2), three), (Some(3), two)]), (0, 1));
        assert_eq!(check(&[(Some(1), two), (Some(2), three), (Some(3), three)]), (0, 1));
        let wide_again = [(Some(1), two), (Some(2), three), (None, two), (Some(3), three)];
        assert_eq!(check(&[&wide_again[..], &[(Some(4), three)]].concat()), (0, 0));
        assert_eq!(check(&[(Some(1), two), (Some(2), A_READ)]), (0, 1));
        assert_eq!(check(&[(Some(1), A_READ), (Some(2), two)]), (0, 1));
        assert_eq!(check(&[(Some(1), two), (Some(2), A)]), (0, 1));
        assert_eq!(check(&[(Some(1), A), (Some(2), two)]), (0, 1));
    }

    #[test]
    fn those_that_limit_a_key_are_in_order_with_all_others() {
        assert_eq!(check(&[(Some(2), A_OF_TWO), (Some(1), A_OF_TWO)]), (0, 0), "not with these");
        assert_eq!(check(&[(Some(2), A_OF_TWO), (None, A_OF_TWO), (Some(1), A)]), (1, 0));
        assert_eq!(check(&[(Some(2), A), (None, A), (Some(1), A_OF_TWO)]), (1, 0));
        assert_eq!(check(&[(Some(2), A_READ), (None, A_READ), (Some(1), A_OF_TWO)]), (1, 0));
        assert_eq!(check(&[(Some(2), A_OF_TWO), (None, A_OF_TWO), (Some(1), A_READ)]), (1, 0));
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
