//! What a thread knows of the task that it runs: whose it is, and where that task stands.
//!
//! Asked when a task submits to its own pool, or waits for another task of it.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

use super::Fate;
use crate::observe::SliceEnd;

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
pub(crate) trait Inside: Send + Sync {
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
type Spot = (usize, usize);
const FREE: Spot = (usize::MAX, 0);
const ROLLUP: Spot = (usize::MAX, 1);

thread_local! {
    /// The engine whose task this thread runs, by its address; 0 if it runs none.
    static ENGINE: Cell<usize> = const { Cell::new(0) };
    static SPOT: Cell<Spot> = const { Cell::new(FREE) };
    /// Set while `SPOT` is `ROLLUP`.
    static IN_ROLLUP: RefCell<Option<Arc<dyn Any + Send + Sync>>> = const { RefCell::new(None) };
    /// How the task has ended, if not well: for who records that.
    static MISHAP: Cell<Option<SliceEnd>> = const { Cell::new(None) };
    /// What has become of the task that this thread runs, or whose turn it ends; seldom written.
    static FATE: Cell<Fate> = const { Cell::new(Fate::Done) };
    static INSIDE: RefCell<Option<Arc<dyn Inside>>> = const { RefCell::new(None) };
}

/// The task that this thread runs has not ended well.
pub(crate) fn note_mishap(how: SliceEnd) {
    MISHAP.set(Some(how));
}

/// How the last task of this thread has ended, if not well and nobody has asked before.
pub(crate) fn take_mishap() -> Option<SliceEnd> {
    MISHAP.take()
}

/// The address of the engine whose task this thread runs, or 0.
#[inline]
pub(crate) fn engine_of_this_thread() -> usize {
    ENGINE.get()
}

/// This thread runs tasks of an engine from now on.
pub(crate) fn join_engine(address: usize, inside: Arc<dyn Inside>) {
    ENGINE.set(address);
    INSIDE.set(Some(inside));
}

/// And from now on no longer.
pub(crate) fn leave_engine() {
    ENGINE.set(0);
    set_inside(None);
    set_rollup(None);
}

// `INSIDE` and `IN_ROLLUP` have destructors. A destructor of another one, of the user's, may come
// later: then there is nothing in them any more, and nothing is put there.

fn rollup_here() -> Option<Arc<dyn Any + Send + Sync>> {
    IN_ROLLUP.try_with(|rollup| rollup.borrow().clone()).ok().flatten()
}

fn inside_here() -> Option<Arc<dyn Inside>> {
    INSIDE.try_with(|inside| inside.borrow().clone()).ok().flatten()
}

fn set_rollup(rollup: Option<Arc<dyn Any + Send + Sync>>) {
    // What was there is dropped after the cell is free again.
    drop(IN_ROLLUP.try_with(|cell| cell.replace(rollup)));
}

fn set_inside(inside: Option<Arc<dyn Inside>>) {
    drop(INSIDE.try_with(|cell| cell.replace(inside)));
}

/// Something has become of the task that this thread runs. Returns what was known of it.
pub(crate) fn set_fate(fate: Fate) -> Fate {
    FATE.replace(fate)
}

/// What has become of the task that this thread runs, and now ends.
pub(crate) fn take_fate() -> Fate {
    FATE.replace(Fate::Done)
}

#[inline]
pub(crate) fn stand_free() {
    SPOT.set(FREE);
}

#[inline]
pub(crate) fn stand_in_lane(shard: usize, slot: usize) {
    SPOT.set((shard, slot));
}

pub(crate) fn stand_in_rollup(rollup: Arc<dyn Any + Send + Sync>) {
    SPOT.set(ROLLUP);
    set_rollup(Some(rollup));
}

/// The rollup that this thread ran has ended.
pub(crate) fn leave_rollup() {
    SPOT.set(FREE);
    set_rollup(None);
}

/// Where a task stands, for a part of it that runs later, on another worker of its pool.
#[derive(Debug)]
pub(crate) struct Standing {
    spot: Spot,
    rollup: Option<Arc<dyn Any + Send + Sync>>,
}

impl Standing {
    /// That of the task that this thread runs.
    pub(crate) fn here() -> Self {
        Standing { spot: SPOT.get(), rollup: rollup_here() }
    }

    /// Runs a part of the task, which does not unwind.
    pub(crate) fn visit<R>(self, part: impl FnOnce() -> R) -> R {
        SPOT.set(self.spot);
        set_rollup(self.rollup);
        let result = part();
        leave_rollup();
        result
    }
}

/// The pool whose task this thread runs, if any, and where that task stands.
pub(crate) fn current_inside() -> Option<(Arc<dyn Inside>, Position)> {
    let inside = inside_here()?;
    let position = match SPOT.get() {
        FREE => Position::Free,
        ROLLUP => Position::Rollup(rollup_here()?),
        (shard, slot) => Position::Lane { shard, slot },
    };
    Some((inside, position))
}

/// A task's place, to be taken along to whatever thread goes on with it.
#[cfg(feature = "tokio")]
pub(crate) struct Place {
    engine: usize,
    inside: Option<Arc<dyn Inside>>,
    spot: Spot,
    rollup: Option<Arc<dyn Any + Send + Sync>>,
}

#[cfg(feature = "tokio")]
impl Place {
    /// That of the task that this thread runs.
    pub(crate) fn here() -> Self {
        Place {
            engine: ENGINE.get(),
            inside: inside_here(),
            spot: SPOT.get(),
            rollup: rollup_here(),
        }
    }

    /// Runs `body` as a part of the task.
    pub(crate) fn visit<R>(&self, body: impl FnOnce() -> R) -> R {
        struct Return(Option<Place>);
        impl Drop for Return {
            fn drop(&mut self) {
                if let Some(home) = self.0.take() {
                    home.settle();
                }
            }
        }
        let copy = Place {
            engine: self.engine,
            inside: self.inside.clone(),
            spot: self.spot,
            rollup: self.rollup.clone(),
        };
        let _home = Return(Some(Place::here()));
        copy.settle();
        body()
    }

    /// The task's turn has ended. What is still to be done for it is done inside its pool, and stands nowhere:
    /// its keys may be others' by now.
    pub(crate) fn leave_turn(&mut self) {
        self.spot = FREE;
        self.rollup = None;
    }

    fn settle(self) {
        ENGINE.set(self.engine);
        set_inside(self.inside);
        SPOT.set(self.spot);
        set_rollup(self.rollup);
    }

    /// Tells the pool that the task was cancelled.
    pub(crate) fn cancelled(&self) {
        if let Some(inside) = &self.inside {
            inside.cancelled();
        }
    }

    /// Tells the pool that the task has panicked.
    pub(crate) fn panicked(&self, payload: &(dyn Any + Send)) {
        if let Some(inside) = &self.inside {
            inside.panicked(payload);
        }
    }
}
