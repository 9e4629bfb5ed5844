//! A thread that looks at something again and again, until it is told to stop.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::sync::{Condvar, Mutex, wait, wait_timeout};

/// Watches for tasks that stall: see [`Pool::watch_stalls`](crate::control::Inspector::watch_stalls). Dropping it ends the
/// watch, and waits for a call that is going on, unless it is dropped inside that.
#[must_use = "dropping it ends the watch"]
pub struct StallWatch {
    stop: Arc<StopSignal>,
    thread: Option<JoinHandle<()>>,
}

struct StopSignal {
    /// The watch is to end. Set once.
    stopped: Mutex<bool>,
    /// Signaled when it is set.
    signal: Condvar,
}

impl StallWatch {
    /// Calls `look` every `interval` until it says that there is nothing left to be looked at.
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
        // No deadline, if that is beyond what the clock can say.
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
            // It catches what the callback throws, so there is nothing to be told.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for StallWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StallWatch").finish_non_exhaustive()
    }
}
