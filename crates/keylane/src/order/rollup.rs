//! Task that waits in several lanes at once, has a descriptor, or has a role: decides when it is
//! ready.
//!
//! A rollup becomes ready when it holds all its lanes and every earlier task that its descriptor
//! conflicts with has ended. A task with a role has one lane, in which it must be found while it
//! waits.

use hashbrown::HashTable;

use super::{ClaimMode, Claims, ClaimsRepr, ConflictEntry, KeyClaim, TaskMeta};
use crate::sync::{AtomicBool, AtomicUsize, Mutex, Ordering};

/// Task with several keys, a task with a descriptor, a barrier, or a task with a *role*, which has
/// one key.
#[derive(Debug)]
pub(crate) struct Rollup<K, W> {
    /// Work of the task. Taken once: by the grant of the last part, by a stop of the pool, or by a
    /// caller that takes the task. A task with a role and no work is a tombstone, which counts
    /// nowhere and is dropped when its turn comes.
    work: Mutex<WorkCell<W>>,
    /// Number of parts that are not granted yet. Set at submission; each grant subtracts one, under
    /// the lock of the shard that grants, and the grant that reaches zero makes the task ready. A
    /// task with a descriptor has one more while it scans, and one for each release that it waits
    /// for.
    pending: AtomicUsize,
    /// Claims of the task. Never changed.
    pub(crate) scope: RollupScope<K>,
    /// Sequence number and time. The hashes are in `scope`, one for each key.
    pub(crate) meta: TaskMeta,
    /// Sequence number, of which `meta` has the lower half.
    pub(crate) number: u64,
    /// Entry in the conflict index, if the task has a descriptor.
    pub(crate) member: Option<ConflictEntry>,
    /// Role of the task. Only a task with one key and without a descriptor has one.
    pub(crate) role: MarkerRole,
    /// Whether the task has failed before it began, because one of its keys panicked. Set when its
    /// work is dropped, before its lanes are released.
    failed: AtomicBool,
}

/// One key of a rollup, with its hash.
#[derive(Debug)]
pub(crate) struct RollupPart<K> {
    pub(crate) hash: u64,
    pub(crate) claim: KeyClaim<K>,
    /// Place of the part in its lane, packed. Changed under the lock of the lanes, so that the lane
    /// is found and released without a comparison of keys.
    place: AtomicUsize,
}

/// Place of a rollup's part in its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartPlace {
    /// In no lane: not entered yet, or released.
    Outside,
    /// In the wait queue of the lane in this slot.
    Waits(usize),
    /// Among the holders of the lane in this slot.
    Holds(usize),
}

impl<K> RollupPart<K> {
    pub(crate) fn new(hash: u64, claim: KeyClaim<K>) -> Self {
        RollupPart { hash, claim, place: AtomicUsize::new(0) }
    }

    /// Returns the place of the part. Called under the lock of its lanes.
    pub(crate) fn place(&self) -> PartPlace {
        // Relaxed, here and below: the lock of the lanes orders the accesses.
        match self.place.load(Ordering::Relaxed).checked_sub(1) {
            None => PartPlace::Outside,
            Some(packed) if packed & 1 == 0 => PartPlace::Waits(packed >> 1),
            Some(packed) => PartPlace::Holds(packed >> 1),
        }
    }

    pub(crate) fn set_place(&self, place: PartPlace) {
        let packed = match place {
            PartPlace::Outside => 0,
            PartPlace::Waits(slot) => (slot << 1) + 1,
            PartPlace::Holds(slot) => (slot << 1) + 2,
        };
        self.place.store(packed, Ordering::Relaxed);
    }

    /// Returns the slot of the lane that the part holds.
    pub(crate) fn held_slot(&self) -> Option<usize> {
        match self.place() {
            PartPlace::Holds(slot) => Some(slot),
            PartPlace::Outside | PartPlace::Waits(_) => None,
        }
    }
}

/// Work of a rollup, and the reason why it may not begin although it holds its keys.
#[derive(Debug)]
struct WorkCell<W> {
    work: Option<W>,
    /// Number of works of this task that were replaced, and of which the captures are not dropped
    /// yet. Incremented with the replacement, decremented by the submitter that drops them.
    replaced: usize,
    /// Whether the key was granted while `replaced` was not 0: the task is then in
    /// `Lanes::replacing`, and becomes ready, or ends if its own work was taken, when the last of
    /// those captures is dropped.
    granted: bool,
}

/// Effect of a drop of replaced captures.
pub(crate) enum ReplacingEnd<W> {
    /// The task has not been granted its key, or other captures still exist.
    Waits,
    /// The task holds its key, and waited only for that.
    Ready(W),
    /// The task is a tombstone from now on. It holds its key if it was `granted`.
    Tombstone { granted: bool },
}

/// Result of granting its key to a task with a role.
pub(crate) enum RoleGrant<W> {
    Work(W),
    /// Captures of replaced work still exist. The task, or what remains of it, keeps its key
    /// meanwhile.
    Replacing,
    /// The task is a tombstone.
    Nothing,
}

