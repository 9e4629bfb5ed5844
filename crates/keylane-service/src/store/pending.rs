//! Result of a submission, available to threads and to futures of any runtime.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::change::{CommitReceipt, WriteReply};
use super::error::WriteError;

/// Submitted changes, whose result can be awaited or waited for in any runtime.
///
/// Dropping it does not cancel the write. Cancel safe.
#[must_use = "only when it says so are the changes on the disk"]
pub struct PendingWrite {
    slot: Arc<ResultSlot>,
}

#[derive(Debug, Default)]
struct ResultSlot {
    /// No code that holds this lock unwinds.
    state: Mutex<SlotState>,
    /// Notified when there is a result.
    answered: Condvar,
}

#[derive(Debug, Default)]
struct SlotState {
    answer: Option<Result<CommitReceipt, WriteError>>,
    /// Waker of the last poll.
    waker: Option<Waker>,
}

impl ResultSlot {
    fn state(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fill(&self, answer: Result<CommitReceipt, WriteError>) {
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

impl PendingWrite {
    /// Creates a callback, and the handle that receives its result.
    pub(super) fn new() -> (WriteReply, PendingWrite) {
        let slot = Arc::new(ResultSlot::default());
        let told = Arc::clone(&slot);
        (WriteReply::new(move |answer| told.fill(answer)), PendingWrite { slot })
    }

    /// Blocks until the changes are on the disk.
    ///
    /// # Errors
    /// If the changes were not written; see [`WriteError`].
    pub fn wait(self) -> Result<CommitReceipt, WriteError> {
        let mut state = self.slot.state();
        loop {
            if let Some(answer) = state.answer.take() {
                return answer;
            }
            state = self.slot.answered.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Future for PendingWrite {
    type Output = Result<CommitReceipt, WriteError>;

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

impl fmt::Debug for PendingWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingWrite")
            .field("answered", &self.slot.state().answer.is_some())
            .finish()
    }
}
