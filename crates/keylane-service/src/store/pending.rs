use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::change::{Answer, Committed};
use super::error::WriteError;

/// Changes that are on their way to the disk: to be waited for, or awaited in any runtime.
///
/// Dropped, it takes nothing back: they are written all the same. It is cancel safe.
#[must_use = "only when it says so are the changes on the disk"]
pub struct Pending {
    slot: Arc<Slot>,
}

#[derive(Debug, Default)]
struct Slot {
    /// Nothing unwinds while it is locked.
    state: Mutex<State>,
    /// Told when there is an answer.
    answered: Condvar,
}

#[derive(Debug, Default)]
struct State {
    answer: Option<Result<Committed, WriteError>>,
    /// Whoever has polled last.
    waker: Option<Waker>,
}

impl Slot {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fill(&self, answer: Result<Committed, WriteError>) {
        let waker = {
            let mut state = self.state();
            state.answer = Some(answer);
            state.waker.take()
        };
        self.answered.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Pending {
    /// What is to be told, and who waits for it.
    pub(super) fn new() -> (Answer, Pending) {
        let slot = Arc::new(Slot::default());
        let told = Arc::clone(&slot);
        (Answer::new(move |answer| told.fill(answer)), Pending { slot })
    }

    /// Waits until the changes are on the disk.
    ///
    /// # Errors
    /// If they were not written; see [`WriteError`].
    pub fn wait(self) -> Result<Committed, WriteError> {
        let mut state = self.slot.state();
        loop {
            if let Some(answer) = state.answer.take() {
                return answer;
            }
            state = self.slot.answered.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Future for Pending {
    type Output = Result<Committed, WriteError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.slot.state();
        if let Some(answer) = state.answer.take() {
            return Poll::Ready(answer);
        }
        match &mut state.waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("answered", &self.slot.state().answer.is_some()).finish()
    }
}
