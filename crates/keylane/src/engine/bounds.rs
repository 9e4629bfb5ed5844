//! Bounds beside the capacity: on the unfinished tasks of each key, and on the total cost of all
//! tasks.
//!
//! A submitter acquires, in this order, a permit of each of its keys, its bytes, and a permit of
//! the gate. If one of the three is refused, the earlier ones are released. `../admit/README.md`
//! says why this neither deadlocks nor delays other submitters.

use std::ops::Deref;

use super::state_expiry::StateExpiry;
use super::*;
use crate::admit::{ByteBound, DeferredWakes, HeldBytes, KeyBound, KeyRef};
use crate::unwind::drop_catch_unwind;

/// Bounds of an engine. At least one is set.
pub(crate) struct EngineBounds<K> {
    /// Number of consecutive failures after which a key is stopped.
    pub(crate) stop_after: Option<u32>,
    pub(crate) keys: Option<KeyBound<K>>,
    pub(crate) bytes: Option<Arc<ByteBound>>,
    /// Expiry of the states of keys, if they outlive the tasks.
    pub(super) expiry: Option<StateExpiry>,
}

/// Proof of admission: the task has its permits of the gate and its keys, and these bytes.
#[derive(Debug)]
#[must_use = "an admitted task must be enqueued or retracted"]
pub(crate) struct AdmissionTicket(Option<HeldBytes>);

/// Work that will carry its cost.
pub(super) struct WithCost<M, W> {
    pub(super) task: M,
    cost: Option<HeldBytes>,
    charge: fn(W, HeldBytes) -> W,
}

impl<M: IntoWork<W>, W> IntoWork<W> for WithCost<M, W> {
    fn into_work(self) -> W {
        let work = self.task.into_work();
        match self.cost {
            None => work,
            Some(cost) => (self.charge)(work, cost),
        }
    }

    fn peek(&self) -> Option<&W> {
        self.task.peek()
    }
}

/// Bounds of a task's keys, those in the earlier shards first.
enum KeyRefs<'a, K> {
    None,
    One([KeyRef<'a, K>; 1]),
    Many(Vec<KeyRef<'a, K>>),
}

impl<'a, K> Deref for KeyRefs<'a, K> {
    type Target = [KeyRef<'a, K>];

    fn deref(&self) -> &Self::Target {
        match self {
            KeyRefs::None => &[],
            KeyRefs::One(key_ref) => key_ref,
            KeyRefs::Many(key_refs) => key_refs,
        }
    }
}

/// Permits of a submitter's keys. Released on drop.
struct KeyPermits<'a, K: Key> {
    keys: Option<&'a KeyBound<K>>,
    key_refs: &'a [KeyRef<'a, K>],
}

impl<K: Key> KeyPermits<'_, K> {
    /// Keeps the permits, once the submitter has a permit of the gate.
    fn keep(mut self) {
        self.keys = None;
    }
}

impl<K: Key> Drop for KeyPermits<'_, K> {
    fn drop(&mut self) {
        if let Some(keys) = self.keys {
            keys.release(self.key_refs);
        }
    }
}

impl AdmissionTicket {
    /// Returns the ticket of a task that has only a permit of the gate.
    pub(super) fn none() -> Self {
        AdmissionTicket(None)
    }

    pub(super) fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// Attaches the cost to a task.
    pub(super) fn charge<M, K, X: Execute<K>>(self, task: M) -> WithCost<M, X::Work> {
        WithCost { task, cost: self.0, charge: X::charge }
    }
}

impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
    /// Acquires a task's share of all bounds. Never waits for submissions from inside the pool.
    #[cold]
    pub(super) fn admit_within(
        &self,
        bounds: &EngineBounds<K>,
        claims: &Claims<K>,
        bytes: usize,
        limit: WaitLimit,
    ) -> Result<AdmissionTicket, SubmitErrorKind> {
        let inside = self.is_inside();
        bounds.check(bytes)?;
        let key_refs = self.key_refs(bounds, claims);
        let permits = self.intact(|| bounds.acquire_keys(&key_refs, limit, inside))?;
        let cost = bounds.acquire_bytes(bytes, limit, inside)?;
        self.acquire_permit(limit).map_err(|error| limit.explain(error))?;
        permits.keep();
        Ok(AdmissionTicket(cost))
    }

    /// Acquires like [`admit_within`](Self::admit_within), without blocking the thread. Dropped
    /// before it is ready, it has acquired nothing.
    pub(super) async fn admit_within_async(
        &self,
        bounds: &EngineBounds<K>,
        claims: &Claims<K>,
        bytes: usize,
    ) -> Result<AdmissionTicket, SubmitErrorKind> {
        if self.is_inside() {
            return self.admit_within(bounds, claims, bytes, WaitLimit::None);
        }
        bounds.check(bytes)?;
        let key_refs = self.key_refs(bounds, claims);
        let keys = bounds.keys.as_ref();
        if let Some(keys) = keys {
            keys.acquire_async(&key_refs).await?;
        }
        let permits = KeyPermits { keys, key_refs: &key_refs };
        let cost = match &bounds.bytes {
            Some(all) if bytes != 0 => Some(all.acquire_async(bytes).await?),
            _ => None,
        };
        self.acquire_permit_async().await?;
        permits.keep();
        Ok(AdmissionTicket(cost))
    }

    /// Admits a subtask of an accepted job, beyond the bounds if necessary: the job itself is
    /// bounded in the number of its subtasks in lanes.
    pub(crate) fn admit_accepted(&self, claims: &Claims<K>) -> AdmissionTicket {
        let Some(bounds) = &self.bounds else {
            self.admission.force_accepted();
            return AdmissionTicket::none();
        };
        // The keys are hashed before anything is acquired.
        let key_refs = self.key_refs(bounds, claims);
        self.admission.force_accepted();
        if let Some(keys) = &bounds.keys {
            self.intact(|| keys.force_accepted(&key_refs));
        }
        let bytes = claims.cost();
        let all = bounds.bytes.as_ref().filter(|_| bytes != 0);
        AdmissionTicket(all.map(|all| all.force_accepted(bytes)))
    }

    /// Releases the permits of an admitted task that does not enter. Its cost is released with its
    /// ticket. If a key panics, those of the keys are lost, and the engine is poisoned.
    pub(crate) fn retract(&self, claims: &Claims<K>) {
        self.admission.release(1);
        if let Some(bounds) = &self.bounds
            && let Some(keys) = &bounds.keys
        {
            self.intact(|| keys.release(&self.key_refs(bounds, claims)));
        }
    }

    /// Records that a task is in its inbox, which is still locked. The result is to be dropped
    /// after unlocking.
    #[inline(always)]
    pub(super) fn arrive(&self, shard: usize, hash: u64, key: &K) -> Option<DeferredWakes<K>> {
        match &self.bounds {
            None => None,
            Some(bounds) => bounds.arrive(KeyRef { part: shard, hash: hash as u32, key }),
        }
    }

    /// Releases the keys of a task that has ended, or will never begin.
    pub(super) fn leave_keys(&self, bounds: &EngineBounds<K>, claims: &Claims<K>) {
        if let Some(keys) = &bounds.keys {
            self.key_refs(bounds, claims).iter().for_each(|key_ref| drop(keys.end(key_ref)));
        }
    }

    /// Releases one task of each key of a rollup.
    pub(super) fn leave_scope(&self, bounds: &EngineBounds<K>, scope: &RollupScope<K>) {
        if let (Some(keys), RollupScope::Keys(claims)) = (&bounds.keys, scope) {
            for RollupPart { hash, claim, .. } in claims {
                drop_catch_unwind(keys.end(&self.key_ref(*hash, &claim.key)));
            }
        }
    }

    fn key_refs<'a>(&self, bounds: &EngineBounds<K>, claims: &'a Claims<K>) -> KeyRefs<'a, K> {
        if bounds.keys.is_none() {
            return KeyRefs::None;
        }
        let key_ref =
            |claim: &'a KeyClaim<K>| self.key_ref(self.hasher.hash_one(&claim.key), &claim.key);
        match claims.0.bare() {
            ClaimsRepr::One(claim) => KeyRefs::One([key_ref(claim)]),
            ClaimsRepr::Many(claims) => {
                let mut all: Vec<KeyRef<'a, K>> = claims.iter().map(key_ref).collect();
                all.sort_by_key(|key_ref| (key_ref.part, key_ref.hash));
                let mut key_refs: Vec<KeyRef<'a, K>> = Vec::with_capacity(all.len());
                for key_ref in all {
                    // Earlier ones with the same hash are the last ones.
                    let like = |seen: &&KeyRef<'a, K>| {
                        seen.part == key_ref.part && seen.hash == key_ref.hash
                    };
                    if !key_refs.iter().rev().take_while(like).any(|seen| seen.key == key_ref.key) {
                        key_refs.push(key_ref);
                    }
                }
                KeyRefs::Many(key_refs)
            }
            ClaimsRepr::None
            | ClaimsRepr::Barrier
            | ClaimsRepr::Weighed(_)
            | ClaimsRepr::Described(..) => KeyRefs::None,
        }
    }

    pub(super) fn key_ref<'a>(&self, hash: u64, key: &'a K) -> KeyRef<'a, K> {
        KeyRef { part: self.shard_of(hash), hash: hash as u32, key }
    }
}

