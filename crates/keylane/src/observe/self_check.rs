//! Self-check of a pool's guarantees: conflicting tasks do not overlap, and the tasks of a key
//! start in their order.
//!
//! It does not read the lanes, and trusts them only for the claims of a task. The start of a task
//! is reported before its body, and its end before any claim is released.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::Hash;

use super::trace::TraceKey;
use crate::sync::{AtomicU64, Mutex, Ordering};

/// Number of broken guarantees of a pool: see [`Builder::self_check`](crate::Builder::self_check).
#[derive(Debug)]
#[non_exhaustive]
pub struct Violations {
    /// Tasks that started after a later task of a common key, unless both share the key, or both
    /// limit it.
    pub order: u64,
    /// Tasks that started while a conflicting task ran, or while as many tasks used a key as one of
    /// them [permits](crate::Claims::limited).
    pub overlap: u64,
}

impl Violations {
    /// Returns whether no guarantee was broken, as it must be.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().self_check(true).build()?;
    /// pool.execute_many((0..100).map(|n| (n % 10, || ())))?;
    /// pool.shutdown()?;
    /// let violations = pool.inspect().snapshot(0).violations.expect("the check is on");
    /// assert!(violations.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_none(&self) -> bool {
        self.order == 0 && self.overlap == 0
    }
}

/// Checker of all starts and ends of tasks.
pub(crate) struct OrderChecker<K> {
    running: Mutex<RunningTasks<K>>,
    order: AtomicU64,
    overlap: AtomicU64,
}

struct RunningTasks<K> {
    /// Uses of every key that has ever had a task.
    keys: HashMap<K, KeyUse>,
    /// Number of running tasks, including barriers.
    tasks: usize,
    barriers: usize,
}

/// Running tasks of a key, and the positions of the started ones.
#[derive(Default)]
struct KeyUse {
    exclusive: BegunTasks,
    shared: BegunTasks,
    limited: BegunTasks,
    /// Number of running tasks for each limit of concurrent users.
    limits: BTreeMap<u16, usize>,
}

/// Tasks of a key with one kind of use.
#[derive(Default)]
struct BegunTasks {
    /// Number of running tasks.
    running: usize,
    /// Highest position of all started tasks.
    last: Option<u32>,
}

/// Kind of use of a key by a task.
#[derive(Clone, Copy)]
enum UseKind {
    Alone,
    Shared,
    Limited(u16),
}

impl UseKind {
    fn of<K>(traced: &TraceKey<K>) -> Self {
        match (traced.is_shared, traced.most) {
            (_, Some(most)) => UseKind::Limited(most),
            (true, None) => UseKind::Shared,
            (false, None) => UseKind::Alone,
        }
    }
}

impl<K> Default for OrderChecker<K> {
    fn default() -> Self {
        let running = RunningTasks { keys: HashMap::new(), tasks: 0, barriers: 0 };
        OrderChecker {
            running: Mutex::new(running),
            order: AtomicU64::new(0),
            overlap: AtomicU64::new(0),
        }
    }
}

