//! Records whose dead letters are to be written, on their way to the writer's thread.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::assignment::RunningAttempt;
use super::failure::AttemptFailure;
use super::in_flight::InFlight;
use super::outside::Outside;

/// Maximum number of dead letters per write.
const MAX_LETTERS_PER_WRITE: usize = 256;

/// A record whose last attempt has failed.
#[derive(Debug)]
pub(super) struct DeadLetterRequest {
    pub(super) in_flight: InFlight,
    pub(super) running: RunningAttempt,
    pub(super) attempt: u32,
    pub(super) failure: Arc<AttemptFailure>,
    pub(super) failed_at: SystemTime,
}

/// Records whose dead letters are to be written.
#[derive(Debug, Default)]
pub(super) struct DeadLetterQueue {
    state: Mutex<DeadLetterQueueState>,
    /// Notified when a request is added, an assignment is fenced, or the queue is stopped.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct DeadLetterQueueState {
    requests: VecDeque<DeadLetterRequest>,
    /// Assignments of requests that the writer holds may have been fenced.
    fenced: bool,
    stopped: bool,
}

impl DeadLetterQueue {
    /// No code that holds this lock unwinds.
    fn state(&self) -> MutexGuard<'_, DeadLetterQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request. After [`stop`](Self::stop) the request is dropped, and its record stays
    /// incomplete.
    pub(super) fn push(&self, request: DeadLetterRequest) {
        let mut state = self.state();
        if state.stopped {
            drop(state);
            return drop(request);
        }
        state.requests.push_back(request);
        drop(state);
        self.changed.notify_one();
    }

    /// Ends the writer after the write in progress.
    pub(super) fn stop(&self) {
        let mut state = self.state();
        state.stopped = true;
        let requests = std::mem::take(&mut state.requests);
        drop(state);
        self.changed.notify_one();
        drop(requests);
    }

    /// Makes the writer drop requests of fenced assignments.
    pub(super) fn purge_fenced(&self) {
        self.state().fenced = true;
        self.changed.notify_one();
    }

    /// Returns what [`next`](Self::next) returns without a wait; `None` if it would wait.
    #[cfg(test)]
    pub(super) fn try_next(&self, left: Option<Duration>) -> Option<Vec<DeadLetterRequest>> {
        self.state().take(left)
    }

    /// Waits for requests, a fence, or the time of the next retry. Returns `None` once stopped.
    pub(super) fn next(
        &self,
        outside: &Outside,
        due: Option<Instant>,
    ) -> Option<Vec<DeadLetterRequest>> {
        let mut state = self.state();
        loop {
            if state.stopped {
                return None;
            }
            let left = due.map(|due| due.saturating_duration_since(outside.now()));
            if let Some(requests) = state.take(left) {
                return Some(requests);
            }
            state = match left {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(left) => {
                    let waited = self.changed.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

impl DeadLetterQueueState {
    /// Takes requests if there are some, or a fence or the retry in `left` is due.
    fn take(&mut self, left: Option<Duration>) -> Option<Vec<DeadLetterRequest>> {
        let fenced = std::mem::take(&mut self.fenced);
        if fenced || !self.requests.is_empty() || left.is_some_and(|left| left.is_zero()) {
            let count = self.requests.len().min(MAX_LETTERS_PER_WRITE);
            return Some(self.requests.drain(..count).collect());
        }
        None
    }
}
