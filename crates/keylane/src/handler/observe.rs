//! Asking a running pool of messages what it does, and why.

use std::hash::BuildHasher;
use std::time::Duration;

use super::HandlerPool;
use crate::engine::Key;
use crate::observe::{KeyExplanation, PoolExplanation, StallWatch, Stalled, Submitter, Trace};

impl<K: Key, M: Send + 'static, S: BuildHasher + Send + Sync + 'static> HandlerPool<K, M, S> {
    /// Says what the messages of a key do, or why they wait. As
    /// [`Pool::explain_key`](crate::Pool::explain_key).
    pub fn explain_key(&self, key: &K) -> KeyExplanation<K> {
        self.engine.explain_key(key)
    }

    /// Who waits for room. As [`Pool::submitters`](crate::Pool::submitters).
    pub fn submitters(&self) -> Vec<Submitter> {
        self.engine.submitters()
    }

    /// Says why the pool does not do more than it does. As [`Pool::explain`](crate::Pool::explain).
    pub fn explain(&self) -> PoolExplanation {
        self.engine.explain()
    }

    /// The messages that have been handled for at least `than`, the longest first. As
    /// [`Pool::stalled`](crate::Pool::stalled).
    pub fn stalled(&self, than: Duration) -> Vec<Stalled<K>> {
        self.engine.stalled(than).into_iter().map(|(_, stalled)| stalled).collect()
    }

    /// Calls `on_stall` once for each message that is handled for `than` or longer. As
    /// [`Pool::watch_stalls`](crate::Pool::watch_stalls).
    ///
    /// # Errors
    ///
    /// If the operating system refuses a thread.
    pub fn watch_stalls(
        &self,
        than: Duration,
        on_stall: impl FnMut(&Stalled<K>) + Send + 'static,
    ) -> std::io::Result<StallWatch> {
        self.engine.watch_stalls(than, on_stall)
    }

    /// Records what runs where, from now on until [`take_trace`](Self::take_trace). As
    /// [`Pool::record_trace`](crate::Pool::record_trace).
    ///
    /// # Panics
    ///
    /// If `capacity` is zero.
    pub fn record_trace(&self, capacity: usize) {
        assert!(capacity > 0, "a recording without room records nothing");
        self.engine.begin_trace(capacity);
    }

    /// Ends the recording and returns it; nothing if there was none.
    pub fn take_trace(&self) -> Option<Trace<K>> {
        self.engine.end_trace()
    }
}
