//! A bound on the unfinished tasks of each key: whoever is beyond it waits at the *entrance* of that
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
use hashbrown::hash_table::Entry;

use super::line::{Fate, Line};
use super::slots::Refused;
use super::wait::{Caller, Calls, Patience, Seat};
use crate::sync::{AtomicUsize, Lock, LockGuard, Ordering};

/// Entrances for which a part keeps memory when it has none. What a rush needed beyond them is given
/// back.
const KEPT_ENTRANCES: usize = 64;

/// Bounds the unfinished tasks of each key. A key has an entrance here while it has such tasks, or
/// somebody on the way to become one.
pub(crate) struct KeyBound<K> {
    /// Places that each key has. Never changed.
    most: usize,
    /// The entrances. A key's part is chosen by the caller, always the same for the same key. Several
    /// are locked only in ascending order; nothing else is locked, told or dropped under the lock.
    parts: Box<[CachePadded<Lock<Part<K>>>]>,
    /// Submitters that stand at entrances. Changed by them, after they have come to stand there and
    /// before they leave, and read by whoever looks at the pool.
    held: AtomicUsize,
    /// How the threads in the lines wait.
    patience: Patience,
}

/// One key of a submitter or a task: where its entrance is.
pub(crate) struct Spot<'a, K> {
    /// Which part. Of several spots those with a smaller one come first, and no key comes twice.
    pub(crate) part: usize,
    pub(crate) hash: u32,
    pub(crate) key: &'a K,
}

struct Part<K> {
    /// Those of keys with a place taken or a place in the line. Found by the key and its hash.
    entrances: HashTable<Entrance<K>>,
    /// Nobody is let in any more. Set once.
    closed: bool,
}

struct Entrance<K> {
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
    line: Line<()>,
}

/// What is to be done after all locks are released: telling those who were let in, and dropping keys.
/// Dropping this does it.
#[must_use = "it is to be dropped after the last lock is released"]
pub(crate) struct Freed<K> {
    _calls: Calls,
    _key: Option<K>,
}

/// Several parts under their locks, each with its index.
type OpenParts<'a, K> = [(usize, LockGuard<'a, Part<K>>)];

impl<K: Eq + Clone> KeyBound<K> {
    /// `most` places for each key, at least one.
    pub(crate) fn new(most: usize, parts: usize) -> Self {
        let part = || Part { entrances: HashTable::new(), closed: false };
        KeyBound {
            most,
            parts: (0..parts).map(|_| CachePadded::new(Lock::new(part()))).collect(),
            held: AtomicUsize::new(0),
            patience: Patience::new(),
        }
    }

