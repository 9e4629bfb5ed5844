//! Wake-up of one waiting thread, or of one waiting task.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Wakes one waiting thread or task. A notification without a waiter ends the next wait.
#[derive(Debug, Default)]
pub struct ThreadNotify {
    state: Mutex<NotifyState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct NotifyState {
    is_notified: bool,
    /// Waker of the last poll, if a task waits.
    waker: Option<Waker>,
}

impl ThreadNotify {
    /// No code that holds this lock unwinds.
    fn state(&self) -> MutexGuard<'_, NotifyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the present wait, or the next one.
    pub fn notify(&self) {
        let waker = {
            let mut state = self.state();
            // An earlier notification that is not consumed has woken the thread already.
            if std::mem::replace(&mut state.is_notified, true) {
                return;
            }
            state.waker.take()
        };
        self.changed.notify_one();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Waits for a notification, at most for `timeout`, and consumes it.
    pub fn wait(&self, timeout: Duration) {
        let waited =
            self.changed.wait_timeout_while(self.state(), timeout, |state| !state.is_notified);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_notified = false;
    }

    /// Consumes a notification, or returns `Pending` and wakes the task at the next one. For a
    /// waiter that is a task, as in a simulation.
    pub fn poll(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if std::mem::take(&mut state.is_notified) {
            return Poll::Ready(());
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Wake for ThreadNotify {
    fn wake(self: Arc<Self>) {
        self.notify();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.notify();
    }
}
