//! Letting tasks in: a slot for each, or the reason why there is none.

use super::*;

impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
    /// Takes a slot for a task. A task of this pool gets one whether there is room or not, for it
    /// might wait for room that only its own end can make.
    #[inline]
    pub(crate) fn admit(&self, patience: Patience) -> Result<(), Refused> {
        if self.is_inside() {
            return self.admission.force();
        }
        match patience {
            Patience::None => self.admission.try_enter(|| self.collect()),
            Patience::Until(deadline) => self.admission.enter(Some(deadline), || self.collect()),
            Patience::Endless => self.admission.enter(None, || self.collect()),
        }
    }

    /// Takes slots for up to `want` tasks, at least one.
    pub(crate) fn admit_up_to(&self, want: usize) -> Result<usize, Refused> {
        if self.is_inside() {
            return self.admission.force().map(|()| 1);
        }
        match self.admission.try_enter_up_to(want, || self.collect()) {
            Err(Refused::Full) => self.admit(Patience::Endless).map(|()| 1),
            settled => settled,
        }
    }

    pub(crate) async fn admit_async(&self) -> Result<(), Refused> {
        if self.is_inside() {
            return self.admission.force();
        }
        self.admission.enter_async(|| self.collect()).await
    }
}
