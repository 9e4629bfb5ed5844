//! Cancellation of running attempts, so that a partition is released only after they have ended.
//!
//! A handler that can end early registers a hook. The coordinator calls the hooks of an assignment
//! at most twice: to request the end, and to force it. A hook that is registered later is called
//! at once. Hooks are called without a lock, so a hook can be called once more while its
//! [`CancelHook`] is being dropped.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use slab::Slab;

/// Stage of the cancellation of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cancellation {
    /// The attempt should end soon: its partition is being revoked, or the consumer stops. Its
    /// success still counts.
    Requested,
    /// The attempt must end now: its time is over, or other members already have its partition.
    Forced,
}

/// Registration of a hook by [`Attempt::on_cancel`](super::Attempt::on_cancel). Dropping it reports
/// that the attempt has no effects any more.
#[must_use = "dropping it removes the hook"]
pub struct CancelHook {
    hooks: Arc<CancelHooks>,
    index: usize,
}

/// What is cancelled: a running attempt at a record.
pub(super) trait CancelTarget: Send + Sync {
    /// Records that the attempt was cancelled.
    fn mark_cancelled(&self);
}

/// Hooks of the running attempts of an assignment.
#[derive(Default)]
pub(super) struct CancelHooks {
    state: Mutex<CancelHooksState>,
}

#[derive(Default)]
struct CancelHooksState {
    /// Highest stage so far.
    stage: Option<Cancellation>,
    hooks: Slab<Arc<RegisteredHook>>,
}

struct RegisteredHook {
    target: Arc<dyn CancelTarget>,
    call: Box<dyn Fn(Cancellation) + Send + Sync>,
}

impl RegisteredHook {
    fn cancel(&self, stage: Cancellation) {
        // Before the call: a failure that the call causes must be taken for a cancellation.
        self.target.mark_cancelled();
        // A panic in the user's callback must not stop the coordinator.
        let _ = catch_unwind(AssertUnwindSafe(|| (self.call)(stage)));
    }
}

impl CancelHooks {
    /// No code that holds this lock unwinds.
    fn state(&self) -> MutexGuard<'_, CancelHooksState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a hook of an attempt of this assignment.
    pub(super) fn register(
        self: &Arc<Self>,
        target: Arc<dyn CancelTarget>,
        call: Box<dyn Fn(Cancellation) + Send + Sync>,
    ) -> CancelHook {
        let hook = Arc::new(RegisteredHook { target, call });
        let mut state = self.state();
        let (index, stage) = (state.hooks.insert(hook.clone()), state.stage);
        drop(state);
        if let Some(stage) = stage {
            hook.cancel(stage);
        }
        CancelHook { hooks: self.clone(), index }
    }

    /// Calls all hooks with this stage, unless they were called with it before. Returns their
    /// number.
    pub(super) fn cancel(&self, stage: Cancellation) -> usize {
        let mut state = self.state();
        if state.stage >= Some(stage) {
            return 0;
        }
        state.stage = Some(stage);
        let hooks: Vec<_> = state.hooks.iter().map(|(_, hook)| hook.clone()).collect();
        drop(state);
        hooks.iter().for_each(|hook| hook.cancel(stage));
        hooks.len()
    }

    /// Returns whether the attempts were cancelled.
    pub(super) fn is_cancelled(&self) -> bool {
        self.state().stage.is_some()
    }

    /// Returns the number of running attempts with hooks.
    pub(super) fn registered(&self) -> usize {
        self.state().hooks.len()
    }

    /// Returns whether attempts with hooks are running.
    pub(super) fn is_any_registered(&self) -> bool {
        self.registered() > 0
    }
}

impl Drop for CancelHook {
    fn drop(&mut self) {
        let hook = self.hooks.state().hooks.remove(self.index);
        // Not under the lock: it drops the user's captures.
        drop(hook);
    }
}

impl std::fmt::Debug for CancelHook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CancelHook").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for CancelHooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state();
        let (stage, hooks) = (state.stage, state.hooks.len());
        f.debug_struct("CancelHooks").field("stage", &stage).field("hooks", &hooks).finish()
    }
}
