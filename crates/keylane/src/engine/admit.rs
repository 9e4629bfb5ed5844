//! Letting tasks in: a slot for each, or the reason why there is none.

use super::*;

impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
    /// Takes all that a task with these claims needs in order to enter: a slot, and what other bounds
    /// there are ask for. `weight` is what it weighs besides what its claims say.
    #[inline]
    pub(crate) fn admit(
        &self,
        claims: &Claims<K>,
        weight: usize,
        limit: WaitLimit,
    ) -> Result<AdmissionTicket, SubmitErrorKind> {
        let mut admitted = match self.refuses_some() {
            // A submitter that has to wait looks at its keys before.
            true => self.admit_if_room(claims, weight, WaitLimit::None),
            false => self.admit_if_room(claims, weight, limit),
        };
        if admitted.as_ref().is_err_and(|why| why.is_full()) && self.refuses_some() {
            if limit.waits() && !self.refuses(claims) {
                admitted = self.admit_if_room(claims, weight, limit);
            }
            admitted = admitted.map_err(|why| self.why_full(why, claims));
        }
        admitted.map_err(|why| self.count_refused(why))
    }

    #[inline]
    fn admit_if_room(
        &self,
        claims: &Claims<K>,
        weight: usize,
        limit: WaitLimit,
    ) -> Result<AdmissionTicket, SubmitErrorKind> {
        match &self.bounds {
            Some(bounds) => self.admit_within(bounds, claims, claims.cost() + weight, limit),
            None => match self.take_slot(limit) {
                Ok(()) => Ok(AdmissionTicket::none()),
                Err(error) => Err(limit.explain(error)),
            },
        }
    }

    /// Whether any key was finished, and its tasks are refused.
    #[inline]
    fn refuses_some(&self) -> bool {
        self.refusing.load(Ordering::Relaxed) != 0
    }

    /// Whether tasks with these claims are refused because one of their keys was finished.
    #[cold]
    fn refuses(&self, claims: &Claims<K>) -> bool {
        let refuses = |claim: &KeyClaim<K>| {
            let (shard, hash) = self.place_of(&claim.key);
            self.shards[shard].inbox.lock().refuses(hash, &claim.key)
        };
        match claims.0.bare() {
            Repr::One(claim) => refuses(claim),
            Repr::Many(claims) => claims.iter().any(refuses),
            Repr::None | Repr::Barrier | Repr::Weighed(_) | Repr::Described(..) => false,
        }
    }

    /// Why a task is not admitted for which there is no room. A key that was finished is the better reason, for
    /// it needs no patience.
    #[cold]
    fn why_full(&self, why: SubmitErrorKind, claims: &Claims<K>) -> SubmitErrorKind {
        if why.is_full() && self.refuses(claims) { SubmitErrorKind::KeyClosed } else { why }
    }

    /// A task is refused, for this reason.
    #[cold]
    fn count_refused(&self, why: SubmitErrorKind) -> SubmitErrorKind {
        if why != SubmitErrorKind::KeyClosed {
            self.counters.count_refused(1);
        }
        self.refusal(why)
    }

    /// As [`admit`](Self::admit), without blocking the thread. Dropped before it is ready, it has taken nothing.
    pub(crate) async fn admit_async(
        &self,
        claims: &Claims<K>,
        weight: usize,
    ) -> Result<AdmissionTicket, SubmitErrorKind> {
        if self.refuses_some() {
            match self.admit_if_room(claims, weight, WaitLimit::None) {
                Err(why) if !why.is_full() => return Err(self.count_refused(why)),
                Err(_) if self.refuses(claims) => return Err(SubmitErrorKind::KeyClosed),
                Err(_) => {}
                admitted => return admitted,
            }
        }
        let admitted = match &self.bounds {
            Some(bounds) => self.admit_within_async(bounds, claims, claims.cost() + weight).await,
            None => match self.take_slot_async().await {
                Ok(()) => Ok(AdmissionTicket::none()),
                Err(error) => Err(error.into()),
            },
        };
        admitted.map_err(|why| self.count_refused(why))
    }

    /// Takes a slot for a task. A task of this pool gets one whether there is room or not, for it
    /// might wait for room that only its own end can make.
    #[inline]
    pub(crate) fn take_slot(&self, limit: WaitLimit) -> Result<(), TryAcquireError> {
        if self.is_inside() {
            return self.admission.force();
        }
        match limit {
            WaitLimit::None => self.admission.try_acquire(|| self.collect()),
            WaitLimit::Until(deadline) => self.admission.acquire(Some(deadline), || self.collect()),
            WaitLimit::Endless => self.admission.acquire(None, || self.collect()),
        }
    }

    /// Takes slots for up to `want` tasks, at least one. There are no bounds but the capacity. Does not wait if
    /// the first of them is refused, which has these claims.
    pub(super) fn take_slots(
        &self,
        want: usize,
        first: &Claims<K>,
    ) -> Result<usize, SubmitErrorKind> {
        if self.is_inside() {
            self.admission.force()?;
            return Ok(1);
        }
        match self.admission.try_acquire_up_to(want, || self.collect()) {
            Err(TryAcquireError::Full) if self.refuses_some() && self.refuses(first) => {
                Err(SubmitErrorKind::KeyClosed)
            }
            Err(TryAcquireError::Full) => {
                self.take_slot(WaitLimit::Endless)?;
                Ok(1)
            }
            settled => Ok(settled?),
        }
    }

    pub(super) async fn take_slot_async(&self) -> Result<(), TryAcquireError> {
        if self.is_inside() {
            return self.admission.force();
        }
        self.admission.acquire_async(|| self.collect()).await
    }
}
