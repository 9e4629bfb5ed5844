//! Wake-up of the dispatcher thread.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Wakes one waiting thread. A notification while the thread is active makes it check once more
/// before it sleeps.
#[derive(Debug, Default)]
pub(super) struct ThreadNotify {
    notified: Mutex<bool>,
    changed: Condvar,
}

impl ThreadNotify {
    pub(super) fn notify(&self) {
        let mut notified = self.notified.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut *notified, true) {
            self.changed.notify_one();
        }
    }

    /// Waits for a notification, at most for `timeout`, and consumes it.
    pub(super) fn wait(&self, timeout: Duration) {
        let notified = self.notified.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(notified, timeout, |notified| !*notified);
        *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
    }
}
