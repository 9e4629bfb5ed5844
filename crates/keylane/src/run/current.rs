//! What a thread knows of the task that it runs: whose it is, and where that task stands.
//!
//! Asked when a task submits to its own pool, or waits for another task of it.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

use super::TurnResult;
use crate::observe::TraceOutcome;

/// Where the task that a thread runs stands in the order of its pool.
#[derive(Clone, Debug, Default)]
pub(crate) enum Position {
    /// It has no key.
    #[default]
    Free,
    /// It holds this lane.
    Lane { shard: usize, slot: usize },
    /// It is this rollup.
    Rollup(Arc<dyn Any + Send + Sync>),
}

/// What a waiting task asks of its own pool.
pub(crate) trait EngineHooks: Send + Sync {
    /// Whether any task is ordered behind the one at `position`, directly or not, for whose name `is_it`
    /// returns true. It is asked of each until then, without an order, maybe more than once and under locks.
    fn is_behind(&self, position: &Position, is_it: &dyn Fn(usize) -> bool) -> bool;

    /// The calling worker is about to wait; another may take its place meanwhile. False if it must not
    /// wait, for no worker would be left: all others wait as well, and no thread is to be had.
    fn block(&self) -> bool;

    /// It has waited.
    fn unblock(&self);

    /// A task that goes on elsewhere has panicked.
    #[cfg(feature = "tokio")]
    fn panicked(&self, payload: &(dyn Any + Send));

    /// And another was cancelled there.
    #[cfg(feature = "tokio")]
    fn cancelled(&self);
}

/// A lane's shard and slot, or one of the marks below: what fits into a cell that is written for
/// every task.
type PackedPosition = (usize, usize);
const FREE: PackedPosition = (usize::MAX, 0);
const ROLLUP: PackedPosition = (usize::MAX, 1);

thread_local! {
    /// The engine whose task this thread runs, by its address; 0 if it runs none.
    static ENGINE: Cell<usize> = const { Cell::new(0) };
    static PACKED: Cell<PackedPosition> = const { Cell::new(FREE) };
    /// Set while `PACKED` is `ROLLUP`.
    static IN_ROLLUP: RefCell<Option<Arc<dyn Any + Send + Sync>>> = const { RefCell::new(None) };
    /// How the task has ended, if not well: for who records that.
    static MISHAP: Cell<Option<TraceOutcome>> = const { Cell::new(None) };
    /// What has become of the task that this thread runs, or whose turn it ends; seldom written.
    static FATE: Cell<TurnResult> = const { Cell::new(TurnResult::Done) };
    static HOOKS: RefCell<Option<Arc<dyn EngineHooks>>> = const { RefCell::new(None) };
}

/// The task that this thread runs has not ended well.
pub(crate) fn note_mishap(how: TraceOutcome) {
    MISHAP.set(Some(how));
}

/// How the last task of this thread has ended, if not well and nobody has asked before.
pub(crate) fn take_mishap() -> Option<TraceOutcome> {
    MISHAP.take()
}

/// The address of the engine whose task this thread runs, or 0.
#[inline]
pub(crate) fn engine_of_this_thread() -> usize {
    ENGINE.get()
}

/// This thread runs tasks of an engine from now on.
pub(crate) fn join_engine(address: usize, hooks: Arc<dyn EngineHooks>) {
    ENGINE.set(address);
    HOOKS.set(Some(hooks));
}

/// And from now on no longer.
pub(crate) fn leave_engine() {
    ENGINE.set(0);
    set_hooks(None);
    set_rollup(None);
}

// `HOOKS` and `IN_ROLLUP` have destructors. A destructor of another one, of the user's, may come
// later: then there is nothing in them any more, and nothing is put there.

fn rollup_here() -> Option<Arc<dyn Any + Send + Sync>> {
    IN_ROLLUP.try_with(|rollup| rollup.borrow().clone()).ok().flatten()
}

fn hooks_here() -> Option<Arc<dyn EngineHooks>> {
    HOOKS.try_with(|hooks| hooks.borrow().clone()).ok().flatten()
}

