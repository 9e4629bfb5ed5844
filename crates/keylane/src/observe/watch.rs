//! A thread that looks at something again and again, until it is told to stop.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::sync::{Condvar, Mutex, wait, wait_timeout};

/// Watches for tasks that stall: see [`Pool::watch_stalls`](crate::Pool::watch_stalls). Dropping it ends the
/// watch, and waits for a call that is going on, unless it is dropped inside that.
#[must_use = "dropping it ends the watch"]
pub struct StallWatch {
    end: Arc<End>,
    thread: Option<JoinHandle<()>>,
}

struct End {
    /// The watch is to end. Set once.
    over: Mutex<bool>,
    /// Signaled when it is set.
    told: Condvar,
}

impl StallWatch {
    /// Calls `look` every `interval` until it says that there is nothing left to be looked at.
    pub(crate) fn start(
        name: String,
        interval: Duration,
        mut look: impl FnMut() -> bool + Send + 'static,
    ) -> std::io::Result<Self> {
        let end = Arc::new(End { over: Mutex::new(false), told: Condvar::new() });
        let seen = end.clone();
        let thread = std::thread::Builder::new().name(name);
        let thread = thread.spawn(move || {
            while !seen.is_told_within(interval)
                && catch_unwind(AssertUnwindSafe(&mut look)).unwrap_or(true)
            {}
        })?;
        Ok(StallWatch { end, thread: Some(thread) })
    }
}

impl End {
    fn is_told_within(&self, timeout: Duration) -> bool {
        // No deadline, if that is beyond what the clock can say.
        let deadline = Instant::now().checked_add(timeout);
        let mut over = self.over.lock();
        while !*over {
            let Some(deadline) = deadline else {
                over = wait(&self.told, over);
                continue;
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            over = wait_timeout(&self.told, over, left);
        }
        true
    }
}

impl Drop for StallWatch {
    fn drop(&mut self) {
        *self.end.over.lock() = true;
        self.end.told.notify_all();
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
