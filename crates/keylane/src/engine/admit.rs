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
        patience: Patience,
    ) -> Result<Toll, SubmitErrorKind> {
        let admitted = match &self.bounds {
            Some(bounds) => self.admit_within(bounds, claims, claims.cost() + weight, patience),
            None => match self.take_slot(patience) {
                Ok(()) => Ok(Toll::none()),
                Err(refused) => Err(patience.explain(refused)),
            },
        };
        if admitted.is_err() {
            self.tally.count_refused(1);
        }
        admitted
    }

    /// The same, without blocking the thread. Dropped before it is ready, it has taken nothing.
    pub(crate) async fn admit_async(
        &self,
        claims: &Claims<K>,
        weight: usize,
    ) -> Result<Toll, SubmitErrorKind> {
        let admitted = match &self.bounds {
            Some(bounds) => self.admit_within_async(bounds, claims, claims.cost() + weight).await,
            None => match self.take_slot_async().await {
                Ok(()) => Ok(Toll::none()),
                Err(refused) => Err(refused.into()),
            },
        };
        if admitted.is_err() {
            self.tally.count_refused(1);
        }
        admitted
    }

    /// Takes a slot for a task. A task of this pool gets one whether there is room or not, for it
    /// might wait for room that only its own end can make.
    #[inline]
    pub(crate) fn take_slot(&self, patience: Patience) -> Result<(), Refused> {
        if self.is_inside() {
            return self.admission.force();
        }
        match patience {
            Patience::None => self.admission.try_enter(|| self.collect()),
            Patience::Until(deadline) => self.admission.enter(Some(deadline), || self.collect()),
            Patience::Endless => self.admission.enter(None, || self.collect()),
        }
    }

    /// Takes slots for up to `want` tasks, at least one. There are no bounds but the capacity.
    pub(super) fn take_slots(&self, want: usize) -> Result<usize, Refused> {
        if self.is_inside() {
            return self.admission.force().map(|()| 1);
        }
        match self.admission.try_enter_up_to(want, || self.collect()) {
            Err(Refused::Full) => self.take_slot(Patience::Endless).map(|()| 1),
            settled => settled,
        }
    }

    pub(super) async fn take_slot_async(&self) -> Result<(), Refused> {
        if self.is_inside() {
            return self.admission.force();
        }
        self.admission.enter_async(|| self.collect()).await
    }
}
