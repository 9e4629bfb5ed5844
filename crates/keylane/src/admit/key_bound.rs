//! Limits the unfinished tasks of each key, without letting a submitter that waits for one key
//! delay submitters of other keys.
//!
//! The protocol, and the proof that it loses no permit and does not deadlock, are in `README.md`
//! beside this file.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use crossbeam_utils::CachePadded;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry as TableEntry;

use super::parker::{AdaptiveSpin, ThreadParker, WakeList, WakeTarget};
use super::semaphore::TryAcquireError;
use super::wait_queue::{WaitQueue, WaiterState};
use crate::key_state::ErasedKeyState;
use crate::sync::{AtomicUsize, Lock, LockGuard, Ordering};
use crate::unwind::drop_catch_unwind;

/// Capacity, in entries, that an empty part retains. A larger table is freed.
const MAX_SPARE_ENTRIES: usize = 64;

/// Limit of unfinished tasks for each key. A key has an entry here while it has such tasks, or
/// submitters that wait for a permit or hold one.
pub(crate) struct KeyBound<K> {
    /// Maximum of permits for each key. Never changes.
    limit: usize,
    /// Whether states of keys outlive their tasks: see `kept_states.rs`. Never changes.
    pub(super) keeps_states: bool,
    /// Entries by part. The caller chooses a key's part, always the same one for the same key.
    /// Several parts are locked in ascending order only. No other lock is taken, no waiter woken
    /// and no key dropped under these locks.
    pub(super) parts: Box<[CachePadded<Lock<EntryTable<K>>>]>,
    /// Number of submitters in wait queues. Each changes it after it joins the queues and before it
    /// leaves; statistics read it.
    blocked: AtomicUsize,
    /// Spin limit shared by the threads that wait here.
    spin: AdaptiveSpin,
}

/// One key of a submission, with the location of its entry.
pub(crate) struct KeyRef<'a, K> {
    /// Index of the part. A list of `KeyRef`s is sorted by it and holds each key once.
    pub(crate) part: usize,
    pub(crate) hash: u32,
    pub(crate) key: &'a K,
}

pub(super) struct EntryTable<K> {
    /// Entries with permits in use, with waiters, or with a state that is kept, found by key and
    /// hash.
    pub(super) entries: HashTable<KeyEntry<K>>,
    /// Set once: no further permits are granted.
    pub(super) closed: bool,
}

pub(super) struct KeyEntry<K> {
    hash: u32,
    key: K,
    /// Permits in use: by unfinished tasks, and by submitters whose tasks are not in their inboxes
    /// yet. Above the limit only by tasks submitted from inside a task.
    pub(super) taken: usize,
    /// Number of permits held by submitters whose tasks are not in their inboxes yet.
    entering: usize,
    /// Set while a submitter granted from the wait queue is among the `entering` ones: newcomers
    /// join the queue until its task is in the inbox.
    entering_from_queue: bool,
    /// Submitters that wait for a permit.
    queue: WaitQueue<()>,
    /// State of the key's handler, unless a running task has taken it.
    pub(super) state: Option<ErasedKeyState>,
}

/// Work deferred until all locks are released: waking granted waiters, and dropping keys and states.
/// Dropping this does all of it.
#[must_use = "drop this after the last lock is released"]
pub(crate) struct DeferredWakes<K> {
    _wakes: WakeList,
    _entry: Option<KeyEntry<K>>,
}

/// Locked parts, each with its index.
type LockedParts<'a, K> = [(usize, LockGuard<'a, EntryTable<K>>)];

impl<K: Eq + Clone> KeyBound<K> {
    /// Creates a bound of `limit` permits for each key, at least 1.
    pub(crate) fn new(limit: usize, parts: usize, keeps_states: bool) -> Self {
        let part = || EntryTable { entries: HashTable::new(), closed: false };
        KeyBound {
            limit,
            keeps_states,
            parts: (0..parts).map(|_| CachePadded::new(Lock::new(part()))).collect(),
            blocked: AtomicUsize::new(0),
            spin: AdaptiveSpin::new(),
        }
    }

