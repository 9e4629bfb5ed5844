//! Work of a task with its handle, before the task is enqueued.

use std::fmt;
use std::sync::Arc;

#[cfg(feature = "tokio")]
use crate::complete::{FutureTask, Outcome};
use crate::complete::{Handle, JoinState, RetryTask, TakeWork, TaskCell, TaskFn};
use crate::engine::EngineSettings;
use crate::retry::Retry;
use crate::run::{RunSharedBody, TaskBody};

/// What a pool offers to the work of its tasks.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "tokio"), expect(dead_code, reason = "closures need nothing"))]
pub struct PoolContext<'p>(pub(super) &'p EngineSettings);

/// Work with its handle, before it is enqueued.
#[doc(hidden)]
pub struct PreparedWork<W, T, E> {
    pub(super) body: TaskBody,
    pub(super) handle: Handle<T, E>,
    /// State that gives the work back, should the task be rejected.
    pub(super) cell: Arc<dyn TakeWork<W>>,
}

impl<W, T: Send + 'static, E: Send + 'static> PreparedWork<W, T, E> {
    fn new<C>(cell: Arc<C>) -> Self
    where
        C: RunSharedBody + JoinState<T, E> + TakeWork<W> + 'static,
    {
        let handle = Handle::new(cell.clone());
        PreparedWork { body: TaskBody::shared(cell.clone()), handle, cell }
    }

    pub(super) fn closure<F>(body: F) -> Self
    where
        F: TaskFn<T, E, Work = W> + Send + 'static,
    {
        PreparedWork::new(Arc::new(TaskCell::new(body)))
    }

    pub(super) fn retrying(body: W, retry: Retry) -> Self
    where
        W: FnMut() -> Result<T, E> + Send + 'static,
    {
        PreparedWork::new(Arc::new(RetryTask::new(body, retry)))
    }

    #[cfg(feature = "tokio")]
    pub(super) fn future(
        future: W,
        pool: PoolContext<'_>,
        outcome: fn(W::Output) -> Outcome<T, E>,
    ) -> Self
    where
        W: Future + Send + 'static,
    {
        let runtime = pool.0.runtime.clone().expect("futures are refused without a runtime");
        PreparedWork::new(Arc::new(FutureTask::new(future, outcome, runtime)))
    }
}

impl<W, T, E> fmt::Debug for PreparedWork<W, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedWork").finish_non_exhaustive()
    }
}
