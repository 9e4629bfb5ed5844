//! A task that stands in several lanes at once, or has a descriptor, and becomes ready when it heads
//! all its lanes and nothing that it conflicts with otherwise is before it; or that stands in one lane,
//! if somebody must find it there while it waits.

use hashbrown::HashTable;

use super::{Claims, ConflictEntry, KeyClaim, Mode, Repr, TaskMeta};
use crate::sync::{AtomicUsize, Mutex, Ordering};

/// A task with several keys, or with a descriptor, or a barrier, or one with a *role*, which has one key.
#[derive(Debug)]
pub(crate) struct Rollup<K, W> {
    /// The body; taken by whoever grants the last part, or stops the pool, or takes the task. Without
    /// one a task with a role is a tombstone, which nobody counts: it is dropped when its turn comes.
    work: Mutex<WorkCell<W>>,
    /// Parts not granted yet. Set once at submission; each grant takes one off, under the lock of
    /// the shard that grants; whoever takes the last one off makes the task ready. A task with a
    /// descriptor has one more while it asks, and one for each release that it waits for.
    pending: AtomicUsize,
    /// What it claims. Never changed.
    pub(crate) scope: Scope<K>,
    /// Its place in the order and its time; it has a hash for each key instead of one.
    pub(crate) meta: TaskMeta,
    /// If it has a descriptor.
    pub(crate) member: Option<ConflictEntry>,
    /// Only a task with one key and without a descriptor has one.
    pub(crate) role: Role,
}

/// The body of a rollup, and what keeps it from beginning although it has its keys.
#[derive(Debug)]
struct WorkCell<W> {
    work: Option<W>,
    /// Bodies that this one has replaced and whose captures are not gone yet. Raised with the
    /// replacement, lowered by the submitter that drops them.
    replaced: usize,
    /// The task was granted its key while `replaced` was not 0: it is in `Lanes::replacing`, and
    /// becomes ready when the last of those captures is gone.
    granted: bool,
}

/// What a task with a role has when it is granted its key.
pub(crate) enum Grant<W> {
    Work(W),
    /// The captures of a body that it has replaced are still there. It keeps its key meanwhile.
    Replacing,
    /// It is a tombstone.
    Nothing,
}

/// What a task is beside its claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    None,
    /// Its work may be replaced as long as it waits.
    Latest,
    /// The last of its key's life.
    End,
    /// It limits how many there are of its key. While it waits for a worker it can be called back.
    Limited,
}

impl Role {
    /// Whether its inbox knows of it until it ends.
    pub(crate) fn is_watched(self) -> bool {
        matches!(self, Role::Latest | Role::End)
    }

    /// What a task with these claims is.
    fn of<K>(scope: &Scope<K>) -> Self {
        match scope {
            Scope::Keys(claims) => match &**claims {
                [(_, KeyClaim { mode: Mode::Limited(_), .. })] => Role::Limited,
                _ => Role::None,
            },
            Scope::Unkeyed { .. } | Scope::Everything { .. } => Role::None,
        }
    }
}

/// What a rollup claims.
#[derive(Debug)]
pub(crate) enum Scope<K> {
    /// These keys, each with its hash, no key twice.
    Keys(Box<[(u64, KeyClaim<K>)]>),
    /// No key: in this shard it counts as a task without keys does.
    Unkeyed { shard: usize },
    /// Everything, in each of so many shards.
    Everything { shards: usize },
}

impl<K: Eq, W> Rollup<K, W> {
    pub(crate) fn new(scope: Scope<K>, meta: TaskMeta, work: W) -> Self {
        let parts = match &scope {
            Scope::Keys(claims) => claims.len(),
            Scope::Unkeyed { .. } => 1,
            Scope::Everything { shards } => *shards,
        };
        let slot = WorkCell { work: Some(work), replaced: 0, granted: false };
        let (work, pending) = (Mutex::new(slot), AtomicUsize::new(parts));
        let role = Role::of(&scope);
        Rollup { work, pending, scope, meta, member: None, role }
    }

    /// The same with a descriptor.
    pub(crate) fn with_member(self, member: ConflictEntry) -> Self {
        Rollup { member: Some(member), role: Role::None, ..self }
    }

    /// So many more grants are to be waited for. While this is called there is one that nobody gives.
    pub(crate) fn expect(&self, grants: usize) {
        self.pending.fetch_add(grants, Ordering::Relaxed);
    }

    /// A task with a role, which has one key. It has no part but that one, so nothing is pending.
    pub(crate) fn single(
        role: Role,
        hash: u64,
        claim: KeyClaim<K>,
        meta: TaskMeta,
        work: W,
    ) -> Self {
        let scope = Scope::Keys(Box::new([(hash, claim)]));
        Rollup { role, ..Rollup::new(scope, meta, work) }
    }

