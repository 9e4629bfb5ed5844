//! A bound on the unfinished tasks of each key: whoever is beyond it waits at the *entry* of that
//! key, first come, first served, and stands in nobody else's way.
//!
//! `README.md` beside this file has the protocol and the reason why it neither loses a place nor
//! deadlocks.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use crossbeam_utils::CachePadded;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry as TableEntry;

use super::parker::{AdaptiveSpin, ThreadParker, Wake, WakeList};
use super::semaphore::TryAcquireError;
use super::wait_queue::{WaitQueue, WaiterState};
use crate::sync::{AtomicUsize, Lock, LockGuard, Ordering};

/// Entrances for which a part keeps memory when it has none. What a rush needed beyond them is given
/// back.
const MAX_SPARE_ENTRIES: usize = 64;

/// Bounds the unfinished tasks of each key. A key has an entry here while it has such tasks, or
/// somebody on the way to become one.
pub(crate) struct KeyBound<K> {
    /// Places that each key has. Never changed.
    limit: usize,
    /// The entries. A key's part is chosen by the caller, always the same for the same key. Several
    /// are locked only in ascending order; nothing else is locked, told or dropped under the lock.
    parts: Box<[CachePadded<Lock<EntryTable<K>>>]>,
    /// Submitters that stand at entries. Changed by them, after they have come to stand there and
    /// before they leave, and read by whoever looks at the pool.
    blocked: AtomicUsize,
    /// How the threads in the lines wait.
    spin: AdaptiveSpin,
}

/// One key of a submitter or a task: where its entry is.
pub(crate) struct KeyRef<'a, K> {
    /// Which part. Of several key_refs those with a smaller one come first, and no key comes twice.
    pub(crate) part: usize,
    pub(crate) hash: u32,
    pub(crate) key: &'a K,
}

struct EntryTable<K> {
    /// Those of keys with a place taken or a place in the line. Found by the key and its hash.
    entries: HashTable<KeyEntry<K>>,
    /// Nobody is let in any more. Set once.
    closed: bool,
}

struct KeyEntry<K> {
    hash: u32,
    key: K,
    /// Places that are taken: by tasks that have not ended, and by submitters on their way in. Above
    /// the bound only by what tasks have submitted from inside.
    taken: usize,
    /// How many of those are on their way in: their tasks are not in their inboxes yet.
    entering: usize,
    /// One of them has stood in the line: whoever comes now stands behind it, until it is in.
    in_turn: bool,
    /// Who waits for a place.
    queue: WaitQueue<()>,
}

/// What is to be done after all locks are released: telling those who were let in, and dropping keys.
/// Dropping this does it.
#[must_use = "it is to be dropped after the last lock is released"]
pub(crate) struct DeferredWakes<K> {
    _wakes: WakeList,
    _key: Option<K>,
}

/// Several parts under their locks, each with its index.
type LockedParts<'a, K> = [(usize, LockGuard<'a, EntryTable<K>>)];

impl<K: Eq + Clone> KeyBound<K> {
    /// `most` places for each key, at least one.
    pub(crate) fn new(limit: usize, parts: usize) -> Self {
        let part = || EntryTable { entries: HashTable::new(), closed: false };
        KeyBound {
            limit,
            parts: (0..parts).map(|_| CachePadded::new(Lock::new(part()))).collect(),
            blocked: AtomicUsize::new(0),
            spin: AdaptiveSpin::new(),
        }
    }

    /// Takes a place at each of these keys, if each has one for a newcomer.
    pub(crate) fn try_acquire(&self, key_refs: &[KeyRef<'_, K>]) -> Result<(), TryAcquireError> {
        self.with_parts(key_refs, |parts| self.acquire_all(parts, key_refs))
    }

    /// Waits for a place at each of these keys, first come, first served at each of them.
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
        let wakes = parkers.iter().map(|parker| Wake::Thread(parker.clone())).collect();
        let Some(waiters) = self.enqueue(key_refs, wakes)? else { return Ok(()) };
        let _counted = self.count_blocked();
        parkers.iter().for_each(|parker| parker.wait(&self.spin, deadline));
        self.leave_queues(key_refs, &waiters)
    }

