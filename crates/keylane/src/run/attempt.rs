//! Interface between failed work that is attempted again and its engine.
//!
//! Between two attempts the work keeps its turn, and with it its keys, and needs no worker. The
//! engine keeps the time, and runs the next attempt on a worker: `../engine/attempts.rs`.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

/// Work whose next attempt waits for its time.
pub(crate) trait RetryAttempt: Send + Sync {
    /// Runs the attempt, unless the work was cancelled meanwhile. Must not unwind.
    fn run(self: Arc<Self>, engine: &Arc<dyn AttemptEngine>);

    /// Ends the work as cancelled, since its engine was stopped.
    fn give_up(&self);

    /// Returns whether this is a task's attempt, which counts as cancelled if it does not begin.
    fn is_task(&self) -> bool {
        true
    }
}

/// Engine of work that is attempted again.
pub(crate) trait AttemptEngine: Send + Sync {
    /// Returns the time on the clock of the attempts, in nanoseconds.
    fn now(&self) -> u64;

    /// Returns whether the engine begins nothing any more.
    fn is_stopping(&self) -> bool;

    /// Returns a number for an attempt.
    fn number_attempt(&self) -> u64;

    /// Runs an attempt of the work that this thread runs after `delay`. `turn` is the location of
    /// its kept turn. Returns false if the engine was stopped.
    fn schedule_attempt(
        &self,
        number: u64,
        delay: Duration,
        work: Arc<dyn RetryAttempt>,
        turn: Option<(usize, usize)>,
    ) -> bool;

    /// Runs work of a kept turn as soon as a worker is free, as an attempt whose time has come. `turn`
    /// is the location of the turn. Drops the work if the engine was stopped.
    fn run_soon(&self, work: Arc<dyn RetryAttempt>, turn: Option<(usize, usize)>);

    /// Forgets an attempt that has not begun, since its work was cancelled.
    fn withdraw_attempt(&self, number: u64);

    /// Reports that the work was cancelled between two attempts.
    fn cancelled(&self);

    /// Reports that the work has failed in its last attempt.
    fn failed(&self);

    /// Reports that an attempt has panicked.
    fn panicked(&self, payload: &(dyn Any + Send));
}
