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
    pub(super) kept: KeptHandle<W, T, E>,
}

/// Handle of a task that is being enqueued.
pub(super) struct KeptHandle<W, T, E> {
    pub(super) handle: Handle<T, E>,
    /// Finds the cell of the handle. An owner of the cell beside the handle would cost two atomic
    /// operations, one of them after a worker may have begun to write there.
    cell: fn(&Handle<T, E>) -> &dyn TakeWork<W>,
}

impl<W, T: Send + 'static, E: Send + 'static> PreparedWork<W, T, E> {
    fn new<C>(cell: Arc<C>) -> Self
    where
        C: RunSharedBody + JoinState<T, E> + TakeWork<W> + 'static,
    {
        let handle = Handle::new(cell.clone());
        let kept = KeptHandle { handle, cell: |handle| handle.cell_as::<C>() };
        PreparedWork { body: TaskBody::shared(cell), kept }
    }

    pub(super) fn closure<F>(body: F) -> Self
    where
        F: TaskFn<T, E, Work = W> + Send + 'static,
    {
        PreparedWork::new(TaskCell::shared(body))
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

impl<W, T: 'static, E: 'static> KeptHandle<W, T, E> {
    /// Takes the work back, and drops the body.
    pub(super) fn refused(self, body: TaskBody) -> W {
        let work = (self.cell)(&self.handle).take_work().expect("rejected work was never shared");
        drop(body);
        work
    }
}

impl<W, T, E> fmt::Debug for PreparedWork<W, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedWork").finish_non_exhaustive()
    }
}
