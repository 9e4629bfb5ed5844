use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};
use std::time::Instant;

/// Ends a wait from another thread; once for any number of calls, and also if the wait begins later.
#[derive(Debug, Default)]
pub(super) struct Signal {
    /// Whether there was a call since the last wait. Set by anybody, taken by the one who waits.
    called: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    pub(super) fn call(&self) {
        *self.lock() = true;
        self.changed.notify_one();
    }

    /// Waits for a call, or until the deadline; whether there was one.
    pub(super) fn wait_until(&self, deadline: Instant) -> bool {
        let called = self.lock();
        let timeout = deadline.saturating_duration_since(Instant::now());
        let (mut called, _) = self
            .changed
            .wait_timeout_while(called, timeout, |called| !*called)
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *called)
    }

    pub(super) fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::new(Calls(Arc::clone(self))))
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        // A boolean is whole whatever happened.
        self.called.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Calls(Arc<Signal>);

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        self.0.call();
    }
}