    /// Replaces the work, unless it was taken. If it `waits` for the captures of what this returns, the
    /// task does not begin before [`end_replacing`](Self::end_replacing) was called.
    pub(crate) fn swap_work(&self, waits: bool, make: &mut impl FnMut() -> W) -> Option<W> {
        let mut slot = self.work.lock();
        slot.work.is_some().then_some(())?;
        slot.replaced += usize::from(waits);
        slot.work.replace(make())
    }

    /// Takes the work for another task to replace it, which has another place; not if this one has
    /// its key.
    pub(crate) fn give_way(&self) -> Option<W> {
        let mut slot = self.work.lock();
        if slot.granted { None } else { slot.work.take() }
    }

    /// The task replaces another, which had another place. If it `waits` it does not begin before
    /// [`end_replacing`](Self::end_replacing) was called. Called before it is in its inbox.
    pub(crate) fn replacing(self, waits: bool) -> Self {
        self.work.lock().replaced = usize::from(waits);
        self
    }

    /// The captures of a body that this one has replaced are gone. Returns the work if the task has its
    /// key and has waited for nothing else. Under the lock of the key's lanes, as the grant.
    pub(crate) fn end_replacing(&self) -> Option<W> {
        let mut slot = self.work.lock();
        slot.replaced -= 1;
        if slot.replaced == 0 && slot.granted { slot.work.take() } else { None }
    }

    /// A task with a role is granted its key.
    pub(crate) fn grant_role(&self) -> Grant<W> {
        let mut slot = self.work.lock();
        if slot.work.is_some() && slot.replaced != 0 {
            slot.granted = true;
            return Grant::Replacing;
        }
        slot.work.take().map_or(Grant::Nothing, Grant::Work)
    }

    /// A task with a role that had been granted its key goes back to the line.
    pub(crate) fn wait_again(&self, work: W) {
        debug_assert!(self.role != Role::None);
        let mut slot = self.work.lock();
        slot.work = Some(work);
        slot.granted = false;
    }

    /// Whether it is a tombstone.
    pub(crate) fn is_tombstone(&self) -> bool {
        self.role != Role::None && self.with_work(|work| work.is_none())
    }

    /// Marks one part as granted, and says whether it was the last.
    ///
    /// Acquire and release: the body sees what the earlier tasks of every one of its lanes wrote,
    /// for their ends come before the grants.
    pub(crate) fn grant(&self) -> bool {
        self.pending.fetch_sub(1, Ordering::AcqRel) == 1
    }

    pub(crate) fn take_work(&self) -> Option<W> {
        self.work.lock().work.take()
    }

    pub(crate) fn with_work<R>(&self, look: impl FnOnce(Option<&W>) -> R) -> R {
        look(self.work.lock().work.as_ref())
    }

    /// The claims as they were submitted, each key once.
    pub(crate) fn claims(&self) -> Claims<K>
    where
        K: Clone,
    {
        let claims = Claims(match &self.scope {
            Scope::Keys(claims) if self.role.is_watched() => Repr::One(claims[0].1.clone()),
            Scope::Keys(claims) => {
                Repr::Many(claims.iter().map(|(_, claim)| claim.clone()).collect())
            }
            Scope::Unkeyed { .. } => Repr::None,
            Scope::Everything { .. } => Repr::Barrier,
        });
        match &self.member {
            Some(member) => claims.describe(member.descriptor.clone()),
            None => claims,
        }
    }

    /// The hash, key and mode of a part.
    pub(crate) fn claim(&self, index: usize) -> (u32, &K, Mode) {
        match &self.scope {
            Scope::Keys(claims) => {
                let (hash, claim) = &claims[index];
                (*hash as u32, &claim.key, claim.mode)
            }
            Scope::Unkeyed { .. } => unreachable!("a task without keys has no lanes"),
            Scope::Everything { .. } => unreachable!("a barrier has no parts, only fences"),
        }
    }
}

/// Up to this number of keys are compared with each other; beyond, a table finds those that are there already.
const MAX_LINEAR_KEYS: usize = 16;

/// Lists each key once, with its hash, in a mode that conflicts with all that any of its listings does.
pub(crate) fn merge_claims<K: Eq>(
    claims: Vec<KeyClaim<K>>,
    hash: impl Fn(&K) -> u64,
) -> Vec<(u64, KeyClaim<K>)> {
    let mut merged: Vec<(u64, KeyClaim<K>)> = Vec::with_capacity(claims.len());
    let many = claims.len() > MAX_LINEAR_KEYS;
    let mut places = HashTable::with_capacity(if many { claims.len() } else { 0 });
    for claim in claims {
        let hash = hash(&claim.key);
        let is_it = |(h, seen): &(u64, KeyClaim<K>)| *h == hash && seen.key == claim.key;
        let place = match many {
            true => places.find(hash, |&place: &usize| is_it(&merged[place])).copied(),
            false => merged.iter().position(is_it),
        };
        if let Some(place) = place {
            let mode = &mut merged[place].1.mode;
            *mode = mode.and(claim.mode);
            continue;
        }
        if many {
            places.insert_unique(hash, merged.len(), |&place| merged[place].0);
        }
        merged.push((hash, claim));
    }
    merged
}