impl<K: Hash + Eq + Clone> OrderChecker<K> {
    /// Checks and records the start of a task with this position. Position 0 is that of a job's
    /// subtask that had its key when the key was paused, and has gone back to the front of the wait
    /// queue: its order was checked when it got the key.
    pub(crate) fn begins(&self, keys: &[TraceKey<K>], is_barrier: bool, position: u32) {
        let mut running = self.running.lock();
        let mut overlaps = if is_barrier { running.tasks != 0 } else { running.barriers != 0 };
        let mut overtakes = false;
        running.tasks += 1;
        running.barriers += usize::from(is_barrier);
        for traced in keys {
            let key_use = running.keys.entry(traced.key.clone()).or_default();
            overlaps |= key_use.overlaps(UseKind::of(traced));
            overtakes |= key_use.enter(UseKind::of(traced), position);
        }
        drop(running);
        if overlaps {
            self.overlap.fetch_add(1, Ordering::Relaxed);
        }
        if overtakes {
            self.order.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Records the end of a task, before its claims are released.
    pub(crate) fn ends(&self, keys: &[TraceKey<K>], is_barrier: bool) {
        let mut running = self.running.lock();
        running.tasks = running.tasks.saturating_sub(1);
        running.barriers = running.barriers.saturating_sub(usize::from(is_barrier));
        for traced in keys {
            if let Some(key_use) = running.keys.get_mut(&traced.key) {
                key_use.leave(UseKind::of(traced));
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
    /// Returns whether a conflicting task runs.
    fn overlaps(&self, how: UseKind) -> bool {
        let (alone, shared) = (self.exclusive.running, self.shared.running);
        let limited = self.limited.running;
        match how {
            UseKind::Alone => alone + shared + limited != 0,
            UseKind::Shared => alone + limited != 0,
            UseKind::Limited(most) => {
                let least = self.limits.keys().next().map_or(most, |least| most.min(*least));
                alone + shared != 0 || limited >= least.into()
            }
        }
    }

    /// Records the start of a task. Returns whether a task with a higher position has started that
    /// must come after this one: any, except those that use the key together with it.
    fn enter(&mut self, how: UseKind, position: u32) -> bool {
        let (own, others) = self.by_use(how);
        let lasts = others.map(|begun| begun.last);
        let alone = matches!(how, UseKind::Alone).then_some(own.last);
        let is_later = |position, before| position == 0 || is_later(position, before);
        let overtakes =
            lasts.into_iter().chain(alone).flatten().any(|before| !is_later(position, before));
        own.running += 1;
        if position != 0 && own.last.is_none_or(|last| is_later(position, last)) {
            own.last = Some(position);
        }
        if let UseKind::Limited(most) = how {
            *self.limits.entry(most).or_default() += 1;
        }
        overtakes
    }

    fn leave(&mut self, how: UseKind) {
        let (own, _) = self.by_use(how);
        own.running = own.running.saturating_sub(1);
        if let UseKind::Limited(most) = how
            && let Entry::Occupied(mut count) = self.limits.entry(most)
        {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    /// Tasks with this kind of use, and those of the two other kinds.
    fn by_use(&mut self, how: UseKind) -> (&mut BegunTasks, [&BegunTasks; 2]) {
        let KeyUse { exclusive, shared, limited, .. } = self;
        match how {
            UseKind::Alone => (exclusive, [shared, limited]),
            UseKind::Shared => (shared, [exclusive, limited]),
            UseKind::Limited(_) => (limited, [exclusive, shared]),
        }
    }
}

/// Compares positions, which wrap around.
fn is_later(position: u32, than: u32) -> bool {
    (1..=u32::MAX / 2).contains(&position.wrapping_sub(than))
}

impl<K> fmt::Debug for OrderChecker<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrderChecker").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Keys = &'static [(u32, UseKind)];

    /// Returns the violations of tasks that start (with a position) and end in this order.
    fn check(steps: &[(Option<u32>, Keys)]) -> (u64, u64) {
        let checker = OrderChecker::default();
        for (position, keys) in steps {
            let traced = |(key, how): &(u32, UseKind)| match how {
                UseKind::Alone => TraceKey::new(*key, false),
                UseKind::Shared => TraceKey::new(*key, true),
                UseKind::Limited(most) => TraceKey::limited(*key, *most),
            };
            let keys: Vec<_> = keys.iter().map(traced).collect();
            match position {
                Some(position) => checker.begins(&keys, keys.is_empty(), *position),
                None => checker.ends(&keys, keys.is_empty()),
            }
        }
        let Violations { order, overlap } = checker.violations();
        (order, overlap)
    }

    const A: Keys = &[(1, UseKind::Alone)];
    const A_READ: Keys = &[(1, UseKind::Shared)];
    const A_OF_TWO: Keys = &[(1, UseKind::Limited(2))];
    const A_OF_THREE: Keys = &[(1, UseKind::Limited(3))];
    const B: Keys = &[(2, UseKind::Alone)];
    const BOTH: Keys = &[(1, UseKind::Alone), (2, UseKind::Alone)];
    const BARRIER: Keys = &[];

    #[test]
    fn correct_orders_are_not_reported() {
        let both_readers = [(Some(1), A), (None, A), (Some(3), A_READ), (Some(2), A_READ)];
        assert_eq!(check(&both_readers), (0, 0), "readers begin in any order");
        assert_eq!(
            check(&[(Some(5), A), (Some(1), B), (None, A), (None, B), (Some(6), BOTH)]),
            (0, 0)
        );
        assert_eq!(
            check(&[(Some(u32::MAX), A), (None, A), (Some(0), A)]),
            (0, 0),
            "positions wrap around"
        );
        assert_eq!(check(&[(Some(1), A), (None, A), (Some(2), BARRIER), (None, BARRIER)]), (0, 0));
    }

    /// Regression test: a subtask that had gone back to its wait queue was taken for a task that
    /// came too late.
    #[test]
    fn a_subtask_that_went_back_to_its_wait_queue_is_in_order() {
        let back = [(Some(1), A), (None, A), (Some(2), A_READ), (None, A_READ), (Some(0), A_READ)];
        assert_eq!(check(&back), (0, 0));
        assert_eq!(check(&[&back[..], &[(None, A_READ), (Some(1), A)]].concat()), (1, 0));
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
    fn the_lowest_limit_of_the_running_tasks_counts() {
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
    fn tasks_that_limit_a_key_are_in_order_with_all_others() {
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
        assert_eq!(check(&[(Some(2), A), (None, A), (Some(2), A)]), (1, 0), "no task runs twice");
    }
}