    /// Takes a permit for each of these keys, or for none: it fails if a newcomer would have to
    /// wait at any of them.
    pub(crate) fn try_acquire(&self, key_refs: &[KeyRef<'_, K>]) -> Result<(), TryAcquireError> {
        self.with_parts(key_refs, |parts| self.acquire_all(parts, key_refs))
    }

    /// Waits for a permit for each of these keys, in the order of arrival at each of them.
    pub(crate) fn acquire(
        &self,
        key_refs: &[KeyRef<'_, K>],
        deadline: Option<Instant>,
    ) -> Result<(), TryAcquireError> {
        match self.try_acquire(key_refs) {
            Err(TryAcquireError::Full) => {}
            result => return result,
        }
        let parkers: Vec<_> = key_refs.iter().map(|_| ThreadParker::new()).collect();
        let wakes = parkers.iter().map(|parker| WakeTarget::Thread(parker.clone())).collect();
        let Some(waiters) = self.enqueue(key_refs, wakes)? else { return Ok(()) };
        let _counted = self.count_blocked();
        parkers.iter().for_each(|parker| parker.wait(&self.spin, deadline));
        self.leave_queues(key_refs, &waiters)
    }

    /// Returns a future that waits for a permit for each of these keys, in the same queues as
    /// threads.
    pub(crate) fn acquire_async<'a>(&'a self, key_refs: &'a [KeyRef<'a, K>]) -> AcquireKeys<'a, K> {
        AcquireKeys { bound: self, key_refs, queued: None }
    }

    /// Takes a permit for each of these keys, exceeding the limit if none is free. For tasks
    /// submitted from inside a task.
    pub(crate) fn force(&self, key_refs: &[KeyRef<'_, K>]) -> Result<(), TryAcquireError> {
        self.with_parts(key_refs, |parts| {
            if parts.iter().any(|(_, part)| part.closed) {
                return Err(TryAcquireError::Closed);
            }
            key_refs
                .iter()
                .for_each(|key_ref| part_of(parts, key_ref).entry_or_insert(key_ref).acquire());
            Ok(())
        })
    }

    /// Takes a permit for each of these keys even if the bound is closed. For subtasks of a job
    /// accepted before the close.
    pub(crate) fn force_accepted(&self, key_refs: &[KeyRef<'_, K>]) {
        self.with_parts(key_refs, |parts| {
            key_refs
                .iter()
                .for_each(|key_ref| part_of(parts, key_ref).entry_or_insert(key_ref).acquire());
        });
    }

    /// Records that a submitter with a permit has put its task into the inbox. Call it under the
    /// inbox's lock, so that the next submitter granted here comes later in the inbox.
    pub(crate) fn entered(&self, key_ref: &KeyRef<'_, K>) -> DeferredWakes<K> {
        self.change(key_ref, KeyEntry::finish_entering).1
    }

    /// Releases the permit of a finished task.
    pub(crate) fn end(&self, key_ref: &KeyRef<'_, K>) -> DeferredWakes<K> {
        self.change(key_ref, |entry| entry.taken -= 1).1
    }

    /// Releases the permits of a submitter that submits no task after all.
    pub(crate) fn release(&self, key_refs: &[KeyRef<'_, K>]) {
        for key_ref in key_refs {
            let leave = |entry: &mut KeyEntry<K>| {
                entry.finish_entering();
                entry.taken -= 1;
            };
            drop(self.change(key_ref, leave));
        }
    }

    /// Refuses all current and future waiters, and drops the states of idle keys.
    pub(crate) fn close(&self) {
        for part in &self.parts {
            let mut wake_list = WakeList::default();
            let mut part = part.lock();
            part.closed = true;
            for entry in &mut part.entries {
                entry.queue.refuse_if(|()| true, &mut wake_list);
            }
            let idle = if self.keeps_states { part.take_idle(|_| true) } else { Vec::new() };
            drop(part);
            wake_list.wake_all();
            drop_entries(idle);
        }
    }

    /// Number of submitters that wait here.
    pub(crate) fn blocked(&self) -> usize {
        self.blocked.load(Ordering::Relaxed)
    }

    /// Number of keys with an entry.
    #[cfg(test)]
    pub(crate) fn entries(&self) -> usize {
        self.parts.iter().map(|part| part.lock().entries.len()).sum()
    }

    /// Steps 1 and 2: takes a permit at each entry, or at none.
    fn acquire_all(
        &self,
        parts: &mut LockedParts<'_, K>,
        key_refs: &[KeyRef<'_, K>],
    ) -> Result<(), TryAcquireError> {
        if parts.iter().any(|(_, part)| part.closed) {
            return Err(TryAcquireError::Closed);
        }
        if !key_refs.iter().all(|key_ref| part_of(parts, key_ref).admits(key_ref, self.limit)) {
            return Err(TryAcquireError::Full);
        }
        key_refs
            .iter()
            .for_each(|key_ref| part_of(parts, key_ref).entry_or_insert(key_ref).acquire());
        Ok(())
    }

    /// Step 2. Joins the wait queue of each entry, or returns `None` if the permits were free.
    fn enqueue(
        &self,
        key_refs: &[KeyRef<'_, K>],
        mut wakes: Vec<WakeTarget>,
    ) -> Result<Option<Vec<usize>>, TryAcquireError> {
        let mut wake_list = WakeList::default();
        // Unused `WakeTarget`s may hold wakers, whose drop runs foreign code: they are dropped with
        // `wakes`, after the locks.
        let queued = self.with_parts(key_refs, |parts| {
            match self.acquire_all(parts, key_refs) {
                Ok(()) => return Ok(None),
                Err(TryAcquireError::Closed) => return Err(TryAcquireError::Closed),
                Err(TryAcquireError::Full) => {}
            }
            let enqueue = |(key_ref, wake): (&KeyRef<'_, K>, WakeTarget)| {
                let entry = part_of(parts, key_ref).entry_or_insert(key_ref);
                let waiter = entry.queue.push_back((), wake);
                entry.grant(self.limit, &mut wake_list);
                waiter
            };
            Ok(Some(key_refs.iter().zip(wakes.drain(..)).map(enqueue).collect()))
        });
        wake_list.wake_all();
        queued
    }

    /// Steps 5 and 6: leaves every queue. Unless all permits were granted, releases those that
    /// were.
    fn leave_queues(
        &self,
        key_refs: &[KeyRef<'_, K>],
        waiters: &[usize],
    ) -> Result<(), TryAcquireError> {
        let leave = |(key_ref, &waiter): (&KeyRef<'_, K>, &usize)| {
            let ((state, wake), deferred) = self.change(key_ref, |entry| {
                let (state, (), wake) = entry.queue.remove(waiter);
                (state, wake)
            });
            drop((wake, deferred));
            state
        };
        let states: Vec<_> = key_refs.iter().zip(waiters).map(leave).collect();
        if states.iter().all(|state| *state == WaiterState::Granted) {
            return Ok(());
        }
        for (key_ref, _) in
            key_refs.iter().zip(&states).filter(|(_, state)| **state == WaiterState::Granted)
        {
            self.release(std::slice::from_ref(key_ref));
        }
        Err(if states.contains(&WaiterState::Refused) {
            TryAcquireError::Closed
        } else {
            TryAcquireError::Full
        })
    }

    /// Changes an existing entry, grants permits that this frees, and removes the entry if it is
    /// unused.
    fn change<R>(
        &self,
        key_ref: &KeyRef<'_, K>,
        change: impl FnOnce(&mut KeyEntry<K>) -> R,
    ) -> (R, DeferredWakes<K>) {
        let mut wake_list = WakeList::default();
        let mut part = self.parts[key_ref.part].lock();
        let keeps_state = self.keeps_states && !part.closed;
        let Ok(mut found) = part.entries.find_entry(spread(key_ref.hash), |e| e.is_of(key_ref))
        else {
            unreachable!("an entry stays while it has permits in use or waiters")
        };
        let result = change(found.get_mut());
        found.get_mut().grant(self.limit, &mut wake_list);
        let stays = found.get().state.is_some() && keeps_state;
        let entry = (found.get().is_unused() && !stays).then(|| found.remove().0);
        if part.entries.is_empty() && part.entries.capacity() > MAX_SPARE_ENTRIES {
            part.entries = HashTable::new();
        }
        drop(part);
        (result, DeferredWakes { _wakes: wake_list, _entry: entry })
    }

    /// Locks the parts of these keys.
    fn with_parts<R>(
        &self,
        key_refs: &[KeyRef<'_, K>],
        section: impl FnOnce(&mut LockedParts<'_, K>) -> R,
    ) -> R {
        if let [key_ref] = key_refs {
            return section(&mut [(key_ref.part, self.parts[key_ref.part].lock())]);
        }
        debug_assert!(key_refs.is_sorted_by_key(|key_ref| key_ref.part));
        let mut parts: Vec<(usize, LockGuard<'_, EntryTable<K>>)> =
            Vec::with_capacity(key_refs.len());
        for key_ref in key_refs {
            if parts.last().is_none_or(|(last, _)| *last != key_ref.part) {
                parts.push((key_ref.part, self.parts[key_ref.part].lock()));
            }
        }
        section(&mut parts)
    }

    fn count_blocked(&self) -> BlockedCount<'_, K> {
        self.blocked.fetch_add(1, Ordering::Relaxed);
        BlockedCount(self)
    }
}

fn part_of<'a, K>(
    parts: &'a mut LockedParts<'_, K>,
    key_ref: &KeyRef<'_, K>,
) -> &'a mut EntryTable<K> {
    let found = parts.binary_search_by_key(&key_ref.part, |(part, _)| *part);
    &mut parts[found.expect("the parts of all key_refs are locked")].1
}

impl<K: Eq + Clone> EntryTable<K> {
    /// Removes the entries without permits and waiters whose state is chosen.
    pub(super) fn take_idle(
        &mut self,
        is_it: impl FnMut(&ErasedKeyState) -> bool,
    ) -> Vec<KeyEntry<K>> {
        let mut is_it = is_it;
        let is_idle = |entry: &mut KeyEntry<K>| {
            entry.is_unused() && entry.state.as_ref().is_some_and(&mut is_it)
        };
        let idle = self.entries.extract_if(is_idle).collect();
        if self.entries.is_empty() && self.entries.capacity() > MAX_SPARE_ENTRIES {
            self.entries = HashTable::new();
        }
        idle
    }

    /// Returns whether a newcomer gets a permit without waiting.
    fn admits(&self, key_ref: &KeyRef<'_, K>, limit: usize) -> bool {
        let found = self.entries.find(spread(key_ref.hash), |entry| entry.is_of(key_ref));
        found.is_none_or(|entry| {
            entry.taken < limit && !entry.entering_from_queue && entry.queue.is_empty()
        })
    }

    fn entry_or_insert(&mut self, key_ref: &KeyRef<'_, K>) -> &mut KeyEntry<K> {
        let hash = spread(key_ref.hash);
        let rehash = |entry: &KeyEntry<K>| spread(entry.hash);
        match self.entries.entry(hash, |entry| entry.is_of(key_ref), rehash) {
            TableEntry::Occupied(found) => found.into_mut(),
            TableEntry::Vacant(vacant) => {
                let key = key_ref.key.clone();
                let queue = WaitQueue::default();
                let entry = KeyEntry {
                    hash: key_ref.hash,
                    key,
                    taken: 0,
                    entering: 0,
                    entering_from_queue: false,
                    queue,
                    state: None,
                };
                vacant.insert(entry).into_mut()
            }
        }
    }
}

impl<K: Eq> KeyEntry<K> {
    pub(super) fn is_of(&self, key_ref: &KeyRef<'_, K>) -> bool {
        self.hash == key_ref.hash && self.key == *key_ref.key
    }

    /// Takes a permit for a submitter whose task is not in its inbox yet.
    fn acquire(&mut self) {
        self.taken += 1;
        self.entering += 1;
    }

    /// Step 3: the task of one such submitter is in its inbox, or the submitter has given up.
    fn finish_entering(&mut self) {
        self.entering -= 1;
        if self.entering == 0 {
            self.entering_from_queue = false;
        }
    }

    /// Step 4: grants a permit to the head of the queue if one is free and no other submitter is
    /// `entering`.
    fn grant(&mut self, limit: usize, wake_list: &mut WakeList) {
        if self.entering == 0 && self.taken < limit && !self.queue.is_empty() {
            self.queue.resolve_head(WaiterState::Granted, wake_list);
            self.acquire();
            self.entering_from_queue = true;
        }
    }

    fn is_unused(&self) -> bool {
        self.taken == 0 && self.queue.is_unused()
    }
}

/// Future of a wait for permits. Dropped before it is ready, it leaves the queues and releases what
/// it was granted.
pub(crate) struct AcquireKeys<'a, K: Eq + Clone> {
    bound: &'a KeyBound<K>,
    key_refs: &'a [KeyRef<'a, K>],
    /// Waiter in the queue of each entry, once the future has joined them.
    queued: Option<(Vec<usize>, BlockedCount<'a, K>)>,
}

impl<K: Eq + Clone> AcquireKeys<'_, K> {
    /// Returns whether any of the waiters still waits, and updates the waker of those that do.
    fn poll_waiters(&self, waiters: &[usize], cx: &Context<'_>) -> bool {
        let mut waits = false;
        for (key_ref, &waiter) in self.key_refs.iter().zip(waiters) {
            // Cloned before the lock is taken and dropped after it: wakers run foreign code.
            let wake = WakeTarget::Task(cx.waker().clone());
            let (outdated, deferred) = self.bound.change(key_ref, |entry| {
                let waits = entry.queue.state(waiter) == WaiterState::Waiting;
                if waits { Ok(entry.queue.replace_wake(waiter, wake)) } else { Err(wake) }
            });
            drop(deferred);
            waits |= outdated.is_ok();
        }
        waits
    }
}

impl<K: Eq + Clone> Future for AcquireKeys<'_, K> {
    type Output = Result<(), TryAcquireError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.queued.is_none() {
            match self.bound.try_acquire(self.key_refs) {
                Err(TryAcquireError::Full) => {}
                result => return Poll::Ready(result),
            }
            let wakes =
                self.key_refs.iter().map(|_| WakeTarget::Task(cx.waker().clone())).collect();
            match self.bound.enqueue(self.key_refs, wakes) {
                Ok(Some(waiters)) => self.queued = Some((waiters, self.bound.count_blocked())),
                Ok(None) => return Poll::Ready(Ok(())),
                Err(refused) => return Poll::Ready(Err(refused)),
            }
        }
        let Some((waiters, counted)) = self.queued.take() else {
            unreachable!("the future has joined the queues, or has returned above")
        };
        if self.poll_waiters(&waiters, cx) {
            self.queued = Some((waiters, counted));
            return Poll::Pending;
        }
        Poll::Ready(self.bound.leave_queues(self.key_refs, &waiters))
    }
}

impl<K: Eq + Clone> Drop for AcquireKeys<'_, K> {
    fn drop(&mut self) {
        if let Some((waiters, _counted)) = self.queued.take()
            && self.bound.leave_queues(self.key_refs, &waiters).is_ok()
        {
            self.bound.release(self.key_refs);
        }
    }
}

