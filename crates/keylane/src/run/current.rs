//! Thread-local context of the running task: its engine, and its position in the order.
//!
//! Read when a task submits to its own pool, or waits for another task of it.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

use super::TurnResult;
use crate::observe::TraceOutcome;
use crate::sync::thread_local;
#[cfg(all(test, shuttle))]
use crate::sync::{LocalCell as _, LocalRefCell as _};

/// Position of a running task in the order of its pool.
#[derive(Clone, Debug, Default)]
pub(crate) enum OrderPosition {
    /// The task has no key.
    #[default]
    Free,
    /// The task holds this lane.
    Lane { shard: usize, slot: usize },
    /// The task is this rollup.
    Rollup(Arc<dyn Any + Send + Sync>),
}

impl OrderPosition {
    /// Returns whether two running tasks of a pool are the same one. Tasks without keys have no
    /// position by which to tell them apart.
    pub(crate) fn is(&self, other: &OrderPosition) -> bool {
        match (self, other) {
            (OrderPosition::Rollup(one), OrderPosition::Rollup(other)) => Arc::ptr_eq(one, other),
            (
                OrderPosition::Lane { shard, slot },
                OrderPosition::Lane { shard: other_shard, slot: other_slot },
            ) => (shard, slot) == (other_shard, other_slot),
            _ => false,
        }
    }
}

/// Callbacks of a running task into its own pool.
pub(crate) trait EngineHooks: Send + Sync {
    /// Returns the address of the pool's engine.
    fn engine(&self) -> usize;

    /// Returns whether any task ordered behind the one at `position`, directly or not, matches
    /// `is_it`, which gets the name of each until it returns true. The calls have no particular
    /// order, may repeat, and may be made under locks.
    fn is_behind(&self, position: &OrderPosition, is_it: &dyn Fn(usize) -> bool) -> bool;

    /// Announces that the calling worker is about to wait; a substitute may replace it meanwhile.
    /// Returns false if it must not wait, because no worker would be left: all others wait too, and
    /// no thread can be started.
    fn block(&self) -> bool;

    /// Announces the end of that wait.
    fn unblock(&self);

    /// Reports a panic of a task that runs outside of the workers.
    #[cfg(feature = "tokio")]
    fn panicked(&self, payload: &(dyn Any + Send));

    /// Reports the cancellation of such a task.
    #[cfg(feature = "tokio")]
    fn cancelled(&self);

    /// Reports an error returned by such a task.
    #[cfg(feature = "tokio")]
    fn failed(&self);
}

/// Shard and slot of a lane, or one of the marks below. Fits into a `Cell`, because it is written
/// for every task.
type PackedPosition = (usize, usize);
const FREE: PackedPosition = (usize::MAX, 0);
const ROLLUP: PackedPosition = (usize::MAX, 1);

thread_local! {
    /// Address of the engine whose task this thread runs; 0 if none.
    static ENGINE: Cell<usize> = const { Cell::new(0) };
    static PACKED: Cell<PackedPosition> = const { Cell::new(FREE) };
    /// Rollup of this thread; set while `PACKED` is `ROLLUP`.
    static IN_ROLLUP: RefCell<Option<Arc<dyn Any + Send + Sync>>> = const { RefCell::new(None) };
    /// Abnormal end of the last task, for its trace record.
    static ABNORMAL_END: Cell<Option<TraceOutcome>> = const { Cell::new(None) };
    /// Result of the task that this thread runs, or whose turn it ends; seldom written.
    static TURN_RESULT: Cell<TurnResult> = const { Cell::new(TurnResult::Done) };
    static HOOKS: RefCell<Option<Arc<dyn EngineHooks>>> = const { RefCell::new(None) };
}

/// Records an abnormal end of the task that this thread runs.
pub(crate) fn set_abnormal_end(how: TraceOutcome) {
    ABNORMAL_END.set(Some(how));
}

/// Takes the abnormal end of this thread's last task, if any.
pub(crate) fn take_abnormal_end() -> Option<TraceOutcome> {
    ABNORMAL_END.take()
}

/// Address of the engine whose task this thread runs, or 0.
#[inline]
pub(crate) fn engine_of_this_thread() -> usize {
    ENGINE.get()
}

/// Enters an engine: this thread runs its tasks from now on.
pub(crate) fn join_engine(address: usize, hooks: Arc<dyn EngineHooks>) {
    ENGINE.set(address);
    HOOKS.set(Some(hooks));
}

/// Leaves the engine.
pub(crate) fn leave_engine() {
    ENGINE.set(0);
    set_hooks(None);
    set_rollup(None);
}

// `HOOKS` and `IN_ROLLUP` have destructors. A destructor of the user's thread-local may run after
// them: the cells are then gone, reads return `None`, and writes are dropped.

fn current_rollup() -> Option<Arc<dyn Any + Send + Sync>> {
    IN_ROLLUP.try_with(|rollup| rollup.borrow().clone()).ok().flatten()
}