/// Special handling of a task with one key while it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MarkerRole {
    None,
    /// Latest task of its key: its work may be replaced while it waits.
    Latest,
    /// End of its key: the last task of the key's life.
    End,
    /// Task that limits the concurrency of its key. While it waits for a worker it can be called
    /// back.
    Limited,
}

impl MarkerRole {
    /// Returns whether the inbox watches the task until it ends.
    pub(crate) fn is_watched(self) -> bool {
        matches!(self, MarkerRole::Latest | MarkerRole::End)
    }

    /// Returns the role of a task with these claims.
    fn of<K>(scope: &RollupScope<K>) -> Self {
        match scope {
            RollupScope::Keys(claims) => match &**claims {
                [RollupPart { claim: KeyClaim { mode: ClaimMode::Limited(_), .. }, .. }] => {
                    MarkerRole::Limited
                }
                _ => MarkerRole::None,
            },
            RollupScope::Unkeyed { .. } | RollupScope::Everything { .. } => MarkerRole::None,
        }
    }
}

/// Claims of a rollup.
#[derive(Debug)]
pub(crate) enum RollupScope<K> {
    /// Keys, each with its hash; no key twice.
    Keys(Box<[RollupPart<K>]>),
    /// No key: the task counts in this shard as a task without keys.
    Unkeyed { shard: usize },
    /// Everything, in each of `shards` shards.
    Everything { shards: usize },
}

impl<K, W> Rollup<K, W> {
    /// Returns half of the hash, the key and the mode of a part.
    pub(crate) fn claim(&self, index: usize) -> (u32, &K, ClaimMode) {
        let RollupPart { hash, claim, .. } = self.part(index);
        (*hash as u32, &claim.key, claim.mode)
    }

    pub(crate) fn part(&self, index: usize) -> &RollupPart<K> {
        match &self.scope {
            RollupScope::Keys(parts) => &parts[index],
            RollupScope::Unkeyed { .. } => unreachable!("a task without keys has no lanes"),
            RollupScope::Everything { .. } => unreachable!("a barrier has no parts, only fences"),
        }
    }
}

impl<K: Eq, W> Rollup<K, W> {
    pub(crate) fn new(scope: RollupScope<K>, number: u64, meta: TaskMeta, work: W) -> Self {
        let parts = match &scope {
            RollupScope::Keys(claims) => claims.len(),
            RollupScope::Unkeyed { .. } => 1,
            RollupScope::Everything { shards } => *shards,
        };
        let slot = WorkCell { work: Some(work), replaced: 0, granted: false };
        let (work, pending) = (Mutex::new(slot), AtomicUsize::new(parts));
        let role = MarkerRole::of(&scope);
        let failed = AtomicBool::new(false);
        Rollup { work, pending, scope, meta, number, member: None, role, failed }
    }

    /// Adds the entry in the conflict index.
    pub(crate) fn with_member(self, member: ConflictEntry) -> Self {
        Rollup { member: Some(member), role: MarkerRole::None, ..self }
    }

    /// Adds `grants` grants to wait for. The caller must hold back one grant meanwhile, so that
    /// `pending` cannot reach zero.
    pub(crate) fn expect(&self, grants: usize) {
        // Relaxed: the grant that the caller holds back comes later in the order of this counter, and
        // releases.
        self.pending.fetch_add(grants, Ordering::Relaxed);
    }

    /// Creates a task with a role. It has one key and one part, so `pending` plays no part.
    pub(crate) fn single(
        role: MarkerRole,
        hash: u64,
        claim: KeyClaim<K>,
        (number, meta): (u64, TaskMeta),
        work: W,
    ) -> Self {
        let scope = RollupScope::Keys(Box::new([RollupPart::new(hash, claim)]));
        Rollup { role, ..Rollup::new(scope, number, meta, work) }
    }

    /// Replaces the work, unless it was taken, and returns the old work. If the task `waits` for
    /// the captures of that work, it does not begin before a call of
    /// [`end_replacing`](Self::end_replacing).
    pub(crate) fn swap_work(&self, waits: bool, make: &mut impl FnMut() -> W) -> Option<W> {
        let mut slot = self.work.lock();
        slot.work.is_some().then_some(())?;
        slot.replaced += usize::from(waits);
        slot.work.replace(make())
    }

    /// Takes the work for a later task that replaces this one at another position; not if this task
    /// holds its key. If the later task `waits` for the captures, this one keeps its position until
    /// a call of [`end_replacing`](Self::end_replacing).
    pub(crate) fn take_superseded(&self, waits: bool) -> Option<W> {
        let mut slot = self.work.lock();
        if slot.granted {
            return None;
        }
        let work = slot.work.take()?;
        slot.replaced += usize::from(waits);
        Some(work)
    }

    /// Marks the task as a replacement of another one at another position. If it `waits`, it does
    /// not begin before a call of [`end_replacing`](Self::end_replacing). Called before the task is
    /// in its inbox.
    pub(crate) fn replacing(self, waits: bool) -> Self {
        self.work.lock().replaced = usize::from(waits);
        self
    }

