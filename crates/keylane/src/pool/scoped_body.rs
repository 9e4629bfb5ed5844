//! Bodies of tasks that borrow, and the count by which their scope waits for them.
//!
//! # Why a borrow is never used after the scope
//! 1. Before a closure is submitted, it is counted in `pending`. Its type-erased body owns the closure
//!    in an `Option`, and is the only owner. A submission that is refused, or unwinds because a key
//!    panics, leaves the count again: its closure has not been erased.
//! 2. The body leaves the count in its drop, after the closure is gone: run, which consumes it, or
//!    dropped. A panic of the closure, or of the drop of its captures, is caught before.
//! 3. `Pool::scope` returns, or unwinds, only after it has seen `pending` at zero, under its lock.
//!    Tasks of the scope that submit others do so before they leave the count themselves.
//! 4. A body that is leaked never leaves the count: then the scope waits forever.
//!
//! Bodies of a scope are not returned to callers as [`PendingTask`](crate::PendingTask)s, which may
//! outlive the scope: a stop drops them, and [`take`](crate::control::Keys::take) leaves them.

#[cfg(all(test, loom))]
mod models;

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::complete::PanicPayload;
use crate::engine::IntoWork;
use crate::run::{ExecContext, RunBody, TaskBody};
use crate::sync::{Condvar, Mutex, wait};
use crate::unwind::drop_catch_unwind;

/// Reason for which not all tasks of a scope have run to their end.
#[derive(Debug)]
#[non_exhaustive]
pub enum ScopeError {
    /// The caller is a task of the pool. The scope was not entered.
    FromInside,
    /// A task panicked; of several, this is the first.
    Panicked(PanicPayload),
    /// The pool was stopped or poisoned, and dropped tasks that had not begun.
    Cancelled,
}

impl fmt::Display for ScopeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScopeError::FromInside => f.write_str(
                "a task cannot wait for a scope of its own pool: use another pool or another thread",
            ),
            ScopeError::Panicked(payload) => match payload.message() {
                Some(message) => write!(f, "a task of the scope panicked: {message}"),
                None => f.write_str("a task of the scope panicked"),
            },
            ScopeError::Cancelled => f.write_str("the pool has dropped tasks of the scope"),
        }
    }
}

impl std::error::Error for ScopeError {}

/// Tasks of a scope that have not ended, and what happened to the others.
#[derive(Default)]
pub(super) struct ScopeState {
    inner: Mutex<ScopeInner>,
    /// Signaled when `pending` becomes zero.
    over: Condvar,
}

#[derive(Default)]
struct ScopeInner {
    /// Number of tasks whose closures exist or run.
    pending: usize,
    /// Payload of the first panic.
    panic: Option<Box<dyn Any + Send>>,
    /// Whether a task was dropped before it began.
    cancelled: bool,
}

impl ScopeState {
    /// Counts a task, until the guard is dropped or handed to a body.
    pub(super) fn begin(self: &Arc<Self>) -> PendingScoped<'_> {
        self.inner.lock().pending += 1;
        PendingScoped(self)
    }

    /// Ends a task, whose closure is gone.
    pub(super) fn end(&self, panic: Option<Box<dyn Any + Send>>, cancelled: bool) {
        let mut inner = self.inner.lock();
        inner.pending -= 1;
        inner.cancelled |= cancelled;
        let later = match inner.panic {
            None => {
                inner.panic = panic;
                None
            }
            Some(_) => panic,
        };
        let is_over = inner.pending == 0;
        drop(inner);
        if is_over {
            self.over.notify_all();
        }
        drop_catch_unwind(later);
    }

    /// Number of tasks that have not ended.
    pub(super) fn pending(&self) -> usize {
        self.inner.lock().pending
    }

    /// Waits until all tasks have ended, and returns what happened to them.
    pub(super) fn wait(&self) -> Result<(), ScopeError> {
        let mut inner = self.inner.lock();
        while inner.pending != 0 {
            inner = wait(&self.over, inner);
        }
        match inner.panic.take() {
            Some(payload) => Err(ScopeError::Panicked(PanicPayload::new(payload))),
            None if inner.cancelled => Err(ScopeError::Cancelled),
            None => Ok(()),
        }
    }
}

type ScopedClosure<'scope> = Box<dyn FnOnce() + Send + 'scope>;

/// Task that is counted and not submitted yet. Its drop leaves the count.
pub(super) struct PendingScoped<'s>(&'s Arc<ScopeState>);

impl PendingScoped<'_> {
    /// Leaves the count to a body.
    fn into_state(self) -> Arc<ScopeState> {
        let state = self.0.clone();
        std::mem::forget(self);
        state
    }
}

impl Drop for PendingScoped<'_> {
    fn drop(&mut self) {
        self.0.end(None, false);
    }
}

/// Closure that is about to be submitted.
pub(super) struct ScopedTask<'s, F> {
    pub(super) work: F,
    /// After the closure, so that it is dropped after it.
    pub(super) pending: PendingScoped<'s>,
}

impl<F: FnOnce() + Send> IntoWork<TaskBody> for ScopedTask<'_, F> {
    fn into_work(self) -> TaskBody {
        let work: ScopedClosure<'_> = Box::new(self.work);
        // SAFETY: only the lifetime of the type changes, and the closure ends before its scope.
        // The count moves into the body in the next two lines, where nothing can unwind;
        // `ScopedBody::drop` leaves it by `ScopeState::end` after the closure was dropped; and
        // `with_scope` in `scope.rs` calls `ScopeState::wait`, which waits for a count of zero,
        // on its only path to a return or an unwind.
        let work =
            unsafe { std::mem::transmute::<ScopedClosure<'_>, ScopedClosure<'static>>(work) };
        let state = self.pending.into_state();
        TaskBody::new(ScopedBody { work: Some(work), panic: None, state })
    }
}

/// Body of a task that borrows. Its drop leaves the count of its scope.
pub(super) struct ScopedBody {
    work: Option<ScopedClosure<'static>>,
    panic: Option<Box<dyn Any + Send>>,
    state: Arc<ScopeState>,
}

impl RunBody for ScopedBody {
    fn run(mut self, ctx: &mut dyn ExecContext) {
        if let Some(work) = self.work.take()
            && let Err(payload) = catch_unwind(AssertUnwindSafe(work))
        {
            ctx.panicked(&*payload);
            self.panic = Some(payload);
        }
    }
}

impl Drop for ScopedBody {
    fn drop(&mut self) {
        let work = self.work.take();
        let cancelled = work.is_some();
        drop_catch_unwind(work);
        self.state.end(self.panic.take(), cancelled);
    }
}
