//! Watcher thread: calls a function at an interval until it is stopped.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::sync::{Condvar, Mutex, wait, wait_timeout};

/// Watcher of stalled tasks: see [`Pool::watch_stalls`](crate::control::Inspector::watch_stalls).
/// Dropping it stops the watcher, and waits for a call in progress, unless it is dropped inside
/// that call.
#[must_use = "a watcher that is dropped stops"]
pub struct StallWatch {
    stop: Arc<StopSignal>,
    thread: Option<JoinHandle<()>>,
}

struct StopSignal {
    /// Whether the watcher must stop. Set once.
    stopped: Mutex<bool>,
    /// Signaled when `stopped` is set.
    signal: Condvar,
}

impl StallWatch {
    /// Starts a thread that calls `look` every `interval` until it returns false.
    pub(crate) fn start(
        name: String,
        interval: Duration,
        mut look: impl FnMut() -> bool + Send + 'static,
    ) -> std::io::Result<Self> {
        let stop = Arc::new(StopSignal { stopped: Mutex::new(false), signal: Condvar::new() });
        let seen = stop.clone();
        let thread = std::thread::Builder::new().name(name);
        let thread = thread.spawn(move || {
            while !seen.is_stopped_within(interval)
                && catch_unwind(AssertUnwindSafe(&mut look)).unwrap_or(true)
            {}
        })?;
        Ok(StallWatch { stop, thread: Some(thread) })
    }
}

impl StopSignal {
    fn is_stopped_within(&self, timeout: Duration) -> bool {
        // Without a deadline if that is beyond the range of the clock.
        let deadline = Instant::now().checked_add(timeout);
        let mut stopped = self.stopped.lock();
        while !*stopped {
            let Some(deadline) = deadline else {
                stopped = wait(&self.signal, stopped);
                continue;
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            stopped = wait_timeout(&self.signal, stopped, left);
        }
        true
    }
}

impl Drop for StallWatch {
    fn drop(&mut self) {
        *self.stop.stopped.lock() = true;
        self.stop.signal.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            // The thread catches panics of the callback, so the result of the join carries no
            // information.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for StallWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StallWatch").finish_non_exhaustive()
    }
}
