//! Admits tasks: acquires a permit for each, or returns the reason for the refusal.

use super::*;

impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
    /// Acquires all that a task with these claims needs to enter: a permit, and its share of the
    /// other bounds. `weight` is its cost in bytes beside that of its claims.
    #[inline]
    pub(crate) fn admit(
        &self,
        claims: &Claims<K>,
        weight: usize,
        limit: WaitLimit,
    ) -> Result<AdmissionTicket, SubmitErrorKind> {
        let mut admitted = match self.refuses_some() {
            // Refused keys are checked before the submitter waits.
            true => self.try_admit(claims, weight, WaitLimit::None),
            false => self.try_admit(claims, weight, limit),
        };
        if admitted.as_ref().is_err_and(|why| why.is_full()) && self.refuses_some() {
            if limit.waits() && !self.refuses(claims) {
                admitted = self.try_admit(claims, weight, limit);
            }
            admitted = admitted.map_err(|why| self.why_full(why, claims));
        }
        admitted.map_err(|why| self.count_refused(why))
    }

    #[inline]
    fn try_admit(
        &self,
        claims: &Claims<K>,
        weight: usize,
        limit: WaitLimit,
    ) -> Result<AdmissionTicket, SubmitErrorKind> {
        match &self.bounds {
            Some(bounds) => self.admit_within(bounds, claims, claims.cost() + weight, limit),
            None => match self.acquire_permit(limit) {
                Ok(()) => Ok(AdmissionTicket::none()),
                Err(error) => Err(limit.explain(error)),
            },
        }
    }

    /// Returns whether any finished key refuses tasks.
    #[inline]
    pub(super) fn refuses_some(&self) -> bool {
        // Relaxed: only a hint. The keys are checked again under the locks of their inboxes.
        self.refusing.load(Ordering::Relaxed) != 0
    }

    /// Returns whether tasks with these claims are refused because one of their keys was finished.
    #[cold]
    pub(super) fn refuses(&self, claims: &Claims<K>) -> bool {
        let refuses = |claim: &KeyClaim<K>| {
            let (shard, hash) = self.place_of(&claim.key);
            self.shards[shard].inbox.lock().refuses(hash, &claim.key)
        };
        match claims.0.bare() {
            ClaimsRepr::One(claim) => refuses(claim),
            ClaimsRepr::Many(claims) => claims.iter().any(refuses),
            ClaimsRepr::None
            | ClaimsRepr::Barrier
            | ClaimsRepr::Weighed(_)
            | ClaimsRepr::Described(..) => false,
        }
    }

    /// Returns the reason for which a task without a permit is refused. A finished key takes
    /// precedence: waiting would not help.
    #[cold]
    fn why_full(&self, why: SubmitErrorKind, claims: &Claims<K>) -> SubmitErrorKind {
        if why.is_full() && self.refuses(claims) { SubmitErrorKind::KeyClosed } else { why }
    }

    /// Counts a refused task.
    #[cold]
    fn count_refused(&self, why: SubmitErrorKind) -> SubmitErrorKind {
        if why != SubmitErrorKind::KeyClosed {
            self.counters.count_refused(1);
        }
        self.refusal(why)
    }

    /// Admits a task like [`admit`](Self::admit), without blocking the thread. Dropped before it is
    /// ready, it has acquired nothing.
    pub(crate) async fn admit_async(
        &self,
        claims: &Claims<K>,
        weight: usize,
    ) -> Result<AdmissionTicket, SubmitErrorKind> {
        if self.refuses_some() {
            match self.try_admit(claims, weight, WaitLimit::None) {
                Err(why) if !why.is_full() => return Err(self.count_refused(why)),
                Err(_) if self.refuses(claims) => return Err(SubmitErrorKind::KeyClosed),
                Err(_) => {}
                admitted => return admitted,
            }
        }
        let admitted = match &self.bounds {
            Some(bounds) => self.admit_within_async(bounds, claims, claims.cost() + weight).await,
            None => match self.acquire_permit_async().await {
                Ok(()) => Ok(AdmissionTicket::none()),
                Err(error) => Err(error.into()),
            },
        };
        admitted.map_err(|why| self.count_refused(why))
    }

    /// Acquires a permit for a task. A task of this pool gets one beyond the capacity, since it
    /// might wait for capacity that only its own end can free.
    #[inline]
    pub(crate) fn acquire_permit(&self, limit: WaitLimit) -> Result<(), TryAcquireError> {
        if self.is_inside() {
            return self.admission.force(1);
        }
        match limit {
            WaitLimit::None => self.admission.try_acquire(|| self.collect()),
            WaitLimit::Until(deadline) => self.admission.acquire(Some(deadline), || self.collect()),
            WaitLimit::Endless => self.admission.acquire(None, || self.collect()),
        }
    }

    /// Acquires permits for up to `want` tasks, at least one, where the capacity is the only bound.
    /// Does not wait if the first task, which has the claims `first`, is refused.
    pub(super) fn acquire_permits(
        &self,
        want: usize,
        first: &Claims<K>,
    ) -> Result<usize, SubmitErrorKind> {
        if self.is_inside() {
            self.admission.force(want)?;
            return Ok(want);
        }
        match self.admission.try_acquire_up_to(want, || self.collect()) {
            Err(TryAcquireError::Full) if self.refuses_some() && self.refuses(first) => {
                Err(SubmitErrorKind::KeyClosed)
            }
            Err(TryAcquireError::Full) => {
                self.acquire_permit(WaitLimit::Endless)?;
                Ok(1)
            }
            settled => Ok(settled?),
        }
    }

    pub(super) async fn acquire_permit_async(&self) -> Result<(), TryAcquireError> {
        if self.is_inside() {
            return self.admission.force(1);
        }
        self.admission.acquire_async(|| self.collect()).await
    }
}