    /// Takes a place at each of these keys, if each has one for a newcomer.
    pub(crate) fn try_take(&self, spots: &[Spot<'_, K>]) -> Result<(), Refused> {
        self.with_parts(spots, |parts| self.take_all(parts, spots))
    }

    /// Waits for a place at each of these keys, first come, first served at each of them.
    pub(crate) fn take(
        &self,
        spots: &[Spot<'_, K>],
        deadline: Option<Instant>,
    ) -> Result<(), Refused> {
        match self.try_take(spots) {
            Err(Refused::Full) => {}
            settled => return settled,
        }
        let seats: Vec<_> = spots.iter().map(|_| Seat::new()).collect();
        let callers = seats.iter().map(|seat| Caller::Thread(seat.clone())).collect();
        let Some(places) = self.stand(spots, callers)? else { return Ok(()) };
        let _held = self.hold();
        seats.iter().for_each(|seat| seat.wait(&self.patience, deadline));
        self.settle(spots, &places)
    }

    /// The same for a task: the future waits in the same lines as the threads do.
    pub(crate) fn take_async<'a>(&'a self, spots: &'a [Spot<'a, K>]) -> Take<'a, K> {
        Take { bound: self, spots, standing: None }
    }

    /// Takes a place at each of these keys even beyond the bound, for a task that a task submits.
    pub(crate) fn force(&self, spots: &[Spot<'_, K>]) -> Result<(), Refused> {
        self.with_parts(spots, |parts| {
            if parts.iter().any(|(_, part)| part.closed) {
                return Err(Refused::Closed);
            }
            spots.iter().for_each(|spot| part_of(parts, spot).open(spot).take());
            Ok(())
        })
    }

    /// The same for a subtask of a job that was accepted before the bound was closed.
    pub(crate) fn force_for_accepted(&self, spots: &[Spot<'_, K>]) {
        self.with_parts(spots, |parts| {
            spots.iter().for_each(|spot| part_of(parts, spot).open(spot).take());
        });
    }

    /// A submitter that has a place here is in: to be called under the lock of the inbox, so that the
    /// next to be let in comes after it there.
    pub(crate) fn entered(&self, spot: &Spot<'_, K>) -> Freed<K> {
        self.change(spot, Entrance::arrive).1
    }

    /// A task that has entered here has ended.
    pub(crate) fn end(&self, spot: &Spot<'_, K>) -> Freed<K> {
        self.change(spot, |entrance| entrance.taken -= 1).1
    }

    /// A submitter that has a place at each of these keys does not come in after all.
    pub(crate) fn give_back(&self, spots: &[Spot<'_, K>]) {
        for spot in spots {
            let leave = |entrance: &mut Entrance<K>| {
                entrance.arrive();
                entrance.taken -= 1;
            };
            drop(self.change(spot, leave));
        }
    }

    /// Refuses whoever stands at an entrance, and whoever comes.
    pub(crate) fn close(&self) {
        for part in &self.parts {
            let mut calls = Calls::default();
            let mut part = part.lock();
            part.closed = true;
            for entrance in &mut part.entrances {
                entrance.line.sweep(|()| true, &mut calls);
            }
            drop(part);
            calls.tell();
        }
    }

    /// Submitters that stand at entrances.
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Keys that have an entrance.
    #[cfg(test)]
    pub(crate) fn entrances(&self) -> usize {
        self.parts.iter().map(|part| part.lock().entrances.len()).sum()
    }

    /// Steps 1 and 2: takes a place at each entrance, or at none.
    fn take_all(&self, parts: &mut OpenParts<'_, K>, spots: &[Spot<'_, K>]) -> Result<(), Refused> {
        if parts.iter().any(|(_, part)| part.closed) {
            return Err(Refused::Closed);
        }
        if !spots.iter().all(|spot| part_of(parts, spot).lets_in(spot, self.most)) {
            return Err(Refused::Full);
        }
        spots.iter().for_each(|spot| part_of(parts, spot).open(spot).take());
        Ok(())
    }

    /// Step 2. Returns a place in the line of each entrance, or nothing if all let the caller in.
    fn stand(
        &self,
        spots: &[Spot<'_, K>],
        mut callers: Vec<Caller>,
    ) -> Result<Option<Vec<usize>>, Refused> {
        let mut calls = Calls::default();
        // Callers that are not needed may be wakers: they are dropped with `callers`, without locks.
        let stood = self.with_parts(spots, |parts| {
            match self.take_all(parts, spots) {
                Ok(()) => return Ok(None),
                Err(Refused::Closed) => return Err(Refused::Closed),
                Err(Refused::Full) => {}
            }
            let stand = |(spot, caller): (&Spot<'_, K>, Caller)| {
                let entrance = part_of(parts, spot).open(spot);
                let place = entrance.line.stand((), caller);
                entrance.grant(self.most, &mut calls);
                place
            };
            Ok(Some(spots.iter().zip(callers.drain(..)).map(stand).collect()))
        });
        calls.tell();
        stood
    }

    /// Steps 5 and 6: leaves every line. Unless all places were granted, those that were go back.
    fn settle(&self, spots: &[Spot<'_, K>], places: &[usize]) -> Result<(), Refused> {
        let leave = |(spot, &place): (&Spot<'_, K>, &usize)| {
            let ((fate, caller), freed) = self.change(spot, |entrance| {
                let (fate, (), caller) = entrance.line.leave(place);
                (fate, caller)
            });
            drop((caller, freed));
            fate
        };
        let fates: Vec<_> = spots.iter().zip(places).map(leave).collect();
        if fates.iter().all(|fate| *fate == Fate::Granted) {
            return Ok(());
        }
        for (spot, _) in spots.iter().zip(&fates).filter(|(_, fate)| **fate == Fate::Granted) {
            self.give_back(std::slice::from_ref(spot));
        }
        Err(if fates.contains(&Fate::Refused) { Refused::Closed } else { Refused::Full })
    }

    /// Changes an entrance that is there, lets in who may come in then, and takes it away if nothing
    /// keeps it.
    fn change<R>(
        &self,
        spot: &Spot<'_, K>,
        change: impl FnOnce(&mut Entrance<K>) -> R,
    ) -> (R, Freed<K>) {
        let mut calls = Calls::default();
        let mut part = self.parts[spot.part].lock();
        let Ok(mut found) = part.entrances.find_entry(spread(spot.hash), |e| e.is_of(spot)) else {
            unreachable!("an entrance stays for as long as anybody has a place there")
        };
        let result = change(found.get_mut());
        found.get_mut().grant(self.most, &mut calls);
        let key = found.get().is_deserted().then(|| found.remove().0.key);
        if part.entrances.is_empty() && part.entrances.capacity() > KEPT_ENTRANCES {
            part.entrances = HashTable::new();
        }
        drop(part);
        (result, Freed { _calls: calls, _key: key })
    }

    /// Locks the parts of these spots.
    fn with_parts<R>(
        &self,
        spots: &[Spot<'_, K>],
        section: impl FnOnce(&mut OpenParts<'_, K>) -> R,
    ) -> R {
        if let [spot] = spots {
            return section(&mut [(spot.part, self.parts[spot.part].lock())]);
        }
        debug_assert!(spots.is_sorted_by_key(|spot| spot.part));
        let mut parts: Vec<(usize, LockGuard<'_, Part<K>>)> = Vec::with_capacity(spots.len());
        for spot in spots {
            if parts.last().is_none_or(|(last, _)| *last != spot.part) {
                parts.push((spot.part, self.parts[spot.part].lock()));
            }
        }
        section(&mut parts)
    }

    fn hold(&self) -> Hold<'_, K> {
        self.held.fetch_add(1, Ordering::Relaxed);
        Hold(self)
    }
}

fn part_of<'a, K>(parts: &'a mut OpenParts<'_, K>, spot: &Spot<'_, K>) -> &'a mut Part<K> {
    let found = parts.binary_search_by_key(&spot.part, |(part, _)| *part);
    &mut parts[found.expect("the parts of all spots are locked")].1
}

impl<K: Eq + Clone> Part<K> {
    /// Whether somebody who comes now needs not wait.
    fn lets_in(&self, spot: &Spot<'_, K>, most: usize) -> bool {
        let found = self.entrances.find(spread(spot.hash), |entrance| entrance.is_of(spot));
        found.is_none_or(|entrance| {
            entrance.taken < most && !entrance.in_turn && entrance.line.is_empty()
        })
    }

    fn open(&mut self, spot: &Spot<'_, K>) -> &mut Entrance<K> {
        let hash = spread(spot.hash);
        let rehash = |entrance: &Entrance<K>| spread(entrance.hash);
        match self.entrances.entry(hash, |entrance| entrance.is_of(spot), rehash) {
            Entry::Occupied(found) => found.into_mut(),
            Entry::Vacant(vacant) => {
                let key = spot.key.clone();
                let line = Line::default();
                let entrance =
                    Entrance { hash: spot.hash, key, taken: 0, entering: 0, in_turn: false, line };
                vacant.insert(entrance).into_mut()
            }
        }
    }
}

impl<K: Eq> Entrance<K> {
    fn is_of(&self, spot: &Spot<'_, K>) -> bool {
        self.hash == spot.hash && self.key == *spot.key
    }

    /// Somebody takes a place, and is on its way in.
    fn take(&mut self) {
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
    fn grant(&mut self, most: usize, calls: &mut Calls) {
        if self.entering == 0 && self.taken < most && !self.line.is_empty() {
            self.line.settle_head(Fate::Granted, calls);
            self.take();
            self.in_turn = true;
        }
    }

    fn is_deserted(&self) -> bool {
        self.taken == 0 && self.line.is_deserted()
    }
}

/// Waits at entrances. Dropped before it is ready, it leaves, and gives back what it had been granted.
pub(crate) struct Take<'a, K: Eq + Clone> {
    bound: &'a KeyBound<K>,
    spots: &'a [Spot<'a, K>],
    /// Its place in the line of each entrance, once it stands there.
    standing: Option<(Vec<usize>, Hold<'a, K>)>,
}

impl<K: Eq + Clone> Take<'_, K> {
    /// Whether any of the places has an open fate. The waker of each that has is changed.
    fn waits(&self, places: &[usize], cx: &Context<'_>) -> bool {
        let mut waits = false;
        for (spot, &place) in self.spots.iter().zip(places) {
            // Made before the lock is taken, and dropped after it: wakers are somebody else's code.
            let caller = Caller::Task(cx.waker().clone());
            let (outdated, freed) = self.bound.change(spot, |entrance| {
                let waits = entrance.line.fate(place) == Fate::Waiting;
                if waits { Ok(entrance.line.change_caller(place, caller)) } else { Err(caller) }
            });
            drop(freed);
            waits |= outdated.is_ok();
        }
        waits
    }
}

impl<K: Eq + Clone> Future for Take<'_, K> {
    type Output = Result<(), Refused>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.standing.is_none() {
            match self.bound.try_take(self.spots) {
                Err(Refused::Full) => {}
                settled => return Poll::Ready(settled),
            }
            let callers = self.spots.iter().map(|_| Caller::Task(cx.waker().clone())).collect();
            match self.bound.stand(self.spots, callers) {
                Ok(Some(places)) => self.standing = Some((places, self.bound.hold())),
                Ok(None) => return Poll::Ready(Ok(())),
                Err(refused) => return Poll::Ready(Err(refused)),
            }
        }
        let Some((places, hold)) = self.standing.take() else {
            unreachable!("it stands there, or has returned")
        };
        if self.waits(&places, cx) {
            self.standing = Some((places, hold));
            return Poll::Pending;
        }
        Poll::Ready(self.bound.settle(self.spots, &places))
    }
}