impl<K: Key> EngineBounds<K> {
    /// Returns whether a submitter may have to wait for more than a permit of the gate.
    pub(super) fn restrict(&self) -> bool {
        self.keys.is_some() || self.bytes.is_some()
    }

    /// Refuses waiting and new submitters.
    pub(super) fn close(&self) {
        self.keys.iter().for_each(KeyBound::close);
        self.bytes.iter().for_each(|bytes| bytes.close());
    }

    /// Refuses a cost above the total, which would wait forever.
    fn check(&self, bytes: usize) -> Result<(), SubmitErrorKind> {
        match &self.bytes {
            Some(all) if bytes > all.limit() => Err(SubmitErrorKind::TooLarge),
            _ => Ok(()),
        }
    }

    fn acquire_keys<'a>(
        &'a self,
        key_refs: &'a [KeyRef<'a, K>],
        limit: WaitLimit,
        inside: bool,
    ) -> Result<KeyPermits<'a, K>, SubmitErrorKind> {
        if let Some(keys) = &self.keys {
            match limit {
                _ if inside => keys.force(key_refs),
                WaitLimit::None => keys.try_acquire(key_refs),
                WaitLimit::Until(deadline) => keys.acquire(key_refs, Some(deadline)),
                WaitLimit::Endless => keys.acquire(key_refs, None),
            }
            .map_err(|error| match limit.explain(error) {
                SubmitErrorKind::Full => SubmitErrorKind::KeyFull,
                other => other,
            })?;
        }
        Ok(KeyPermits { keys: self.keys.as_ref(), key_refs })
    }

    fn acquire_bytes(
        &self,
        bytes: usize,
        limit: WaitLimit,
        inside: bool,
    ) -> Result<Option<HeldBytes>, SubmitErrorKind> {
        let Some(all) = self.bytes.as_ref().filter(|_| bytes != 0) else { return Ok(None) };
        match limit {
            _ if inside => all.force(bytes),
            WaitLimit::None => all.try_acquire(bytes),
            WaitLimit::Until(deadline) => all.acquire(bytes, Some(deadline)),
            WaitLimit::Endless => all.acquire(bytes, None),
        }
        .map(Some)
        .map_err(|error| limit.explain(error))
    }

    #[cold]
    fn arrive(&self, key_ref: KeyRef<'_, K>) -> Option<DeferredWakes<K>> {
        self.keys.as_ref().map(|keys| keys.entered(&key_ref))
    }

    /// Releases one task of a key. The result is to be dropped when no lock is held.
    pub(super) fn end(&self, key_ref: KeyRef<'_, K>) -> Option<DeferredWakes<K>> {
        self.keys.as_ref().map(|keys| keys.end(&key_ref))
    }
}
