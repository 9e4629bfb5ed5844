//! Lists of subtasks in the order of their keys: each is built once for all pages of a stream.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::{JobId, SubtaskNumber};

/// Maximum size of the lists of all streams, in bytes. A stream beyond it keeps no list.
const MAX_PINNED_BYTES: usize = 256 * 1024 * 1024;

/// Subtask numbers of a job, by key.
pub(super) type KeyOrder = Arc<[SubtaskNumber]>;

/// Cache of lists. It keeps the last one, because the next page usually follows, and finds those
/// that streams keep.
#[derive(Debug, Default)]
pub(super) struct KeyOrders {
    /// No code that holds this lock unwinds.
    inner: Mutex<CachedOrders>,
}

#[derive(Debug, Default)]
struct CachedOrders {
    last: Option<(OrderName, KeyOrder)>,
    pinned: Vec<(OrderName, Weak<[SubtaskNumber]>)>,
}

/// A job with its number of stored subtasks.
pub(super) type OrderName = (JobId, u32);

impl KeyOrders {
    /// Returns the list with this name. Calls `build` if it is not in memory.
    pub(super) fn find<E>(
        &self,
        name: OrderName,
        build: impl FnOnce() -> Result<KeyOrder, E>,
    ) -> Result<KeyOrder, E> {
        if let Some(known) = self.lock().known(name) {
            return Ok(known);
        }
        let built = build()?;
        let before = self.lock().last.replace((name, Arc::clone(&built)));
        // Outside of the lock: a list may be large.
        drop(before);
        Ok(built)
    }

    /// Registers a list that the caller keeps. Returns `None` if too much is kept by others.
    pub(super) fn pin(&self, name: OrderName, list: &KeyOrder, max: usize) -> Option<KeyOrder> {
        let mut inner = self.lock();
        inner.pinned.retain(|(_, pinned)| pinned.strong_count() > 0);
        let lists: Vec<_> = inner.pinned.iter().filter_map(|(_, list)| list.upgrade()).collect();
        let is_pinned = lists.iter().any(|pinned| Arc::ptr_eq(pinned, list));
        let bytes = lists.iter().chain([list]).map(|list| size_of_val(&**list)).sum::<usize>();
        if !is_pinned && bytes > max {
            return None;
        }
        if !is_pinned {
            inner.pinned.push((name, Arc::downgrade(list)));
        }
        Some(Arc::clone(list))
    }

    /// Registers a list as [`pin`](Self::pin) does, up to the bound of the service.
    pub(super) fn pin_within_bound(&self, name: OrderName, list: &KeyOrder) -> Option<KeyOrder> {
        self.pin(name, list, MAX_PINNED_BYTES)
    }

    fn lock(&self) -> MutexGuard<'_, CachedOrders> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CachedOrders {
    fn known(&self, name: OrderName) -> Option<KeyOrder> {
        let last = self.last.as_ref().filter(|(of, _)| *of == name);
        let pinned = || {
            let mut all = self.pinned.iter().filter(|(of, _)| *of == name);
            all.find_map(|(_, list)| list.upgrade())
        };
        last.map(|(_, list)| Arc::clone(list)).or_else(pinned)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::convert::Infallible;

    use super::*;

    /// Regression: only the last list was kept, so two streams in turn built a list, from all chunks
    /// of a job, for each page.
    #[test]
    fn streams_of_two_jobs_read_in_turns_build_each_list_once() {
        let orders = KeyOrders::default();
        let names = [1, 2].map(|number| (JobId::new(crate::JobNumber(number), 0, 0), 3));
        let built = Cell::new(0);
        let find = |name| {
            let build = || {
                built.set(built.get() + 1);
                Ok::<_, Infallible>(KeyOrder::from([2, 0, 1]))
            };
            let Ok(list) = orders.find(name, build);
            list
        };
        let in_turns = || (0..10).for_each(|_| names.iter().for_each(|name| drop(find(*name))));
        in_turns();
        assert_eq!(built.get(), 20, "without pins");
        let pins = names.map(|name| orders.pin(name, &find(name), 24).expect("both fit"));
        let before = built.get();
        in_turns();
        assert_eq!(built.get(), before);
        // A third list is beyond the bound; another stream of the same job needs no more.
        let third = (names[0].0, 4);
        assert!(orders.pin(third, &find(third), 24).is_none());
        assert!(orders.pin(names[0], &find(names[0]), 24).is_some());
        drop(pins);
        assert!(orders.pin(third, &find(third), 24).is_some());
    }
}