fn set_rollup(rollup: Option<Arc<dyn Any + Send + Sync>>) {
    // What was there is dropped after the cell is free again.
    drop(IN_ROLLUP.try_with(|cell| cell.replace(rollup)));
}

fn set_hooks(hooks: Option<Arc<dyn EngineHooks>>) {
    drop(HOOKS.try_with(|cell| cell.replace(hooks)));
}

/// Something has become of the task that this thread runs. Returns what was known of it.
pub(crate) fn set_turn_result(turn_result: TurnResult) -> TurnResult {
    FATE.replace(turn_result)
}

/// What has become of the task that this thread runs, and now ends.
pub(crate) fn take_turn_result() -> TurnResult {
    FATE.replace(TurnResult::Done)
}

#[inline]
pub(crate) fn stand_free() {
    PACKED.set(FREE);
}

#[inline]
pub(crate) fn stand_in_lane(shard: usize, slot: usize) {
    PACKED.set((shard, slot));
}

pub(crate) fn stand_in_rollup(rollup: Arc<dyn Any + Send + Sync>) {
    PACKED.set(ROLLUP);
    set_rollup(Some(rollup));
}

/// The rollup that this thread ran has ended.
pub(crate) fn leave_rollup() {
    PACKED.set(FREE);
    set_rollup(None);
}

/// Where a task stands, for a part of it that runs later, on another worker of its pool.
#[derive(Debug)]
pub(crate) struct SavedPosition {
    packed: PackedPosition,
    rollup: Option<Arc<dyn Any + Send + Sync>>,
}

impl SavedPosition {
    /// That of the task that this thread runs.
    pub(crate) fn here() -> Self {
        SavedPosition { packed: PACKED.get(), rollup: rollup_here() }
    }

    /// Runs a part of the task, which does not unwind.
    pub(crate) fn visit<R>(self, part: impl FnOnce() -> R) -> R {
        PACKED.set(self.packed);
        set_rollup(self.rollup);
        let result = part();
        leave_rollup();
        result
    }
}

/// The pool whose task this thread runs, if any, and where that task stands.
pub(crate) fn current_engine_hooks() -> Option<(Arc<dyn EngineHooks>, Position)> {
    let hooks = hooks_here()?;
    let position = match PACKED.get() {
        FREE => Position::Free,
        ROLLUP => Position::Rollup(rollup_here()?),
        (shard, slot) => Position::Lane { shard, slot },
    };
    Some((hooks, position))
}

/// A task's place, to be taken along to whatever thread goes on with it.
#[cfg(feature = "tokio")]
pub(crate) struct SavedContext {
    engine: usize,
    hooks: Option<Arc<dyn EngineHooks>>,
    packed: PackedPosition,
    rollup: Option<Arc<dyn Any + Send + Sync>>,
}

#[cfg(feature = "tokio")]
impl SavedContext {
    /// That of the task that this thread runs.
    pub(crate) fn here() -> Self {
        SavedContext {
            engine: ENGINE.get(),
            hooks: hooks_here(),
            packed: PACKED.get(),
            rollup: rollup_here(),
        }
    }

    /// Runs `body` as a part of the task.
    pub(crate) fn visit<R>(&self, body: impl FnOnce() -> R) -> R {
        struct Return(Option<SavedContext>);
        impl Drop for Return {
            fn drop(&mut self) {
                if let Some(home) = self.0.take() {
                    home.settle();
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
        copy.settle();
        body()
    }

    /// The task's turn has ended. What is still to be done for it is done inside its pool, and stands nowhere:
    /// its keys may be others' by now.
    pub(crate) fn leave_turn(&mut self) {
        self.packed = FREE;
        self.rollup = None;
    }

    fn settle(self) {
        ENGINE.set(self.engine);
        set_hooks(self.hooks);
        PACKED.set(self.packed);
        set_rollup(self.rollup);
    }

    /// Tells the pool that the task was cancelled.
    pub(crate) fn cancelled(&self) {
        if let Some(hooks) = &self.hooks {
            hooks.cancelled();
        }
    }

    /// Tells the pool that the task has panicked.
    pub(crate) fn panicked(&self, payload: &(dyn Any + Send)) {
        if let Some(hooks) = &self.hooks {
            hooks.panicked(payload);
        }
    }
}