fn current_hooks() -> Option<Arc<dyn EngineHooks>> {
    HOOKS.try_with(|hooks| hooks.borrow().clone()).ok().flatten()
}

fn set_rollup(rollup: Option<Arc<dyn Any + Send + Sync>>) {
    // The old value is dropped after the cell is released, because its drop may access the cell.
    drop(IN_ROLLUP.try_with(|cell| cell.replace(rollup)));
}

fn set_hooks(hooks: Option<Arc<dyn EngineHooks>>) {
    drop(HOOKS.try_with(|cell| cell.replace(hooks)));
}

/// Sets the result of the task that this thread runs. Returns the previous one.
pub(crate) fn set_turn_result(turn_result: TurnResult) -> TurnResult {
    TURN_RESULT.replace(turn_result)
}

/// Takes the result of the task that this thread runs, when the task ends.
pub(crate) fn take_turn_result() -> TurnResult {
    TURN_RESULT.replace(TurnResult::Done)
}

#[inline]
pub(crate) fn set_position_free() {
    PACKED.set(FREE);
}

#[inline]
pub(crate) fn set_position_lane(shard: usize, slot: usize) {
    PACKED.set((shard, slot));
}

pub(crate) fn set_position_rollup(rollup: Arc<dyn Any + Send + Sync>) {
    PACKED.set(ROLLUP);
    set_rollup(Some(rollup));
}

/// Clears the rollup of this thread, which has ended.
pub(crate) fn clear_rollup() {
    PACKED.set(FREE);
    set_rollup(None);
}

/// Position of a task, for a part of it that runs later on another worker of its pool.
#[derive(Debug)]
pub(crate) struct SavedPosition {
    packed: PackedPosition,
    rollup: Option<Arc<dyn Any + Send + Sync>>,
}

impl SavedPosition {
    /// Saves the position of the task that this thread runs.
    pub(crate) fn here() -> Self {
        SavedPosition { packed: PACKED.get(), rollup: current_rollup() }
    }

    /// Runs a part of the task at this position. The part must not unwind.
    pub(crate) fn scope<R>(self, part: impl FnOnce() -> R) -> R {
        PACKED.set(self.packed);
        set_rollup(self.rollup);
        let result = part();
        clear_rollup();
        result
    }
}

/// Returns the pool and the position of the task that this thread runs, if any.
pub(crate) fn current_engine_hooks() -> Option<(Arc<dyn EngineHooks>, OrderPosition)> {
    let hooks = current_hooks()?;
    let position = match PACKED.get() {
        FREE => OrderPosition::Free,
        ROLLUP => OrderPosition::Rollup(current_rollup()?),
        (shard, slot) => OrderPosition::Lane { shard, slot },
    };
    Some((hooks, position))
}

/// Context of a task, for the thread that continues it.
#[cfg(feature = "tokio")]
pub(crate) struct SavedContext {
    engine: usize,
    hooks: Option<Arc<dyn EngineHooks>>,
    packed: PackedPosition,
    rollup: Option<Arc<dyn Any + Send + Sync>>,
}

#[cfg(feature = "tokio")]
impl SavedContext {
    /// Saves the context of the task that this thread runs.
    pub(crate) fn here() -> Self {
        SavedContext {
            engine: ENGINE.get(),
            hooks: current_hooks(),
            packed: PACKED.get(),
            rollup: current_rollup(),
        }
    }

    /// Runs `body` in this context and restores the thread's own.
    pub(crate) fn scope<R>(&self, body: impl FnOnce() -> R) -> R {
        struct Return(Option<SavedContext>);
        impl Drop for Return {
            fn drop(&mut self) {
                if let Some(home) = self.0.take() {
                    home.restore();
                }
            }
        }
        let copy = SavedContext {
            engine: self.engine,
            hooks: self.hooks.clone(),
            packed: self.packed,
            rollup: self.rollup.clone(),
        };
        let _home = Return(Some(SavedContext::here()));
        copy.restore();
        body()
    }

    /// Detaches the context from the task's turn, which has ended. Later parts run inside the pool
    /// but without a position, because other tasks may hold the keys by now.
    pub(crate) fn leave_turn(&mut self) {
        self.packed = FREE;
        self.rollup = None;
    }

    fn restore(self) {
        ENGINE.set(self.engine);
        set_hooks(self.hooks);
        PACKED.set(self.packed);
        set_rollup(self.rollup);
    }

    /// Reports to the pool that the task was cancelled.
    pub(crate) fn cancelled(&self) {
        if let Some(hooks) = &self.hooks {
            hooks.cancelled();
        }
    }

    /// Reports to the pool that the task has returned an error.
    pub(crate) fn failed(&self) {
        if let Some(hooks) = &self.hooks {
            hooks.failed();
        }
    }

    /// Reports to the pool that the task has panicked.
    pub(crate) fn panicked(&self, payload: &(dyn Any + Send)) {
        if let Some(hooks) = &self.hooks {
            hooks.panicked(payload);
        }
    }
}
