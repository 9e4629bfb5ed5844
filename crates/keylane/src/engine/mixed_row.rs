//! Enqueues tasks of a batch in one step, also those with several keys or without one, and barriers:
//! they get one place in the order.

use super::batch::{END, ShardSet, StagedTask, UnusedPermits};
use super::enqueue::{inbox_of, look_up_watched};
use super::*;
use crate::unwind::drop_catch_unwind;

/// Maximum number of entries that are appended in one step, beside those of its last task. Other
/// submitters to the same inboxes wait meanwhile.
pub(super) const MAX_ENTRIES: usize = 4096;

/// Task of a row, with its place.
struct RowTask<K, M> {
    place: RowPlace<K>,
    task: M,
    /// Cost of its claims, for a refusal.
    cost: Option<usize>,
}

/// Inboxes of a task.
enum RowPlace<K> {
    Single { hash: u64, claim: KeyClaim<K> },
    Free { shard: usize },
    Rollup(Vec<RollupPart<K>>),
    Barrier,
}

/// Keys of a task with their hashes, looked up in the watched inboxes.
type FoundMarkers = Vec<(u64, Option<MarkerId>)>;

/// Returns the number of entries of a task, or `None` if it enters alone because of its descriptor:
/// its comparisons run while nothing is locked.
pub(super) fn entries<K>(claims: &ClaimsRepr<K>, shards: usize) -> Option<usize> {
    match claims {
        ClaimsRepr::One(_) | ClaimsRepr::None => Some(1),
        ClaimsRepr::Many(claims) => Some(claims.len()),
        ClaimsRepr::Barrier => Some(shards),
        ClaimsRepr::Weighed(weighed) => entries(&weighed.claims, shards),
        ClaimsRepr::Described(..) => None,
    }
}

impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
    /// Appends tasks to their inboxes, in their order, until one is refused. The refused task and
    /// those behind it stay in the row.
    ///
    /// All inboxes of all tasks are locked, in the order of the shards, before anything is appended,
    /// and until everything is. So no other task comes between two tasks of the row.
    pub(super) fn enqueue_mixed_row<M: IntoWork<X::Work>>(
        &self,
        row: &mut [Option<StagedTask<K, M>>],
        unused: &mut UnusedPermits<'_>,
    ) -> Result<(), SubmitErrorKind> {
        // All keys are hashed before anything is locked.
        let tasks: Vec<_> = row
            .iter_mut()
            .filter_map(Option::take)
            .map(|staged| self.place_of_row(staged))
            .collect();
        let barriers = tasks.iter().filter(|it| matches!(it.place, RowPlace::Barrier)).count();
        // Before a barrier is in any inbox: see `start_unkeyed`.
        self.sharing.barriers.fetch_add(barriers, Ordering::AcqRel);
        let mut inboxes = self.open_row(&tasks);
        // All keys are looked up before any task is appended.
        let (found, refused) = self.look_up_row(&mut inboxes, &tasks);
        let (mut ready, mut rollups) = (ShardSet::new(), Vec::new());
        let mut rest = tasks.into_iter();
        for (RowTask { place, task, .. }, found) in rest.by_ref().take(found.len()).zip(found) {
            for (hash, found) in found {
                inbox_of(&mut inboxes, self.shard_of(hash)).pass(hash as u32, found);
            }
            rollups.extend(self.append(&mut inboxes, place, task, &mut ready));
            unused.count -= 1;
        }
        drop(inboxes);
        ready.shards().for_each(|shard| self.mark_ready(shard));
        // A task may have ended: then this drops its keys, and a panic would look like a refusal.
        rollups.into_iter().for_each(drop_catch_unwind);
        let Err(why) = refused else { return Ok(()) };
        let rest: Vec<_> = rest.map(RowTask::back).collect();
        let refused =
            rest.iter().filter(|staged| matches!(staged.claims.0.bare(), ClaimsRepr::Barrier));
        self.sharing.barriers.fetch_sub(refused.count(), Ordering::AcqRel);
        let first = row.len() - rest.len();
        row[first..].iter_mut().zip(rest).for_each(|(place, staged)| *place = Some(staged));
        Err(why)
    }

    fn place_of_row<M>(&self, staged: StagedTask<K, M>) -> RowTask<K, M> {
        let StagedTask { claims: Claims(claims), task, hash, .. } = staged;
        let (claims, cost) = match claims {
            ClaimsRepr::Weighed(weighed) => (weighed.claims, Some(weighed.bytes)),
            claims => (claims, None),
        };
        let free = || RowPlace::Free { shard: self.counters.next_free() % self.shards.len() };
        let place = match claims {
            ClaimsRepr::One(claim) if cost.is_none() => RowPlace::Single { hash, claim },
            ClaimsRepr::One(claim) => {
                RowPlace::Single { hash: self.hasher.hash_one(&claim.key), claim }
            }
            ClaimsRepr::None => free(),
            ClaimsRepr::Barrier => RowPlace::Barrier,
            ClaimsRepr::Many(claims) => {
                let mut claims = merge_claims(claims, |key| self.hasher.hash_one(key));
                match claims.len() {
                    0 => free(),
                    1 if !claims[0].claim.mode.is_limited() => {
                        let RollupPart { hash, claim, .. } = claims.remove(0);
                        RowPlace::Single { hash, claim }
                    }
                    _ => RowPlace::Rollup(claims),
                }
            }
            ClaimsRepr::Weighed(_) | ClaimsRepr::Described(..) => {
                unreachable!("a cost has no cost, and a task with a descriptor is in no row")
            }
        };
        RowTask { place, task, cost }
    }

    /// Locks the inboxes of all tasks, in the order of the shards.
    fn open_row<M>(&self, tasks: &[RowTask<K, M>]) -> LockedInboxes<'_, K, X::Work> {
        let mut shards = ShardSet::new();
        for RowTask { place, .. } in tasks {
            match place {
                RowPlace::Single { hash, .. } => shards.add(self.shard_of(*hash)),
                RowPlace::Free { shard } => shards.add(*shard),
                RowPlace::Rollup(claims) => {
                    claims.iter().for_each(|part| shards.add(self.shard_of(part.hash)));
                }
                RowPlace::Barrier => (0..self.shards.len()).for_each(|shard| shards.add(shard)),
            }
        }
        shards.shards().map(|shard| (shard, self.shards[shard].inbox.lock())).collect()
    }

    /// Checks the tasks. Returns the markers of those before the first that is refused, and the
    /// reason for that one.
    fn look_up_row<M>(
        &self,
        inboxes: &mut LockedInboxes<'_, K, X::Work>,
        tasks: &[RowTask<K, M>],
    ) -> (Vec<FoundMarkers>, Result<(), SubmitErrorKind>) {
        let mut found = Vec::with_capacity(tasks.len());
        if !inboxes.iter().any(|(_, inbox)| inbox.watched) {
            found.resize_with(tasks.len(), Vec::new);
            return (found, Ok(()));
        }
        for task in tasks {
            match self.look_up_in_row(inboxes, &task.place) {
                Ok(markers) => found.push(markers),
                Err(why) => return (found, Err(why)),
            }
        }
        (found, Ok(()))
    }

    fn look_up_in_row(
        &self,
        inboxes: &mut LockedInboxes<'_, K, X::Work>,
        place: &RowPlace<K>,
    ) -> Result<FoundMarkers, SubmitErrorKind> {
        // A batch comes from outside, so the end of a key applies to all of it.
        let mut look_up = |hash: u64, key: &K| {
            let inbox = inbox_of(inboxes, self.shard_of(hash));
            Ok((hash, look_up_watched(inbox, hash, key, true)?))
        };
        match place {
            RowPlace::Single { hash, claim } => Ok(vec![look_up(*hash, &claim.key)?]),
            RowPlace::Rollup(claims) => {
                claims.iter().map(|part| look_up(part.hash, &part.claim.key)).collect()
            }
            RowPlace::Free { shard } if inbox_of(inboxes, *shard).closed => {
                Err(SubmitErrorKind::Closed)
            }
            // The first inbox is closed before the others.
            RowPlace::Barrier if inboxes[0].1.closed => Err(SubmitErrorKind::Closed),
            RowPlace::Free { .. } | RowPlace::Barrier => Ok(Vec::new()),
        }
    }

    /// Appends a task to its inboxes. Returns it if it is a rollup, to be dropped after unlocking.
    fn append<M: IntoWork<X::Work>>(
        &self,
        inboxes: &mut LockedInboxes<'_, K, X::Work>,
        place: RowPlace<K>,
        task: M,
        ready: &mut ShardSet,
    ) -> Option<SharedRollup<K, X::Work>> {
        match place {
            RowPlace::Single { hash, claim } => {
                let shard = self.shard_of(hash);
                let inbox = inbox_of(inboxes, shard);
                let time = self.record_submit_time(shard, inbox, self.clock.now());
                if inbox.push_single(hash as u32, time, claim, || task.into_work()) {
                    ready.add(shard);
                }
                None
            }
            RowPlace::Free { shard } => {
                let inbox = inbox_of(inboxes, shard);
                let time = self.record_submit_time(shard, inbox, self.clock.now());
                let meta = TaskMeta { hash: 0, seq: inbox.tick(), time };
                if inbox.push(InboxEntry::Free { meta, work: task.into_work() }) {
                    ready.add(shard);
                }
                None
            }
            RowPlace::Rollup(claims) => {
                let (number, meta) = self.label_of_several(inboxes);
                let scope = RollupScope::Keys(claims.into_boxed_slice());
                let rollup = Arc::new(Rollup::new(scope, number, meta, task.into_work()));
                let RollupScope::Keys(claims) = &rollup.scope else { return None };
                for (claim, part) in claims.iter().enumerate() {
                    let shard = self.shard_of(part.hash);
                    let entry = InboxEntry::Part { rollup: rollup.clone(), claim };
                    if inbox_of(inboxes, shard).push(entry) {
                        ready.add(shard);
                    }
                }
                Some(rollup)
            }
            RowPlace::Barrier => {
                let (number, meta) = self.label_of_several(inboxes);
                let scope = RollupScope::Everything { shards: self.shards.len() };
                let rollup = Arc::new(Rollup::new(scope, number, meta, task.into_work()));
                for (shard, inbox) in inboxes {
                    inbox.pass_barrier();
                    inbox.push(InboxEntry::Fence { rollup: rollup.clone() });
                    ready.add(*shard);
                }
                Some(rollup)
            }
        }
    }
}

impl<K, M> RowTask<K, M> {
    /// Returns the task as it was before it had a place.
    fn back(self) -> StagedTask<K, M> {
        let (claims, hash) = match self.place {
            RowPlace::Single { hash, claim } => (ClaimsRepr::One(claim), hash),
            RowPlace::Free { .. } => (ClaimsRepr::None, 0),
            RowPlace::Rollup(claims) => {
                (ClaimsRepr::Many(claims.into_iter().map(|part| part.claim).collect()), 0)
            }
            RowPlace::Barrier => (ClaimsRepr::Barrier, 0),
        };
        let claims = match self.cost {
            Some(bytes) => Claims(claims).with_cost(bytes),
            None => Claims(claims),
        };
        StagedTask { claims, task: self.task, hash, next: END }
    }
}