impl<K: Eq + Clone> Drop for Take<'_, K> {
    fn drop(&mut self) {
        if let Some((places, _hold)) = self.standing.take()
            && self.bound.settle(self.spots, &places).is_ok()
        {
            self.bound.give_back(self.spots);
        }
    }
}

/// Keeps `held` raised for as long as a submitter stands at entrances.
struct Hold<'a, K>(&'a KeyBound<K>);

impl<K> Drop for Hold<'_, K> {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The table looks at the highest bits of a hash, and those of half a hash are all unset.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl<K> fmt::Debug for KeyBound<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyBound").field("most", &self.most).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn spot(key: &u32) -> Spot<'_, u32> {
        Spot { part: *key as usize % 2, hash: 7, key }
    }

    /// Every way to an entrance and away from it, at keys that share a hash.
    #[test]
    fn an_idle_key_has_no_entrance() {
        let bound = KeyBound::<u32>::new(1, 2);
        let past = Some(Instant::now());
        for _ in 0..3 {
            assert_eq!(bound.try_take(&[spot(&2), spot(&4), spot(&1)]), Ok(()));
            assert_eq!(bound.entrances(), 3);
            assert_eq!(bound.try_take(&[spot(&6), spot(&4)]), Err(Refused::Full));
            assert_eq!(bound.take(&[spot(&6), spot(&1)], past), Err(Refused::Full));
            assert_eq!(bound.entrances(), 3, "a try and a timeout leave nothing at the other key");
            let many: Vec<u32> = (10..1_000).filter(|key| key % 2 == 0).collect();
            let many: Vec<_> = many.iter().map(spot).collect();
            assert_eq!(bound.try_take(&many), Ok(()));
            bound.give_back(&many);
            for key in [2, 4, 1] {
                drop(bound.entered(&spot(&key)));
                drop(bound.end(&spot(&key)));
            }
            assert_eq!(bound.entrances(), 0);
        }
        let kept = bound.parts.iter().map(|part| part.lock().entrances.capacity()).max();
        assert!(kept <= Some(KEPT_ENTRANCES), "{kept:?}");
    }

    /// The next is served only when the one before is in.
    #[test]
    fn who_was_served_first_is_in_first() {
        let bound = KeyBound::<u32>::new(2, 2);
        let here = [spot(&1)];
        (0..2).for_each(|_| assert_eq!(bound.try_take(&here), Ok(())));
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let [mut first, mut second] = [0, 1].map(|_| Box::pin(bound.take_async(&here)));
        assert!(first.as_mut().poll(&mut cx).is_pending());
        assert!(second.as_mut().poll(&mut cx).is_pending());
        // Both tasks end, one of them before the other is in.
        drop(bound.entered(&here[0]));
        drop(bound.end(&here[0]));
        assert!(
            first.as_mut().poll(&mut cx).is_pending(),
            "somebody came before it, and is not in"
        );
        assert_eq!(bound.try_take(&here), Err(Refused::Full), "there is room, and a line for it");
        drop(bound.entered(&here[0]));
        drop(bound.end(&here[0]));
        assert!(second.as_mut().poll(&mut cx).is_pending(), "it is the turn of the first");
        assert!(first.as_mut().poll(&mut cx).is_ready());
        assert!(second.as_mut().poll(&mut cx).is_pending(), "the first is not in");
        assert_eq!(bound.try_take(&here), Err(Refused::Full), "nor is it the turn of a newcomer");
        drop(bound.entered(&here[0]));
        assert!(second.as_mut().poll(&mut cx).is_ready());
        drop((first, second));
        bound.give_back(&here);
        drop(bound.end(&here[0]));
        assert_eq!((bound.entrances(), bound.held()), (0, 0));
    }
}
