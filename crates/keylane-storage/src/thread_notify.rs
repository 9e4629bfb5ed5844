//! Wake-up of one waiting thread.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Wake;
use std::time::Duration;

/// Wakes one waiting thread. A notification without a waiter ends the next wait.
#[derive(Debug, Default)]
pub struct ThreadNotify {
    notified: Mutex<bool>,
    changed: Condvar,
}

impl ThreadNotify {
    /// No code that holds this lock unwinds.
    fn notified(&self) -> MutexGuard<'_, bool> {
        self.notified.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the present wait, or the next one.
    pub fn notify(&self) {
        // An earlier notification that is not consumed has woken the thread already.
        if !std::mem::replace(&mut *self.notified(), true) {
            self.changed.notify_one();
        }
    }

    /// Waits for a notification, at most for `timeout`, and consumes it.
    pub fn wait(&self, timeout: Duration) {
        let waited =
            self.changed.wait_timeout_while(self.notified(), timeout, |notified| !*notified);
        *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
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