    /// Records that the captures of a replaced work are dropped. Called under the lock of the key's
    /// lanes, like the grant.
    pub(crate) fn end_replacing(&self) -> ReplacingEnd<W> {
        let mut slot = self.work.lock();
        slot.replaced -= 1;
        match (slot.replaced, &slot.work, slot.granted) {
            (0, None, granted) => ReplacingEnd::Tombstone { granted },
            (0, Some(_), true) => match slot.work.take() {
                Some(work) => ReplacingEnd::Ready(work),
                None => unreachable!("the work is there"),
            },
            _ => ReplacingEnd::Waits,
        }
    }

    /// Returns whether the task may still be taken, or is a tombstone: not if captures of replaced
    /// work exist, for which its position is kept.
    pub(crate) fn is_replacing(&self) -> bool {
        self.work.lock().replaced != 0
    }

    /// Grants its key to a task with a role.
    pub(crate) fn grant_role(&self) -> RoleGrant<W> {
        let mut slot = self.work.lock();
        if slot.replaced != 0 {
            slot.granted = true;
            return RoleGrant::Replacing;
        }
        slot.work.take().map_or(RoleGrant::Nothing, RoleGrant::Work)
    }

    /// Returns the work to a task with a role that was granted its key and goes back to its wait
    /// queue.
    pub(crate) fn wait_again(&self, work: W) {
        debug_assert!(self.role != MarkerRole::None);
        let mut slot = self.work.lock();
        slot.work = Some(work);
        slot.granted = false;
    }

    /// Returns whether the task is a tombstone.
    pub(crate) fn is_tombstone(&self) -> bool {
        match self.role {
            MarkerRole::None => self.has_failed(),
            _ => {
                let slot = self.work.lock();
                slot.work.is_none() && slot.replaced == 0
            }
        }
    }

    /// Marks one part as granted, and returns whether it was the last.
    ///
    /// Acquire and release: the ends of the earlier tasks in each lane come before the grants, so
    /// the body sees what those tasks wrote.
    pub(crate) fn grant(&self) -> bool {
        self.pending.fetch_sub(1, Ordering::AcqRel) == 1
    }

    pub(crate) fn take_work(&self) -> Option<W> {
        self.work.lock().work.take()
    }

    pub(crate) fn with_work<R>(&self, look: impl FnOnce(Option<&W>) -> R) -> R {
        look(self.work.lock().work.as_ref())
    }

    /// Returns the claims as they were submitted, each key once.
    pub(crate) fn claims(&self) -> Claims<K>
    where
        K: Clone,
    {
        let claims = Claims(match &self.scope {
            RollupScope::Keys(claims) if self.role.is_watched() => {
                ClaimsRepr::One(claims[0].claim.clone())
            }
            RollupScope::Keys(claims) => {
                ClaimsRepr::Many(claims.iter().map(|part| part.claim.clone()).collect())
            }
            RollupScope::Unkeyed { .. } => ClaimsRepr::None,
            RollupScope::Everything { .. } => ClaimsRepr::Barrier,
        });
        match &self.member {
            Some(member) => claims.describe(member.descriptor.clone()),
            None => claims,
        }
    }

    /// Returns the slot of the lane of a task with a role, which holds it. Called under the lock of
    /// the lanes.
    pub(crate) fn held_slot(&self) -> usize {
        self.part(0).held_slot().expect("the task holds its lane")
    }

    /// Returns the key of a task with a role.
    pub(crate) fn only_key(&self) -> Option<&K> {
        (self.role != MarkerRole::None).then(|| self.claim(0).1)
    }

    /// Records that the task failed before it began, and that its work is dropped. From now on it
    /// is a tombstone.
    pub(crate) fn fail(&self) {
        self.failed.store(true, Ordering::Release);
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }
}

/// Largest number of keys that are compared pairwise. Beyond it a table finds duplicates.
const MAX_LINEAR_KEYS: usize = 16;

/// Lists each key once, with its hash, in a mode that has all conflicts of its listings.
pub(crate) fn merge_claims<K: Eq>(
    claims: Vec<KeyClaim<K>>,
    hash: impl Fn(&K) -> u64,
) -> Vec<RollupPart<K>> {
    let mut merged: Vec<RollupPart<K>> = Vec::with_capacity(claims.len());
    let many = claims.len() > MAX_LINEAR_KEYS;
    let mut places = HashTable::with_capacity(if many { claims.len() } else { 0 });
    for claim in claims {
        let hash = hash(&claim.key);
        let is_it = |seen: &RollupPart<K>| seen.hash == hash && seen.claim.key == claim.key;
        let place = match many {
            true => places.find(hash, |&place: &usize| is_it(&merged[place])).copied(),
            false => merged.iter().position(is_it),
        };
        if let Some(place) = place {
            let mode = &mut merged[place].claim.mode;
            *mode = mode.and(claim.mode);
            continue;
        }
        if many {
            places.insert_unique(hash, merged.len(), |&place| merged[place].hash);
        }
        merged.push(RollupPart::new(hash, claim));
    }
    merged
}