    /// The same for a task: the future waits in the same lines as the threads do.
    pub(crate) fn acquire_async<'a>(&'a self, key_refs: &'a [KeyRef<'a, K>]) -> AcquireKeys<'a, K> {
        AcquireKeys { bound: self, key_refs, queued: None }
    }

    /// Takes a place at each of these keys even beyond the bound, for a task that a task submits.
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

    /// The same for a subtask of a job that was accepted before the bound was closed.
    pub(crate) fn force_accepted(&self, key_refs: &[KeyRef<'_, K>]) {
        self.with_parts(key_refs, |parts| {
            key_refs
                .iter()
                .for_each(|key_ref| part_of(parts, key_ref).entry_or_insert(key_ref).acquire());
        });
    }

    /// A submitter that has a place here is in: to be called under the lock of the inbox, so that the
    /// next to be let in comes after it there.
    pub(crate) fn entered(&self, key_ref: &KeyRef<'_, K>) -> DeferredWakes<K> {
        self.change(key_ref, KeyEntry::arrive).1
    }

    /// A task that has entered here has ended.
    pub(crate) fn end(&self, key_ref: &KeyRef<'_, K>) -> DeferredWakes<K> {
        self.change(key_ref, |entry| entry.taken -= 1).1
    }

    /// A submitter that has a place at each of these keys does not come in after all.
    pub(crate) fn release(&self, key_refs: &[KeyRef<'_, K>]) {
        for key_ref in key_refs {
            let leave = |entry: &mut KeyEntry<K>| {
                entry.arrive();
                entry.taken -= 1;
            };
            drop(self.change(key_ref, leave));
        }
    }

    /// Refuses whoever stands at an entry, and whoever comes.
    pub(crate) fn close(&self) {
        for part in &self.parts {
            let mut wake_list = WakeList::default();
            let mut part = part.lock();
            part.closed = true;
            for entry in &mut part.entries {
                entry.queue.refuse_if(|()| true, &mut wake_list);
            }
            drop(part);
            wake_list.wake_all();
        }
    }

    /// Submitters that stand at entries.
    pub(crate) fn blocked(&self) -> usize {
        self.blocked.load(Ordering::Relaxed)
    }

    /// Keys that have an entry.
    #[cfg(test)]
    pub(crate) fn entries(&self) -> usize {
        self.parts.iter().map(|part| part.lock().entries.len()).sum()
    }

    /// Steps 1 and 2: takes a place at each entry, or at none.
    fn acquire_all(
        &self,
        parts: &mut LockedParts<'_, K>,
        key_refs: &[KeyRef<'_, K>],
    ) -> Result<(), TryAcquireError> {
        if parts.iter().any(|(_, part)| part.closed) {
            return Err(TryAcquireError::Closed);
        }
        if !key_refs.iter().all(|key_ref| part_of(parts, key_ref).has_room(key_ref, self.limit)) {
            return Err(TryAcquireError::Full);
        }
        key_refs
            .iter()
            .for_each(|key_ref| part_of(parts, key_ref).entry_or_insert(key_ref).acquire());
        Ok(())
    }

    /// Step 2. Returns a place in the line of each entry, or nothing if all let the caller in.
    fn enqueue(
        &self,
        key_refs: &[KeyRef<'_, K>],
        mut wakes: Vec<Wake>,
    ) -> Result<Option<Vec<usize>>, TryAcquireError> {
        let mut wake_list = WakeList::default();
        // Callers that are not needed may be wakers: they are dropped with `callers`, without locks.
        let stood = self.with_parts(key_refs, |parts| {
            match self.acquire_all(parts, key_refs) {
                Ok(()) => return Ok(None),
                Err(TryAcquireError::Closed) => return Err(TryAcquireError::Closed),
                Err(TryAcquireError::Full) => {}
            }
            let enqueue = |(key_ref, wake): (&KeyRef<'_, K>, Wake)| {
                let entry = part_of(parts, key_ref).entry_or_insert(key_ref);
                let waiter = entry.queue.push_back((), wake);
                entry.grant(self.limit, &mut wake_list);
                waiter
            };
            Ok(Some(key_refs.iter().zip(wakes.drain(..)).map(enqueue).collect()))
        });
        wake_list.wake_all();
        stood
    }

    /// Steps 5 and 6: leaves every line. Unless all places were granted, those that were go back.
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

    /// Changes an entry that is there, lets in who may come in then, and takes it away if nothing
    /// keeps it.
    fn change<R>(
        &self,
        key_ref: &KeyRef<'_, K>,
        change: impl FnOnce(&mut KeyEntry<K>) -> R,
    ) -> (R, DeferredWakes<K>) {
        let mut wake_list = WakeList::default();
        let mut part = self.parts[key_ref.part].lock();
        let Ok(mut found) = part.entries.find_entry(spread(key_ref.hash), |e| e.is_of(key_ref))
        else {
            unreachable!("an entry stays for as long as anybody has a waiter there")
        };
        let result = change(found.get_mut());
        found.get_mut().grant(self.limit, &mut wake_list);
        let key = found.get().is_unused().then(|| found.remove().0.key);
        if part.entries.is_empty() && part.entries.capacity() > MAX_SPARE_ENTRIES {
            part.entries = HashTable::new();
        }
        drop(part);
        (result, DeferredWakes { _wakes: wake_list, _key: key })
    }

    /// Locks the parts of these key_refs.
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
    /// Whether somebody who comes now needs not wait.
    fn has_room(&self, key_ref: &KeyRef<'_, K>, limit: usize) -> bool {
        let found = self.entries.find(spread(key_ref.hash), |entry| entry.is_of(key_ref));
        found.is_none_or(|entry| entry.taken < limit && !entry.in_turn && entry.queue.is_empty())
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
                    in_turn: false,
                    queue,
                };
                vacant.insert(entry).into_mut()
            }
        }
    }
}