/// Keeps `blocked` raised for the duration of a wait.
struct BlockedCount<'a, K>(&'a KeyBound<K>);

impl<K> Drop for BlockedCount<'_, K> {
    fn drop(&mut self) {
        self.0.blocked.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Drops removed entries: their keys and states are the user's.
pub(super) fn drop_entries<K>(entries: Vec<KeyEntry<K>>) {
    entries.into_iter().for_each(drop_catch_unwind);
}

/// Spreads a 32-bit hash over 64 bits: the table uses the highest bits, which would all be zero.
pub(super) fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl<K> fmt::Debug for KeyBound<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyBound").field("limit", &self.limit).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn key_ref(key: &u32) -> KeyRef<'_, u32> {
        KeyRef { part: *key as usize % 2, hash: 7, key }
    }

    /// Every path that creates or removes an entry, with keys of equal hash.
    #[test]
    fn an_idle_key_has_no_entry() {
        let bound = KeyBound::<u32>::new(1, 2, false);
        let past = Some(Instant::now());
        for _ in 0..3 {
            assert_eq!(bound.try_acquire(&[key_ref(&2), key_ref(&4), key_ref(&1)]), Ok(()));
            assert_eq!(bound.entries(), 3);
            assert_eq!(bound.try_acquire(&[key_ref(&6), key_ref(&4)]), Err(TryAcquireError::Full));
            assert_eq!(
                bound.acquire(&[key_ref(&6), key_ref(&1)], past),
                Err(TryAcquireError::Full)
            );
            assert_eq!(bound.entries(), 3, "a try and a timeout leave nothing at the other key");
            let many: Vec<u32> = (10..1_000).filter(|key| key % 2 == 0).collect();
            let many: Vec<_> = many.iter().map(key_ref).collect();
            assert_eq!(bound.try_acquire(&many), Ok(()));
            bound.release(&many);
            for key in [2, 4, 1] {
                drop(bound.entered(&key_ref(&key)));
                drop(bound.end(&key_ref(&key)));
            }
            assert_eq!(bound.entries(), 0);
        }
        let kept = bound.parts.iter().map(|part| part.lock().entries.capacity()).max();
        assert!(kept <= Some(MAX_SPARE_ENTRIES), "{kept:?}");
    }

    /// The next waiter is granted only when the task of the one before is in its inbox.
    #[test]
    fn waiters_enter_in_the_order_of_their_grants() {
        let bound = KeyBound::<u32>::new(2, 2, false);
        let here = [key_ref(&1)];
        (0..2).for_each(|_| assert_eq!(bound.try_acquire(&here), Ok(())));
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let [mut first, mut second] = [0, 1].map(|_| Box::pin(bound.acquire_async(&here)));
        assert!(first.as_mut().poll(&mut cx).is_pending());
        assert!(second.as_mut().poll(&mut cx).is_pending());
        // Both tasks finish, the first of them before the other is in its inbox.
        drop(bound.entered(&here[0]));
        drop(bound.end(&here[0]));
        assert!(
            first.as_mut().poll(&mut cx).is_pending(),
            "an earlier submitter has not enqueued its task yet"
        );
        assert_eq!(
            bound.try_acquire(&here),
            Err(TryAcquireError::Full),
            "a permit is free, but waiters come first"
        );
        drop(bound.entered(&here[0]));
        drop(bound.end(&here[0]));
        assert!(second.as_mut().poll(&mut cx).is_pending(), "the permit belongs to the first");
        assert!(first.as_mut().poll(&mut cx).is_ready());
        assert!(second.as_mut().poll(&mut cx).is_pending(), "the first has not enqueued its task");
        assert_eq!(
            bound.try_acquire(&here),
            Err(TryAcquireError::Full),
            "a newcomer must not overtake the second"
        );
        drop(bound.entered(&here[0]));
        assert!(second.as_mut().poll(&mut cx).is_ready());
        drop((first, second));
        bound.release(&here);
        drop(bound.end(&here[0]));
        assert_eq!((bound.entries(), bound.blocked()), (0, 0));
    }
}