impl<K: Eq> KeyEntry<K> {
    fn is_of(&self, key_ref: &KeyRef<'_, K>) -> bool {
        self.hash == key_ref.hash && self.key == *key_ref.key
    }

    /// Somebody takes a place, and is on its way in.
    fn acquire(&mut self) {
        self.taken += 1;
        self.entering += 1;
    }

    /// Step 3: one who was on its way is in, or has turned round.
    fn arrive(&mut self) {
        self.entering -= 1;
        if self.entering == 0 {
            self.in_turn = false;
        }
    }

    /// Step 4: the head of the line is let in if there is room and nobody else is on the way.
    fn grant(&mut self, limit: usize, wake_list: &mut WakeList) {
        if self.entering == 0 && self.taken < limit && !self.queue.is_empty() {
            self.queue.resolve_head(WaiterState::Granted, wake_list);
            self.acquire();
            self.in_turn = true;
        }
    }

    fn is_unused(&self) -> bool {
        self.taken == 0 && self.queue.is_unused()
    }
}

/// Waits at entries. Dropped before it is ready, it leaves, and gives back what it had been granted.
pub(crate) struct AcquireKeys<'a, K: Eq + Clone> {
    bound: &'a KeyBound<K>,
    key_refs: &'a [KeyRef<'a, K>],
    /// Its place in the line of each entry, once it stands there.
    queued: Option<(Vec<usize>, BlockedCount<'a, K>)>,
}

impl<K: Eq + Clone> AcquireKeys<'_, K> {
    /// Whether any of the places has an open fate. The waker of each that has is changed.
    fn poll_waiters(&self, waiters: &[usize], cx: &Context<'_>) -> bool {
        let mut waits = false;
        for (key_ref, &waiter) in self.key_refs.iter().zip(waiters) {
            // Made before the lock is taken, and dropped after it: wakers are somebody else's code.
            let wake = Wake::Task(cx.waker().clone());
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
            let wakes = self.key_refs.iter().map(|_| Wake::Task(cx.waker().clone())).collect();
            match self.bound.enqueue(self.key_refs, wakes) {
                Ok(Some(waiters)) => self.queued = Some((waiters, self.bound.count_blocked())),
                Ok(None) => return Poll::Ready(Ok(())),
                Err(refused) => return Poll::Ready(Err(refused)),
            }
        }
        let Some((waiters, counted)) = self.queued.take() else {
            unreachable!("it stands there, or has returned")
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

/// Keeps `blocked` raised for as long as a submitter stands at entries.
struct BlockedCount<'a, K>(&'a KeyBound<K>);

impl<K> Drop for BlockedCount<'_, K> {
    fn drop(&mut self) {
        self.0.blocked.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The table looks at the highest bits of a hash, and those of half a hash are all unset.
fn spread(hash: u32) -> u64 {
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

    /// Every way to an entry and away from it, at keys that share a hash.
    #[test]
    fn an_idle_key_has_no_entrance() {
        let bound = KeyBound::<u32>::new(1, 2);
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

    /// The next is served only when the one before is in.
    #[test]
    fn who_was_served_first_is_in_first() {
        let bound = KeyBound::<u32>::new(2, 2);
        let here = [key_ref(&1)];
        (0..2).for_each(|_| assert_eq!(bound.try_acquire(&here), Ok(())));
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let [mut first, mut second] = [0, 1].map(|_| Box::pin(bound.acquire_async(&here)));
        assert!(first.as_mut().poll(&mut cx).is_pending());
        assert!(second.as_mut().poll(&mut cx).is_pending());
        // Both tasks end, one of them before the other is in.
        drop(bound.entered(&here[0]));
        drop(bound.end(&here[0]));
        assert!(
            first.as_mut().poll(&mut cx).is_pending(),
            "somebody came before it, and is not in"
        );
        assert_eq!(
            bound.try_acquire(&here),
            Err(TryAcquireError::Full),
            "there is room, and a line for it"
        );
        drop(bound.entered(&here[0]));
        drop(bound.end(&here[0]));
        assert!(second.as_mut().poll(&mut cx).is_pending(), "it is the turn of the first");
        assert!(first.as_mut().poll(&mut cx).is_ready());
        assert!(second.as_mut().poll(&mut cx).is_pending(), "the first is not in");
        assert_eq!(
            bound.try_acquire(&here),
            Err(TryAcquireError::Full),
            "nor is it the turn of a newcomer"
        );
        drop(bound.entered(&here[0]));
        assert!(second.as_mut().poll(&mut cx).is_ready());
        drop((first, second));
        bound.release(&here);
        drop(bound.end(&here[0]));
        assert_eq!((bound.entries(), bound.blocked()), (0, 0));
    }
}
